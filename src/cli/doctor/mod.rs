//! `dwell doctor`: looks at everything that could make an installation lose, delay or refuse messages.
//!
//! It reads, and writes one small file that it removes, so it may run beside the broker.

mod persistence;
mod speed;
mod disk;
mod redis;
mod machine;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::config::ConfigArgs;
use super::failure::{FAILED, Failure, UNAVAILABLE, USAGE};
use super::{ServerArgs, output};
use crate::app::config::Config;
use crate::app::engine::{Confirmation, Diagnostics, Outcome};
use crate::platform::clock::Clock;
use disk::DataDir;

#[derive(Debug, Clone)]
struct ConfiguredRedis {
    timeout: Duration,
    allow_eviction: bool,
    confirmation: Confirmation,
    journal: Option<Duration>,
    prefix: String,
}

const DISK_PATIENCE: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  dwell doctor --config /etc/dwell.toml        the configuration, Redis, the disk and the machine
  dwell doctor --redis redis://127.0.0.1:6379
  dwell doctor --json | jq 'select(.status != \"ok\")'

It takes the same configuration as `dwell serve`, and may run while a broker runs; --server names
another broker than the one of the configuration. Each line is ok, warn, fail or skip (not checked,
and why), with the finding and what to do; --json prints an object in each line: check, status,
found, advice.

Exit code: 0 when nothing fails (with --strict: and nothing warns), 1 otherwise, 64 when the
configuration is wrong, 69 when Redis cannot be reached.";

/// Check everything that could make this installation lose, delay or refuse messages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Fail for a warning too
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let config = match Config::load(&args.config.sources()) {
        Ok(config) => config,
        Err(errors) => {
            let wrong = |error: &crate::app::config::ConfigError| {
                let advice = "correct it; `dwell config show` says where each value comes from";
                Finding::fail("configuration", error.to_string(), advice)
            };
            let skipped =
                ["redis", "data-dir", "broker"].map(|check| Finding::skip(check, "the configuration is wrong"));
            args.server.print.page(&errors.0.iter().map(wrong).chain(skipped).collect::<Vec<_>>(), shown)?;
            return Err(Failure { code: USAGE, message: String::new() });
        }
    };
    let (findings, is_reached) = look(args, &config).await?;
    args.server.print.page(&findings, shown)?;
    let fails = count(&findings, Status::Fail) > 0 || (args.strict && count(&findings, Status::Warn) > 0);
    match (is_reached, fails) {
        (false, _) => Err(Failure { code: UNAVAILABLE, message: String::new() }),
        (true, true) => Err(Failure { code: FAILED, message: String::new() }),
        (true, false) => Ok(()),
    }
}

async fn look(args: &DoctorArgs, config: &Config) -> Result<(Vec<Finding>, bool), Failure> {
    let mut findings = vec![Finding::ok("configuration", "correct")];
    let (mut identity, mut is_reached) = (None, true);
    let redis = config.redis.options();
    if let Some(options) = &redis {
        output::progress("looking at Redis");
        let configured = ConfiguredRedis {
            timeout: options.timeout,
            allow_eviction: options.allow_eviction,
            confirmation: options.confirmation,
            journal: config.journal_window(),
            prefix: options.prefix.clone(),
        };
        let diagnostics = Diagnostics::of(options, config.lease_ttl).await?;
        is_reached = !diagnostics.nodes.iter().all(|node| matches!(node.outcome, Outcome::Unreachable(_)));
        findings.extend(self::redis::redis(&diagnostics, &configured));
        if !is_reached {
            let skipped = ["version", "role", "permissions", "eviction", "memory", "persistence", "keys"];
            findings.extend(skipped.map(|check| Finding::skip(check, "Redis was not reached")));
        }
        identity = diagnostics.keys.and_then(|keys| keys.identity);
    } else {
        findings.push(Finding::skip("redis", "none is configured: messages are in the embedded store"));
    }
    output::progress("looking at the disk");
    let mut holder = None;
    if let Some(dir) = &config.data_dir {
        match data_dir(config, dir).await {
            Some(seen) => {
                findings.extend(disk::disk(&seen.disk));
                if redis.is_some() {
                    findings.push(disk::log("wal", &seen.wal, config.wal_limit_bytes, identity.as_deref()));
                    let journal = disk::log("journal", &seen.journal, config.wal_limit_bytes, identity.as_deref());
                    findings.extend(config.journal_window().map(|_| journal));
                } else {
                    findings.push(disk::store(&seen.store));
                }
                holder = seen.holder();
            }
            None => {
                let found = format!("{} did not answer within {} s", dir.display(), DISK_PATIENCE.as_secs());
                let advice = "dmesg: the disk hangs, or a server on the network is unavailable";
                findings.push(Finding::fail("data-dir", found, advice));
                let skipped = ["disk-space", "disk-latency", if redis.is_some() { "wal" } else { "store" }];
                findings.extend(skipped.map(|check| Finding::skip(check, "the disk did not answer")));
            }
        }
    }
    let (limit, of) = machine::open_files_of(holder);
    findings.extend([machine::open_files(limit, of), machine::time(machine::is_synchronised())]);
    findings.extend(config.tls.as_ref().map(|tls| machine::certificate(&tls.cert, tls.end(), Clock::System.now())));
    output::progress("looking for a broker");
    findings.push(machine::look(&args.server, config).await);
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// Not checked: it does not apply here, or could not be looked at.
    Skip,
    Warn,
    Fail,
}

/// A check, its result and what to do. The names of the fields are the JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    found: String,
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, status: Status::Ok, found: found.into(), advice: None }
    }

    fn skip(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, status: Status::Skip, found: found.into(), advice: None }
    }

    fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, status: Status::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, status: Status::Fail, found: found.into(), advice: Some(advice.into()) }
    }

    fn at(self, location: &str) -> Finding {
        Finding { found: format!("{location}: {}", self.found), ..self }
    }
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Skip => "skip",
            Status::Warn => "warn",
            Status::Fail => "fail",
        }
    }
}

fn count(findings: &[Finding], status: Status) -> usize {
    findings.iter().filter(|finding| finding.status == status).count()
}

fn shown(findings: &[Finding]) -> String {
    let row = |finding: &Finding| [finding.status.name().to_owned(), finding.check.to_owned(), finding.found.clone()];
    let labels = ["status", "check", "found"];
    let table = output::table(labels, findings.iter().map(row), &[]);
    let widest = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0).max(labels[1].len());
    let indent = " ".repeat(labels[0].len() + 2 + widest + 2);
    let advice =
        |finding: &Finding| finding.advice.iter().map(|advice| format!("{indent}→ {advice}")).collect::<Vec<_>>();
    let mut lines = output::with_lines_below(&table, findings.iter().map(advice));
    let sum = |status: Status| format!("{} {}", count(findings, status), status.name());
    lines.push([Status::Fail, Status::Warn, Status::Skip, Status::Ok].map(sum).join(", "));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::app::engine::{Confirmation, NodeFacts};

    const INFO: &[(&str, &str)] = &[
        ("redis_version", "7.0.15"),
        ("role", "master"),
        ("maxmemory_policy", "noeviction"),
        ("maxmemory", "1000000000"),
        ("used_memory", "1000000"),
        ("total_system_memory", "8000000000"),
        ("mem_fragmentation_ratio", "1.10"),
        ("aof_enabled", "1"),
        ("aof_last_write_status", "ok"),
        ("aof_last_bgrewrite_status", "ok"),
        ("rdb_last_bgsave_status", "ok"),
        ("connected_clients", "3"),
        ("maxclients", "10000"),
    ];

    const SETTINGS: &[(&str, &str)] = &[
        ("appendfsync", "always"),
        ("no-appendfsync-on-rewrite", "no"),
        ("timeout", "0"),
        ("tcp-keepalive", "300"),
        ("client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
        ("cluster-require-full-coverage", "no"),
        ("disable-thp", "yes"),
        ("latency-monitor-threshold", "100"),
    ];

    /// A Redis as it should be, for tests that change one thing of it.
    pub(super) fn node(info: &[(&str, &str)], settings: &[(&str, &str)]) -> NodeFacts {
        let map = |base: &[(&str, &str)], changed: &[(&str, &str)]| -> BTreeMap<String, String> {
            base.iter().chain(changed).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        NodeFacts {
            info: map(INFO, info),
            settings: Some(map(SETTINGS, settings)),
            reads_all: Some(true),
            refused: Ok(Vec::new()),
            deaf: None,
            pings: vec![Duration::from_micros(80); 50],
            ahead_us: Some(0),
            now_s: Some(1_000_000),
            stalls: Some(Vec::new()),
            slow: Some(Vec::new()),
        }
    }

    pub(super) fn configured() -> ConfiguredRedis {
        ConfiguredRedis {
            timeout: Duration::from_secs(1),
            allow_eviction: false,
            confirmation: Confirmation::default(),
            journal: None,
            prefix: "dwell".to_owned(),
        }
    }

    #[test]
    fn advice_is_printed_below_its_finding() {
        let findings = [
            Finding::ok("a", "fine"),
            Finding::skip("b", "absent"),
            Finding::warn("longer", "so-so", "repair it").at("here:1"),
        ];
        let text = "status  check   found\nok      a       fine\nskip    b       absent\nwarn    longer  here:1: so-so\n                → repair it\n0 fail, 1 warn, 1 skip, 1 ok";
        assert_eq!(shown(&findings), text);
    }
}
