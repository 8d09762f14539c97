//! A directory of sled in which a write can be made to survive a power cut, and the watchdog that ends a standstill of sled.

mod files;
mod settle;

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use sled::{Batch, Db, IVec, Tree};

use self::files::close_directory;
use crate::model::error::{Error, Result};
use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;

pub(crate) use self::files::{
    MarkerFile, ReserveFile, check_owner, check_room, create, free_bytes, lock_holder, replace,
};
use self::settle::settle;
pub(crate) use self::settle::{note_failure, set_snapshots_aside};

/// An open directory. Dropping it closes sled, whose threads release the directory a moment later.
#[derive(Debug)]
pub(crate) struct Disk {
    db: Db,
    dir: PathBuf,
    /// Our own handle of sled's file: a handle reports a failed sync only once, and sled's handle is read by sled.
    file: File,
    /// Dropped last: its thread closes sled.
    watchdog: SledWatchdog,
}

impl Disk {
    /// `clean_every_ms`: how often a thread of sled looks for space that it can use again; `None`: never.
    pub(crate) fn open(dir: &Path, cache_bytes: u64, clean_every_ms: Option<u64>) -> Result<Disk, Refusal> {
        let path = dir.join(SLED_FILE);
        // A handle is told of the syncs that fail while it is open: also of those of the opening.
        let before = File::open(&path);
        let db = open(dir, cache_bytes, clean_every_ms)?;
        // The snapshot that sled wrote has a name from now on.
        sync_file(dir).map_err(Refusal::Io)?;
        let file = before.or_else(|_| File::open(&path)).map_err(Refusal::Io)?;
        let closing = Closing { dir: dir.to_owned(), file: file.try_clone().map_err(Refusal::Io)? };
        let watchdog = SledWatchdog::start(db.clone(), closing).map_err(Refusal::Io)?;
        Ok(Disk { db, dir: dir.to_owned(), file, watchdog })
    }

    /// Writes that bypass [`Disk::apply`] are not watched for a standstill.
    pub(crate) fn tree(&self) -> &Tree {
        &self.db
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |file| file.len())
    }

    pub(crate) fn apply(&self, batch: Batch) -> sled::Result<()> {
        self.watchdog.during(|| self.db.apply_batch(batch)).inspect_err(|_| note_failure(&self.dir))
    }

    /// Returns once all applied batches survive a power cut; sled's flush alone ends in `sync_file_range`. After an error
    /// nothing may be written any more: the kernel may have dropped the pages, and a second sync would succeed without them.
    /// The next opening rewrites them.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let flushed = self.watchdog.during(|| self.db.flush()).map_err(io::Error::other);
        flushed.and_then(|_| self.file.sync_data()).inspect_err(|_| note_failure(&self.dir))
    }
}

/// sled's threads, and a process that was just forked, release the directory a moment after it was closed.
const LOCK_ATTEMPTS: u32 = 2_000;

const LOCK_PAUSE: Duration = Duration::from_millis(2);

const SLED_FILE: &str = "db";

/// sled writes this file without a sync, always with the same settings: a power cut at the first start may tear it, and
/// then sled opens nothing until it is removed.
const SETTINGS_FILE: &str = "conf";

#[derive(Debug)]
pub(crate) enum Refusal {
    Locked,
    Io(io::Error),
    Damaged(String),
}

fn open(dir: &Path, cache_bytes: u64, clean_every_ms: Option<u64>) -> Result<Db, Refusal> {
    make_private_directory(dir).map_err(Refusal::Io)?;
    let config = sled::Config::new().path(dir).cache_capacity(cache_bytes).flush_every_ms(clean_every_ms);
    for number in 0..LOCK_ATTEMPTS {
        if number > 0 {
            std::thread::sleep(LOCK_PAUSE);
        }
        // sled panics on some damage, and also when the disk fails while it gives up an opening: then the second one, which
        // syncs first, says what the disk said. Two panics are damage.
        let opened = guarded(|| attempt(dir, &config)).or_else(|()| {
            note_failure(dir);
            guarded(|| attempt(dir, &config))
        });
        if let Some(db) = opened.unwrap_or_else(|()| Err(Refusal::Damaged("it is damaged".to_owned())))? {
            return Ok(db);
        }
    }
    Err(Refusal::Locked)
}

/// `None` while the directory is locked.
fn attempt(dir: &Path, config: &sled::Config) -> Result<Option<Db>, Refusal> {
    if !settle(dir).map_err(Refusal::Io)? {
        return Ok(None);
    }
    let mut opened = config.open();
    if matches!(opened, Err(sled::Error::Corruption { .. })) && std::fs::remove_file(dir.join(SETTINGS_FILE)).is_ok() {
        opened = config.open();
    }
    match opened {
        Ok(db) => Ok(Some(db)),
        // sled says so only in words.
        Err(sled::Error::Io(error)) if error.to_string().contains("could not acquire lock") => Ok(None),
        Err(sled::Error::Io(error)) => Err(Refusal::Io(error)),
        Err(error) => Err(Refusal::Damaged(error.to_string())),
    }
}

/// Calls sled, which panics on some damage instead of an error. After a panic it must not be used any more.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, ()> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| ())
}

/// Creates missing directories so that they survive a power cut. # Errors: `PermissionDenied` when another user may
/// have put something there.
pub(crate) fn make_directory(dir: &Path) -> io::Result<()> {
    make_directories(dir)?;
    check_owner(dir)
}

/// Creates missing directories as [`make_directory`] does, and removes the access of others: for directories that contain only
/// files of dwell.
pub(crate) fn make_private_directory(dir: &Path) -> io::Result<()> {
    make_directory(dir)?;
    close_directory(dir)
}

pub(crate) fn is_empty_directory(dir: &Path) -> io::Result<bool> {
    Ok(std::fs::read_dir(dir)?.next().is_none())
}

fn make_directories(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_directories(parent)?;
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(_) if dir.is_dir() => Ok(()),
        made => made,
    }?;
    sync_file(parent)
}

/// sled does not sync these: without it a power cut removes a new file completely.
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

pub(crate) fn sync_file(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

pub(crate) const PART_BYTES: usize = 4 * 1024;

const COUNT_BYTES: usize = 2;

/// A value cut into entries of 4 KiB; the first is `bytes | number of further parts (2 bytes)`.
///
/// sled moves a leaf over 128 KiB into a separate file, which it never fsyncs, so that a power cut could remove it. A leaf
/// has about 16 entries. Tests check that sled never creates such a file.
pub(crate) struct ChunkedValue {
    pub(crate) first: IVec,
    pub(crate) further: Vec<IVec>,
}

impl ChunkedValue {
    /// # Errors: `Bug` past 256 MiB, which no limit of dwell admits.
    pub(crate) fn cut(bytes: &[u8]) -> Result<ChunkedValue> {
        let (head, tail) = bytes.split_at(bytes.len().min(PART_BYTES));
        let further: Vec<IVec> = tail.chunks(PART_BYTES).map(IVec::from).collect();
        let count = u16::try_from(further.len()).map_err(|_| Error::bug("a value of more than 65,535 parts"))?;
        let mut first = Vec::with_capacity(head.len() + COUNT_BYTES);
        first.extend_from_slice(head);
        first.extend_from_slice(&count.to_be_bytes());
        Ok(ChunkedValue { first: first.into(), further })
    }

    pub(crate) fn further_of(first: &[u8]) -> Result<u16> {
        let count =
            first.last_chunk::<COUNT_BYTES>().ok_or_else(|| Error::corrupt("the store holds an empty value"))?;
        Ok(u16::from_be_bytes(*count))
    }

    /// A missing part leaves a gap, which the caller's checksum detects.
    pub(crate) fn join(first: IVec, part: impl Fn(u16) -> Result<Option<IVec>>) -> Result<Bytes> {
        let parts = ChunkedValue::further_of(&first)?;
        let end = first.len() - COUNT_BYTES;
        if parts == 0 {
            return Ok(Bytes::from_owner(first).slice(..end));
        }
        let mut bytes = Vec::with_capacity((usize::from(parts) + 1) * PART_BYTES);
        bytes.extend_from_slice(&first[..end]);
        for number in 1..=parts {
            if let Some(part) = part(number)? {
                bytes.extend_from_slice(&part);
            }
        }
        Ok(bytes.into())
    }
}

const PATIENCE: Duration = Duration::from_secs(1);

/// Ends a standstill of sled, and closes it.
///
/// sled 0.34.7 truncates its file in a pool thread while it holds a lock for which every other pool thread may wait, and
/// the pool grows only with new work. So a thread checks each second whether calls are in progress and none has ended, and
/// then requests a flush without waiting for it: the pool grows, and the new thread unblocks the others.
#[derive(Debug)]
struct SledWatchdog {
    calls: Arc<Calls>,
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The thread checks each second. Otherwise the next call wakes it.
    watched: AtomicBool,
}

/// sled panics when it is closed on a failing disk, or says so only in its log; so a thread closes it.
struct Closing {
    dir: PathBuf,
    file: File,
}

impl Closing {
    fn close(self, last: Db) {
        if guarded(|| drop(last)).is_err() || self.file.sync_data().is_err() {
            note_failure(&self.dir);
        }
    }
}

impl SledWatchdog {
    fn start(db: Db, closing: Closing) -> io::Result<SledWatchdog> {
        let (wake, woken) = channel();
        let calls = Arc::new(Calls::default());
        let watched = calls.clone();
        let thread = std::thread::Builder::new().name("dwell-nudge".into()).spawn(move || {
            while woken.recv().is_ok() && watch(&db, &watched, &woken) {}
            closing.close(db);
        })?;
        Ok(SledWatchdog { calls, wake: Some(wake), thread: Some(thread) })
    }

    fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        self.calls.begun.fetch_add(1, Ordering::SeqCst);
        if !self.calls.watched.swap(true, Ordering::SeqCst) {
            self.wake.as_ref().map(|wake| wake.send(()));
        }
        let answer = call();
        self.calls.ended.fetch_add(1, Ordering::SeqCst);
        answer
    }
}

impl Drop for SledWatchdog {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // Sled is closed once it has ended.
            let _ = thread.join();
        }
    }
}

/// Checks each second until no call is in progress. Returns false once no call can come any more.
fn watch(db: &Db, calls: &Calls, woken: &Receiver<()>) -> bool {
    let (mut before, standstill) = (calls.ended.load(Ordering::SeqCst), RepeatThrottle::default());
    loop {
        if let Err(RecvTimeoutError::Disconnected) = woken.recv_timeout(PATIENCE) {
            return false;
        }
        let ended = calls.ended.load(Ordering::SeqCst);
        if calls.is_stalled(before, ended) {
            if standstill.is_due(Clock::System.instant()) {
                tracing::warn!("sled stands still: nudging it");
            }
            let _ = db.flush_async().now_or_never();
        }
        before = ended;
        if calls.rest() {
            return true;
        }
    }
}

impl Calls {
    fn is_stalled(&self, ended_before: u64, ended: u64) -> bool {
        ended == ended_before && self.is_under_way(ended)
    }

    fn is_under_way(&self, ended: u64) -> bool {
        self.begun.load(Ordering::SeqCst) > ended
    }

    /// Leaves the wake-up to the next call, unless one is in progress.
    fn rest(&self) -> bool {
        self.watched.store(false, Ordering::SeqCst);
        let under_way = self.is_under_way(self.ended.load(Ordering::SeqCst));
        // A call that began since has woken the thread already.
        !under_way || self.watched.swap(true, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_is_a_call_in_progress_without_completion() {
        let calls = Calls { begun: AtomicU64::new(3), ended: AtomicU64::new(2), ..Calls::default() };
        assert!(calls.is_stalled(2, 2));
        assert!(!calls.is_stalled(1, 2));
        let idle = Calls { begun: AtomicU64::new(3), ended: AtomicU64::new(3), ..Calls::default() };
        assert!(!idle.is_stalled(3, 3));
    }

    #[test]
    fn watchdog_is_idle_without_calls() {
        let idle = Calls { watched: AtomicBool::new(true), ..Calls::default() };
        assert!(idle.rest() && !idle.watched.load(Ordering::SeqCst));
        let busy = Calls { begun: AtomicU64::new(1), watched: AtomicBool::new(true), ..Calls::default() };
        assert!(!busy.rest() && busy.watched.load(Ordering::SeqCst));
    }
}
