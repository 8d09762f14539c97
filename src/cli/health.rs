//! `dwell health`: whether a broker is ready, for what can run a command and look at its exit code.
//! `dwell verify`: whether ids and bodies agree in the store.
//! `dwell attention` and `dwell brokers`: what an operator asks first.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use dwell_client::wire::groups::{Findings, Found};
use dwell_client::wire::operations::{AttentionItem, BrokerList, ListedBroker};

use super::failure::{Failure, UNAVAILABLE};
use super::output::{self, columns};
use super::remote::{At as _, Remote};
use super::{ServerArgs, parse};
use crate::model::message::TopicName;
use crate::model::spelling::counted;
use crate::model::time::{parse_span, short_span, show_span};
use crate::platform::clock::Clock;

const EXAMPLES: &str = "\
Examples:
  dwell health                                    exit code 0: pushes are accepted durably
  dwell health --live                             exit code 0: it answers at all
  dwell health --server unix:/run/dwell/dwell.sock

Restart a broker that is not alive. Do not restart one that is not ready: a restart does not bring
its store back.";

/// Ask whether a broker is ready, or alive: for a container without a shell or curl
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HealthArgs {
    /// Ask only whether it answers: /livez and not /readyz
    #[arg(long)]
    live: bool,
    /// How long it may take to answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_span)]
    timeout: Duration,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: &HealthArgs) -> Result<(), Failure> {
    let remote = args.server.remote()?;
    tokio::select! {
        answer = ask(args, &remote) => answer,
        // A process that stands still takes connections and says nothing.
        () = Clock::System.sleep(args.timeout) => {
            let message = format!("no answer from {} within {}", remote.place, show_span(args.timeout));
            Err(Failure { code: UNAVAILABLE, message })
        }
    }
}

async fn ask(args: &HealthArgs, Remote { client, place }: &Remote) -> Result<(), Failure> {
    if args.live {
        return args.server.print.value(&client.live().await.at(place)?, |_| "alive");
    }
    let ready = client.ready().await.map_err(|error| place.unready(error))?;
    args.server.print.value(&ready, |ready| match &ready.detail {
        Some(detail) => format!("degraded: {detail}"),
        None => "ready".to_owned(),
    })
}

const SHOWN: usize = 20;

const VERIFY_EXAMPLES: &str = "\
Examples:
  dwell verify orders
  dwell verify orders --repair

Exit code: 0 when nothing was found, or all of it was repaired; 1 otherwise.";

/// Verify that ids and bodies of a topic agree in the store; repair those that do not
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// Repair what is found: schedule bodies that have no id, drop ids that have no body
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    let Remote { client, place } = args.server.remote()?;
    let (topic, mut by_group) = (args.topic.as_str(), BTreeMap::new());
    for group in client.topic(topic).await.at(&place)?.topic.groups {
        let mut all = Findings::default();
        let mut pages = if args.repair { client.repair(topic, &group) } else { client.verify(topic, &group) };
        while let Some(page) = pages.next().await.transpose().at(&place)? {
            all.seen += page.seen;
            all.findings.extend(page.findings);
            output::progress(format_args!("{group}: looked at {}", counted(all.seen, "entry")));
        }
        by_group.insert(group, all);
    }
    let found: usize = by_group.values().map(|all| all.findings.len()).sum();
    args.server.print.value(&by_group, |all| shown(all, args.repair))?;
    if found == 0 || args.repair {
        return Ok(());
    }
    Err(Failure::new(format!("{found} entries disagree; `dwell verify {} --repair` repairs them", args.topic)))
}

fn shown(by_group: &BTreeMap<String, Findings>, repaired: bool) -> String {
    let mut lines = Vec::new();
    for (group, all) in by_group {
        let seen = counted(all.seen, "entry");
        lines.push(match all.findings.len() {
            0 => format!("{group}: {seen}, all consistent"),
            found if repaired => format!("{group}: {seen}, {found} repaired"),
            found => format!("{group}: {seen}, {found} disagree"),
        });
        let one = |found: &Found| format!("  {} in partition {}: {}", found.id, found.partition, found.defect);
        lines.extend(all.findings.iter().take(SHOWN).map(one));
        if all.findings.len() > SHOWN {
            lines.push(format!("  and {} more; --json shows all", all.findings.len() - SHOWN));
        }
    }
    lines.join("\n")
}

const ATTENTION_EXAMPLES: &str = "\
Examples:
  dwell attention           one line for each reason, with its cause; or `all is well`
  dwell attention --json";

/// Print what needs attention: late messages, groups without consumers, dead letters, the store
#[derive(Debug, Args)]
#[command(after_help = ATTENTION_EXAMPLES)]
pub(crate) struct AttentionArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn attention(args: &AttentionArgs) -> Result<(), Failure> {
    let Remote { client, place } = args.server.remote()?;
    let found = client.attention().await.at(&place)?;
    args.server.print.value(&found, |found| {
        if found.attention.is_empty() {
            return format!("all is well: {} of {} looked at", found.topics_seen, counted(found.topics, "topic"));
        }
        let row = |concern: &AttentionItem| {
            let place = [concern.topic.as_deref(), concern.group.as_deref()];
            let place: Vec<&str> = place.into_iter().flatten().collect();
            vec![concern.kind.replace('_', " "), place.join(" "), concern.cause.clone()]
        };
        columns(&found.attention.iter().map(row).collect::<Vec<_>>(), &[])
    })
}

const BROKERS_EXAMPLES: &str = "\
Examples:
  dwell brokers             a line for each, and which of them answers
  dwell brokers --json";

/// List the brokers that share the store, with what each does, its partitions, logs and clock
#[derive(Debug, Args)]
#[command(after_help = BROKERS_EXAMPLES)]
pub(crate) struct BrokersArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn brokers(args: &BrokersArgs) -> Result<(), Failure> {
    let Remote { client, place } = args.server.remote()?;
    let found = BrokerList { brokers: client.brokers().await.at(&place)? };
    args.server.print.value(&found, |found| {
        let labels = [
            "broker",
            "version",
            "up",
            "does",
            "groups",
            "with demand",
            "waiting",
            "partitions",
            "log records",
            "log bytes",
            "journal bytes",
            "clock",
        ];
        let row = |broker: &ListedBroker| {
            let counts = [broker.groups, broker.demanded, broker.waiting, broker.owned];
            let [groups, demanded, waiting, owned] = counts.map(|count| count.to_string());
            let records = broker.wal_records.to_string();
            let name = format!("{}{}", broker.member, if broker.here { " (this one)" } else { "" });
            let (version, bytes) = (broker.version.clone(), output::bytes(broker.wal_bytes));
            let up = broker.started_at.map(|at| short_span(Clock::System.now().since(at))).unwrap_or_default();
            let (doing, journal) = (broker.doing.to_string(), output::bytes(broker.journal_bytes));
            let clock = broker.clock_ahead_ms.map(|ms| format!("{ms:+} ms")).unwrap_or_default();
            [name, version, up, doing, groups, demanded, waiting, owned, records, bytes, journal, clock]
        };
        output::table(labels, found.brokers.iter().map(row), &[2, 4, 5, 6, 7, 8, 9, 10, 11])
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: HealthArgs,
    }

    #[tokio::test]
    async fn silent_server_is_not_healthy() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("dwell.sock");
        let _silent = UnixListener::bind(&socket)?;
        let server = format!("unix:{}", socket.display());
        for kind in [&[][..], &["--live"]] {
            let words = [&["health", "--timeout", "50ms", "--server", &server], kind].concat();
            let failure = run(&Line::try_parse_from(words)?.args).await.err().unwrap_or_else(Failure::printed);
            assert_eq!(failure.code, UNAVAILABLE);
            assert_eq!(failure.message, format!("no answer from {server} within 50ms"));
        }
        Ok(())
    }
}
