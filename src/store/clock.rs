//! The store's clock as this process knows it, between two answers of the store.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::clock_note::{ClockNote, Here};
use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;
use crate::model::version::Version;
use crate::platform::clock::{Clock, Instant};

/// How long the best of the last answers counts: two clocks run apart by less than a millisecond in that time.
const KEPT_US: i64 = 2_000_000;

/// No answer has been seen yet.
const UNKNOWN: i64 = i64::MIN;

/// By how much an offset from the local clocks has to change to be told. Calls take that long at times.
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
    /// Store time minus monotonic time at the send of the answered call that was on the way for the shortest time lately, in
    /// microseconds.
    sent_offset_us: AtomicI64,
    /// When that answer came, in microseconds.
    kept_at_us: AtomicI64,
    /// Store time minus monotonic time at the receipt of the last answer, in microseconds.
    received_offset_us: AtomicI64,
    /// The latest time that [`StoreClock::steady`] has told, in ms.
    told_ms: AtomicU64,
    /// The last version that was given or seen, in microseconds.
    version_us: AtomicU64,
    /// Whether an answer said so, not an assumption.
    answered: AtomicBool,
    /// Why no due time can be fixed before an answer has come; unset when one can.
    doubt: OnceLock<Error>,
    /// What was told last.
    told: watch::Sender<Option<ClockNote>>,
}

impl StoreClock {
    /// A store clock that is the local wall clock until an answer says otherwise.
    pub fn new(clock: Clock) -> StoreClock {
        let unknown = || AtomicI64::new(UNKNOWN);
        let (sent_offset_us, received_offset_us) = (unknown(), unknown());
        let (answered, told_ms) = (AtomicBool::new(false), AtomicU64::new(0));
        let (version_us, kept_at_us) = (AtomicU64::new(0), AtomicI64::new(0));
        let (doubt, told) = (OnceLock::new(), watch::Sender::new(None));
        StoreClock { clock, sent_offset_us, received_offset_us, kept_at_us, told_ms, version_us, answered, doubt, told }
    }

    /// The local clock behind it.
    pub fn local(&self) -> &Clock {
        &self.clock
    }

    /// Takes the store's time from an answer to a call that was sent at `sent`. Of the answers of the last seconds the one
    /// counts that was on the way for the shortest time: brokers that ask the same store agree as well as they can.
    pub fn observe(&self, sent: Instant, store_us: u64) {
        let store_us = i64::try_from(store_us).unwrap_or(i64::MAX);
        let now_us = instant_us(self.clock.instant());
        let (most, least) = (store_us - instant_us(sent), store_us - now_us);
        let kept = self.sent_offset_us.load(Ordering::Relaxed);
        let is_old = now_us - self.kept_at_us.load(Ordering::Relaxed) >= KEPT_US;
        // What is known cannot be more than `most` nor less than `least`, unless one of the clocks was set.
        if kept == UNKNOWN || is_old || most < kept || kept < least {
            self.sent_offset_us.store(most, Ordering::Relaxed);
            self.kept_at_us.store(now_us, Ordering::Relaxed);
        }
        self.received_offset_us.store(least, Ordering::Relaxed);
        self.answered.store(true, Ordering::Release);
        self.look();
    }

    /// Tells what to note, when it changed by more than 100 ms because one of the clocks jumped or ran off.
    pub fn changes(&self) -> watch::Receiver<Option<ClockNote>> {
        self.told.subscribe()
    }

    /// Looks whether one of the clocks jumped while the store does not answer, and tells it.
    pub fn look(&self) {
        let Some(offset_us) = self.offset_us() else { return };
        // The boot stays the same while this process runs, so its id is read for a note only.
        let now = ClockNote::of(self.here(), offset_us);
        if self.told.borrow().as_ref().is_none_or(|told| now.is_off(told, TOLD_US)) {
            self.told.send_replace(self.note());
        }
    }

    /// Takes the store's clock to be as an earlier process noted it, until an answer says otherwise. `newest` is a time
    /// that the wall clock had reached before. If neither can be right, no due time is fixed until then.
    pub fn assume(&self, note: Option<&ClockNote>, newest: Option<Timestamp>) {
        let here = Here { boot_id: self.clock.boot_id(), ..self.here() };
        let wall = ClockNote { boot_id: None, since_boot_us: 0, ahead_us: 0, store_us: 0 };
        match note.unwrap_or(&wall).offset_us(&here, newest.map(us)) {
            Ok(offset_us) if note.is_some() => {
                // Less than that was not noted.
                let (most, least) =
                    (offset_us.saturating_add_unsigned(TOLD_US), offset_us.saturating_sub_unsigned(TOLD_US));
                for (known, offset_us) in [(&self.sent_offset_us, most), (&self.received_offset_us, least)] {
                    // An answer that came meanwhile knows better.
                    let _ = known.compare_exchange(UNKNOWN, offset_us, Ordering::Relaxed, Ordering::Relaxed);
                }
                self.look();
            }
            Ok(_) => {}
            // Nothing is assumed twice.
            Err(error) => drop(self.doubt.set(error)),
        }
    }

    /// Whether a due time can be fixed.
    ///
    /// # Errors
    /// `Unavailable` when nothing tells what time it is at the store.
    pub fn check(&self) -> Result<()> {
        match self.doubt.get() {
            Some(doubt) if !self.answered.load(Ordering::Acquire) => Err(doubt.clone()),
            _ => Ok(()),
        }
    }

    /// What to note now for a start without the store; `None` while nothing is known.
    pub fn note(&self) -> Option<ClockNote> {
        let here = Here { boot_id: self.clock.boot_id(), ..self.here() };
        Some(ClockNote::of(here, self.offset_us()?))
    }

    /// The clocks of this machine, but for the id of the boot.
    fn here(&self) -> Here {
        Here { boot_id: None, boot_us: instant_us(self.clock.instant()), wall_us: us(self.clock.now_up()) }
    }

    /// The store's time minus the time since the boot, in microseconds, once it is known.
    fn offset_us(&self) -> Option<i64> {
        Some(self.sent_offset_us.load(Ordering::Relaxed)).filter(|offset_us| *offset_us != UNKNOWN)
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
                let us = u64::try_from(us(at).saturating_sub(offset)).unwrap_or(0);
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

/// Microseconds since 1970.
fn us(at: Timestamp) -> i64 {
    i64::try_from(at.as_ms().saturating_mul(1_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assumed_offset_holds_until_an_answer_knows_better() {
        let clock = StoreClock::new(Clock::System);
        let ahead = |ahead_us| ClockNote { boot_id: None, since_boot_us: 0, ahead_us, store_us: 0 };
        clock.assume(Some(&ahead(3_600_000_000)), None);
        let found = clock.now().since(clock.local().now());
        assert!(found > Duration::from_secs(3_599) && found < Duration::from_secs(3_601), "{found:?}");
        assert!(clock.note().is_some_and(|note| (3_599_000_000..3_601_000_000).contains(&note.ahead_us)));
        assert_eq!(clock.surely(), None);
        clock.observe(clock.local().instant(), 5_000_000_000_000);
        clock.assume(Some(&ahead(0)), None);
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
    fn a_clock_that_went_back_fixes_nothing_until_an_answer() {
        let clock = StoreClock::new(Clock::System);
        let newest = clock.local().now().plus(Duration::from_secs(60));
        assert_eq!(clock.check(), Ok(()));
        clock.assume(None, Some(newest));
        assert!(clock.check().is_err_and(|error| error.detail().contains("is behind what was noted")));
        assert_eq!(clock.note(), None);
        clock.observe(clock.local().instant(), 5_000_000_000_000);
        assert_eq!(clock.check(), Ok(()));
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
