//! One process of the simulation: a member, and what stands between it and the store. Its leases, their validity and
//! its calls are as in `lease` and `dispatch`.

use std::collections::{BTreeMap, BTreeSet};

use dwell::coordination::membership::{Action, Event, Member};
use dwell::model::partition::Partition;
use dwell::platform::clock::Instant;

use super::store::{Line, Ms};
use super::time::instant;

/// A call of a process, by its number.
pub(super) type CallId = u64;

pub(super) struct Process {
    pub(super) member: Member,
    /// Its monotonic clock shows this much more than the world's.
    pub(super) offset: Ms,
    pub(super) is_alive: bool,
    /// It stops stepping until then.
    pub(super) asleep_until: Ms,
    /// It beats and never gets a lease.
    pub(super) is_broken: bool,
    pub(super) has_left: bool,
    /// A consumer waits there, or works on what it got.
    pub(super) wants: bool,
    /// When one did last.
    pub(super) wanted: Ms,
    /// When that began, or ended.
    pub(super) since: Ms,
    pub(super) owned: BTreeMap<Partition, Owned>,
    /// The run of the store that it knows.
    pub(super) run: u64,
    pub(super) pending: BTreeMap<CallId, Purpose>,
    /// The earliest tick on its way.
    pub(super) tick_at: Ms,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Owned {
    pub(super) line: Line,
    /// By the world's clock.
    pub(super) valid_until: Ms,
    pub(super) phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    Draining,
    /// The release is on its way.
    GivenUp,
}

/// Why a call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Heartbeat,
    Depart,
    Acquire(Partition),
    Release(Partition),
    Renew,
}

impl Process {
    pub(super) fn new(member: Member, offset: Ms, run: u64, now: Ms) -> Process {
        Process {
            member,
            offset,
            is_alive: true,
            asleep_until: 0,
            is_broken: false,
            has_left: false,
            wants: true,
            wanted: now,
            since: now,
            owned: BTreeMap::new(),
            run,
            pending: BTreeMap::new(),
            tick_at: Ms::MAX,
        }
    }

    /// Its own reading of the time.
    pub(super) fn local(&self, now: Ms) -> Instant {
        instant(now + self.offset)
    }

    pub(super) fn step(&mut self, now: Ms, event: Event) -> Vec<Action> {
        if self.wants {
            self.wanted = now;
        }
        self.member.wanted(self.local(self.wanted));
        let actions = self.member.step(self.local(now), event, |_| false);
        assert!(self.member.next_wake() > self.local(now), "it spins");
        actions
    }

    /// When it wants to be woken, on the world's clock.
    pub(super) fn wake(&self) -> Ms {
        let wake = self.member.next_wake().since(Instant::default()).as_nanos().div_ceil(1_000_000);
        Ms::try_from(wake).unwrap_or(Ms::MAX).saturating_sub(self.offset)
    }

    /// Whether it takes part: it should own its share.
    pub(super) fn takes_part(&self) -> bool {
        self.is_alive && !self.has_left
    }

    pub(super) fn is_valid(&self, partition: Partition, now: Ms) -> bool {
        self.owned.get(&partition).is_some_and(|owned| owned.valid_until > now)
    }

    /// Whether it serves this partition to somebody who wants its messages.
    pub(super) fn delivers(&self, partition: Partition, now: Ms) -> bool {
        let serves = |owned: &Owned| owned.phase == Phase::Serving && owned.valid_until > now;
        self.is_alive && self.wants && self.owned.get(&partition).is_some_and(serves)
    }

    /// How many it serves, if it does nothing else.
    pub(super) fn serving(&self) -> Option<usize> {
        let is_serving = self.owned.values().all(|owned| owned.phase == Phase::Serving);
        let is_acquiring = self.pending.values().any(|purpose| matches!(purpose, Purpose::Acquire(_)));
        (is_serving && !is_acquiring).then_some(self.owned.len())
    }

    /// What a failed call comes to.
    pub(super) fn failure(&mut self, purpose: Purpose) -> Option<Event> {
        match purpose {
            Purpose::Heartbeat | Purpose::Depart => Some(Event::HeartbeatFailed),
            Purpose::Acquire(partition) => Some(Event::AcquireFailed(partition)),
            Purpose::Release(partition) => {
                // The lease lapses by itself.
                self.owned.remove(&partition);
                Some(Event::Released(partition))
            }
            Purpose::Renew => None,
        }
    }

    /// It notices that the store lost data. What it validly owns is exempt from the hold; the rest it forgets.
    pub(super) fn notice_loss(&mut self, now: Ms, run: u64, ttl: Ms) -> Vec<Event> {
        self.run = run;
        let valid = self.owned.iter().filter(|(_, owned)| owned.valid_until > now).map(|(partition, _)| *partition);
        let valid: BTreeSet<Partition> = valid.collect();
        let mut events = vec![Event::Hold { until: self.local(now + ttl), valid: valid.clone() }];
        for purpose in std::mem::take(&mut self.pending).into_values() {
            events.extend(self.failure(purpose));
        }
        let forgotten: Vec<Partition> = self.owned.keys().filter(|own| !valid.contains(own)).copied().collect();
        for partition in forgotten {
            self.owned.remove(&partition);
            events.push(Event::Lost(partition));
        }
        events
    }
}
