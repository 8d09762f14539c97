//! The committer: makes what was written survive a power cut, once for all who wait.
//!
//! sled's own asynchronous flush can stop for ever with several callers, and its flush is no barrier against a power
//! cut. So one thread collects who waits, syncs the disk, and answers them all. While it does, the next ones gather: the slower the disk, the larger the group.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::open::REMEDY;
use super::tail::Tail;
use crate::model::error::{Error, Result};
use crate::platform::disk::Disk;

type Waiter = oneshot::Sender<Result<()>>;

/// The handle of the committer's thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Committer {
    /// Unbounded, but each caller has at most one waiter in it. `None` only while it is dropped.
    waiters: Option<Sender<Waiter>>,
    thread: Option<JoinHandle<()>>,
    /// Why nothing can be written any more.
    failed: Arc<OnceLock<Error>>,
}

impl Committer {
    /// Starts the thread for an open store. # Errors: `Unavailable` when none can be had.
    pub(super) fn start(disk: Arc<Disk>, tail: Tail, dir: &Path) -> Result<Committer> {
        let (waiters, arrivals) = channel();
        let failed = Arc::new(OnceLock::new());
        let mut commits = Commits { disk, tail, place: dir.display().to_string(), failed: failed.clone() };
        let thread = std::thread::Builder::new()
            .name("dwell-committer".into())
            .spawn(move || commits.run(&arrivals))
            .map_err(|error| Error::unavailable(format!("the committer did not start: {error}")))?;
        Ok(Committer { waiters: Some(waiters), thread: Some(thread), failed })
    }

    /// Returns once everything that was applied before the call survives a power cut.
    ///
    /// # Errors
    /// `Unavailable` when the disk failed; from then on always.
    pub(super) async fn commit(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let gone = || Error::unavailable("the store is closed");
        self.waiters.as_ref().ok_or_else(gone)?.send(answer).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// # Errors
    /// `Unavailable` when the disk failed: nothing may be written.
    pub(super) fn check(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Refuses everything from now on, and returns the error.
    pub(super) fn fail(&self, dir: &Path, why: &sled::Error) -> Error {
        self.failed.get_or_init(|| failure(&dir.display().to_string(), &why.to_string())).clone()
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

/// What the thread works on.
struct Commits {
    disk: Arc<Disk>,
    tail: Tail,
    place: String,
    failed: Arc<OnceLock<Error>>,
}

impl Commits {
    fn run(&mut self, arrivals: &Receiver<Waiter>) {
        while let Ok(first) = arrivals.recv() {
            let group: Vec<Waiter> = std::iter::once(first).chain(arrivals.try_iter()).collect();
            let outcome = self.sync();
            for waiter in group {
                // Who does not wait any more does not want to know.
                let _ = waiter.send(outcome.clone());
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        // After a failed fsync the kernel may have dropped the pages: trying again would be a false success.
        self.write().map_err(|why| self.failed.get_or_init(|| failure(&self.place, &why.to_string())).clone())
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
