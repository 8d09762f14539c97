//! Pushes a file of messages in batches.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::lines::{Item, Line, Lines, Next};
use crate::cli::api::Pushed;
use crate::cli::client::Client;
use crate::cli::failure::Failure;
use crate::cli::output;
use crate::cli::problem::CallError;
use crate::model::limits::BATCH_BODY_BYTES_MAX;
use crate::model::message::TopicName;
use crate::platform::clock::Clock;

/// Messages of a batch: half of what the broker takes, so that the bar moves.
const BATCH_MESSAGES: usize = 500;

/// Bytes of a batch. Escapes can make a line longer on the way, and one more line is taken before it is noticed.
const BATCH_BYTES: usize = BATCH_BODY_BYTES_MAX / 4;

/// How long to wait before what may pass is tried again. After the last one it has failed.
const RETRY_AFTER: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3)];

/// What became of the lines of a file.
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
        let count = |number| output::thousands(number);
        let lines = self.stored + self.duplicate + self.replaced + self.failed + self.blank;
        write!(f, "{} lines: {} stored, ", count(lines), count(self.stored))?;
        write!(f, "{} duplicate, {} failed", count(self.duplicate), count(self.failed))?;
        if self.replaced > 0 {
            write!(f, ", {} replaced", count(self.replaced))?;
        }
        if self.blank > 0 { write!(f, ", {} blank", count(self.blank)) } else { Ok(()) }
    }
}

/// Pushes every line of a file, reports every line that was not stored, and prints how many were.
///
/// # Errors
/// When the file cannot be read, when the broker goes away, or when a line failed.
pub(super) async fn push_file(client: &Client, topic: &TopicName, file: &Path, json: bool) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", file.display()));
    let mut push = Push { client, topic, bar: bar(None), summary: Summary::default(), clock: Clock::System };
    let result = if file == Path::new("-") {
        push.run(BufReader::new(std::io::stdin())).await
    } else {
        let opened = std::fs::File::open(file).map_err(unreadable)?;
        push.bar = bar(opened.metadata().ok().map(|metadata| metadata.len()));
        push.run(BufReader::new(opened)).await
    };
    push.bar.finish_and_clear();
    if json {
        output::json(&push.summary)?
    } else {
        output::line(&push.summary)?
    }
    match result {
        Ok(()) if push.summary.failed > 0 => Err(Failure::said()),
        result => result,
    }
}

/// A bar on stderr that follows the bytes; hidden when stderr is no terminal.
fn bar(bytes: Option<u64>) -> ProgressBar {
    let bar = bytes.filter(|bytes| *bytes > 0).map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = match bar.length() {
        Some(_) => "{bar:30} {percent:>3} %  {binary_bytes_per_sec}  {msg}  eta {eta}",
        None => "{spinner} {binary_bytes}  {binary_bytes_per_sec}  {msg}",
    };
    // A template that cannot be read leaves the style of the library.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

struct Push<'a> {
    client: &'a Client,
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

    /// Pushes lines, again and again for a while those that may still succeed.
    ///
    /// # Errors
    /// When the broker is away for longer; the lines are counted as failed then.
    async fn push(&mut self, mut batch: Vec<Line>) -> Result<(), Failure> {
        let mut waits = RETRY_AFTER.into_iter();
        while !batch.is_empty() {
            let wait = waits.next();
            let items: Vec<&Item> = batch.iter().map(|line| &line.item).collect();
            match self.client.push_batch(self.topic, &items).await {
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

    /// Counts what was answered and returns the lines that are worth another try.
    fn count(&mut self, batch: Vec<Line>, results: Vec<Pushed>, last: bool) -> Vec<Line> {
        let mut again = Vec::new();
        for (line, result) in batch.into_iter().zip(results) {
            if result.is_accepted() {
                self.summary.stored += 1;
                continue;
            }
            match (result.status.as_str(), result.error) {
                // This very message, from a push whose answer was lost.
                ("duplicate", _) if line.id_is_ours => self.summary.stored += 1,
                ("duplicate", _) => self.summary.duplicate += 1,
                ("replaced" | "debounced", _) => self.summary.replaced += 1,
                ("error", Some(problem)) if problem.is_passing() && !last => again.push(line),
                (_, Some(problem)) => self.failed(line.number, &problem.to_string()),
                (status, None) => self.failed(line.number, &format!("the broker says {status:?}")),
            }
        }
        again
    }

    /// The broker refused the whole batch, or did not answer.
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

    /// A line on stderr, above the bar.
    fn say(&self, text: &str) {
        self.bar.suspend(|| output::note(text));
    }
}
