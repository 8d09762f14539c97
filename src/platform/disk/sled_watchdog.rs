//! Ends a standstill of sled.
//!
//! sled 0.34.7 truncates its file in a pool thread while it holds a lock for which every other pool thread may wait, and
//! the pool grows only with new work. So a thread checks each second whether calls are in progress and none has ended, and
//! then requests a flush without waiting for it: the pool grows, and the new thread unblocks the others.

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

const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct SledWatchdog {
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

impl SledWatchdog {
    pub(super) fn start(db: Db) -> io::Result<SledWatchdog> {
        let (wake, woken) = channel();
        let calls = Arc::new(Calls::default());
        let watched = calls.clone();
        let thread = std::thread::Builder::new()
            .name("dwell-nudge".into())
            .spawn(move || while woken.recv().is_ok() && watch(&db, &watched, &woken) {})?;
        Ok(SledWatchdog { calls, wake: Some(wake), thread: Some(thread) })
    }

    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
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
            // The thread holds the tree, so sled is closed only after it ended.
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
