//! The heartbeat of a member: when to send it, how old its list is, and the leave call; what the member learns from each
//! event; and its demand.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::partitions::Slot;
use super::{Action, Life, Member, Timing};
use crate::coordination::assignment::{RankedMember, Shares};
use crate::model::partition::Partition;
use crate::platform::clock::Instant;
use crate::store::{LiveMember, MemberId};

/// The heartbeat lapses by itself, and a member that leaves does not stay for that.
const LEAVE_CALLS_MAX: u32 = 3;
/// Partitions that a member under its share tries by guess after a heartbeat, besides two for each missing one; twice as
/// many after the next, until all were tried. Announcements make guesses unnecessary; these are for lost ones, and for
/// members that begin together.
const GUESSES: usize = 32;
/// Guesses of one heartbeat that follow one another, at two round trips each: if there are more, more are in flight than
/// partitions are missing. So a search takes as many heartbeats as its guesses double, and it has to end within a ttl: for
/// so long what a sweep has found is offered, and then kept for longer each time.
const GUESSES_IN_A_ROW: usize = 256;
/// How long demand lasts after a consumer waited, or a delivery was in flight, for the last time. A consumer that settles
/// and reserves again is between two requests for a moment, and one that polls every few hundred milliseconds is there all
/// the time: their partitions must not move back and forth.
pub const LINGER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct HeartbeatTimer {
    timing: Timing,
    /// Regular heartbeats are sent this time after each multiple of their span.
    phase: Duration,
    call: Option<(MemberCall, Instant)>,
    last_sent: Option<Instant>,
    next: Instant,
    /// Something was announced after the call in flight was sent.
    again: bool,
    seen: Option<Instant>,
    /// Nothing is acquired before: the lists had become stale.
    settled: Instant,
    leave_calls: LeaveCalls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberCall {
    Heartbeat,
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaveCalls {
    Failed(u32),
    Over,
}

impl HeartbeatTimer {
    /// The first heartbeat is due at once. The groups of a process have the same `phase`, so that their heartbeats go together.
    pub(super) fn new(timing: Timing, phase: u32) -> HeartbeatTimer {
        HeartbeatTimer {
            phase: timing.heartbeat().mul_f64(f64::from(phase) / f64::from(u32::MAX)),
            timing,
            call: None,
            last_sent: None,
            next: Instant::START,
            again: false,
            seen: None,
            settled: Instant::START,
            leave_calls: LeaveCalls::Failed(0),
        }
    }

    /// If true, the heartbeat counts as sent.
    pub(super) fn sends_heartbeat(&mut self, now: Instant) -> bool {
        self.sends(MemberCall::Heartbeat, now)
    }

    pub(super) fn sends_leave(&mut self, now: Instant) -> bool {
        self.leave_calls != LeaveCalls::Over && self.sends(MemberCall::Leave, now)
    }

    fn sends(&mut self, call: MemberCall, now: Instant) -> bool {
        let sends = self.call.is_none() && now >= self.next;
        if sends {
            (self.call, self.last_sent, self.again) = (Some((call, now)), Some(now), false);
        }
        sends
    }

    pub(super) fn expedite(&mut self, now: Instant) {
        self.again = true;
        self.next = self.next.min(self.soon(now));
    }

    pub(super) fn turn(&mut self, now: Instant) {
        self.next = now;
    }

    /// When the next regular heartbeat is due, a span after the one sent then or earlier.
    fn regular(&self, sent: Instant) -> Instant {
        let span = self.timing.heartbeat().as_nanos().max(1);
        let into = (sent.since(Instant::START).as_nanos() + span - self.phase.as_nanos()) % span;
        sent.plus(Duration::from_nanos(u64::try_from(span - into).unwrap_or(u64::MAX)))
    }

    fn soon(&self, now: Instant) -> Instant {
        self.last_sent.map_or(now, |sent| sent.plus(self.timing.heartbeat_pause()).max(now))
    }

    /// A heartbeat brought a list with this member in it. Returns whether the list before had become stale.
    pub(super) fn answered(&mut self, now: Instant) -> bool {
        let Some((_, sent)) = self.call.take() else { return false };
        let was_stale = self.seen.is_some_and(|seen| sent.since(seen) > self.timing.stale_after());
        if was_stale {
            self.settled = now.plus(self.timing.settle());
        }
        self.seen = Some(sent);
        self.next = if self.again { self.soon(now) } else { self.regular(sent) };
        was_stale
    }

    pub(super) fn settle(&mut self, now: Instant) {
        self.settled = self.settled.min(now);
    }

    pub(super) fn failed(&mut self, now: Instant) {
        let Some((call, _)) = self.call.take() else { return };
        self.next = now.plus(self.timing.heartbeat_retry());
        if call == MemberCall::Leave {
            self.leave_calls = match self.leave_calls {
                LeaveCalls::Failed(times) if times + 1 < LEAVE_CALLS_MAX => LeaveCalls::Failed(times + 1),
                _ => LeaveCalls::Over,
            };
        }
    }

    pub(super) fn departed(&mut self) {
        self.call = None;
        self.leave_calls = LeaveCalls::Over;
    }

    pub(super) fn is_over(&self) -> bool {
        self.call.is_none() && self.leave_calls == LeaveCalls::Over
    }

    pub(super) fn revive(&mut self, now: Instant) {
        self.leave_calls = LeaveCalls::Failed(0);
        self.next = now;
    }

    /// Whether the list is new enough, and has been for long enough, to acquire by it.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        now >= self.settled && self.is_fresh(now)
    }

    /// Whether the list is new enough to go by. If not, only a heartbeat helps.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.seen.is_some_and(|seen| now.since(seen) <= self.timing.stale_after())
    }

    /// From when on [`HeartbeatTimer::is_settled`], if the lists go on being answered.
    pub(super) fn settled_at(&self) -> Instant {
        self.settled
    }

    pub(super) fn wake(&self) -> Instant {
        if self.call.is_some() { Instant::FAR } else { self.next }
    }
}

impl Member {
    pub(super) fn heartbeat_answered(&mut self, now: Instant, list: Arc<[LiveMember]>) {
        if !Arc::ptr_eq(&list, &self.list) && !list.iter().any(|member| member.id == self.id) {
            // Read before our heartbeat was written: the list is not about us. The next one is.
            return self.heartbeat.failed(now);
        }
        let was_stale = self.heartbeat.answered(now);
        if self.life != Life::Joined {
            return self.heartbeat.turn(now);
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
            if live != self.live || !shares.contain(&self.ranked_member) {
                self.sweep.restart(now);
            } else if shares != self.shares {
                self.sweep.delay(now, now.plus(self.timing.heartbeat() * 2));
            }
            self.quota = shares.quota(&self.ranked_member);
            (self.live, self.shares) = (live, shares);
        }
        if self.awaited.as_ref().is_some_and(|awaited| self.live.include(awaited)) {
            self.awaited = None;
            self.heartbeat.settle(now);
        }
        if self.heartbeat.settled_at() > now {
            self.sweep.postpone(self.heartbeat.settled_at());
        }
        self.begin_sweep(now);
        self.allow_guesses(has_lost_some || self.shares.members() == 1);
    }

    fn shares_of<'a>(&self, members: impl Iterator<Item = &'a LiveMember>) -> Shares {
        Shares::new(&self.topic, &self.group, self.partitions, members.map(|member| &member.id))
    }

    /// Everywhere when something is likely to be free; otherwise a few, and more each time.
    fn allow_guesses(&mut self, everywhere: bool) {
        let (all, missing) = (self.candidates.guesses(), self.quota.saturating_sub(self.slots.owned()));
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
        let slot = self.slots.get(partition);
        self.streak = 0;
        self.candidates.take(partition);
        self.slots.own(partition, now);
        match slot {
            Some(Slot::Acquiring { .. }) if self.is_held(partition, now) => {
                // It overlapped a data loss: somebody else may believe to own it.
                self.release(partition, actions);
            }
            Some(Slot::Acquiring { orphan: true, .. }) if self.slots.owned() > self.quota => {
                self.sweep.keep(partition, now);
            }
            _ => self.sweep.forget(partition),
        }
    }

    pub(super) fn held(&mut self, until: Instant, partition: Partition, by: &MemberId) {
        let Some(Slot::Acquiring { freed, .. }) = self.slots.get(partition) else { return };
        self.slots.remove(partition);
        self.streak = 0;
        self.failures.remove(&partition);
        self.sweep.forget(partition);
        if freed {
            // The answer is older than the announcement.
            self.candidates.put_free(partition, self.timing.news_of(self.stepped));
        } else if self.live.contain(&RankedMember::new(&self.topic, &self.group, by)) {
            self.candidates.put_held(partition);
        } else {
            // Nobody renews it; if its owner drains, it gives it up before.
            self.candidates.put_lapsing(partition, until);
        }
    }

    pub(super) fn acquire_failed(&mut self, now: Instant, partition: Partition) {
        if let Some(Slot::Acquiring { .. }) = self.slots.get(partition) {
            self.slots.remove(partition);
            // Heartbeats that were sent together fail together, and count once.
            if now >= self.quiet_until {
                self.streak = self.streak.saturating_add(1);
                self.quiet_until = now.plus(self.timing.retry(self.streak));
            }
            self.sweep.offer(partition, now);
            self.pause(now, partition);
        }
    }

    pub(super) fn lost(&mut self, now: Instant, partition: Partition) {
        let slot = self.slots.get(partition);
        if let Some(Slot::Owned { since, .. }) = slot
            && now.since(since) >= self.timing.heartbeat()
        {
            self.failures.remove(&partition);
        }
        if let Some(Slot::Owned { .. } | Slot::Releasing) = slot {
            self.slots.remove(partition);
            self.sweep.forget(partition);
            self.pause(now, partition);
        }
    }

    pub(super) fn released(&mut self, now: Instant, partition: Partition) {
        if let Some(Slot::Owned { .. } | Slot::Releasing) = self.slots.get(partition) {
            self.slots.remove(partition);
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
            self.heartbeat.turn(now);
        }
    }

    pub(super) fn stay(&mut self, now: Instant) {
        if self.life == Life::Leaving {
            self.life = Life::Joined;
            self.heartbeat.revive(now);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Demand {
    wanted: Option<Instant>,
    /// The state in the heartbeat sent last; `None` before the first.
    announced: Option<bool>,
}

impl Demand {
    pub(super) fn wanted(&mut self, at: Instant) {
        self.wanted = self.wanted.max(Some(at));
    }

    fn is_there(&self, now: Instant) -> bool {
        now < self.ends()
    }

    pub(super) fn has_changed(&self, now: Instant) -> bool {
        self.announced != Some(self.is_there(now))
    }

    pub(super) fn announce(&mut self, now: Instant) {
        self.announced = Some(self.is_there(now));
    }

    pub(super) fn is_announced(&self) -> bool {
        self.announced == Some(true)
    }

    pub(super) fn wake(&self, now: Instant) -> Instant {
        if self.is_there(now) { self.ends() } else { Instant::FAR }
    }

    fn ends(&self) -> Instant {
        self.wanted.map_or(Instant::START, |at| at.plus(LINGER))
    }
}
