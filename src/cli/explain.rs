//! `dwell explain`: why a message is not delivered yet.

use clap::Args;

use super::failure::Failure;
use super::message::WhichArgs;
use super::{ServerArgs, output};

const EXAMPLES: &str = "\
Examples:
  dwell explain orders close-4711 --key customer-9
  dwell explain orders 01JH2Q9V0000000000000000 --json";

/// Explain why a message is not delivered yet, in each group
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let explained = args.server.client()?.explain(&args.which.topic, &args.which.id, args.which.key.as_ref()).await?;
    if args.which.json {
        return output::json(&explained);
    }
    let line = |group: &super::control::GroupReason| format!("{}: {}: {}", group.group, group.reason, group.detail);
    output::line(explained.groups.iter().map(line).collect::<Vec<_>>().join("\n"))
}
