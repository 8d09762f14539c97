//! What consumers that wait cost: `cargo run --locked --release --example idle`. Needs redis-server in PATH, and Linux.
//!
//! Starts a redis-server and a broker (this very program, as another process) on Unix sockets, creates topics, and lets one
//! consumer wait in each: a long poll on a connection that it keeps. Prints the calls that Redis sees, the processor time,
//! and the resident memory of the broker before the consumers came, while they wait, and after they left. The exit code is
//! 1 if a goal was missed. All settings are the defaults, but `group.idle_timeout`, which is how long the end takes.

#[path = "../groups/support.rs"]
#[allow(dead_code, unused_imports, reason = "the other stories need more of it")]
mod support;

#[path = "../../tests/suite/brokers/groups/fleet.rs"]
#[allow(dead_code, reason = "the suite needs more of it")]
mod fleet;
#[path = "../../tests/suite/brokers/groups/sidecar.rs"]
#[allow(dead_code, reason = "the suite needs more of it")]
mod sidecar;
#[path = "../../tests/suite/brokers/groups/signals.rs"]
#[allow(dead_code, reason = "the suite needs more of it")]
mod signals;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use reqwest::{Client, Response};
use serde_json::json;
use tokio::task::JoinSet;

use self::fleet::{Fleet, declare};
use self::sidecar::Sidecar;
use self::signals::signal;
use self::support::{RedisServer, eventually, failed};

/// The allocator of the `dwell` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SETTINGS: [(&str, &str); 2] = [("DWELL_LOG_LEVEL", "warn"), ("DWELL_GROUP_IDLE_TIMEOUT", "5s")];

/// Heartbeats and renewals after which everything is at rest, and after which memory of the beginning is given back.
const SETTLING: Duration = Duration::from_secs(20);

/// Calls a second and partition, bytes a partition, and the share of the memory before that may stay after.
const CALLS_MAX: f64 = 0.31;
const BYTES_MAX: f64 = 6_000.0;
const LEFT_MAX: f64 = 0.2;

/// What consumers that wait cost
#[derive(Debug, Parser)]
struct Args {
    /// Topics, with a consumer each
    #[arg(long, default_value_t = 1_000)]
    topics: u16,
    /// Partitions of each
    #[arg(long, default_value_t = 8)]
    partitions: u16,
    /// Seconds for which calls are counted
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// A variable of the broker's environment, as MIMALLOC_GENERIC_COLLECT=50; more than once for more
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return dwell::command_line::main();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let told = runtime.map_err(failed("no runtime")).and_then(|runtime| runtime.block_on(tell(&Args::parse())));
    match told {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}", error.detail());
            ExitCode::FAILURE
        }
    }
}

/// What the broker and Redis have used so far.
struct Usage {
    at: Instant,
    calls: f64,
    broker_cpu: f64,
    redis_cpu: f64,
}

async fn tell(args: &Args) -> Result<bool> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let environment: Vec<_> = args.environment.iter().filter_map(|variable| variable.split_once('=')).collect();
    let broker = fleet.start_with("broker", &environment).await?;
    let names: Vec<String> = (0..args.topics).map(|n| format!("topic-{n}")).collect();
    for name in &names {
        declare(&broker, name, args.partitions).await?;
    }
    let group_partitions = u64::from(args.topics) * u64::from(args.partitions);
    println!("{} topics of {} partitions, a consumer each", args.topics, args.partitions);
    let before = resident(&broker)?;

    let client = https::client(&Roots::none())?.no_proxy().unix_socket(fleet.file("broker.sock")).build();
    let client = client.map_err(|error| Error::unavailable(error.to_string()))?;
    let mut consumers = JoinSet::new();
    names.into_iter().for_each(|name| drop(consumers.spawn(consume(client.clone(), name))));
    owns(&fleet, group_partitions).await?;
    tokio::time::sleep(SETTLING).await;
    let since = usage(&fleet, &broker).await?;
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let until = usage(&fleet, &broker).await?;
    let with = resident(&broker)?;

    consumers.shutdown().await;
    drop(client);
    owns(&fleet, 0).await?;
    tokio::time::sleep(SETTLING).await;
    let after = resident(&broker)?;

    let seconds = until.at.duration_since(since.at).as_secs_f64();
    let calls = (until.calls - since.calls) / seconds;
    let percent = |cpu: f64| 100.0 * cpu / seconds;
    let (each, bytes) = (calls / group_partitions as f64, (with - before) / group_partitions as f64);
    let left = after / before - 1.0;
    println!("calls of Redis:   {calls:.0}/s, {each:.3}/s and partition (goal: {CALLS_MAX})");
    println!(
        "processor time:   {:.1} % of a core for the broker, {:.1} % for Redis",
        percent(until.broker_cpu - since.broker_cpu),
        percent(until.redis_cpu - since.redis_cpu)
    );
    println!("resident memory:  {:.1} MB before, {:.1} MB with the consumers", before / 1e6, with / 1e6);
    println!("                  {bytes:.0} bytes a partition (goal: {BYTES_MAX})");
    println!(
        "                  {:.1} MB after they left: {:+.0} % (goal: {:+.0} %)",
        after / 1e6,
        100.0 * left,
        100.0 * LEFT_MAX
    );
    Ok(each <= CALLS_MAX && bytes <= BYTES_MAX && left <= LEFT_MAX)
}

/// Waits in one topic, again and again.
async fn consume(client: Client, topic: String) {
    let target = format!("http://dwell/v1/topics/{topic}/groups/default/reserve");
    loop {
        let answer = client.post(&target).json(&json!({"max": 1, "wait": "60s"})).send().await;
        match answer.and_then(Response::error_for_status) {
            // The connection is used again after the body was read.
            Ok(answer) => drop(answer.bytes().await),
            Err(error) => {
                eprintln!("{topic}: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Waits until so many leases are held.
async fn owns(fleet: &Fleet, partitions: u64) -> Result<()> {
    let leases = async || Ok(fleet.redis.keys().await?.iter().filter(|key| key.ends_with(":lease")).count() as u64);
    eventually("the leases", async || Ok((leases().await? == partitions).then_some(()))).await
}

async fn usage(fleet: &Fleet, broker: &Sidecar) -> Result<Usage> {
    let cpu: String = fleet.redis.ask("INFO cpu").await?;
    let commands: String = fleet.redis.ask("INFO commandstats").await?;
    Ok(Usage {
        at: Instant::now(),
        calls: number(&commands, "cmdstat_evalsha:calls=")?,
        broker_cpu: broker_cpu(broker.pid())?,
        redis_cpu: number(&cpu, "used_cpu_sys:")? + number(&cpu, "used_cpu_user:")?,
    })
}

/// Seconds of processor time of all threads.
fn broker_cpu(pid: u32) -> Result<f64> {
    let failed = failed("the processor time of the broker");
    let mut seconds = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).map_err(&failed)? {
        let text = std::fs::read_to_string(thread.map_err(&failed)?.path().join("schedstat")).unwrap_or_default();
        seconds += text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or_default() / 1e9;
    }
    Ok(seconds)
}

/// Bytes in memory.
fn resident(broker: &Sidecar) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.pid())).map_err(failed("the memory"))?;
    Ok(number(&status, "VmRSS:")? * 1_024.0)
}

/// The number behind a name at the begin of a line.
fn number(text: &str, name: &str) -> Result<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim_start();
    let digits = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
    digits.parse().map_err(|_| Error::bug(format!("no number behind {name}")))
}

/// The program that is measured: this one.
fn dwell() -> Result<PathBuf> {
    std::env::current_exe().map_err(failed("the path of this program"))
}
