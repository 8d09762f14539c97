//! A small file of what this process knows, a line for each thing: `crc32 of the text (8 hex digits) | space | text`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::platform::clock::Clock;
use crate::platform::disk::{make_directory, replace};
use crate::platform::log_throttle::RepeatThrottle;
use crate::platform::tasks::blocking;

/// How long changes gather before they are written, and how long it takes until a disk that failed is tried again.
const GATHER: Duration = Duration::from_secs(1);

/// A file that is replaced as a whole. A disk that is full or fails stops nobody: it is written again once it can be. A line that
/// the disk changed by itself does not count.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    changed: Notify,
    writing: Mutex<()>,
    unwritten: RepeatThrottle,
}

impl StateFile {
    /// Reads what is whole of the file. One that is not there knows nothing.
    pub(super) fn load<T>(path: PathBuf, read: impl Fn(&str) -> Option<T>) -> (StateFile, Vec<T>) {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let known: Vec<T> = lines.iter().filter_map(|line| read(checked(line)?)).collect();
        if known.len() < lines.len() {
            let (file, damaged) = (path.display(), lines.len() - known.len());
            tracing::warn!(%file, damaged, "small file damaged: what is whole of it counts");
        }
        let (changed, writing, unwritten) = (Notify::new(), Mutex::default(), RepeatThrottle::default());
        (StateFile { path, changed, writing, unwritten }, known)
    }

    /// It is to be written soon.
    pub(super) fn change(&self) {
        self.changed.notify_one();
    }

    /// Writes it now, as it is when its turn comes: a text without line breaks for each thing. When this returns the disk has it, unless
    /// it fails.
    pub(super) async fn save(&self, texts: impl Fn() -> Vec<String>) {
        let _writing = self.writing.lock().await;
        let (path, lines) = (self.path.clone(), texts().iter().map(|text| line(text)).collect::<String>());
        let written = match blocking(move || write(&path, lines.as_bytes())).await {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let file = self.path.display();
        match written {
            Ok(()) if self.unwritten.is_over() => tracing::info!(%file, "small file written again"),
            Ok(()) => {}
            Err(error) => {
                if self.unwritten.is_due(Clock::System.instant()) {
                    tracing::warn!(%file, %error, "small file not written: tried again each second");
                }
                self.change();
            }
        }
    }

    /// Writes it whenever it has changed, until `stop`.
    pub(super) async fn run(&self, clock: &Clock, stop: CancellationToken, texts: impl Fn() -> Vec<String>) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = clock.sleep(GATHER) => {}
            }
            self.save(&texts).await;
        }
    }
}

fn line(text: &str) -> String {
    format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()))
}

/// The text of a line, if it is the one that was written.
fn checked(line: &[u8]) -> Option<&str> {
    let (sum, text) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    (sum == format!("{:08x}", crc32fast::hash(text.as_bytes()))).then_some(text)
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    make_directory(path.parent().unwrap_or(Path::new(".")))?;
    replace(path, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::{Error, Result};

    #[tokio::test(start_paused = true)]
    async fn what_the_disk_did_not_take_is_written_once_it_does() -> Result<()> {
        let dir = tempfile::tempdir().map_err(|error| Error::bug(error.to_string()))?;
        let path = dir.path().join("deep").join("state");
        // No directory can be made there.
        assert!(std::fs::write(dir.path().join("deep"), "in the way").is_ok());
        let (file, stop) = (StateFile::load(path.clone(), |text| Some(text.to_owned())).0, CancellationToken::new());
        file.save(|| vec!["early".to_owned()]).await;
        let mend = async {
            assert!(std::fs::remove_file(dir.path().join("deep")).is_ok());
            while !path.exists() {
                Clock::System.sleep(GATHER).await;
            }
            stop.cancel();
        };
        tokio::join!(file.run(&Clock::System, stop.clone(), || vec!["late".to_owned()]), mend);
        assert_eq!(StateFile::load(path, |text| Some(text.to_owned())).1, ["late"]);
        Ok(())
    }

    #[tokio::test]
    async fn a_bit_that_a_disk_flipped_costs_its_line() -> Result<()> {
        let dir = tempfile::tempdir().map_err(|error| Error::bug(error.to_string()))?;
        let path = dir.path().join("state");
        let load = || StateFile::load(path.clone(), |text| Some(text.to_owned()));
        let texts = ["first", "second {}", ""].map(str::to_owned);
        load().0.save(|| texts.to_vec()).await;
        assert_eq!(load().1, texts);
        let whole = std::fs::read(&path).unwrap_or_default();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(std::fs::write(&path, &damaged).is_ok());
            let left = load().1;
            // A line break that is damaged, or comes out of the damage, costs the lines beside it.
            assert!(
                left.len() + 2 >= texts.len() && left.iter().all(|text| texts.contains(text)),
                "bit {bit}: {left:?}"
            );
        }
        Ok(())
    }
}
