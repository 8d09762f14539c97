//! The orders of the demo and the messages that go with them. The same every time: chance is seeded. And their
//! consumers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};

use super::ledger::Ledger;
use crate::cli::api::{Delivery, Nack, Reserve, Verdict};
use crate::cli::client::{CallResult, Client, GroupOf};
use crate::cli::failure::Failure;
use crate::model::time::span;
use crate::platform::clock::{Clock, Instant};

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

const MAX: usize = 100;
const WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
pub(super) struct Consumer<'a> {
    pub(super) client: &'a Client,
    pub(super) of: &'a GroupOf,
    pub(super) ledger: &'a RefCell<Ledger>,
    pub(super) clock: &'a Clock,
    pub(super) orders: &'a [Order],
}

#[derive(Default)]
struct Decisions {
    acks: Vec<(String, String)>,
    nacks: Vec<(String, Nack)>,
}

impl Consumer<'_> {
    /// Consumes until `until`. Everything that fails here ends the demo.
    pub(super) async fn run(self, until: Instant) -> Result<(), Failure> {
        let paid = paid(self.orders);
        let request = Reserve { max: MAX, wait: WAIT, visibility_timeout: None, min_age: None, per_key: None };
        let mut settling = FuturesUnordered::new();
        while self.clock.instant() < until {
            let reserving = self.client.reserve(self.of, &request);
            tokio::pin!(reserving);
            let deliveries = loop {
                tokio::select! {
                    deliveries = &mut reserving => break deliveries?,
                    Some(settled) = settling.next(), if !settling.is_empty() => settled?,
                }
            };
            let at = self.clock.now();
            let mut decisions = Decisions::default();
            for delivery in &deliveries {
                self.ledger.borrow_mut().delivered(delivery, at);
                self.decide(delivery, &mut decisions, |order| paid.get(order).copied().unwrap_or(false));
            }
            settling.push(self.settle(decisions));
        }
        while let Some(settled) = settling.next().await {
            settled?;
        }
        Ok(())
    }

    fn decide(&self, delivery: &Delivery, decisions: &mut Decisions, is_paid: impl Fn(&str) -> bool) {
        let text = delivery.payload.text.as_deref().unwrap_or_default();
        let failed = |delay, again, reason: String| {
            self.ledger.borrow_mut().nacking(&delivery.id, self.clock.now(), again);
            (delivery.id.clone(), Nack { receipt: delivery.receipt.clone(), delay, reason: Some(reason) })
        };
        let before = usize::try_from(delivery.attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        match serde_json::from_str::<Work>(text) {
            Err(why) => {
                // The consumer leaves it to the topic's backoff, and the broker to give up.
                let again = POISON_BACKOFF.get(before).copied().filter(|_| delivery.attempt < POISON_ATTEMPTS);
                decisions.nacks.push(failed(None, again, format!("unreadable payload: {why}")));
                return;
            }
            Ok(work) if work.action == Action::Callback => {
                if let Some(delay) = CALLBACK_RETRIES.get(before).copied() {
                    let reason = format!("503 Service Unavailable from the shop, order {}", work.order);
                    decisions.nacks.push(failed(Some(delay), Some(delay), reason));
                    return;
                }
            }
            Ok(work) if work.action == Action::CloseIfUnpaid => {
                let mut ledger = self.ledger.borrow_mut();
                if is_paid(&work.order) { ledger.paid += 1 } else { ledger.closed += 1 }
            }
            Ok(_) => {}
        }
        decisions.acks.push((delivery.id.clone(), delivery.receipt.clone()));
    }

    async fn settle(self, decisions: Decisions) -> Result<(), Failure> {
        if !decisions.acks.is_empty() {
            let (ids, receipts): (Vec<_>, Vec<_>) = decisions.acks.into_iter().unzip();
            self.note(&ids, "acked", self.client.ack(self.of, &receipts, false).await)?;
        }
        if !decisions.nacks.is_empty() {
            let (ids, nacks): (Vec<_>, Vec<_>) = decisions.nacks.into_iter().unzip();
            self.note(&ids, "nacked", self.client.nack(self.of, &nacks).await)?;
        }
        Ok(())
    }

    fn note(&self, ids: &[String], wanted: &str, verdicts: CallResult<Vec<Verdict>>) -> Result<(), Failure> {
        let verdicts = verdicts?;
        let mut ledger = self.ledger.borrow_mut();
        for (id, verdict) in ids.iter().zip(&verdicts) {
            ledger.settled(id, wanted, &verdict.status);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_demo_pushes_the_same_messages_under_ids_of_their_own() {
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
    fn every_payload_but_the_poison_can_be_read() {
        for message in [plan(&orders()), pulses()].concat() {
            let read = serde_json::from_str::<Work>(&message.payload);
            assert_eq!(read.is_err(), message.kind == Kind::Poison, "{}", message.payload);
            assert!(message.payload.starts_with("{\"order\":\""), "{}", message.payload);
        }
    }
}
