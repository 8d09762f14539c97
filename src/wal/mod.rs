//! The write-ahead log: what a producer was promised while the store is away.
//!
//! This first form keeps everything in memory and is NOT durable: the signatures are what counts.

mod entry;
mod options;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::entry::{Cancelled, Depth, Entry, Position, Record};
pub use self::options::{LIMIT_BYTES, WalOptions};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::message::{MessageId, TopicName};
use crate::metrics::WalMetrics;
use crate::time::Timestamp;

/// A write-ahead log. Closed by [`Wal::close`], or when dropped.
#[derive(Debug)]
pub struct Wal {
    clock: Clock,
    limit_bytes: u64,
    metrics: WalMetrics,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Entry>,
    last: u64,
    handed: u64,
    store_identity: Option<String>,
    clock_offset_us: Option<i64>,
}

impl Wal {
    /// Opens the log in a directory, making it if it is not there. What is damaged is set aside and counted; it is no
    /// reason not to open, and neither is a disk that is full or cannot be written: [`Wal::check`] says what is wrong.
    ///
    /// # Errors
    /// `Conflict` when another process has the directory.
    pub fn open(options: WalOptions, metrics: WalMetrics) -> Result<Wal> {
        let WalOptions { clock, limit_bytes, .. } = options;
        Ok(Wal { clock, limit_bytes, metrics, state: Mutex::default() })
    }

    /// Appends records, all or none, and returns once they survive a power cut.
    ///
    /// # Errors
    /// `Full` when the log or the disk has no room and `Unavailable` when the disk fails: the records are certainly not
    /// kept. `OutcomeUnknown` when the disk failed so that nobody knows: perhaps they are there after a restart.
    pub async fn append(&self, records: Vec<Record>) -> Result<()> {
        self.check()?;
        let at = self.clock.now();
        let mut state = self.state();
        for record in records {
            state.last += 1;
            let position = Position(state.last);
            state.entries.push_back(Entry { position, at, record });
        }
        Ok(())
    }

    /// Records behind a position, or behind what is trimmed, in order: at most so many, and so many bytes unless the
    /// first one alone is larger. None means that nothing is left. What cannot be read is skipped, reported and counted.
    ///
    /// # Errors
    /// `Unavailable` when the disk does not let it be read.
    pub async fn page(&self, after: Option<Position>, records_max: usize, _bytes_max: usize) -> Result<Vec<Entry>> {
        let mut state = self.state();
        let after = after.unwrap_or(Position(0));
        let page: Vec<Entry> =
            state.entries.iter().filter(|entry| entry.position > after).take(records_max).cloned().collect();
        state.handed = state.handed.max(page.last().map_or(0, |entry| entry.position.0));
        Ok(page)
    }

    /// Everything through this position is done and is not offered again, not even by the next process (but for a power
    /// cut). Its space on disk is given back a segment at a time.
    ///
    /// # Errors
    /// `Unavailable` when the log is closed.
    pub async fn trim(&self, through: Position) -> Result<()> {
        self.state().entries.retain(|entry| entry.position > through);
        Ok(())
    }

    /// Drops the segments whose newest record is older than this.
    ///
    /// # Errors
    /// `Unavailable` when the log is closed.
    pub async fn trim_older(&self, than: Timestamp) -> Result<()> {
        self.state().entries.retain(|entry| entry.at >= than);
        Ok(())
    }

    /// Where the newest record stands; `None` when there never was any.
    pub fn end(&self) -> Option<Position> {
        let last = self.state().last;
        (last > 0).then_some(Position(last))
    }

    /// Takes the push of a message out, wherever it stands. Reads the whole log, in steps between which others append.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub async fn cancel(&self, topic: &TopicName, id: &MessageId) -> Result<Cancelled> {
        let mut state = self.state();
        let is_it = |entry: &Entry| matches!(&entry.record, Record::Push { topic: t, message, .. } if t == topic && message.id == *id);
        let found: Vec<Position> = state.entries.iter().filter(|e| is_it(e)).map(|entry| entry.position).collect();
        let handed = state.handed;
        state.entries.retain(|entry| entry.position.0 <= handed || !is_it(entry));
        Ok(match found.as_slice() {
            [] => Cancelled::Absent,
            [first, ..] if first.0 <= handed => Cancelled::Replaying,
            _ => Cancelled::Removed,
        })
    }

    /// What waits in it.
    pub fn depth(&self) -> Depth {
        let state = self.state();
        let oldest = state.entries.front().map(|entry| entry.at);
        Depth { records: state.entries.len() as u64, oldest, ..Depth::default() }
    }

    /// Sets the gauges from [`Wal::depth`]: to be called before they are read.
    pub fn observe(&self) {
        let depth = self.depth();
        let age = depth.oldest.map_or(0.0, |oldest| self.clock.now().since(oldest).as_secs_f64());
        self.metrics.oldest_age.set(age);
        self.metrics.records.set(i64::try_from(depth.records).unwrap_or(i64::MAX));
        self.metrics.bytes.set(i64::try_from(depth.bytes).unwrap_or(i64::MAX));
    }

    /// Whether it takes records now. Asking also makes it try again, if it failed.
    ///
    /// # Errors
    /// As [`Wal::append`], with the reason.
    pub fn check(&self) -> Result<()> {
        if self.depth().bytes < self.limit_bytes {
            return Ok(());
        }
        Err(Error::new(Kind::Full, format!("the log has {} bytes", self.limit_bytes)))
    }

    /// The store whose records these are, as [`Wal::remember_store`] was told.
    pub fn store_identity(&self) -> Option<String> {
        self.state().store_identity.clone()
    }

    /// Notes, durably, whose records these are: at most 1,000 bytes.
    ///
    /// # Errors
    /// `Unavailable` when the disk fails.
    pub async fn remember_store(&self, identity: &str) -> Result<()> {
        self.state().store_identity = Some(identity.to_owned());
        Ok(())
    }

    /// Microseconds that [`Wal::remember_clock_offset`] was told.
    pub fn clock_offset_us(&self) -> Option<i64> {
        self.state().clock_offset_us
    }

    /// Notes, durably, how far the store's clock is from this machine's, in microseconds.
    ///
    /// # Errors
    /// `Unavailable` when the disk fails.
    pub async fn remember_clock_offset(&self, offset_us: i64) -> Result<()> {
        self.state().clock_offset_us = Some(offset_us);
        Ok(())
    }

    /// Answers those who wait and closes the files. Nothing is lost without it.
    ///
    /// # Errors
    /// None so far.
    pub async fn close(&self) -> Result<()> {
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
