//! `dwell dead-letters`: lists, redrives and purges dead letters.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::{Args, Subcommand};
use dwell_client::wire::dead_letters::{DeadLetterMessage, DeadLetterSelector, Purged, Redriven};
use dwell_client::wire::messages::FailedAttempt;
use dwell_client::{DeadLetterFilter, Pages};
use futures_util::StreamExt as _;
use serde_json::json;

use super::contents::{Payload, stack_of};
use super::failure::{CallResult, Failure};
use super::output::{self, YesArgs};
use super::parse::{self, GroupArgs};
use super::place::Place;
use super::remote::{At as _, Remote};
use super::{PrintArgs, ServerArgs};
use crate::model::limits::{BATCH_MESSAGES_MAX, REDRIVE_RATE_MAX};
use crate::model::message::MessageId;
use crate::model::spelling::counted;
use crate::model::time::parse_span;

const EXAMPLES: &str = "\
Examples:
  dwell dead-letters list orders
  dwell dead-letters list orders --reason max_attempts --text 'smtp: 451' --history
  dwell dead-letters list orders --order newest --limit 20
  dwell dead-letters list orders --json --limit 10000 > dead.ndjson
  dwell dead-letters redrive orders sms-4711 sms-4712
  dwell dead-letters redrive orders --younger-than 2h --text 'smtp: 451' --rate 50
  dwell dead-letters redrive orders --all --limit 10
  dwell dead-letters purge orders --older-than 30d";

/// List, redrive and purge dead letters
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DeadLetterArgs {
    #[command(subcommand)]
    command: DeadLetterCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum DeadLetterCommand {
    /// Print dead letters with their reason
    List(ListArgs),
    /// Make dead letters ready again, with no attempt counted
    Redrive(WhichArgs),
    /// Delete dead letters for good
    Purge {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        yes: YesArgs,
    },
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    of: GroupArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// newest or oldest: by the time of their death over all partitions, this one first; partition: partition by
    /// partition, the oldest death of each first
    #[arg(long, value_name = "ORDER", default_value = "partition", value_parser = ["partition", "oldest", "newest"])]
    order: String,
    /// Messages to print at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Print how each attempt failed, too
    #[arg(long)]
    history: bool,
}

#[derive(Debug, Clone, Args)]
struct FilterArgs {
    /// Only those with this reason: max_attempts, buried, unreadable or expired
    #[arg(long)]
    reason: Option<String>,
    /// Only those that died at least this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    older_than: Option<Duration>,
    /// Only those that died at most this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    younger_than: Option<Duration>,
    /// Only those with this text in the last error or the payload
    #[arg(long)]
    text: Option<String>,
}

impl FilterArgs {
    fn which(&self) -> DeadLetterSelector {
        let FilterArgs { reason, older_than, younger_than, text } = self.clone();
        DeadLetterSelector { reason, older_than, younger_than, text, ..DeadLetterSelector::default() }
    }

    fn is_given(&self) -> bool {
        let FilterArgs { reason, older_than, younger_than, text } = self;
        reason.is_some() || older_than.is_some() || younger_than.is_some() || text.is_some()
    }
}

impl ListArgs {
    fn filter(&self) -> DeadLetterFilter {
        let FilterArgs { reason, older_than, younger_than, text } = &self.filter;
        // One more than is printed says whether there are more.
        let filter = DeadLetterFilter::default().page((self.limit + 1).min(BATCH_MESSAGES_MAX));
        let filter = reason.iter().fold(filter, DeadLetterFilter::reason);
        let filter = older_than.iter().copied().fold(filter, DeadLetterFilter::older_than);
        let filter = younger_than.iter().copied().fold(filter, DeadLetterFilter::younger_than);
        let filter = text.iter().fold(filter, DeadLetterFilter::text);
        match self.order.as_str() {
            "newest" => filter.newest_first(),
            "oldest" => filter.oldest_first(),
            _ => filter,
        }
    }
}

const DESCRIBED: [&str; 5] = ["all", "reason", "older_than", "younger_than", "text"];

#[derive(Debug, Args)]
struct WhichArgs {
    #[command(flatten)]
    of: GroupArgs,
    /// Ids of dead letters
    #[arg(conflicts_with_all = DESCRIBED, value_parser = parse::id)]
    ids: Vec<MessageId>,
    /// All that are dead now
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// At most this many
    #[arg(long, value_name = "N", conflicts_with = "ids", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// At most this many a second
    #[arg(long, value_name = "N", conflicts_with = "ids")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(REDRIVE_RATE_MAX)))]
    rate: Option<u32>,
    /// Only count them
    #[arg(long, conflicts_with_all = ["ids", "rate"])]
    dry_run: bool,
}

pub(crate) async fn run(args: &DeadLetterArgs) -> Result<(), Failure> {
    let (remote, print) = (args.server.remote()?, &args.server.print);
    let Remote { client, place } = &remote;
    match &args.command {
        DeadLetterCommand::List(args) => list(&remote, args, print).await,
        DeadLetterCommand::Redrive(which) => {
            which.check()?;
            let (topic, group) = which.of.names();
            let redrive = |request| client.redrive(topic, group, request);
            which.sweep(print, "redriven", redrive, place).await
        }
        DeadLetterCommand::Purge { which, yes } => {
            which.check()?;
            let (topic, group) = which.of.names();
            let purge = |request| client.purge_dead_letters(topic, group, request);
            if which.all && !which.dry_run && !yes.is_given() {
                let request = DeadLetterSelector { rate: None, ..which.request().dry_run() };
                let count = purge(request).total().await.at(place)?.matching.unwrap_or_default();
                let count = counted(count, "dead letter");
                yes.ask(format_args!("Delete all {count} of group {group} of {topic}"), place)?;
            }
            which.sweep(print, "purged", purge, place).await
        }
    }
}

async fn list(Remote { client, place }: &Remote, args: &ListArgs, print: &PrintArgs) -> Result<(), Failure> {
    let (topic, group) = args.of.names();
    let mut dead_letters = client.dead_letters(topic, group, args.filter());
    // A page is printed as soon as it is there.
    let mut pages = dead_letters.by_ref().take(args.limit).ready_chunks(BATCH_MESSAGES_MAX);
    let mut is_empty = true;
    while let Some(page) = pages.next().await {
        is_empty = false;
        let page = page.into_iter().collect::<Result<Vec<_>, _>>().at(place)?;
        print.page(&page, |dead| table(dead, args.history))?;
    }
    drop(pages);
    match dead_letters.next().await.transpose().at(place)? {
        Some(_) => output::note(format_args!("there are more: --limit is {}", args.limit)),
        None if is_empty => {
            let matching = if args.filter.is_given() { " that match" } else { "" };
            print.none(format_args!("no dead letters in group {group} of {topic}{matching}"));
        }
        None => {}
    }
    Ok(())
}

/// How many a request redrove or purged, or would have in a dry run.
trait Swept {
    fn count(&self) -> u64;
}

impl Swept for Redriven {
    fn count(&self) -> u64 {
        self.redriven + self.matching.unwrap_or_default()
    }
}

impl Swept for Purged {
    fn count(&self) -> u64 {
        self.purged + self.matching.unwrap_or_default()
    }
}

impl WhichArgs {
    /// Refuses a command that does not say which. # Errors: usage.
    fn check(&self) -> Result<(), Failure> {
        match self.all || self.filter.is_given() || !self.ids.is_empty() {
            true => Ok(()),
            false => {
                let ways = "give ids, or --reason, --older-than, --younger-than or --text, or --all";
                Err(Failure::usage(format!("say which dead letters of {}: {ways}", self.of.topic)))
            }
        }
    }

    fn request(&self) -> DeadLetterSelector {
        let limit = self.limit.and_then(NonZeroU64::new);
        DeadLetterSelector { rate: self.rate, all: self.all, dry_run: self.dry_run, limit, ..self.filter.which() }
    }

    /// Makes requests until nothing is left, and says how many it were. Ending the command ends it in the broker too.
    async fn sweep<T: Swept + Send + 'static>(
        &self,
        print: &PrintArgs,
        done: &str,
        ask: impl Fn(DeadLetterSelector) -> Pages<T>,
        place: &Place,
    ) -> Result<(), Failure> {
        if !self.ids.is_empty() {
            let mut count = 0;
            for ids in self.ids.chunks(BATCH_MESSAGES_MAX) {
                let which = DeadLetterSelector::of(ids.iter().map(MessageId::to_string));
                count += swept(ask(which), place, |_| ()).await?;
            }
            let others = (self.ids.len() as u64).saturating_sub(count);
            let others = if others == 0 { String::new() } else { format!(", {others} not dead") };
            return print.value(&json!({done: count}), |_| format!("{count} {done}{others}"));
        }
        let field = if self.dry_run { "matching" } else { done };
        let done = if self.dry_run { format!("would be {done}") } else { done.to_owned() };
        let progress = |count| output::progress(format_args!("{count} {done} so far"));
        let count = swept(ask(self.request()), place, progress).await?;
        print.value(&json!({field: count}), |_| format!("{count} {done}"))
    }
}

/// How many all requests together swept; `so_far` hears of each.
async fn swept<T: Swept + Send + 'static>(mut parts: Pages<T>, place: &Place, so_far: impl Fn(u64)) -> CallResult<u64> {
    let mut count = 0;
    while let Some(part) = parts.next().await.transpose().at(place)? {
        count += part.count();
        so_far(count);
    }
    Ok(count)
}

fn attempt(failure: &FailedAttempt) -> String {
    let reason = failure.reason.as_ref().map_or(String::new(), |reason| format!(": {reason:?}"));
    format!("  {} attempt {}{reason}", failure.at, failure.attempt)
}

/// How each attempt failed, and where the last one did.
fn attempts_of(dead: &DeadLetterMessage) -> Vec<String> {
    let stack = dead.last_error.as_ref().map_or(Vec::new(), stack_of);
    dead.history.iter().map(attempt).chain(stack).collect()
}

/// A line for each, and below it how each attempt failed, if that is wanted.
fn table(dead_letters: &[DeadLetterMessage], history: bool) -> String {
    let labels = ["died", "id", "reason", "attempts", "last error", "payload"];
    let table = output::table(labels, dead_letters.iter().map(row), &[3]);
    let attempts = |dead: &DeadLetterMessage| if history { attempts_of(dead) } else { Vec::new() };
    output::with_lines_below(&table, dead_letters.iter().map(attempts)).join("\n")
}

fn row(dead: &DeadLetterMessage) -> [String; 6] {
    let error = dead.last_error.as_ref().map_or("-".to_owned(), |error| format!("{:?}", error.to_string()));
    let payload = dead.contents.as_ref().map(Payload::from).unwrap_or_default();
    let what = dead.unreadable.as_ref().map_or(payload.shown(), |why| format!("(unreadable: {why})"));
    let reason = match &dead.unforwarded {
        Some(why) => format!("{}, {why}", dead.reason),
        None => dead.reason.to_string(),
    };
    [dead.died_at.to_string(), dead.id.clone(), reason, dead.attempts.to_string(), error, what]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letter_is_printed_on_one_line() -> serde_json::Result<()> {
        let dead: DeadLetterMessage = serde_json::from_str(
            r#"{"id": "a", "partition": 3, "died_at": "1970-01-01T00:00:00Z", "reason": "max_attempts", "attempts": 3,
                "last_error": {"message": "smtp: 451\n", "stack": "at smtp"}, "history": [{"at": "1970-01-01T00:00:00Z", "attempt": 3, "reason": "smtp: 451"}],
                "due_at": "1970-01-01T00:00:00Z", "pushed_at": "1970-01-01T00:00:00Z", "meta": {}, "payload": "x\ny"}"#,
        )?;
        let lines = r#"
died                      id  reason        attempts  last error     payload
1970-01-01T00:00:00.000Z  a   max_attempts         3  "smtp: 451\n"  x·y"#;
        let attempt = "\n  1970-01-01T00:00:00.000Z attempt 3: \"smtp: 451\"\n    at smtp";
        let dead = [dead];
        assert_eq!(table(&dead, false), lines.trim_start());
        assert_eq!(table(&dead, true), format!("{}{attempt}", lines.trim_start()));
        Ok(())
    }
}
