//! A segment: the records of a range of numbers, in its own sled directory, which is deleted as a whole, since sled
//! never gives space back.
//!
//! Beside sled's files lie two marks: `last`, the number of the last record that was durable, which tells of a lost end;
//! and `sealed`, behind which number nothing counts any more (0: it is still appended to). A record that was not
//! acknowledged, because its write failed, stays behind the seal for good.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::io::Errno;
use sled::{Batch, IVec, Tree};

use super::record_batch;
use super::record_batch::{
    Entry, Position, bundle_key, bundle_range, cancelled_key, cancelled_prefix, number_of, part_key,
};
use crate::codec::{NumberedRecord, UnnumberedRecord};
use crate::model::error::{Error, Kind, Result};
use crate::model::time::Timestamp;
use crate::platform::disk::{
    ChunkedValue, Disk, MarkerFile, PART_BYTES, Refusal, create, free_bytes, guarded, set_snapshots_aside,
    sync_directory,
};

/// Bytes that sled may use for its cache, for each open segment.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// A segment is deleted as a whole, so nothing in it is worth a thread that cleans, and wakes twice a second.
const CLEAN_EVERY_MS: Option<u64> = None;

const NAME_DIGITS: usize = 20;

/// No log ever has so many records; a greater number in a name or a key is none of ours.
const NUMBER_MAX: u64 = 1 << 60;

const LAST: &str = "last";
const SEALED: &str = "sealed";
const DAMAGED: &str = "damaged";

#[derive(Debug)]
pub(super) struct Segment {
    dir: PathBuf,
    first: u64,
    end: u64,
    is_sealed: bool,
    /// Missing records below `end`: cancelled, or lost to damage that is counted already. Not always the trimmed ones.
    gone: BTreeSet<u64>,
    bytes: u64,
    /// Bytes of sled's file among them, when it was looked at last.
    file_bytes: u64,
    /// Damage was found in it, so it is kept for whoever wants to look.
    is_damaged: bool,
    is_verified: bool,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    disk: Disk,
    last: MarkerFile,
}

#[derive(Debug, Default)]
pub(super) struct Scanned {
    pub(super) entries: Vec<Entry>,
    pub(super) gaps: Vec<Gap>,
    /// The number behind the last one that was looked at.
    pub(super) reached: u64,
}

impl Segment {
    pub(super) fn name(first: u64) -> String {
        format!("{first:0NAME_DIGITS$}")
    }

    pub(super) fn first_of(name: &str) -> Option<u64> {
        let digits = name.len() == NAME_DIGITS && name.bytes().all(|byte| byte.is_ascii_digit());
        name.parse().ok().filter(|first| digits && (1..NUMBER_MAX).contains(first))
    }

    /// A segment that lies below a directory. `limit` is the first number of the next one, which ends this one.
    pub(super) fn found(parent: &Path, first: u64, limit: Option<u64>) -> Segment {
        let dir = parent.join(Segment::name(first));
        // A mark that cannot be read says nothing.
        let mark = |name| MarkerFile::peek(&dir.join(name)).ok().flatten();
        let sealed = mark(SEALED).filter(|end| *end >= first).or(limit);
        let last = mark(LAST).map_or(first, |last| last.saturating_add(1).max(first));
        let end = sealed.unwrap_or(last).min(limit.unwrap_or(u64::MAX));
        let bytes = bytes_in(&dir);
        let gone = BTreeSet::new();
        let (is_sealed, is_damaged) = (sealed.is_some(), dir.join(DAMAGED).exists());
        Segment { dir, first, end, is_sealed, gone, bytes, file_bytes: 0, is_damaged, is_verified: false, open: None }
    }

    /// Makes an empty segment that survives a power cut. Errors: `Unavailable` when the disk does not let it.
    pub(super) fn begin(parent: &Path, first: u64) -> Result<Segment> {
        let dir = parent.join(Segment::name(first));
        let unavailable = |error: io::Error| broken(&dir, &error.into());
        let disk = Disk::open(&dir, CACHE_BYTES, CLEAN_EVERY_MS).map_err(|refusal| refused(&dir, refusal))?;
        let (last, _) = MarkerFile::open(&dir.join(LAST)).map_err(unavailable)?;
        last.set(first - 1).map_err(unavailable)?;
        let (sealed, _) = MarkerFile::open(&dir.join(SEALED)).map_err(unavailable)?;
        sealed.set(0).map_err(unavailable)?;
        disk.sync().map_err(unavailable)?;
        sync_directory(&dir).map_err(unavailable)?;
        let mut segment = Segment::found(parent, first, None);
        segment.is_verified = true;
        segment.file_bytes = disk.bytes();
        segment.open = Some(Open { disk, last });
        Ok(segment)
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether nothing may be appended to it.
    pub(super) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Whether its end is known for sure: the mark beside it may be older than what is in it, until it was opened once.
    pub(super) fn is_end_known(&self) -> bool {
        self.is_verified || self.is_sealed
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Records behind `done` that are there, as far as is known.
    pub(super) fn waiting(&self, done: u64) -> u64 {
        let all = self.end.saturating_sub(self.first.max(done.saturating_add(1)));
        all.saturating_sub(self.gone.len() as u64)
    }

    /// The first record behind `done` that is there, as far as is known.
    pub(super) fn first_waiting(&self, done: u64) -> Option<u64> {
        (self.first.max(done.saturating_add(1))..self.end).find(|number| !self.gone.contains(number))
    }

    /// Forgets what it knows of records up to there: they are trimmed.
    pub(super) fn forget(&mut self, done: u64) {
        if self.gone.first().is_some_and(|first| *first <= done) {
            self.gone = self.gone.split_off(&done.saturating_add(1));
        }
    }

    /// Opens it, and the first time compares its end with its marks. Answers what is lost at the end. Errors:
    /// `Unavailable` when the disk does not let it be opened, `Corrupt` when it is damaged.
    pub(super) fn open(&mut self, done: u64) -> Result<Option<Gap>> {
        if self.open.is_some() {
            return Ok(None);
        }
        let dir = self.dir.clone();
        let unavailable = |error: io::Error| broken(&dir, &error.into());
        let mut disk = Disk::open(&dir, CACHE_BYTES, CLEAN_EVERY_MS);
        if matches!(disk, Err(Refusal::Damaged(_))) && set_snapshots_aside(&dir) {
            disk = Disk::open(&dir, CACHE_BYTES, CLEAN_EVERY_MS);
        }
        let disk = disk.map_err(|refusal| refused(&dir, refusal))?;
        let (last, _) = MarkerFile::open(&dir.join(LAST)).map_err(unavailable)?;
        let gap = if self.is_verified { None } else { self.guarded(|segment| segment.verify(disk.tree(), done))? };
        if !self.is_sealed {
            // A process that died while it made the segment may not have come to this.
            sync_directory(&dir).map_err(unavailable)?;
        }
        // sled makes room for what comes next.
        (self.bytes, self.file_bytes) = (bytes_in(&self.dir), disk.bytes());
        self.open = Some(Open { disk, last });
        Ok(gap)
    }

    fn verify(&mut self, tree: &Tree, done: u64) -> Result<Option<Gap>> {
        let failed = |error| broken(&self.dir, &error);
        let mut gone = BTreeSet::new();
        for key in tree.scan_prefix(cancelled_prefix()).keys() {
            gone.extend(number_of(&key.map_err(failed)?).filter(|number| *number < NUMBER_MAX));
        }
        let last_record = self.last_record(tree)?.map(|record| record.number);
        let present = last_record.max(gone.last().copied()).map_or(self.first, |last| last.saturating_add(1));
        let expected = self.end;
        // Nothing behind a seal counts, and nothing before it may be missing.
        self.end = if self.is_sealed { present.min(expected) } else { present };
        gone.split_off(&self.end);
        self.gone.extend(gone);
        self.forget(done);
        self.is_verified = true;
        if present >= expected {
            return Ok(None);
        }
        self.set_damaged();
        let from = self.end.max(done.saturating_add(1));
        Ok((from < expected).then_some(Gap { from, to: expected }))
    }

    pub(super) fn time_of(&self, number: u64) -> Option<Timestamp> {
        let tree = self.open.as_ref()?.disk.tree();
        let (_, bundle) = guarded(|| self.bundle_of(tree, number)).ok()?.ok()??;
        record_batch::records(bundle).find(|(record, _)| record.number == number).map(|(record, _)| record.at)
    }

    fn last_record(&self, tree: &Tree) -> Result<Option<NumberedRecord>> {
        for entry in tree.range(bundle_range(self.first..NUMBER_MAX)).rev() {
            let (_, bundle) = self.bundle(tree, entry)?;
            if let Some((record, _)) = record_batch::records(bundle).last() {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    fn bundle_of(&self, tree: &Tree, number: u64) -> Result<Option<(u64, Bytes)>> {
        let before = tree.range(bundle_range(self.first..number.saturating_add(1))).next_back();
        before.map(|entry| self.bundle(tree, entry)).transpose()
    }

    fn bundle(&self, tree: &Tree, entry: sled::Result<(IVec, IVec)>) -> Result<(u64, Bytes)> {
        let failed = |error| broken(&self.dir, &error);
        let (key, first) = entry.map_err(failed)?;
        let number = number_of(&key).unwrap_or_default();
        let part = |at| tree.get(part_key(number, at)).map_err(failed);
        match ChunkedValue::join(first, part) {
            // Removed records leave a gap in the numbers.
            Err(error) if error.kind() == Kind::Corrupt => Ok((number, Bytes::new())),
            bundle => Ok((number, bundle?)),
        }
    }

    /// Appends records and returns once they are durable. It must be open and not sealed. Errors: `Unavailable` or
    /// `Corrupt`: nobody knows whether they are there. It may not be appended to again.
    pub(super) fn append(&mut self, records: Vec<UnnumberedRecord>) -> Result<()> {
        let number = self.end + records.len() as u64;
        let mut batch = Batch::default();
        for (first, bundle) in record_batch::bundled(self.end, records) {
            put(&mut batch, first, &bundle)?;
        }
        self.write(batch)?;
        self.end = number;
        if let Some(open) = &self.open {
            // An older number is true too.
            let _ = open.last.set(self.end - 1);
            let bytes = open.disk.bytes();
            self.bytes = self.bytes.saturating_add(bytes.saturating_sub(self.file_bytes));
            self.file_bytes = bytes;
        }
        Ok(())
    }

    /// Removes records durably. It must be open. Errors: as [`Segment::append`].
    pub(super) fn remove(&mut self, numbers: &[u64]) -> Result<()> {
        let mut batch = Batch::default();
        self.guarded(|segment| {
            let Some(open) = &segment.open else { return Err(Error::bug("a closed segment was changed")) };
            let tree = open.disk.tree();
            let mut bundles = BTreeMap::new();
            for number in numbers {
                bundles.extend(segment.bundle_of(tree, *number)?);
                batch.insert(&cancelled_key(*number), &[]);
            }
            for (first, bundle) in bundles {
                let parts = u16::try_from(bundle.len().div_ceil(PART_BYTES)).unwrap_or(u16::MAX);
                (1..=parts).for_each(|at| batch.remove(&part_key(first, at)));
                match record_batch::without(bundle, numbers) {
                    Some(left) => put(&mut batch, first, &left)?,
                    None => batch.remove(&bundle_key(first)),
                }
            }
            Ok(())
        })?;
        self.write(batch)?;
        self.gone.extend(numbers);
        Ok(())
    }

    fn write(&mut self, batch: Batch) -> Result<()> {
        self.guarded(|segment| {
            let Some(open) = &segment.open else { return Err(Error::bug("a closed segment was changed")) };
            open.disk.apply(batch).map_err(|error| broken(&segment.dir, &error))?;
            open.disk.sync().map_err(|error| broken(&segment.dir, &error.into()))
        })
    }

    /// Reads records from a number on, in order: at most so many, and so many bytes unless the first alone is larger.
    /// It must be open. Errors: `Unavailable` when the disk fails, `Corrupt` when sled cannot go on reading.
    pub(super) fn scan(&mut self, from: u64, records_max: usize, bytes_max: usize) -> Result<Scanned> {
        let scanned = self.guarded(|segment| segment.scan_open(from, records_max, bytes_max))?;
        for gap in &scanned.gaps {
            self.set_damaged();
            self.gone.extend(gap.from..gap.to);
        }
        Ok(scanned)
    }

    /// Remembers that it has to be kept, also for the next process, if the disk lets it.
    fn set_damaged(&mut self) {
        if !self.is_damaged {
            self.is_damaged = true;
            let _ = create(&self.dir.join(DAMAGED));
        }
    }

    fn scan_open(&self, from: u64, records_max: usize, bytes_max: usize) -> Result<Scanned> {
        let Some(open) = &self.open else { return Err(Error::bug("a closed segment was read")) };
        let tree = open.disk.tree();
        let mut scanned = Scanned { reached: from.max(self.first), ..Scanned::default() };
        let mut bytes = 0;
        let begin = self.bundle_of(tree, scanned.reached)?.map_or(scanned.reached, |(first, _)| first);
        for entry in tree.range(bundle_range(begin..self.end)) {
            let (_, bundle) = self.bundle(tree, entry)?;
            for (NumberedRecord { number, at, record }, read) in record_batch::records(bundle) {
                if !(scanned.reached..self.end).contains(&number) || self.gone.contains(&number) {
                    continue;
                }
                bytes += read.len();
                let is_full = scanned.entries.len() >= records_max || bytes > bytes_max;
                if is_full && !scanned.entries.is_empty() {
                    return Ok(scanned);
                }
                self.missing(&mut scanned, number);
                scanned.entries.push(Entry { position: Position(number), at, record });
                scanned.reached = number + 1;
            }
        }
        self.missing(&mut scanned, self.end);
        scanned.reached = self.end;
        Ok(scanned)
    }

    fn missing(&self, scanned: &mut Scanned, found: u64) {
        let mut from = scanned.reached;
        while from < found {
            let next_gone = self.gone.range(from..found).next().copied().unwrap_or(found);
            if from < next_gone {
                scanned.gaps.push(Gap { from, to: next_gone });
            }
            from = next_gone.saturating_add(1);
        }
    }

    /// Ends it behind its last record, durably. Records behind it were not acknowledged, and never count.
    /// Errors: `Unavailable` when the disk fails: it ends there only until the process does.
    pub(super) fn seal(&mut self) -> Result<()> {
        self.is_sealed = true;
        let unavailable = |error: io::Error| broken(&self.dir, &error.into());
        let (sealed, _) = MarkerFile::open(&self.dir.join(SEALED)).map_err(unavailable)?;
        sealed.set(self.end).map_err(unavailable)?;
        sealed.sync().map_err(unavailable)
    }

    pub(super) fn close(&mut self) {
        if self.open.take().is_some() {
            self.bytes = bytes_in(&self.dir);
        }
    }

    /// Closes it after a write failed: its handle is of no use any more, and what is in it is looked at again.
    pub(super) fn distrust(&mut self) {
        self.close();
        self.is_verified = false;
    }

    /// Calls sled. After a panic in it the segment is closed.
    fn guarded<T>(&mut self, call: impl FnOnce(&mut Segment) -> Result<T>) -> Result<T> {
        let answer = guarded(|| call(self));
        answer.unwrap_or_else(|()| {
            self.close();
            Err(Error::corrupt(format!("the log's segment {}: it is damaged", self.dir.display())))
        })
    }
}

fn bytes_in(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).filter(std::fs::Metadata::is_file).map(|file| file.len()).sum()
}

fn put(batch: &mut Batch, first: u64, bundle: &[u8]) -> Result<()> {
    let parts = ChunkedValue::cut(bundle)?;
    batch.insert(&bundle_key(first), parts.first);
    for (at, part) in (1..).zip(parts.further) {
        batch.insert(&part_key(first, at), part);
    }
    Ok(())
}

/// Bytes of a disk that is as good as full: what sled says on it is no proof of damage.
const FULL_BYTES: u64 = 1024 * 1024;

/// Records that should be there: from this number to before that one nothing can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// An error of sled in an open segment: `Unavailable` when the disk failed, `Corrupt` when its content is damaged.
fn broken(dir: &Path, error: &sled::Error) -> Error {
    let is_disk = matches!(error, sled::Error::Io(error) if is_of_the_disk(error));
    judge(dir, is_disk, &error.to_string())
}

fn refused(dir: &Path, refusal: Refusal) -> Error {
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
