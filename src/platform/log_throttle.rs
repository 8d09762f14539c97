//! Throttles repeated log messages.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::platform::clock::Instant;

const ENOUGH: Duration = Duration::from_secs(60);

const ENOUGH_ONCE_OVER: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct RepeatThrottle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    is_over: bool,
}

impl RepeatThrottle {
    /// Whether to log now; then the message counts as logged.
    pub fn is_due(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let enough = if state.is_over { ENOUGH_ONCE_OVER } else { ENOUGH };
        if state.last.is_some_and(|last| now.since(last) < enough) {
            return false;
        }
        *state = State { last: Some(now), is_over: false };
        true
    }

    /// The failure has ended. Returns whether it was logged, so that its end is to be logged too.
    pub fn is_over(&self) -> bool {
        let mut state = self.lock();
        state.last.is_some() && !std::mem::replace(&mut state.is_over, true)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FEW: u32 = 10;

const ONE_MORE: Duration = Duration::from_secs(10);

/// Ten messages at once, then one each ten seconds.
#[derive(Debug, Default)]
pub struct BurstThrottle {
    admitted: u32,
    since: Instant,
    unlogged: u64,
}

impl BurstThrottle {
    /// Whether to log this message, and then how many were suppressed since the last one.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        let spans = u32::try_from(now.since(self.since).as_secs() / ONE_MORE.as_secs()).unwrap_or(u32::MAX);
        self.admitted = self.admitted.saturating_sub(spans);
        self.since = if self.admitted == 0 { now } else { self.since.plus(ONE_MORE.saturating_mul(spans)) };
        if self.admitted == FEW {
            self.unlogged += 1;
            return None;
        }
        self.admitted += 1;
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::START.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn persistent_problem_is_logged_once_a_minute() {
        let throttle = RepeatThrottle::default();
        let state: Vec<u64> = (5..200).filter(|second| throttle.is_due(at(*second))).collect();
        assert_eq!(state, [5, 65, 125, 185]);
    }

    #[test]
    fn flapping_problem_is_logged_every_ten_seconds() {
        let (throttle, mut begun, mut ended) = (RepeatThrottle::default(), Vec::new(), Vec::new());
        assert!(!throttle.is_over());
        for second in 0..25 {
            begun.extend(throttle.is_due(at(second)).then_some(second));
            ended.extend(throttle.is_over().then_some(second));
        }
        assert_eq!((&begun, &ended), (&vec![0, 10, 20], &vec![0, 10, 20]));
        assert!(!throttle.is_due(at(25)) && throttle.is_due(at(30)));
    }

    #[test]
    fn burst_logs_ten_lines_then_one_per_ten_seconds() {
        let mut throttle = BurstThrottle::default();
        let mut state = Vec::new();
        for second in 1_000..1_035 {
            state.extend((0..100).filter_map(|_| throttle.admit(at(second)).map(|unlogged| (second, unlogged))));
        }
        let first: Vec<(u64, u64)> = vec![(1_000, 0); 10];
        assert_eq!(state, [first, vec![(1_010, 990), (1_020, 999), (1_030, 999)]].concat());
        assert_eq!((0..100).filter(|_| throttle.admit(at(9_000)).is_some()).count(), 10);
    }
}
