//! Many messages that are due at the same instant, shared by two brokers, each of which is a process.

use std::cell::RefCell;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::latency::{Seen, in_time, instant_of, ratio};
use super::scale::JOINING;
use super::store::{Sidecar, resident};
use super::target::{Load, Tally, Target, Wanted, per_second};
use super::{Bench, LANES};
use crate::cli::failure::Failure;
use crate::platform::clock::Clock;

const BROKERS: usize = 2;
const BATCH: usize = 1_000;

/// Time to push everything before it is due: 40,000 messages a second, and a moment.
const PUSH_TIME: Duration = Duration::from_micros(25);
const LEAD: Duration = Duration::from_secs(2);

pub(super) async fn fleet(bench: &Bench) -> Result<(), Failure> {
    let (mut brokers, place) = (Vec::new(), bench.stores.place("fleet"));
    for n in 1..=BROKERS {
        brokers.push(Sidecar::start(&bench.stores.scratch.path().join(format!("fleet-{n}")), &place).await?);
    }
    let targets: Vec<_> = brokers.iter().map(|broker| Target::Http(broker.client.clone())).collect();
    at_once(bench, &brokers, &targets).await?;
    for broker in brokers {
        broker.stop().await?;
    }
    Ok(())
}

async fn at_once(bench: &Bench, brokers: &[Sidecar], targets: &[Target]) -> Result<(), Failure> {
    let Some(first) = targets.first() else { return Ok(()) };
    let (topic, messages) = (bench.topic(first, "fleet").await?, bench.plan.pending);
    try_join_all(targets.iter().map(|target| target.reserve(&topic, 1, JOINING))).await?;
    let loads: Vec<_> = targets
        .iter()
        .map(|target| Load { target, topic: topic.clone(), payload: &bench.payload, batch: BATCH, lanes: LANES })
        .collect();
    let due_at = Clock::System.now().plus(LEAD + PUSH_TIME * u32::try_from(messages).unwrap_or(u32::MAX));
    for load in loads.iter().take(1) {
        load.push(messages, |_| Wanted { due_at: Some(due_at), key: None }).await?;
    }
    in_time(due_at)?;
    let due = instant_of(bench, due_at);
    let (seen, tally) = (RefCell::new(Seen::default()), Tally::new(messages));
    let see = |taken: &_| seen.borrow_mut().note(taken, bench.store_ahead_us);
    try_join_all(loads.iter().map(|load| load.consuming(&tally, see))).await?;
    seen.borrow().check()?;
    let way = |what: &str| ("fleet", format!("{BROKERS} brokers, {messages} at once, {what}"));
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    bench.note(way("first delivery"), "ms", millis(tally.first().since(due)), None);
    bench.note(way("last ack"), "ms", millis(tally.last().since(due)), None);
    bench.note(way("rate"), "messages/s", per_second(messages, tally.last().since(due)), None);
    for broker in brokers {
        bench.note(way("resident"), "MiB a broker", ratio(resident(broker.pid)?, 1 << 20), None);
    }
    first.delete(&topic).await
}
