//! Helps sled out of a standstill of its own.
//!
//! sled 0.34.7 cuts its file in a thread of its pool while it holds a lock for which every other thread of the pool may
//! be waiting; the pool grows only when something new is asked of it. Seen once in many test runs: all calls stood still.
//! So a thread looks each second whether calls are under way and none has ended since the last look, and then asks sled
//! for a flush that nobody waits for: the pool grows, and the new thread does what the others wait for. While there are
//! no calls it does not look.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt;
use sled::Db;

use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;

/// How long without an end of any call counts as a standstill.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts the calls into sled. Dropping it ends the watching thread.
#[derive(Debug)]
pub(super) struct SledWatchdog {
    calls: Arc<Calls>,
    /// Wakes the thread. `None` only while it is dropped.
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The thread looks each second. Otherwise the next call wakes it.
    watched: AtomicBool,
}

impl SledWatchdog {
    /// Starts the thread.
    pub(super) fn start(db: Db) -> io::Result<SledWatchdog> {
        let (wake, woken) = channel();
        let calls = Arc::new(Calls::default());
        let watched = calls.clone();
        let thread = std::thread::Builder::new()
            .name("dwell-nudge".into())
            .spawn(move || while woken.recv().is_ok() && watch(&db, &watched, &woken) {})?;
        Ok(SledWatchdog { calls, wake: Some(wake), thread: Some(thread) })
    }

    /// Makes a call that may stand still.
    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        self.calls.begun.fetch_add(1, Ordering::SeqCst);
        if !self.calls.watched.swap(true, Ordering::SeqCst) {
            // It ends only when this is dropped.
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
            // It holds the tree, so whoever drops this and then the tree has closed sled.
            let _ = thread.join();
        }
    }
}

/// Looks each second until no call is under way. Answers false once nobody can call any more. A disk that hangs looks
/// the same, for as long as it does.
fn watch(db: &Db, calls: &Calls, woken: &Receiver<()>) -> bool {
    let (mut before, standstill) = (calls.ended.load(Ordering::SeqCst), RepeatThrottle::default());
    loop {
        if let Err(RecvTimeoutError::Disconnected) = woken.recv_timeout(PATIENCE) {
            return false;
        }
        let ended = calls.ended.load(Ordering::SeqCst);
        if calls.stand_still(before, ended) {
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
    /// Whether calls are under way and none has ended since the last look.
    fn stand_still(&self, ended_before: u64, ended: u64) -> bool {
        ended == ended_before && self.is_under_way(ended)
    }

    fn is_under_way(&self, ended: u64) -> bool {
        self.begun.load(Ordering::SeqCst) > ended
    }

    /// Leaves it to the next call to wake the thread, unless one is under way, which would not.
    fn rest(&self) -> bool {
        self.watched.store(false, Ordering::SeqCst);
        let under_way = self.is_under_way(self.ended.load(Ordering::SeqCst));
        // One that began since has woken the thread already.
        !under_way || self.watched.swap(true, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_is_a_call_under_way_and_none_that_ended() {
        let calls = Calls { begun: AtomicU64::new(3), ended: AtomicU64::new(2), ..Calls::default() };
        assert!(calls.stand_still(2, 2));
        assert!(!calls.stand_still(1, 2));
        let idle = Calls { begun: AtomicU64::new(3), ended: AtomicU64::new(3), ..Calls::default() };
        assert!(!idle.stand_still(3, 3));
    }

    #[test]
    fn nobody_looks_while_nothing_is_called() {
        let idle = Calls { watched: AtomicBool::new(true), ..Calls::default() };
        assert!(idle.rest() && !idle.watched.load(Ordering::SeqCst));
        let busy = Calls { begun: AtomicU64::new(1), watched: AtomicBool::new(true), ..Calls::default() };
        assert!(!busy.rest() && busy.watched.load(Ordering::SeqCst));
    }
}
