//! `dwell push`: one message, or a file of them.

mod batch;
mod lines;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;

use super::api::Pushed;
use super::client::{Client, Query};
use super::failure::Failure;
use super::problem::CallError;
use super::{ServerArgs, output, parse};
use crate::model::limits::{ATTEMPTS_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX};
use crate::model::message::{Conflict, Due, Key, MessageId, NewMessage, Past, TopicName};
use crate::model::time::{Timestamp, parse_span, show_span};
use crate::model::trace::TraceContext;
use crate::platform::clock::Clock;

const EXAMPLES: &str = "\
Examples:
  dwell push orders 'close order 4711' --delay 30m --key customer-7
  dwell push orders --at 2026-12-24T18:00:00+01:00 --id card-4711 < card.pdf
  dwell push orders --file orders.ndjson
  generate | dwell push orders --file -

A file has one JSON object a line: `payload`, `payload_base64` or `payload_json`, and optionally
key, id, conflict, delay, due_at, past, ttl, max_attempts, priority, content_type, meta,
traceparent, tracestate. A line that is wrong is reported with its number and the others are pushed.
A push with an --id can be repeated without making a second message.";

/// Push one message, or a file of messages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PushArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The payload; without it, or as -, it is read from stdin
    payload: Option<String>,
    /// Equal keys share a partition
    #[arg(long, value_parser = parse::key)]
    key: Option<Key>,
    /// The message id, to make the push repeatable
    #[arg(long, value_parser = parse::id)]
    id: Option<MessageId>,
    /// If the id exists: keep the message, reject the push, replace the message, or debounce (move its due time)
    #[arg(long, value_name = "POLICY", value_parser = parse::conflict)]
    conflict: Option<Conflict>,
    /// Due this long from now, as in 30s, 1h30m, 2d
    #[arg(long, value_name = "DURATION", value_parser = parse_span, conflicts_with = "at", allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Due at this time: RFC 3339, Unix milliseconds, or relative to now, as in +1h
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    at: Option<Timestamp>,
    /// If the time is in the past: now (due at once) or reject
    #[arg(long, value_name = "POLICY", value_parser = parse::past, requires = "at")]
    past: Option<Past>,
    /// How long after its due time it may still be delivered
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    ttl: Option<Duration>,
    /// Attempts before it is dead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(ATTEMPTS_MAX)))]
    max_attempts: Option<u32>,
    /// 0 to 9: among the ready messages of a partition higher ones are handed out first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=i64::from(PRIORITY_MAX)))]
    priority: Option<u8>,
    /// Media type of the payload
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// A name and value to send with the payload; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::meta)]
    meta: Vec<(String, String)>,
    /// W3C traceparent; consumers receive it with the message
    #[arg(long, value_parser = parse::traceparent)]
    traceparent: Option<TraceContext>,
    /// Push every line of an NDJSON file; - is stdin
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["payload", "key", "id", "conflict", "delay", "at", "past", "ttl", "max_attempts", "priority", "content_type", "meta", "traceparent"])]
    file: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &PushArgs) -> Result<(), Failure> {
    let client = args.server.client()?;
    match &args.file {
        Some(file) => batch::push_file(&client, &args.topic, file, args.json).await,
        None => push_one(&client, args).await,
    }
}

async fn push_one(client: &Client, args: &PushArgs) -> Result<(), Failure> {
    let now = Clock::System.now();
    let mut message = args.message()?;
    // Who gives no id gets one here, so that a push whose outcome is unknown can be repeated.
    let id = message.identify();
    // What the broker would refuse is refused here, before the payload is sent.
    message.clone().accept(now).map_err(|error| Failure::usage(error.detail()))?;
    let pushed = client.push(&args.topic, message, &args.query(&id)).await.map_err(|error| unknown(error, &id))?;
    if pushed.topic_created {
        output::note(format_args!("topic {} did not exist; it was created for this message", args.topic));
    }
    if args.json { output::json(&pushed) } else { output::line(shown(&pushed, now)) }
}

/// A push whose answer did not come may have been stored: how to find out.
fn unknown(error: CallError, id: &MessageId) -> Failure {
    let perhaps = error.is_unknown();
    let mut failure = Failure::from(error);
    if perhaps {
        failure
            .message
            .push_str(&format!("\nIt may have been stored. Repeat with --id {id}, which cannot store it twice."));
    }
    failure
}

/// `stored 01JH… in partition 3, due 2026-01-02T03:04:05.678Z (in 2s)`.
fn shown(pushed: &Pushed, now: Timestamp) -> String {
    let id = pushed.id.as_deref().unwrap_or("?");
    let partition = pushed.partition.map_or(String::new(), |partition| format!(" in partition {partition}"));
    let due = pushed.due_at.map_or(String::new(), |at| {
        // Seconds, for people: the milliseconds that the push itself took are noise.
        let secs = (at.since(now).as_secs_f64()).round() as u64;
        let from_now = if secs == 0 { "now".to_owned() } else { format!("in {}", span_of(secs)) };
        format!(", due {at} ({from_now})")
    });
    match pushed.status.as_str() {
        "duplicate" => format!("duplicate {id}: it is there already, nothing changed"),
        "buffered" => format!("buffered {id}{due}: the store is away, it is on the broker's disk and goes there"),
        status => format!("{status} {id}{partition}{due}"),
    }
}

fn span_of(secs: u64) -> String {
    show_span(Duration::from_secs(secs))
}

impl PushArgs {
    fn message(&self) -> Result<NewMessage, Failure> {
        Ok(NewMessage {
            id: self.id.clone(),
            conflict: self.conflict.unwrap_or_default(),
            key: self.key.clone(),
            due: match (self.delay, self.at) {
                // The broker, which knows the time of the store, decides what is in the past.
                (_, Some(at)) => Due::At(at),
                (delay, None) => Due::In(delay.unwrap_or_default()),
            },
            ttl: self.ttl,
            max_attempts: self.max_attempts,
            priority: self.priority.unwrap_or(0),
            content_type: self.content_type.clone(),
            meta: self.meta.clone(),
            trace: self.traceparent.clone(),
            payload: match self.payload.as_deref() {
                None | Some("-") => read_stdin()?,
                Some(text) => Bytes::copy_from_slice(text.as_bytes()),
            },
        })
    }

    fn query(&self, id: &MessageId) -> Query {
        let span = |span: Duration| show_span(span);
        let given = [
            ("id", Some(id.to_string())),
            ("conflict", self.conflict.map(|conflict| conflict.name().to_owned())),
            ("key", self.key.as_ref().map(Key::to_string)),
            ("delay", self.delay.map(span)),
            ("due_at", self.at.map(|at| at.to_string())),
            ("past", self.past.map(|past| past.name().to_owned())),
            ("ttl", self.ttl.map(span)),
            ("max_attempts", self.max_attempts.map(|attempts| attempts.to_string())),
            ("priority", self.priority.map(|priority| priority.to_string())),
        ];
        Query(given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

/// The payload on stdin; one byte more than is allowed is enough to know that it is too large.
fn read_stdin() -> Result<Bytes, Failure> {
    let stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        return Err(Failure::usage("there is no payload: give it as an argument or on stdin"));
    }
    let mut payload = Vec::new();
    stdin
        .take(PAYLOAD_BYTES_MAX as u64 + 1)
        .read_to_end(&mut payload)
        .map_err(|error| Failure::new(format!("cannot read stdin: {error}")))?;
    Ok(payload.into())
}
