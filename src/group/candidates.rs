//! The partitions that a member does not own, in the order in which it would try them.

use std::collections::{BTreeMap, BTreeSet};

use crate::assignment::Seat;
use crate::clock::Instant;
use crate::partition::Partition;

/// Every partition that is neither owned nor on the way to or from it: when it may be tried, and which one first.
///
/// First those that were announced as free, then those that were never tried, then those whose time has come.
#[derive(Debug)]
pub(super) struct Candidates {
    seat: Seat,
    /// Never tried, from `next` on, the most preferred first. Some are known by now.
    order: Vec<Partition>,
    next: usize,
    untried: Vec<bool>,
    known: BTreeMap<Partition, Not>,
    by_time: BTreeSet<Key>,
}

/// Until when not to try.
#[derive(Debug, Clone, Copy)]
struct Not {
    before: Instant,
    /// Whether this is a pause after a failure, rather than the end of a lease that its owner may give up any time.
    failed: bool,
}

/// The instant, and among equals the preference.
type Key = (Instant, u32, Partition);

/// The key instant of a partition that was announced as free: before everything else.
const FREE: Instant = Instant::START;

impl Candidates {
    pub(super) fn new(seat: Seat, partitions: u16) -> Candidates {
        let (order, untried) = (seat.order(partitions), vec![true; usize::from(partitions)]);
        Candidates { seat, order, next: 0, untried, known: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Takes the partition to try now, if there is one.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Partition> {
        let first = self.by_time.first().map(|key| (key.0, key.2));
        match first {
            Some((FREE, partition)) => self.take(partition).then_some(partition),
            _ => self.pop_untried().or_else(|| {
                let (_, partition) = first.filter(|(before, _)| *before <= now)?;
                self.take(partition).then_some(partition)
            }),
        }
    }

    /// Takes the partition whose lease ends first, although it should hold now: its owner may have given it up.
    pub(super) fn pop_early(&mut self) -> Option<Partition> {
        let early = |key: &&Key| self.known.get(&key.2).is_some_and(|not| !not.failed);
        let partition = self.by_time.iter().find(early)?.2;
        self.take(partition).then_some(partition)
    }

    /// How many are known to have been held by someone, at most.
    pub(super) fn held(&self) -> usize {
        self.known.len()
    }

    fn pop_untried(&mut self) -> Option<Partition> {
        while let Some(partition) = self.order.get(self.next).copied() {
            self.next += 1;
            if self.take_untried(partition) {
                return Some(partition);
            }
        }
        None
    }

    /// Takes this partition, if it is here.
    pub(super) fn take(&mut self, partition: Partition) -> bool {
        let untried = self.take_untried(partition);
        let known = self.known.remove(&partition);
        known.is_some_and(|not| self.by_time.remove(&self.key(partition, not))) || untried
    }

    fn take_untried(&mut self, partition: Partition) -> bool {
        self.untried.get_mut(usize::from(partition.0)).is_some_and(std::mem::take)
    }

    /// Puts back a partition that another member holds until then.
    pub(super) fn put_held(&mut self, partition: Partition, before: Instant) {
        self.put(partition, Not { before, failed: false });
    }

    /// Puts back a partition whose acquisition failed, or that was lost.
    pub(super) fn put_failed(&mut self, partition: Partition, before: Instant) {
        self.put(partition, Not { before, failed: true });
    }

    fn put(&mut self, partition: Partition, not: Not) {
        self.take(partition);
        self.by_time.insert(self.key(partition, not));
        self.known.insert(partition, not);
    }

    /// A partition was announced as free. A pause after a failure is kept.
    pub(super) fn free(&mut self, partition: Partition) {
        let is_here = self.untried.get(usize::from(partition.0)) == Some(&true);
        let not = self.known.get(&partition);
        if is_here || not.is_some_and(|not| !not.failed) {
            self.put_held(partition, FREE);
        }
    }

    /// Whether this partition is here and may be tried.
    pub(super) fn may_try(&self, partition: Partition, now: Instant) -> bool {
        self.not_before(partition).is_some_and(|before| before <= now)
    }

    /// When this partition may be tried, if it is here.
    pub(super) fn not_before(&self, partition: Partition) -> Option<Instant> {
        match self.untried.get(usize::from(partition.0)) {
            Some(true) => Some(FREE),
            _ => self.known.get(&partition).map(|not| not.before),
        }
    }

    /// When there is something to try.
    pub(super) fn earliest(&self) -> Option<Instant> {
        let mut rest = self.order.iter().skip(self.next);
        match rest.any(|partition| self.untried.get(usize::from(partition.0)) == Some(&true)) {
            true => Some(FREE),
            false => self.by_time.first().map(|key| key.0),
        }
    }

    fn key(&self, partition: Partition, not: Not) -> Key {
        (not.before, !self.seat.score(partition), partition)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Result;
    use crate::message::{GroupName, TopicName};
    use crate::store::MemberId;

    fn candidates(partitions: u16) -> Result<Candidates> {
        let seat = Seat::new(&TopicName::new("t")?, &GroupName::standard(), &MemberId::from_store("m"));
        Ok(Candidates::new(seat, partitions))
    }

    fn at(ms: u64) -> Instant {
        Instant::START.plus(Duration::from_millis(ms))
    }

    #[test]
    fn announced_ones_come_first_then_untried_ones_then_those_whose_time_has_come() -> Result<()> {
        let mut candidates = candidates(4)?;
        let order = candidates.order.clone();
        candidates.put_held(order[0], at(10));
        candidates.put_failed(order[1], at(5));
        candidates.free(order[3]);
        candidates.free(order[1]);
        assert_eq!(candidates.pop(at(0)), Some(order[3]));
        assert_eq!(candidates.pop(at(0)), Some(order[2]));
        assert_eq!((candidates.pop(at(4)), candidates.earliest()), (None, Some(at(5))));
        assert_eq!(candidates.pop(at(5)), Some(order[1]));
        assert_eq!(candidates.pop(at(9)), None);
        assert_eq!(candidates.pop(at(10)), Some(order[0]));
        assert_eq!((candidates.pop(at(99)), candidates.earliest()), (None, None));
        Ok(())
    }

    #[test]
    fn only_a_lease_is_tried_early_and_what_was_taken_is_gone() -> Result<()> {
        let mut candidates = candidates(2)?;
        candidates.put_failed(Partition(0), at(5));
        candidates.put_held(Partition(1), at(9));
        assert_eq!((candidates.pop_early(), candidates.pop_early()), (Some(Partition(1)), None));
        assert!(!candidates.take(Partition(1)) && candidates.not_before(Partition(1)).is_none());
        candidates.free(Partition(1));
        assert!(!candidates.may_try(Partition(1), at(99)), "it is on its way: nothing to try");
        assert!(candidates.may_try(Partition(0), at(5)) && !candidates.may_try(Partition(0), at(4)));
        Ok(())
    }
}
