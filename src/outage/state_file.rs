//! A small file of what this process knows.

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

/// A file that is replaced as a whole. A disk that is full or fails stops nobody: it is written again once it can be.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    changed: Notify,
    writing: Mutex<()>,
    unwritten: RepeatThrottle,
}

impl StateFile {
    pub(super) fn new(path: PathBuf) -> StateFile {
        StateFile { path, changed: Notify::new(), writing: Mutex::default(), unwritten: RepeatThrottle::default() }
    }

    /// It is to be written soon.
    pub(super) fn change(&self) {
        self.changed.notify_one();
    }

    /// Writes it now, as it is when its turn comes. When this returns the disk has it, unless it fails.
    pub(super) async fn save(&self, contents: impl Fn() -> Vec<u8>) {
        let _writing = self.writing.lock().await;
        let (path, bytes) = (self.path.clone(), contents());
        let written = match blocking(move || write(&path, &bytes)).await {
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
    pub(super) async fn run(&self, clock: &Clock, stop: CancellationToken, contents: impl Fn() -> Vec<u8>) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = clock.sleep(GATHER) => {}
            }
            self.save(&contents).await;
        }
    }
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
        let (file, stop) = (StateFile::new(path.clone()), CancellationToken::new());
        file.save(|| b"early".to_vec()).await;
        let mend = async {
            assert!(std::fs::remove_file(dir.path().join("deep")).is_ok());
            while !path.exists() {
                Clock::System.sleep(GATHER).await;
            }
            stop.cancel();
        };
        tokio::join!(file.run(&Clock::System, stop.clone(), || b"late".to_vec()), mend);
        assert_eq!(std::fs::read(&path).ok(), Some(b"late".to_vec()));
        Ok(())
    }
}
