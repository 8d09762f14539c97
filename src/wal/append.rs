//! Appending: what many callers want, in one write.

use std::time::Duration;

use super::log::{Log, again};
use super::options::WalOptions;
use super::segment::Segment;
use crate::codec::UnnumberedRecord;
use crate::model::error::{Error, Kind, Result};
use crate::platform::disk::check_room;

/// How long a failed disk is left alone before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What one caller wants to append, all or none.
#[derive(Debug)]
pub(super) struct Addition {
    pub(super) records: Vec<UnnumberedRecord>,
}

impl Addition {
    /// Bytes before sled adds its own.
    pub(super) fn bytes(&self) -> u64 {
        self.records.iter().map(|record| record.size() as u64).sum()
    }
}

impl Log {
    /// Appends additions, each for itself, and makes them durable together.
    pub(super) fn append(&mut self, additions: Vec<Addition>) -> Vec<Result<()>> {
        if let Err(error) = self.mend().and_then(|()| self.check_room()) {
            return additions.iter().map(|_| Err(error.clone())).collect();
        }
        let (mut bytes, mut records) = (self.bytes(), Vec::new());
        let room: Vec<Result<()>> = additions
            .into_iter()
            .map(|addition| {
                bytes = self.fits(bytes, &addition)?;
                records.extend(addition.records);
                Ok(())
            })
            .collect();
        if records.is_empty() {
            return room;
        }
        let written = self.write(records);
        room.into_iter().map(|room| room.and(written.clone())).collect()
    }

    /// The bytes with this addition. # Errors: `Full` when they are too many.
    fn fits(&self, bytes: u64, addition: &Addition) -> Result<u64> {
        let with = bytes.saturating_add(addition.bytes());
        if with <= self.options.limit_bytes {
            return Ok(with);
        }
        Err(full(&self.options, bytes))
    }

    fn write(&mut self, records: Vec<UnnumberedRecord>) -> Result<()> {
        if let Err(error) = self.begin() {
            return Err(self.fail(Error::unavailable(error.detail().to_owned())));
        }
        let count = records.len() as u64;
        let Some(segment) = self.segments.back_mut() else { return Err(Error::bug("no segment was begun")) };
        let began = self.options.clock.instant();
        match segment.append(records) {
            Ok(()) => {
                self.next += count;
                self.metrics.fsync.observe(self.options.clock.instant().since(began).as_secs_f64());
                Ok(())
            }
            Err(error) => {
                // OrderedTopics the seal nothing counts, so what may have been written of these records never comes back, if the
                // seal is durable.
                segment.distrust();
                let sealed = segment.seal();
                let detail = error.detail().to_owned();
                Err(self.fail(sealed.map_or(Error::outcome_unknown(detail.clone()), |()| Error::unavailable(detail))))
            }
        }
    }

    /// Makes the last segment one that can be appended to.
    fn begin(&mut self) -> Result<()> {
        if self.segments.back().is_some_and(|segment| !segment.is_open() && !segment.is_sealed())
            && let Err(error) = self.open_segment(self.segments.len() - 1)
            && self.segments.back().is_some_and(|segment| !segment.is_end_known())
        {
            // Where it ends nobody knows, so nothing can be appended behind it.
            return Err(error);
        }
        if let Some(segment) = self.segments.back_mut()
            && !segment.is_sealed()
        {
            let is_room = segment.bytes() < self.options.segment_bytes;
            if segment.is_open() && is_room && !segment.is_damaged() && segment.end() == self.next {
                return Ok(());
            }
            segment.seal()?;
        }
        self.remove_empty()?;
        let Some(place) = &self.place else { return Err(Error::bug("the log has no place")) };
        place.keep_reserve(self.options.disk_reserve_bytes);
        let new = place.dir().join(Segment::name(self.next));
        if new.exists() {
            // None of ours, or one that could not be set aside before. Nothing is written into it.
            place.set_aside(&new)?;
        }
        match Segment::begin(place.dir(), self.next) {
            Ok(segment) => {
                tracing::info!(segment = %new.display(), first = self.next, "segment begun");
                self.segments.push_back(segment);
                Ok(())
            }
            Err(error) => {
                // It was made just now, so nothing is lost with it.
                let _ = std::fs::remove_dir_all(new);
                Err(error)
            }
        }
    }

    /// Closes the last segment, and removes it if it was sealed before anything in it was acknowledged: the next one has
    /// the same first number, and must not meet what was written there.
    fn remove_empty(&mut self) -> Result<()> {
        let Some(segment) = self.segments.back_mut() else { return Ok(()) };
        segment.close();
        if segment.end() > segment.first() {
            return Ok(());
        }
        let place = self.place.as_ref().ok_or_else(|| Error::bug("the log has no place"))?;
        if segment.is_damaged() {
            place.set_aside(segment.dir())?;
        } else {
            place.delete(segment.dir())?;
        }
        self.segments.truncate(self.segments.len() - 1);
        Ok(())
    }

    /// Tries a failed disk again, when it is time.
    ///
    /// # Errors
    /// Why it failed, or fails.
    pub(super) fn mend(&mut self) -> Result<()> {
        let Some((error, since)) = &self.failed else { return Ok(()) };
        if self.options.clock.instant().since(*since) < RETRY_AFTER {
            return Err(again(error));
        }
        let tried = self.take_place().and_then(|()| self.check_room()).and_then(|()| self.begin());
        match tried {
            Ok(()) => {
                if self.unwritten.is_over() {
                    tracing::info!(dir = %self.options.dir.display(), "log can be written again");
                }
                self.failed = None;
                Ok(())
            }
            Err(error) => Err(again(&self.fail(error))),
        }
    }

    pub(super) fn fail(&mut self, error: Error) -> Error {
        let now = self.options.clock.instant();
        if self.unwritten.is_due(now) {
            tracing::error!(dir = %self.options.dir.display(), %error, "log cannot be written");
        }
        self.failed = Some((error.clone(), now));
        error
    }

    fn check_room(&self) -> Result<()> {
        check_room(&self.options.dir, self.options.disk_reserve_bytes)
    }
}

/// The error of a log that holds so many bytes.
pub(super) fn full(options: &WalOptions, bytes: u64) -> Error {
    let detail = format!(
        "the log in {} has {bytes} bytes, at most {}: it has to be replayed first",
        options.dir.display(),
        options.limit_bytes
    );
    Error::new(Kind::Full, detail)
}
