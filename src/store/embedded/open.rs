//! Opening the directory, and what sled's errors mean.

use std::path::Path;

use super::keys;
use super::tail::{Checked, Tail};
use crate::model::error::{Error, Kind, Result};
use crate::platform::disk::{self, Disk, Refusal, sync_directory};

/// Bytes that sled may use for its cache. Its default of 1 GiB is no sidecar's.
const CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// What helps once sled failed: it keeps its first error until it is opened anew, even if the disk has space again, so
/// dwell does not pretend otherwise.
pub(super) const REMEDY: &str = "it works again once the disk is repaired or has space again AND dwell is restarted";

/// Version of the layout of keys and values. Another one needs another decoder.
const VERSION: &[u8] = b"1";

/// Opens a store with `open`, and uses nothing of it after a panic. # Errors: `Corrupt` for a panic.
pub(super) fn guarded<T>(dir: &Path, open: impl FnOnce() -> Result<T>) -> Result<T> {
    disk::guarded(open).unwrap_or_else(|()| Err(unreadable(dir, "it is damaged")))
}

/// Opens sled in a directory and makes sure that the directory itself survives a power cut.
///
/// # Errors
/// `Conflict` when another process has it, `Unavailable` when the disk does not let it, `Corrupt` when it is unreadable.
pub(super) fn open(dir: &Path) -> Result<(Disk, Tail)> {
    let place = dir.display();
    let unavailable = |error: std::io::Error| Error::unavailable(format!("the store in {place}: {error}"));
    let disk = Disk::open(dir, CACHE_BYTES).map_err(|refusal| match refusal {
        Refusal::Locked => {
            let detail = format!("another dwell uses the store in {place}: stop it, or use another --data-dir");
            Error::new(Kind::Conflict, detail)
        }
        Refusal::Io(error) => unavailable(error),
        Refusal::Damaged(why) => unreadable(dir, &why),
    })?;
    let db = disk.tree();
    let tail = match Tail::check(db, dir).map_err(unavailable)? {
        Checked::Whole(tail) => tail,
        Checked::Lost(commits) => {
            let why = format!("its last {commits} commits are lost; deleting {place}/commits accepts that");
            return Err(unreadable(dir, &why));
        }
    };
    match db.get(keys::version()).map_err(broken)? {
        Some(version) if version == VERSION => {}
        Some(version) => {
            let found = String::from_utf8_lossy(&version).into_owned();
            return Err(unreadable(dir, &format!("its layout is {found:?}, this dwell reads \"1\"")));
        }
        None if db.iter().next().is_none() => {
            db.insert(keys::version(), VERSION).map_err(broken)?;
        }
        None => return Err(unreadable(dir, "it is not a store of dwell, or its beginning is lost")),
    }
    db.flush().map_err(broken)?;
    sync_directory(dir).map_err(unavailable)?;
    Ok((disk, tail))
}

fn unreadable(dir: &Path, why: &str) -> Error {
    let place = dir.display();
    Error::corrupt(format!(
        "the store in {place} cannot be read ({why}): restore it from a copy, or move the directory away to begin with \
         an empty one"
    ))
}

/// What an error of sled means once the store is open.
pub(super) fn broken(error: sled::Error) -> Error {
    match error {
        sled::Error::Io(error) => Error::unavailable(format!("the embedded store failed ({error}); {REMEDY}")),
        sled::Error::Corruption { .. } => Error::corrupt(format!("the embedded store is damaged: {error}")),
        error => Error::bug(format!("the embedded store: {error}")),
    }
}
