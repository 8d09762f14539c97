//! The membership of this process in one group of a topic: which pairs to acquire, which to release, when to say that it
//! lives. Pure: what happened and the time come in as values, what to do goes out as values.
//!
//! It never decides who owns a pair (the lease does), never judges whether a lease is valid (`lease` does), and never
//! needs to be right about the others: whatever it believes, a pair has one owner. docs/architecture.md explains the rest.

mod act;
mod candidates;
mod event;
mod pairs;
mod pulse;
mod sweep;
mod timing;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use event::{Action, Event, Standing};
pub use timing::Timing;

use self::candidates::Candidates;
use self::pairs::{Pairs, Slot};
use self::pulse::Pulse;
use self::sweep::Sweep;
use crate::assignment::{Seat, Shares};
use crate::clock::Instant;
use crate::message::{GroupName, TopicName};
use crate::partition::Partition;
use crate::store::MemberId;

/// Partitions that a member under its share tries by guess after a heartbeat, besides two for each missing one; twice as
/// many after the next, until all were tried. Announcements make guesses unnecessary; these are for lost ones, and for
/// members that begin together.
const GUESSES: usize = 32;

/// One member of one group of one topic.
#[derive(Debug)]
pub struct Member {
    topic: TopicName,
    group: GroupName,
    partitions: u16,
    id: MemberId,
    seat: Seat,
    timing: Timing,
    /// The newest list, as it came, and what follows from it.
    list: Arc<[MemberId]>,
    shares: Shares,
    quota: usize,
    /// After the lists had become stale: who was there before.
    awaited: Option<Shares>,
    pulse: Pulse,
    pairs: Pairs,
    candidates: Candidates,
    sweep: Sweep,
    /// How many partitions may be tried by guess until the next heartbeat is answered.
    guesses: usize,
    /// Heartbeats that found it under its share since it last guessed everywhere.
    search: u32,
    /// Failures in a row of each partition.
    failures: BTreeMap<Partition, u32>,
    /// Acquisitions that failed in a row, of whatever partition, and until when to acquire nothing for that.
    streak: u32,
    quiet_until: Instant,
    /// After a data loss: until when to acquire nothing but what was validly owned.
    hold_until: Instant,
    exempt: BTreeSet<Partition>,
    life: Life,
    /// When the last step was.
    stepped: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Joined,
    Leaving,
    Gone,
}

impl Member {
    /// A member that has not said anything yet; its first step does.
    pub fn new(topic: TopicName, group: GroupName, partitions: u16, id: MemberId, timing: Timing) -> Member {
        let seat = Seat::new(&topic, &group, &id);
        Member {
            shares: Shares::new(&topic, &group, partitions, &[]),
            candidates: Candidates::new(seat.clone(), partitions),
            topic,
            group,
            partitions,
            id,
            seat,
            timing,
            list: Arc::new([]),
            quota: 0,
            awaited: None,
            pulse: Pulse::new(timing),
            pairs: Pairs::default(),
            sweep: Sweep::new(timing),
            guesses: 0,
            search: 0,
            failures: BTreeMap::new(),
            streak: 0,
            quiet_until: Instant::START,
            hold_until: Instant::START,
            exempt: BTreeSet::new(),
            life: Life::Joined,
            stepped: Instant::START,
        }
    }

    /// Takes in what happened and returns what to do now, in this order.
    pub fn step(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.stepped = now;
        if self.life == Life::Gone {
            return actions;
        }
        match event {
            Event::Tick => {}
            Event::Beaten(list) => self.beaten(now, list),
            Event::BeatFailed => self.pulse.failed(now),
            Event::Departed => {
                self.pulse.departed();
                if self.life == Life::Joined {
                    self.pulse.revive(now);
                }
            }
            Event::MembersChanged => self.pulse.hurry(now),
            Event::Freed(partition) => {
                self.candidates.free(partition);
                self.pairs.freed(partition);
            }
            Event::Acquired(partition) => self.acquired(now, partition, &mut actions),
            Event::Held { partition, by, expires_in } => self.held(now.plus(expires_in), partition, &by),
            Event::AcquireFailed(partition) => self.acquire_failed(now, partition),
            Event::Lost(partition) => self.lost(now, partition),
            Event::Released(partition) => self.released(now, partition),
            Event::Hold { until, valid } => self.hold(until, valid),
            Event::Leave => self.leave(now),
            Event::Stay => self.stay(now),
        }
        self.act(now, &mut actions);
        actions
    }

    /// When to step with [`Event::Tick`], if nothing happens before. Later than the last step.
    pub fn next_wake(&self) -> Instant {
        match self.life {
            Life::Gone => Instant::FAR,
            Life::Leaving if self.pulse.is_over() => Instant::FAR,
            Life::Leaving => self.pulse.wake(),
            Life::Joined => self.pulse.wake().min(self.sweep.wake()).min(self.acquire_wake()),
        }
    }

    /// Where it stands, for people and gauges.
    pub fn standing(&self) -> Standing {
        Standing {
            members: self.shares.members(),
            quota: self.quota,
            owned: self.pairs.owned(),
            acquiring: self.pairs.acquiring(),
            releasing: self.pairs.releasing(),
            kept: self.sweep.kept(),
            is_waiting: self.life == Life::Joined && self.shares.members() > 0 && self.quota == 0,
            is_gone: self.life == Life::Gone,
        }
    }

    fn beaten(&mut self, now: Instant, list: Arc<[MemberId]>) {
        if !list.contains(&self.id) {
            // Read before our heartbeat was written: the list is not about us. The next one is.
            return self.pulse.failed(now);
        }
        let was_stale = self.pulse.answered(now);
        if self.life != Life::Joined {
            return self.pulse.turn(now);
        }
        if was_stale {
            self.awaited = Some(self.shares.clone());
        }
        let mut has_lost_some = false;
        if self.list != list {
            let shares = Shares::new(&self.topic, &self.group, self.partitions, &list);
            self.list = list;
            if shares != self.shares {
                has_lost_some = !shares.include(&self.shares);
                self.quota = shares.quota(&self.seat);
                self.shares = shares;
                self.sweep.restart(now);
            }
        }
        if self.awaited.as_ref().is_some_and(|awaited| self.shares.include(awaited)) {
            self.awaited = None;
            self.pulse.settle(now);
        }
        if self.pulse.settled_at() > now {
            self.sweep.postpone(self.pulse.settled_at());
        }
        self.begin_sweep(now);
        self.allow_guesses(has_lost_some || self.shares.members() == 1);
    }

    /// Everywhere when there is reason to believe that something is free; otherwise a few, and more each time.
    fn allow_guesses(&mut self, everywhere: bool) {
        let (all, missing) = (self.candidates.guesses(), self.quota.saturating_sub(self.pairs.owned()));
        let few = (GUESSES + 2 * missing).saturating_mul(2_usize.saturating_pow(self.search));
        if everywhere || missing == 0 {
            (self.guesses, self.search) = (if everywhere { all } else { 0 }, 0);
        } else if self.guesses < few {
            self.guesses = few.min(all);
            self.search = if few < all { self.search + 1 } else { 0 };
        }
    }

    fn acquired(&mut self, now: Instant, partition: Partition, actions: &mut Vec<Action>) {
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

    fn held(&mut self, until: Instant, partition: Partition, by: &MemberId) {
        let Some(Slot::Acquiring { freed, .. }) = self.pairs.get(partition) else { return };
        self.pairs.remove(partition);
        self.streak = 0;
        self.failures.remove(&partition);
        self.sweep.forget(partition);
        if freed {
            // The answer is older than the announcement.
            self.candidates.put_free(partition);
        } else if self.shares.contain(&Seat::new(&self.topic, &self.group, by)) {
            self.candidates.put_held(partition);
        } else {
            // Nobody renews it; if its owner drains, it gives it up before.
            self.candidates.put_lapsing(partition, until);
        }
    }

    fn acquire_failed(&mut self, now: Instant, partition: Partition) {
        if let Some(Slot::Acquiring { .. }) = self.pairs.get(partition) {
            self.pairs.remove(partition);
            self.streak = self.streak.saturating_add(1);
            self.quiet_until = now.plus(self.timing.retry(self.streak));
            self.sweep.offer(partition, now);
            self.pause(now, partition);
        }
    }

    fn lost(&mut self, now: Instant, partition: Partition) {
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

    fn released(&mut self, now: Instant, partition: Partition) {
        if let Some(Slot::Owned { .. } | Slot::Releasing) = self.pairs.get(partition) {
            self.pairs.remove(partition);
            self.sweep.offer(partition, now);
            self.candidates.put_free(partition);
        }
    }

    fn pause(&mut self, now: Instant, partition: Partition) {
        let failures = self.failures.entry(partition).or_insert(0);
        *failures = failures.saturating_add(1);
        self.candidates.put_failed(partition, now.plus(self.timing.retry(*failures)));
    }

    fn hold(&mut self, until: Instant, valid: BTreeSet<Partition>) {
        self.hold_until = self.hold_until.max(until);
        self.exempt = valid;
        self.sweep.postpone(self.hold_until);
    }

    fn leave(&mut self, now: Instant) {
        if self.life == Life::Joined {
            self.life = Life::Leaving;
            self.pulse.turn(now);
        }
    }

    fn stay(&mut self, now: Instant) {
        if self.life == Life::Leaving {
            self.life = Life::Joined;
            self.pulse.revive(now);
        }
    }
}
