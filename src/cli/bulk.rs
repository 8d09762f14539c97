//! `dwell bulk`: counts, cancels, postpones, advances and parks all messages that are due between two times.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::api::BulkChange;
use super::client::GroupOf;
use super::confirm::YesArgs;
use super::failure::Failure;
use super::{ServerArgs, output, parse};
use crate::model::message::{GroupName, TopicName};
use crate::model::time::{Timestamp, parse_span};

const EXAMPLES: &str = "\
Examples:
  dwell bulk count orders --from now --to +1h
  dwell bulk postpone orders --from now --to +1h --by 2h
  dwell bulk advance orders --from +1d --to +2d --by 1d
  dwell bulk cancel orders --from 2026-01-02T03:00:00Z --to 2026-01-02T04:00:00Z
  dwell bulk park orders --from 2026-01-02T03:00:00Z --to 2026-01-02T04:00:00Z
  dwell bulk unpark orders --from 2026-01-02T03:00:00Z --to 2026-01-02T04:00:00Z

Count first: the other commands change the same messages. An interrupted command continues when it
is repeated with the same absolute times; no message is changed twice. Unpark with the times that
were parked.";

/// Count or change all messages that are due between two times
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct BulkArgs {
    #[command(subcommand)]
    command: BulkCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum BulkCommand {
    /// Count the messages that wait
    Count(WhichArgs),
    /// Cancel the messages
    Cancel {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        yes: YesArgs,
    },
    /// Make the messages due later
    Postpone(ByArgs),
    /// Make the messages due sooner, but not before now
    Advance(ByArgs),
    /// Make the messages due five years later
    Park(WhichArgs),
    /// Bring back the messages that were parked and would be due between these times
    Unpark(WhichArgs),
}

#[derive(Debug, Args)]
struct WhichArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The group whose due times count
    #[arg(long, default_value = "default", value_parser = parse::group)]
    group: GroupName,
    /// The earliest due time: RFC 3339, Unix milliseconds, or relative to now: now, +1h, -1h
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    from: Timestamp,
    /// The end: only messages that are due before it
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    to: Timestamp,
}

#[derive(Debug, Args)]
struct ByArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// By how much: at least the time from --from to --to
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    by: Duration,
}

pub(super) async fn run(args: &BulkArgs) -> Result<(), Failure> {
    let client = args.server.client()?;
    let (which, action, by, done) = match &args.command {
        BulkCommand::Count(which) => {
            let count = client.count_bulk(&which.of(), which.from, which.to).await?;
            return output::line(format_args!("{count} waiting"));
        }
        BulkCommand::Cancel { which, yes } => {
            if !yes.is_given() {
                let count = client.count_bulk(&which.of(), which.from, which.to).await?;
                let count = output::messages(count);
                yes.ask(format_args!("Cancel {count} of {} due between these times?", which.topic))?;
            }
            (which, "cancel", None, "cancelled")
        }
        BulkCommand::Postpone(ByArgs { which, by }) => (which, "postpone", Some(*by), "postponed"),
        BulkCommand::Advance(ByArgs { which, by }) => (which, "advance", Some(*by), "advanced"),
        BulkCommand::Park(which) => (which, "park", None, "parked"),
        BulkCommand::Unpark(which) => (which, "unpark", None, "brought back"),
    };
    let (mut changed, mut passed_over, mut cursor) = (0, 0, None);
    loop {
        let request = BulkChange { from: which.from, to: which.to, action, by, cursor };
        let answer = client.change_bulk(&which.of(), &request).await?;
        (changed, passed_over) = (changed + answer.changed, passed_over + answer.passed_over);
        let others = if passed_over == 0 { String::new() } else { format!(", {passed_over} left alone") };
        cursor = answer.next_cursor;
        if cursor.is_none() {
            return output::line(format_args!("{changed} {done}{others}"));
        }
        output::note(format_args!("{changed} {done}{others} so far"));
    }
}

impl WhichArgs {
    fn of(&self) -> GroupOf {
        GroupOf { topic: self.topic.clone(), group: self.group.clone() }
    }
}
