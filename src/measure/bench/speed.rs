//! Throughput: pushing, draining a backlog, and the whole life of messages at once; what a message costs Redis; and the
//! ceilings that these are compared with.

use std::cell::Cell;
use std::fs::File;
use std::io::Write as _;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::try_join_all;

use super::latency::{lifecycles, ratio};
use super::results::Name;
use super::target::{Load, Target, Wanted, per_second};
use super::{BATCH, Bench, LANES};
use crate::cli::failure::Failure;
use crate::measure::baseline::{BaselineRedis, BaselineStyle, RedisUsage};
use crate::platform::clock::Clock;

const CONNECTIONS: [usize; 3] = [1, 32, 256];

pub(super) async fn throughput(bench: &Bench) -> Result<(), Failure> {
    let library = Target::Library(Box::new(bench.library.broker().clone()));
    let http = Target::Http(bench.sidecar.remote.clone());
    batches(bench, &library).await?;
    batches(bench, &http).await?;
    for connections in CONNECTIONS {
        single(bench, &http, connections).await?;
    }
    Ok(())
}

async fn batches(bench: &Bench, target: &Target) -> Result<(), Failure> {
    let way = format!("{}, batch {BATCH}", target.name());
    let of = |what: &str| match bench.stores.bare {
        Some(_) => ceiling(&format!("bare {what}")),
        None => ceiling("write and fsync").filter(|_| what != "drain"),
    };
    measured(bench, target, &way, (BATCH, LANES), bench.plan.messages, of).await
}

async fn single(bench: &Bench, target: &Target, connections: usize) -> Result<(), Failure> {
    let way = format!("{}, single, {connections} connections", target.name());
    let messages = bench.plan.single_messages(connections);
    let of = |what: &str| match (&bench.stores.bare, what, connections) {
        (None, "push", 1) => ceiling(FSYNCED_REQUEST),
        _ => ceiling(&livez(connections)),
    };
    measured(bench, target, &way, (1, connections), messages, of).await
}

async fn measured(
    bench: &Bench,
    target: &Target,
    way: &str,
    (batch, lanes): (usize, usize),
    messages: usize,
    of: impl Fn(&str) -> Option<Name>,
) -> Result<(), Failure> {
    let note = |what: &'static str, value| bench.note((what, way.to_owned()), "messages/s", value, of(what));
    // On a busy machine the cost for the sidecar says more than the speed. It is compared with the
    // smallest request.
    let cost = |what: &str, spent: Duration| match target {
        Target::Http(_) => {
            bench.note_processor(format!("{what}, {way}"), spent, messages, Some(("processor", livez(32))))
        }
        Target::Library(_) => {}
    };
    if bench.plan.wants("push") || bench.plan.wants("drain") {
        let topic = bench.topic(target, "backlog").await?;
        let load = Load { target, topic, payload: &bench.payload, batch, lanes };
        let before = bench.processor()?;
        note("push", load.push(messages, |_| Wanted::default()).await?);
        let between = bench.processor()?;
        note("drain", load.drain(messages).await?);
        cost("push", between.saturating_sub(before));
        cost("drain", bench.processor()?.saturating_sub(between));
        target.delete(&load.topic).await?;
    }
    if bench.plan.wants("life") {
        let topic = bench.topic(target, "life").await?;
        let load = Load { target, topic, payload: &bench.payload, batch, lanes };
        let before = bench.processor()?;
        note("life", load.life(messages).await?);
        cost("life", bench.processor()?.saturating_sub(before));
        target.delete(&load.topic).await?;
    }
    Ok(())
}

const PINGS: usize = 100;

const FSYNCED_REQUEST: &str = "GET /livez, then write and fsync, 1 connections";

pub(super) fn ceiling(way: &str) -> Option<Name> {
    Some(("ceiling", way.to_owned()))
}

pub(super) fn livez(connections: usize) -> String {
    format!("GET /livez, {connections} connections")
}

pub(super) async fn ceilings(bench: &Bench) -> Result<(), Failure> {
    let messages = bench.plan.messages;
    let note = |way: &str, unit, value| bench.note(("ceiling", way.to_owned()), unit, value, None);
    match &bench.stores.bare {
        Some(bare) => {
            let key = |lane: usize| format!("{}:{lane}", bench.bare_prefix());
            let lanes = BareLanes { bare, payload: bench.payload.as_bytes(), key: &key };
            note("bare push", "messages/s", lanes.run(messages, BareWork::Push).await?);
            note("bare drain", "messages/s", lanes.run(messages, BareWork::Take).await?);
            note("bare life", "messages/s", lanes.run(messages, BareWork::Both).await?);
            let began = Clock::System.instant();
            for _ in 0..messages.div_ceil(PINGS) {
                bare.ping(PINGS).await?;
            }
            let pings = messages.div_ceil(PINGS) * PINGS;
            note("PING, pipelined", "requests/s", per_second(pings, Clock::System.instant().since(began)));
        }
        None => {
            note("write and fsync", "messages/s", fsyncs(bench)?);
            note(FSYNCED_REQUEST, "requests/s", fsynced_requests(bench).await?);
        }
    }
    for connections in CONNECTIONS {
        let requests = bench.plan.single_messages(connections);
        let left = Cell::new(requests);
        let lane = async || {
            while left.get() > 0 {
                left.set(left.get() - 1);
                bench.sidecar.live().await?;
            }
            Ok::<_, Failure>(())
        };
        let (began, processor) = (Clock::System.instant(), bench.processor()?);
        try_join_all((0..connections).map(|_| lane())).await?;
        let spent = bench.processor()?.saturating_sub(processor);
        bench.note_processor(livez(connections), spent, requests, None);
        note(&livez(connections), "requests/s", per_second(requests, Clock::System.instant().since(began)));
    }
    Ok(())
}

/// A file that is fsynced, as a store that only appends.
struct SyncedFile {
    file: File,
    path: PathBuf,
}

impl SyncedFile {
    fn create(bench: &Bench) -> Result<SyncedFile, Failure> {
        let path = bench.stores.scratch.path().join("ceiling");
        let file = File::create(&path).map_err(unwritable(&path))?;
        Ok(SyncedFile { file, path })
    }

    /// Answers when it is on the disk.
    fn append(&mut self, bytes: &str) -> Result<(), Failure> {
        let written = self.file.write_all(bytes.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(unwritable(&self.path))
    }

    fn remove(self) -> Result<(), Failure> {
        std::fs::remove_file(&self.path).map_err(unwritable(&self.path))
    }
}

fn unwritable(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(format!("cannot write {}: {error}", path.display()))
}

fn fsyncs(bench: &Bench) -> Result<f64, Failure> {
    let mut file = SyncedFile::create(bench)?;
    let batch = bench.payload.repeat(BATCH);
    let batches = bench.plan.messages.div_ceil(BATCH);
    let began = Clock::System.instant();
    for _ in 0..batches {
        file.append(&batch)?;
    }
    let took = Clock::System.instant().since(began);
    file.remove()?;
    Ok(per_second(batches * BATCH, took))
}

/// An empty request over one connection and then a write, one by one: what a store that only appends could do.
async fn fsynced_requests(bench: &Bench) -> Result<f64, Failure> {
    let mut file = SyncedFile::create(bench)?;
    let requests = bench.plan.single_messages(1);
    let began = Clock::System.instant();
    for _ in 0..requests {
        bench.sidecar.live().await?;
        file.append(&bench.payload)?;
    }
    let took = Clock::System.instant().since(began);
    file.remove()?;
    Ok(per_second(requests, took))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BareWork {
    Push,
    Take,
    Both,
}

struct BareLanes<'a> {
    bare: &'a BaselineRedis,
    payload: &'a [u8],
    key: &'a dyn Fn(usize) -> String,
}

impl BareLanes<'_> {
    async fn run(&self, messages: usize, work: BareWork) -> Result<f64, Failure> {
        let batches = messages.div_ceil(LANES * BATCH).max(1);
        let lane = async |lane: usize| {
            let key = (self.key)(lane);
            for n in 0..batches {
                if work != BareWork::Take {
                    self.bare.push(&key, &ids(n), self.payload, BaselineStyle::Together).await?;
                }
                if work != BareWork::Push && self.bare.take(&key, BATCH, BaselineStyle::Together).await? != BATCH {
                    return Err(Failure::new("bare messages are missing"));
                }
            }
            Ok(())
        };
        let began = Clock::System.instant();
        try_join_all((0..LANES).map(lane)).await?;
        Ok(per_second(batches * LANES * BATCH, Clock::System.instant().since(began)))
    }
}

pub(super) fn ids(batch: usize) -> Vec<String> {
    (0..BATCH).map(|n| format!("{:026}", batch * BATCH + n)).collect()
}

const BARE: [&str; 6] = ["zadd", "hset", "zrange", "zrem", "hmget", "hdel"];

const INSIDE: [&str; 5] = ["zadd", "hset", "zrange", "hmget", "hdel"];

/// The baseline for the other costs: a command for each message, as one pipelines without scripts.
const CEILING: &str = "bare, a command for each message";

pub(super) async fn cost(bench: &Bench, bare: &BaselineRedis) -> Result<(), Failure> {
    let lives_count = bench.plan.messages.div_ceil(BATCH);
    let key = format!("{}:cost", bench.bare_prefix());
    for (style, way) in [(BaselineStyle::Each, CEILING), (BaselineStyle::Together, "bare, a command for each batch")] {
        let before = bare.usage().await?;
        for n in 0..lives_count {
            bare.push(&key, &ids(n), bench.payload.as_bytes(), style).await?;
            bare.take(&key, BATCH, style).await?;
        }
        note(bench, bare, way, &BARE, &before).await?;
    }
    let target = Target::Library(Box::new(bench.library.broker().clone()));
    let topic = bench.topic_of(&target, "cost", NonZeroU16::MIN).await?;
    // The lease is taken before.
    target.reserve(&topic, 1, Duration::ZERO).await?;
    let before = bare.usage().await?;
    lifecycles(bench, &target, &topic, lives_count).await?;
    note(bench, bare, "dwell", &["evalsha"], &before).await?;
    inside(bench, bare, &before).await?;
    target.delete(&topic).await
}

/// Time of the commands that the scripts called; the rest of the scripts' time is Lua.
async fn inside(bench: &Bench, bare: &BaselineRedis, before: &RedisUsage) -> Result<(), Failure> {
    let after = bare.usage().await?;
    let messages = bench.plan.messages.div_ceil(BATCH) * BATCH;
    let of_scripts = Some(("cost", "dwell, commands".to_owned()));
    for command in INSIDE {
        let (_, micros) = after.of(&[command], before);
        let way = format!("dwell, inside the scripts: {}", command.to_uppercase());
        bench.note(("cost", way), "µs/message", ratio(micros, messages), of_scripts.clone());
    }
    Ok(())
}

async fn note(
    bench: &Bench,
    bare: &BaselineRedis,
    way: &str,
    commands: &[&str],
    before: &RedisUsage,
) -> Result<(), Failure> {
    let after = bare.usage().await?;
    let messages = bench.plan.messages.div_ceil(BATCH) * BATCH;
    let (_, micros) = after.of(commands, before);
    let of = |what: &str| Some(("cost", format!("{CEILING}, {what}")));
    let name = |what: &str| ("cost", format!("{way}, {what}"));
    bench.note(name("commands"), "µs/message", ratio(micros, messages), of("commands"));
    let cpu = after.cpu_us.saturating_sub(before.cpu_us);
    bench.note(name("whole process"), "µs/message", ratio(cpu, messages), of("whole process"));
    Ok(())
}
