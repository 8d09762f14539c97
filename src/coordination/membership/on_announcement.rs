//! What a member learns from what happened.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::partitions::Slot;
use super::{Action, Life, Member};
use crate::coordination::assignment::{Seat, Shares};
use crate::model::partition::Partition;
use crate::platform::clock::Instant;
use crate::store::{LiveMember, MemberId};

/// Partitions that a member under its share tries by guess after a heartbeat, besides two for each missing one; twice as
/// many after the next, until all were tried. Announcements make guesses unnecessary; these are for lost ones, and for
/// members that begin together.
const GUESSES: usize = 32;

/// Guesses of one heartbeat that follow one another, at two round trips each: if there are more, more are in flight than
/// partitions are missing. So a search takes as many heartbeats as its guesses double, and it has to end within a ttl: for
/// so long what a sweep has found is offered, and then kept for longer each time.
const GUESSES_IN_A_ROW: usize = 256;

impl Member {
    pub(super) fn beaten(&mut self, now: Instant, list: Arc<[LiveMember]>) {
        if !Arc::ptr_eq(&list, &self.list) && !list.iter().any(|member| member.id == self.id) {
            // Read before our heartbeat was written: the list is not about us. The next one is.
            return self.pulse.failed(now);
        }
        let was_stale = self.pulse.answered(now);
        if self.life != Life::Joined {
            return self.pulse.turn(now);
        }
        if was_stale {
            // The leases of the others may have lapsed with ours: what is free is no orphan yet.
            self.awaited = Some(self.live.clone());
            self.sweep.postpone(now);
        }
        let mut has_lost_some = false;
        if self.list != list {
            let live = self.shares_of(list.iter());
            let shares = self.shares_of(list.iter().filter(|member| member.has_demand));
            self.list = list;
            has_lost_some = !shares.include(&self.shares) || !live.include(&self.live);
            // Demand may change too often for a sweep ever to come if each change put it off.
            if live != self.live || !shares.contain(&self.seat) {
                self.sweep.restart(now);
            } else if shares != self.shares {
                self.sweep.delay(now, now.plus(self.timing.heartbeat() * 2));
            }
            self.quota = shares.quota(&self.seat);
            (self.live, self.shares) = (live, shares);
        }
        if self.awaited.as_ref().is_some_and(|awaited| self.live.include(awaited)) {
            self.awaited = None;
            self.pulse.settle(now);
        }
        if self.pulse.settled_at() > now {
            self.sweep.postpone(self.pulse.settled_at());
        }
        self.begin_sweep(now);
        self.allow_guesses(has_lost_some || self.shares.members() == 1);
    }

    fn shares_of<'a>(&self, members: impl Iterator<Item = &'a LiveMember>) -> Shares {
        Shares::new(&self.topic, &self.group, self.partitions, members.map(|member| &member.id))
    }

    /// Everywhere when there is reason to believe that something is free; otherwise a few, and more each time.
    pub(super) fn allow_guesses(&mut self, everywhere: bool) {
        let (all, missing) = (self.candidates.guesses(), self.quota.saturating_sub(self.pairs.owned()));
        let few = (GUESSES + 2 * missing).saturating_mul(2_usize.saturating_pow(self.search));
        if everywhere || missing == 0 {
            (self.guesses, self.search) = (if everywhere { all } else { 0 }, 0);
        } else if self.guesses < few {
            self.guesses = few.min(all);
            self.search = if few < all { self.search + 1 } else { 0 };
        }
        self.reach = self.guesses / GUESSES_IN_A_ROW;
    }

    pub(super) fn acquired(&mut self, now: Instant, partition: Partition, actions: &mut Vec<Action>) {
        let slot = self.pairs.get(partition);
        self.streak = 0;
        self.candidates.take(partition);
        self.pairs.own(partition, now);
        match slot {
            Some(Slot::Acquiring { .. }) if self.is_held(partition, now) => {
                // It overlapped a data loss: somebody else may believe to own it.
                self.release(partition, actions);
            }
            Some(Slot::Acquiring { orphan: true, .. }) if self.pairs.owned() > self.quota => {
                self.sweep.keep(partition, now);
            }
            _ => self.sweep.forget(partition),
        }
    }

    pub(super) fn held(&mut self, until: Instant, partition: Partition, by: &MemberId) {
        let Some(Slot::Acquiring { freed, .. }) = self.pairs.get(partition) else { return };
        self.pairs.remove(partition);
        self.streak = 0;
        self.failures.remove(&partition);
        self.sweep.forget(partition);
        if freed {
            // The answer is older than the announcement.
            self.candidates.put_free(partition, self.timing.news_of(self.stepped));
        } else if self.live.contain(&Seat::new(&self.topic, &self.group, by)) {
            self.candidates.put_held(partition);
        } else {
            // Nobody renews it; if its owner drains, it gives it up before.
            self.candidates.put_lapsing(partition, until);
        }
    }

    pub(super) fn acquire_failed(&mut self, now: Instant, partition: Partition) {
        if let Some(Slot::Acquiring { .. }) = self.pairs.get(partition) {
            self.pairs.remove(partition);
            // What was sent at the same time fails at the same time, and counts once.
            if now >= self.quiet_until {
                self.streak = self.streak.saturating_add(1);
                self.quiet_until = now.plus(self.timing.retry(self.streak));
            }
            self.sweep.offer(partition, now);
            self.pause(now, partition);
        }
    }

    pub(super) fn lost(&mut self, now: Instant, partition: Partition) {
        let slot = self.pairs.get(partition);
        if let Some(Slot::Owned { since, .. }) = slot
            && now.since(since) >= self.timing.heartbeat()
        {
            self.failures.remove(&partition);
        }
        if let Some(Slot::Owned { .. } | Slot::Releasing) = slot {
            self.pairs.remove(partition);
            self.sweep.forget(partition);
            self.pause(now, partition);
        }
    }

    pub(super) fn released(&mut self, now: Instant, partition: Partition) {
        if let Some(Slot::Owned { .. } | Slot::Releasing) = self.pairs.get(partition) {
            self.pairs.remove(partition);
            self.sweep.offer(partition, now);
            self.candidates.put_free(partition, self.timing.news_of(now));
        }
    }

    pub(super) fn pause(&mut self, now: Instant, partition: Partition) {
        let failures = self.failures.entry(partition).or_insert(0);
        *failures = failures.saturating_add(1);
        self.candidates.put_failed(partition, now.plus(self.timing.retry(*failures)));
    }

    pub(super) fn hold(&mut self, until: Instant, valid: BTreeSet<Partition>) {
        self.hold_until = self.hold_until.max(until);
        self.exempt = valid;
        self.sweep.postpone(self.hold_until);
    }

    pub(super) fn leave(&mut self, now: Instant) {
        if self.life == Life::Joined {
            self.life = Life::Leaving;
            self.pulse.turn(now);
        }
    }

    pub(super) fn stay(&mut self, now: Instant) {
        if self.life == Life::Leaving {
            self.life = Life::Joined;
            self.pulse.revive(now);
        }
    }
}
