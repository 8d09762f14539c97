//! `dwell push`: one message, or a file of them.

mod lines;

use std::fmt;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use dwell_client::wire::messages::Meta;
use dwell_client::wire::push::{BatchMessage, PushResult};
use dwell_client::{Error, NewMessage};
use indicatif::ProgressBar;
use serde::Serialize;

use super::failure::{CallError, CallResult, Failure, InWords};
use super::remote::{At as _, Remote};
use super::{PrintArgs, ServerArgs, output, parse};
use crate::model::limits::{ATTEMPTS_MAX, BATCH_BODY_BYTES_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX};
use crate::model::message::{Conflict, DedupKey, Key, MessageId, Past, TopicName};
use crate::model::spelling::{counted, thousands};
use crate::model::time::{Timestamp, parse_span, short_span};
use crate::model::trace::TraceContext;
use crate::platform::clock::Clock;
use lines::{Line, Lines, Next};

const EXAMPLES: &str = "\
Examples:
  dwell push orders 'close order 4711' --delay 30m --key customer-7
  dwell push orders --at 2026-12-24T18:00:00+01:00 --id card-4711 < card.pdf
  dwell push orders --file orders.ndjson
  generate | dwell push orders --file -

A file has one JSON object a line: `payload`, `payload_base64` or `payload_json`, and optionally
key, id, conflict, debounce_max, delay, due_at, past, spread, ttl, max_attempts, priority,
dedup_key, dedup_for, content_type, meta, traceparent, tracestate, attachment. A line that is wrong
is reported with its number and the others are pushed.
You may send a push with an --id again: it makes no second message.";

/// Push one message, or a file of messages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PushArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The payload; without it, or as -, it is read from stdin
    payload: Option<String>,
    /// Messages with equal keys are in the same partition
    #[arg(long, value_parser = parse::key)]
    key: Option<Key>,
    /// The message id, to make the push repeatable
    #[arg(long, value_parser = parse::id)]
    id: Option<MessageId>,
    /// If the id exists: keep the message, reject the push, replace the message, debounce (move its due time), or follow it
    /// (after: deliver this message once the one in flight has ended)
    #[arg(long, value_name = "POLICY", value_parser = parse::conflict)]
    conflict: Option<Conflict>,
    /// With --conflict debounce: how long after its first push the message may be due at the latest
    #[arg(long, value_name = "DURATION", value_parser = parse_span, requires = "conflict")]
    debounce_max: Option<Duration>,
    /// Due this long from now, as in 30s, 1h30m, 2d
    #[arg(long, value_name = "DURATION", value_parser = parse_span, conflicts_with = "at", allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Due at this time: RFC 3339, Unix milliseconds, or relative to now, as in +1h
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    at: Option<Timestamp>,
    /// If the time is in the past: now (due at once) or reject
    #[arg(long, value_name = "POLICY", value_parser = parse::past, requires = "at")]
    past: Option<Past>,
    /// Move the due time by up to this, by a value that the id decides: a repeat gets the same
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    spread: Option<Duration>,
    /// How long after its due time it may still be delivered
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    ttl: Option<Duration>,
    /// Attempts before it is dead; 0 is without a limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(ATTEMPTS_MAX)))]
    max_attempts: Option<u32>,
    /// 0 to 9: among the ready messages of a partition higher ones are handed out first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=i64::from(PRIORITY_MAX)))]
    priority: Option<u8>,
    /// Within --dedup-for, another push with this dedup key to the partition is a duplicate
    #[arg(long, value_parser = parse::dedup_key, requires = "dedup_for")]
    dedup_key: Option<DedupKey>,
    /// How long that lasts, counted from this push: 1s to 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_span, requires = "dedup_key")]
    dedup_for: Option<Duration>,
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
    #[arg(conflicts_with_all = ["payload", "key", "id", "conflict", "debounce_max", "delay", "at", "past", "spread", "ttl", "max_attempts", "priority", "dedup_key", "dedup_for", "content_type", "meta", "traceparent"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: &PushArgs) -> Result<(), Failure> {
    let remote = args.server.remote()?;
    match &args.file {
        Some(file) => push_file(&remote, &args.topic, file, &args.server.print).await,
        None => push_one(&remote, args).await,
    }
}

async fn push_one(Remote { client, place }: &Remote, args: &PushArgs) -> Result<(), Failure> {
    let now = Clock::System.now();
    // A message without an id gets one here, so that a push whose outcome is unknown can be repeated.
    let id = args.id.clone().unwrap_or_else(MessageId::fresh);
    let message = args.message(&id)?;
    lines::check(&message, now).map_err(Failure::usage)?;
    let pushed = client.push(args.topic.as_str(), NewMessage::from(message)).await.at(place);
    let pushed = pushed.map_err(|error| unknown(error, &id))?;
    if pushed.topic_created {
        output::note(format_args!("topic {} did not exist; it was created for this message", args.topic));
    }
    args.server.print.value(&pushed, |pushed| shown(pushed, now))
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
fn shown(pushed: &PushResult, now: Timestamp) -> String {
    let id = &pushed.id;
    let partition = pushed.partition.map_or(String::new(), |partition| format!(" in partition {partition}"));
    let due = pushed.due_at.map_or(String::new(), |at| {
        // Seconds, for people: the milliseconds that the push itself took are noise.
        let secs = (at.since(now).as_secs_f64()).round() as u64;
        let from_now =
            if secs == 0 { "now".to_owned() } else { format!("in {}", short_span(Duration::from_secs(secs))) };
        format!(", due {at} ({from_now})")
    });
    match &*pushed.status {
        "duplicate" if pushed.duplicate_of.is_some() => {
            let first = pushed.duplicate_of.as_deref().unwrap_or("?");
            format!("duplicate of {first}: it was pushed with this dedup key, nothing changed")
        }
        "duplicate" => format!("duplicate {id}: it is there already, nothing changed"),
        "buffered" => {
            format!("buffered {id}{due}: the store is unavailable, it is on the broker's disk and goes there")
        }
        status => format!("{status} {id}{partition}{due}"),
    }
}

impl PushArgs {
    pub(crate) fn is_of_file(&self) -> bool {
        self.file.is_some()
    }

    fn message(&self, id: &MessageId) -> Result<BatchMessage, Failure> {
        let payload = match self.payload.as_deref() {
            None | Some("-") => read_stdin()?,
            Some(text) => text.as_bytes().to_vec(),
        };
        let (payload, payload_base64) = match String::from_utf8(payload) {
            Ok(text) => (Some(text), None),
            Err(bytes) => (None, Some(STANDARD.encode(bytes.as_bytes()))),
        };
        Ok(BatchMessage {
            id: Some(id.to_string()),
            conflict: self.conflict.map(|conflict| conflict.name().to_owned()),
            debounce_max: self.debounce_max,
            key: self.key.as_ref().map(Key::to_string),
            delay: self.delay,
            due_at: self.at,
            past: self.past.map(|past| past.name().to_owned()),
            spread: self.spread,
            ttl: self.ttl,
            max_attempts: self.max_attempts,
            priority: self.priority,
            dedup_key: self.dedup_key.as_ref().map(DedupKey::to_string),
            dedup_for: self.dedup_for,
            content_type: self.content_type.clone(),
            meta: (!self.meta.is_empty()).then(|| Meta(self.meta.clone())),
            traceparent: self.traceparent.as_ref().map(|trace| trace.traceparent()),
            payload,
            payload_base64,
            ..BatchMessage::default()
        })
    }
}

/// The payload on stdin; one byte more than is allowed is enough to know that it is too large.
fn read_stdin() -> Result<Vec<u8>, Failure> {
    let stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        return Err(Failure::usage("there is no payload: give it as an argument or on stdin"));
    }
    let mut payload = Vec::new();
    stdin
        .take(PAYLOAD_BYTES_MAX as u64 + 1)
        .read_to_end(&mut payload)
        .map_err(|error| Failure::new(format!("cannot read stdin: {error}")))?;
    Ok(payload)
}

/// Messages of a batch: half of what the broker takes, so that the bar moves.
const BATCH_MESSAGES: usize = 500;

/// Bytes of a batch. Escapes can make a line longer on the way, and one more line is taken before it is noticed.
const BATCH_BYTES: usize = BATCH_BODY_BYTES_MAX / 4;

/// How long to wait before what may pass is tried again. After the last one it has failed.
const RETRY_AFTER: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3)];

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Summary {
    stored: u64,
    duplicate: u64,
    /// Replaced or debounced.
    replaced: u64,
    failed: u64,
    blank: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.stored + self.duplicate + self.replaced + self.failed + self.blank;
        write!(f, "{}: {} stored, ", counted(lines, "line"), thousands(self.stored))?;
        write!(f, "{} duplicate, {} failed", thousands(self.duplicate), thousands(self.failed))?;
        if self.replaced > 0 {
            write!(f, ", {} replaced", thousands(self.replaced))?;
        }
        if self.blank > 0 { write!(f, ", {} blank", thousands(self.blank)) } else { Ok(()) }
    }
}

/// Pushes every line of a file, reports every line that was not stored, and prints how many were. # Errors: also when a line
/// failed.
async fn push_file(remote: &Remote, topic: &TopicName, file: &Path, print: &PrintArgs) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", file.display()));
    let mut push = Push { remote, topic, bar: bar(None), summary: Summary::default(), clock: Clock::System };
    let result = if file == Path::new("-") {
        push.run(BufReader::new(std::io::stdin())).await
    } else {
        let opened = std::fs::File::open(file).map_err(unreadable)?;
        push.bar = bar(opened.metadata().ok().map(|metadata| metadata.len()));
        push.run(BufReader::new(opened)).await
    };
    push.bar.finish_and_clear();
    print.value(&push.summary, Summary::to_string)?;
    match result {
        Ok(()) if push.summary.failed > 0 => Err(Failure::printed()),
        result => result,
    }
}

fn bar(bytes: Option<u64>) -> ProgressBar {
    let bar = bytes.filter(|bytes| *bytes > 0).map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = match bar.length() {
        Some(_) => "{bar:30} {percent:>3} %  {binary_bytes_per_sec}  {msg}  eta {eta}",
        None => "{spinner} {binary_bytes}  {binary_bytes_per_sec}  {msg}",
    };
    output::styled(bar, template)
}

struct Push<'a> {
    remote: &'a Remote,
    topic: &'a TopicName,
    bar: ProgressBar,
    summary: Summary,
    clock: Clock,
}

impl Push<'_> {
    async fn run(&mut self, reader: impl BufRead) -> Result<(), Failure> {
        let mut lines = Lines::new(reader);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        loop {
            let next = lines.next(self.clock.now()).map_err(|error| Failure::new(format!("cannot read on: {error}")));
            match next {
                Ok(Next::Line(line)) => {
                    bytes += line.bytes;
                    batch.push(*line);
                    if batch.len() < BATCH_MESSAGES && bytes < BATCH_BYTES {
                        continue;
                    }
                }
                Ok(Next::Blank) => {
                    self.summary.blank += 1;
                    continue;
                }
                Ok(Next::Bad { number, why }) => {
                    self.failed(number, &why);
                    continue;
                }
                Ok(Next::End) => return self.push(batch).await,
                Err(failure) => {
                    self.push(batch).await?;
                    return Err(failure);
                }
            }
            self.push(std::mem::take(&mut batch)).await?;
            self.bar.inc(std::mem::take(&mut bytes) as u64);
            self.bar.set_message(self.summary.to_string());
        }
    }

    /// Pushes lines, for a while repeatedly those that may still succeed. # Errors: the broker stays unavailable; then the
    /// lines are counted as failed.
    async fn push(&mut self, mut batch: Vec<Line>) -> Result<(), Failure> {
        let mut waits = RETRY_AFTER.into_iter();
        while !batch.is_empty() {
            let wait = waits.next();
            match self.results(&batch).await {
                Ok(results) => batch = self.count(batch, results, wait.is_none()),
                Err(error) if error.is_passing() && wait.is_some() => self.say(&format!("{error}; trying again")),
                Err(error) => return self.refused(&batch, &error),
            }
            if let Some(wait) = wait.filter(|_| !batch.is_empty()) {
                self.clock.sleep(wait).await;
            }
        }
        Ok(())
    }

    /// A result for each line, also where messages were not accepted.
    async fn results(&self, batch: &[Line]) -> CallResult<Vec<PushResult>> {
        let Remote { client, place } = self.remote;
        let messages = batch.iter().map(|line| NewMessage::from(line.item.clone()));
        match client.push_many(self.topic.as_str(), messages).await {
            Err(Error::NotAccepted(not_accepted)) => Ok(not_accepted.results),
            pushed => pushed.at(place),
        }
    }

    fn count(&mut self, batch: Vec<Line>, results: Vec<PushResult>, last: bool) -> Vec<Line> {
        let mut again = Vec::new();
        for (line, result) in batch.into_iter().zip(results) {
            if result.is_accepted() {
                self.summary.stored += 1;
                continue;
            }
            match (&*result.status, result.error) {
                // This very message, from a push whose answer was lost.
                ("duplicate", _) if line.id_is_ours && result.duplicate_of.is_none() => self.summary.stored += 1,
                ("duplicate", _) => self.summary.duplicate += 1,
                ("replaced" | "debounced", _) => self.summary.replaced += 1,
                ("error", Some(problem)) if problem.is_passing() && !last => again.push(line),
                (_, Some(problem)) => self.failed(line.number, &InWords(&problem).to_string()),
                (status, None) => self.failed(line.number, &format!("the broker says {status:?}")),
            }
        }
        again
    }

    fn refused(&mut self, batch: &[Line], error: &CallError) -> Result<(), Failure> {
        self.summary.failed += batch.len() as u64;
        let (first, last) = (batch.first().map_or(0, |line| line.number), batch.last().map_or(0, |line| line.number));
        let failure = Failure::from(error.clone());
        let perhaps = if error.is_unknown() { "; they may have been stored" } else { "" };
        let message = format!("lines {first} to {last} failed{perhaps}, nothing after them was sent: {error}");
        Err(Failure { message, ..failure })
    }

    fn failed(&mut self, number: u64, why: &str) {
        self.summary.failed += 1;
        self.say(&format!("line {number}: {why}"));
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| output::note(text));
    }
}
