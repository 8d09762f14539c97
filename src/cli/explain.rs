//! `dwell explain`: why a message is not delivered yet.

use clap::Args;

use super::failure::Failure;
use super::{ServerArgs, output, parse};
use crate::message::{Key, MessageId, TopicName};

const EXAMPLES: &str = "\
Examples:
  dwell explain orders close-4711 --key customer-9
  dwell explain orders 01JH2Q9V0000000000000000 --json";

/// Say why a message is not delivered yet, in each group
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The message
    #[arg(value_parser = parse::id)]
    id: MessageId,
    /// The key that it was pushed with, if it was
    #[arg(long, value_parser = parse::key)]
    key: Option<Key>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let explained = args.server.client()?.explain(&args.topic, &args.id, args.key.as_ref()).await?;
    if args.json {
        return output::json(&explained);
    }
    let line = |group: &super::control::GroupReason| format!("{}: {}: {}", group.group, group.reason, group.detail);
    output::line(explained.groups.iter().map(line).collect::<Vec<_>>().join("\n"))
}
