//! The loop of an owned partition: sends decisions to the store, fetches due messages while a consumer wants them, and looks
//! after dead letters.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};

use super::dead_letter_keeper::DeadLetterKeeper;
use super::{ByKey, GroupDelivery, Owned};
use crate::coordination::lease::STORE_CHANGED;
use crate::model::error::{Error, Kind, Result};
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::platform::clock::{Clock, Instant};
use crate::store::{Charge, HeadState, Loss, Owner, ReserveLimit, Settlement, Store};

/// How long a call may take to be answered after its lease is lost: then its outcome is known.
const LAST_ANSWER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Unknown,
    Nothing,
    At(Timestamp),
}

enum Plan {
    Note(HeadState),
    KeepDead,
    Settle(Settlement, u64),
    Charge(Vec<Charge>),
    Reserve(ReserveLimit),
    Wait(Instant),
}

enum Called {
    Answered,
    /// The time to drain was over before.
    Late,
}

pub(super) struct OwnerLoop {
    delivery: Arc<GroupDelivery>,
    owner: Box<dyn Owner>,
    owned: Arc<Owned>,
    woken: Arc<Notify>,
    losses: watch::Receiver<Loss>,
    pressed: watch::Receiver<u64>,
    head: Head,
    dead: DeadLetterKeeper,
    sent: u64,
    settled_last: bool,
    draining: bool,
}

impl OwnerLoop {
    pub(super) fn new(
        delivery: Arc<GroupDelivery>,
        owner: Box<dyn Owner>,
        owned: Arc<Owned>,
        woken: Arc<Notify>,
    ) -> OwnerLoop {
        let (losses, pressed) = (delivery.store.backend.losses(), delivery.options.budget.pressed());
        OwnerLoop {
            delivery,
            owner,
            owned,
            woken,
            losses,
            pressed,
            head: Head::Unknown,
            dead: DeadLetterKeeper::new(),
            sent: 0,
            settled_last: false,
            draining: false,
        }
    }

    pub(super) fn owned(&self) -> Arc<Owned> {
        self.owned.clone()
    }

    /// Releases the lease unless it was lost. Errors: why it was lost, or why the store did not take it back.
    pub(super) async fn end(self, served: Result<()>) -> Result<()> {
        if self.owner.is_in_doubt() {
            self.owned.advance(|progress| progress.in_doubt = self.sent);
        }
        served?;
        self.release().await
    }

    /// Serves until released and drained. Errors: `Stale` when the partition was lost; `Corrupt` when dwell did not write
    /// its keys.
    pub(super) async fn serve(&mut self) -> Result<()> {
        let clock = self.delivery.store.backend.clock().local().clone();
        let mut drain_until = Instant::FAR;
        loop {
            let (is_released, is_closed) = (self.owned.signal.is_released(), self.delivery.is_closed());
            if !self.draining && (is_released || is_closed) {
                self.draining = true;
                self.owned.drain();
            }
            // When the partition only goes to another broker, deliveries in flight may take their time.
            if is_closed && drain_until == Instant::FAR {
                drain_until = clock.instant().plus(self.delivery.options.drain_timeout);
            }
            if self.delivery.gone.is_cancelled() {
                drain_until = clock.instant();
            }
            self.heed(clock.instant())?;
            let until = match self.plan() {
                Plan::Wait(until) => {
                    self.owned.had_turn();
                    until
                }
                // Boxed, since the loop mostly waits, and that future has to be small.
                plan => match Box::pin(self.call(plan, drain_until)).await? {
                    Called::Answered => continue,
                    Called::Late => return Ok(()),
                },
            };
            let (idle, ready) = {
                let table = self.owned.table();
                (table.is_idle(), table.ready())
            };
            // Between the plan and this look a consumer may have decided about the last delivery.
            if (self.draining && idle) || drain_until <= clock.instant() {
                return Ok(());
            }
            // A lease that is valid again, or room among what is out, lets a consumer have what it was refused before.
            if ready > 0 {
                self.delivery.arrivals.notify_one();
            }
            // Its membership kicks it for what concerns all partitions of the group.
            tokio::select! {
                () = clock.sleep_until(until.min(drain_until)) => {}
                () = self.owned.signal.notified() => {}
                () = self.woken.notified() => self.head = Head::Unknown,
                () = self.owned.lease.changed() => {}
            }
        }
    }

    async fn call(&mut self, plan: Plan, drain_until: Instant) -> Result<Called> {
        let clock = self.delivery.store.backend.clock().local().clone();
        let lease = self.owned.lease.clone();
        tokio::select! {
            done = self.carry_out(plan) => done.map(|()| Called::Answered),
            () = lease.lost().then(|()| Clock::System.sleep(LAST_ANSWER)) => Err(Error::stale(lease.why_lost())),
            () = clock.sleep_until(drain_until) => Ok(Called::Late),
        }
    }

    fn heed(&mut self, now: Instant) -> Result<()> {
        let lease = &self.owned.lease;
        if lease.is_lost() {
            return Err(Error::stale(lease.why_lost()));
        }
        // The senders live as long as the process.
        if self.losses.has_changed().unwrap_or(false) {
            self.losses.mark_unchanged();
            self.doubt(now)?;
        }
        if self.pressed.has_changed().unwrap_or(false) {
            self.pressed.mark_unchanged();
            self.share();
        }
        Ok(())
    }

    fn share(&self) {
        let mut table = self.owned.table();
        if table.part().is_over_share() {
            table.give_back();
        }
    }

    /// An epoch that is not valid at a data loss is forgotten: another member may have been told that it owns the partition.
    fn doubt(&self, now: Instant) -> Result<()> {
        if self.owned.lease.is_valid(now) {
            return Ok(());
        }
        Err(Error::stale(STORE_CHANGED))
    }

    /// `Stale` is success: the topic was deleted, and with it the lease.
    async fn release(self) -> Result<()> {
        let last_delivery = self.owned.table().last_delivery();
        match self.owner.release(last_delivery).await {
            Err(error) if error.kind() == Kind::Stale => Ok(()),
            released => released,
        }
    }

    async fn carry_out(&mut self, plan: Plan) -> Result<()> {
        match plan {
            Plan::Note(head_state) => self.note_head(head_state).await,
            Plan::KeepDead => self.dead.look(&self.delivery, &self.owned.lease.claim().group_partition).await,
            Plan::Settle(settlement, ticket) => {
                self.sent = ticket;
                self.owner.settle(&settlement).await?;
                self.dead.died(&self.delivery.descriptor(), &settlement.buried);
                self.settled_last = true;
                self.owned.advance(|progress| progress.settled = ticket);
                // A returned message may be the new head.
                let retried = settlement.retried.iter().map(|retried| retried.next_at);
                let earliest = retried.chain(settlement.returned.iter().map(|returned| returned.ready_at)).min();
                self.head = earlier(self.head, earliest);
                if self.owned.table().settled(self.delivery.now()) {
                    self.delivery.arrivals.notify_one();
                }
            }
            Plan::Charge(charges) => {
                self.owner.start(&charges).await?;
                self.settled_last = false;
                self.owned.table().charged();
                self.delivery.arrivals.notify_one();
            }
            Plan::Reserve(limit) => {
                self.reserve(limit).await?;
                self.owned.had_turn();
            }
            Plan::Wait(_) => {}
        }
        Ok(())
    }

    fn plan(&mut self) -> Plan {
        let store_clock = self.delivery.store.backend.clock();
        let now = self.delivery.now();
        self.dead.set_generation(self.delivery.descriptor().generation);
        if let Some(head_state) = self.owned.lease.take_head_state() {
            return Plan::Note(head_state);
        }
        if (!self.draining || self.dead.has_new()) && self.dead.next() <= now.elapsed {
            return Plan::KeepDead;
        }
        let mut table = self.owned.table();
        table.refresh();
        let timed_out = table.time_out(now);
        self.delivery.counts.timed_out.inc_by(timed_out as u64);
        let rests_until = self.delivery.rests_until(now.store);
        let attended_until = if rests_until.is_some() { Instant::default() } else { self.attended_until() };
        let attended = now.instant < attended_until;
        if !attended && table.is_holding() {
            table.give_back();
        }
        table.resume(now);
        let looks_at = table.held_until(now).unwrap_or(Instant::FAR).min(table.opens_at(now));
        let due_at = match self.head {
            Head::Unknown => Instant::default(),
            Head::Nothing => Instant::FAR,
            Head::At(at) => store_clock.reaches(at),
        };
        let limit = table.room().filter(|_| attended && self.owned.lease.is_valid(now.instant) && !self.is_restoring());
        let reserve = limit.filter(|_| due_at <= now.instant || table.wants_sorted());
        // After a settlement something is fetched first, if there is anything: neither starves the other.
        let settlement = if self.settled_last { None } else { table.draft() };
        if let Some((settlement, ticket)) = settlement {
            return Plan::Settle(settlement, ticket);
        }
        if attended {
            let charges = table.charges(self.delivery.demand.wanted(), now);
            if !charges.is_empty() {
                return Plan::Charge(charges);
            }
        }
        let granted = match reserve {
            Some(limit) => table.grant(limit, now.instant),
            None => {
                table.part().leave_line();
                None
            }
        };
        if let Some(limit) = granted {
            return Plan::Reserve(limit);
        }
        if let Some((settlement, ticket)) = table.draft() {
            return Plan::Settle(settlement, ticket);
        }
        let deadline = table.next_deadline().map_or(Instant::FAR, |at| now.reaches(at));
        let changes_at = rests_until.or_else(|| self.delivery.closes_at(now.store));
        let mut until = deadline.min(changes_at.unwrap_or(Instant::FAR));
        if !self.draining {
            until = until.min(now.reaches(self.dead.next()));
        }
        if reserve.is_some() {
            until = until.min(table.part().asks_at().unwrap_or(Instant::FAR));
        } else if limit.is_some() {
            until = until.min(due_at);
        }
        if table.is_holding() {
            until = until.min(attended_until);
        }
        let attempt = table.next_attempt().map_or(Instant::FAR, |at| store_clock.reaches(at));
        Plan::Wait(until.min(attempt).min(looks_at))
    }

    async fn reserve(&mut self, limit: ReserveLimit) -> Result<()> {
        let mut losses = self.losses.clone();
        losses.mark_unchanged();
        let by_key = self.owned.table().ask_by_key(limit, self.delivery.now());
        let reserved = match by_key {
            Some(ByKey { limit, keys, share }) => self.owner.reserve_by_key(limit, &keys, share).await?,
            None => self.owner.reserve(limit).await?,
        };
        // The store may have answered with what it had before it was restored: none of that is handed out.
        let is_doubtful = self.is_restoring() || losses.has_changed().unwrap_or(false);
        self.settled_last = false;
        self.head = reserved.head.map_or(Head::Nothing, Head::At);
        let found = !reserved.messages.is_empty();
        let (unsettled, dropped) = (reserved.unsettled, reserved.dropped);
        let mut table = self.owned.table();
        table.reserved(reserved, self.delivery.now());
        if is_doubtful {
            table.give_back();
        }
        let bytes = table.bytes();
        table.part().arrived(bytes);
        let expected = table.unsettled() as u64;
        drop(table);
        if dropped > 0 {
            self.delivery.metrics.ownership.repairs.inc_by(dropped as u64);
            let GroupPartition { topic, group, partition, .. } = &self.owned.lease.claim().group_partition;
            let partition = partition.0;
            tracing::error!(%topic, %group, partition, messages = dropped, "ids without bodies dropped");
        }
        if unsettled != expected {
            // No rule of the protocol allows this: the store lost data, or someone else changed the keys.
            let detail = format!("the store counts {unsettled} unsettled messages, this epoch holds {expected}");
            return Err(Error::stale(detail));
        }
        if found && !is_doubtful {
            self.delivery.arrivals.notify_one();
        }
        Ok(())
    }

    /// After a renewal read the partition: makes up for a lost wake, and applies changed settings.
    async fn note_head(&mut self, head_state: HeadState) {
        self.head = earlier(self.head, head_state.head);
        if head_state.generation > self.delivery.descriptor().generation {
            self.delivery.look_again().await;
        }
        let group_partition = self.owned.lease.claim().group_partition.clone();
        self.owned.table().set_policy(self.delivery.policy(group_partition.partition));
        if head_state.is_moving {
            call_back_move(&self.delivery.store, &group_partition).await;
        }
    }

    /// Whether the store has lost something, or may have lost something before this process began, that is not restored yet.
    fn is_restoring(&self) -> bool {
        self.delivery.store.backend.losses().borrow().is_restoring
    }

    fn attended_until(&self) -> Instant {
        let attended = if self.draining { None } else { self.delivery.attended_until() };
        attended.unwrap_or_default()
    }
}

fn earlier(head: Head, other: Option<Timestamp>) -> Head {
    match (head, other) {
        (Head::Unknown, _) | (_, None) => head,
        (Head::Nothing, Some(at)) => Head::At(at),
        (Head::At(head), Some(at)) => Head::At(head.min(at)),
    }
}

/// Gives back what is on its way to another topic: perhaps the broker that moved it died. One that moves it now finds
/// the rest again. A failed attempt is repeated after the next renewal.
pub(super) async fn call_back_move(store: &Store, group_partition: &GroupPartition) {
    if let Err(error) = store.maintenance.call_back_move(group_partition).await {
        let GroupPartition { topic, group, partition, .. } = group_partition;
        tracing::debug!(%topic, %group, partition = partition.0, %error, "messages of an interrupted move not given back yet");
    }
}
