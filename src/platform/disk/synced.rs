//! Before sled's file is opened, what is read of it is on the disk.
//!
//! An earlier process may have died between a write and its sync, and sled would refer to what it reads in a snapshot that
//! is on the disk sooner than that. And after a failed sync Linux marks the pages clean: they stay in memory as they were
//! written, so they are read and appended behind, and the next sync succeeds without them. A power cut then leaves a hole
//! in sled's log, and everything behind the hole is lost. So a note beside sled's file says that a sync failed, and the
//! next opening writes the file anew, in place. The note need not survive a power cut: after one, what is read is what is
//! on the disk.
//!
//! What sled leaves half written beside its file, and cannot read, goes too.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::open::SLED_FILE;

/// The file that says that a sync failed.
const UNSYNCED: &str = "unsynced";

/// How the name of a snapshot ends until it is complete.
const UNFINISHED: &str = "generating";

/// Bytes that are written at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Notes that a sync failed, for the next opening, if the disk lets it.
pub(super) fn note_failure(dir: &Path) {
    if let Err(error) = File::create(dir.join(UNSYNCED)) {
        tracing::error!(dir = %dir.display(), %error, "a sync failed, and that could not be noted");
    }
}

/// Returns once sled's file, if there is one, is on the disk as it is read; false when another process has it, or sled's
/// own threads do for a moment after it was closed.
pub(super) fn settle(dir: &Path) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).write(true).open(dir.join(SLED_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        file => file?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(false),
        locked => locked?,
    }
    remove_unfinished(dir)?;
    let note = dir.join(UNSYNCED);
    let is_noted = note.exists();
    if is_noted {
        write_anew(&file)?;
    }
    file.sync_all()?;
    if is_noted {
        std::fs::remove_file(note)?;
    }
    Ok(true)
}

/// Removes snapshots that a process was killed while it wrote them: sled takes them for damaged ones, and opens nothing.
fn remove_unfinished(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == UNFINISHED) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Writes what is read where it is read.
fn write_anew(file: &File) -> io::Result<()> {
    let (mut chunk, mut at) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let read = file.read_at(&mut chunk, at)?;
        if read == 0 {
            return Ok(());
        }
        file.write_all_at(&chunk[..read], at)?;
        at += read as u64;
    }
}
