//! Looks at the disk, without disturbing a broker that uses the same directory: one small file is written and removed.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access, statfs};

use super::judge::{DiskFacts, StoreFacts};
use crate::app::config::Config;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;
use crate::platform::disk::{MarkerFile, free_bytes, lock_holder};
use crate::wal::Inspection;

/// Small durable writes that are measured.
const WRITES: usize = 20;

/// Bytes of one.
const WRITE_BYTES: usize = 512;

/// What was seen below `data_dir`.
#[derive(Debug)]
pub(super) struct DataDir {
    pub(super) disk: DiskFacts,
    pub(super) wal: Result<Option<Inspection>, String>,
    pub(super) journal: Result<Option<Inspection>, String>,
    pub(super) store: StoreFacts,
}

impl DataDir {
    /// Looks at everything that a broker with this configuration keeps on disk. It may take as long as the disk does.
    pub(super) fn look(config: &Config, dir: &Path) -> DataDir {
        let survey = |name| Inspection::of(&dir.join(name)).map_err(|error| error.to_string());
        let (wal, journal) = (survey("wal"), survey("journal"));
        let logs = match (config.redis.url.is_some(), config.journal_window().is_some()) {
            (false, _) => [None, None],
            (true, false) => [Some(&wal), None],
            (true, true) => [Some(&wal), Some(&journal)],
        };
        let wanted = |survey: &Result<Option<Inspection>, String>| {
            let taken = survey.as_ref().ok().and_then(Option::as_ref).map_or(0, |survey| survey.bytes);
            config.wal_limit_bytes.saturating_sub(taken)
        };
        let wanted_bytes = logs.into_iter().flatten().map(wanted).sum();
        let above = above(dir);
        let there = above.as_deref().unwrap_or(dir);
        let disk = DiskFacts {
            dir: dir.to_owned(),
            kind: statfs(there).ok().and_then(|found| u64::try_from(found.f_type).ok()),
            free_bytes: free_bytes(there),
            writes: match &above {
                // What is not there is made by the broker, not by who looks.
                Some(above) => access(above, Access::WRITE_OK | Access::EXEC_OK)
                    .map(|()| Vec::new())
                    .map_err(|errno| io::Error::from(errno).to_string()),
                None => probe(dir).map_err(|error| error.to_string()),
            },
            wanted_bytes,
            above,
        };
        DataDir { disk, wal, journal, store: store(&dir.join("store")) }
    }

    /// The process that has the directory.
    pub(super) fn holder(&self) -> Option<u32> {
        let of = |survey: &Result<Option<Inspection>, String>| survey.as_ref().ok()?.as_ref()?.holder;
        of(&self.wal).or(self.store.holder)
    }
}

/// The nearest directory above one that is not there; `None` when it is there.
fn above(dir: &Path) -> Option<PathBuf> {
    if dir.is_dir() {
        return None;
    }
    let nearest = dir.ancestors().skip(1).find(|above| above.is_dir());
    Some(nearest.map_or_else(|| PathBuf::from("."), Path::to_owned))
}

/// A file that is removed when this is dropped.
struct Probe(PathBuf, File);

impl Drop for Probe {
    fn drop(&mut self) {
        // Whoever looks next is told what the disk said.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// How long small durable writes take.
fn probe(dir: &Path) -> io::Result<Vec<Duration>> {
    let path = dir.join(format!(".doctor-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let mut probe = Probe(path, file);
    let mut took = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let began = Clock::System.instant();
        probe.1.write_all(&[0; WRITE_BYTES])?;
        probe.1.sync_data()?;
        took.push(Clock::System.instant().since(began));
    }
    Ok(took)
}

fn store(dir: &Path) -> StoreFacts {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = files.filter_map(|file| file.metadata().ok()).filter(Metadata::is_file).map(|file| file.len()).sum();
    let mark = dir.join("commits");
    let age = std::fs::metadata(&mark).ok().map(|mark| {
        let at = Timestamp::from_ms(u64::try_from(mark.mtime()).unwrap_or(0) * 1_000);
        Duration::from_secs(Clock::System.now().since(at).as_secs())
    });
    StoreFacts {
        is_there: dir.join("db").exists(),
        bytes,
        commits: MarkerFile::peek(&mark).ok().flatten(),
        age,
        holder: lock_holder(&dir.join("db")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_leaves_nothing_behind_and_makes_no_directory() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        assert_eq!(probe(dir.path())?.len(), WRITES);
        assert_eq!(std::fs::read_dir(dir.path())?.count(), 0);
        let deep = dir.path().join("a/b");
        assert_eq!(above(&deep), Some(dir.path().to_owned()));
        assert!(probe(&deep).is_err() && !deep.exists());
        assert_eq!(above(dir.path()), None);
        Ok(())
    }
}
