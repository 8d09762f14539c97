//! The store's clock as this process knows it, between two answers of the store and over a restart without it.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;
use crate::model::version::Version;
use crate::platform::clock::{Clock, Instant};

/// How long the best of the last answers counts: two clocks run apart by less than a millisecond in that time.
const KEPT_US: i64 = 2_000_000;

const UNKNOWN: i64 = i64::MIN;

/// By how much an offset from the local clocks has to change to be published. Calls take that long at times.
const PUBLISHED_US: u64 = 100_000;

/// How far the estimate may go back, when an answer comes faster than the one before, without [`StoreClock::steady`]
/// going back. A store that was replaced by one whose clock is behind makes nothing later than this.
const CORRECTED_MAX: Duration = Duration::from_secs(1);

/// An estimate of the store's clock that is safe both ways: [`StoreClock::now`] is never behind it, so a due time fixed
/// with it is never early; [`StoreClock::reaches`] is never ahead of it, so a sleep until then finds the message due.
#[derive(Debug)]
pub struct StoreClock {
    clock: Clock,
    /// Store time minus monotonic time, in microseconds, at the send of the call that was answered fastest lately.
    sent_offset_us: AtomicI64,
    kept_at_us: AtomicI64,
    /// Store time minus monotonic time at the receipt of the last answer, in microseconds.
    received_offset_us: AtomicI64,
    /// The latest time that [`StoreClock::steady`] has published, in ms.
    latest_ms: AtomicU64,
    /// The last version that was given or seen, in microseconds.
    version_us: AtomicU64,
    answered: AtomicBool,
    /// Why no due time can be fixed before an answer has come; unset when one can.
    doubt: OnceLock<Error>,
    published: watch::Sender<Option<ClockNote>>,
}

impl StoreClock {
    pub fn new(clock: Clock) -> StoreClock {
        let unknown = || AtomicI64::new(UNKNOWN);
        let (sent_offset_us, received_offset_us) = (unknown(), unknown());
        let (answered, latest_ms) = (AtomicBool::new(false), AtomicU64::new(0));
        let (version_us, kept_at_us) = (AtomicU64::new(0), AtomicI64::new(0));
        let (doubt, published) = (OnceLock::new(), watch::Sender::new(None));
        StoreClock {
            clock,
            sent_offset_us,
            received_offset_us,
            kept_at_us,
            latest_ms,
            version_us,
            answered,
            doubt,
            published,
        }
    }

    pub fn local(&self) -> &Clock {
        &self.clock
    }

    /// Takes the store's time from an answer to a call that was sent at `sent`. Of the answers of the last seconds the
    /// one counts that was on the way for the shortest time: brokers that ask the same store agree as well as they can.
    pub fn observe(&self, sent: Instant, store_us: u64) {
        let store_us = i64::try_from(store_us).unwrap_or(i64::MAX);
        let now_us = instant_us(self.clock.instant());
        let (most, least) = (store_us - instant_us(sent), store_us - now_us);
        let kept = self.sent_offset_us.load(Ordering::Relaxed);
        let is_old = now_us - self.kept_at_us.load(Ordering::Relaxed) >= KEPT_US;
        // The offset cannot be more than `most` nor less than `least`, unless one of the clocks was set.
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
        self.published.subscribe()
    }

    pub fn look(&self) {
        let Some(offset_us) = self.offset_us() else { return };
        // The boot stays the same while this process runs, so its id is read for a note only.
        let now = ClockNote::of(self.local_clocks(), offset_us);
        if self.published.borrow().as_ref().is_none_or(|published| now.is_off(published, PUBLISHED_US)) {
            self.published.send_replace(self.note());
        }
    }

    /// Takes the store's clock to be as an earlier process noted it, until an answer says otherwise. `newest` is a time
    /// that the wall clock had reached before. If neither can be right, no due time is fixed until then.
    pub fn assume(&self, note: Option<&ClockNote>, newest: Option<Timestamp>) {
        let local_clocks = LocalClocks { boot_id: self.clock.boot_id(), ..self.local_clocks() };
        let wall = ClockNote { boot_id: None, since_boot_us: 0, ahead_us: 0, store_us: 0 };
        match note.unwrap_or(&wall).offset_us(&local_clocks, newest.map(us)) {
            Ok(offset_us) if note.is_some() => {
                let (most, least) =
                    (offset_us.saturating_add_unsigned(PUBLISHED_US), offset_us.saturating_sub_unsigned(PUBLISHED_US));
                for (known, offset_us) in [(&self.sent_offset_us, most), (&self.received_offset_us, least)] {
                    let _ = known.compare_exchange(UNKNOWN, offset_us, Ordering::Relaxed, Ordering::Relaxed);
                }
                self.look();
            }
            Ok(_) => {}
            Err(error) => drop(self.doubt.set(error)),
        }
    }

    /// Whether a due time can be fixed. Errors: `Unavailable` when nothing tells what time it is at the store.
    pub fn check(&self) -> Result<()> {
        match self.doubt.get() {
            Some(doubt) if !self.answered.load(Ordering::Acquire) => Err(doubt.clone()),
            _ => Ok(()),
        }
    }

    /// The note to keep now for a start without the store; `None` while nothing is known.
    pub fn note(&self) -> Option<ClockNote> {
        let local_clocks = LocalClocks { boot_id: self.clock.boot_id(), ..self.local_clocks() };
        Some(ClockNote::of(local_clocks, self.offset_us()?))
    }

    fn local_clocks(&self) -> LocalClocks {
        LocalClocks { boot_id: None, boot_us: instant_us(self.clock.instant()), wall_us: us(self.clock.now_up()) }
    }

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

    /// The time of the store, never before the time that this published last: what one producer pushes later is not due earlier. A
    /// clock that was wrong by more than a second is put right all the same.
    pub fn steady(&self) -> Timestamp {
        let now = self.now();
        let published = Timestamp::from_ms(self.latest_ms.fetch_max(now.as_ms(), Ordering::Relaxed));
        if published.since(now) <= CORRECTED_MAX {
            return published.max(now);
        }
        self.latest_ms.store(now.as_ms(), Ordering::Relaxed);
        now
    }

    /// The store's time now, never ahead of it; `None` until an answer has published it.
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

fn us(at: Timestamp) -> i64 {
    i64::try_from(at.as_ms().saturating_mul(1_000)).unwrap_or(i64::MAX)
}

/// Begins the text of a note. A text without it is an offset alone, as an earlier version of dwell wrote it.
const VERSION: &str = "2";

/// Stands for a boot that has no id.
const NO_BOOT: &str = "-";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockNote {
    /// The boot of the machine; `None` where the system does not name it.
    pub boot_id: Option<String>,
    /// The store's time minus the time since that boot, in microseconds.
    pub since_boot_us: i64,
    /// The store's time minus the wall clock's, in microseconds.
    pub ahead_us: i64,
    /// The store's time at that moment, in microseconds since 1970.
    pub store_us: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalClocks {
    pub(super) boot_id: Option<String>,
    pub(super) boot_us: i64,
    pub(super) wall_us: i64,
}

impl ClockNote {
    pub(super) fn of(local_clocks: LocalClocks, since_boot_us: i64) -> ClockNote {
        let store_us = local_clocks.boot_us.saturating_add(since_boot_us);
        ClockNote {
            boot_id: local_clocks.boot_id,
            since_boot_us,
            ahead_us: store_us.saturating_sub(local_clocks.wall_us),
            store_us,
        }
    }

    /// The store's time minus the time since the boot, in microseconds, as far as this note tells. On the same boot
    /// nobody can have set that clock; on another one the wall clock counts. Errors: `Unavailable` when one of the
    /// clocks went back: behind the note, or the wall clock behind `newest_us`, which it had reached before.
    fn offset_us(&self, local_clocks: &LocalClocks, newest_us: Option<i64>) -> Result<i64, Error> {
        if local_clocks.boot_id.is_some() && self.boot_id == local_clocks.boot_id {
            let store_us = local_clocks.boot_us.saturating_add(self.since_boot_us);
            return if store_us < self.store_us { Err(gone_back()) } else { Ok(self.since_boot_us) };
        }
        let store_us = local_clocks.wall_us.saturating_add(self.ahead_us);
        if store_us < self.store_us || newest_us.is_some_and(|newest_us| local_clocks.wall_us < newest_us) {
            return Err(gone_back());
        }
        Ok(store_us.saturating_sub(local_clocks.boot_us))
    }

    /// Whether an offset differs by more than `by_us` from that of an earlier note of the same boot.
    fn is_off(&self, earlier: &ClockNote, by_us: u64) -> bool {
        self.since_boot_us.abs_diff(earlier.since_boot_us) > by_us || self.ahead_us.abs_diff(earlier.ahead_us) > by_us
    }
}

fn gone_back() -> Error {
    Error::unavailable(
        "the clock of this machine is behind what was noted before, and the store has not said what time it is: no due time \
         is fixed until it has",
    )
}

impl fmt::Display for ClockNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClockNote { boot_id, since_boot_us, ahead_us, store_us } = self;
        write!(f, "{VERSION} {} {since_boot_us} {ahead_us} {store_us}", boot_id.as_deref().unwrap_or(NO_BOOT))
    }
}

impl FromStr for ClockNote {
    type Err = Error;

    fn from_str(text: &str) -> Result<ClockNote, Error> {
        let wrong = || Error::corrupt(format!("no note of the store's clock: {text:?}"));
        let number = |text: &str| text.parse::<i64>().map_err(|_| wrong());
        match text.split(' ').collect::<Vec<_>>()[..] {
            [ahead_us] => Ok(ClockNote { boot_id: None, since_boot_us: 0, ahead_us: number(ahead_us)?, store_us: 0 }),
            [VERSION, boot_id, since_boot_us, ahead_us, store_us] => Ok(ClockNote {
                boot_id: Some(boot_id.to_owned()).filter(|id| id != NO_BOOT),
                since_boot_us: number(since_boot_us)?,
                ahead_us: number(ahead_us)?,
                store_us: number(store_us)?,
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumed_offset_holds_until_a_store_reply() {
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
    fn versions_are_unique_and_exceed_observed_ones() {
        let clock = StoreClock::new(Clock::System);
        let first = clock.versions(3);
        assert!(clock.versions(1) >= first.plus(3));
        clock.witness(first.plus(10_000_000));
        assert!(clock.versions(1) > first.plus(10_000_000));
    }

    #[test]
    fn clock_that_went_back_fixes_no_time_until_a_store_reply() {
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
    fn estimate_is_monotonic_unless_the_clock_was_wrong() {
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
    fn estimate_is_an_upper_bound_for_due_times() {
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

    const HOUR_US: i64 = 3_600_000_000;

    fn local_clocks(boot_id: Option<&str>, boot_us: i64, wall_us: i64) -> LocalClocks {
        LocalClocks { boot_id: boot_id.map(str::to_owned), boot_us, wall_us }
    }

    /// At noon by the wall clock, two hours after the boot `a`, with a store that is five seconds ahead.
    fn noted() -> ClockNote {
        ClockNote::of(local_clocks(Some("a"), 2 * HOUR_US, 12 * HOUR_US), 10 * HOUR_US + 5_000_000)
    }

    #[test]
    fn clock_note_round_trips_and_garbage_is_refused() {
        for note in [noted(), ClockNote { boot_id: None, since_boot_us: -7, ahead_us: i64::MIN, store_us: 0 }] {
            assert_eq!(note.to_string().parse(), Ok(note));
        }
        let old = ClockNote { boot_id: None, since_boot_us: 0, ahead_us: -1_234_567, store_us: 0 };
        assert_eq!("-1234567".parse(), Ok(old));
        for garbage in ["", "x", "2 a", "2 a 1 2", "2 a 1 2 x", "3 a 1 2 3", "2 a 1 2 3 4"] {
            assert!(garbage.parse::<ClockNote>().is_err(), "{garbage}");
        }
    }

    #[test]
    fn wall_clock_is_ignored_within_one_boot() {
        let note = noted();
        assert_eq!(note.ahead_us, 5_000_000);
        for wall_us in [0, 12 * HOUR_US, 90 * HOUR_US] {
            let later = local_clocks(Some("a"), 3 * HOUR_US, wall_us);
            assert_eq!(note.offset_us(&later, Some(50 * HOUR_US)), Ok(note.since_boot_us));
        }
        assert!(note.offset_us(&local_clocks(Some("a"), HOUR_US, 12 * HOUR_US), None).is_err());
    }

    #[test]
    fn wall_clock_counts_after_a_reboot_unless_it_went_back() {
        let note = noted();
        for boot_id in [Some("b"), None] {
            let later = local_clocks(boot_id, 60_000_000, 13 * HOUR_US);
            assert_eq!(note.offset_us(&later, Some(13 * HOUR_US)), Ok(13 * HOUR_US + 5_000_000 - 60_000_000));
            assert!(note.offset_us(&later, Some(13 * HOUR_US + 1)).is_err());
            assert!(note.offset_us(&local_clocks(boot_id, 60_000_000, 12 * HOUR_US - 1), None).is_err());
        }
        let nameless = ClockNote { boot_id: None, ..note };
        assert!(nameless.offset_us(&local_clocks(None, 3 * HOUR_US, 11 * HOUR_US), None).is_err());
    }
}
