//! `dwell reserve`: takes deliveries and leaves it to a script to settle them.

use std::time::Duration;

use clap::Args;

use super::api::Reserve;
use super::client::GroupOf;
use super::failure::Failure;
use super::{ServerArgs, consume, output, parse};
use crate::model::limits::BATCH_MESSAGES_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::time::parse_span;

const EXAMPLES: &str = "\
Examples:
  dwell reserve orders                         one delivery that is due now, if there is one
  dwell reserve orders --max 10 --wait 20s --json
  dwell reserve orders --json | jq -r .receipt | dwell ack orders -

A line begins with the receipt; with --json it is an object. Without `ack`, `nack` or `extend` a
delivery is nacked after the visibility timeout. If nothing is due, nothing is printed, with exit
code 0.";

/// Reserve messages and print them with their receipts, for a script to settle
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReserveArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The group to consume for
    #[arg(long, default_value = "default", value_parser = parse::group)]
    group: GroupName,
    /// Deliveries to reserve at most
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=BATCH_MESSAGES_MAX as i64))]
    max: u16,
    /// How long to wait for the first one, at most 1m
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_span)]
    wait: Duration,
    /// How long a delivery may take before it is nacked [default: the topic's]
    #[arg(long, value_name = "DURATION", value_parser = parse::visibility_timeout)]
    visibility_timeout: Option<Duration>,
    /// Only messages that were pushed at least this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    min_age: Option<Duration>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &ReserveArgs) -> Result<(), Failure> {
    let of = GroupOf { topic: args.topic.clone(), group: args.group.clone() };
    let request = Reserve {
        max: args.max.into(),
        wait: args.wait,
        visibility_timeout: args.visibility_timeout,
        min_age: args.min_age,
    };
    for delivery in &args.server.client()?.reserve(&of, &request).await? {
        if args.json {
            output::json(delivery)?;
        } else {
            output::line(format_args!("{} {}", delivery.receipt, consume::shown(delivery)))?;
        }
    }
    Ok(())
}
