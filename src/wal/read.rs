//! Reading: pages for a replay, and steps of a cancellation.

use super::log::{Log, again};
use super::record_batch::{Cancelled, Entry, Position};
use super::segment::Scanned;
use crate::codec::Record;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{MessageId, TopicName};

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
            // Cancelled records stay so, whether this is written down or not.
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
