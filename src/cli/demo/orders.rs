//! The orders of the demo and the messages that go with them. The same every time: chance is seeded.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::model::time::span;

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

#[derive(Debug, Clone, Serialize)]
pub(super) struct Planned {
    pub(super) id: String,
    key: String,
    payload: String,
    content_type: &'static str,
    #[serde(with = "span")]
    pub(super) delay: Duration,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip)]
    pub(super) kind: Kind,
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn demo_runs_push_the_same_messages_with_unique_ids() {
        let text = || serde_json::to_string(&[plan(&orders()), pulses()].concat()).unwrap_or_default();
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
}
