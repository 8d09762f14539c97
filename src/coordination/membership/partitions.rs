//! The partitions of a member: those it has or acquires; those it does not own, in the order in which it would try
//! them; and orphans, which nobody takes.
//!
//! A member may be alive and never take its share: the store refuses it, or it is broken. A partition released for it
//! would wait indefinitely. So some time after the members changed, each partition is tried by the member that prefers
//! it most, later by the second, and so on. One that is found free that late is kept beyond the share, offered again,
//! and taken back if nobody wanted it: each time it is kept for longer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Timing;
use crate::coordination::assignment::RankedMember;
use crate::model::partition::Partition;
use crate::platform::clock::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Acquiring {
        orphan: bool,
        /// Announced as free since it was sent: if it comes too early it is repeated.
        freed: bool,
    },
    Owned {
        since: Instant,
        /// Grows with every acquisition of this member.
        serial: u64,
    },
    Releasing,
}

#[derive(Debug, Default)]
pub(super) struct Partitions {
    slots: BTreeMap<Partition, Slot>,
    acquisitions: u64,
    owned: usize,
    acquiring: usize,
}

impl Partitions {
    pub(super) fn get(&self, partition: Partition) -> Option<Slot> {
        self.slots.get(&partition).copied()
    }

    pub(super) fn acquire(&mut self, partition: Partition, orphan: bool) {
        self.set(partition, Some(Slot::Acquiring { orphan, freed: false }));
    }

    pub(super) fn freed(&mut self, partition: Partition) {
        if let Some(Slot::Acquiring { freed, .. }) = self.slots.get_mut(&partition) {
            *freed = true;
        }
    }

    pub(super) fn own(&mut self, partition: Partition, since: Instant) {
        self.acquisitions += 1;
        self.set(partition, Some(Slot::Owned { since, serial: self.acquisitions }));
    }

    pub(super) fn release(&mut self, partition: Partition) {
        self.set(partition, Some(Slot::Releasing));
    }

    pub(super) fn remove(&mut self, partition: Partition) -> Option<Slot> {
        self.set(partition, None)
    }

    fn set(&mut self, partition: Partition, slot: Option<Slot>) -> Option<Slot> {
        let old = match slot {
            Some(slot) => self.slots.insert(partition, slot),
            None => self.slots.remove(&partition),
        };
        self.owned += usize::from(matches!(slot, Some(Slot::Owned { .. })));
        self.owned -= usize::from(matches!(old, Some(Slot::Owned { .. })));
        self.acquiring += usize::from(matches!(slot, Some(Slot::Acquiring { .. })));
        self.acquiring -= usize::from(matches!(old, Some(Slot::Acquiring { .. })));
        old
    }

    pub(super) fn owned(&self) -> usize {
        self.owned
    }

    pub(super) fn acquiring(&self) -> usize {
        self.acquiring
    }

    pub(super) fn releasing(&self) -> usize {
        self.slots.len() - self.owned - self.acquiring
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The last acquired first.
    pub(super) fn newest(&self) -> Vec<Partition> {
        let serial = |(partition, slot): (&Partition, &Slot)| match slot {
            Slot::Owned { serial, .. } => Some((*serial, *partition)),
            _ => None,
        };
        let mut owned: Vec<(u64, Partition)> = self.slots.iter().filter_map(serial).collect();
        owned.sort_unstable();
        owned.into_iter().rev().map(|(_, partition)| partition).collect()
    }
}

/// Every partition that is neither owned nor on the way to or from it.
///
/// Some were announced as free; the newest news come first, for what was announced long ago was taken long ago. Some have
/// a time at which trying them makes sense: their lease ends then and nobody renews it, or a pause after a failure is
/// over. All but the last may also be tried by guess: they may have been given up unheard.
#[derive(Debug)]
pub(super) struct ClaimOrder {
    ranked_member: RankedMember,
    places: BTreeMap<Partition, ClaimKeys>,
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

/// Where a partition stands in each of the sets of a `ClaimOrder`; `None` where it does not.
#[derive(Debug, Clone, Copy)]
struct ClaimKeys {
    news: Option<u64>,
    at: Option<Instant>,
    number: Option<u64>,
}

impl ClaimOrder {
    pub(super) fn new(ranked_member: RankedMember, partitions: u16) -> ClaimOrder {
        ClaimOrder {
            places: BTreeMap::new(),
            announced: BTreeSet::new(),
            timed: BTreeSet::new(),
            tried: BTreeSet::new(),
            tries: 0,
            order: ranked_member.order(partitions),
            next: 0,
            is_untried: vec![true; usize::from(partitions)],
            untried: usize::from(partitions),
            ranked_member,
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

    pub(super) fn take(&mut self, partition: Partition) -> bool {
        let Some(place) = self.places.remove(&partition) else { return self.take_untried(partition) };
        let rank = !self.ranked_member.score(partition);
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

    pub(super) fn put_held(&mut self, partition: Partition) {
        self.put(partition, None, None, true);
    }

    /// Puts back a partition whose lease ends then, unless it is given up before.
    pub(super) fn put_lapsing(&mut self, partition: Partition, at: Instant) {
        self.put(partition, None, Some(at), true);
    }

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
        let rank = !self.ranked_member.score(partition);
        self.announced.extend(news.map(|news| (Reverse(news), rank, partition)));
        self.timed.extend(at.map(|at| (at, rank, partition)));
        self.tried.extend(number.map(|number| (number, partition)));
        self.places.insert(partition, ClaimKeys { news, at, number });
    }

    /// A partition was announced as free. A pause after a failure is kept.
    pub(super) fn free(&mut self, partition: Partition, news: u64) {
        let is_paused = self.places.get(&partition).is_some_and(|place| place.number.is_none());
        if !is_paused && self.not_before(partition).is_some() {
            self.put_free(partition, news);
        }
    }

    pub(super) fn not_before(&self, partition: Partition) -> Option<Instant> {
        match self.places.get(&partition) {
            Some(place) => Some(place.at.unwrap_or(Instant::START)),
            None => self.is_untried.get(usize::from(partition.0))?.then_some(Instant::START),
        }
    }

    pub(super) fn may_try(&self, partition: Partition, now: Instant) -> bool {
        self.not_before(partition).is_some_and(|at| at <= now)
    }

    pub(super) fn next_timed(&self) -> Option<Instant> {
        let timed = self.timed.first().map(|(at, _, _)| *at);
        if self.announced.is_empty() { timed } else { Some(Instant::START) }
    }

    pub(super) fn guesses(&self) -> usize {
        self.tried.len() + self.untried
    }
}

#[derive(Debug)]
pub(super) struct OrphanSweep {
    timing: Timing,
    round: u32,
    next: Instant,
    pending: Vec<Partition>,
    found: BTreeMap<Partition, Orphan>,
}

/// A partition without an owner, as a sweep found it.
#[derive(Debug, Clone, Copy)]
struct Orphan {
    times: u32,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Kept(Instant),
    Moving,
    /// Free for members that miss one, until then.
    Offered(Instant),
}

impl OrphanSweep {
    pub(super) fn new(timing: Timing) -> OrphanSweep {
        OrphanSweep { timing, round: 0, next: Instant::FAR, pending: Vec::new(), found: BTreeMap::new() }
    }

    /// The members changed: everything is offered again, and the first sweep comes late enough for them to take it.
    pub(super) fn restart(&mut self, now: Instant) {
        *self = OrphanSweep { next: now.plus(self.timing.sweep_after(0)), ..OrphanSweep::new(self.timing) };
    }

    /// Nobody acquires before `until`, so nothing is an orphan soon after.
    pub(super) fn postpone(&mut self, until: Instant) {
        self.give_up(until);
        if self.next != Instant::FAR {
            self.next = self.next.max(until.plus(self.timing.sweep_after(0)));
        }
    }

    /// Partitions are on their way from one member to another until then.
    pub(super) fn delay(&mut self, now: Instant, until: Instant) {
        self.give_up(now);
        if self.next != Instant::FAR {
            self.next = self.next.max(until);
        }
    }

    /// Returns at which place in the order of preference a member has to be to try a partition.
    pub(super) fn begin(&mut self, now: Instant, members: usize) -> Option<usize> {
        if now < self.next {
            return None;
        }
        let place = usize::try_from(self.round).ok()?.checked_rem(members);
        self.round = self.round.wrapping_add(1);
        self.next = now.plus(self.timing.sweep_after(self.round));
        place
    }

    pub(super) fn fill(&mut self, partitions: impl Iterator<Item = Partition>) {
        self.pending.extend(partitions);
    }

    pub(super) fn take(&mut self) -> Option<Partition> {
        self.pending.pop()
    }

    /// This is no time to sweep: pending ones are tried later.
    pub(super) fn give_up(&mut self, now: Instant) {
        for partition in std::mem::take(&mut self.pending) {
            self.offer(partition, now);
        }
    }

    pub(super) fn keep(&mut self, partition: Partition, now: Instant) {
        let times = self.found.get(&partition).map_or(0, |found| found.times.saturating_add(1));
        let stage = Stage::Kept(now.plus(self.timing.keep(times)));
        self.found.insert(partition, Orphan { times, stage });
    }

    /// A partition that was kept for long enough is offered, and one that was offered for long enough is tried again.
    pub(super) fn pass(&mut self, now: Instant) {
        for (partition, found) in &mut self.found {
            match found.stage {
                Stage::Kept(until) if until <= now => found.stage = Stage::Moving,
                Stage::Offered(until) if until <= now => {
                    found.stage = Stage::Moving;
                    self.pending.push(*partition);
                }
                _ => {}
            }
        }
    }

    pub(super) fn offer(&mut self, partition: Partition, now: Instant) {
        if let Some(found) = self.found.get_mut(&partition) {
            found.stage = Stage::Offered(now.plus(self.timing.ttl()));
        }
    }

    pub(super) fn forget(&mut self, partition: Partition) {
        self.found.remove(&partition);
    }

    pub(super) fn forget_kept(&mut self) {
        self.found.retain(|_, found| !matches!(found.stage, Stage::Kept(_)));
    }

    pub(super) fn is_kept(&self, partition: Partition) -> bool {
        self.found.get(&partition).is_some_and(|found| matches!(found.stage, Stage::Kept(_)))
    }

    pub(super) fn kept(&self) -> usize {
        self.found.values().filter(|found| matches!(found.stage, Stage::Kept(_))).count()
    }

    pub(super) fn wake(&self) -> Instant {
        let stages = self.found.values().filter_map(|found| match found.stage {
            Stage::Kept(until) | Stage::Offered(until) => Some(until),
            Stage::Moving => None,
        });
        stages.fold(Instant::FAR, Instant::min)
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
        let ranked_member =
            RankedMember::new(&TopicName::new("t")?, &GroupName::standard(), &MemberId::from_store("m"));
        let order = ranked_member.order(partitions);
        Ok((ClaimOrder::new(ranked_member, partitions), order))
    }

    fn at(ms: u64) -> Instant {
        Instant::START.plus(Duration::from_millis(ms))
    }

    #[test]
    fn claims_follow_preference_then_least_recently_tried() -> Result<()> {
        let (mut candidates, order) = candidates(3)?;
        assert_eq!(candidates.take_guess(), Some(order[0]));
        candidates.put_held(order[0]);
        assert_eq!([candidates.take_guess(), candidates.take_guess()], [Some(order[1]), Some(order[2])]);
        assert_eq!([candidates.take_guess(), candidates.take_guess()], [Some(order[0]), None]);
        Ok(())
    }

    #[test]
    fn announced_partition_is_first_but_keeps_its_backoff() -> Result<()> {
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
    fn stale_announcements_come_last_then_by_preference() -> Result<()> {
        let (mut candidates, order) = candidates(4)?;
        for (partition, news) in [(0, 7), (3, 9), (1, 9), (2, 7), (0, 8)] {
            candidates.free(order[partition], news);
        }
        let taken: Vec<_> = std::iter::from_fn(|| candidates.take_timed(at(0))).collect();
        assert_eq!(taken, [order[1], order[3], order[0], order[2]]);
        Ok(())
    }
}
