//! The token in a file, read again when the file changes.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::error::Error;

#[derive(Debug, Default)]
pub(crate) struct TokenFile {
    path: Option<PathBuf>,
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug)]
struct Seen {
    version: (u64, i64, i64, u64),
    token: String,
}

fn version(file: &Metadata) -> (u64, i64, i64, u64) {
    (file.ino(), file.mtime(), file.mtime_nsec(), file.len())
}

impl TokenFile {
    pub(crate) fn new(path: Option<PathBuf>) -> TokenFile {
        TokenFile { path, seen: Mutex::default() }
    }

    /// The token, or `None` without a file. With `again` the file is read even if it looks as before.
    ///
    /// # Errors
    ///
    /// The file cannot be read, and never was: one that is being replaced may be absent for a moment.
    pub(crate) fn read(&self, again: bool) -> Result<Option<String>, Error> {
        let Some(path) = &self.path else { return Ok(None) };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let read = fs::metadata(path).and_then(|file| {
            let version = version(&file);
            match &*seen {
                Some(seen) if seen.version == version && !again => Ok(None),
                _ => fs::read_to_string(path).map(|token| Some(Seen { version, token: token.trim().to_owned() })),
            }
        });
        match (read, &*seen) {
            (Ok(None), Some(seen)) | (Err(_), Some(seen)) => Ok(Some(seen.token.clone())),
            (Ok(Some(new)), _) => Ok(Some(seen.insert(new).token.clone())),
            (Ok(None), None) => Ok(None),
            (Err(error), None) => Err(Error::Setup(format!("the token file {}: {error}", path.display()))),
        }
    }
}
