//! Records that stand together in one entry of a segment's tree.
//!
//! An entry costs sled much more than a record does: so small records share one, up to the size of a part. A bundle is
//! `bytes of the record (4, big endian) | record`, again and again. Each record has its own checksum and number, so one
//! that is damaged, and what follows it in its bundle, is seen as a gap.

use std::ops::Range;

use bytes::Bytes;

use crate::codec::{NumberedRecord, Record, UnnumberedRecord, decode_record};
use crate::model::time::Timestamp;
use crate::platform::disk::PART_BYTES;

/// Bytes of a bundle of more than one record: one part of a value.
const BUNDLE_BYTES_MAX: usize = PART_BYTES;

const LENGTH_BYTES: usize = 4;

/// Numbers records from `first` on and bundles them. Each bundle comes with its first number.
pub(super) fn bundled(first: u64, records: Vec<UnnumberedRecord>) -> Vec<(u64, Vec<u8>)> {
    let mut bundles: Vec<(u64, Vec<u8>)> = Vec::new();
    for (number, record) in (first..).zip(records) {
        let bytes = record.numbered(number);
        match bundles.last_mut() {
            Some((_, bundle)) if bundle.len() + LENGTH_BYTES + bytes.len() <= BUNDLE_BYTES_MAX => add(bundle, &bytes),
            _ => {
                let mut bundle = Vec::with_capacity(LENGTH_BYTES + bytes.len());
                add(&mut bundle, &bytes);
                bundles.push((number, bundle));
            }
        }
    }
    bundles
}

fn add(bundle: &mut Vec<u8>, record: &[u8]) {
    // No record has 4 GiB: a message has a limit, and so has a descriptor.
    bundle.extend_from_slice(&u32::try_from(record.len()).unwrap_or(u32::MAX).to_be_bytes());
    bundle.extend_from_slice(record);
}

/// The readable records of a bundle, in order, with the bytes that they were read from.
pub(super) fn records(bundle: Bytes) -> impl Iterator<Item = (NumberedRecord, Bytes)> {
    let mut rest = bundle;
    let slices = std::iter::from_fn(move || {
        let length = u32::from_be_bytes(*rest.first_chunk::<LENGTH_BYTES>()?);
        let end = LENGTH_BYTES.checked_add(usize::try_from(length).ok()?)?;
        let record = (end <= rest.len()).then(|| rest.slice(LENGTH_BYTES..end))?;
        rest = rest.slice(end..);
        Some(record)
    });
    slices.filter_map(|bytes| Some((decode_record(bytes.clone()).ok()?, bytes)))
}

/// A bundle without some of its records; `None` when nothing is left of it.
pub(super) fn without(bundle: Bytes, numbers: &[u64]) -> Option<Vec<u8>> {
    let mut left = Vec::new();
    for (record, bytes) in records(bundle) {
        if !numbers.contains(&record.number) {
            add(&mut left, &bytes);
        }
    }
    (!left.is_empty()).then_some(left)
}

#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use super::*;

    pub fn bundled(first: u64, records: Vec<UnnumberedRecord>) -> Vec<(u64, Vec<u8>)> {
        super::bundled(first, records)
    }

    pub fn records(bundle: Bytes) -> Vec<NumberedRecord> {
        super::records(bundle).map(|(record, _)| record).collect()
    }

    pub fn without(bundle: Bytes, numbers: &[u64]) -> Option<Vec<u8>> {
        super::without(bundle, numbers)
    }
}

/// The place of a record in the log. Later records have greater positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(super) u64);

impl Position {
    pub fn number(self) -> u64 {
        self.0
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub position: Position,
    /// When it was appended, by the clock of this machine.
    pub at: Timestamp,
    pub record: Record,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was there, was not handed out, and is gone, durably.
    Removed,
    /// It was there, was not handed out by this process, and is gone, durably; but the store may have been sent it: its record says
    /// so, or is of an earlier process.
    RemovedSent,
    /// A page handed it out and it is not trimmed: perhaps the store has it. Nothing was removed.
    Replaying,
    Absent,
}

impl Cancelled {
    pub(super) fn and(self, other: Cancelled) -> Cancelled {
        match (self, other) {
            (Cancelled::Replaying, _) | (_, Cancelled::Replaying) => Cancelled::Replaying,
            (Cancelled::RemovedSent, _) | (_, Cancelled::RemovedSent) => Cancelled::RemovedSent,
            (Cancelled::Removed, _) | (_, Cancelled::Removed) => Cancelled::Removed,
            (Cancelled::Absent, Cancelled::Absent) => Cancelled::Absent,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Records that are not trimmed, not cancelled and not known to be lost.
    pub records: u64,
    /// Bytes of all segments on disk, trimmed records in them included.
    pub bytes: u64,
    /// Where the newest record stands, trimmed or not; `None` when there never was any.
    pub end: Option<Position>,
    /// When the oldest of the records was appended, or a little earlier.
    pub oldest: Option<Timestamp>,
    /// Damages found since the log was opened: unreadable records, gaps, and segments that were set aside.
    pub damaged: u64,
    /// Records that damage took, found since the log was opened.
    pub lost: u64,
}

/// The first part of a bundle.
const BUNDLE: u8 = 0;
/// The further parts of bundles.
const PART: u8 = 1;
/// The numbers of records that were cancelled.
const CANCELLED: u8 = 2;

fn key(kind: u8, number: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(super) fn bundle_key(first: u64) -> [u8; 9] {
    key(BUNDLE, first)
}

pub(super) fn bundle_range(firsts: Range<u64>) -> Range<[u8; 9]> {
    bundle_key(firsts.start)..bundle_key(firsts.end)
}

pub(super) fn part_key(first: u64, part: u16) -> [u8; 11] {
    let mut bytes = [0; 11];
    bytes[..9].copy_from_slice(&key(PART, first));
    bytes[9..].copy_from_slice(&part.to_be_bytes());
    bytes
}

pub(super) fn cancelled_key(number: u64) -> [u8; 9] {
    key(CANCELLED, number)
}

pub(super) fn cancelled_prefix() -> [u8; 1] {
    [CANCELLED]
}

pub(super) fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.get(1..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Record;
    use crate::model::error::Result;
    use crate::model::message::{Conflict, NewMessage, TopicName};
    use crate::model::time::Timestamp;
    use crate::model::version::Version;

    fn push(bytes: usize) -> Result<UnnumberedRecord> {
        let at = Timestamp::from_ms(1);
        let message = NewMessage::new(vec![b'x'; bytes]).accept(at)?;
        let topic = TopicName::new("orders")?;
        UnnumberedRecord::new(
            &Record::Push {
                topic,
                message,
                version: Version::default(),
                conflict: Conflict::Keep,
                call: None,
                origin: None,
            },
            at,
        )
    }

    fn numbers(bundle: &[u8]) -> Vec<u64> {
        records(bundle.to_vec().into()).map(|(record, _)| record.number).collect()
    }

    #[test]
    fn small_records_share_a_batch_and_large_ones_do_not() -> Result<()> {
        let sizes = [100, 100, 5_000, 10, 3_000, 1_500, 100];
        let bundles = bundled(7, sizes.into_iter().map(push).collect::<Result<_>>()?);
        let found: Vec<_> = bundles.iter().map(|(first, bundle)| (*first, numbers(bundle))).collect();
        assert_eq!(found, [(7, vec![7, 8]), (9, vec![9]), (10, vec![10, 11]), (12, vec![12, 13])]);
        assert!(bundles.iter().all(|(_, bundle)| bundle.len() <= BUNDLE_BYTES_MAX || numbers(bundle).len() == 1));
        Ok(())
    }

    #[test]
    fn damage_loses_a_record_or_batch_rest_without_panic() -> Result<()> {
        let (_, whole) = bundled(1, vec![push(10)?, push(20)?, push(30)?]).remove(0);
        for bit in 0..whole.len() * 8 {
            let mut bad = whole.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let left = numbers(&bad);
            assert!(left.len() < 3 && left.iter().all(|number| (1..=3).contains(number)), "bit {bit}: {left:?}");
        }
        for end in 0..whole.len() {
            assert!(numbers(&whole[..end]).len() < 3, "cut at {end}");
        }
        Ok(())
    }

    #[test]
    fn removed_records_leave_the_batch() -> Result<()> {
        let (_, whole) = bundled(1, vec![push(10)?, push(20)?, push(30)?]).remove(0);
        let without = |gone: &[u64]| without(whole.clone().into(), gone);
        assert_eq!(without(&[2]).map(|left| numbers(&left)), Some(vec![1, 3]));
        assert_eq!(without(&[1, 3]).map(|left| numbers(&left)), Some(vec![2]));
        assert_eq!(without(&[1, 2, 3]), None);
        Ok(())
    }
}
