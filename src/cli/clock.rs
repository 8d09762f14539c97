//! `dwell clock`: what the clock of a broker for tests says, and moving it.

use std::time::Duration;

use clap::{Args, Subcommand};
use dwell_client::testing::Clock;
use dwell_client::wire::operations::{ClockMoved, ClockTime};

use super::ServerArgs;
use super::failure::Failure;
use super::remote::{At as _, Remote};
use crate::model::spelling::counted;
use crate::model::time::{Timestamp, parse_span, parse_timestamp};

const EXAMPLES: &str = "\
Examples:
  dwell clock get
  dwell clock advance 30d
  dwell clock set 2027-03-01T09:00:00Z

The broker has to run with --test-clock. Everything that becomes due can be received as soon as the
command ends.";

/// Show or move the clock of a broker for tests
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClockArgs {
    #[command(subcommand)]
    command: ClockCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum ClockCommand {
    /// Print its time
    Get,
    /// Move it forward by a duration
    Advance {
        /// By how much, such as 90s, 3h or 30d; at most 3650d
        #[arg(value_parser = parse_span)]
        by: Duration,
    },
    /// Move it forward to a time
    Set {
        /// RFC 3339 or Unix milliseconds, not in the past of the clock
        #[arg(value_name = "TIME", value_parser = parse_timestamp)]
        to: Timestamp,
    },
}

pub(crate) async fn run(args: &ClockArgs) -> Result<(), Failure> {
    let Remote { client, place } = args.server.remote()?;
    let clock = Clock::of(&client);
    let moved = match args.command {
        ClockCommand::Get => {
            let now = clock.now().await.at(&place)?;
            return args.server.print.value(&ClockTime { now }, |clock| clock.now);
        }
        ClockCommand::Advance { by } => clock.advance(by).await.at(&place)?,
        ClockCommand::Set { to } => clock.advance_to(to).await.at(&place)?,
    };
    args.server.print.value(&moved, summary)
}

fn summary(moved: &ClockMoved) -> String {
    let due = moved.due.iter().map(|due| {
        let messages = counted(due.messages, "message");
        format!("\n{messages} of {} became due in group {}", due.topic, due.group)
    });
    let fired = moved
        .fired
        .iter()
        .map(|cron| format!("\n{} of {} fired {}", cron.name, cron.topic, counted(cron.times, "time")));
    let timed_out = match moved.timed_out {
        0 => String::new(),
        count => format!("\n{} in flight timed out", counted(count, "message")),
    };
    format!("{}{}{timed_out}", moved.now, due.chain(fired).collect::<String>())
}
