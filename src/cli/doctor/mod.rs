//! `dwell doctor`: looks at everything that could make an installation lose, delay or refuse messages.
//!
//! It reads, and writes one small file that it removes, so it may run beside the broker. What is seen is judged in
//! `judge`.

mod broker;
mod disk;
mod finding;
mod judge;
mod machine;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;

use self::disk::DataDir;
use self::finding::{Finding, Status, count, shown};
use self::judge::Terms;
use super::config::ConfigArgs;
use super::failure::{FAILED, Failure, UNAVAILABLE, USAGE};
use super::{ServerArgs, output};
use crate::app::config::Config;
use crate::app::engine::{Checkup, Outcome};
use crate::platform::clock::Clock;

/// How long the disk may take to answer everything.
const DISK_PATIENCE: Duration = Duration::from_secs(10);

/// How often the sign that it works moves.
const SIGN: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  dwell doctor --config /etc/dwell.toml        the configuration, Redis, the disk and the machine
  dwell doctor --redis redis://127.0.0.1:6379
  dwell doctor --json | jq 'select(.status != \"ok\")'

Takes the configuration that `dwell serve` takes, and may run beside it; --server names another
broker than the one of the configuration. Each line is ok, warn, fail or skip (not checked, and
why), with what was found and what to do; --json prints an object a line: check, status, found,
advice.

Exit code: 0 when nothing fails (with --strict: and nothing warns), 1 otherwise, 64 when the
configuration is wrong, 69 when Redis cannot be reached.";

/// Check everything that could make this installation lose, delay or refuse messages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Fail for a warning too
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let config = match Config::load(&args.config.sources()) {
        Ok(config) => config,
        Err(errors) => {
            let wrong = |error: &crate::app::config::ConfigError| {
                Finding::fail(
                    "configuration",
                    error.to_string(),
                    "correct it; `dwell config show` says where each value comes from",
                )
            };
            let skipped =
                ["redis", "data-dir", "broker"].map(|check| Finding::skip(check, "the configuration is wrong"));
            print(&errors.0.iter().map(wrong).chain(skipped).collect::<Vec<_>>(), args.json)?;
            return Err(Failure { code: USAGE, message: String::new() });
        }
    };
    let sign = ProgressBar::new_spinner();
    sign.enable_steady_tick(SIGN);
    let (findings, is_reached) = look(args, &config, &sign).await?;
    sign.finish_and_clear();
    print(&findings, args.json)?;
    let fails = count(&findings, Status::Fail) > 0 || (args.strict && count(&findings, Status::Warn) > 0);
    match (is_reached, fails) {
        (false, _) => Err(Failure { code: UNAVAILABLE, message: String::new() }),
        (true, true) => Err(Failure { code: FAILED, message: String::new() }),
        (true, false) => Ok(()),
    }
}

/// Everything that was found, and whether Redis was reached if there has to be one.
async fn look(args: &DoctorArgs, config: &Config, sign: &ProgressBar) -> Result<(Vec<Finding>, bool), Failure> {
    let mut findings = vec![Finding::ok("configuration", "correct")];
    let (mut identity, mut is_reached) = (None, true);
    let redis = config.redis.options();
    if let Some(options) = &redis {
        sign.set_message("looking at Redis");
        let terms = Terms {
            timeout: options.timeout,
            allow_eviction: options.allow_eviction,
            confirmation: options.confirmation,
            journal: config.journal_window(),
            prefix: options.prefix.clone(),
        };
        let checkup = Checkup::of(options, config.lease_ttl).await?;
        is_reached = !checkup.nodes.iter().all(|node| matches!(node.outcome, Outcome::Unreachable(_)));
        findings.extend(judge::redis(&checkup, &terms));
        if !is_reached {
            let skipped = ["version", "role", "permissions", "eviction", "memory", "persistence", "keys"];
            findings.extend(skipped.map(|check| Finding::skip(check, "Redis was not reached")));
        }
        identity = checkup.keys.and_then(|keys| keys.identity);
    } else {
        findings.push(Finding::skip("redis", "none is configured: messages are in the embedded store"));
    }
    sign.set_message("looking at the disk");
    let mut holder = None;
    if let Some(dir) = &config.data_dir {
        match data_dir(config, dir).await {
            Some(seen) => {
                findings.extend(judge::disk(&seen.disk));
                if redis.is_some() {
                    findings.push(judge::log("wal", &seen.wal, config.wal_limit_bytes, identity.as_deref()));
                    let journal = judge::log("journal", &seen.journal, config.wal_limit_bytes, identity.as_deref());
                    findings.extend(config.journal_window().map(|_| journal));
                } else {
                    findings.push(judge::store(&seen.store));
                }
                holder = seen.holder();
            }
            None => {
                let found = format!("{} did not answer within {} s", dir.display(), DISK_PATIENCE.as_secs());
                findings.push(Finding::fail(
                    "data-dir",
                    found,
                    "dmesg: the disk hangs, or a server on the network is unavailable",
                ));
                let skipped = ["disk-space", "disk-latency", if redis.is_some() { "wal" } else { "store" }];
                findings.extend(skipped.map(|check| Finding::skip(check, "the disk did not answer")));
            }
        }
    }
    let (limit, of) = machine::open_files(holder);
    findings.extend([judge::open_files(limit, of), judge::time(machine::is_synchronised())]);
    sign.set_message("looking for a broker");
    findings.push(broker::look(&args.server, config).await);
    Ok((findings, is_reached))
}

/// Looks at the disk beside the runtime: one that hangs must not hang this. `None` when it does.
async fn data_dir(config: &Config, dir: &Path) -> Option<DataDir> {
    let (config, dir) = (config.clone(), dir.to_owned());
    tokio::select! {
        seen = tokio::task::spawn_blocking(move || DataDir::look(&config, &dir)) => seen.ok(),
        () = Clock::System.sleep(DISK_PATIENCE) => None,
    }
}

fn print(findings: &[Finding], json: bool) -> Result<(), Failure> {
    match json {
        true => findings.iter().try_for_each(output::json),
        false => output::line(shown(findings)),
    }
}
