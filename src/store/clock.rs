//! The store's clock as this process knows it, between two answers of the store.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{Clock, Instant};
use crate::time::Timestamp;
use crate::version::Version;

/// No answer has been seen yet.
const UNKNOWN: i64 = i64::MIN;

/// By how much the offset from the local wall clock has to change to be told. Calls take that long at times.
const TOLD_US: u64 = 100_000;

/// How far the estimate may go back, when an answer comes faster than the one before, without [`StoreClock::steady`] going
/// back. A store that was replaced by one whose clock is behind makes nothing later than this.
const CORRECTED_MAX: Duration = Duration::from_secs(1);

/// An estimate of the store's clock that is on the safe side both ways: [`StoreClock::now`] is never behind it, so a due
/// time fixed with it is never early; [`StoreClock::reaches`] is never ahead of it, so who sleeps until then finds the
/// message due.
#[derive(Debug)]
pub struct StoreClock {
    clock: Clock,
    /// Store time minus monotonic time at the send of the last answered call, in microseconds.
    sent_offset_us: AtomicI64,
    /// Store time minus monotonic time at the receipt of the same answer, in microseconds.
    received_offset_us: AtomicI64,
    /// The latest time that [`StoreClock::steady`] has told, in ms.
    told_ms: AtomicU64,
    /// The last version that was given or seen, in microseconds.
    version_us: AtomicU64,
    /// Whether an answer said so, not an assumption.
    answered: AtomicBool,
    /// By how many microseconds the store is ahead of the local wall clock, as it was told last.
    ahead_us: watch::Sender<Option<i64>>,
}

impl StoreClock {
    /// A store clock that is the local wall clock until an answer says otherwise.
    pub fn new(clock: Clock) -> StoreClock {
        let unknown = || AtomicI64::new(UNKNOWN);
        let (sent_offset_us, received_offset_us) = (unknown(), unknown());
        let (answered, ahead_us, told_ms) = (AtomicBool::new(false), watch::Sender::new(None), AtomicU64::new(0));
        let version_us = AtomicU64::new(0);
        StoreClock { clock, sent_offset_us, received_offset_us, told_ms, version_us, answered, ahead_us }
    }

    /// The local clock behind it.
    pub fn local(&self) -> &Clock {
        &self.clock
    }

    /// Takes the store's time from an answer to a call that was sent at `sent`.
    pub fn observe(&self, sent: Instant, store_us: u64) {
        let store_us = i64::try_from(store_us).unwrap_or(i64::MAX);
        self.sent_offset_us.store(store_us - instant_us(sent), Ordering::Relaxed);
        self.received_offset_us.store(store_us - instant_us(self.clock.instant()), Ordering::Relaxed);
        self.answered.store(true, Ordering::Release);
        let ahead_us = self.ahead_us();
        let is_news = |told: Option<i64>| told.zip(ahead_us).is_none_or(|(told, now)| told.abs_diff(now) > TOLD_US);
        if is_news(*self.ahead_us.borrow()) {
            self.ahead_us.send_replace(ahead_us);
        }
    }

    /// Tells by how many microseconds the store is ahead of the local wall clock, when an answer shows that it changed by
    /// more than 100 ms, because one of the two jumped or ran off.
    pub fn changes(&self) -> watch::Receiver<Option<i64>> {
        self.ahead_us.subscribe()
    }

    /// Takes the store to be so many microseconds ahead of the local wall clock, as it was in an earlier life of this
    /// process, until an answer says otherwise.
    pub fn assume(&self, ahead_us: i64) {
        let now_us = i64::try_from(self.clock.now_up().as_ms().saturating_mul(1_000)).unwrap_or(i64::MAX);
        let offset = now_us.saturating_add(ahead_us).saturating_sub(instant_us(self.clock.instant()));
        for known in [&self.sent_offset_us, &self.received_offset_us] {
            // An answer that came meanwhile knows better.
            let _ = known.compare_exchange(UNKNOWN, offset, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// By how many microseconds the store is ahead of the local wall clock, once an answer has said so.
    pub fn ahead_us(&self) -> Option<i64> {
        let offset = self.sent_offset_us.load(Ordering::Relaxed);
        let now_us = i64::try_from(self.clock.now_up().as_ms().saturating_mul(1_000)).unwrap_or(i64::MAX);
        (offset != UNKNOWN).then(|| offset.saturating_add(instant_us(self.clock.instant())).saturating_sub(now_us))
    }

    /// The store's time now, never behind it.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.now_us().div_ceil(1_000))
    }

    fn now_us(&self) -> u64 {
        match self.sent_offset_us.load(Ordering::Relaxed) {
            UNKNOWN => self.clock.now_up().as_ms().saturating_mul(1_000),
            _ if self.clock.manual_now().is_some() => self.clock.now().as_ms().saturating_mul(1_000),
            offset => u64::try_from(instant_us(self.clock.instant()).saturating_add(offset)).unwrap_or(0),
        }
    }

    /// The first of so many new versions: the store's time, and later than all that were given or seen before.
    pub fn versions(&self, count: usize) -> Version {
        let (now, count) = (self.now_us(), count.max(1) as u64);
        let next = |last: u64| Some(now.max(last.saturating_add(1)).saturating_add(count - 1));
        let last = self.version_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        Version::from_us(now.max(last.saturating_add(1)))
    }

    /// Another broker gave this version: those that are given from now on are later.
    pub fn witness(&self, version: Version) {
        self.version_us.fetch_max(version.as_us(), Ordering::Relaxed);
    }

    /// The same, and never before what it told last: what one producer pushes later is not due earlier. A clock that
    /// was wrong by more than a second is put right all the same.
    pub fn steady(&self) -> Timestamp {
        let now = self.now();
        let told = Timestamp::from_ms(self.told_ms.fetch_max(now.as_ms(), Ordering::Relaxed));
        if told.since(now) <= CORRECTED_MAX {
            return told.max(now);
        }
        self.told_ms.store(now.as_ms(), Ordering::Relaxed);
        now
    }

    /// The store's time now, never ahead of it; `None` until an answer has told it.
    pub fn surely(&self) -> Option<Timestamp> {
        if !self.answered.load(Ordering::Acquire) {
            return None;
        }
        let offset = self.received_offset_us.load(Ordering::Relaxed);
        let us = u64::try_from(instant_us(self.clock.instant()).saturating_add(offset)).unwrap_or(0);
        Some(self.clock.manual_now().unwrap_or(Timestamp::from_ms(us / 1_000)))
    }

    /// The local instant at which the store's clock has surely reached `at`; in the past if it has.
    pub fn reaches(&self, at: Timestamp) -> Instant {
        match self.received_offset_us.load(Ordering::Relaxed) {
            offset if offset != UNKNOWN && self.clock.manual_now().is_none() => {
                let at_us = i64::try_from(at.as_ms().saturating_mul(1_000)).unwrap_or(i64::MAX);
                let us = u64::try_from(at_us.saturating_sub(offset)).unwrap_or(0);
                Instant::default().plus(Duration::from_micros(us))
            }
            _ => {
                let now = self.clock.now();
                self.clock.instant().minus(now.since(at)).plus(at.since(now))
            }
        }
    }

    /// How far the local wall clock is ahead of the store's, in seconds; negative when behind.
    pub fn local_ahead_seconds(&self) -> f64 {
        let (local, store) = (self.clock.now().as_ms(), self.now().as_ms());
        (local as f64 - store as f64) / 1_000.0
    }
}

fn instant_us(instant: Instant) -> i64 {
    i64::try_from(instant.since(Instant::default()).as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assumed_offset_holds_until_an_answer_knows_better() {
        let clock = StoreClock::new(Clock::System);
        clock.assume(3_600_000_000);
        let ahead = clock.now().since(clock.local().now());
        assert!(ahead > Duration::from_secs(3_599) && ahead < Duration::from_secs(3_601), "{ahead:?}");
        assert!(clock.ahead_us().is_some_and(|us| (3_599_000_000..3_601_000_000).contains(&us)));
        assert_eq!(clock.surely(), None);
        clock.observe(clock.local().instant(), 5_000_000_000_000);
        clock.assume(0);
        assert!(clock.now() < Timestamp::from_ms(5_000_100_000));
    }

    #[test]
    fn versions_never_repeat_and_follow_what_was_seen() {
        let clock = StoreClock::new(Clock::System);
        let first = clock.versions(3);
        assert!(clock.versions(1) >= first.plus(3));
        clock.witness(first.plus(10_000_000));
        assert!(clock.versions(1) > first.plus(10_000_000));
    }

    #[test]
    fn what_is_told_later_is_not_earlier_unless_the_clock_was_wrong() {
        let clock = StoreClock::new(Clock::System);
        let ms = |clock: &StoreClock| clock.steady().as_ms();
        clock.observe(clock.local().instant(), 5_000_000_000_000);
        let first = ms(&clock);
        clock.observe(clock.local().instant(), 4_999_999_500_000);
        assert_eq!(ms(&clock), first);
        clock.observe(clock.local().instant(), 4_000_000_000_000);
        assert!((4_000_000_000..4_000_010_000).contains(&ms(&clock)));
    }

    #[test]
    fn the_estimate_is_late_for_due_times_and_sure_for_sleepers() {
        let clock = StoreClock::new(Clock::System);
        let sent = clock.local().instant();
        std::hint::black_box((0..10_000).sum::<u64>());
        clock.observe(sent, 5_000_000_000_500);
        assert!(clock.now() >= Timestamp::from_ms(5_000_000_001));
        assert!(clock.surely().is_some_and(|now| now < clock.now()));
        let at = Timestamp::from_ms(5_000_000_100);
        let left = clock.reaches(at).since(clock.local().instant());
        assert!(left <= Duration::from_millis(100) && left > Duration::from_millis(50), "{left:?}");
    }
}
