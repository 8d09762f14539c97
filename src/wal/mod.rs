//! The write-ahead log: messages that were accepted while the store is unavailable.
//!
//! Records are numbered, checksummed and kept in segments, each in its own sled directory. An append is answered once
//! its records survive a power cut; what is trimmed is not offered again, and its segments are deleted as a whole. The
//! committer alone touches the files, one command after the other; an idle log costs nothing.
//!
//! The log does not know what its records are for: it never talks to a store, and decides nothing about when to replay.

mod record_batch;
mod segment;
mod directory;
mod log;
mod command;
mod committer;
mod handle;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use self::command::{Addition, Command};
use self::committer::{Committer, Shown, check_limit};
pub use self::directory::Inspection;
use self::directory::{Names, Note};
use self::handle::CommitterHandle;
use self::log::{Log, again};
pub use self::record_batch::{Cancelled, Depth, Entry, Position};
pub use crate::codec::Record;
use crate::codec::UnnumberedRecord;
use crate::model::error::{Error, Result};
use crate::model::limits::{DISK_RESERVE_BYTES, NOTE_BYTES_MAX};
use crate::model::message::{MessageId, TopicName};
use crate::model::version::CallId;
use crate::platform::clock::Clock;
use crate::platform::disk::check_room;
use crate::store::ClockNote;
use crate::telemetry::metrics::WalMetrics;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use self::record_batch::fuzzing as bundle_fuzzing;

/// A write-ahead log. Dropping it closes its files, after those who wait are answered.
#[derive(Debug)]
pub struct Wal {
    options: WalOptions,
    metrics: WalMetrics,
    shown: Arc<Shown>,
    committer: CommitterHandle,
}

impl Wal {
    /// Opens the log in a directory, making it if it is not there. Takes as long as reading the segments' indexes does.
    /// A damaged segment is set aside and counted; it is no reason not to open, and neither is a disk that is full or
    /// cannot be written: [`Wal::check`] says what is wrong, and it recovers once the disk does. Errors: `Conflict`
    /// when another process has the directory, `Unavailable` when no thread can be had.
    pub fn open(options: WalOptions, metrics: WalMetrics) -> Result<Wal> {
        let log = Log::open(options.clone(), metrics.clone())?;
        let shown = Arc::new(Shown::default());
        let committer = Committer::new(log, shown.clone(), metrics.clone());
        let committer = match options.in_place {
            true => CommitterHandle::in_place(committer),
            false => CommitterHandle::on_thread(committer)?,
        };
        Ok(Wal { options, metrics, shown, committer })
    }

    /// Appends records, all or none, and returns once they survive a power cut. Errors: `Full` when the log or the disk
    /// has no room and `Unavailable` when the disk fails: the records are certainly not kept. `OutcomeUnknown` when the
    /// disk failed so that nobody knows: perhaps they are there after a restart.
    pub async fn append(&self, records: Vec<Record>) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let at = self.options.clock.now();
        let records = records.iter().map(|record| UnnumberedRecord::new(record, at)).collect::<Result<Vec<_>>>()?;
        self.ask(|answer| Command::Append(Addition { records }, answer)).await
    }

    /// Records behind a position, or behind what is trimmed, in order: at most so many, and so many bytes unless the
    /// first one alone is larger; perhaps fewer. None at all means that nothing is left. Unreadable records are
    /// skipped, reported and counted. Errors: `Unavailable` when the disk does not let it be read.
    pub async fn page(&self, after: Option<Position>, records_max: usize, bytes_max: usize) -> Result<Vec<Entry>> {
        self.ask(|answer| Command::Page { after, records_max, bytes_max, answer }).await
    }

    /// Reads a page as [`Wal::page`] does, for a reader that hands nothing to the store: what it read can still be cancelled.
    pub async fn peek(&self, after: Option<Position>, records_max: usize, bytes_max: usize) -> Result<Vec<Entry>> {
        self.ask(|answer| Command::Peek { after, records_max, bytes_max, answer }).await
    }

    /// Everything through this position is done and is not offered again, not even to the next process (but perhaps
    /// after a power cut). Its space on disk comes back a segment at a time. Errors: `Unavailable` when it could not be
    /// written down: it is offered again after a restart.
    pub async fn trim(&self, through: Position) -> Result<()> {
        self.ask(|answer| Command::Trim(through, answer)).await
    }

    /// The replay gave up the records that pages handed out: they can be cancelled again.
    pub async fn take_back(&self) -> Result<()> {
        self.ask(Command::TakeBack).await
    }

    /// Takes the pushes of a message out, durably, wherever they stand. It reads the whole log, about a second for a
    /// million records, in steps between which others append. A push that is appended meanwhile may stay. Errors:
    /// `Unavailable` when the disk does not let it be read, `OutcomeUnknown` when it failed while it was written.
    pub async fn cancel(&self, topic: &TopicName, id: &MessageId) -> Result<Cancelled> {
        let (mut outcome, mut from) = (Cancelled::Absent, Some(0));
        while let Some(at) = from {
            let (topic, id) = (topic.clone(), id.clone());
            let step = self.ask(|answer| Command::Cancel { topic, id, from: at, answer }).await?;
            outcome = outcome.and(step.outcome);
            from = step.next;
        }
        Ok(outcome)
    }

    pub fn depth(&self) -> Depth {
        self.shown.depth()
    }

    pub fn limit_bytes(&self) -> u64 {
        self.options.limit_bytes
    }

    /// Sets the gauge of the oldest record's age: to be called before metrics are read. The others are always right.
    pub fn observe(&self) {
        let oldest = self.depth().oldest;
        let age = oldest.map_or(0.0, |oldest| self.options.clock.now().since(oldest).as_secs_f64());
        self.metrics.oldest_age.set(age);
    }

    /// Whether it takes records now. Asking makes a log that failed try again, so it may take them a moment later.
    /// Errors: `Full` or `Unavailable`, with the reason.
    pub fn check(&self) -> Result<()> {
        if let Some(error) = self.shown.failed() {
            let _ = self.committer.give(Command::RetryDisk);
            return Err(again(&error));
        }
        check_limit(&self.options, self.depth())?;
        check_room(&self.options.dir, self.options.disk_reserve_bytes)
    }

    pub fn store_identity(&self) -> Option<String> {
        self.shown.note(Note::StoreIdentity)
    }

    /// Notes durably whose records these are. Errors: `TooLarge` past [`NOTE_BYTES_MAX`] bytes, or `Unavailable`.
    pub async fn remember_store(&self, identity: &str) -> Result<()> {
        self.remember(Note::StoreIdentity, identity.to_owned()).await
    }

    /// The name of this log to the store, given when it is asked for first. Errors: `Unavailable` when the disk fails.
    pub async fn id(&self) -> Result<String> {
        if let Some(names) = self.names() {
            return Ok(names.now);
        }
        self.remember(Note::LogId, Names::new().to_string()).await?;
        self.names().map(|names| names.now).ok_or_else(|| Error::unavailable("the name of the log was not kept"))
    }

    fn names(&self) -> Option<Names> {
        self.shown.note(Note::LogId)?.parse().ok()
    }

    pub fn clock_note(&self) -> Option<ClockNote> {
        self.shown.note(Note::Clock)?.parse().ok()
    }

    /// Notes durably how the store's clock stands beside those of this machine.
    pub async fn remember_clock(&self, note: &ClockNote) -> Result<()> {
        self.remember(Note::Clock, note.to_string()).await
    }

    /// The place of a record in the log under an earlier name, if it may have been handed over.
    pub fn handed_over_as(&self, at: Position) -> Option<CallId> {
        let stream = self.names()?.handed_over_under(at)?;
        Some(CallId { stream, seq: at.number() })
    }

    /// Notes, durably, that another broker may get all that is in the log now, and gives the log another name: what it
    /// says of itself from now on is not about those records. Errors: `Unavailable` when the disk fails, `TooLarge`
    /// after dozens of hand-overs of which records are still there.
    pub async fn begin_hand_over(&self) -> Result<()> {
        self.id().await?;
        let first = self.peek(None, 1, 1).await?.first().map(|entry| entry.position);
        let (Some(names), Some(first), Some(end)) = (self.names(), first, self.depth().end) else { return Ok(()) };
        self.remember(Note::LogId, names.followed(first, end).to_string()).await
    }

    /// The newest record; `None` when it is trimmed or cancelled.
    pub async fn newest(&self) -> Result<Option<Entry>> {
        let Some(Position(end)) = self.depth().end else { return Ok(None) };
        Ok(self.peek(Some(Position(end.saturating_sub(1))), 1, 1).await?.into_iter().next_back())
    }

    async fn remember(&self, note: Note, text: String) -> Result<()> {
        if text.len() > NOTE_BYTES_MAX {
            let detail = format!("a note of {} bytes, at most {NOTE_BYTES_MAX}", text.len());
            return Err(Error::new(crate::model::error::Kind::TooLarge, detail));
        }
        self.ask(|answer| Command::SetNote(note, text, answer)).await
    }

    /// Answers waiting callers and closes the files for another process. Nothing is lost without it.
    pub async fn close(&self) -> Result<()> {
        self.ask(Command::Close).await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<Result<T>>) -> Command) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.committer.give(command(answer))?;
        answered.await.map_err(|_| handle::gone())?
    }
}

#[derive(Debug, Clone)]
pub struct WalOptions {
    pub dir: PathBuf,
    /// Bytes on disk past which nothing is appended.
    pub limit_bytes: u64,
    /// Bytes on disk past which a new segment begins.
    pub segment_bytes: u64,
    /// Bytes of the disk that are left free.
    pub disk_reserve_bytes: u64,
    pub clock: Clock,
    /// Whether who gives a command touches the files, not a thread of the log: then what happens on simulated time depends
    /// on no other thread.
    pub in_place: bool,
}

pub const LIMIT_BYTES: u64 = 1024 * 1024 * 1024;

/// Bytes of the smallest segment: opening and deleting one costs a few fsyncs.
const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;

/// Bytes of the largest segment: deleting it is how space comes back.
const SEGMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl WalOptions {
    /// A log in this directory of at most so many bytes, in 16 segments or more.
    pub fn new(dir: PathBuf, limit_bytes: u64, clock: Clock) -> WalOptions {
        let segment_bytes = (limit_bytes / 16).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        WalOptions { dir, limit_bytes, segment_bytes, disk_reserve_bytes: DISK_RESERVE_BYTES, clock, in_place: false }
    }
}
