//! The partition that a consumer looks at first.
//!
//! Consumers that are fast take a run of messages from one partition before they go to the next, so their acks are for one
//! partition too, and share a call to the store. Slow ones take each message from another partition.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::platform::clock::Instant;

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
    use super::*;

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
