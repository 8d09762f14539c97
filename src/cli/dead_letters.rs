//! `dwell dead-letters`: lists, redrives and purges dead letters.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::{Args, Subcommand};
use dwell_client::wire::dead_letters::{DeadLetterMessage, Purged, Redriven, Which};
use dwell_client::wire::items::Items;
use dwell_client::wire::messages::FailedAttempt;
use serde_json::json;

use super::api::{Payload, WithJson};
use super::client::{Client, GroupOf};
use super::failure::{CallResult, Failure};
use super::output::{self, YesArgs};
use super::parse::{self, GroupArgs};
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
    List {
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
    },
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
    fn which(&self) -> Which {
        let FilterArgs { reason, older_than, younger_than, text } = self.clone();
        Which { reason, older_than, younger_than, text, ..Which::default() }
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
    let (client, print) = (args.server.client()?, &args.server.print);
    match &args.command {
        DeadLetterCommand::List { of, filter, order, limit, history } => {
            let (of, filter, mut left, mut cursor) = (of.of(), filter.which(), *limit, None);
            while left > 0 {
                let page = client.dead(&of, (&filter, order), left.min(BATCH_MESSAGES_MAX), cursor.as_deref()).await?;
                left = left.saturating_sub(page.dead_letters.len());
                print.page(&page.dead_letters, |dead| table(dead, *history))?;
                cursor = page.next_cursor;
                if cursor.is_none() {
                    if left == *limit {
                        let matching = if filter == Which::default() { "" } else { " that match" };
                        print.none(format_args!("no dead letters in group {} of {}{matching}", of.group, of.topic));
                    }
                    return Ok(());
                }
            }
            output::note(format_args!("there are more: --limit is {limit}"));
            Ok(())
        }
        DeadLetterCommand::Redrive(which) => {
            which.check()?;
            let of = which.of.of();
            which
                .sweep(print, "redriven", async |request: &Which| client.redrive(&of, request).await.map(Swept::from))
                .await
        }
        DeadLetterCommand::Purge { which, yes } => {
            which.check()?;
            let of = which.of.of();
            if which.all && !which.dry_run && !yes.is_given() {
                let count = counted(which.count(&client, &of).await?, "dead letter");
                yes.ask(format_args!("Delete all {count} of group {} of {}", of.group, of.topic), client.place())?;
            }
            which
                .sweep(print, "purged", async |request: &Which| client.purge(&of, request).await.map(Swept::from))
                .await
        }
    }
}

/// How many a request redrove or purged, or would have in a dry run.
struct Swept {
    count: u64,
    next_cursor: Option<String>,
}

impl From<Redriven> for Swept {
    fn from(Redriven { redriven, matching, next_cursor }: Redriven) -> Swept {
        Swept { count: redriven + matching.unwrap_or_default(), next_cursor }
    }
}

impl From<Purged> for Swept {
    fn from(Purged { purged, matching, next_cursor }: Purged) -> Swept {
        Swept { count: purged + matching.unwrap_or_default(), next_cursor }
    }
}

impl WhichArgs {
    /// Refuses a command that does not say which. # Errors: usage.
    fn check(&self) -> Result<(), Failure> {
        let filter = &self.filter;
        let is_filtered = filter.reason.is_some() || filter.text.is_some();
        let has_age = filter.older_than.is_some() || filter.younger_than.is_some();
        match self.all || is_filtered || has_age || !self.ids.is_empty() {
            true => Ok(()),
            false => {
                let ways = "give ids, or --reason, --older-than, --younger-than or --text, or --all";
                Err(Failure::usage(format!("say which dead letters of {}: {ways}", self.of.topic)))
            }
        }
    }

    fn request(&self) -> Which {
        Which { rate: self.rate, all: self.all, dry_run: self.dry_run, ..self.filter.which() }
    }

    async fn count(&self, client: &Client, of: &GroupOf) -> Result<u64, Failure> {
        let mut request =
            Which { dry_run: true, rate: None, limit: self.limit.and_then(NonZeroU64::new), ..self.request() };
        let mut count = 0;
        loop {
            let swept = client.purge(of, &request).await?;
            count += swept.matching.unwrap_or_default();
            if swept.next_cursor.is_none() || self.limit.is_some_and(|limit| count >= limit) {
                return Ok(count);
            }
            request.cursor = swept.next_cursor;
        }
    }

    /// Makes requests until nothing is left, and says how many it were. Ending the command ends it in the broker too.
    async fn sweep(
        &self,
        print: &PrintArgs,
        done: &str,
        ask: impl AsyncFn(&Which) -> CallResult<Swept>,
    ) -> Result<(), Failure> {
        let mut count = 0;
        if !self.ids.is_empty() {
            for ids in self.ids.chunks(BATCH_MESSAGES_MAX) {
                let ids = Some(Items(ids.iter().map(MessageId::to_string).collect()));
                count += ask(&Which { ids, ..Which::default() }).await?.count;
            }
            let others = (self.ids.len() as u64).saturating_sub(count);
            let others = if others == 0 { String::new() } else { format!(", {others} not dead") };
            return print.value(&json!({done: count}), |_| format!("{count} {done}{others}"));
        }
        let field = if self.dry_run { "matching" } else { done };
        let done = if self.dry_run { format!("would be {done}") } else { done.to_owned() };
        let mut request = self.request();
        loop {
            request.limit = self.limit.and_then(|limit| NonZeroU64::new(limit - count));
            let swept = ask(&request).await?;
            count += swept.count;
            if swept.next_cursor.is_none() || self.limit.is_some_and(|limit| count >= limit) {
                return print.value(&json!({field: count}), |_| format!("{count} {done}"));
            }
            request.cursor = swept.next_cursor;
            output::progress(format_args!("{count} {done} so far"));
        }
    }
}

fn attempt(failure: &FailedAttempt) -> String {
    let reason = failure.reason.as_ref().map_or(String::new(), |reason| format!(": {reason:?}"));
    format!("  {} attempt {}{reason}", failure.at, failure.attempt)
}

/// A line for each, and below it how each attempt failed, if that is wanted.
fn table(dead_letters: &[WithJson<DeadLetterMessage>], history: bool) -> String {
    let labels = ["died", "id", "reason", "attempts", "last error", "payload"];
    let table = output::table(labels, dead_letters.iter().map(|dead| row(dead)), &[3]);
    let attempts =
        |dead: &WithJson<DeadLetterMessage>| dead.history.iter().filter(|_| history).map(attempt).collect::<Vec<_>>();
    output::with_lines_below(&table, dead_letters.iter().map(attempts)).join("\n")
}

fn row(dead: &DeadLetterMessage) -> [String; 6] {
    let error = dead.last_error.as_ref().map_or("-".to_owned(), |error| format!("{error:?}"));
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
        let dead: WithJson<DeadLetterMessage> = serde_json::from_str(
            r#"{"id": "a", "partition": 3, "died_at": "1970-01-01T00:00:00Z", "reason": "max_attempts", "attempts": 3,
                "last_error": "smtp: 451\n", "history": [{"at": "1970-01-01T00:00:00Z", "attempt": 3, "reason": "smtp: 451"}],
                "due_at": "1970-01-01T00:00:00Z", "pushed_at": "1970-01-01T00:00:00Z", "meta": {}, "payload": "x\ny"}"#,
        )?;
        let lines = r#"
died                      id  reason        attempts  last error     payload
1970-01-01T00:00:00.000Z  a   max_attempts         3  "smtp: 451\n"  x·y"#;
        let attempt = "\n  1970-01-01T00:00:00.000Z attempt 3: \"smtp: 451\"";
        let dead = [dead];
        assert_eq!(table(&dead, false), lines.trim_start());
        assert_eq!(table(&dead, true), format!("{}{attempt}", lines.trim_start()));
        Ok(())
    }
}
