//! What consumer groups promise, shown at full length with real processes on one real Redis:
//! `cargo run --locked --release --example groups`, or `-- killed lateness` for some of it. Needs redis-server in PATH.
//!
//! It starts a redis-server on a Unix socket, brokers, consumers and an application (all of them this very program, as
//! another process), kills and freezes them under load, and holds every message to a ledger. At the end stands a table;
//! the exit code is 1 if a promise was not kept. With the defaults: leases of 10 s, a heartbeat each second.

mod anywhere;
mod application;
mod lateness;
mod members;
mod outage;
mod report;
mod rolling;
mod stream;
mod support;
mod trouble;
mod webhook;

#[path = "../../tests/suite/brokers/groups/settle_chaos.rs"]
mod everywhere;
#[path = "../../tests/suite/brokers/groups/backlog.rs"]
mod backlog;
#[path = "../../tests/suite/brokers/groups/fleet.rs"]
mod fleet;
#[path = "../../tests/suite/brokers/groups/ledger.rs"]
#[allow(dead_code, reason = "the suite needs more of it")]
mod ledger;
#[path = "../../tests/suite/brokers/groups/load.rs"]
#[allow(dead_code, reason = "the suite needs more of it")]
mod load;
#[path = "../../tests/suite/brokers/groups/printer.rs"]
mod printer;
#[path = "../../tests/suite/brokers/groups/sidecar.rs"]
#[allow(dead_code, reason = "the suite needs more of it")]
mod sidecar;
#[path = "../../tests/suite/brokers/groups/signals.rs"]
mod signals;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dwell::model::error::Result;

use self::report::Report;
use self::signals::{passed, signal};
use self::support::failed;

/// How long a lease runs: the default.
const TTL: Duration = Duration::from_secs(10);

/// Nothing but the defaults, and a log for a story that fails.
const SETTINGS: [(&str, &str); 1] = [("DWELL_LOG_LEVEL", "info")];

/// What consumer groups promise, with figures and verdicts
#[derive(Debug, Parser)]
struct Args {
    /// The stories to tell: join, restart, rolling, killed, frozen, outage, lateness, stream, webhook, anywhere [default: all]
    stories: Vec<String>,
    /// How often a member joins and leaves
    #[arg(long, default_value_t = 20)]
    joins: usize,
    /// How often each of three members is restarted
    #[arg(long, default_value_t = 3)]
    restarts: usize,
    /// Messages of a backlog whose consumer is killed half-way, and of one that is settled at random brokers
    #[arg(long, default_value_t = 50_000)]
    messages: usize,
    /// Messages due in a second, and for how many seconds, where lateness is measured
    #[arg(long, default_value_t = 2_000)]
    rate: usize,
    /// See --rate
    #[arg(long, default_value_t = 10)]
    seconds: usize,
}

fn main() -> ExitCode {
    // The processes of the stories are this program under other names.
    match std::env::args().nth(1).as_deref() {
        Some("serve" | "consume") => return dwell::command_line::main(),
        Some("application") => return application::main(),
        _ => {}
    }
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{cores} cores, load {}", load.split(' ').next().unwrap_or_default());
    let mut report = Report::default();
    runtime.block_on(tell(&args, &mut report));
    report.print();
    if report.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn tell(args: &Args, report: &mut Report) {
    let begins = |story: &str| {
        let told = args.stories.is_empty() || args.stories.iter().any(|wanted| wanted == story);
        if told {
            println!("{story}");
        }
        told
    };
    if begins("join") {
        let end = members::come_and_go(report, args.joins).await;
        report.ended("join", end);
    }
    if begins("restart") {
        let end = members::restart(report, args.restarts).await;
        report.ended("restart", end);
    }
    if begins("rolling") {
        let end = rolling::restart(report, args.rate, args.seconds).await;
        report.ended("rolling", end);
    }
    if begins("killed") {
        let end = trouble::killed(report).await;
        report.ended("killed", end);
    }
    if begins("frozen") {
        let end = trouble::frozen(report).await;
        report.ended("frozen", end);
    }
    if begins("outage") {
        let end = outage::stopped(report).await;
        report.ended("outage", end);
    }
    if begins("lateness") {
        for by in [lateness::By::Streams, lateness::By::Polls] {
            let end = lateness::uniform(report, by, args.rate, args.seconds).await;
            report.ended("lateness", end);
        }
        let end = lateness::earlier(report).await;
        report.ended("an earlier head", end);
    }
    if begins("stream") {
        let end = stream::killed(report, args.messages).await;
        report.ended("stream", end);
    }
    if begins("webhook") {
        let end = webhook::killed(report, args.messages).await;
        report.ended("webhook", end);
        let end = webhook::busy(report).await;
        report.ended("busy webhook", end);
    }
    if begins("anywhere") {
        let end = anywhere::settled(report, args.messages).await;
        report.ended("anywhere", end);
    }
}

/// The program that the stories run: this one.
fn dwell() -> Result<PathBuf> {
    std::env::current_exe().map_err(failed("the path of this program"))
}
