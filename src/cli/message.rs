//! `dwell message`: gets, lists, cancels and reschedules messages, and makes them due now.
//! `dwell explain`: why one is not delivered yet.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use dwell_client::wire::messages::{Control, GroupReason, ListedMessage, Message};
use dwell_client::{MessageFilter, Reschedule};
use futures_util::StreamExt as _;

use super::contents::{Payload, printable, stack_of};
use super::failure::Failure;
use super::remote::{At as _, Remote};
use super::{PrintArgs, ServerArgs, output, parse};
use crate::model::limits::BATCH_MESSAGES_MAX;
use crate::model::message::{GroupName, Key, MessageId, Past, TopicName};
use crate::model::time::{Timestamp, parse_span};

const EXAMPLES: &str = "\
Examples:
  dwell message get orders close-4711 --key customer-7
  dwell message cancel orders close-4711 --key customer-7
  dwell message reschedule orders close-4711 --key customer-7 --delay 1h
  dwell message run orders close-4711 --key customer-7
  dwell message list orders --state scheduled --to +1h

If a consumer has the message, it is in flight: then it is neither cancelled nor rescheduled, and
the command fails.";

/// Get, list, cancel, reschedule and run messages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MessageArgs {
    #[command(subcommand)]
    command: MessageCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum MessageCommand {
    /// Print a message and where it is
    Get {
        #[command(flatten)]
        which: WhichArgs,
        /// In which group
        #[arg(long, default_value = "default", value_parser = parse::group)]
        group: GroupName,
    },
    /// Print messages by state and due time
    List(ListArgs),
    /// Cancel a message in every group in which it waits
    Cancel(WhichArgs),
    /// Change the due time of a message
    #[command(group(ArgGroup::new("due").args(["delay", "at"]).required(true)))]
    Reschedule {
        #[command(flatten)]
        which: WhichArgs,
        /// Due this long from now, as in 30s, 1h30m, 2d
        #[arg(long, value_name = "DURATION", value_parser = parse_span, allow_hyphen_values = true)]
        delay: Option<Duration>,
        /// Due at this time: RFC 3339, Unix milliseconds, or relative to now, as in +1h
        #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true, conflicts_with = "delay")]
        at: Option<Timestamp>,
        /// If the time is in the past: now (due at once) or reject, the default
        #[arg(long, value_name = "POLICY", value_parser = parse::past, requires = "at")]
        past: Option<Past>,
        /// Only if it still has this etag, which `get --json` prints
        #[arg(long, value_name = "ETAG")]
        if_match: Option<String>,
    },
    /// Make a message due now
    Run(WhichArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// In which group
    #[arg(long, default_value = "default", value_parser = parse::group)]
    group: GroupName,
    /// scheduled, ready, blocked, backoff, in_flight or dead; without it, scheduled and ready
    #[arg(long, value_name = "STATE", value_parser = ["scheduled", "ready", "blocked", "backoff", "in_flight", "dead"])]
    state: Option<String>,
    /// From this time on: RFC 3339, Unix milliseconds, or relative to now, as in -1h
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    from: Option<Timestamp>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    to: Option<Timestamp>,
    /// due: by the time at which they are tried next, over all partitions; partition: partition by partition. Without it,
    /// due for messages that are scheduled or ready, and partition for others
    #[arg(long, value_name = "ORDER", value_parser = ["due", "partition"])]
    order: Option<String>,
    /// Messages to print at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

impl ListArgs {
    fn filter(&self) -> MessageFilter {
        // One more than is printed says whether there are more.
        let filter = MessageFilter::default().group(self.group.as_str()).page((self.limit + 1).min(BATCH_MESSAGES_MAX));
        let filter = self.state.iter().fold(filter, MessageFilter::state);
        let filter = self.from.into_iter().fold(filter, MessageFilter::from);
        let filter = self.to.into_iter().fold(filter, MessageFilter::to);
        if self.is_by_due_time() { filter.by_due_time() } else { filter }
    }

    fn is_by_due_time(&self) -> bool {
        match &self.order {
            Some(order) => order == "due",
            None => !matches!(self.state.as_deref(), Some("blocked" | "backoff" | "in_flight" | "dead")),
        }
    }
}

/// A message, by its id.
#[derive(Debug, Args)]
pub(crate) struct WhichArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The message
    #[arg(value_parser = parse::id)]
    id: MessageId,
    /// The key of the message, if it has one
    #[arg(long, value_parser = parse::key)]
    key: Option<Key>,
}

impl WhichArgs {
    fn names(&self) -> (&str, dwell_client::MessageId) {
        let key = self.key.as_ref().map(Key::to_string);
        (self.topic.as_str(), dwell_client::MessageId { id: self.id.to_string(), key })
    }
}

pub(crate) async fn run(args: &MessageArgs) -> Result<(), Failure> {
    let (remote, print) = (args.server.remote()?, &args.server.print);
    let Remote { client, place } = &remote;
    let control = match &args.command {
        MessageCommand::Get { which, group } => {
            let (topic, message) = which.names();
            return print.value(&client.get_in(topic, group.as_str(), message).await.at(place)?, shown);
        }
        MessageCommand::List(args) => return list(&remote, args, print).await,
        MessageCommand::Cancel(which) => {
            let (topic, message) = which.names();
            client.cancel(topic, message).await
        }
        MessageCommand::Reschedule { which, delay, at, past, if_match } => {
            let (topic, message) = which.names();
            let due = at.map_or_else(|| Reschedule::after(delay.unwrap_or_default()), Reschedule::at);
            let due = past.map(of_wire).into_iter().fold(due, Reschedule::past);
            client.reschedule(topic, message, if_match.iter().fold(due, Reschedule::etag)).await
        }
        MessageCommand::Run(which) => {
            let (topic, message) = which.names();
            client.reschedule(topic, message, Reschedule::after(Duration::ZERO)).await
        }
    };
    let control = control.at(place)?;
    print.value(&control, shown_control)?;
    // Some group has it in flight: that is not what was asked for.
    if control.status == "partly" { Err(Failure::printed()) } else { Ok(()) }
}

fn of_wire(past: Past) -> dwell_client::Past {
    match past {
        Past::Now => dwell_client::Past::Now,
        Past::Reject => dwell_client::Past::Reject,
    }
}

async fn list(Remote { client, place }: &Remote, args: &ListArgs, print: &PrintArgs) -> Result<(), Failure> {
    let mut messages = client.list(args.topic.as_str(), args.filter());
    // A page is printed as soon as it is there.
    let mut pages = messages.by_ref().take(args.limit).ready_chunks(BATCH_MESSAGES_MAX);
    let mut is_empty = true;
    while let Some(page) = pages.next().await {
        is_empty = false;
        print.page(&page.into_iter().collect::<Result<Vec<_>, _>>().at(place)?, table)?;
    }
    drop(pages);
    match messages.next().await.transpose().at(place)? {
        Some(_) => output::note(format_args!("there are more: --limit is {}", args.limit)),
        None if is_empty => print.none(none(args)),
        None => {}
    }
    Ok(())
}

/// `no ready messages in group default of orders from 2026-01-02T03:04:05.678Z`.
fn none(args: &ListArgs) -> String {
    let state = args.state.as_deref().map_or_else(|| "scheduled or ready".to_owned(), |state| state.replace('_', " "));
    let from = args.from.map_or(String::new(), |from| format!(" from {from}"));
    let to = args.to.map_or(String::new(), |to| format!(" before {to}"));
    // Of a topic that is new.
    let hint = match (&args.state, args.from, args.to) {
        (None, None, None) => format!("; `dwell push {} hello --delay 1h` pushes one", args.topic),
        _ => String::new(),
    };
    format!("no {state} messages in group {} of {}{from}{to}{hint}", args.group, args.topic)
}

fn table(messages: &[ListedMessage]) -> String {
    let labels = ["next, or since", "id", "state", "partition", "payload"];
    output::table(labels, messages.iter().map(row), &[3])
}

fn row(message: &ListedMessage) -> [String; 5] {
    let ListedMessage { id, state, partition, unreadable, .. } = message;
    let at = message.next_at.or(message.died_at).or(message.due_at);
    let payload = message.contents.as_ref().map(Payload::from).unwrap_or_default();
    let what = unreadable.as_ref().map_or_else(|| payload.shown(), |why| format!("(unreadable: {why})"));
    let at = at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    [at, id.clone(), state.to_string(), partition.to_string(), what]
}

/// `close-4711 scheduled in partition 3, due 2026-01-02T03:04:05.678Z, tried 0 times`, and below it what is in the message.
fn shown(info: &Message) -> String {
    let times = if info.attempts == 1 { "once".to_owned() } else { format!("{} times", info.attempts) };
    let next = info.next_at.filter(|at| *at != info.due_at).map_or(String::new(), |at| format!(", next at {at}"));
    let dead = info.reason.as_ref().map_or(String::new(), |reason| format!(", {reason}"));
    let error = info.last_error.as_ref().map_or(String::new(), |error| format!(": {:?}", error.to_string()));
    let (id, state, partition, due) = (&info.id, &info.state, info.partition, info.due_at);
    let owner = info.owner.as_ref().map_or(String::new(), |owner| format!(", owner {owner}"));
    let successor = info.successor_due_at.map_or(String::new(), |at| format!(", followed by one that is due {at}"));
    let head =
        format!("{id} {state} in partition {partition}, due {due}{next}, tried {times}{dead}{error}{owner}{successor}");
    let stack = info.last_error.as_ref().map_or(Vec::new(), stack_of);
    let heading = (!stack.is_empty()).then(|| "  stack".to_owned());
    [head, output::columns(&contents(info), &[])].into_iter().chain(heading).chain(stack).collect::<Vec<_>>().join("\n")
}

/// The fields of a message that have a value, a line each.
fn contents(info: &Message) -> Vec<Vec<String>> {
    let contents = &info.contents;
    let payload = Payload::from(contents);
    let optional = |name: &'static str, value: &Option<String>| value.as_deref().map(|text| (name, printable(text)));
    let mut lines: Vec<(&str, String)> = Vec::new();
    lines.extend(optional("key", &contents.key));
    lines.extend(optional("dedup key", &contents.dedup_key));
    lines.extend((contents.priority > 0).then(|| ("priority", contents.priority.to_string())));
    lines.push(("pushed", contents.pushed_at.to_string()));
    lines.extend(info.expires_at.map(|at| ("expires", at.to_string())));
    lines.extend(optional("content type", &contents.content_type));
    lines.extend(contents.meta.0.iter().map(|(name, value)| ("meta", printable(&format!("{name}={value}")))));
    lines.extend(optional("traceparent", &contents.traceparent));
    lines.extend(payload.bytes().ok().map(|bytes| ("size", output::bytes(bytes.len() as u64))));
    lines.push(("payload", payload.shown()));
    lines.into_iter().map(|(name, value)| vec![format!("  {name}"), value]).collect()
}

/// `close-4711 cancelled`; the groups one by one where they differ.
fn shown_control(control: &Control) -> String {
    let due = control.due_at.map_or(String::new(), |at| format!(", due {at}"));
    let buffered = if control.buffered { " (it was buffered on the broker's disk)" } else { "" };
    let others = control.groups.iter().filter(|group| group.status != control.status);
    let others: String = others.map(|group| format!(", {} in {}", group.status, group.group)).collect();
    format!("{} {}{due}{buffered}{others}", control.id, control.status)
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  dwell explain orders close-4711 --key customer-9
  dwell explain orders 01JH2Q9V0000000000000000 --json";

/// Explain why a message is not delivered yet, in each group
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let (Remote { client, place }, (topic, message)) = (args.server.remote()?, args.which.names());
    let explained = client.explain(topic, message).await.at(&place)?;
    let row = |group: &GroupReason| [group.group.clone(), group.reason.to_string(), group.detail.clone()];
    args.server.print.value(&explained, |explained| {
        output::table(["group", "reason", "detail"], explained.groups.iter().map(row), &[])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_printed_with_what_is_in_it() -> serde_json::Result<()> {
        let message = r#"{"id": "close-4711", "partition": 3, "state": "scheduled", "attempts": 1, "etag": "\"1.0\"",
            "due_at": "2026-01-02T03:04:05.678Z", "next_at": "2026-01-02T03:05:05.678Z", "pushed_at": "2026-01-02T02:34:05Z",
            "expires_at": "2026-01-03T00:00:00Z", "key": "customer-7", "dedup_key": "cart-9", "priority": 3,
            "content_type": "application/json", "meta": {"trace": "é\u001b", "tenant": "a"}, "payload": "{\"a\":\n1}"}"#;
        let expected = "\
close-4711 scheduled in partition 3, due 2026-01-02T03:04:05.678Z, next at 2026-01-02T03:05:05.678Z, tried once
  key           customer-7
  dedup key     cart-9
  priority      3
  pushed        2026-01-02T02:34:05.000Z
  expires       2026-01-03T00:00:00.000Z
  content type  application/json
  meta          trace=é·
  meta          tenant=a
  size          8 B
  payload       {\"a\":·1}";
        assert_eq!(shown(&serde_json::from_str(message)?), expected);
        let bytes = r#"{"id": "a", "partition": 0, "state": "dead", "attempts": 2, "etag": "\"1.0\"", "reason": "max_attempts",
            "last_error": {"class": "Smtp", "message": "451", "stack": "at a\n\tat b\u001b"}, "due_at": "2026-01-02T03:04:05Z", "pushed_at": "2026-01-02T02:34:05Z", "payload_base64": "/wA="}"#;
        let expected = "\
a dead in partition 0, due 2026-01-02T03:04:05.000Z, tried 2 times, max_attempts: \"Smtp: 451\"
  pushed   2026-01-02T02:34:05.000Z
  size     2 B
  payload  (2 bytes)
  stack
    at a
        at b·";
        assert_eq!(shown(&serde_json::from_str(bytes)?), expected);
        Ok(())
    }
}
