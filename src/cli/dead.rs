//! `dwell dead`: lists, redrives and purges dead messages.

use clap::{Args, Subcommand};

use super::api::Dead;
use super::client::GroupOf;
use super::failure::Failure;
use super::{ServerArgs, output, parse};
use crate::limits::BATCH_MESSAGES_MAX;
use crate::message::{GroupName, MessageId, TopicName};

const EXAMPLES: &str = "\
Examples:
  dwell dead list orders
  dwell dead list orders --json --limit 10000 > dead.ndjson
  dwell dead redrive orders sms-4711 sms-4712
  dwell dead redrive orders --all
  dwell dead purge orders --all";

/// List, redrive and purge dead messages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DeadArgs {
    #[command(subcommand)]
    command: DeadCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum DeadCommand {
    /// Print dead messages with their reason, partition by partition, the oldest death first
    List {
        #[command(flatten)]
        of: GroupArgs,
        /// Messages to print at most
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Make dead messages ready again, with no attempt counted
    Redrive(WhichArgs),
    /// Delete dead messages for good
    Purge(WhichArgs),
}

#[derive(Debug, Args)]
struct GroupArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The group
    #[arg(long, default_value = "default", value_parser = parse::group)]
    group: GroupName,
}

impl GroupArgs {
    fn of(&self) -> GroupOf {
        GroupOf { topic: self.topic.clone(), group: self.group.clone() }
    }
}

#[derive(Debug, Args)]
struct WhichArgs {
    #[command(flatten)]
    of: GroupArgs,
    /// The messages
    #[arg(required_unless_present = "all", conflicts_with = "all", value_parser = parse::id)]
    ids: Vec<MessageId>,
    /// All that are dead now
    #[arg(long)]
    all: bool,
}

pub(super) async fn run(args: &DeadArgs) -> Result<(), Failure> {
    let client = args.server.client()?;
    match &args.command {
        DeadCommand::List { of, limit, json } => {
            let (of, mut left, mut cursor) = (of.of(), *limit, None);
            while left > 0 {
                let page = client.dead(&of, left.min(BATCH_MESSAGES_MAX), cursor.as_deref()).await?;
                left = left.saturating_sub(page.dead.len());
                for dead in &page.dead {
                    if *json { output::json(dead)? } else { output::line(shown(dead))? }
                }
                cursor = page.next_cursor;
                if cursor.is_none() {
                    return Ok(());
                }
            }
            output::note(format_args!("there are more: --limit is {limit}"));
            Ok(())
        }
        DeadCommand::Redrive(which) => {
            let mut count = 0;
            for ids in which.pages() {
                count += client.redrive(&which.of.of(), ids.as_deref()).await?;
            }
            output::line(format_args!("{count} redriven{}", which.passed_over(count)))
        }
        DeadCommand::Purge(which) => {
            let mut count = 0;
            for ids in which.pages() {
                count += client.purge(&which.of.of(), ids.as_deref()).await?;
            }
            output::line(format_args!("{count} purged{}", which.passed_over(count)))
        }
    }
}

impl WhichArgs {
    /// The requests to make: one for all that are dead, or one for every thousand ids.
    fn pages(&self) -> Vec<Option<Vec<String>>> {
        if self.all {
            return vec![None];
        }
        let page = |ids: &[MessageId]| Some(ids.iter().map(MessageId::to_string).collect());
        self.ids.chunks(BATCH_MESSAGES_MAX).map(page).collect()
    }

    fn passed_over(&self, count: u64) -> String {
        match (self.ids.len() as u64).saturating_sub(count) {
            0 => String::new(),
            others => format!(", {others} not dead"),
        }
    }
}

fn shown(dead: &Dead) -> String {
    let attempts = if dead.attempts == 1 { "1 attempt".to_owned() } else { format!("{} attempts", dead.attempts) };
    let error = dead.last_error.as_ref().map_or(String::new(), |error| format!(": {error:?}"));
    let what = dead.unreadable.as_ref().map_or(dead.payload.shown(), |why| format!("(unreadable: {why})"));
    format!("{} {} {} after {attempts}{error}  {what}", dead.died_at, dead.id, dead.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_message_is_one_line() -> serde_json::Result<()> {
        let dead: Dead = serde_json::from_str(
            r#"{"id": "a", "partition": 3, "died_at": 0, "reason": "max_attempts", "attempts": 3,
                "last_error": "smtp: 451\n", "due_at": 0, "pushed_at": 0, "meta": {}, "payload": "x\ny"}"#,
        )?;
        let line = r#"1970-01-01T00:00:00.000Z a max_attempts after 3 attempts: "smtp: 451\n"  x·y"#;
        assert_eq!(shown(&dead), line);
        Ok(())
    }
}
