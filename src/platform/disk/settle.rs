//! Before sled reads a directory: its file is on the disk, and its last snapshot is kept.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::files::replace;
use super::{SLED_FILE, sync_file};

/// The marker of a failed sync. It need not survive a power cut, after which all pages are read from the disk.
const UNSYNCED: &str = "unsynced";

const UNFINISHED: &str = "generating";

const CHUNK_BYTES: usize = 1024 * 1024;

/// Notes that what is in memory may not be on the disk: the next opening rewrites it.
pub(crate) fn note_failure(dir: &Path) {
    if let Err(error) = File::create(dir.join(UNSYNCED)) {
        tracing::error!(dir = %dir.display(), %error, "a sync failed, and that could not be noted");
    }
}

/// Syncs sled's file before sled reads it; false when another process, or a thread of a closed sled, still has it.
///
/// An earlier process may have died between a write and its sync, and sled's snapshot would refer to lost bytes. After a
/// failed sync Linux marks the pages clean: they stay in memory, and the next sync succeeds without them. A power cut then
/// leaves a hole in sled's log. So after a noted failure the file is rewritten in place.
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
        overwrite(&file)?;
    }
    file.sync_all()?;
    if is_noted {
        std::fs::remove_file(note)?;
    }
    keep_snapshot(dir)?;
    Ok(true)
}

/// The snapshot of the opening before, under a name that sled does not touch.
const KEPT: &str = "snapshot.kept";

/// Before any other of sled's names: sled reads the last one.
const RESTORED: &str = "snap.0000000000000000";

/// Keeps sled's snapshot until its next one has a name on the disk.
///
/// When sled is opened it writes a snapshot, renames it, removes the one before, and overwrites segments that the new one
/// needs no more, all without a sync of the directory. POSIX lets a power cut keep the removal and lose the new name, and
/// without a snapshot sled's log ends where the first segment is missing. With the older snapshot it is complete.
fn keep_snapshot(dir: &Path) -> io::Result<()> {
    let (kept, restored) = (dir.join(KEPT), dir.join(RESTORED));
    let snapshot = match snapshots(dir)?.into_iter().max() {
        Some(newest) => newest,
        None if kept.exists() => {
            std::fs::rename(&kept, &restored)?;
            restored
        }
        None => return Ok(()),
    };
    sync_file(dir)?;
    replace(&kept, &std::fs::read(snapshot)?)
}

fn snapshots(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let is_snapshot =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"snap."));
    Ok(paths(dir)?.into_iter().filter(is_snapshot).collect())
}

fn paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

/// Renames sled's snapshots and the kept one, and answers whether there were any. sled reads its whole log then: what is
/// missing without them, the caller has to find.
pub(crate) fn set_snapshots_aside(dir: &Path) -> bool {
    let mut paths = snapshots(dir).unwrap_or_default();
    paths.push(dir.join(KEPT));
    let renamed = paths.iter().filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        std::fs::rename(path, dir.join(format!("unused-{name}"))).is_ok()
    });
    renamed.count() > 0
}

/// sled treats a snapshot that was not completed as damage.
fn remove_unfinished(dir: &Path) -> io::Result<()> {
    for path in paths(dir)? {
        if path.extension().is_some_and(|ending| ending == UNFINISHED) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn overwrite(file: &File) -> io::Result<()> {
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
