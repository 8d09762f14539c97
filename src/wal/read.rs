//! Reading: pages for a replay, steps of a cancellation, and whether the disk or its content is to blame for a failure.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::log::{Log, again};
use super::record_batch::{Cancelled, Entry, Position};
use super::segment::Scanned;
use crate::codec::Record;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{MessageId, TopicName};
use crate::platform::disk::{Refusal, free_bytes};

/// Records that one step of a cancellation reads. Appends go on between two steps.
const STEP_RECORDS: usize = 1_000;

const STEP_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Step {
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

    /// The same for a reader that hands nothing to the store: what it read can still be cancelled.
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
                        scanned.lacks.iter().for_each(|lack| self.report(&dir, lack));
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
    pub(super) fn cancel(&mut self, topic: &TopicName, id: &MessageId, from: u64) -> Result<Step> {
        let mut from = from.max(self.done.saturating_add(1));
        let Some(scanned) = self.scan(&mut from, STEP_RECORDS, STEP_BYTES)? else {
            return Ok(Step { outcome: Cancelled::Absent, next: None });
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
            return Ok(Step { outcome: Cancelled::Replaying, next: None });
        }
        let mut outcome = Cancelled::Absent;
        if let Some(first) = waiting.first() {
            let index = self.segments.iter().position(|segment| segment.end() > *first);
            let Some(index) = index else { return Err(Error::bug("a record of no segment")) };
            self.remove(index, &waiting)?;
            // What is cancelled stays so, whether this is written down or not.
            let _ = self.trim_gone();
            outcome = if perhaps_sent { Cancelled::RemovedSent } else { Cancelled::Removed };
        }
        Ok(Step { outcome, next: Some(from) })
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

/// Bytes of a disk that is as good as full: what sled says on it is no proof of damage.
const FULL_BYTES: u64 = 1024 * 1024;

/// Records that should be there: from this number to before that one nothing can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lack {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// An error of sled in an open segment: `Unavailable` when the disk failed, `Corrupt` when its content is damaged.
pub(super) fn broken(dir: &Path, error: &sled::Error) -> Error {
    let is_disk = matches!(error, sled::Error::Io(error) if is_of_the_disk(error));
    judge(dir, is_disk, &error.to_string())
}

pub(super) fn refused(dir: &Path, refusal: Refusal) -> Error {
    match refusal {
        Refusal::Locked => judge(dir, true, "another process uses it"),
        Refusal::Io(error) => judge(dir, is_of_the_disk(&error), &error.to_string()),
        Refusal::Damaged(why) => judge(dir, false, &why),
    }
}

fn judge(dir: &Path, is_disk: bool, why: &str) -> Error {
    let is_disk = is_disk || free_bytes(dir).is_some_and(|free| free < FULL_BYTES);
    let kind = if is_disk { Kind::Unavailable } else { Kind::Corrupt };
    Error::new(kind, format!("the log's segment {}: {why}", dir.display()))
}

/// Whether the disk or the process is in trouble. Other errors are about content, like an early end of a file.
fn is_of_the_disk(error: &io::Error) -> bool {
    const TROUBLES: [Errno; 12] = [
        Errno::IO,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::FBIG,
        Errno::ROFS,
        Errno::ACCESS,
        Errno::PERM,
        Errno::NOMEM,
        Errno::MFILE,
        Errno::NFILE,
        Errno::INTR,
        Errno::AGAIN,
    ];
    Errno::from_io_error(error).is_some_and(|errno| TROUBLES.contains(&errno))
}
