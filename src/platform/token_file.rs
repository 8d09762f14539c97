//! A file that holds a token, read again when it may have changed.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::limits::TOKEN_BYTES_MAX;
use crate::platform::bearer::Bearer;
use crate::platform::clock::Instant;

/// How long what was read counts.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// White space around a token that is still read.
const AROUND: usize = 64;

/// The permission of everybody else to read.
const READABLE_BY_OTHERS: u32 = 0o004;

/// A file that holds a token and nothing else. It is read again, at most once a second, when somebody asks: its time stamp
/// is not gone by, since a file can be replaced by one with the same. It belongs on a local file system.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    read: Mutex<Option<Reading>>,
}

#[derive(Debug)]
struct Reading {
    at: Instant,
    found: Result<Bearer, String>,
}

impl TokenFile {
    /// A file that is not read yet.
    pub fn new(path: PathBuf) -> TokenFile {
        TokenFile { path, read: Mutex::default() }
    }

    /// The token that it holds now.
    ///
    /// # Errors
    /// Why it holds none; nothing of what it holds.
    pub fn token(&self, now: Instant) -> Result<Bearer, String> {
        if let Some(read) = &*self.lock()
            && now.since(read.at) < LOOK_AGAIN
        {
            return read.found.clone();
        }
        self.reread(now)
    }

    /// The same, read just now: for who was told that what was read before does not count.
    ///
    /// # Errors
    /// Those of [`TokenFile::token`].
    pub fn reread(&self, now: Instant) -> Result<Bearer, String> {
        let mut read = self.lock();
        let (found, is_open) = match TokenFile::read(&self.path) {
            Ok((token, is_open)) => (Ok(token), is_open),
            Err(why) => (Err(why), false),
        };
        let before = read.as_ref().map(|read| &read.found);
        if before != Some(&found) {
            self.note(before.is_none(), &found, is_open);
        }
        *read = Some(Reading { at: now, found: found.clone() });
        found
    }

    /// The token that a file holds, and whether others than its owner and its group may read it.
    ///
    /// # Errors
    /// Why it holds none; nothing of what it holds.
    pub fn read(path: &Path) -> Result<(Bearer, bool), String> {
        let why = |error: std::io::Error| format!("cannot be read: {error}");
        let file = File::open(path).map_err(why)?;
        let mode = file.metadata().map_err(why)?.permissions().mode();
        let mut bytes = Vec::new();
        file.take((TOKEN_BYTES_MAX + AROUND) as u64).read_to_end(&mut bytes).map_err(why)?;
        let text = String::from_utf8(bytes).map_err(|_| "is not text".to_owned())?;
        Bearer::parse(&text).map(|token| (token, mode & READABLE_BY_OTHERS != 0))
    }

    /// Says what changed, once.
    fn note(&self, first: bool, found: &Result<Bearer, String>, is_open: bool) {
        let file = self.path.display();
        match found {
            Err(why) => tracing::warn!(%file, why, "a token file holds no token; what it held is refused"),
            Ok(_) if !first => tracing::info!(%file, "a token file holds another token"),
            Ok(_) => {}
        }
        if is_open {
            tracing::warn!(%file, "everybody on this machine may read a token file; chmod o-r helps");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reading>> {
        // Nothing panics while the lock is held; if it did, what was read would still be whole.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_known_and_a_large_one_is_none() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("token");
        std::fs::write(&path, "0123456789abcdef\n")?;
        for (mode, open) in [(0o600, false), (0o640, false), (0o644, true)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode))?;
            assert_eq!(TokenFile::read(&path).map(|(_, open)| open), Ok(open), "{mode:o}");
        }
        std::fs::write(&path, "x".repeat(10 * TOKEN_BYTES_MAX))?;
        assert!(TokenFile::read(&path).is_err());
        std::fs::write(&path, b"0123456789abcdef\xff")?;
        assert_eq!(TokenFile::read(&path).err().as_deref(), Some("is not text"));
        assert!(TokenFile::read(dir.path()).is_err_and(|why| why.starts_with("cannot be read")));
        Ok(())
    }
}
