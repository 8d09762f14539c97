//! The orders of the demo and their messages, the same every time since chance is seeded; and the ledger of what became of
//! each message, by our own clock whatever the broker claims.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use dwell_client::NewMessage;
use dwell_client::wire::consume::Delivery;
use dwell_client::wire::push::PushResult;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;

const ORDERS: u32 = 3_000;
const SMS_EVERY: u32 = 5;
const CALLBACK_EVERY: u32 = 30;
const PULSES: u32 = 1_000;
const SEED: u64 = 7_373;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// When an unpaid order is closed: 30 minutes, three hundred times as fast. The orders came in over the last 5 minutes.
const CLOSE_AFTER: (Duration, Duration) = (ms(5_000), ms(6_000));

/// When an SMS reminds of it: 10 to 15 minutes.
const SMS_AFTER: (Duration, Duration) = (ms(2_000), ms(3_000));
const CALLBACK_AFTER: (Duration, Duration) = (ms(1_000), ms(2_000));
const POISON_AFTER: Duration = ms(1_500);
const PULSE_OVER: (Duration, Duration) = (ms(300), ms(10_300));

pub(super) const CALLBACK_RETRIES: [Duration; 2] = [ms(400), ms(800)];

pub(super) const POISON_BACKOFF: [Duration; 2] = [ms(300), ms(600)];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    CloseIfUnpaid,
    SendSms,
    Callback,
    Pulse,
}

/// An order, as the shop's own database has it: the consumer looks there whether it was paid meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Order {
    number: String,
    customer: String,
    phone: String,
    amount_cents: u32,
    pub(super) paid: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) order: String,
    pub(super) action: Action,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    customer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    amount_cents: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// Why a message is pushed: what the ledger counts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Close,
    Sms,
    Callback,
    Poison,
    Pulse,
}

#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) id: String,
    key: String,
    payload: String,
    content_type: &'static str,
    pub(super) delay: Duration,
    max_attempts: Option<u32>,
    pub(super) kind: Kind,
}

impl From<&Planned> for NewMessage {
    fn from(planned: &Planned) -> NewMessage {
        let Planned { id, key, payload, content_type, delay, max_attempts, .. } = planned;
        let message = NewMessage::text(payload).id(id).key(key).content_type(*content_type).delay(*delay);
        max_attempts.iter().copied().fold(message, NewMessage::max_attempts)
    }
}

pub(super) const POISON_ATTEMPTS: u32 = 3;

pub(super) fn orders() -> Vec<Order> {
    const FIRST: [&str; 10] = ["Ada", "Mara", "Jonas", "Wei", "Amara", "Luis", "Noor", "Ivo", "Hana", "Tomasz"];
    const LAST: [&str; 10] =
        ["Lindqvist", "Okafor", "Castillo", "Novak", "Tanaka", "Haddad", "Kowalski", "Berg", "Silva", "Moreau"];
    let mut rng = Rng::with_seed(SEED);
    let order = |index: u32| {
        let name = |rng: &mut Rng, names: &[&str]| rng.choice(names.iter()).copied().unwrap_or_default().to_owned();
        Order {
            number: format!("A-{}", 10_001 + index),
            customer: format!("{} {}", name(&mut rng, &FIRST), name(&mut rng, &LAST)),
            phone: format!("+49 151 {:07}", rng.u32(0..10_000_000)),
            amount_cents: rng.u32(499..50_000),
            paid: rng.u8(0..100) < 60,
        }
    };
    (0..ORDERS).map(order).collect()
}

pub(super) fn paid(orders: &[Order]) -> HashMap<&str, bool> {
    orders.iter().map(|order| (order.number.as_str(), order.paid)).collect()
}

pub(super) fn plan(orders: &[Order]) -> Vec<Planned> {
    let mut rng = Rng::with_seed(SEED + 1);
    let mut planned = Vec::new();
    for (index, order) in (0..).zip(orders) {
        planned.push(order.message(Kind::Close, between(&mut rng, CLOSE_AFTER)));
        if index % SMS_EVERY == 0 {
            planned.push(order.message(Kind::Sms, between(&mut rng, SMS_AFTER)));
        }
        if index % CALLBACK_EVERY == 0 {
            planned.push(order.message(Kind::Callback, between(&mut rng, CALLBACK_AFTER)));
        }
        if index == ORDERS / 2 {
            planned.push(order.message(Kind::Poison, POISON_AFTER));
        }
    }
    planned
}

pub(super) fn pulses() -> Vec<Planned> {
    let mut rng = Rng::with_seed(SEED + 2);
    let pulse = |index: u32| {
        let order = format!("P-{}", 1 + index);
        let work = Work { order, action: Action::Pulse, customer: None, phone: None, amount_cents: None, url: None };
        planned(Kind::Pulse, &work, "pulse", between(&mut rng, PULSE_OVER))
    };
    (0..PULSES).map(pulse).collect()
}

fn between(rng: &mut Rng, (from, to): (Duration, Duration)) -> Duration {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(0);
    Duration::from_millis(rng.u64(ms(from)..ms(to)))
}

impl Order {
    fn message(&self, kind: Kind, delay: Duration) -> Planned {
        let (action, name) = match kind {
            Kind::Close => (Action::CloseIfUnpaid, "close"),
            Kind::Sms => (Action::SendSms, "sms"),
            Kind::Callback => (Action::Callback, "callback"),
            Kind::Poison => (Action::CloseIfUnpaid, "poison"),
            Kind::Pulse => (Action::Pulse, "pulse"),
        };
        let work = Work {
            order: self.number.clone(),
            action,
            customer: Some(self.customer.clone()),
            phone: (kind == Kind::Sms).then(|| self.phone.clone()),
            amount_cents: Some(self.amount_cents),
            url: (kind == Kind::Callback).then(|| format!("https://shop.example/hooks/orders/{}", self.number)),
        };
        planned(kind, &work, name, delay)
    }
}

fn planned(kind: Kind, work: &Work, name: &str, delay: Duration) -> Planned {
    // Texts and numbers cannot fail to be JSON.
    let mut payload = serde_json::to_string(work).unwrap_or_default();
    if kind == Kind::Poison {
        // As a producer writes it that was cut off: no consumer can ever read this.
        payload.truncate(payload.len() / 2);
    }
    Planned {
        id: format!("{}.{name}", work.order),
        key: work.order.clone(),
        payload,
        content_type: "application/json",
        delay,
        max_attempts: (kind == Kind::Poison).then_some(POISON_ATTEMPTS),
        kind,
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    messages: HashMap<String, Life>,
    pub(super) strangers: Vec<String>,
    pub(super) refused: Vec<String>,
    pub(super) closed: u64,
    pub(super) paid: u64,
}

#[derive(Debug)]
pub(super) struct Life {
    pub(super) kind: Kind,
    /// The due time in the answer to the push; nothing when it was not stored.
    pub(super) due_at: Option<Timestamp>,
    pub(super) seen: Vec<Seen>,
    pub(super) acked: bool,
    /// The consumer has given it up: it nacked its last attempt.
    pub(super) given_up: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) attempt: u32,
    pub(super) at: Timestamp,
    pub(super) due_at: Timestamp,
    pub(super) lateness: Duration,
    pub(super) nacked: Option<(Timestamp, Duration)>,
}

impl Life {
    fn is_over(&self) -> bool {
        self.acked || self.given_up
    }

    /// The earliest time, by our clock, at which each delivery may come. A message that was never stored may never be delivered.
    pub(super) fn not_before(&self) -> impl Iterator<Item = (Timestamp, &Seen)> {
        let retries = self.seen.iter().map(|seen| {
            let never = Timestamp::from_ms(u64::MAX);
            seen.nacked.map_or(never, |(at, delay)| at.plus(delay))
        });
        std::iter::once(self.due_at.unwrap_or(Timestamp::from_ms(u64::MAX))).chain(retries).zip(&self.seen)
    }
}

impl Ledger {
    /// Notes what is about to be pushed: a delivery may be faster than the answer to the push.
    pub(super) fn expect(&mut self, planned: &[Planned]) {
        for message in planned {
            let life = Life { kind: message.kind, due_at: None, seen: Vec::new(), acked: false, given_up: false };
            self.messages.insert(message.id.clone(), life);
        }
    }

    pub(super) fn pushed(&mut self, results: &[PushResult]) {
        for result in results.iter().filter(|result| result.is_accepted()) {
            if let Some(life) = self.messages.get_mut(&result.id) {
                life.due_at = result.due_at;
            }
        }
    }

    pub(super) fn delivered(&mut self, delivery: &Delivery, at: Timestamp) {
        let lateness = Duration::from_millis(delivery.lateness_ms);
        let seen = Seen { attempt: delivery.attempt, at, due_at: delivery.due_at, lateness, nacked: None };
        match self.messages.get_mut(&delivery.id) {
            Some(life) => life.seen.push(seen),
            None => self.strangers.push(delivery.id.clone()),
        }
    }

    /// Notes that a delivery is about to be nacked, and when it may come again; nothing when it must not.
    pub(super) fn nacking(&mut self, id: &str, at: Timestamp, again: Option<Duration>) {
        if let Some(seen) = self.messages.get_mut(id).and_then(|life| life.seen.last_mut()) {
            seen.nacked = again.map(|delay| (at, delay));
        }
    }

    pub(super) fn settled(&mut self, id: &str, wanted: &str, status: &str) {
        // Pending is a promise to do it; whether it was kept shows at the end, when nothing may be left.
        let expected = match status {
            "acked" | "nacked" => status == wanted,
            // The status of the nack of a last attempt.
            "buried" => wanted == "nacked",
            other => other == "pending",
        };
        match self.messages.get_mut(id) {
            Some(life) if expected => {
                life.acked = wanted == "acked";
                life.given_up = !life.acked && life.seen.last().is_some_and(|seen| seen.nacked.is_none());
            }
            _ => self.refused.push(format!("{id} {status}")),
        }
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = (&str, &Life)> {
        self.messages.iter().map(|(id, life)| (id.as_str(), life))
    }

    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Life> {
        self.messages.values().filter(move |life| life.kind == kind)
    }

    pub(super) fn open(&self) -> usize {
        self.messages.values().filter(|life| !life.is_over()).count()
    }

    /// For each kind: messages that are over, and deliveries.
    pub(super) fn counts(&self) -> BTreeMap<Kind, (u64, u64)> {
        let mut counts = BTreeMap::new();
        for life in self.messages.values() {
            let (over, deliveries) = counts.entry(life.kind).or_insert((0, 0));
            *over += u64::from(life.is_over());
            *deliveries += life.seen.len() as u64;
        }
        counts
    }
}

/// The offset of the store's clock, from the answers to pushes: a due time is the store's time at accept plus the delay, and
/// accept lies between sending and answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offset {
    at_least_ms: i64,
    at_most_ms: i64,
}

impl Default for Offset {
    fn default() -> Offset {
        Offset { at_least_ms: i64::MIN, at_most_ms: i64::MAX }
    }
}

impl Offset {
    pub(super) fn observe(&mut self, due_at: Timestamp, delay: Duration, sent_at: Timestamp, answered_at: Timestamp) {
        let ms = |at: Timestamp| i64::try_from(at.as_ms()).unwrap_or(i64::MAX);
        let accepted = ms(due_at) - i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        // The store rounds its time up to the millisecond, we cut ours down: one of each.
        self.at_least_ms = self.at_least_ms.max(accepted - ms(answered_at) - 2);
        self.at_most_ms = self.at_most_ms.min(accepted - ms(sent_at));
    }

    /// How far the store's clock is ahead of ours at most; zero when it may well be the same clock.
    pub(super) fn ahead(&self) -> Duration {
        match (self.at_least_ms, self.at_most_ms) {
            (..=0, 0..) => Duration::ZERO,
            (_, at_most) => Duration::from_millis(u64::try_from(at_most).unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn demo_runs_push_the_same_messages_with_unique_ids() {
        let text = || format!("{:?}", [plan(&orders()), pulses()].concat());
        assert_eq!(text(), text());
        let all = [plan(&orders()), pulses()].concat();
        let ids: HashSet<_> = all.iter().map(|message| &message.id).collect();
        assert_eq!((ids.len(), all.len()), (4_701, 4_701));
        let of = |kind| all.iter().filter(|message| message.kind == kind).count();
        assert_eq!(
            [Kind::Close, Kind::Sms, Kind::Callback, Kind::Poison, Kind::Pulse].map(of),
            [3_000, 600, 100, 1, 1_000]
        );
    }

    #[test]
    fn every_payload_except_the_poison_one_parses() {
        for message in [plan(&orders()), pulses()].concat() {
            let read = serde_json::from_str::<Work>(&message.payload);
            assert_eq!(read.is_err(), message.kind == Kind::Poison, "{}", message.payload);
            assert!(message.payload.starts_with("{\"order\":\""), "{}", message.payload);
        }
    }

    #[test]
    fn clock_offset_is_zero_locally_and_measured_otherwise() {
        let at = Timestamp::from_ms;
        let delay = Duration::from_secs(1);
        let with = |store_ms: u64| {
            let mut offset = Offset::default();
            offset.observe(at(store_ms + 1_000), delay, at(500), at(510));
            offset.observe(at(store_ms + 1_004), delay, at(504), at(507));
            offset.ahead().as_millis()
        };
        assert_eq!(with(500), 0);
        assert_eq!(with(503), 0);
        assert_eq!(with(700), 200);
        assert_eq!(with(300), 0, "a store behind us delivers late by our clock, never early");
    }
}
