//! Trimming: what is done is not offered again, and its segments are deleted.

use super::entry::Position;
use super::log::Log;
use crate::model::error::Result;

/// Bytes of a segment that is kept when everything in it is done: a new one costs a few fsyncs.
const TINY_BYTES: u64 = 2 * 1024 * 1024;

impl Log {
    /// Remembers that everything through a position is done, and deletes the segments that are.
    ///
    /// # Errors
    /// `Unavailable` when that could not be written down: it is offered again after a restart.
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

    /// Deletes the segments in which everything is done. A damaged one is set aside instead, and a tiny one is kept for the
    /// next records.
    pub(super) fn remove_done(&mut self) {
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
