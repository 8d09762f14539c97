//! The membership of this process in one group of a topic: which partitions to acquire, which to release, when to send a
//! heartbeat. Pure: events and the time come in as values, actions go out as values.
//!
//! It never decides who owns a partition (the lease does), never judges whether a lease is valid (`lease` does), and need
//! not be right about the others: whatever it believes, a partition has one owner. docs/internals/groups.md explains
//! the rest.

mod partitions;
mod heartbeat;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use self::heartbeat::LINGER;
use self::heartbeat::{Demand, HeartbeatTimer};
use self::partitions::{ClaimOrder, OrphanSweep, Partitions};
use crate::coordination::assignment::{RankedMember, Shares};
use crate::model::limits::ACQUIRES_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::{Partition, hash};
use crate::platform::clock::Instant;
use crate::store::{LiveMember, MemberId};

#[derive(Debug)]
pub struct Member {
    topic: TopicName,
    group: GroupName,
    partitions: u16,
    id: MemberId,
    ranked_member: RankedMember,
    timing: Timing,
    /// The newest list, as it came, and what follows from it.
    list: Arc<[LiveMember]>,
    live: Shares,
    /// The shares of those that have demand; empty when nobody has, and then nothing moves.
    shares: Shares,
    quota: usize,
    demand: Demand,
    awaited: Option<Shares>,
    heartbeat: HeartbeatTimer,
    slots: Partitions,
    candidates: ClaimOrder,
    sweep: OrphanSweep,
    /// How many partitions may be tried by guess until the next heartbeat is answered.
    guesses: usize,
    /// Heartbeats that found it under its share since it last guessed everywhere.
    search: u32,
    /// How many acquisitions may be in flight for guesses, even if fewer partitions are missing.
    reach: usize,
    failures: BTreeMap<Partition, u32>,
    /// How often in a row acquisitions failed, of whatever partition, and until when to acquire nothing for that.
    streak: u32,
    quiet_until: Instant,
    /// After a data loss: until when to acquire nothing but what was validly owned.
    hold_until: Instant,
    exempt: BTreeSet<Partition>,
    life: Life,
    stepped: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Joined,
    Leaving,
    Gone,
}

impl Member {
    pub fn new(topic: TopicName, group: GroupName, partitions: u16, id: MemberId, timing: Timing) -> Member {
        let ranked_member = RankedMember::new(&topic, &group, &id);
        let phase = hash(id.as_str().as_bytes());
        let nobody = Shares::new(&topic, &group, partitions, &[]);
        Member {
            live: nobody.clone(),
            shares: nobody,
            candidates: ClaimOrder::new(ranked_member.clone(), partitions),
            topic,
            group,
            partitions,
            id,
            ranked_member,
            timing,
            list: Arc::new([]),
            quota: 0,
            demand: Demand::default(),
            awaited: None,
            heartbeat: HeartbeatTimer::new(timing, phase),
            slots: Partitions::default(),
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

    /// Tells when messages were last wanted: a consumer waited, or worked on a delivery. To be called before a
    /// step, with the latest such instant.
    pub fn wanted(&mut self, at: Instant) {
        self.demand.wanted(at);
    }

    /// Returns what to do now, in this order. `is_busy` says of an owned partition whether a consumer has had one of its messages for long.
    pub fn step(&mut self, now: Instant, event: Event, is_busy: impl Fn(Partition) -> bool) -> Vec<Action> {
        let mut actions = Vec::new();
        self.stepped = now;
        if self.life == Life::Gone {
            return actions;
        }
        match event {
            Event::Tick => {}
            Event::HeartbeatAnswered(list) => self.heartbeat_answered(now, list),
            Event::HeartbeatFailed => self.heartbeat.failed(now),
            Event::Departed => {
                self.heartbeat.departed();
                if self.life == Life::Joined {
                    self.heartbeat.revive(now);
                }
            }
            Event::MembersChanged => self.heartbeat.expedite(now),
            Event::Freed(partition) => {
                self.candidates.free(partition, self.timing.news_of(now));
                self.slots.freed(partition);
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
        self.act(now, is_busy, &mut actions);
        actions
    }

    /// When to step with [`Event::Tick`], if nothing happens before. Later than the last step.
    pub fn next_wake(&self) -> Instant {
        match self.life {
            Life::Gone => Instant::FAR,
            Life::Leaving if self.heartbeat.is_over() => Instant::FAR,
            Life::Leaving => self.heartbeat.wake(),
            Life::Joined => {
                let calls = self.heartbeat.wake().min(self.demand.wake(self.stepped));
                calls.min(self.sweep.wake()).min(self.acquire_wake())
            }
        }
    }

    /// No member has demand, as far as is known: every partition stays where it is, so that the owner serves the next
    /// request at once.
    fn is_still(&self) -> bool {
        self.shares.members() == 0
    }

    pub fn standing(&self) -> Standing {
        Standing {
            members: self.live.members(),
            demanding: self.shares.members(),
            has_demand: self.demand.is_announced(),
            quota: self.quota,
            owned: self.slots.owned(),
            acquiring: self.slots.acquiring(),
            releasing: self.slots.releasing(),
            kept: self.sweep.kept(),
            is_waiting: self.life == Life::Joined && self.shares.contain(&self.ranked_member) && self.quota == 0,
            is_gone: self.life == Life::Gone,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Tick,
    HeartbeatAnswered(Arc<[LiveMember]>),
    /// A heartbeat or a leave call failed, or got no answer.
    HeartbeatFailed,
    Departed,
    /// Announced: a member joined or left, or its demand began or ended.
    MembersChanged,
    Freed(Partition),
    Acquired(Partition),
    Held {
        partition: Partition,
        by: MemberId,
        /// How long that lease still runs, if nobody prolongs it.
        expires_in: Duration,
    },
    /// An acquisition failed, got no answer, or was given up before its answer.
    AcquireFailed(Partition),
    /// An owned or releasing partition is lost: taken by another member, or its epoch had to be forgotten.
    Lost(Partition),
    Released(Partition),
    /// The store lost data. Until then nothing is acquired but `valid`: what this process owned under a valid lease
    /// when it noticed.
    Hold {
        until: Instant,
        valid: BTreeSet<Partition>,
    },
    /// Give everything up: the process stops, or no consumer asks any more.
    Leave,
    /// A consumer asked again before the member was gone.
    Stay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Write the heartbeat with [`Standing::has_demand`], then read the live members. Answered by [`Event::HeartbeatAnswered`] or [`Event::HeartbeatFailed`].
    Heartbeat,
    /// Remove the heartbeat and announce it. Answered by [`Event::Departed`] or [`Event::HeartbeatFailed`].
    Depart,
    /// Try to acquire. Answered by [`Event::Acquired`], [`Event::Held`] or [`Event::AcquireFailed`].
    Acquire(Partition),
    /// Stop handing out, drain, give the lease up. Answered by [`Event::Released`] or [`Event::Lost`].
    Release(Partition),
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub members: usize,
    pub demanding: usize,
    pub has_demand: bool,
    pub quota: usize,
    pub owned: usize,
    pub acquiring: usize,
    pub releasing: usize,
    /// Partitions that it owns beyond its share, since nobody else took them.
    pub kept: usize,
    /// There are more members than partitions, and nothing is left for this one.
    pub is_waiting: bool,
    pub is_gone: bool,
}

impl Member {
    fn act(&mut self, now: Instant, is_busy: impl Fn(Partition) -> bool, actions: &mut Vec<Action>) {
        match self.life {
            Life::Gone => {}
            Life::Leaving => self.finish(now, actions),
            Life::Joined => {
                if self.demand.has_changed(now) {
                    self.heartbeat.turn(now);
                }
                if self.heartbeat.sends_heartbeat(now) {
                    self.demand.announce(now);
                    actions.push(Action::Heartbeat);
                }
                if now >= self.hold_until {
                    self.exempt.clear();
                }
                self.sweep.pass(now);
                self.release_excess(now, is_busy, actions);
                self.acquire_missing(now, actions);
                self.sweep_orphans(now, actions);
            }
        }
    }

    /// The leave call comes first, so that the others take what is released as soon as it is.
    fn finish(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.heartbeat.sends_leave(now) {
            actions.push(Action::Depart);
        }
        for partition in self.slots.newest() {
            self.release(partition, actions);
        }
        if self.slots.is_empty() && self.heartbeat.is_over() {
            self.life = Life::Gone;
            actions.push(Action::Gone);
        }
    }

    /// The last acquired go first: when members come and go, the same few partitions move, and the others never do. Before them go those that
    /// nobody has to wait for.
    fn release_excess(&mut self, now: Instant, is_busy: impl Fn(Partition) -> bool, actions: &mut Vec<Action>) {
        if self.is_still() {
            return;
        }
        if self.slots.owned() <= self.quota {
            return self.sweep.forget_kept();
        }
        let excess = self.slots.owned().saturating_sub(self.quota + self.sweep.kept());
        // Nobody could take it while all hold back.
        if excess == 0 || now < self.hold_until {
            return;
        }
        let mut offered = self.slots.newest();
        offered.retain(|partition| !self.sweep.is_kept(*partition));
        offered.sort_by_cached_key(|partition| is_busy(*partition));
        offered.truncate(excess);
        for partition in offered {
            self.release(partition, actions);
        }
    }

    pub(super) fn release(&mut self, partition: Partition, actions: &mut Vec<Action>) {
        self.slots.release(partition);
        actions.push(Action::Release(partition));
    }

    fn acquire_missing(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !self.may_acquire(now) {
            return;
        }
        while self.slots.acquiring() < ACQUIRES_MAX {
            let partition = if self.missing() > 0 { self.candidate(now) } else { self.further_guess(now) };
            let Some(partition) = partition else { return };
            self.slots.acquire(partition, false);
            actions.push(Action::Acquire(partition));
        }
    }

    fn candidate(&mut self, now: Instant) -> Option<Partition> {
        if now < self.hold_until {
            let own = self.exempt.iter().find(|partition| self.candidates.may_try(**partition, now)).copied()?;
            return self.candidates.take(own).then_some(own);
        }
        self.candidates.take_timed(now).or_else(|| self.guess())
    }

    /// One more than is missing, since most guesses find a partition taken; should too many be free, the last goes back.
    /// Partitions that are known to be free do not wait behind guesses.
    fn further_guess(&mut self, now: Instant) -> Option<Partition> {
        let has_reach = self.slots.owned() < self.quota && self.slots.acquiring() < self.reach;
        let has_better = self.candidates.next_timed().is_some_and(|at| at <= now);
        if has_reach && !has_better && now >= self.hold_until { self.guess() } else { None }
    }

    fn guess(&mut self) -> Option<Partition> {
        self.guesses = self.guesses.checked_sub(1)?;
        self.candidates.take_guess()
    }

    /// Orphans are taken by a member that prefers them, even beyond its share.
    fn sweep_orphans(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let has_its_share = self.shares.contain(&self.ranked_member) && self.slots.owned() >= self.quota;
        let may_sweep = has_its_share && self.may_acquire(now) && now >= self.hold_until;
        if !may_sweep {
            return self.sweep.give_up(now);
        }
        while self.slots.acquiring() < ACQUIRES_MAX {
            let Some(partition) = self.sweep.take() else { return };
            if self.candidates.may_try(partition, now) && self.candidates.take(partition) {
                self.slots.acquire(partition, true);
                actions.push(Action::Acquire(partition));
            } else {
                self.sweep.forget(partition);
            }
        }
    }

    /// A sweep begins with a new list: if someone had come, partitions would be on their way to them.
    pub(super) fn begin_sweep(&mut self, now: Instant) {
        if let Some(place) = self.sweep.begin(now, self.shares.members()) {
            let may_be = |partition: &Partition| {
                self.candidates.may_try(*partition, now) && self.shares.is_at(place, &self.ranked_member, *partition)
            };
            self.sweep.fill((0..self.partitions).map(Partition).filter(may_be));
        }
    }

    pub(super) fn missing(&self) -> usize {
        self.quota.saturating_sub(self.slots.owned() + self.slots.acquiring())
    }

    fn may_acquire(&self, now: Instant) -> bool {
        now >= self.quiet_until && self.heartbeat.is_settled(now)
    }

    pub(super) fn is_held(&self, partition: Partition, now: Instant) -> bool {
        now < self.hold_until && !self.exempt.contains(&partition)
    }

    /// When to acquire missing partitions, if only time prevents it.
    fn acquire_wake(&self) -> Instant {
        let is_fresh = self.heartbeat.is_fresh(self.stepped);
        if self.missing() == 0 || self.slots.acquiring() >= ACQUIRES_MAX || !is_fresh {
            return Instant::FAR;
        }
        let own = self.exempt.iter().filter_map(|partition| self.candidates.not_before(*partition)).min();
        let guess = (self.guesses.min(self.candidates.guesses()) > 0).then_some(Instant::START);
        let any = [self.candidates.next_timed(), guess].into_iter().flatten().min();
        let any = any.map(|at| at.max(self.hold_until));
        let first = [own, any].into_iter().flatten().min().unwrap_or(Instant::FAR);
        first.max(self.quiet_until).max(self.heartbeat.settled_at())
    }
}

/// The shortest pause after something failed; it doubles with every failure in a row, up to a heartbeat.
const RETRY_FIRST: Duration = Duration::from_millis(20);
/// Heartbeats that may be missed before a member is no longer counted.
const MISSED_MAX: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    ttl: Duration,
    heartbeat: Duration,
}

impl Timing {
    /// A heartbeat longer than a third of the ttl is cut to that: a member must not be missed while its leases hold.
    pub fn new(ttl: Duration, heartbeat: Duration) -> Timing {
        Timing { ttl, heartbeat: heartbeat.min(ttl / 3) }
    }

    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// How old a heartbeat may be before the store leaves its member out of the list.
    ///
    /// Well before its leases end: by then the others know when each of them lapses, and take it in that moment. A
    /// member left out by mistake loses nothing, since its leases hold.
    pub fn absent_after(&self) -> Duration {
        self.ttl.min(self.heartbeat * MISSED_MAX)
    }

    pub(super) fn stale_after(&self) -> Duration {
        self.absent_after().min(self.ttl / 2)
    }

    /// How long a member whose list had become stale acquires nothing while others of it are missing: the store was
    /// unavailable, perhaps for all, and owners come first to resume their leases. They renew each third of the ttl.
    pub(super) fn settle(&self) -> Duration {
        self.ttl / 3 + self.heartbeat
    }

    pub(super) fn heartbeat_pause(&self) -> Duration {
        self.heartbeat / 20
    }

    /// The number of the span between two lists that this falls into: announcements within one are equally new.
    pub(super) fn news_of(&self, now: Instant) -> u64 {
        let spans = now.since(Instant::START).as_millis() / self.heartbeat_pause().as_millis().max(1);
        u64::try_from(spans).unwrap_or(u64::MAX)
    }

    pub(super) fn heartbeat_retry(&self) -> Duration {
        self.heartbeat / 4
    }

    pub(super) fn retry(&self, failures: u32) -> Duration {
        let doubled = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        doubled.min(self.heartbeat)
    }

    /// How long after a change of the members, or after sweep number `round`, to look for partitions that nobody took.
    pub(super) fn sweep_after(&self, round: u32) -> Duration {
        self.ttl * 2_u32.saturating_pow(round.saturating_add(1)).min(32)
    }

    /// How long a partition that nobody took is kept beyond the share, when that was found so many times before.
    pub(super) fn keep(&self, times: u32) -> Duration {
        self.ttl / 2 * 2_u32.saturating_pow(times).min(128)
    }
}
