//! The committer: makes what was written survive a power cut, once for all who wait.
//!
//! sled's own asynchronous flush can stop indefinitely with several callers, and its flush is no barrier against a power
//! cut. So one thread collects who waits, syncs the disk, and answers them all. While it does, the next ones gather: the slower the disk, the larger the group.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use sled::{Batch, Tree};
use tokio::sync::{Notify, oneshot};

use super::keys;
use crate::model::error::{Error, Kind, Result};
use crate::platform::disk::{Disk, MarkerFile};

type Waiter = oneshot::Sender<Result<()>>;

#[derive(Debug)]
pub(super) struct Committer {
    /// Unbounded, but each caller has at most one waiter in it. `None` only while it is dropped.
    waiters: Option<Sender<Waiter>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<OnceLock<Error>>,
    /// Told once it failed.
    news: Arc<Notify>,
}

impl Committer {
    pub(super) fn start(disk: Arc<Disk>, tail: Tail, dir: &Path, news: Arc<Notify>) -> Result<Committer> {
        let (waiters, arrivals) = channel();
        let failed = Arc::new(OnceLock::new());
        let mut commits =
            Commits { disk, tail, place: dir.display().to_string(), failed: failed.clone(), news: news.clone() };
        let thread = std::thread::Builder::new()
            .name("dwell-committer".into())
            .spawn(move || commits.run(&arrivals))
            .map_err(|error| Error::unavailable(format!("the committer did not start: {error}")))?;
        Ok(Committer { waiters: Some(waiters), thread: Some(thread), failed, news })
    }

    /// Returns once everything applied before survives a power cut. Errors: `Unavailable` once the disk failed.
    pub(super) async fn commit(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let gone = || Error::unavailable("the store is closed");
        self.waiters.as_ref().ok_or_else(gone)?.send(answer).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    pub(super) fn check(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(super) fn fail(&self, dir: &Path, why: &sled::Error) -> Error {
        let error = self.failed.get_or_init(|| failure(&dir.display().to_string(), &why.to_string())).clone();
        self.news.notify_one();
        error
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.waiters = None;
        if let Some(thread) = self.thread.take() {
            // It ends once it has answered those who still wait; a panic in it was theirs to see.
            let _ = thread.join();
        }
    }
}

struct Commits {
    disk: Arc<Disk>,
    tail: Tail,
    place: String,
    failed: Arc<OnceLock<Error>>,
    news: Arc<Notify>,
}

impl Commits {
    fn run(&mut self, arrivals: &Receiver<Waiter>) {
        while let Ok(first) = arrivals.recv() {
            let group: Vec<Waiter> = std::iter::once(first).chain(arrivals.try_iter()).collect();
            let outcome = self.sync();
            for waiter in group {
                let _ = waiter.send(outcome.clone());
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        // After a failed fsync the kernel may have dropped the pages: trying again would be a false success.
        self.write().map_err(|why| {
            let error = self.failed.get_or_init(|| failure(&self.place, &why.to_string())).clone();
            self.news.notify_one();
            error
        })
    }

    fn write(&mut self) -> io::Result<()> {
        self.disk.apply(self.tail.begin()).map_err(io::Error::other)?;
        self.disk.sync()?;
        self.tail.end()
    }
}

fn failure(place: &str, why: &str) -> Error {
    Error::unavailable(format!("the store in {place} cannot be written ({why}); {REMEDY}"))
}

/// sled keeps its first error until it is opened again, even if the disk has space by then.
const REMEDY: &str = "it is opened again once the disk is repaired or has space";

/// An error of the disk at the opening: `Full` when it has no space.
pub(super) fn io_error(what: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::new(Kind::Full, format!("{what}: {error}; {REMEDY}"))
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            Error::unavailable(format!("{what}: {error}; {REMEDY}"))
        }
        _ => Error::unavailable(format!("{what}: {error}")),
    }
}

pub(super) fn broken(error: sled::Error) -> Error {
    match error {
        sled::Error::Io(error) => match io_error("the embedded store", &error) {
            full if full.kind() == Kind::Full => full,
            _ => Error::unavailable(format!("the embedded store failed ({error}); {REMEDY}")),
        },
        sled::Error::Corruption { .. } => Error::corrupt(format!("the embedded store is damaged: {error}")),
        error => Error::bug(format!("the embedded store: {error}")),
    }
}

const NAME: &str = "commits";

/// Number of the last commit, and the file that says so. sled opens a damaged file by ending its log at the damage:
/// fewer records, and no error. So every commit writes its number into the tree, and once it is durable also into a
/// file beside it. A tree with a smaller number than that file has lost something that it had answered for.
#[derive(Debug)]
pub(super) struct Tail {
    mark: MarkerFile,
    number: u64,
}

pub(super) enum Checked {
    Whole(Tail),
    Lost(u64),
}

impl Tail {
    /// Compares the tree with the file beside it. A file that is missing, or torn by a power cut, says nothing.
    pub(super) fn check(tree: &Tree, dir: &Path) -> io::Result<Checked> {
        let (mark, known) = MarkerFile::open(&dir.join(NAME))?;
        let stored = tree.get(keys::commits()).map_err(io::Error::other)?;
        let number = stored.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_be_bytes);
        match known {
            Some(known) if known > number => Ok(Checked::Lost(known - number)),
            _ => Ok(Checked::Whole(Tail { mark, number })),
        }
    }

    pub(super) fn begin(&mut self) -> Batch {
        self.number += 1;
        let mut batch = Batch::default();
        batch.insert(keys::commits(), &self.number.to_be_bytes());
        batch
    }

    /// Writes the number beside the tree, which is durable now. The file need not be: an older number is true too.
    pub(super) fn end(&self) -> io::Result<()> {
        self.mark.set(self.number)
    }
}
