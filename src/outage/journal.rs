//! The journal: what the store answered lately, in case it loses its last moments.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::model::error::Result;
use crate::platform::clock::{Clock, Instant};
use crate::platform::log_throttle::RepeatThrottle;
use crate::telemetry::metrics::WalMetrics;
use crate::wal::{Position, Record, Wal};

const LOOKS: u32 = 3;

/// A log of what the store answered, for a window. A record is dropped only when the same store has answered for a
/// whole window after it was kept. Time is counted on the monotonic clock: a wall clock that jumps drops nothing.
pub(super) struct Journal {
    log: Wal,
    window: Duration,
    clock: Clock,
    metrics: WalMetrics,
    timeline: Mutex<Timeline>,
    unwritten: RepeatThrottle,
}

#[derive(Default)]
struct Timeline {
    marks: VecDeque<(Instant, Position)>,
    unbroken: Instant,
}

impl Timeline {
    fn due(&mut self, now: Instant, window: Duration) -> Option<Position> {
        if now.since(self.unbroken) < window {
            return None;
        }
        let old = self.marks.partition_point(|(at, _)| now.since(*at) >= window);
        self.marks.drain(..old).next_back().map(|(_, position)| position)
    }
}

impl Journal {
    pub(super) fn new(log: Wal, window: Duration, clock: Clock, metrics: WalMetrics) -> Journal {
        let timeline = Mutex::new(Timeline { marks: VecDeque::new(), unbroken: clock.instant() });
        Journal { log, window, clock, metrics, timeline, unwritten: RepeatThrottle::default() }
    }

    pub(super) fn log(&self) -> &Wal {
        &self.log
    }

    pub(super) fn metrics(&self) -> &WalMetrics {
        &self.metrics
    }

    /// Keeps what the store answered. A journal that cannot be written makes no push fail: its answer says so.
    pub(super) async fn keep(&self, records: Vec<Record>) -> bool {
        if records.is_empty() {
            return true;
        }
        let kept = self.log.append(records).await;
        if let Err(error) = &kept
            && self.unwritten.is_due(self.clock.instant())
        {
            tracing::warn!(%error, "journal not written: pushes are only in the store");
        }
        kept.is_ok()
    }

    /// The store was not there, or is another one: what is kept now is kept for a whole window from now on.
    pub(super) fn broken(&self) {
        self.timeline().unbroken = self.clock.instant();
    }

    pub(super) async fn look(&self) -> Result<()> {
        let now = self.clock.instant();
        let due = {
            let mut timeline = self.timeline();
            if timeline.marks.back().is_some_and(|(at, _)| now.since(*at) < self.window / LOOKS) {
                return Ok(());
            }
            if let Some(end) = self.log.depth().end {
                timeline.marks.push_back((now, end));
            }
            timeline.due(now, self.window)
        };
        match due {
            Some(position) => self.log.trim(position).await,
            None => Ok(()),
        }
    }

    fn timeline(&self) -> std::sync::MutexGuard<'_, Timeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
