//! `dwell attention` and `dwell brokers`: what an operator asks first.

use clap::Args;
use serde::Deserialize;

use super::ServerArgs;
use super::api::Answer;
use super::failure::Failure;
use super::output::{self, columns};
use crate::model::spelling::counted;

const ATTENTION_EXAMPLES: &str = "\
Examples:
  dwell attention           one line for each reason, with its cause; or `all is well`
  dwell attention --json";

/// Print what needs attention: late messages, groups without consumers, dead letters, the store
#[derive(Debug, Args)]
#[command(after_help = ATTENTION_EXAMPLES)]
pub(super) struct AttentionArgs {
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Deserialize)]
struct Attention {
    attention: Vec<Concern>,
    topics_seen: u64,
    topics: u64,
}

#[derive(Debug, Deserialize)]
struct Concern {
    kind: String,
    topic: Option<String>,
    group: Option<String>,
    cause: String,
}

pub(super) async fn attention(args: &AttentionArgs) -> Result<(), Failure> {
    let found: Answer<Attention> = args.server.client()?.attention().await?;
    args.server.print.value(&found, |found| {
        if found.attention.is_empty() {
            return format!("all is well: {} of {} looked at", found.topics_seen, counted(found.topics, "topic"));
        }
        let row = |concern: &Concern| {
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

/// List the brokers that share the store, with version, demand, partitions and write-ahead log
#[derive(Debug, Args)]
#[command(after_help = BROKERS_EXAMPLES)]
pub(super) struct BrokersArgs {
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Deserialize)]
struct Brokers {
    brokers: Vec<ListedBroker>,
}

#[derive(Debug, Deserialize)]
struct ListedBroker {
    member: String,
    version: String,
    here: bool,
    groups: u64,
    demanded: u64,
    waiting: u64,
    owned: u64,
    wal_records: u64,
    wal_bytes: u64,
}

pub(super) async fn brokers(args: &BrokersArgs) -> Result<(), Failure> {
    let found: Answer<Brokers> = args.server.client()?.brokers().await?;
    args.server.print.value(&found, |found| {
        let labels =
            ["broker", "version", "groups", "with demand", "waiting", "partitions", "log records", "log bytes"];
        let row = |broker: &ListedBroker| {
            let counts = [broker.groups, broker.demanded, broker.waiting, broker.owned, broker.wal_records];
            let [groups, demanded, waiting, owned, records] = counts.map(|count| count.to_string());
            let name = format!("{}{}", broker.member, if broker.here { " (this one)" } else { "" });
            let (version, bytes) = (broker.version.clone(), output::bytes(broker.wal_bytes));
            [name, version, groups, demanded, waiting, owned, records, bytes]
        };
        output::table(labels, found.brokers.iter().map(row), &[2, 3, 4, 5, 6, 7])
    })
}
