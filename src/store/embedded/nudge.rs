//! Helps sled out of a standstill of its own.
//!
//! sled 0.34.7 cuts its file in a thread of its pool while it holds a lock for which every other thread of the pool may
//! be waiting; the pool grows only when something new is asked of it. Seen once in many test runs: all calls stood still.
//! So a thread looks each second whether calls are under way and none has ended since the last look, and then asks sled
//! for a flush that nobody waits for: the pool grows, and the new thread does what the others wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use futures_util::FutureExt;
use sled::Db;

use crate::error::{Error, Result};

/// How long without an end of any call counts as a standstill.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts the calls into sled, and ends the watching thread when dropped.
#[derive(Debug)]
pub(super) struct Nudge {
    calls: Arc<Calls>,
    _alive: Sender<()>,
}

#[derive(Debug, Default)]
struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Nudge {
    /// Starts the thread. # Errors: `Unavailable` when none can be had.
    pub(super) fn start(db: Db) -> Result<Nudge> {
        let (alive, ended) = channel();
        let calls = Arc::new(Calls::default());
        let watched = calls.clone();
        std::thread::Builder::new()
            .name("dwell-nudge".into())
            .spawn(move || watch(&db, &watched, &ended))
            .map_err(|error| Error::unavailable(format!("a thread did not start: {error}")))?;
        Ok(Nudge { calls, _alive: alive })
    }

    /// Makes a call that may stand still.
    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        self.calls.begun.fetch_add(1, Ordering::Relaxed);
        let answer = call();
        self.calls.ended.fetch_add(1, Ordering::Relaxed);
        answer
    }
}

fn watch(db: &Db, calls: &Calls, alive: &Receiver<()>) {
    let mut before = 0;
    while let Err(RecvTimeoutError::Timeout) = alive.recv_timeout(PATIENCE) {
        let ended = calls.ended.load(Ordering::Relaxed);
        if calls.stand_still(before, ended) {
            tracing::warn!("the embedded store stands still; nudging it");
            let _ = db.flush_async().now_or_never();
        }
        before = ended;
    }
}

impl Calls {
    /// Whether calls are under way and none has ended since the last look.
    fn stand_still(&self, ended_before: u64, ended: u64) -> bool {
        ended == ended_before && self.begun.load(Ordering::Relaxed) > ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_is_a_call_under_way_and_none_that_ended() {
        let calls = Calls { begun: AtomicU64::new(3), ended: AtomicU64::new(2) };
        assert!(calls.stand_still(2, 2));
        assert!(!calls.stand_still(1, 2));
        let idle = Calls { begun: AtomicU64::new(3), ended: AtomicU64::new(3) };
        assert!(!idle.stand_still(3, 3));
    }
}
