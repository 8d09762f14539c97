//! How far the store's clock is ahead of ours: a Redis on another machine has its own.

use std::time::Duration;

use crate::model::time::Timestamp;

/// What the answers to pushes say about the store's clock: a due time is the store's time at accept plus the delay, and
/// accept lies between sending and answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offset {
    at_least_ms: i64,
    at_most_ms: i64,
}

impl Default for Offset {
    fn default() -> Offset {
        Offset { at_least_ms: i64::MIN, at_most_ms: i64::MAX }
    }
}

impl Offset {
    pub(super) fn observe(&mut self, due_at: Timestamp, delay: Duration, sent_at: Timestamp, answered_at: Timestamp) {
        let ms = |at: Timestamp| i64::try_from(at.as_ms()).unwrap_or(i64::MAX);
        let accepted = ms(due_at) - i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        // The store rounds its time up to the millisecond, we cut ours down: one of each.
        self.at_least_ms = self.at_least_ms.max(accepted - ms(answered_at) - 2);
        self.at_most_ms = self.at_most_ms.min(accepted - ms(sent_at));
    }

    /// How far the store's clock is ahead of ours at most; zero when it may well be the same clock.
    pub(super) fn ahead(&self) -> Duration {
        match (self.at_least_ms, self.at_most_ms) {
            (..=0, 0..) => Duration::ZERO,
            (_, at_most) => Duration::from_millis(u64::try_from(at_most).unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_clock_has_no_offset_and_another_one_is_measured() {
        let at = Timestamp::from_ms;
        let delay = Duration::from_secs(1);
        let with = |store_ms: u64| {
            let mut offset = Offset::default();
            offset.observe(at(store_ms + 1_000), delay, at(500), at(510));
            offset.observe(at(store_ms + 1_004), delay, at(504), at(507));
            offset.ahead().as_millis()
        };
        assert_eq!(with(500), 0);
        assert_eq!(with(503), 0);
        assert_eq!(with(700), 200);
        assert_eq!(with(300), 0, "a store behind us delivers late by our clock, never early");
    }
}
