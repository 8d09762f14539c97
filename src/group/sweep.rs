//! Partitions that nobody takes: when to look for them, and how long to keep what was found.
//!
//! A member may be alive and never take its share: the store refuses it, or it is broken. What was released for it would
//! wait forever. So some time after the members changed, each partition is tried by the member that prefers it most,
//! later by the two that do, and so on. What is found free that late is kept beyond the share for a while, then offered
//! again.

use std::collections::BTreeMap;

use super::timing::Timing;
use crate::clock::Instant;
use crate::partition::Partition;

/// The sweeps of one member.
#[derive(Debug)]
pub(super) struct Sweep {
    timing: Timing,
    round: u32,
    next: Instant,
    /// Still to be tried in this sweep.
    pending: Vec<Partition>,
    /// Owned beyond the share, until then.
    kept: BTreeMap<Partition, Instant>,
    offers: u32,
}

impl Sweep {
    pub(super) fn new(timing: Timing) -> Sweep {
        Sweep { timing, round: 0, next: Instant::FAR, pending: Vec::new(), kept: BTreeMap::new(), offers: 0 }
    }

    /// The members changed: everything is offered again, and the first sweep comes late enough for them to take it.
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Sweep { next: now.plus(self.timing.sweep_after(0)), ..Sweep::new(self.timing) };
    }

    /// Nobody acquires before `until`, so nothing is an orphan soon after.
    pub(super) fn postpone(&mut self, until: Instant) {
        self.pending.clear();
        if self.next != Instant::FAR {
            self.next = self.next.max(until.plus(self.timing.sweep_after(0)));
        }
    }

    /// Begins the sweep that is due. Returns among how many members one has to be to try a partition.
    pub(super) fn begin(&mut self, now: Instant) -> Option<usize> {
        if now < self.next {
            return None;
        }
        self.round = self.round.saturating_add(1);
        self.next = now.plus(self.timing.sweep_after(self.round));
        usize::try_from(self.round).ok()
    }

    /// What this sweep has to try.
    pub(super) fn fill(&mut self, partitions: Vec<Partition>) {
        self.pending = partitions;
    }

    /// Takes the next to try.
    pub(super) fn pop(&mut self) -> Option<Partition> {
        self.pending.pop()
    }

    /// Keeps a partition beyond the share for a while.
    pub(super) fn keep(&mut self, partition: Partition, now: Instant) {
        self.kept.insert(partition, now.plus(self.timing.keep(self.offers)));
    }

    /// Offers again what was kept for long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        let before = self.kept.len();
        self.kept.retain(|_, until| *until > now);
        self.offers = self.offers.saturating_add(u32::from(self.kept.len() < before));
    }

    /// This partition is not owned any more.
    pub(super) fn forget(&mut self, partition: Partition) {
        self.kept.remove(&partition);
    }

    /// Nothing is owned beyond the share.
    pub(super) fn forget_all(&mut self) {
        self.kept.clear();
    }

    pub(super) fn is_kept(&self, partition: Partition) -> bool {
        self.kept.contains_key(&partition)
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn wake(&self) -> Instant {
        self.kept.values().min().map_or(self.next, |until| self.next.min(*until))
    }
}
