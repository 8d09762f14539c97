//! Rates by key: when the next delivery of a key may be made.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A). Each key has a time at which its next delivery is due at its rate, and a
//! delivery may be made up to `burst - 1` times that spacing before. So any time `t` has at most `burst + rate × t` deliveries of a key.
//!
//! The memory forgets keys whose time is over, and the next owner of a partition has none of these times. It learns when the last delivery
//! of the partition may have been made, and takes that for the last one of each key, without a burst. So the limit holds across owners,
//! and no delivery has to be written down.

use std::collections::HashMap;
use std::time::Duration;

use super::Now;
use crate::model::limits::PACED_KEYS_MAX;
use crate::model::message::Key;
use crate::model::time::Timestamp;
use crate::model::topic::KeyRate;
use crate::platform::clock::Instant;

/// Times are those of [`super::Now::elapsed`]. The rate of a key comes with each call.
#[derive(Debug)]
pub(super) struct Pace {
    /// For each key that had a delivery lately, when its next one is due at its rate.
    due: HashMap<Key, Instant>,
    /// Any key may have had a burst of deliveries until so long before this time.
    began: Instant,
    before: Duration,
    /// No key that was forgotten had its next delivery due after this.
    forgotten: Instant,
    /// How many keys are remembered before those whose time is over are forgotten.
    remembered: usize,
}

const REMEMBERED_MIN: usize = 1_024;

impl Pace {
    /// No key has had a delivery.
    pub(super) fn new() -> Pace {
        Pace {
            due: HashMap::new(),
            began: Instant::START,
            before: Duration::MAX,
            forgotten: Instant::START,
            remembered: REMEMBERED_MIN,
        }
    }

    /// Any key may have had a burst of deliveries until `last`.
    pub(super) fn after(last: Timestamp, now: Now) -> Pace {
        Pace { began: now.elapsed.plus(last.since(now.store)), before: now.store.since(last), ..Pace::new() }
    }

    fn due(&self, key: &Key, rate: KeyRate) -> Instant {
        let of_another = || {
            let left = rate.spacing().saturating_mul(rate.burst()).saturating_sub(self.before);
            let others_due = if left.is_zero() { Instant::START } else { self.began.plus(left) };
            others_due.max(self.forgotten)
        };
        self.due.get(key).copied().unwrap_or_else(of_another)
    }

    /// When the next delivery of a key may be made; in the past if it may be now.
    pub(super) fn opens_at(&self, key: &Key, rate: KeyRate) -> Instant {
        self.due(key, rate).minus(tolerance(rate))
    }

    /// When the delivery after `more` deliveries may be made, if these are made as early as they may be from `now` on.
    pub(super) fn opens_after(&self, key: &Key, rate: KeyRate, more: usize, now: Instant) -> Instant {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.due(key, rate).max(now).plus(rate.spacing().saturating_mul(more)).minus(tolerance(rate))
    }

    /// How many deliveries of a key may be made from `now` to `by`.
    pub(super) fn allowed(&self, key: &Key, rate: KeyRate, (now, by): (Instant, Instant)) -> usize {
        // The clock may have begun later than the time of a burst ago.
        let (next, last) = (self.due(key, rate).max(now), by.plus(tolerance(rate)));
        if next > last {
            return 0;
        }
        let intervals = last.since(next).as_nanos() / rate.spacing().as_nanos().max(1);
        usize::try_from(intervals).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// A delivery of a key is made.
    pub(super) fn delivered(&mut self, key: &Key, rate: KeyRate, now: Instant) {
        let due = self.due(key, rate).max(now).plus(rate.spacing());
        if self.due.len() >= self.remembered && !self.due.contains_key(key) {
            self.forget(now);
        }
        self.due.insert(key.clone(), due);
    }

    /// Other rates count from now on: keys whose rate is not the same as before begin anew.
    pub(super) fn change(&mut self, is_same: impl Fn(&Key) -> bool, for_most: bool) {
        self.due.retain(|key, _| is_same(key));
        if for_most {
            self.forgotten = Instant::START;
        }
    }

    /// Forgets the keys whose time is over, and of too many the half that is due first: their time is that of all others then.
    fn forget(&mut self, now: Instant) {
        self.due.retain(|_, due| *due > now);
        if self.due.len() >= PACED_KEYS_MAX {
            let mut times: Vec<Instant> = self.due.values().copied().collect();
            let (_, middle, _) = times.select_nth_unstable(PACED_KEYS_MAX / 2);
            self.forgotten = self.forgotten.max(*middle);
            let forgotten = self.forgotten;
            self.due.retain(|_, due| *due > forgotten);
        }
        self.remembered = (2 * self.due.len()).clamp(REMEMBERED_MIN, PACED_KEYS_MAX);
    }
}

/// How much earlier than at its rate a delivery may be made.
fn tolerance(rate: KeyRate) -> Duration {
    rate.spacing().saturating_mul(rate.burst().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    fn at(ms: u64) -> Instant {
        Instant::START.plus(Duration::from_millis(ms))
    }

    fn store(ms: u64) -> Timestamp {
        Timestamp::from_ms(1_000_000_000 + ms)
    }

    fn time(ms: u64) -> Now {
        Now { store: store(ms), instant: at(ms), elapsed: at(ms), chance: 0.0 }
    }

    fn delivers(pace: &mut Pace, rate: KeyRate, key: &Key, now: Instant) -> bool {
        let may = pace.allowed(key, rate, (now, now)) > 0;
        assert_eq!(may, pace.opens_at(key, rate) <= now);
        if may {
            pace.delivered(key, rate, now);
        }
        may
    }

    #[test]
    fn any_time_has_at_most_the_burst_and_the_rate() -> Result<()> {
        for seed in 0..60 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (per_second, burst) = (f64::from(random.u32(1..40)) / 2.0, random.u32(1..6));
            let rate = KeyRate::new(per_second, burst)?;
            let mut pace = Pace::new();
            let (key, mut now, mut made) = (Key::new("a")?, 0, Vec::new());
            for _ in 0..400 {
                now += if random.u8(0..8) == 0 { random.u64(0..3_000) } else { random.u64(0..40) };
                // Another owner has nothing but the time of the last delivery.
                if random.u8(0..60) == 0 {
                    let last = made.last().map_or(Timestamp::ZERO, |ms| store(*ms));
                    pace = Pace::after(last, time(now));
                }
                if delivers(&mut pace, rate, &key, at(now)) {
                    made.push(now);
                }
            }
            for (first, from) in made.iter().enumerate() {
                for (last, to) in made.iter().enumerate().skip(first) {
                    let most = f64::from(burst) + per_second * (to - from) as f64 / 1_000.0;
                    assert!((last - first + 1) as f64 <= most, "seed {seed}: {first} to {last} of {made:?}");
                }
            }
            let least = (per_second * 3.0) as usize;
            assert!(made.len() > least.min(20), "seed {seed}: {made:?}");
        }
        Ok(())
    }

    #[test]
    fn a_burst_comes_at_once_and_the_rest_at_the_rate() -> Result<()> {
        let (rate, key, other) = (KeyRate::new(10.0, 3)?, Key::new("a")?, Key::new("b")?);
        let mut pace = Pace::new();
        let made: Vec<u64> = (0..500).filter(|ms| delivers(&mut pace, rate, &key, at(*ms))).collect();
        assert_eq!(made, [0, 1, 2, 100, 200, 300, 400]);
        assert!(delivers(&mut pace, rate, &other, at(500)), "each key has its own rate");
        assert_eq!(pace.allowed(&key, rate, (at(499), at(1_500))), 11);
        assert_eq!(pace.opens_after(&key, rate, 2, at(499)), at(700));
        let slow = KeyRate::new(0.001, 5)?;
        assert_eq!(Pace::new().allowed(&key, slow, (at(1), at(1))), 5, "though the clock has just begun");
        Ok(())
    }

    #[test]
    fn another_owner_begins_without_a_burst() -> Result<()> {
        let rate = KeyRate::new(10.0, 3)?;
        let (mut pace, key) = (Pace::after(store(1_000), time(1_000)), Key::new("a")?);
        let made: Vec<u64> = (1_000..1_450).filter(|ms| delivers(&mut pace, rate, &key, at(*ms))).collect();
        assert_eq!(made, [1_100, 1_200, 1_300, 1_400]);
        // The machine may have begun since, and there may have been no delivery.
        for last in [store(0).minus(Duration::from_millis(300)), Timestamp::ZERO] {
            assert_eq!(Pace::after(last, time(0)).allowed(&key, rate, (at(0), at(0))), 3, "{last}");
        }
        Ok(())
    }

    #[test]
    fn memory_of_many_keys_is_bounded_and_none_is_faster() -> Result<()> {
        let (mut pace, rate) = (Pace::new(), KeyRate::new(0.001, 1)?);
        let keys = PACED_KEYS_MAX as u64 * 2;
        for n in 0..keys {
            let key = Key::new(format!("k{n}"))?;
            if pace.opens_at(&key, rate) <= at(n) {
                pace.delivered(&key, rate, at(n));
                assert!(pace.opens_at(&key, rate) >= at(n + 1_000_000), "{n}");
            }
            assert!(pace.due.len() <= PACED_KEYS_MAX);
        }
        assert!(pace.opens_at(&Key::new("k0")?, rate) >= at(1_000_000));
        // Once their time is over all are forgotten.
        pace.forget(at(keys + 2_000_000));
        assert_eq!(pace.due.len(), 0);
        Ok(())
    }
}
