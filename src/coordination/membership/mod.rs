//! The membership of this process in one group of a topic: which pairs to acquire, which to release, when to say that it
//! lives. Pure: what happened and the time come in as values, what to do goes out as values.
//!
//! It never decides who owns a pair (the lease does), never judges whether a lease is valid (`lease` does), and never
//! needs to be right about the others: whatever it believes, a pair has one owner. docs/internals/groups.md explains the rest.

mod effects;
mod claim_order;
mod demand;
mod event;
mod on_announcement;
mod partitions;
mod heartbeat;
mod orphan_sweep;
mod timing;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use demand::LINGER;
pub use event::{Action, Event, Standing};
pub use timing::Timing;

use self::claim_order::ClaimOrder;
use self::demand::Demand;
use self::heartbeat::HeartbeatTimer;
use self::orphan_sweep::OrphanSweep;
use self::partitions::Partitions;
use crate::coordination::assignment::{Seat, Shares};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::{Partition, hash};
use crate::platform::clock::Instant;
use crate::store::{LiveMember, MemberId};

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
    list: Arc<[LiveMember]>,
    live: Shares,
    /// The shares of those that have demand; empty when nobody has, and then nothing moves.
    shares: Shares,
    quota: usize,
    demand: Demand,
    /// After the lists had become stale: who was there before.
    awaited: Option<Shares>,
    pulse: HeartbeatTimer,
    pairs: Partitions,
    candidates: ClaimOrder,
    sweep: OrphanSweep,
    /// How many partitions may be tried by guess until the next heartbeat is answered.
    guesses: usize,
    /// Heartbeats that found it under its share since it last guessed everywhere.
    search: u32,
    /// How many acquisitions may be in flight for guesses, even if fewer partitions are missing.
    reach: usize,
    /// Failures in a row of each partition.
    failures: BTreeMap<Partition, u32>,
    /// How often in a row acquisitions failed, of whatever partition, and until when to acquire nothing for that.
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
        let phase = hash(id.as_str().as_bytes());
        let nobody = Shares::new(&topic, &group, partitions, &[]);
        Member {
            live: nobody.clone(),
            shares: nobody,
            candidates: ClaimOrder::new(seat.clone(), partitions),
            topic,
            group,
            partitions,
            id,
            seat,
            timing,
            list: Arc::new([]),
            quota: 0,
            demand: Demand::default(),
            awaited: None,
            pulse: HeartbeatTimer::new(timing, phase),
            pairs: Partitions::default(),
            sweep: OrphanSweep::new(timing),
            guesses: 0,
            search: 0,
            reach: 0,
            failures: BTreeMap::new(),
            streak: 0,
            quiet_until: Instant::START,
            hold_until: Instant::START,
            exempt: BTreeSet::new(),
            life: Life::Joined,
            stepped: Instant::START,
        }
    }

    /// Somebody wanted messages at this instant: a consumer waited, or a delivery was in flight. To be told before a step,
    /// with the latest such instant.
    pub fn wanted(&mut self, at: Instant) {
        self.demand.wanted(at);
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
                self.candidates.free(partition, self.timing.news_of(now));
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
            Life::Joined => {
                let calls = self.pulse.wake().min(self.demand.wake(self.stepped));
                calls.min(self.sweep.wake()).min(self.acquire_wake())
            }
        }
    }

    /// Whether nobody wants messages, as far as is known: every partition stays where it is, so that the owner serves the
    /// next request at once.
    fn is_still(&self) -> bool {
        self.shares.members() == 0
    }

    /// Where it stands, for people and gauges.
    pub fn standing(&self) -> Standing {
        Standing {
            members: self.live.members(),
            demanding: self.shares.members(),
            has_demand: self.demand.is_announced(),
            quota: self.quota,
            owned: self.pairs.owned(),
            acquiring: self.pairs.acquiring(),
            releasing: self.pairs.releasing(),
            kept: self.sweep.kept(),
            is_waiting: self.life == Life::Joined && self.shares.contain(&self.seat) && self.quota == 0,
            is_gone: self.life == Life::Gone,
        }
    }
}
