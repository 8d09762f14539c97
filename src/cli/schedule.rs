//! `dwell schedule`: makes, lists, pauses and removes recurring messages.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::api::{NewSchedule, Schedule};
use super::failure::Failure;
use super::{ServerArgs, output, parse};
use crate::limits::ATTEMPTS_MAX;
use crate::message::{ScheduleName, TopicName};
use crate::time::{Timestamp, parse_span, parse_timestamp, show_span};

const EXAMPLES: &str = "\
Examples:
  dwell schedule put orders nightly --cron '0 3 * * *' --time-zone Europe/Berlin 'close the books'
  dwell schedule put orders pulse --every 15m --missed skip 'look for unpaid orders'
  dwell schedule list orders
  dwell schedule pause orders nightly
  dwell schedule resume orders nightly
  dwell schedule remove orders nightly

Putting a schedule that is there changes it, or does nothing when it is the same. What a schedule pushed while it was
paused is nothing, and is not made up for.";

/// Make, list, pause and remove recurring messages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ScheduleArgs {
    #[command(subcommand)]
    command: ScheduleCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum ScheduleCommand {
    /// Make a schedule, or change one
    Put(Box<PutArgs>),
    /// Print the schedules of a topic
    List {
        /// The topic
        #[arg(value_parser = parse::topic)]
        topic: TopicName,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Push nothing until it is resumed
    Pause(OneArgs),
    /// Go on, without what has occurred meanwhile
    Resume(OneArgs),
    /// Remove a schedule; what it has pushed stays
    Remove(OneArgs),
}

#[derive(Debug, Args)]
struct OneArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The schedule
    #[arg(value_parser = parse::schedule)]
    schedule: ScheduleName,
}

#[derive(Debug, Args)]
struct PutArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The payload
    payload: String,
    /// A cron expression: minute, hour, day of month, month, day of week
    #[arg(long, required_unless_present = "every", conflicts_with_all = ["every", "from"])]
    cron: Option<String>,
    /// The time zone of the cron expression, as in Europe/Berlin; UTC when nothing is said
    #[arg(long, value_name = "NAME", requires = "cron")]
    time_zone: Option<String>,
    /// The span from one occurrence to the next
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    every: Option<Duration>,
    /// Occurrences are whole spans after this
    #[arg(long, value_name = "TIME", value_parser = parse_timestamp)]
    from: Option<Timestamp>,
    /// What is done about occurrences that were missed: skip, last or all
    #[arg(long)]
    missed: Option<String>,
    /// How long after its occurrence a message is still worth delivering
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    ttl: Option<Duration>,
    /// Attempts before a message is dead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(ATTEMPTS_MAX)))]
    max_attempts: Option<u32>,
    /// Media type of the payload
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// A name and value that travel with it; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::meta)]
    meta: Vec<(String, String)>,
}

impl PutArgs {
    fn body(&self) -> NewSchedule<'_> {
        NewSchedule {
            cron: self.cron.as_deref(),
            time_zone: self.time_zone.as_deref(),
            every: self.every,
            from: self.from,
            missed: self.missed.as_deref(),
            ttl: self.ttl,
            max_attempts: self.max_attempts,
            content_type: self.content_type.as_deref(),
            meta: self.meta.iter().cloned().collect::<BTreeMap<_, _>>(),
            payload: &self.payload,
        }
    }
}

pub(super) async fn run(args: &ScheduleArgs) -> Result<(), Failure> {
    let client = args.server.client()?;
    match &args.command {
        ScheduleCommand::Put(args) => {
            let (made, schedule) = client.put_schedule(&args.one.topic, &args.one.schedule, &args.body()).await?;
            let what = if made { "made" } else { "was there" };
            output::line(format_args!("{} {what}; {}", schedule.name, next(&schedule)))
        }
        ScheduleCommand::List { topic, json } => {
            let (mut cursor, mut rows) = (None, Vec::new());
            loop {
                let page = client.schedules(topic, cursor.as_deref()).await?;
                if *json {
                    page.schedules.iter().try_for_each(output::json)?;
                } else {
                    rows.extend(page.schedules.iter().map(row));
                }
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            if rows.is_empty() { Ok(()) } else { output::line(output::columns(&rows, &[])) }
        }
        ScheduleCommand::Pause(one) => {
            let schedule = client.pause_schedule(&one.topic, &one.schedule, "pause").await?;
            output::line(format_args!("{} {}", schedule.name, next(&schedule)))
        }
        ScheduleCommand::Resume(one) => {
            let schedule = client.pause_schedule(&one.topic, &one.schedule, "resume").await?;
            output::line(format_args!("{} {}", schedule.name, next(&schedule)))
        }
        ScheduleCommand::Remove(one) => {
            client.remove_schedule(&one.topic, &one.schedule).await?;
            output::line(format_args!("{} removed", one.schedule))
        }
    }
}

fn next(schedule: &Schedule) -> String {
    schedule.next_at.map_or("paused".to_owned(), |at| format!("next at {at}"))
}

fn row(schedule: &Schedule) -> Vec<String> {
    let when = match (&schedule.cron, schedule.every_ms) {
        (Some(cron), _) => format!("{cron} {}", schedule.time_zone.as_deref().unwrap_or_default()),
        (None, every) => format!("every {}", every.map_or(String::new(), show_span)),
    };
    vec![schedule.name.clone(), when, next(schedule), schedule.payload.shown()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_a_table() -> serde_json::Result<()> {
        let schedules: Vec<Schedule> = serde_json::from_str(
            r#"[{"name": "nightly", "cron": "0 3 * * *", "time_zone": "UTC", "missed": "last", "paused": false,
                 "next_at": "1970-01-01T00:00:00Z", "meta": {}, "payload": "close\nbooks"},
                {"name": "pulse", "every_ms": 900000, "from": "1970-01-01T00:00:00Z", "missed": "skip", "paused": true, "payload_base64": "/wA="}]"#,
        )?;
        let rows: Vec<_> = schedules.iter().map(row).collect();
        let expected = "\
nightly  0 3 * * * UTC  next at 1970-01-01T00:00:00.000Z  close·books
pulse    every 15m      paused                            (2 bytes)";
        assert_eq!(output::columns(&rows, &[]), expected);
        Ok(())
    }
}
