//! Consumers that reserve at one broker and settle at any, while brokers are killed, frozen and restarted, and so is Redis: each
//! verdict is held to a ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use futures_util::future::{join, join_all, try_join_all};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fleet::{Fleet, ORDERS};
use super::sidecar::{Sidecar, Taken};
use super::{TTL, passed};
use crate::support::{RedisServer, eventually};

/// Consumers, each of which asks a random broker each time.
const CONSUMERS: usize = 8;

/// Messages that are taken at a time.
const BATCH: usize = 20;

/// Batches after which an ack that was answered is repeated.
const LATE: usize = 20;

/// What is said of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Ack,
    Nack,
    Extend,
}

/// A delivery, and the verdicts on what was said of it.
#[derive(Debug, Default)]
struct Handed {
    id: String,
    verdicts: Vec<(Said, String)>,
}

/// What everybody was told.
#[derive(Default)]
pub(super) struct Book {
    /// By receipt.
    handed: BTreeMap<String, Handed>,
    /// The receipt with which each message was acked.
    acked: BTreeMap<String, String>,
    /// The attempt of each delivery.
    attempts: BTreeMap<String, u64>,
    /// Messages that are not in `acked`, with an ack of which nobody knows what became.
    perhaps: BTreeSet<String>,
    /// How often each verdict was told.
    pub(super) told: BTreeMap<String, usize>,
    /// Verdicts that are wrong, and messages that came again although they were acked.
    pub(super) wrong: Vec<String>,
}

impl Book {
    fn delivered(&mut self, taken: &[Taken]) {
        for Taken { id, receipt, attempt, .. } in taken {
            self.attempts.insert(receipt.clone(), *attempt);
            // A broker that stood still may tell of an earlier delivery only now.
            let later = |before: &&String| self.attempts.get(*before).is_some_and(|before| before <= attempt);
            if let Some(before) = self.acked.get(id).filter(later) {
                self.wrong.push(format!("{id} came again with {receipt}, after it was acked with {before}"));
            }
            self.handed.insert(receipt.clone(), Handed { id: id.clone(), verdicts: Vec::new() });
        }
    }

    /// Without an answer there are no results.
    fn told(&mut self, said: Said, receipts: &[String], results: &[Value]) {
        for (n, receipt) in receipts.iter().enumerate() {
            let word = |name: &str| results.get(n).and_then(|result| result[name].as_str()).unwrap_or("none");
            let (status, reason) = (word("status").to_owned(), word("reason"));
            let verdict = if status == "stale" { format!("stale, {reason}") } else { status };
            *self.told.entry(format!("{said:?}: {verdict}")).or_default() += 1;
            let Some(handed) = self.handed.get_mut(receipt) else { continue };
            handed.verdicts.push((said, verdict.clone()));
            let id = handed.id.clone();
            match (said, verdict.as_str()) {
                (Said::Ack, "acked") => {
                    self.perhaps.remove(&id);
                    if let Some(before) = self.acked.insert(id.clone(), receipt.clone()).filter(|it| it != receipt) {
                        self.wrong.push(format!("{id} was acked with {before} and with {receipt}"));
                    }
                }
                (Said::Ack, "none" | "pending" | "unreachable" | "unknown_outcome") => {
                    if !self.acked.contains_key(&id) {
                        self.perhaps.insert(id);
                    }
                }
                (Said::Nack, "nacked" | "buried" | "none" | "pending" | "unreachable" | "unknown_outcome") => {}
                (Said::Extend, "extended" | "none" | "pending" | "unreachable" | "unknown_outcome") => {}
                (_, stale) if stale.starts_with("stale, ") => {}
                (_, other) => self.wrong.push(format!("{said:?} of {receipt}: {other}")),
            }
            self.agree(receipt);
        }
    }

    /// The verdicts on one delivery do not contradict each other. Only one decision is ever made of it here.
    fn agree(&mut self, receipt: &str) {
        let Some(handed) = self.handed.get(receipt) else { return };
        let has =
            |wanted: &str| handed.verdicts.iter().any(|(said, verdict)| *said != Said::Extend && verdict == wanted);
        let is_settled = has("acked") || has("nacked");
        if (has("acked") && has("nacked"))
            || (is_settled && has("stale, deadline_passed"))
            || has("stale, already_settled")
        {
            self.wrong.push(format!("{receipt} of {}: {:?}", handed.id, handed.verdicts));
        }
    }

    /// Messages of which somebody was told that they are acked, and others that may be.
    fn counts(&self) -> (usize, usize) {
        (self.acked.len(), self.perhaps.len())
    }
}

/// Brokers behind one address, and what their consumers were told.
#[derive(Default)]
struct Shop {
    doors: Mutex<Vec<Sidecar>>,
    book: Mutex<Book>,
    over: CancellationToken,
}

impl Shop {
    fn doors(&self) -> MutexGuard<'_, Vec<Sidecar>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn door(&self) -> Result<Sidecar> {
        fastrand::choice(self.doors().iter()).cloned().ok_or_else(|| Error::bug("no broker"))
    }

    /// Says something of deliveries at a random broker.
    async fn say(&self, said: Said, receipts: &[String]) {
        let (verb, body) = match said {
            Said::Ack => ("ack", json!({"receipts": receipts})),
            Said::Nack => ("nack", json!({"receipts": receipts, "delay": "0s"})),
            Said::Extend => ("extend", json!({"receipts": receipts, "visibility_timeout": "10s"})),
        };
        let Ok(door) = self.door() else { return };
        let answer = door.tell(&format!("POST /v1/topics/{ORDERS}/groups/default/{verb}"), &body).await;
        let results = answer.ok().and_then(|answer| answer["results"].as_array().cloned()).unwrap_or_default();
        self.book().told(said, receipts, &results);
    }

    /// Takes messages and settles them until it is over: some are extended before, some are settled twice at once, and some
    /// acks are repeated much later.
    async fn consume(&self) -> Result<()> {
        let mut late: Vec<(usize, Vec<String>)> = Vec::new();
        for round in 0.. {
            if self.over.is_cancelled() {
                break;
            }
            let reserved = self.door()?.reserve(ORDERS, BATCH, "200ms").await;
            let Ok(taken) = reserved else {
                // It is being restarted.
                passed(Instant::now(), Duration::from_millis(20)).await?;
                continue;
            };
            self.book().delivered(&taken);
            let receipts: Vec<String> = taken.into_iter().map(|taken| taken.receipt).collect();
            if receipts.is_empty() {
                continue;
            }
            if fastrand::u8(..10) == 0 {
                self.say(Said::Extend, &receipts).await;
            }
            let (acks, nacks): (Vec<String>, Vec<String>) = receipts.into_iter().partition(|_| fastrand::u8(..10) > 0);
            for (said, receipts) in [(Said::Ack, acks), (Said::Nack, nacks)] {
                let copies = usize::from(!receipts.is_empty()) * if fastrand::u8(..5) == 0 { 2 } else { 1 };
                join_all((0..copies).map(|_| self.say(said, &receipts))).await;
                if said == Said::Ack && fastrand::u8(..10) == 0 && !receipts.is_empty() {
                    late.push((round, receipts));
                }
            }
            if let Some((_, receipts)) = late.pop_if(|(said, _)| *said + LATE < round) {
                self.say(Said::Ack, &receipts).await;
            }
        }
        Ok(())
    }

    /// Waits until so many messages are acked. It may take long, but something has to happen all the time.
    async fn flows(&self, goal: usize) -> Result<()> {
        let acked = || self.book().acked.len();
        while acked() < goal {
            let before = acked();
            eventually("messages are acked", async || Ok((acked() > before).then_some(()))).await?;
        }
        Ok(())
    }

    /// Waits until nothing is open, and the topic is empty.
    async fn drained(&self, messages: usize) -> Result<()> {
        let open = || {
            let (acked, perhaps) = self.book().counts();
            messages - acked - perhaps
        };
        while open() > 0 {
            let before = open();
            eventually("what is open is settled", async || Ok((open() < before).then_some(()))).await?;
        }
        let door = self.door()?;
        eventually("the topic is empty", async || {
            Ok(door.counts(ORDERS).await.is_ok_and(|counts| counts == [0; 4]).then_some(()))
        })
        .await
    }
}

/// What a story found.
pub(super) struct Settled {
    pub(super) book: Book,
    /// How long single acks took at the broker that handed the delivery out, and at another one, shortest first.
    pub(super) local: Vec<Duration>,
    pub(super) foreign: Vec<Duration>,
    /// Datagrams between the brokers that were taken for invalid.
    pub(super) dropped: f64,
}

impl Settled {
    /// How many messages were acked, and how many perhaps.
    pub(super) fn counts(&self) -> (usize, usize) {
        self.book.counts()
    }
}

/// The duration that this share does not exceed.
pub(super) fn at(spans: &[Duration], share: f64) -> Duration {
    let last = spans.len().saturating_sub(1);
    spans.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
}

/// Until all messages are settled: a broker is killed and restarted, one stands still for two ttl, Redis is killed and restarted, and
/// the last broker is restarted gracefully.
async fn fail(fleet: &mut Fleet, shop: &Shop, messages: usize) -> Result<()> {
    let member = |at: usize| shop.doors().get(at).cloned().ok_or_else(|| Error::bug("no such broker"));
    shop.flows(messages / 5).await?;
    let killed = member(1)?;
    killed.signal(Signal::KILL)?;
    killed.ended().await?;
    let started = fleet.start("b").await?;
    shop.doors()[1] = started;
    shop.flows(messages * 2 / 5).await?;
    let (frozen, since) = (member(2)?, Instant::now());
    frozen.signal(Signal::STOP)?;
    passed(since, TTL * 2).await?;
    frozen.signal(Signal::CONT)?;
    shop.flows(messages * 3 / 5).await?;
    fleet.redis.kill()?;
    fleet.redis.restart().await?;
    shop.flows(messages * 4 / 5).await?;
    let restarted = member(0)?;
    restarted.signal(Signal::TERM)?;
    restarted.ended().await?;
    let started = fleet.start("a").await?;
    shop.doors()[0] = started;
    shop.drained(messages).await
}

/// Three brokers and their failures. Then single acks are measured.
pub(super) async fn settle_anywhere(messages: usize, measured: usize) -> Result<Settled> {
    let mut fleet = Fleet::of(RedisServer::durable().await?).await?;
    let shop = Shop::default();
    for name in ["a", "b", "c"] {
        let started = fleet.start(name).await?;
        shop.doors().push(started);
    }
    let first = shop.door()?;
    let settings = json!({"partitions": 16, "dedup_window": "10m", "visibility_timeout": "10s", "max_attempts": 100});
    first.tell(&format!("PUT /v1/topics/{ORDERS}"), &settings).await?;
    push(&first, 0..messages).await?;
    let consumers = try_join_all((0..CONSUMERS).map(|_| shop.consume()));
    let failures = async {
        let failed = fail(&mut fleet, &shop, messages).await;
        shop.over.cancel();
        failed
    };
    let (consumed, failed) = join(consumers, failures).await;
    failed?;
    consumed?;
    let (local, foreign) = measure(&shop, messages..messages + measured).await?;
    let doors = shop.doors().clone();
    let dropped = try_join_all(doors.iter().map(|door| door.metric("dwell_remote_dropped_total", "invalid"))).await?;
    let book = std::mem::take(&mut *shop.book());
    Ok(Settled { book, local, foreign, dropped: dropped.iter().sum() })
}

async fn push(at: &Sidecar, messages: std::ops::Range<usize>) -> Result<()> {
    let message = |n: &usize| json!({"id": format!("m{n}"), "payload": "x"});
    for page in messages.collect::<Vec<_>>().chunks(1_000) {
        at.push(ORDERS, &page.iter().map(message).collect::<Vec<_>>()).await?;
    }
    Ok(())
}

/// Acks one by one, in turn at the broker that handed the delivery out and at another one.
async fn measure(shop: &Shop, messages: std::ops::Range<usize>) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let doors = shop.doors().clone();
    let count = messages.len();
    push(&doors[0], messages).await?;
    let (mut local, mut foreign) = (Vec::new(), Vec::new());
    while local.len() + foreign.len() < count {
        let from = fastrand::usize(..doors.len());
        for taken in doors[from].reserve(ORDERS, BATCH, "200ms").await? {
            let is_local = local.len() <= foreign.len();
            let to = if is_local { from } else { (from + 1) % doors.len() };
            let since = Instant::now();
            let verdicts = doors[to].ack(ORDERS, std::slice::from_ref(&taken)).await?;
            if is_local { &mut local } else { &mut foreign }.push(since.elapsed());
            if verdicts != ["acked"] {
                return Err(Error::bug(format!("{} acked at another broker: {verdicts:?}", taken.id)));
            }
        }
    }
    local.sort_unstable();
    foreign.sort_unstable();
    Ok((local, foreign))
}

#[cfg(test)]
#[tokio::test]
async fn every_verdict_is_exact_at_any_broker_under_faults() -> Result<()> {
    let messages = 2_000;
    let settled = settle_anywhere(messages, 100).await?;
    println!("{:?} of {messages}; {:#?}", settled.counts(), settled.book.told);
    println!("p99 of an ack: local {:?}, foreign {:?}", at(&settled.local, 0.99), at(&settled.foreign, 0.99));
    assert_eq!(settled.book.wrong, [""; 0]);
    assert_eq!(settled.dropped, 0.0);
    let (acked, perhaps) = settled.counts();
    assert_eq!(acked + perhaps, messages);
    Ok(())
}
