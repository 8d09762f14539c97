//! How late messages come: when they are due one after the other, and when all are due at once. One that comes early
//! ends the bench.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures_util::future::try_join_all;

use super::target::{Taken, Target, Wanted};
use super::workload::{Load, per_second};
use super::{Bench, LANES};
use crate::cli::failure::Failure;
use crate::cli::percentiles::Percentiles;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;

/// Messages that are due in a second.
pub(super) const RATE: usize = 2_000;

/// Consumers that wait for them.
const CONSUMERS: usize = 4;

/// The names of what lateness is compared with.
const TIMER: &str = "timer";
const REQUEST: &str = "timer and GET /livez";

/// Time for the lanes of timers to be there before the first is due.
const LANE_START: Duration = Duration::from_millis(20);

/// Time to push one message before anything is due: what the slowest store needs, with room.
const PUSH_TIME: Duration = Duration::from_micros(250);

/// Time before anything is due, however few messages there are.
const LEAD: Duration = Duration::from_millis(1_500);

/// Messages of a push.
const PUSHED: usize = 1_000;

/// What was seen.
#[derive(Default)]
struct Seen {
    spans: Vec<Duration>,
    early: usize,
}

/// What lateness is on this machine when nothing is stored: a timer for each due time, and a request behind it. A machine
/// that is busy is late by itself.
pub(super) async fn ceiling(bench: &Bench) -> Result<(), Failure> {
    let timer = timers(bench, async || Ok(())).await?;
    note(bench, "ceiling", TIMER, timer, None);
    let client = &bench.sidecar.client;
    let request = timers(bench, async || client.live().await.map_err(Failure::from)).await?;
    note(bench, "ceiling", REQUEST, request, None);
    Ok(())
}

async fn timers(bench: &Bench, then: impl AsyncFn() -> Result<(), Failure>) -> Result<Percentiles, Failure> {
    let from = Clock::System.instant().plus(LANE_START);
    let (next, spans) = (Cell::new(0), RefCell::new(Vec::new()));
    let lane = async || {
        while next.get() < bench.plan.lateness_messages {
            let due = from.plus(after(next.replace(next.get() + 1)));
            Clock::System.sleep_until(due).await;
            then().await?;
            spans.borrow_mut().push(Clock::System.instant().since(due));
        }
        Ok::<_, Failure>(())
    };
    try_join_all((0..CONSUMERS).map(|_| lane())).await?;
    Ok(Percentiles::of(spans.into_inner()))
}

fn note(bench: &Bench, measure: &'static str, way: &str, of: Percentiles, ceiling: Option<&str>) {
    for (name, span) in [("p50", of.p50), ("p99", of.p99), ("max", of.max)] {
        let ceiling = ceiling.map(|ceiling| ("ceiling", format!("{ceiling}, {RATE}/s, {name}")));
        bench.note((measure, format!("{way}, {RATE}/s, {name}")), "ms", span.as_secs_f64() * 1e3, ceiling);
    }
}

/// How long after the first message the n-th one is due.
fn after(n: usize) -> Duration {
    Duration::from_millis(u64::try_from(n * 1_000 / RATE).unwrap_or(u64::MAX))
}

/// Pushes messages that are due at [`RATE`], consumes them, and notes their lateness under `way`.
pub(super) async fn lateness(bench: &Bench, door: &Target, way: &str) -> Result<(), Failure> {
    let topic = bench.topic(door, "lateness").await?;
    let messages = bench.plan.lateness_messages;
    let from = start(messages);
    let pushing = Load { door, topic: topic.clone(), payload: &bench.payload, batch: PUSHED, lanes: 2 };
    pushing.push(messages, |n| Wanted { due_at: Some(from.plus(after(n))), key: None }).await?;
    in_time(from)?;
    let consuming = Load { door, topic, payload: &bench.payload, batch: 100, lanes: CONSUMERS };
    let seen = RefCell::new(Seen::default());
    consuming.consume(messages, |taken| seen.borrow_mut().note(taken, bench.store_ahead_us)).await?;
    let seen = seen.into_inner();
    seen.check()?;
    let ceiling = match door {
        Target::Library(_) => TIMER,
        Target::Http(_) => REQUEST,
    };
    note(bench, "lateness", way, Percentiles::of(seen.spans), Some(ceiling));
    door.delete(&consuming.topic).await
}

/// Pushes messages that are due at the same instant, consumes them, and notes how long after it the last ack came.
pub(super) async fn burst(bench: &Bench, door: &Target) -> Result<(), Failure> {
    let topic = bench.topic(door, "burst").await?;
    let messages = bench.plan.burst_messages;
    let due_at = start(messages);
    let load = Load { door, topic, payload: &bench.payload, batch: PUSHED, lanes: LANES };
    load.push(messages, |_| Wanted { due_at: Some(due_at), key: None }).await?;
    in_time(due_at)?;
    // Consumers wait before it is due, as they would.
    let (now, instant) = (Clock::System.now(), Clock::System.instant());
    let due = instant.plus(bench.local(due_at).since(now));
    let seen = RefCell::new(Seen::default());
    let last = load.consume(messages, |taken| seen.borrow_mut().note(taken, bench.store_ahead_us)).await?;
    seen.borrow().check()?;
    let took = last.since(due);
    let way = |what: &str| ("burst", format!("{}, {messages} at once, {what}", door.name()));
    bench.note(way("last ack"), "ms", took.as_secs_f64() * 1e3, None);
    bench.note(way("rate"), "messages/s", per_second(messages, took), None);
    door.delete(&load.topic).await
}

/// When the first of so many messages may be due.
fn start(messages: usize) -> Timestamp {
    Clock::System.now().plus(LEAD + PUSH_TIME * u32::try_from(messages).unwrap_or(u32::MAX))
}

/// # Errors
/// When the messages were not pushed before they were due: then lateness is that of the push.
fn in_time(due_at: Timestamp) -> Result<(), Failure> {
    match Clock::System.now() < due_at {
        true => Ok(()),
        false => Err(Failure::new("the messages could not be pushed before they were due; the machine is too busy")),
    }
}

impl Seen {
    /// `ahead_us` is how far the store's clock is ahead of ours.
    fn note(&mut self, taken: &Taken, ahead_us: i64) {
        let now_us = i64::try_from(Clock::System.now().as_ms() * 1_000).unwrap_or(i64::MAX) + ahead_us;
        let late_us = now_us - i64::try_from(taken.due_at.as_ms() * 1_000).unwrap_or(i64::MAX);
        self.early += usize::from(late_us < 0);
        self.spans.push(Duration::from_micros(u64::try_from(late_us).unwrap_or(0)));
    }

    fn check(&self) -> Result<(), Failure> {
        match self.early {
            0 => Ok(()),
            early => Err(Failure::new(format!("{early} messages came before they were due"))),
        }
    }
}
