//! A directory of sled in which a write can be made to survive a power cut.
//!
//! What every user of sled here needs: opening that never panics, values that sled does not move into files of their
//! own, a flush that is a barrier, help out of a standstill, numbers beside the tree that tell of a lost end, and room on
//! the disk. What is stored is the user's affair.

mod lock_owner;
mod marker_file;
mod sled_watchdog;
mod open;
mod chunked_value;
mod private;
mod free_space;
mod synced;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use sled::{Batch, Db, Tree};

pub(crate) use self::chunked_value::{ChunkedValue, PART_BYTES};
pub(crate) use self::free_space::{check_room, free_bytes};
pub(crate) use self::lock_owner::lock_holder;
pub(crate) use self::marker_file::MarkerFile;
use self::open::SLED_FILE;
pub(crate) use self::open::{Refusal, guarded, make_directory, make_private_directory, sync_directory, sync_file};
pub(crate) use self::private::{check_owner, create, open_or_create};
use self::sled_watchdog::SledWatchdog;
use self::synced::note_failure;

/// An open directory. Dropping it closes sled; sled's own threads let go of the directory a moment later.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Ends before sled is closed, since it holds the tree too.
    nudge: SledWatchdog,
    dir: PathBuf,
    /// sled's file, for a handle of our own to sync it by: a handle is told of a failure once, and sled's own is read by
    /// sled.
    file: File,
    db: Db,
}

impl Disk {
    /// Opens sled in a directory, making it if it is not there, with a cache of so many bytes.
    pub(crate) fn open(dir: &Path, cache_bytes: u64) -> Result<Disk, Refusal> {
        let db = open::open(dir, cache_bytes)?;
        let file = File::open(dir.join(SLED_FILE)).map_err(Refusal::Io)?;
        let nudge = SledWatchdog::start(db.clone()).map_err(Refusal::Io)?;
        Ok(Disk { nudge, dir: dir.to_owned(), file, db })
    }

    /// The one tree. What is written to it elsewhere than through [`Disk::apply`] is not watched for a standstill.
    pub(crate) fn tree(&self) -> &Tree {
        &self.db
    }

    /// Bytes of sled's file, the one that grows.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |file| file.len())
    }

    /// Applies a batch, all or nothing, without waiting for the disk.
    pub(crate) fn apply(&self, batch: Batch) -> sled::Result<()> {
        self.nudge.during(|| self.db.apply_batch(batch)).inspect_err(|_| note_failure(&self.dir))
    }

    /// Returns once everything that was applied survives a power cut. sled's flush alone does not see to that: it ends in
    /// `sync_file_range`. After an error nothing may be written any more: the kernel may have dropped the pages, and trying
    /// again would be a false success. The next opening writes them anew.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let flushed = self.nudge.during(|| self.db.flush()).map_err(io::Error::other);
        flushed.and_then(|_| self.file.sync_data()).inspect_err(|_| note_failure(&self.dir))
    }
}
