//! The owner's memory of one partition: what it has reserved, who has it, and what was decided about it.
//!
//! Pure: no I/O, no clock, no chance; they come in as values. Deliveries in flight are only here. When the owner is gone
//! the reservations in the store tell the next epoch what may have been handed out.

mod pace;
mod fair;
mod gather;
mod keys;
mod next_message;
mod order;
mod settle;
mod recall;
#[cfg(test)]
mod testing;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::fair::ByKey;
use self::fair::Fair;
pub use self::fair::KeyLimit;
use self::gather::BatchKey;
pub use self::gather::Gather;
pub(super) use self::gather::Gathered;
pub use self::keys::{HeldKey, HeldKeys};
use self::next_message::NextMessage;
use self::order::{Batch, Lane, Order, OrderedDelivery, lane_of};
pub use self::recall::HeldCounts;
use self::recall::Recalls;
pub(super) use self::recall::{Blocker, BlockerState, MessageLocation, Recalled};
pub(super) use self::settle::LateOutcome;
use super::receipt::{Delivery, ReceiptGuard, ReceiptMaker, SessionReceipts};
use super::verdict::VerdictCache;
use crate::codec::{DeadLetterReason, DeadLetterRecord};
use crate::model::last_error::LastError;
use crate::model::limits::{
    CALL_IDS_MAX, DELIVERIES_BYTES_MAX, PREFETCH_BYTES_MAX, PREFETCH_MESSAGES_MAX, SORTED_MESSAGES_MAX,
};
use crate::model::message::{Key, Message, MessageId};
use crate::model::retry::{Backoff, OnFailure};
use crate::model::time::Timestamp;
use crate::model::topic::{Expiry, KeySettings};
use crate::model::version::Version;
use crate::platform::clock::Instant;
use crate::store::{
    Buried, Charge, Epoch, Reservation, ReserveLimit, Reserved, ReservedMessage, Retried, Returned, Sorted,
};

/// Messages to prefetch before the speed of the consumers is known.
const APPETITE_FIRST: usize = 32;
const CHARGED_AHEAD_MAX: usize = 32;

/// Both clocks and a random number, read once for each step.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The store's clock, never behind it.
    pub store: Timestamp,
    pub instant: Instant,
    /// `instant`, and ahead as the time of messages is.
    pub elapsed: Instant,
    /// 0.0 to 1.0, for jitter.
    pub chance: f64,
}

impl Now {
    /// When `deadline` passes, as an instant to sleep until.
    pub fn reaches(&self, deadline: Instant) -> Instant {
        self.instant.plus(deadline.since(self.elapsed))
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Want {
    pub max: usize,
    pub visibility_timeout: Duration,
    /// Only messages that were pushed at least this long ago.
    pub min_age: Duration,
    /// With ordering: successive messages of one key in one batch, at most.
    pub per_key: usize,
    pub on_failure: OnFailure,
    /// Without ordering: the batch that it waits for.
    pub gather: Gather,
}

impl Want {
    /// Whether messages may be ready that the consumer does not take yet.
    pub fn is_demanding(self) -> bool {
        !self.min_age.is_zero() || self.gather.waits()
    }
}

#[derive(Debug, Clone)]
pub struct Policy {
    pub backoff: Backoff,
    /// 0 is without a limit.
    pub max_attempts: u32,
    pub dedup_window: Duration,
    /// Whether the messages of a key come one after the other; fixed.
    pub ordered: bool,
    pub on_expiry: Expiry,
    pub in_flight: usize,
    /// If the keys take turns. Not with an ordering. Boxed, since it is rare.
    pub fair: Option<Box<KeySettings>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Slot {
    reservation: Reservation,
    index: usize,
}

#[derive(Debug, Clone)]
struct Held {
    slot: Slot,
    version: Version,
    ready_at: Timestamp,
    position: Timestamp,
    charged: u32,
    charged_before: u32,
    /// With ordering: the last decision about it has this ticket. A charge has to follow that.
    ticket: u64,
    /// In a fair group, when it is its turn.
    turn: u64,
    bytes: usize,
    /// Whether it waited for an earlier message of its key.
    stood_behind: bool,
    message: Message,
}

impl Held {
    fn is_expired(&self, now: Now) -> bool {
        self.message.envelope.expires_at.is_some_and(|at| at <= now.store)
    }

    /// Whether nothing has to be charged before.
    fn can_be_handed_out(&self) -> bool {
        self.charged == 0 || self.charged > self.charged_before
    }
}

#[derive(Debug)]
struct Out {
    slot: Slot,
    id: MessageId,
    key: Option<Key>,
    version: Version,
    attempt: u32,
    max_attempts: u32,
    handed_at: Instant,
    /// In the scale of [`Now::elapsed`].
    deadline: Instant,
    /// Removes the receipt from its session, whatever ends this delivery.
    _guard: Option<ReceiptGuard>,
    /// In a topic with ordering it may be handed out again without being reserved again. Boxed, since it holds a message and
    /// most topics have no ordering.
    ordered: Option<Box<OrderedDelivery>>,
}

/// The change of a message that the owner has decided on, and that a settlement writes.
#[derive(Debug)]
enum DeliveryEnd {
    /// It is deleted.
    Gone,
    /// It is scheduled again, with the attempts that are charged.
    Again(Retried),
    /// It failed and holds its key, so it stays reserved; the charge is written.
    Kept(Retried),
    /// It was never handed out: it is scheduled again without a charge.
    Back(Returned),
    /// It was never handed out: it waits among the sorted messages of its key.
    Sorted(Sorted),
    /// It becomes a dead letter.
    Dead(Buried),
}

/// A decision that no settlement has written yet.
#[derive(Debug)]
struct Undrafted {
    id: MessageId,
    slot: Slot,
    /// The key that continues once it is settled.
    lane: Option<Lane>,
    end: DeliveryEnd,
}

#[derive(Debug)]
struct Unsettled {
    ids: Vec<Option<MessageId>>,
    left: usize,
}

#[derive(Debug)]
pub struct Table {
    receipts: ReceiptMaker,
    policy: Policy,
    /// May be handed out at once, earliest first.
    ready: VecDeque<Held>,
    /// Was perhaps handed out before: an attempt has to be charged first.
    uncharged: VecDeque<Held>,
    charging: Vec<Held>,
    out: HashMap<u64, Out>,
    deadlines: BTreeSet<(Instant, u64)>,
    decided: VecDeque<Undrafted>,
    /// Few: each has up to as many messages as a call.
    reservations: BTreeMap<Reservation, Unsettled>,
    unsettled: usize,
    serial: u64,
    /// Tickets of decisions made, and of decisions handed out in drafts.
    tickets: u64,
    drafted: u64,
    recent: Option<Box<VerdictCache>>,
    appetite: usize,
    /// Whether the last consumer waited for a batch.
    gathers: bool,
    order: Option<Box<Order>>,
    fair: Option<Box<Fair>>,
    recalls: Recalls,
    chooser: NextMessage,
}

impl Table {
    pub fn new(receipts: ReceiptMaker, policy: Policy) -> Table {
        let mut table = Table {
            receipts,
            order: policy.ordered.then(Box::default),
            fair: None,
            policy,
            ready: VecDeque::new(),
            uncharged: VecDeque::new(),
            charging: Vec::new(),
            out: HashMap::new(),
            deadlines: BTreeSet::new(),
            decided: VecDeque::new(),
            reservations: BTreeMap::new(),
            unsettled: 0,
            serial: 0,
            tickets: 0,
            drafted: 0,
            recent: None,
            appetite: APPETITE_FIRST,
            gathers: false,
            recalls: Recalls::default(),
            chooser: NextMessage::default(),
        };
        table.follow_fairness();
        table
    }

    pub fn epoch(&self) -> &Epoch {
        self.receipts.epoch()
    }

    pub fn set_policy(&mut self, policy: Policy) {
        if policy.fair.is_some() && self.policy.fair.is_none() {
            // The memory may have messages of paused keys.
            self.wish_refresh();
        }
        self.policy = policy;
        self.follow_fairness();
        self.fair.iter_mut().for_each(|fair| fair.open_all());
    }

    pub fn held(&self) -> usize {
        self.prefetched() + self.order.as_ref().map_or(0, |order| order.parked())
    }

    fn prefetched(&self) -> usize {
        self.ready.len() + self.uncharged.len() + self.charging.len()
    }

    /// Counted anew each time: there are a few thousand messages at most.
    pub fn prefetched_bytes(&self) -> usize {
        self.offered().map(|held| held.bytes).sum()
    }

    /// All that consumers may get next.
    fn offered(&self) -> impl Iterator<Item = &Held> {
        self.ready.iter().chain(&self.uncharged).chain(&self.charging)
    }

    /// Whether something can be given back.
    pub fn is_holding(&self) -> bool {
        let prefetched = self.prefetched();
        self.order.as_ref().map_or(prefetched, |order| order.holds(prefetched)) > 0
    }

    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether nothing is held, out, or decided and not drafted: the lease may be given up.
    pub fn is_idle(&self) -> bool {
        !self.is_holding() && self.out.is_empty() && self.decided.is_empty()
    }

    pub fn is_out(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether a consumer has had a message since this time.
    pub fn is_out_since(&self, since: Instant) -> bool {
        self.out.values().any(|out| out.handed_at <= since)
    }

    pub fn unsettled(&self) -> usize {
        self.unsettled
    }

    pub fn room(&self) -> Option<ReserveLimit> {
        if self.is_full() || self.recalls.is_holding() {
            return None;
        }
        let held = self.prefetched();
        if held > self.appetite / 2 && self.fair.is_none() {
            return None;
        }
        let bytes = PREFETCH_BYTES_MAX.checked_sub(self.prefetched_bytes()).filter(|bytes| *bytes > 0)?;
        if self.fair.is_some() {
            // All that is due is looked at, since what the memory does not hold is sorted.
            return Some(ReserveLimit { messages: CALL_IDS_MAX - SORTED_MESSAGES_MAX, bytes });
        }
        let limit = ReserveLimit { messages: (self.appetite - held).min(CALL_IDS_MAX), bytes };
        self.order.as_ref().map_or(Some(limit), |order| order.room(limit))
    }

    /// Takes in what was reserved. Unreadable and exhausted messages die at once.
    pub fn reserved(&mut self, reserved: Reserved, now: Now) {
        let Reserved { reservation, messages, sorted_left, sorted, paused, .. } = reserved;
        let ids: Vec<_> = messages.iter().map(|message| Some(message.id.clone())).collect();
        let left = ids.len();
        if left > 0 {
            self.unsettled += left;
            self.reservations.insert(reservation, Unsettled { ids, left });
        }
        let messages = messages.into_iter().enumerate().map(|(index, message)| (Slot { reservation, index }, message));
        if let Some(fair) = &mut self.fair {
            fair.found_paused(paused, now);
            return self.hold_fairly(messages.collect(), (&sorted_left, sorted), now);
        }
        for (slot, message) in messages {
            self.hold(slot, message, now);
        }
    }

    fn hold(&mut self, slot: Slot, reserved: ReservedMessage, now: Now) {
        let ReservedMessage { id, ready_at, position, attempts, bytes, version, message } = reserved;
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                let last_error = Some(error.to_string().into());
                return self.bury(id, slot, None, DeadLetterReason::Unreadable, attempts, last_error);
            }
        };
        // A nack of the last attempt buries at once, so a lone charge is only what recovery supposes: perhaps nobody ever
        // had the message. It is handed out once more.
        if attempts > 1 && attempts >= self.attempts_of(&message) {
            let last_error = "every attempt ended without an answer: its consumer or its owner died".into();
            return self.bury(id, slot, None, DeadLetterReason::MaxAttempts, attempts, Some(last_error));
        }
        self.note_priority(message.envelope.priority);
        let (charged, charged_before) = (attempts, attempts);
        let (ticket, stood_behind, turn) = (0, false, self.turn_of(&message.envelope.key));
        let held = Held {
            slot,
            version,
            ready_at,
            position,
            charged,
            charged_before,
            ticket,
            turn,
            bytes,
            stood_behind,
            message,
        };
        self.line_up(held, now);
    }

    fn attempts_of(&self, message: &Message) -> u32 {
        match message.envelope.max_attempts.unwrap_or(self.policy.max_attempts) {
            0 => u32::MAX,
            limited => limited,
        }
    }

    /// Hands out up to so many messages, into the receipts of a session if they are for one; expired ones are settled instead and
    /// counted.
    pub fn take(
        &mut self,
        session_receipts: Option<&Arc<SessionReceipts>>,
        want: Want,
        now: Now,
        deliveries: &mut Vec<Delivery>,
    ) -> usize {
        let Want { max, per_key, gather, .. } = want;
        if let Some(order) = &mut self.order {
            order.per_key = per_key;
        }
        self.read_ahead_for(gather);
        let (mut expired, mut batch) = (0, None);
        let mut key = None;
        if gather.same_key {
            expired = self.expire(now);
            let Some(complete) = self.complete_key(want, now) else { return expired };
            key = Some(complete);
        }
        let wanted = deliveries.len() + max;
        let mut bytes: usize = deliveries.iter().map(|delivery| delivery.message.envelope.size()).sum();
        while deliveries.len() < wanted && bytes < DELIVERIES_BYTES_MAX && !self.is_shut() {
            let successor = batch.as_mut().and_then(|batch| self.successor(batch, want.min_age, now));
            let Some(held) = successor.or_else(|| self.next_ready(want, key.as_ref(), now)) else {
                let hungrier = (self.appetite * 2).max(max);
                self.appetite = hungrier.min(PREFETCH_MESSAGES_MAX);
                break;
            };
            bytes += held.bytes;
            if held.is_expired(now) {
                expired += 1;
                batch.iter_mut().for_each(|batch| batch.pass_over(&held));
                self.end_expired(held);
            } else {
                batch = Batch::follow(batch, &held, per_key);
                deliveries.push(self.hand_out(session_receipts, held, want, now));
            }
        }
        expired
    }

    fn next_ready(&mut self, want: Want, key: Option<&BatchKey>, now: Now) -> Option<Held> {
        self.choose(want, key, now).and_then(|position| self.ready.remove(position))
    }

    fn hand_out(
        &mut self,
        session_receipts: Option<&Arc<SessionReceipts>>,
        held: Held,
        Want { visibility_timeout, on_failure, .. }: Want,
        now: Now,
    ) -> Delivery {
        let serial = self.serial;
        self.serial += 1;
        let deadline = now.elapsed.plus(visibility_timeout);
        let attempt = held.charged.max(1);
        let max_attempts = self.attempts_of(&held.message);
        let id = held.message.id.clone();
        let receipt = self.receipts.receipt(serial, attempt, held.version, id.clone());
        let text = self.receipts.text(&receipt);
        let (slot, version, handed_at) = (held.slot, held.version, now.instant);
        let _guard = session_receipts.map(|session| session.hold(receipt));
        let ordered = self.order.as_mut().map(|order| Box::new(order.hand_out(&held, on_failure)));
        let key = held.message.envelope.key.clone();
        if let Some(fair) = &mut self.fair {
            fair.handed_out(&key, now);
        }
        let out = Out { slot, id, key, version, attempt, max_attempts, handed_at, deadline, _guard, ordered };
        self.out.insert(serial, out);
        self.deadlines.insert((deadline, serial));
        Delivery {
            receipt: text,
            message: held.message,
            attempt,
            partition: self.receipts.partition(),
            ready_at: held.ready_at,
            deadline: now.store.plus(visibility_timeout),
            lateness: now.store.since(held.ready_at),
            stood_behind: held.stood_behind,
        }
    }

    /// A delivery that is in flight and about which nothing was said since: it is made again, until a new deadline. Only with
    /// ordering, since the memory has the message then.
    pub fn repeat(&mut self, serial: u64, receipt: &str, visibility_timeout: Duration, now: Now) -> Option<Delivery> {
        let out = self.out.get_mut(&serial).filter(|out| out.deadline > now.elapsed)?;
        let held = out.ordered.as_ref().filter(|ordered| !ordered.is_extended())?.held();
        let deadline = now.elapsed.plus(visibility_timeout);
        self.deadlines.remove(&(out.deadline, serial));
        self.deadlines.insert((deadline, serial));
        out.deadline = deadline;
        let (attempt, deadline) = (out.attempt, now.store.plus(visibility_timeout));
        Some(Delivery {
            receipt: receipt.to_owned(),
            message: held.message.clone(),
            attempt,
            partition: self.receipts.partition(),
            ready_at: held.ready_at,
            deadline,
            lateness: now.store.since(held.ready_at),
            stood_behind: held.stood_behind,
        })
    }

    /// Whether [`Table::repeat`] would make a delivery again.
    pub fn may_repeat(&self, serial: u64, now: Now) -> bool {
        let out = self.out.get(&serial).filter(|out| out.deadline > now.elapsed);
        out.and_then(|out| out.ordered.as_ref()).is_some_and(|ordered| !ordered.is_extended())
    }

    /// The charges to make before more can be handed out: for what was due before the messages that are ready, so that a
    /// backlog does not hold up a retry, or when none are, for as many as are `wanted` now. An owner that dies between
    /// charge and hand-out costs an attempt, so no more than that. With ordering also for those that follow in a batch.
    pub fn charges(&mut self, wanted: usize, now: Now) -> Vec<Charge> {
        if !self.charging.is_empty() {
            return Vec::new();
        }
        if self.fair.is_some() && !self.gathers {
            self.charging = self.next_uncharged(wanted, now);
            return self.charges_of_charging();
        }
        let count = match self.ready.front() {
            None => self.uncharged.len().min(wanted).min(CALL_IDS_MAX),
            Some(_) if self.gathers => self.uncharged.len().min(wanted).min(CALL_IDS_MAX),
            Some(next) => {
                let first = self.uncharged.iter().take(CHARGED_AHEAD_MAX);
                first.take_while(|held| held.ready_at <= next.ready_at).count()
            }
        };
        self.charging = self.uncharged.drain(..count).collect();
        let mut charges = self.charges_of_charging();
        if let Some(order) = &mut self.order {
            for first in &self.charging {
                let room = wanted.min(CALL_IDS_MAX).saturating_sub(charges.len());
                charges.extend(order.charge_followers(first, room, self.drafted, now.store));
            }
        }
        charges
    }

    fn charges_of_charging(&self) -> Vec<Charge> {
        let charge = |held: &Held| Charge { id: held.message.id.clone(), attempts: held.charged + 1 };
        self.charging.iter().map(charge).collect()
    }

    pub fn charged(&mut self) {
        if let Some(order) = &mut self.order {
            order.charged();
        }
        for mut held in self.charging.drain(..).rev() {
            held.charged += 1;
            self.ready.push_front(held);
        }
    }

    /// Gives back everything that no consumer has, without a charge.
    pub fn give_back(&mut self) {
        self.appetite = APPETITE_FIRST;
        if self.order.is_some() {
            return self.give_back_in_order();
        }
        self.fair.iter_mut().for_each(|fair| fair.forget_turns());
        let held: Vec<Held> = self.ready.drain(..).chain(self.uncharged.drain(..)).collect();
        for held in held {
            self.return_unordered(held, false);
        }
    }

    fn bury(
        &mut self,
        id: MessageId,
        slot: Slot,
        lane: Option<Lane>,
        reason: DeadLetterReason,
        attempts: u32,
        last_error: Option<LastError>,
    ) {
        let record = DeadLetterRecord::new(reason, attempts, last_error);
        self.decide_end(id.clone(), slot, lane, DeliveryEnd::Dead(Buried { id, record, failure: None }));
    }

    fn decide_end(&mut self, id: MessageId, slot: Slot, lane: Option<Lane>, end: DeliveryEnd) {
        self.tickets += 1;
        self.decided.push_back(Undrafted { id, slot, lane, end });
    }
}

impl Table {
    pub fn is_full(&self) -> bool {
        self.out.len() >= self.policy.in_flight
    }
}

impl Table {
    /// When the first of the ready messages may be taken, by its age or in its batch; in the past if one may be. `None` while
    /// nothing could be handed out.
    pub fn ripe_at(&self, want: Want, now: Now) -> Option<Timestamp> {
        if self.is_shut() {
            return None;
        }
        if want.gather.waits() {
            return self.batch_at(want, now);
        }
        let open = self.ready.iter().filter(|held| self.is_open(&held.message.envelope, now));
        open.map(|held| held.message.envelope.pushed_at.plus(want.min_age)).min()
    }
}
