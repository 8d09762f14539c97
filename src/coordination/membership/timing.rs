//! The spans that a member lives by, all derived from the lease ttl and the heartbeat.

use std::time::Duration;

use crate::platform::clock::Instant;

/// The shortest pause after something failed; it doubles with every failure in a row, up to a heartbeat.
const RETRY_FIRST: Duration = Duration::from_millis(20);

/// Heartbeats that may be missed before a member is no longer counted.
const MISSED_MAX: u32 = 3;

/// The two settings of a group that everything else follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    ttl: Duration,
    heartbeat: Duration,
}

impl Timing {
    /// A heartbeat longer than a third of the ttl is cut to that: a member must not be missed while its leases hold.
    pub fn new(ttl: Duration, heartbeat: Duration) -> Timing {
        Timing { ttl, heartbeat: heartbeat.min(ttl / 3) }
    }

    /// How long a lease runs without a renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The span from one heartbeat to the next.
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// How old a heartbeat may be before the store leaves its member out of the list.
    ///
    /// Well before its leases end: by then the others know when each of them lapses, and take it in that moment. A
    /// member left out by mistake loses nothing, since its leases hold.
    pub fn absent_after(&self) -> Duration {
        self.ttl.min(self.heartbeat * MISSED_MAX)
    }

    /// How old a list of members may be for its reader to acquire anything.
    pub(super) fn stale_after(&self) -> Duration {
        self.absent_after().min(self.ttl / 2)
    }

    /// How long a member whose list had become stale acquires nothing while others of it are missing: the store was away,
    /// perhaps for all, and owners come first to resume what is theirs. They renew each third of the ttl.
    pub(super) fn settle(&self) -> Duration {
        self.ttl / 3 + self.heartbeat
    }

    /// The shortest span between two heartbeats, however many announcements arrive.
    pub(super) fn beat_pause(&self) -> Duration {
        self.heartbeat / 20
    }

    /// The number of the span between two lists that this falls into: what is announced within one is equally new.
    pub(super) fn news_of(&self, now: Instant) -> u64 {
        let spans = now.since(Instant::START).as_millis() / self.beat_pause().as_millis().max(1);
        u64::try_from(spans).unwrap_or(u64::MAX)
    }

    /// The pause after a failed heartbeat.
    pub(super) fn beat_retry(&self) -> Duration {
        self.heartbeat / 4
    }

    /// The pause after so many failures in a row.
    pub(super) fn retry(&self, failures: u32) -> Duration {
        let doubled = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        doubled.min(self.heartbeat)
    }

    /// How long after a change of the members, or after sweep number `round`, to look for partitions that nobody took.
    pub(super) fn sweep_after(&self, round: u32) -> Duration {
        self.ttl * 2_u32.saturating_pow(round.saturating_add(1)).min(32)
    }

    /// How long a partition that nobody took is kept beyond the share, when that was found so many times before.
    pub(super) fn keep(&self, times: u32) -> Duration {
        self.ttl / 2 * 2_u32.saturating_pow(times).min(128)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_defaults_leave_a_member_out_after_three_missed_heartbeats() {
        let timing = Timing::new(ms(10_000), ms(1_000));
        assert_eq!(timing.absent_after(), ms(3_000));
        assert_eq!(Timing::new(ms(900), ms(1_000)).heartbeat(), ms(300));
    }

    #[test]
    fn pauses_grow_and_end() {
        let timing = Timing::new(ms(10_000), ms(1_000));
        assert_eq!([1, 2, 3, 6, 7, u32::MAX].map(|n| timing.retry(n).as_millis()), [20, 40, 80, 640, 1_000, 1_000]);
        assert_eq!([0, 1, 4, 5, u32::MAX].map(|n| timing.sweep_after(n).as_secs()), [20, 40, 320, 320, 320]);
        assert_eq!([0, 1, 7, 8, u32::MAX].map(|n| timing.keep(n).as_secs()), [5, 10, 640, 640, 640]);
    }
}
