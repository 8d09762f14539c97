//! Consumers of a group in this process: how many wait, what they want, and when they were last active.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::platform::clock::{Clock, Instant};
use crate::telemetry::metrics::GroupMetrics;

#[derive(Debug)]
pub(super) struct Demand {
    clock: Clock,
    started: Instant,
    waiting: AtomicUsize,
    wanted: AtomicUsize,
    asked: LastTime,
    settled: LastTime,
    is_announced: AtomicBool,
    begun: Notify,
    counts: Arc<GroupMetrics>,
}

/// Counts a consumer as waiting until it is dropped.
pub(super) struct Waiting<'a> {
    demand: &'a Demand,
    max: usize,
}

/// Milliseconds on the monotonic clock, plus one; 0 is never.
#[derive(Debug, Default)]
struct LastTime(AtomicU64);

impl Demand {
    pub(super) fn new(clock: Clock, counts: Arc<GroupMetrics>) -> Demand {
        Demand {
            started: clock.instant(),
            clock,
            waiting: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            asked: LastTime::default(),
            settled: LastTime::default(),
            is_announced: AtomicBool::new(false),
            begun: Notify::new(),
            counts,
        }
    }

    pub(super) fn wait(&self, max: usize) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.wanted.fetch_add(max, Ordering::Relaxed);
        self.counts.demand.inc();
        if !self.is_announced.load(Ordering::SeqCst) {
            self.begun.notify_one();
        }
        Waiting { demand: self, max }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(super) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    pub(super) fn settled(&self, now: Instant) {
        self.settled.set(now);
    }

    /// When a consumer waited last; `None` before the first.
    pub(super) fn last_asked(&self) -> Option<Instant> {
        self.asked.get()
    }

    /// When a consumer waited or settled last, or when the membership began, for a consumer has asked then.
    pub(super) fn last_active(&self, now: Instant) -> Instant {
        let last = [self.asked.get(), self.settled.get()].into_iter().flatten().max();
        if self.waiting() > 0 { now } else { last.unwrap_or(self.started).max(self.started) }
    }

    pub(super) fn announced(&self, is_announced: bool) {
        let was_announced = self.is_announced.swap(is_announced, Ordering::SeqCst);
        // A consumer that began to wait just before still saw it announced.
        if was_announced && !is_announced && self.waiting() > 0 {
            self.begun.notify_one();
        }
    }

    /// Resolves when a consumer waits and the other members do not know.
    pub(super) async fn begun(&self) {
        self.begun.notified().await;
    }

    pub(super) fn last_attended(&self) -> Instant {
        self.asked.get().map_or(self.started, |asked| asked.max(self.started))
    }

    pub(super) fn unasked(&self, now: Instant) -> Duration {
        now.since(self.last_attended())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.demand.asked.set(self.demand.clock.instant());
        self.demand.waiting.fetch_sub(1, Ordering::Relaxed);
        self.demand.wanted.fetch_sub(self.max, Ordering::Relaxed);
        self.demand.counts.demand.dec();
    }
}

impl LastTime {
    fn set(&self, at: Instant) {
        let ms = at.since(Instant::START).as_millis();
        self.0.fetch_max(u64::try_from(ms).unwrap_or(u64::MAX - 1) + 1, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Instant> {
        let ms = self.0.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Instant::START.plus(Duration::from_millis(ms)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::model::error::Result;
    use crate::model::message::{GroupName, TopicName};
    use crate::model::time::Timestamp;
    use crate::platform::clock::Manual;
    use crate::telemetry::metrics::Metrics;

    fn demand() -> Result<(Demand, Manual)> {
        let clock = Manual::at(Timestamp::ZERO);
        clock.advance(Duration::from_secs(1));
        let counts = Metrics::new()?.group(&TopicName::new("orders")?, &GroupName::standard());
        Ok((Demand::new(Clock::Manual(clock.clone()), counts), clock))
    }

    #[test]
    fn demand_starts_with_an_unannounced_consumer() -> Result<()> {
        let (demand, _) = demand()?;
        let begun = || demand.begun().now_or_never().is_some();
        assert!(!begun());
        drop(demand.wait(1));
        assert!(begun() && !begun(), "once is enough");
        demand.announced(true);
        let waiting = demand.wait(1);
        assert!(!begun(), "they know");
        demand.announced(false);
        assert!(begun(), "it came while its end was announced");
        drop(waiting);
        demand.announced(true);
        demand.announced(false);
        assert!(!begun(), "nobody waits");
        Ok(())
    }

    #[test]
    fn a_consumer_is_active_while_it_waits_and_when_it_settles() -> Result<()> {
        let (demand, time) = demand()?;
        let second = Duration::from_secs(1);
        let later = |seconds: u32| Instant::START.plus(second * seconds);
        time.advance(second);
        assert_eq!(demand.last_active(later(2)), later(1), "one has asked, or there were no membership");
        let waiting = demand.wait(10);
        time.advance(second);
        assert_eq!((demand.last_active(later(3)), demand.wanted()), (later(3), 10));
        drop(waiting);
        time.advance(second);
        assert_eq!((demand.last_active(later(4)), demand.wanted()), (later(3), 0));
        demand.settled(later(4));
        assert_eq!(demand.last_active(later(5)), later(4));
        Ok(())
    }
}
