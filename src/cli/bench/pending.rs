//! What messages cost that are not due: memory, commands while idle, and what they make slower.

use std::num::NonZeroU16;
use std::time::Duration;

use super::sidecar::Sidecar;
use super::store::Place;
use super::target::{Target, Wanted};
use super::workload::Load;
use super::{BATCH, Bench, latency, process};
use crate::app::engine::{BaselineRedis, RedisUsage};
use crate::cli::failure::Failure;
use crate::model::message::TopicName;
use crate::platform::clock::Clock;

/// Partitions of the topic with the pending messages.
const PARTITIONS: NonZeroU16 = NonZeroU16::MIN.saturating_add(15);

/// When they are due: not while this runs.
const FAR: Duration = Duration::from_secs(86_400);

/// The first level at which the cost of a reserve is measured; each next one is ten times as many.
const FIRST_LEVEL: usize = 1_000;

/// Lives of a batch at each level, one after the other.
const LIVES: usize = 50;

/// The key of the messages that live among the pending ones: one partition, so that a batch is one call.
const KEY: &str = "growth";

/// Messages of a push of pending ones.
const PUSHED: usize = 1_000;

/// Fills a topic level by level, looks at each what a batch costs among them, and leaves a sidecar idle over the last.
pub(super) async fn run(bench: &Bench) -> Result<(), Failure> {
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
    let door = Target::Http(sidecar.client.clone());
    if bench.plan.wants("lateness") {
        for _ in 0..bench.plan.rounds {
            latency::lateness(bench, &door, &format!("HTTP, {levels} pending")).await?;
        }
    }
    note_resident(bench, &sidecar, way(", after lateness"))?;
    if matches!(place, Place::Redis { .. }) {
        door.delete(&topic).await?;
    }
    sidecar.stop().await
}

/// Answers how many are pending at the end.
async fn filled(bench: &Bench, topic: &TopicName) -> Result<usize, Failure> {
    let dwell = bench.stores.library("pending", "pending").await?;
    let door = Target::Library(dwell.broker().clone());
    door.declare(topic, PARTITIONS).await?;
    let due_at = Clock::System.now().plus(FAR);
    let before = usage(bench).await?;
    let (mut there, mut level) = (0, FIRST_LEVEL.min(bench.plan.pending));
    loop {
        bench.progress.step(&format!("{level} pending"));
        let load = Load { door: &door, topic: topic.clone(), payload: &bench.payload, batch: PUSHED, lanes: 2 };
        load.push(level - there, |_| Wanted { due_at: Some(due_at), key: None }).await?;
        there = level;
        if level == bench.plan.pending
            && let (Some(now), Some(before)) = (usage(bench).await?, &before)
        {
            let bytes = now.memory_bytes.saturating_sub(before.memory_bytes);
            bench.note(("memory", format!("Redis, {there} pending")), "bytes/message", ratio(bytes, there), None);
        }
        growth(bench, &door, topic, there).await?;
        if level >= bench.plan.pending {
            break;
        }
        level = (level * 10).min(bench.plan.pending);
    }
    dwell.close().await?;
    Ok(there)
}

/// Batches that live among the pending messages, one after the other.
async fn growth(bench: &Bench, door: &Target, topic: &TopicName, pending: usize) -> Result<(), Failure> {
    door.reserve(topic, 1, Duration::ZERO).await?;
    for _ in 0..bench.plan.rounds {
        let before = usage(bench).await?;
        let began = Clock::System.instant();
        lives(bench, door, topic, LIVES).await?;
        let took = Clock::System.instant().since(began);
        let name = |what: &str| ("growth", format!("{what} at {pending} pending"));
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        bench.note(name("life of 100"), "µs", ratio(micros, LIVES), growth_ceiling("life of 100"));
        if let (Some(after), Some(before)) = (usage(bench).await?, before) {
            let (_, micros) = after.of(&["evalsha"], &before);
            let name = name("Redis, life of 100");
            bench.note(name, "µs", ratio(micros, LIVES), growth_ceiling("Redis, life of 100"));
        }
    }
    Ok(())
}

/// Growth is compared with its first level.
fn growth_ceiling(what: &str) -> Option<super::results::Name> {
    Some(("growth", format!("{what} at {FIRST_LEVEL} pending")))
}

/// Batches of one partition, each pushed, reserved and acked before the next.
pub(super) async fn lives(bench: &Bench, door: &Target, topic: &TopicName, count: usize) -> Result<(), Failure> {
    let wanted = [Wanted { due_at: None, key: Some(KEY) }; BATCH];
    for _ in 0..count {
        door.push_batch(topic, &bench.payload, &wanted).await?;
        let mut left = BATCH;
        while left > 0 {
            let taken = door.reserve(topic, left, Duration::from_secs(5)).await?;
            left = left.saturating_sub(taken.len());
            door.ack(topic, taken).await?;
        }
    }
    Ok(())
}

/// A consumer waits for what is not due.
async fn idle(bench: &Bench, sidecar: &Sidecar, topic: &TopicName, way: &str) -> Result<(), Failure> {
    let door = Target::Http(sidecar.client.clone());
    // The leases are taken before.
    door.reserve(topic, 1, Duration::from_millis(500)).await?;
    let span = bench.plan.idle;
    let (before, cpu) = (usage(bench).await?, process::cpu(sidecar.pid)?);
    let waited = async {
        tokio::select! {
            taken = door.reserve(topic, 1, Duration::from_secs(60)) => taken.map(drop),
            () = Clock::System.sleep(span) => Ok(()),
        }
    };
    let began = Clock::System.instant();
    waited.await?;
    let took = Clock::System.instant().since(began).as_secs_f64();
    let cpu = process::cpu(sidecar.pid)?.saturating_sub(cpu).as_secs_f64();
    if let (Some(after), Some(before)) = (usage(bench).await?, before) {
        let (calls, _) = after.of(&["evalsha"], &before);
        let rate = ratio(calls, usize::from(PARTITIONS.get())) / took;
        bench.note(("idle", format!("Redis, {PARTITIONS} partitions")), "commands/s/partition", rate, None);
    }
    bench.note(("idle", format!("{way}, processor")), "%", cpu / took * 100.0, None);
    note_resident(bench, sidecar, format!("{way}, idle"))
}

fn note_resident(bench: &Bench, sidecar: &Sidecar, way: String) -> Result<(), Failure> {
    let mebibytes = ratio(process::resident(sidecar.pid)?, 1 << 20);
    bench.note(("resident", way), "MiB", mebibytes, None);
    Ok(())
}

/// What Redis says of its work, if there is one.
pub(super) async fn usage(bench: &Bench) -> Result<Option<RedisUsage>, Failure> {
    match &bench.stores.bare {
        Some(bare) => Ok(Some(BaselineRedis::usage(bare).await?)),
        None => Ok(None),
    }
}

/// A number of things for each of so many.
pub(super) fn ratio(of: u64, each: usize) -> f64 {
    let (of, each) = (of as f64, each.max(1) as f64);
    of / each
}

/// Levels at which growth is measured.
pub(super) fn levels(pending: usize) -> usize {
    std::iter::successors(Some(FIRST_LEVEL), |level| Some(level * 10)).take_while(|level| *level < pending).count() + 1
}
