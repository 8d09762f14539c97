//! The way to a committer: a thread that waits for commands, or whoever gives one does it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::command::{Command, ReplyTo};
use super::committer::{Committer, REST_AFTER};
use crate::model::error::{Error, Result};
use crate::platform::clock::Instant;

/// Dropping it closes the files, after those who wait are answered.
#[derive(Debug)]
pub(super) enum CommitterHandle {
    Thread {
        /// Unbounded, but each caller has at most one command in it. `None` only while it is dropped.
        sender: Option<Sender<Command>>,
        thread: Option<JoinHandle<()>>,
    },
    InPlace(Box<Mutex<Option<Desk>>>),
}

/// A committer that works whenever somebody comes, and not in between.
#[derive(Debug)]
pub(super) struct Desk {
    committer: Committer,
    last: Instant,
    /// Nobody sends any: what comes meanwhile waits for the desk.
    none: Receiver<Command>,
}

impl CommitterHandle {
    /// Errors: `Unavailable` when no thread can be had.
    pub(super) fn on_thread(committer: Committer) -> Result<CommitterHandle> {
        let (sender, arrivals) = channel();
        let thread = std::thread::Builder::new()
            .name("dwell-wal".into())
            .spawn(move || committer.run(&arrivals))
            .map_err(|error| Error::unavailable(format!("the thread of the log did not start: {error}")))?;
        Ok(CommitterHandle::Thread { sender: Some(sender), thread: Some(thread) })
    }

    pub(super) fn in_place(committer: Committer) -> CommitterHandle {
        let (last, none) = (committer.now(), channel().1);
        CommitterHandle::InPlace(Box::new(Mutex::new(Some(Desk { committer, last, none }))))
    }

    /// Errors: `Unavailable` once the log is closed.
    pub(super) fn give(&self, command: Command) -> Result<()> {
        match self {
            CommitterHandle::Thread { sender, .. } => {
                sender.as_ref().ok_or_else(gone)?.send(command).map_err(|_| gone())
            }
            CommitterHandle::InPlace(desk) => {
                let mut there = desk.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = there.as_mut().ok_or_else(gone)?.obey(command);
                if let Some(answer) = answer {
                    *there = None;
                    let _ = answer.send(Ok(()));
                }
                Ok(())
            }
        }
    }
}

impl Desk {
    fn obey(&mut self, command: Command) -> Option<ReplyTo<()>> {
        let now = self.committer.now();
        if now.since(self.last) >= REST_AFTER {
            self.committer.rest();
        }
        self.last = now;
        self.committer.obey(command, &self.none)
    }
}

pub(super) fn gone() -> Error {
    Error::unavailable("the log is closed")
}

impl Drop for CommitterHandle {
    fn drop(&mut self) {
        let CommitterHandle::Thread { sender, thread } = self else { return };
        *sender = None;
        if let Some(thread) = thread.take() {
            // It ends once it has answered those who still wait; a panic in it was theirs to see.
            let _ = thread.join();
        }
    }
}
