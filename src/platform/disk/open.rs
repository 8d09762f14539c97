//! Opening a directory, which damage, a full disk and another process may refuse.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use sled::Db;

use super::private::{check_owner, close_directory};
use super::synced::settle;

/// How often a locked directory is tried: sled's own threads, and a process that was just forked, let go of it a moment
/// after it was closed.
const LOCK_ATTEMPTS: u32 = 500;

/// How long to wait between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// sled's log, which holds everything but its snapshots.
pub(super) const SLED_FILE: &str = "db";

/// sled's settings when the file was begun. They are always the same here, and sled writes them without a sync: a power cut
/// at the first start may tear them, and then sled opens nothing until they are gone.
const SETTINGS_FILE: &str = "conf";

/// Why a directory was not opened.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another process has it.
    Locked,
    /// The disk does not let it be opened. Says nothing about what is in it.
    Io(io::Error),
    /// What is in it cannot be read.
    Damaged(String),
}

/// Opens sled, once what an earlier process wrote is on the disk. What it panics about, when it is opened, is damage too.
pub(super) fn open(dir: &Path, cache_bytes: u64) -> Result<Db, Refusal> {
    make_private_directory(dir).map_err(Refusal::Io)?;
    for number in 0..LOCK_ATTEMPTS {
        if number > 0 {
            std::thread::sleep(LOCK_PAUSE);
        }
        if let Some(db) = attempt(dir, cache_bytes)? {
            return Ok(db);
        }
    }
    Err(Refusal::Locked)
}

/// Opens it, unless somebody else has it now.
fn attempt(dir: &Path, cache_bytes: u64) -> Result<Option<Db>, Refusal> {
    if !settle(dir).map_err(Refusal::Io)? {
        return Ok(None);
    }
    let config = sled::Config::new().path(dir).cache_capacity(cache_bytes);
    let open = || guarded(|| config.open()).map_err(|()| Refusal::Damaged("it is damaged".to_owned()));
    let mut opened = open()?;
    if matches!(opened, Err(sled::Error::Corruption { .. })) && std::fs::remove_file(dir.join(SETTINGS_FILE)).is_ok() {
        opened = open()?;
    }
    match opened {
        Ok(db) => Ok(Some(db)),
        // sled says so in words only.
        Err(sled::Error::Io(error)) if error.to_string().contains("could not acquire lock") => Ok(None),
        Err(sled::Error::Io(error)) => Err(Refusal::Io(error)),
        Err(error) => Err(Refusal::Damaged(error.to_string())),
    }
}

/// Calls sled, which panics on some damage instead of returning an error, when it is opened or when it is first read.
/// After a panic nothing of it may be used any more.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, ()> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| ())
}

/// Makes a directory, and those above it that are not there, so that they survive a power cut.
///
/// # Errors
/// `PermissionDenied` when another user may have put something there.
pub(crate) fn make_directory(dir: &Path) -> io::Result<()> {
    make_directories(dir)?;
    check_owner(dir)
}

/// The same for a directory that holds files of dwell and nothing else: others cannot read it.
pub(crate) fn make_private_directory(dir: &Path) -> io::Result<()> {
    make_directory(dir)?;
    close_directory(dir)
}

fn make_directories(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_directories(parent)?;
    // Payloads are for nobody else to read.
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        // Somebody else was faster.
        Err(_) if dir.is_dir() => Ok(()),
        made => made,
    }?;
    sync_file(parent)
}

/// fsyncs the files, the directory and its parent, which sled does not: without it a power cut takes the new file whole.
pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        sync_file(&entry?.path())?;
    }
    sync_file(dir)?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_file(parent),
        _ => sync_file(Path::new(".")),
    }
}

/// fsyncs one file, or the names in one directory.
pub(crate) fn sync_file(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
