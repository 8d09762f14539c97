//! The keys of a segment's tree. The records stand together, in the order of their numbers.

use std::ops::Range;

/// The first part of a record.
const RECORD: u8 = 0;
/// The further parts of records.
const PART: u8 = 1;
/// The numbers of records that were cancelled.
const CANCELLED: u8 = 2;

fn key(kind: u8, number: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The first part of a record.
pub(super) fn record(number: u64) -> [u8; 9] {
    key(RECORD, number)
}

/// The first parts of the records in a range.
pub(super) fn records(numbers: Range<u64>) -> Range<[u8; 9]> {
    record(numbers.start)..record(numbers.end)
}

/// A further part of a record, from 1 on.
pub(super) fn part(number: u64, part: u16) -> [u8; 11] {
    let mut bytes = [0; 11];
    bytes[..9].copy_from_slice(&key(PART, number));
    bytes[9..].copy_from_slice(&part.to_be_bytes());
    bytes
}

/// That a record was cancelled.
pub(super) fn cancelled(number: u64) -> [u8; 9] {
    key(CANCELLED, number)
}

/// All cancelled ones.
pub(super) fn all_cancelled() -> [u8; 1] {
    [CANCELLED]
}

/// The number in the key of a first part, or of a cancelled one.
pub(super) fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.get(1..)?.first_chunk()?))
}
