//! Which partition a consumer looks at first.
//!
//! Consumers take a run of messages from one partition before they go to the next, so their acks are for one partition too, and
//! share a call to the store.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Messages of one partition in a row. Each partition has its turn, so none waits for long behind another.
const RUN: usize = 32;

/// Counts the messages that were taken, and a run for each partition that had none.
#[derive(Debug, Default)]
pub(super) struct Turns(AtomicUsize);

impl Turns {
    /// The partition to look at first, as an index.
    pub(super) fn first(&self, partitions: usize) -> usize {
        self.0.load(Ordering::Relaxed) / RUN % partitions.max(1)
    }

    /// Messages were taken, after some partitions that had none.
    pub(super) fn taken(&self, messages: usize, empty_partitions: usize) {
        if messages > 0 {
            self.0.fetch_add(empty_partitions * RUN + messages, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_gives_a_run_and_then_it_is_the_turn_of_the_next_one() {
        let turns = Turns::default();
        assert_eq!(turns.first(0), 0);
        let order = std::iter::repeat_with(|| {
            let first = turns.first(3);
            turns.taken(1, 0);
            first
        });
        let order: Vec<_> = order.take(4 * RUN).collect();
        assert_eq!(order, [[0; RUN], [1; RUN], [2; RUN], [0; RUN]].concat());
    }

    #[test]
    fn empty_partitions_are_passed_over_until_their_next_turn() {
        let turns = Turns::default();
        turns.taken(0, 3);
        assert_eq!(turns.first(3), 0, "nothing was found");
        turns.taken(1, 2);
        assert_eq!(turns.first(3), 2);
        turns.taken(RUN - 1, 0);
        assert_eq!(turns.first(3), 0);
    }
}
