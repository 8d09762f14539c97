//! The owner's memory of one pair: what it has reserved, who has it, and what was decided about it.
//!
//! Pure: no I/O, no clock, no chance; they come in as values. What is in flight lives only here. When the owner is gone
//! the reservations in the store tell the next epoch what may have been handed out.

mod next_message;
mod pending_settlement;
mod order;
mod settle;
mod location;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use self::location::MessageLocation;
use self::next_message::NextMessage;
use self::order::{Keepsake, Lane, Order, lane_of};
pub(super) use self::settle::Decided;
use super::receipt::{Delivery, GroupTag, Receipt};
use super::session::{Hand, Place};
use super::verdict_cache::VerdictCache;
use crate::codec::{DeadReason, DeadRecord};
use crate::model::limits::{CALL_IDS_MAX, DELIVERIES_BYTES_MAX, PREFETCH_BYTES_MAX, PREFETCH_MESSAGES_MAX};
use crate::model::message::{Message, MessageId};
use crate::model::partition::Partition;
use crate::model::retry::Backoff;
use crate::model::time::Timestamp;
use crate::model::topic::Expiry;
use crate::platform::clock::Instant;
use crate::store::{
    Buried, Charge, Claim, Epoch, Reservation, ReserveLimit, Reserved, ReservedMessage, Retried, Returned,
};

/// What is prefetched before it is known how fast consumers are.
const APPETITE_FIRST: usize = 32;

/// Messages that are charged although others are ready: they are handed out next.
const CHARGED_AHEAD_MAX: usize = 32;

/// The two clocks and a roll of the dice, read once for each step.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The store's clock, never behind it.
    pub store: Timestamp,
    /// The local monotonic clock.
    pub instant: Instant,
    /// 0.0 to 1.0, for jitter.
    pub chance: f64,
}

/// What a consumer wants.
#[derive(Debug, Clone, Copy)]
pub struct Want {
    /// Messages, at most.
    pub max: usize,
    /// How long each has before it is nacked.
    pub visibility_timeout: Duration,
    /// Only messages that were pushed at least so long ago.
    pub min_age: Duration,
}

/// What the topic says about failures.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The delay between attempts.
    pub backoff: Backoff,
    /// Attempts before a message is dead, unless the message says otherwise.
    pub max_attempts: u32,
    /// How long settled ids are remembered.
    pub dedup_window: Duration,
    /// Whether the messages of a key come one after the other; fixed.
    pub ordered: bool,
    /// What becomes of a message whose time to live is over.
    pub on_expiry: Expiry,
    /// Deliveries that may be in flight.
    pub in_flight: usize,
}

/// Where a message stands in the reservation that took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    reservation: Reservation,
    index: usize,
}

/// A reserved message that nobody has yet.
#[derive(Debug)]
struct Held {
    slot: Slot,
    ready_at: Timestamp,
    /// Where it stood in the zset.
    place: Timestamp,
    /// Attempts that the store has charged.
    charged: u32,
    /// Attempts that were charged when it was reserved.
    charged_before: u32,
    bytes: usize,
    message: Message,
}

/// A message in the hands of a consumer. Its payload went with it.
#[derive(Debug)]
struct Out {
    slot: Slot,
    id: MessageId,
    attempt: u32,
    max_attempts: u32,
    handed_at: Instant,
    deadline: Instant,
    /// Frees a place in the hand of a session, whatever ends this delivery.
    _place: Option<Place>,
    /// In a topic with ordering it may be handed out again without being reserved again.
    keepsake: Option<Keepsake>,
}

/// What is to become of a message.
#[derive(Debug)]
enum Fate {
    Gone,
    Again(Retried),
    /// Failed, and stays reserved.
    Kept(Retried),
    Back(Returned),
    Dead(Buried),
}

/// The ids of a reservation that are not settled in the store.
#[derive(Debug)]
struct Unsettled {
    ids: Vec<Option<MessageId>>,
    left: usize,
}

/// The memory of one epoch of one pair.
#[derive(Debug)]
pub struct Table {
    partition: Partition,
    group: GroupTag,
    epoch: Epoch,
    policy: Policy,
    /// May be handed out at once, earliest first.
    ready: VecDeque<Held>,
    /// Was perhaps handed out before: an attempt has to be charged first.
    uncharged: VecDeque<Held>,
    /// Is being charged now.
    charging: Vec<Held>,
    held_bytes: usize,
    out: HashMap<u64, Out>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// With the key that goes on once it is settled.
    decided: VecDeque<(MessageId, Slot, Option<Lane>, Fate)>,
    reservations: HashMap<Reservation, Unsettled>,
    unsettled: usize,
    serial: u64,
    /// Tickets of decisions made, and of decisions handed out in drafts.
    tickets: u64,
    drafted: u64,
    /// None before the first delivery has ended.
    recent: Option<Box<VerdictCache>>,
    appetite: usize,
    order: Option<Box<Order>>,
    chooser: NextMessage,
}

impl Table {
    /// An empty memory.
    pub fn new(claim: &Claim, policy: Policy) -> Table {
        Table {
            partition: claim.pair.partition,
            group: GroupTag::of(&claim.pair.topic, &claim.pair.group),
            epoch: claim.epoch.clone(),
            order: policy.ordered.then(Box::default),
            policy,
            ready: VecDeque::new(),
            uncharged: VecDeque::new(),
            charging: Vec::new(),
            held_bytes: 0,
            out: HashMap::new(),
            deadlines: BTreeSet::new(),
            decided: VecDeque::new(),
            reservations: HashMap::new(),
            unsettled: 0,
            serial: 0,
            tickets: 0,
            drafted: 0,
            recent: None,
            appetite: APPETITE_FIRST,
            chooser: NextMessage::default(),
        }
    }

    /// The epoch of this memory.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// The topic's settings changed.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Messages that are reserved and not handed out.
    pub fn held(&self) -> usize {
        self.prefetched() + self.order.as_ref().map_or(0, |order| order.parked())
    }

    /// The same without those that stand behind others of their key.
    fn prefetched(&self) -> usize {
        self.ready.len() + self.uncharged.len() + self.charging.len()
    }

    /// Bytes of bodies that are ready or to be charged.
    pub fn prefetched_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether anything is held that would be given back.
    pub fn is_holding(&self) -> bool {
        self.held() > 0 || self.order.as_ref().is_some_and(|order| order.is_waiting())
    }

    /// Messages that may be handed out at once.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether nothing is held, out, or decided and not drafted: the lease may be given up.
    pub fn is_idle(&self) -> bool {
        !self.is_holding() && self.out.is_empty() && self.decided.is_empty()
    }

    /// Whether a consumer has a message in hand.
    pub fn is_out(&self) -> bool {
        !self.out.is_empty()
    }

    /// Messages that the store counts as reserved by this epoch.
    pub fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// How much may be reserved now, if anything.
    pub fn room(&self) -> Option<ReserveLimit> {
        let held = self.prefetched();
        let bytes = PREFETCH_BYTES_MAX.saturating_sub(self.held_bytes);
        if held > self.appetite / 2 || bytes == 0 || self.is_full() {
            return None;
        }
        let limit = ReserveLimit { messages: (self.appetite - held).min(CALL_IDS_MAX), bytes };
        self.order.as_ref().map_or(Some(limit), |order| order.room(limit))
    }

    /// Takes in what was reserved. Unreadable and exhausted messages die at once.
    pub fn reserved(&mut self, reserved: Reserved, now: Now) {
        if reserved.messages.is_empty() {
            return;
        }
        let ids: Vec<_> = reserved.messages.iter().map(|message| Some(message.id.clone())).collect();
        let left = ids.len();
        self.unsettled += left;
        self.reservations.insert(reserved.reservation, Unsettled { ids, left });
        for (index, message) in reserved.messages.into_iter().enumerate() {
            self.hold(Slot { reservation: reserved.reservation, index }, message, now);
        }
    }

    fn hold(&mut self, slot: Slot, reserved: ReservedMessage, now: Now) {
        let ReservedMessage { id, ready_at, place, attempts, bytes, message, .. } = reserved;
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                return self.bury(id, slot, None, DeadReason::Unreadable, attempts, Some(error.to_string()));
            }
        };
        // A nack of the last attempt buries at once, so a lone charge is only what recovery supposes: perhaps nobody ever
        // had the message. It is handed out once more.
        if attempts > 1 && attempts >= self.attempts_of(&message) {
            let last_error = "every attempt ended without an answer: its consumer or its owner died".to_owned();
            return self.bury(id, slot, None, DeadReason::MaxAttempts, attempts, Some(last_error));
        }
        self.note_priority(message.envelope.priority);
        self.line_up(Held { slot, ready_at, place, charged: attempts, charged_before: attempts, bytes, message }, now);
    }

    fn attempts_of(&self, message: &Message) -> u32 {
        message.envelope.max_attempts.unwrap_or(self.policy.max_attempts)
    }

    /// Hands out up to so many messages, into a hand if they are for a session; expired ones are settled instead and
    /// counted.
    pub fn take(&mut self, hand: Option<&Arc<Hand>>, want: Want, now: Now, deliveries: &mut Vec<Delivery>) -> usize {
        let Want { max, visibility_timeout, min_age } = want;
        let mut expired = 0;
        let wanted = deliveries.len() + max;
        let mut bytes: usize = deliveries.iter().map(|delivery| delivery.message.envelope.payload.len()).sum();
        while deliveries.len() < wanted && bytes < DELIVERIES_BYTES_MAX && !self.is_full() {
            let Some(held) = self.choose(min_age, now).and_then(|place| self.ready.remove(place)) else {
                let hungrier = (self.appetite * 2).max(max);
                self.appetite = hungrier.min(PREFETCH_MESSAGES_MAX);
                break;
            };
            self.held_bytes -= held.bytes;
            bytes += held.bytes;
            if held.message.envelope.expires_at.is_some_and(|at| at <= now.store) {
                expired += 1;
                let lane = self.order.as_ref().map(|_| lane_of(&held.message));
                match self.policy.on_expiry {
                    Expiry::Drop => self.decide_fate(held.message.id, held.slot, lane, Fate::Gone),
                    Expiry::Bury => {
                        self.bury(held.message.id, held.slot, lane, DeadReason::Expired, held.charged, None);
                    }
                }
            } else {
                deliveries.push(self.hand_out(hand, held, visibility_timeout, now));
            }
        }
        expired
    }

    fn hand_out(&mut self, hand: Option<&Arc<Hand>>, held: Held, visibility_timeout: Duration, now: Now) -> Delivery {
        let serial = self.serial;
        self.serial += 1;
        let deadline = now.instant.plus(visibility_timeout);
        let attempt = held.charged.max(1);
        let max_attempts = self.attempts_of(&held.message);
        let id = held.message.id.clone();
        let receipt = Receipt { partition: self.partition, epoch: self.epoch.clone(), serial, group: self.group };
        let (slot, handed_at) = (held.slot, now.instant);
        let _place = hand.map(|hand| hand.hold(receipt.clone()));
        let keepsake = self.order.as_mut().map(|order| order.hand_out(&held));
        self.out.insert(serial, Out { slot, id, attempt, max_attempts, handed_at, deadline, _place, keepsake });
        self.deadlines.insert((deadline, serial));
        Delivery {
            receipt,
            message: held.message,
            attempt,
            partition: self.partition,
            ready_at: held.ready_at,
            deadline: now.store.plus(visibility_timeout),
            lateness: now.store.since(held.ready_at),
        }
    }

    /// The charges to make before more can be handed out: for what was due before the messages that are ready, so that a
    /// backlog does not hold up a retry, or when none are, for as many as are `wanted` now. An owner that dies between
    /// charge and hand-out costs an attempt, so no more than that.
    pub fn charges(&mut self, wanted: usize) -> Vec<Charge> {
        if !self.charging.is_empty() {
            return Vec::new();
        }
        let count = match self.ready.front() {
            None => self.uncharged.len().min(wanted).min(CALL_IDS_MAX),
            Some(next) => {
                let first = self.uncharged.iter().take(CHARGED_AHEAD_MAX);
                first.take_while(|held| held.ready_at <= next.ready_at).count()
            }
        };
        self.charging = self.uncharged.drain(..count).collect();
        let charge = |held: &Held| Charge { id: held.message.id.clone(), attempts: held.charged + 1 };
        self.charging.iter().map(charge).collect()
    }

    /// The store has made the charges.
    pub fn charged(&mut self) {
        for mut held in self.charging.drain(..).rev() {
            held.charged += 1;
            self.ready.push_front(held);
        }
    }

    /// Gives everything back that nobody has, without a charge.
    pub fn give_back(&mut self) {
        self.appetite = APPETITE_FIRST;
        self.held_bytes = 0;
        let held: Vec<Held> = self.ready.drain(..).chain(self.uncharged.drain(..)).collect();
        if self.order.is_some() {
            return self.give_back_in_order(held);
        }
        for Held { slot, ready_at, charged, charged_before, message, .. } in held {
            let id = message.id;
            let fate = if charged == charged_before {
                Fate::Back(Returned { id: id.clone(), ready_at })
            } else {
                // Charged to be handed out, and then not handed out: the charge is taken back.
                Fate::Again(Retried { id: id.clone(), next_at: ready_at, attempts: charged_before, failure: None })
            };
            self.decide_fate(id, slot, None, fate);
        }
    }

    fn bury(
        &mut self,
        id: MessageId,
        slot: Slot,
        lane: Option<Lane>,
        reason: DeadReason,
        attempts: u32,
        last_error: Option<String>,
    ) {
        let record = DeadRecord::new(reason, attempts, last_error);
        self.decide_fate(id.clone(), slot, lane, Fate::Dead(Buried { id, record, failure: None }));
    }

    fn decide_fate(&mut self, id: MessageId, slot: Slot, lane: Option<Lane>, fate: Fate) {
        self.tickets += 1;
        self.decided.push_back((id, slot, lane, fate));
    }
}
