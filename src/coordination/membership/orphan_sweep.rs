//! Partitions that nobody takes: when to look for them, and how long to keep what was found.
//!
//! A member may be alive and never take its share: the store refuses it, or it is broken. What was released for it would
//! wait forever. So some time after the members changed, each partition is tried by the member that prefers it most,
//! later by the second, and so on. What is found free that late is kept beyond the share, offered again, and taken back
//! if nobody wanted it: each time it is kept for longer.

use std::collections::BTreeMap;

use super::timing::Timing;
use crate::model::partition::Partition;
use crate::platform::clock::Instant;

/// The sweeps of one member, and what they found.
#[derive(Debug)]
pub(super) struct OrphanSweep {
    timing: Timing,
    round: u32,
    next: Instant,
    /// Still to be tried in this sweep.
    pending: Vec<Partition>,
    found: BTreeMap<Partition, Found>,
}

/// A partition that nobody took.
#[derive(Debug, Clone, Copy)]
struct Found {
    times: u32,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Owned beyond the share, until then.
    Kept(Instant),
    /// On its way.
    Moving,
    /// Free for those who miss one, until then.
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

    /// Begins the sweep that is due. Returns at which place one has to be to try a partition.
    pub(super) fn begin(&mut self, now: Instant, members: usize) -> Option<usize> {
        if now < self.next {
            return None;
        }
        let place = usize::try_from(self.round).ok()?.checked_rem(members);
        self.round = self.round.wrapping_add(1);
        self.next = now.plus(self.timing.sweep_after(self.round));
        place
    }

    /// What this sweep has to try.
    pub(super) fn fill(&mut self, partitions: impl Iterator<Item = Partition>) {
        self.pending.extend(partitions);
    }

    /// Takes the next to try.
    pub(super) fn take(&mut self) -> Option<Partition> {
        self.pending.pop()
    }

    /// This is no time to sweep: what was found before is tried later.
    pub(super) fn give_up(&mut self, now: Instant) {
        for partition in std::mem::take(&mut self.pending) {
            self.offer(partition, now);
        }
    }

    /// Keeps a partition that nobody took, beyond the share.
    pub(super) fn keep(&mut self, partition: Partition, now: Instant) {
        let times = self.found.get(&partition).map_or(0, |found| found.times.saturating_add(1));
        let stage = Stage::Kept(now.plus(self.timing.keep(times)));
        self.found.insert(partition, Found { times, stage });
    }

    /// What was kept for long enough is offered, and what was offered for long enough is tried again.
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

    /// This partition is free for others.
    pub(super) fn offer(&mut self, partition: Partition, now: Instant) {
        if let Some(found) = self.found.get_mut(&partition) {
            found.stage = Stage::Offered(now.plus(self.timing.ttl()));
        }
    }

    /// Somebody has this partition, or it is part of the share.
    pub(super) fn forget(&mut self, partition: Partition) {
        self.found.remove(&partition);
    }

    /// Nothing is owned beyond the share.
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
