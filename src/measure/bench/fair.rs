//! A burst of one key beside many keys that have one message each: how long these wait, in a group that is fair and in one that is not.

use std::cell::Cell;
use std::num::NonZeroU16;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::latency::{ratio, usage};
use super::target::per_second;
use super::{BATCH, Bench, LANES};
use crate::broker::{Broker, GroupRequest, ReserveRequest};
use crate::cli::failure::Failure;
use crate::delivery::{Decision, Delivery};
use crate::model::message::{GroupName, Key, NewMessage, TopicName};
use crate::model::time::Timestamp;
use crate::model::topic::{Fairness, Settings};
use crate::platform::clock::{Clock, Instant};

/// Keys with one message each, due at the same instant as the burst.
const QUIET_KEYS: usize = 1_000;

/// The key that becomes due while the burst is being delivered, and how long after it.
const LATER: &str = "later";
const LATER_BY: Duration = Duration::from_secs(1);

const WAIT: Duration = Duration::from_secs(5);

/// Until the burst is due: it is all there by then.
const PUSHED_WITHIN: Duration = Duration::from_secs(1);

/// Quiet keys that have been served, and when; times are those of the store.
#[derive(Debug, Default)]
struct Served {
    all: Cell<usize>,
    quiet: Cell<usize>,
    first_quiet: Cell<Option<Instant>>,
    last_quiet: Cell<Option<Instant>>,
    later: Cell<Duration>,
}

impl Served {
    fn note(&self, delivery: &Delivery) {
        let now = Clock::System.instant();
        self.all.set(self.all.get() + 1);
        match delivery.message.envelope.key.as_ref().map(Key::as_str) {
            Some(LATER) => self.later.set(delivery.lateness),
            Some(key) if key.starts_with("quiet") => {
                self.quiet.set(self.quiet.get() + 1);
                self.first_quiet.set(self.first_quiet.get().or(Some(now)));
                self.last_quiet.set(Some(now));
            }
            _ => {}
        }
    }
}

pub(super) async fn fair(bench: &Bench) -> Result<(), Failure> {
    for (fairness, way) in [(Fairness::None, "plain"), (Fairness::Key, "fair")] {
        bench.progress.step(&format!("{way} group"));
        let broker = bench.library.broker();
        let topic = TopicName::new(format!("{way}-{}", bench.topics.replace(bench.topics.get() + 1)))?;
        broker.declare(topic.clone(), Settings { partitions: NonZeroU16::MIN, ..Settings::default() }).await?;
        let wish = GroupRequest { fair: Some(fairness), ..GroupRequest::default() };
        broker.create_group(&topic, &GroupName::standard(), wish).await?;
        burst(bench, broker, &topic, way).await?;
        broker.delete_topic(&topic).await?;
    }
    Ok(())
}

async fn burst(bench: &Bench, broker: &Broker, topic: &TopicName, way: &str) -> Result<(), Failure> {
    let busy = bench.plan.pending;
    // As long as it takes to push them, twice.
    let due_at = push(bench, broker, topic, busy).await?;
    let before = usage(bench).await?;
    let served = Served::default();
    let messages = busy + QUIET_KEYS + 1;
    let wait = due_at.since(bench.store_now());
    Clock::System.sleep(wait).await;
    let began = Clock::System.instant();
    try_join_all((0..LANES).map(|_| lane(broker, topic, &served, messages))).await?;
    let took = Clock::System.instant().since(began);
    let since = |at: Option<Instant>| at.map_or(0.0, |at| at.since(began).as_secs_f64() * 1e3);
    let name = |what: &str| ("fair", format!("{way}, {what}"));
    let plain = |what: &str| Some(("fair", format!("plain, {what}")));
    let quiet =
        [("first quiet key", since(served.first_quiet.get())), ("last quiet key", since(served.last_quiet.get()))];
    let later = ("a key due 1 s later, lateness", served.later.get().as_secs_f64() * 1e3);
    for (what, ms) in quiet.into_iter().chain([later]) {
        bench.note(name(what), "ms", ms, plain(what));
    }
    bench.note(name("all"), "messages/s", per_second(messages, took), plain("all"));
    if let (Some(after), Some(before)) = (usage(bench).await?, before) {
        let (_, micros) = after.of(&["evalsha"], &before);
        bench.note(name("Redis"), "µs/message", ratio(micros, messages), plain("Redis"));
    }
    Ok(())
}

/// Pushes the burst, and behind it the quiet keys. Answers when all of them are due.
async fn push(bench: &Bench, broker: &Broker, topic: &TopicName, busy: usize) -> Result<Timestamp, Failure> {
    let began = Clock::System.instant();
    let first = batch(bench, bench.store_now().plus(Duration::from_secs(86_400)), 0..BATCH, |_| "busy".to_owned())?;
    push_batch(broker, topic, first).await?;
    let each = Clock::System.instant().since(began);
    let batches = u32::try_from(busy / BATCH).unwrap_or(u32::MAX);
    let due_at = bench.store_now().plus(each.saturating_mul(batches) + PUSHED_WITHIN);
    let lane = async |lane: usize| {
        for from in (lane * BATCH..busy).step_by(LANES * BATCH) {
            let messages = batch(bench, due_at, from..(from + BATCH).min(busy), |_| "busy".to_owned())?;
            push_batch(broker, topic, messages).await?;
        }
        Ok::<_, Failure>(())
    };
    try_join_all((0..LANES).map(lane)).await?;
    push_batch(broker, topic, batch(bench, due_at, 0..QUIET_KEYS, |n| format!("quiet-{n}"))?).await?;
    push_batch(broker, topic, batch(bench, due_at.plus(LATER_BY), 0..1, |_| LATER.to_owned())?).await?;
    Ok(due_at)
}

fn batch(
    bench: &Bench,
    due_at: Timestamp,
    numbers: std::ops::Range<usize>,
    key: impl Fn(usize) -> String,
) -> Result<Vec<NewMessage>, Failure> {
    let message = |n| -> Result<NewMessage, Failure> {
        let mut message = NewMessage::new(bench.payload.clone()).at(due_at);
        message.key = Some(Key::new(key(n))?);
        Ok(message)
    };
    numbers.map(message).collect()
}

async fn push_batch(broker: &Broker, topic: &TopicName, messages: Vec<NewMessage>) -> Result<(), Failure> {
    let outcomes = broker.push_batch(topic, messages).await?;
    outcomes.into_iter().find_map(Result::err).map_or(Ok(()), |error| Err(error.into()))
}

async fn lane(broker: &Broker, topic: &TopicName, served: &Served, messages: usize) -> Result<(), Failure> {
    while served.all.get() < messages {
        let request = ReserveRequest { max: BATCH, wait: WAIT, visibility_timeout: None };
        let deliveries = broker.reserve(topic, &GroupName::standard(), request).await?;
        if deliveries.is_empty() {
            continue;
        }
        deliveries.iter().for_each(|delivery| served.note(delivery));
        let decisions = deliveries.into_iter().map(|delivery| (delivery.receipt, Decision::Ack)).collect();
        let verdicts = broker.settle(topic, &GroupName::standard(), decisions).await?;
        if let Some(verdict) = verdicts.iter().find(|verdict| verdict.name() != "acked") {
            return Err(Failure::new(format!("an ack was {}", verdict.name())));
        }
    }
    Ok(())
}
