//! How late messages come: when they are due one after the other, and when all are due at once. One that comes early
//! ends the bench. And what many pending messages cost.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU16;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::results::Name;
use super::store::{BenchStore, Sidecar, cpu as cpu_of, resident};
use super::target::{Load, Taken, Target, Wanted, per_second};
use super::{BATCH, Bench, LANES};
use crate::cli::failure::Failure;
use crate::measure::baseline::{BaselineRedis, RedisUsage};
use crate::measure::percentiles::Percentiles;
use crate::model::message::TopicName;
use crate::model::spelling::counted;
use crate::model::time::Timestamp;
use crate::platform::clock::{Clock, Instant};

pub(super) const RATE: usize = 2_000;
const CONSUMERS: usize = 4;
const TIMER: &str = "timer";
const REQUEST: &str = "timer and GET /livez";
const LANE_START: Duration = Duration::from_millis(20);

/// Time to push one message before anything is due: what the slowest store needs, with room.
const PUSH_TIME: Duration = Duration::from_micros(250);
const LEAD: Duration = Duration::from_millis(1_500);
const PUSHED: usize = 1_000;

#[derive(Default)]
pub(super) struct Seen {
    spans: Vec<Duration>,
    early: usize,
}

/// The lateness of this machine when nothing is stored: a timer for each due time, and a request behind it. A machine
/// that is busy is late by itself.
pub(super) async fn ceiling(bench: &Bench) -> Result<(), Failure> {
    let timer = timers(bench, async || Ok(())).await?;
    note(bench, "ceiling", TIMER, timer, None);
    let request = timers(bench, async || bench.sidecar.live().await).await?;
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

fn after(n: usize) -> Duration {
    Duration::from_millis(u64::try_from(n * 1_000 / RATE).unwrap_or(u64::MAX))
}

pub(super) async fn lateness(bench: &Bench, target: &Target, way: &str) -> Result<(), Failure> {
    let topic = bench.topic(target, "lateness").await?;
    let messages = bench.plan.lateness_messages;
    let from = start(messages);
    let pushing = Load { target, topic: topic.clone(), payload: &bench.payload, batch: PUSHED, lanes: 2 };
    pushing.push(messages, |n| Wanted { due_at: Some(from.plus(after(n))), key: None }).await?;
    in_time(from)?;
    let consuming = Load { target, topic, payload: &bench.payload, batch: 100, lanes: CONSUMERS };
    let seen = RefCell::new(Seen::default());
    consuming.consume(messages, |taken| seen.borrow_mut().note(taken, bench.store_ahead_us)).await?;
    let seen = seen.into_inner();
    seen.check()?;
    let ceiling = match target {
        Target::Library(_) => TIMER,
        Target::Http(_) => REQUEST,
    };
    note(bench, "lateness", way, Percentiles::of(seen.spans), Some(ceiling));
    target.delete(&consuming.topic).await
}

pub(super) async fn burst(bench: &Bench, target: &Target) -> Result<(), Failure> {
    let topic = bench.topic(target, "burst").await?;
    let messages = bench.plan.burst_messages;
    let due_at = start(messages);
    let load = Load { target, topic, payload: &bench.payload, batch: PUSHED, lanes: LANES };
    load.push(messages, |_| Wanted { due_at: Some(due_at), key: None }).await?;
    in_time(due_at)?;
    // Consumers wait before it is due, as they would.
    let due = instant_of(bench, due_at);
    let seen = RefCell::new(Seen::default());
    let last = load.consume(messages, |taken| seen.borrow_mut().note(taken, bench.store_ahead_us)).await?;
    seen.borrow().check()?;
    let took = last.since(due);
    let way = |what: &str| ("burst", format!("{}, {messages} at once, {what}", target.name()));
    bench.note(way("last ack"), "ms", took.as_secs_f64() * 1e3, None);
    bench.note(way("rate"), "messages/s", per_second(messages, took), None);
    target.delete(&load.topic).await
}

/// When it is so late by the store's clock, on the clock of this process. It has to be ahead.
pub(super) fn instant_of(bench: &Bench, due_at: Timestamp) -> Instant {
    let (now, instant) = (Clock::System.now(), Clock::System.instant());
    instant.plus(bench.local(due_at).since(now))
}

pub(super) fn start(messages: usize) -> Timestamp {
    Clock::System.now().plus(LEAD + PUSH_TIME * u32::try_from(messages).unwrap_or(u32::MAX))
}

/// Refuses messages that were not pushed before they were due: then lateness is that of the push.
pub(super) fn in_time(due_at: Timestamp) -> Result<(), Failure> {
    match Clock::System.now() < due_at {
        true => Ok(()),
        false => Err(Failure::new("the messages could not be pushed before they were due; the machine is too busy")),
    }
}

impl Seen {
    /// `ahead_us` is how far the store's clock is ahead of ours.
    pub(super) fn note(&mut self, taken: &Taken, ahead_us: i64) {
        let now_us = i64::try_from(Clock::System.now().as_ms() * 1_000).unwrap_or(i64::MAX) + ahead_us;
        let late_us = now_us - i64::try_from(taken.due_at.as_ms() * 1_000).unwrap_or(i64::MAX);
        self.early += usize::from(late_us < 0);
        self.spans.push(Duration::from_micros(u64::try_from(late_us).unwrap_or(0)));
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.early {
            0 => Ok(()),
            early => Err(Failure::new(format!("delivered before due: {}", counted(early, "message")))),
        }
    }
}

const PARTITIONS: NonZeroU16 = NonZeroU16::MIN.saturating_add(15);

/// When they are due: not while this runs.
pub(super) const FAR: Duration = Duration::from_secs(86_400);

/// The first level at which the cost of a reserve is measured; each next one is ten times as many.
const FIRST_LEVEL: usize = 1_000;
const LIFECYCLES: usize = 50;

/// The key of the messages that live among the pending ones: one partition, so that a batch is one call.
const KEY: &str = "growth";

pub(super) async fn pending(bench: &Bench) -> Result<(), Failure> {
    let topic = TopicName::new("pending")?;
    let levels = filled(bench, &topic).await?;
    // The sidecar starts on what is there, as after a restart: what it holds is not what pushing left behind.
    let dir = bench.stores.scratch.path().join("pending");
    let place = bench.stores.place("pending");
    let sidecar = Sidecar::start(&dir, &place).await?;
    let way = |what: &str| format!("sidecar, {levels} pending{what}");
    let ready = sidecar.ready_after.as_secs_f64() * 1e3;
    bench.note(("start to ready", way("")), "ms", ready, None);
    idle(bench, &sidecar, &topic, &way("")).await?;
    let target = Target::Http(sidecar.remote.clone());
    if bench.plan.wants("lateness") {
        for _ in 0..bench.plan.rounds {
            lateness(bench, &target, &format!("HTTP, {levels} pending")).await?;
        }
    }
    note_resident(bench, &sidecar, way(", after lateness"))?;
    if matches!(place, BenchStore::Redis { .. }) {
        target.delete(&topic).await?;
    }
    sidecar.stop().await
}

async fn filled(bench: &Bench, topic: &TopicName) -> Result<usize, Failure> {
    let dwell = bench.stores.library("pending", "pending").await?;
    let target = Target::Library(Box::new(dwell.broker().clone()));
    target.declare(topic, PARTITIONS).await?;
    let due_at = Clock::System.now().plus(FAR);
    let before = usage(bench).await?;
    let (mut there, mut level) = (0, FIRST_LEVEL.min(bench.plan.pending));
    loop {
        bench.progress.step(&format!("{level} pending"));
        let load = Load { target: &target, topic: topic.clone(), payload: &bench.payload, batch: PUSHED, lanes: 2 };
        load.push(level - there, |_| Wanted { due_at: Some(due_at), key: None }).await?;
        there = level;
        if level == bench.plan.pending
            && let (Some(now), Some(before)) = (usage(bench).await?, &before)
        {
            let bytes = now.memory_bytes.saturating_sub(before.memory_bytes);
            bench.note(("memory", format!("Redis, {there} pending")), "bytes/message", ratio(bytes, there), None);
        }
        growth(bench, &target, topic, there).await?;
        if level >= bench.plan.pending {
            break;
        }
        level = (level * 10).min(bench.plan.pending);
    }
    dwell.close().await?;
    Ok(there)
}

async fn growth(bench: &Bench, target: &Target, topic: &TopicName, pending: usize) -> Result<(), Failure> {
    target.reserve(topic, 1, Duration::ZERO).await?;
    for _ in 0..bench.plan.rounds {
        let before = usage(bench).await?;
        let began = Clock::System.instant();
        lifecycles(bench, target, topic, LIFECYCLES).await?;
        let took = Clock::System.instant().since(began);
        let name = |what: &str| ("growth", format!("{what} at {pending} pending"));
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        bench.note(name("life of 100"), "µs", ratio(micros, LIFECYCLES), growth_ceiling("life of 100"));
        if let (Some(after), Some(before)) = (usage(bench).await?, before) {
            let (_, micros) = after.of(&["evalsha"], &before);
            let name = name("Redis, life of 100");
            bench.note(name, "µs", ratio(micros, LIFECYCLES), growth_ceiling("Redis, life of 100"));
        }
    }
    Ok(())
}

fn growth_ceiling(what: &str) -> Option<Name> {
    Some(("growth", format!("{what} at {FIRST_LEVEL} pending")))
}

pub(super) async fn lifecycles(bench: &Bench, target: &Target, topic: &TopicName, count: usize) -> Result<(), Failure> {
    let wanted = [Wanted { due_at: None, key: Some(KEY) }; BATCH];
    for _ in 0..count {
        target.push_batch(topic, &bench.payload, &wanted).await?;
        let mut left = BATCH;
        while left > 0 {
            let taken = target.reserve(topic, left, Duration::from_secs(5)).await?;
            left = left.saturating_sub(taken.len());
            target.ack(topic, taken).await?;
        }
    }
    Ok(())
}

async fn idle(bench: &Bench, sidecar: &Sidecar, topic: &TopicName, way: &str) -> Result<(), Failure> {
    let target = Target::Http(sidecar.remote.clone());
    // The leases are taken before.
    target.reserve(topic, 1, Duration::from_millis(500)).await?;
    let span = bench.plan.idle;
    let (before, cpu) = (usage(bench).await?, cpu_of(sidecar.pid)?);
    let waited = async {
        tokio::select! {
            taken = target.reserve(topic, 1, Duration::from_secs(60)) => taken.map(drop),
            () = Clock::System.sleep(span) => Ok(()),
        }
    };
    let began = Clock::System.instant();
    waited.await?;
    let took = Clock::System.instant().since(began).as_secs_f64();
    let cpu = cpu_of(sidecar.pid)?.saturating_sub(cpu).as_secs_f64();
    if let (Some(after), Some(before)) = (usage(bench).await?, before) {
        let (calls, _) = after.of(&["evalsha"], &before);
        let rate = ratio(calls, usize::from(PARTITIONS.get())) / took;
        bench.note(("idle", format!("Redis, {PARTITIONS} partitions")), "commands/s/partition", rate, None);
    }
    bench.note(("idle", format!("{way}, processor")), "%", cpu / took * 100.0, None);
    note_resident(bench, sidecar, format!("{way}, idle"))
}

fn note_resident(bench: &Bench, sidecar: &Sidecar, way: String) -> Result<(), Failure> {
    let mebibytes = ratio(resident(sidecar.pid)?, 1 << 20);
    bench.note(("resident", way), "MiB", mebibytes, None);
    Ok(())
}

pub(super) async fn usage(bench: &Bench) -> Result<Option<RedisUsage>, Failure> {
    match &bench.stores.bare {
        Some(bare) => Ok(Some(BaselineRedis::usage(bare).await?)),
        None => Ok(None),
    }
}

pub(super) fn ratio(of: u64, each: usize) -> f64 {
    let (of, each) = (of as f64, each.max(1) as f64);
    of / each
}

pub(super) fn levels(pending: usize) -> usize {
    std::iter::successors(Some(FIRST_LEVEL), |level| Some(level * 10)).take_while(|level| *level < pending).count() + 1
}
