//! Consumers of a group in this process: how many wait, what they want, when they were last active, and the partition that the
//! next one looks at first.
//!
//! Consumers that are fast take a run of messages from one partition before they go to the next, so their acks are for one
//! partition too, and share a call to the store. Slow ones take each message from another partition.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::asked_time::AskedTime;
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
    asked_time: Mutex<AskedTime>,
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
            asked_time: Mutex::default(),
            counts,
        }
    }

    pub(super) fn wait(&self, max: usize) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.wanted.fetch_add(max, Ordering::Relaxed);
        self.counts.demand.inc();
        if max > 0 {
            self.asked_time().begin(self.clock.instant());
        }
        if !self.is_announced.load(Ordering::SeqCst) {
            self.begun.notify_one();
        }
        Waiting { demand: self, max }
    }

    fn asked_time(&self) -> MutexGuard<'_, AskedTime> {
        self.asked_time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`AskedTime::within`].
    pub(super) fn asked_within(&self, span: Duration, now: Instant) -> Duration {
        self.asked_time().within(span, now)
    }

    /// See [`AskedTime::hinder`].
    pub(super) fn hinder(&self, is_hindered: bool, now: Instant) {
        self.asked_time().hinder(is_hindered, now);
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
        let now = self.demand.clock.instant();
        self.demand.asked.set(now);
        if self.max > 0 {
            self.demand.asked_time().end(now);
        }
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

/// Messages of one partition in a row, within [`RUN_LASTS`].
const RUN: usize = 32;

/// After this time it is the turn of the next partition: a message of high priority waits no longer for each other partition.
const RUN_LASTS: Duration = Duration::from_millis(1);

/// Counts the messages that were taken, and a run for each partition that had none or whose time was over.
#[derive(Debug, Default)]
pub(super) struct Turns {
    count: AtomicUsize,
    /// When the turn ends, microseconds since [`Instant::START`].
    ends: AtomicU64,
}

impl Turns {
    /// The partition to look at first, as an index.
    pub(super) fn first(&self, partitions: usize, now: Instant) -> usize {
        if micros(now) >= self.ends.load(Ordering::Relaxed) {
            self.ends.store(micros(now.plus(RUN_LASTS)), Ordering::Relaxed);
            let next = (self.count.load(Ordering::Relaxed) / RUN + 1) * RUN;
            self.count.store(next, Ordering::Relaxed);
        }
        self.count.load(Ordering::Relaxed) / RUN % partitions.max(1)
    }

    /// Messages were taken, after some partitions that had none.
    pub(super) fn taken(&self, messages: usize, empty_partitions: usize) {
        if messages > 0 {
            self.count.fetch_add(empty_partitions * RUN + messages, Ordering::Relaxed);
        }
    }
}

fn micros(at: Instant) -> u64 {
    u64::try_from(at.since(Instant::START).as_micros()).unwrap_or(u64::MAX)
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

    const NOW: Instant = Instant::START;

    #[test]
    fn partitions_are_served_round_robin_in_runs() {
        let turns = Turns::default();
        assert_eq!(turns.first(0, NOW), 0);
        let order = std::iter::repeat_with(|| {
            let first = turns.first(3, NOW);
            turns.taken(1, 0);
            first
        });
        let order: Vec<_> = order.take(4 * RUN).collect();
        assert_eq!(order, [[1; RUN], [2; RUN], [0; RUN], [1; RUN]].concat());
    }

    #[test]
    fn empty_partitions_are_skipped_until_their_next_turn() {
        let turns = Turns::default();
        let first = turns.first(3, NOW);
        turns.taken(0, 3);
        assert_eq!(turns.first(3, NOW), first, "nothing was found");
        turns.taken(1, 2);
        assert_eq!(turns.first(3, NOW), (first + 2) % 3);
        turns.taken(RUN - 1, 0);
        assert_eq!(turns.first(3, NOW), first);
    }

    #[test]
    fn slow_consumers_take_each_message_from_another_partition() {
        let turns = Turns::default();
        let firsts = (0..6).map(|n| {
            let first = turns.first(3, NOW.plus(RUN_LASTS * n));
            turns.taken(1, 0);
            first
        });
        assert_eq!(firsts.collect::<Vec<_>>(), [1, 2, 0, 1, 2, 0]);
    }
}
