//! Opening the directory, and what sled's errors mean.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use sled::Db;

use super::keys;
use super::tail::{Checked, Tail};
use crate::error::{Error, Kind, Result};

/// Bytes that sled may use for its cache. Its default of 1 GiB is no sidecar's.
const CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// How often a locked directory is tried: sled's own threads let go of it a moment after a store was closed.
const LOCK_ATTEMPTS: u32 = 50;

/// How long to wait between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// What helps once sled failed: it keeps its first error until it is opened anew, even if the disk has space again, so
/// dwell does not pretend otherwise.
pub(super) const REMEDY: &str = "it works again once the disk is repaired or has space again AND dwell is restarted";

/// Version of the layout of keys and values. Another one needs another decoder.
const VERSION: &[u8] = b"1";

/// Opens a store with `open`. sled panics on some damage instead of returning an error, when it is opened or when it is
/// first read; nothing of it is used afterwards. # Errors: `Corrupt` for a panic.
pub(super) fn guarded<T>(dir: &Path, open: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|_| Err(unreadable(dir, "it is damaged")))
}

/// Opens sled in a directory and makes sure that the directory itself survives a power cut.
///
/// # Errors
/// `Conflict` when another process has it, `Unavailable` when the disk does not let it, `Corrupt` when it is unreadable.
pub(super) fn open(dir: &Path) -> Result<(Db, Tail)> {
    let place = dir.display();
    let unavailable = |error: std::io::Error| Error::unavailable(format!("the store in {place}: {error}"));
    std::fs::create_dir_all(dir).map_err(unavailable)?;
    let config = sled::Config::new().path(dir).cache_capacity(CACHE_BYTES);
    let mut opened = config.open();
    for _ in 1..LOCK_ATTEMPTS {
        if !is_locked(&opened) {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        opened = config.open();
    }
    if is_locked(&opened) {
        let detail = format!("another dwell uses the store in {place}: stop it, or use another --data-dir");
        return Err(Error::new(Kind::Conflict, detail));
    }
    let db = match opened {
        Ok(db) => db,
        Err(sled::Error::Io(error)) => return Err(unavailable(error)),
        Err(error) => return Err(unreadable(dir, &error.to_string())),
    };
    let tail = match Tail::check(&db, dir).map_err(unavailable)? {
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
    Ok((db, tail))
}

/// Whether somebody else has the directory. sled says so in words only.
fn is_locked(opened: &sled::Result<Db>) -> bool {
    matches!(opened, Err(sled::Error::Io(error)) if error.to_string().contains("could not acquire lock"))
}

/// fsyncs the files, the directory and its parent, which sled does not: without it a power cut takes the new file whole.
fn sync_directory(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(dir)?.sync_all()?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
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
