//! The log: its segments in order, the numbers of its records, and what is done.
//!
//! Everything here happens on one thread, one call after the other. At most two segments are open: the one that is
//! appended to and the one that is read.

use std::collections::VecDeque;

use super::damage::Lack;
use super::directory::{Directory, Note};
use super::entry::{Depth, Position};
use super::options::WalOptions;
use super::segment::Segment;
use crate::model::error::{Error, Kind, Result};
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;
use crate::platform::log_throttle::RepeatThrottle;
use crate::telemetry::metrics::WalMetrics;

/// The log in its directory.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) options: WalOptions,
    pub(super) metrics: WalMetrics,
    /// `None` until the disk let the directory be taken.
    pub(super) place: Option<Directory>,
    pub(super) segments: VecDeque<Segment>,
    /// The number of the next record.
    pub(super) next: u64,
    /// Everything through this number is done.
    pub(super) done: u64,
    /// The greatest number that a page handed out and nobody took back.
    pub(super) handed: u64,
    /// The greatest number of an earlier process.
    pub(super) inherited: u64,
    /// The first record that waits, and when it was appended.
    oldest: Option<(u64, Timestamp)>,
    damaged: u64,
    lost: u64,
    /// Why nothing can be appended, and since when.
    pub(super) failed: Option<(Error, Instant)>,
    pub(super) unwritten: RepeatThrottle,
}

impl Log {
    /// Opens the log. A disk that does not let it is tried again later.
    ///
    /// # Errors
    /// `Conflict` when another process has the directory.
    pub(super) fn open(options: WalOptions, metrics: WalMetrics) -> Result<Log> {
        let mut log = Log {
            options,
            metrics,
            place: None,
            segments: VecDeque::new(),
            next: 1,
            done: 0,
            handed: 0,
            inherited: 0,
            oldest: None,
            damaged: 0,
            lost: 0,
            failed: None,
            unwritten: RepeatThrottle::default(),
        };
        match log.take_place() {
            Err(error) if error.kind() == Kind::Conflict => Err(error),
            Err(error) => {
                log.fail(error);
                Ok(log)
            }
            Ok(()) => Ok(log),
        }
    }

    pub(super) fn take_place(&mut self) -> Result<()> {
        if self.place.is_some() {
            return Ok(());
        }
        let (place, done) = Directory::take(&self.options.dir)?;
        let firsts = place.segments()?;
        place.keep_reserve(self.options.disk_reserve_bytes);
        self.done = done;
        for (at, first) in firsts.iter().enumerate() {
            let segment = Segment::found(place.dir(), *first, firsts.get(at + 1).copied());
            self.segments.push_back(segment);
        }
        let end = self.segments.back().map_or(1, Segment::end);
        self.next = end.max(done.saturating_add(1));
        self.place = Some(place);
        self.find_missing_segments();
        let mut index = 0;
        while let Some(segment) = self.segments.get(index) {
            let first = segment.first();
            // What cannot be opened now is tried again when it is read.
            let _ = self.open_segment(index);
            self.oldest();
            index += usize::from(self.segments.get(index).is_some_and(|segment| segment.first() == first));
        }
        self.inherited = self.next - 1;
        self.remove_done();
        let (records, bytes) = (self.depth().records, self.bytes());
        tracing::info!(dir = %self.options.dir.display(), records, bytes, "log opened");
        Ok(())
    }

    /// Counts the numbers between segments, and before the first one.
    fn find_missing_segments(&mut self) {
        // Without a number that is done nobody knows whether the first segments were trimmed.
        let mut expected = if self.done == 0 { self.segments.front().map_or(1, Segment::first) } else { self.done + 1 };
        let mut lacks = Vec::new();
        for segment in &self.segments {
            if segment.first() > expected {
                lacks.push(Lack { from: expected, to: segment.first() });
            }
            expected = expected.max(segment.end());
        }
        let dir = self.options.dir.display().to_string();
        for lack in lacks {
            self.report(&dir, &lack);
        }
    }

    /// Opens a segment and closes the one that was read before. A damaged one is set aside, and then another segment, or
    /// none, has this index.
    pub(super) fn open_segment(&mut self, index: usize) -> Result<()> {
        let last = self.segments.len().saturating_sub(1);
        for (at, segment) in self.segments.iter_mut().enumerate() {
            if at != index && at != last {
                segment.close();
            }
        }
        let done = self.done;
        let Some(segment) = self.segments.get_mut(index) else { return Err(Error::bug("no such segment")) };
        let mut opened = segment.open(done);
        if opened.as_ref().is_err_and(|error| error.kind() == Kind::Unavailable)
            && self.place.as_ref().is_some_and(Directory::give_reserve)
        {
            opened = segment.open(done);
        }
        match opened {
            Ok(None) => {
                self.next = self.next.max(segment.end());
                Ok(())
            }
            Ok(Some(lack)) => {
                self.next = self.next.max(lack.to);
                let dir = segment.dir().display().to_string();
                self.report(&dir, &lack);
                Ok(())
            }
            Err(error) => Err(self.blame(index, error)),
        }
    }

    /// What follows from an error of a segment: a damaged one is set aside, one on a failing disk is closed.
    pub(super) fn blame(&mut self, index: usize, error: Error) -> Error {
        if error.kind() != Kind::Corrupt {
            if let Some(segment) = self.segments.get_mut(index) {
                segment.close();
            }
            return error;
        }
        let Some(mut segment) = self.segments.remove(index) else { return error };
        segment.close();
        let waiting = segment.waiting(self.done);
        self.next = self.next.max(segment.end());
        self.damaged += 1;
        self.metrics.damaged.inc();
        self.lost += waiting;
        self.metrics.lost.inc_by(waiting);
        let (records, first, end) = (waiting, segment.first(), segment.end());
        match self.place.as_ref().map(|place| place.set_aside(segment.dir())) {
            Some(Ok(path)) => {
                tracing::error!(segment = %path.display(), records, first, end, %error, "segment damaged: set aside, its records are not replayed");
            }
            Some(Err(why)) => {
                let segment = segment.dir().display();
                tracing::error!(%segment, records, first, end, %error, %why, "segment damaged, and not set aside");
            }
            None => {}
        }
        error
    }

    /// Counts and reports records that should be there.
    pub(super) fn report(&mut self, dir: &str, lack: &Lack) {
        let lost = lack.to - lack.from;
        self.damaged += 1;
        self.metrics.damaged.inc();
        self.lost += lost;
        self.metrics.lost.inc_by(lost);
        tracing::error!(
            segment = dir,
            first = lack.from,
            end = lack.to,
            records = lost,
            "log damaged: records are missing"
        );
    }

    /// The directory, tried again if the disk did not let it be taken.
    ///
    /// # Errors
    /// `Unavailable`, with the reason.
    pub(super) fn place(&self) -> Result<&Directory> {
        match (&self.place, &self.failed) {
            (Some(place), _) => Ok(place),
            (None, Some((error, _))) => Err(again(error)),
            (None, None) => Err(Error::bug("the log has no place")),
        }
    }

    /// What waits.
    pub(super) fn depth(&mut self) -> Depth {
        let records = self.segments.iter().map(|segment| segment.waiting(self.done)).sum();
        let oldest = if records == 0 { None } else { self.oldest() };
        let end = (self.next > 1).then_some(Position(self.next - 1));
        Depth { records, bytes: self.bytes(), end, oldest, damaged: self.damaged, lost: self.lost }
    }

    /// Bytes of all segments on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(Segment::bytes).sum()
    }

    fn oldest(&mut self) -> Option<Timestamp> {
        let (number, segment) =
            self.segments.iter().find_map(|segment| Some((segment.first_waiting(self.done)?, segment)))?;
        if self.oldest.is_none_or(|(known, _)| known != number)
            && let Some(at) = segment.time_of(number)
        {
            self.oldest = Some((number, at));
        }
        // While its segment is closed, the time of an older one.
        self.oldest.map(|(_, at)| at)
    }

    /// What was noted.
    pub(super) fn note(&self, note: Note) -> Option<String> {
        self.place.as_ref()?.note(note)
    }

    /// Notes something, durably.
    pub(super) fn set_note(&mut self, note: Note, text: &str) -> Result<()> {
        self.take_place()?;
        self.place()?.set_note(note, text)
    }

    /// Whether no file is open.
    pub(super) fn is_resting(&self) -> bool {
        self.segments.iter().all(|segment| !segment.is_open())
    }

    /// Closes all files until they are needed again.
    pub(super) fn rest(&mut self) {
        self.segments.iter_mut().for_each(Segment::close);
    }
}

/// An error that others ran into, for those who come later and of whom nothing was written.
pub(super) fn again(error: &Error) -> Error {
    match error.kind() {
        Kind::Full => error.clone(),
        _ => Error::unavailable(error.detail().to_owned()),
    }
}
