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

/// Partitions that a member tries before the end of the lease that it saw, after each heartbeat that finds it under its
/// share, besides two for each missing one: releases may have gone unheard. A group costs its store no more than
/// `2 * partitions + 8 * members` of them in a heartbeat.
const EARLY_TRIES: usize = 8;

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
    pulse: Pulse,
    pairs: Pairs,
    candidates: Candidates,
    sweep: Sweep,
    /// Partitions that may be tried before their time, as owners may have released them unheard.
    early: usize,
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
            pulse: Pulse::new(timing),
            pairs: Pairs::default(),
            sweep: Sweep::new(timing),
            early: 0,
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
            Event::Freed(partition) => self.candidates.free(partition),
            Event::Acquired(partition) => self.acquired(now, partition, &mut actions),
            Event::Held { partition, expires_in } => self.held(now.plus(expires_in), partition),
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
        self.pulse.answered(now);
        if self.life != Life::Joined {
            return self.pulse.turn(now);
        }
        if self.list != list {
            let shares = Shares::new(&self.topic, &self.group, self.partitions, &list);
            self.list = list;
            if shares != self.shares {
                self.quota = shares.quota(&self.seat);
                self.shares = shares;
                self.sweep.restart(now);
            }
        }
        if self.pulse.settled_at() > now {
            self.sweep.postpone(self.pulse.settled_at());
        }
        self.early = match self.missing() {
            0 => 0,
            missing => self.candidates.held().min(EARLY_TRIES + 2 * missing),
        };
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
            Some(Slot::Acquiring { orphan: true }) if self.pairs.owned() > self.quota => {
                self.sweep.keep(partition, now);
            }
            _ => {}
        }
    }

    fn held(&mut self, until: Instant, partition: Partition) {
        if self.is_acquiring(partition) {
            self.pairs.remove(partition);
            self.streak = 0;
            self.failures.remove(&partition);
            self.candidates.put_held(partition, until);
        }
    }

    fn acquire_failed(&mut self, now: Instant, partition: Partition) {
        if self.is_acquiring(partition) {
            self.pairs.remove(partition);
            self.streak = self.streak.saturating_add(1);
            self.quiet_until = now.plus(self.timing.retry(self.streak));
            self.pause(now, partition);
        }
    }

    fn is_acquiring(&self, partition: Partition) -> bool {
        matches!(self.pairs.get(partition), Some(Slot::Acquiring { .. }))
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
            self.sweep.forget(partition);
            self.candidates.put_held(partition, now);
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
