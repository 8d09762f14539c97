//! `dwell cron`: creates, updates, gets, lists, pauses, resumes and deletes cron jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::api::{CronJob, NewCronJob};
use super::failure::Failure;
use super::{ServerArgs, output, parse};
use crate::limits::ATTEMPTS_MAX;
use crate::message::{ScheduleName, TopicName};
use crate::time::{Timestamp, parse_span, parse_timestamp, show_span};

const EXAMPLES: &str = "\
Examples:
  dwell cron create orders nightly --cron '0 3 * * *' --time-zone Europe/Berlin 'close the books'
  dwell cron create orders pulse --every 15m --missed skip 'look for unpaid orders'
  dwell cron list orders
  dwell cron pause orders nightly
  dwell cron resume orders nightly
  dwell cron delete orders nightly

A cron job that exists is updated. A paused one pushes nothing, and what it would have pushed is not made up for.";

/// Create, update, get, list, pause, resume and delete cron jobs
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CronArgs {
    #[command(subcommand)]
    command: CronCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum CronCommand {
    /// Create a cron job, or update it
    Create(Box<CreateArgs>),
    /// Print the cron jobs of a topic
    List {
        /// The topic
        #[arg(value_parser = parse::topic)]
        topic: TopicName,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Pause a cron job: nothing is pushed until it is resumed
    Pause(OneArgs),
    /// Resume a cron job, without what has occurred meanwhile
    Resume(OneArgs),
    /// Delete a cron job; what it has pushed stays
    Delete(OneArgs),
}

#[derive(Debug, Args)]
struct OneArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The name of the cron job
    #[arg(value_parser = parse::cron_name)]
    name: ScheduleName,
}

#[derive(Debug, Args)]
struct CreateArgs {
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

impl CreateArgs {
    fn body(&self) -> NewCronJob<'_> {
        NewCronJob {
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

pub(super) async fn run(args: &CronArgs) -> Result<(), Failure> {
    let client = args.server.client()?;
    match &args.command {
        CronCommand::Create(args) => {
            let (created, cron) = client.create_cron_job(&args.one.topic, &args.one.name, &args.body()).await?;
            let what = if created { "created" } else { "updated" };
            output::line(format_args!("{} {what}; {}", cron.name, next(&cron)))
        }
        CronCommand::List { topic, json } => {
            let (mut cursor, mut rows) = (None, Vec::new());
            loop {
                let page = client.cron_jobs(topic, cursor.as_deref()).await?;
                if *json {
                    page.cron_jobs.iter().try_for_each(output::json)?;
                } else {
                    rows.extend(page.cron_jobs.iter().map(row));
                }
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            if rows.is_empty() { Ok(()) } else { output::line(output::columns(&rows, &[])) }
        }
        CronCommand::Pause(one) => {
            let cron = client.pause_cron_job(&one.topic, &one.name, "pause").await?;
            output::line(format_args!("{} {}", cron.name, next(&cron)))
        }
        CronCommand::Resume(one) => {
            let cron = client.pause_cron_job(&one.topic, &one.name, "resume").await?;
            output::line(format_args!("{} {}", cron.name, next(&cron)))
        }
        CronCommand::Delete(one) => {
            client.delete_cron_job(&one.topic, &one.name).await?;
            output::line(format_args!("{} deleted", one.name))
        }
    }
}

fn next(cron: &CronJob) -> String {
    cron.next_at.map_or("paused".to_owned(), |at| format!("next at {at}"))
}

fn row(cron: &CronJob) -> Vec<String> {
    let when = match (&cron.cron, cron.every_ms) {
        (Some(cron), _) => format!("{cron} {}", cron.time_zone.as_deref().unwrap_or_default()),
        (None, every) => format!("every {}", every.map_or(String::new(), show_span)),
    };
    vec![cron.name.clone(), when, next(cron), cron.payload.shown()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_jobs_are_a_table() -> serde_json::Result<()> {
        let all: Vec<CronJob> = serde_json::from_str(
            r#"[{"name": "nightly", "cron": "0 3 * * *", "time_zone": "UTC", "missed": "last", "paused": false,
                 "next_at": "1970-01-01T00:00:00Z", "meta": {}, "payload": "close\nbooks"},
                {"name": "pulse", "every_ms": 900000, "from": "1970-01-01T00:00:00Z", "missed": "skip", "paused": true, "payload_base64": "/wA="}]"#,
        )?;
        let rows: Vec<_> = all.iter().map(row).collect();
        let expected = "\
nightly  0 3 * * * UTC  next at 1970-01-01T00:00:00.000Z  close·books
pulse    every 15m      paused                            (2 bytes)";
        assert_eq!(output::columns(&rows, &[]), expected);
        Ok(())
    }
}
