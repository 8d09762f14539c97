//! The log: its segments in order, the numbers of its records, and what is done. It is read in pages for a replay, and in steps
//! for a cancellation.
//!
//! Everything here happens on one thread, one call after the other. At most two segments are open: the one that is
//! appended to and the one that is read.

use std::collections::VecDeque;

use super::WalOptions;
use super::directory::{Directory, Note};
use super::record_batch::{Cancelled, Depth, Entry, Position};
use super::segment::{Gap, Scanned, Segment};
use crate::codec::Record;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{MessageId, TopicName};
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;
use crate::platform::log_throttle::RepeatThrottle;
use crate::telemetry::metrics::WalMetrics;

#[derive(Debug)]
pub(super) struct Log {
    pub(super) options: WalOptions,
    pub(super) metrics: WalMetrics,
    /// `None` until the disk let the directory be taken.
    pub(super) place: Option<Directory>,
    pub(super) segments: VecDeque<Segment>,
    pub(super) next: u64,
    pub(super) done: u64,
    /// The greatest number that a page handed out and nobody took back.
    pub(super) handed: u64,
    /// The greatest number of an earlier process.
    pub(super) inherited: u64,
    oldest: Option<(u64, Timestamp)>,
    damaged: u64,
    lost: u64,
    pub(super) failed: Option<(Error, Instant)>,
    pub(super) unwritten: RepeatThrottle,
}

impl Log {
    /// Opens the log. A failing disk is tried again later. Errors: `Conflict` when another process has the directory.
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
        let (mut place, done) = Directory::take(&self.options.dir)?;
        place.check_format()?;
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
            // A segment that cannot be opened now is tried again when it is read.
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

    /// Before a clean stop.
    pub(super) fn leave(&mut self) {
        let is_empty = self.depth().records == 0;
        if let Some(place) = self.place.as_ref().filter(|_| is_empty) {
            place.forget_format();
        }
    }

    fn find_missing_segments(&mut self) {
        // Without a number that is done nobody knows whether the first segments were trimmed.
        let mut expected = if self.done == 0 { self.segments.front().map_or(1, Segment::first) } else { self.done + 1 };
        let mut gaps = Vec::new();
        for segment in &self.segments {
            if segment.first() > expected {
                gaps.push(Gap { from: expected, to: segment.first() });
            }
            expected = expected.max(segment.end());
        }
        let dir = self.options.dir.display().to_string();
        for gap in gaps {
            self.report(&dir, &gap);
        }
    }

    /// Opens a segment and closes the one read before. A damaged one is set aside; then another one has this index.
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
            Ok(Some(gap)) => {
                self.next = self.next.max(gap.to);
                let dir = segment.dir().display().to_string();
                self.report(&dir, &gap);
                Ok(())
            }
            Err(error) => Err(self.blame(index, error)),
        }
    }

    /// Handles an error of a segment: a damaged one is set aside, one on a failing disk is closed.
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

    pub(super) fn report(&mut self, dir: &str, gap: &Gap) {
        let lost = gap.to - gap.from;
        self.damaged += 1;
        self.metrics.damaged.inc();
        self.lost += lost;
        self.metrics.lost.inc_by(lost);
        tracing::error!(
            segment = dir,
            first = gap.from,
            end = gap.to,
            records = lost,
            "log damaged: records are missing"
        );
    }

    /// The directory, tried again if the disk did not let it be taken. Errors: `Unavailable`, with the reason.
    pub(super) fn place(&self) -> Result<&Directory> {
        match (&self.place, &self.failed) {
            (Some(place), _) => Ok(place),
            (None, Some((error, _))) => Err(again(error)),
            (None, None) => Err(Error::bug("the log has no place")),
        }
    }

    pub(super) fn depth(&mut self) -> Depth {
        let records = self.segments.iter().map(|segment| segment.waiting(self.done)).sum();
        let oldest = if records == 0 { None } else { self.oldest() };
        let end = (self.next > 1).then_some(Position(self.next - 1));
        Depth { records, bytes: self.bytes(), end, oldest, damaged: self.damaged, lost: self.lost }
    }

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

    pub(super) fn note(&self, note: Note) -> Option<String> {
        self.place.as_ref()?.note(note)
    }

    pub(super) fn set_note(&mut self, note: Note, text: &str) -> Result<()> {
        self.take_place()?;
        self.place()?.set_note(note, text)
    }

    pub(super) fn is_resting(&self) -> bool {
        self.segments.iter().all(|segment| !segment.is_open())
    }

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

/// Bytes of a segment that is kept when everything in it is done: a new one costs a few fsyncs.
const TINY_BYTES: u64 = 2 * 1024 * 1024;

impl Log {
    /// Remembers that everything through a position is done, and deletes the segments that are. Errors: `Unavailable`
    /// when that could not be written down: it is offered again after a restart.
    pub(super) fn trim(&mut self, through: Position) -> Result<()> {
        let through = through.0.min(self.next - 1);
        if through <= self.done {
            return Ok(());
        }
        self.done = through;
        self.segments.iter_mut().for_each(|segment| segment.forget(through));
        let remembered = self.place()?.set_done(through);
        self.remove_done();
        remembered
    }

    /// Trims the records at the front that are not there any more, so that nobody looks for them again.
    pub(super) fn trim_gone(&mut self) -> Result<()> {
        let Some(segment) = self.segments.front() else { return Ok(()) };
        let next = segment.first_waiting(self.done).unwrap_or(segment.end());
        self.trim(Position(next - 1))
    }

    /// Deletes segments in which everything is done, but keeps a tiny one for reuse, and sets a damaged one aside.
    fn remove_done(&mut self) {
        while let Some(segment) = self.segments.front_mut()
            && segment.is_end_known()
            && segment.end() - 1 <= self.done
        {
            if !segment.is_sealed() && !segment.is_damaged() && segment.bytes() < TINY_BYTES {
                return;
            }
            segment.close();
            let Some(place) = &self.place else { return };
            let removed = if segment.is_damaged() {
                place.set_aside(segment.dir()).map(drop)
            } else {
                place.delete(segment.dir())
            };
            if let Err(error) = removed {
                // It is found again, and is done, at the next start.
                tracing::warn!(%error, "segment that is done not deleted");
            }
            self.segments.remove(0);
        }
    }
}

/// Records that one step of a cancellation reads. Appends go on between two steps.
const STEP_RECORDS: usize = 1_000;

const STEP_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct CancelStep {
    pub(super) outcome: Cancelled,
    /// Where the next step begins. `None` when there is nothing left to read.
    pub(super) next: Option<u64>,
}

impl Log {
    pub(super) fn page(&mut self, after: Option<Position>, records_max: usize, bytes_max: usize) -> Result<Vec<Entry>> {
        let entries = self.peek(after, records_max, bytes_max)?;
        match entries.last() {
            Some(last) => self.handed = self.handed.max(last.position.0),
            // Nothing is left but what is lost or cancelled.
            None if after.is_none_or(|after| after.0 <= self.done) => self.trim(Position(self.next - 1))?,
            None => {}
        }
        Ok(entries)
    }

    /// Reads a page without handing it out: what was read can still be cancelled.
    pub(super) fn peek(&mut self, after: Option<Position>, records_max: usize, bytes_max: usize) -> Result<Vec<Entry>> {
        let mut from = after.map_or(0, |after| after.0).max(self.done).saturating_add(1);
        while let Some(scanned) = self.scan(&mut from, records_max, bytes_max)? {
            if !scanned.entries.is_empty() {
                return Ok(scanned.entries);
            }
        }
        Ok(Vec::new())
    }

    /// Reads the next records of one segment from `from`, which moves; `None` at the end. Passes a damaged segment.
    fn scan(&mut self, from: &mut u64, records_max: usize, bytes_max: usize) -> Result<Option<Scanned>> {
        self.take_place().map_err(|error| again(&error))?;
        while let Some(index) =
            self.segments.iter().position(|segment| segment.end() > *from || !segment.is_end_known())
        {
            let opened = self.open_segment(index);
            match (opened, self.segments.get_mut(index)) {
                (Ok(()), Some(segment)) => match segment.scan(*from, records_max, bytes_max) {
                    Ok(scanned) => {
                        let dir = segment.dir().display().to_string();
                        scanned.gaps.iter().for_each(|gap| self.report(&dir, gap));
                        *from = scanned.reached.max(*from);
                        return Ok(Some(scanned));
                    }
                    Err(error) => passed(self.blame(index, error))?,
                },
                (Err(error), _) => passed(error)?,
                (Ok(()), None) => {}
            }
        }
        Ok(None)
    }

    /// Takes the pushes of a message out that stand between `from` and a little later. Errors: `Unavailable` when it
    /// was not read or nothing was removed, `OutcomeUnknown` when perhaps something was.
    pub(super) fn cancel(&mut self, topic: &TopicName, id: &MessageId, from: u64) -> Result<CancelStep> {
        let mut from = from.max(self.done.saturating_add(1));
        let Some(scanned) = self.scan(&mut from, STEP_RECORDS, STEP_BYTES)? else {
            return Ok(CancelStep { outcome: Cancelled::Absent, next: None });
        };
        let (mut replaying, mut waiting, mut perhaps_sent) = (Vec::new(), Vec::new(), false);
        for Entry { position: Position(number), record, .. } in &scanned.entries {
            match record {
                Record::Push { topic: of, message, call, origin, .. } if of == topic && message.id == *id => {
                    let is_handed = *number <= self.handed;
                    if is_handed { &mut replaying } else { &mut waiting }.push(*number);
                    perhaps_sent |= call.is_some() || origin.is_some() || *number <= self.inherited;
                }
                _ => {}
            }
        }
        if !replaying.is_empty() {
            // The caller is told that nothing changed, so what waits behind the page stays, too.
            return Ok(CancelStep { outcome: Cancelled::Replaying, next: None });
        }
        let mut outcome = Cancelled::Absent;
        if let Some(first) = waiting.first() {
            let index = self.segments.iter().position(|segment| segment.end() > *first);
            let Some(index) = index else { return Err(Error::bug("a record of no segment")) };
            self.remove(index, &waiting)?;
            // Cancelled records stay so, whether this is written down or not.
            let _ = self.trim_gone();
            outcome = if perhaps_sent { Cancelled::RemovedSent } else { Cancelled::Removed };
        }
        Ok(CancelStep { outcome, next: Some(from) })
    }

    fn remove(&mut self, index: usize, numbers: &[u64]) -> Result<()> {
        let Some(segment) = self.segments.get_mut(index) else { return Err(Error::bug("no such segment")) };
        segment.remove(numbers).map_err(|error| {
            segment.distrust();
            let sealed = segment.seal();
            Error::outcome_unknown(match sealed {
                Ok(()) => error.detail().to_owned(),
                Err(also) => format!("{}; {}", error.detail(), also.detail()),
            })
        })
    }
}

/// A damaged segment is passed, it is set aside already; what else went wrong is not.
fn passed(error: Error) -> Result<()> {
    if error.kind() == Kind::Corrupt { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::codec::{Record, UnnumberedRecord};
    use crate::model::message::TopicName;
    use crate::model::topic::{Descriptor, Settings};
    use crate::platform::clock::Clock;
    use crate::telemetry::metrics::Metrics;
    use crate::wal::command::Addition;

    fn open(dir: &Path) -> Result<Log> {
        let mut options = WalOptions::new(dir.to_owned(), 1 << 30, Clock::System);
        options.disk_reserve_bytes = 0;
        Log::open(options, Metrics::new()?.wal("wal"))
    }

    fn append(log: &mut Log, topic: &str) -> Result<()> {
        let at = Timestamp::from_ms(1);
        let record = Record::Create(Descriptor::new(TopicName::new(topic)?, Settings::default()));
        let records = vec![UnnumberedRecord::new(&record, at)?];
        log.append(vec![Addition { records }]).into_iter().collect()
    }

    fn topics(log: &mut Log) -> Result<Vec<String>> {
        let name = |entry: crate::wal::Entry| match entry.record {
            Record::Create(descriptor) | Record::Delete(descriptor) => descriptor.topic.to_string(),
            Record::Push { message, .. } | Record::Set { message, .. } => message.id.to_string(),
            Record::Cancel { id, .. } | Record::End { id, .. } => id.to_string(),
            Record::Purge { group, .. } => group.to_string(),
            Record::CronJob { name, .. } => name.to_string(),
        };
        Ok(log.page(None, 100, 1 << 20)?.into_iter().map(name).collect())
    }

    #[test]
    fn idle_log_closes_its_file_and_reopens_on_append() -> Result<()> {
        let dir = tempfile::tempdir().map_err(|error| Error::unavailable(error.to_string()))?;
        let mut log = open(dir.path())?;
        assert!(log.is_resting());
        append(&mut log, "a")?;
        assert!(!log.is_resting());
        log.rest();
        assert!(log.is_resting());
        append(&mut log, "b")?;
        log.rest();
        assert_eq!((topics(&mut log)?, log.segments.len()), (vec!["a".to_owned(), "b".to_owned()], 1));
        Ok(())
    }

    /// The mark may be older than what is in the segment, so without opening it nobody knows where it ends.
    #[test]
    fn nothing_is_deleted_or_appended_after_an_unknown_end() -> Result<()> {
        let dir = tempfile::tempdir().map_err(|error| Error::unavailable(error.to_string()))?;
        let mut log = open(dir.path())?;
        append(&mut log, "a")?;
        append(&mut log, "b")?;
        log.rest();
        // As if it could not be opened when the log was, and its mark were that of an empty segment.
        std::fs::remove_file(dir.path().join(Segment::name(1)).join("last")).map_err(|e| Error::bug(e.to_string()))?;
        log.segments = [Segment::found(dir.path(), 1, None)].into();
        log.next = 1;
        log.remove_done();
        append(&mut log, "c")?;
        assert_eq!(topics(&mut log)?, ["a", "b", "c"]);
        Ok(())
    }

    /// A write fails in a segment that has nothing else: its records were refused, and never come back.
    #[test]
    fn refused_record_of_a_new_segment_does_not_reappear() -> Result<()> {
        let dir = tempfile::tempdir().map_err(|error| Error::unavailable(error.to_string()))?;
        let mut log = open(dir.path())?;
        for topic in ["a", "b", "c"] {
            append(&mut log, topic)?;
        }
        drop(log);
        // As the seal is after the first write failed.
        let mark = crate::platform::disk::MarkerFile::open(&dir.path().join(Segment::name(1)).join("sealed"));
        mark.and_then(|(mark, _)| mark.set(1)).map_err(|error| Error::bug(error.to_string()))?;
        let mut log = open(dir.path())?;
        append(&mut log, "new")?;
        assert_eq!((topics(&mut log)?, log.segments.len()), (vec!["new".to_owned()], 1));
        drop(log);
        let mut log = open(dir.path())?;
        assert_eq!(topics(&mut log)?, ["new"]);
        append(&mut log, "newer")?;
        assert_eq!(topics(&mut log)?, ["new", "newer"]);
        Ok(())
    }
}
