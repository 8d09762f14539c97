//! The partitions that a member does not own, in the order in which it would try them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::coordination::assignment::Seat;
use crate::model::partition::Partition;
use crate::platform::clock::Instant;

/// Every partition that is neither owned nor on the way to or from it.
///
/// Some were announced as free; the newest news come first, for what was announced long ago was taken long ago. Some have
/// a time at which trying them makes sense: their lease ends then and nobody renews it, or a pause after a failure is
/// over. All but the last may also be tried by guess: they may have been given up unheard.
#[derive(Debug)]
pub(super) struct ClaimOrder {
    seat: Seat,
    /// Where those are that were tried, or announced.
    places: BTreeMap<Partition, Place>,
    /// By the span in which it was announced, the newest first, and among equals by preference: who hears the same
    /// announcements tries other partitions first.
    announced: BTreeSet<(Reverse<u64>, u32, Partition)>,
    /// By time, and among equals by preference.
    timed: BTreeSet<(Instant, u32, Partition)>,
    /// Held when they were tried, the longest ago first.
    tried: BTreeSet<(u64, Partition)>,
    tries: u64,
    /// Never tried, from `next` on, unless `is_untried` says otherwise; the most preferred first.
    order: Vec<Partition>,
    next: usize,
    is_untried: Vec<bool>,
    untried: usize,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// In `announced`.
    news: Option<u64>,
    /// In `timed`.
    at: Option<Instant>,
    /// In `tried`.
    number: Option<u64>,
}

impl ClaimOrder {
    /// All partitions, never tried, the most preferred first.
    pub(super) fn new(seat: Seat, partitions: u16) -> ClaimOrder {
        ClaimOrder {
            places: BTreeMap::new(),
            announced: BTreeSet::new(),
            timed: BTreeSet::new(),
            tried: BTreeSet::new(),
            tries: 0,
            order: seat.order(partitions),
            next: 0,
            is_untried: vec![true; usize::from(partitions)],
            untried: usize::from(partitions),
            seat,
        }
    }

    /// Takes a partition that was announced, or else one whose time has come.
    pub(super) fn take_timed(&mut self, now: Instant) -> Option<Partition> {
        let announced = self.announced.first().map(|(_, _, partition)| *partition);
        let timed = || self.timed.first().filter(|(at, _, _)| *at <= now).map(|(_, _, partition)| *partition);
        let partition = announced.or_else(timed)?;
        self.take(partition).then_some(partition)
    }

    /// Takes a partition that was never tried, or else the one that was tried the longest ago.
    pub(super) fn take_guess(&mut self) -> Option<Partition> {
        while let Some(partition) = self.order.get(self.next).copied() {
            self.next += 1;
            if self.take_untried(partition) {
                return Some(partition);
            }
        }
        let (_, partition) = *self.tried.first()?;
        self.take(partition).then_some(partition)
    }

    /// Takes this partition, if it is here.
    pub(super) fn take(&mut self, partition: Partition) -> bool {
        let Some(place) = self.places.remove(&partition) else { return self.take_untried(partition) };
        let rank = !self.seat.score(partition);
        if let Some(news) = place.news {
            self.announced.remove(&(Reverse(news), rank, partition));
        }
        if let Some(at) = place.at {
            self.timed.remove(&(at, rank, partition));
        }
        if let Some(number) = place.number {
            self.tried.remove(&(number, partition));
        }
        true
    }

    fn take_untried(&mut self, partition: Partition) -> bool {
        let is_untried = self.is_untried.get_mut(usize::from(partition.0)).is_some_and(std::mem::take);
        self.untried -= usize::from(is_untried);
        is_untried
    }

    /// Puts back a partition that a live member holds.
    pub(super) fn put_held(&mut self, partition: Partition) {
        self.put(partition, None, None, true);
    }

    /// Puts back a partition whose lease ends then, unless it is given up before.
    pub(super) fn put_lapsing(&mut self, partition: Partition, at: Instant) {
        self.put(partition, None, Some(at), true);
    }

    /// Puts back a partition that was announced as free, or given up, in the span of this number.
    pub(super) fn put_free(&mut self, partition: Partition, news: u64) {
        self.put(partition, Some(news), None, true);
    }

    /// Puts back a partition whose acquisition failed, or that was lost: not to be tried before.
    pub(super) fn put_failed(&mut self, partition: Partition, at: Instant) {
        self.put(partition, None, Some(at), false);
    }

    fn put(&mut self, partition: Partition, news: Option<u64>, at: Option<Instant>, may_guess: bool) {
        self.take(partition);
        self.tries += 1;
        let number = may_guess.then_some(self.tries);
        let rank = !self.seat.score(partition);
        self.announced.extend(news.map(|news| (Reverse(news), rank, partition)));
        self.timed.extend(at.map(|at| (at, rank, partition)));
        self.tried.extend(number.map(|number| (number, partition)));
        self.places.insert(partition, Place { news, at, number });
    }

    /// A partition was announced as free. A pause after a failure is kept.
    pub(super) fn free(&mut self, partition: Partition, news: u64) {
        let is_paused = self.places.get(&partition).is_some_and(|place| place.number.is_none());
        if !is_paused && self.not_before(partition).is_some() {
            self.put_free(partition, news);
        }
    }

    /// When this partition may be tried, if it is here.
    pub(super) fn not_before(&self, partition: Partition) -> Option<Instant> {
        match self.places.get(&partition) {
            Some(place) => Some(place.at.unwrap_or(Instant::START)),
            None => self.is_untried.get(usize::from(partition.0))?.then_some(Instant::START),
        }
    }

    /// Whether this partition is here and may be tried.
    pub(super) fn may_try(&self, partition: Partition, now: Instant) -> bool {
        self.not_before(partition).is_some_and(|at| at <= now)
    }

    /// When [`ClaimOrder::take_timed`] finds one.
    pub(super) fn next_timed(&self) -> Option<Instant> {
        let timed = self.timed.first().map(|(at, _, _)| *at);
        if self.announced.is_empty() { timed } else { Some(Instant::START) }
    }

    /// How many may be tried by guess.
    pub(super) fn guesses(&self) -> usize {
        self.tried.len() + self.untried
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::error::Result;
    use crate::model::message::{GroupName, TopicName};
    use crate::store::MemberId;

    fn candidates(partitions: u16) -> Result<(ClaimOrder, Vec<Partition>)> {
        let seat = Seat::new(&TopicName::new("t")?, &GroupName::standard(), &MemberId::from_store("m"));
        let order = seat.order(partitions);
        Ok((ClaimOrder::new(seat, partitions), order))
    }

    fn at(ms: u64) -> Instant {
        Instant::START.plus(Duration::from_millis(ms))
    }

    #[test]
    fn guesses_go_by_preference_then_the_longest_untried_first() -> Result<()> {
        let (mut candidates, order) = candidates(3)?;
        assert_eq!(candidates.take_guess(), Some(order[0]));
        candidates.put_held(order[0]);
        assert_eq!([candidates.take_guess(), candidates.take_guess()], [Some(order[1]), Some(order[2])]);
        assert_eq!([candidates.take_guess(), candidates.take_guess()], [Some(order[0]), None]);
        Ok(())
    }

    #[test]
    fn an_announcement_comes_first_but_ends_no_pause() -> Result<()> {
        let (mut candidates, order) = candidates(3)?;
        candidates.put_lapsing(order[0], at(5));
        candidates.put_failed(order[1], at(9));
        candidates.free(order[2], 0);
        candidates.free(order[1], 0);
        assert_eq!(
            [4, 4, 5, 8, 9].map(|ms| candidates.take_timed(at(ms))),
            [Some(order[2]), None, Some(order[0]), None, Some(order[1])]
        );
        candidates.free(order[0], 0);
        assert_eq!((candidates.next_timed(), candidates.guesses()), (None, 0), "it is on its way: nothing to try");
        Ok(())
    }

    #[test]
    fn old_news_come_last_and_those_of_one_span_by_preference() -> Result<()> {
        let (mut candidates, order) = candidates(4)?;
        for (partition, news) in [(0, 7), (3, 9), (1, 9), (2, 7), (0, 8)] {
            candidates.free(order[partition], news);
        }
        let taken: Vec<_> = std::iter::from_fn(|| candidates.take_timed(at(0))).collect();
        assert_eq!(taken, [order[1], order[3], order[0], order[2]]);
        Ok(())
    }
}
