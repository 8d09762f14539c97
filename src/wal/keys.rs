//! The keys of a segment's tree. The bundles stand together, in the order of their first numbers.

use std::ops::Range;

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

/// The first part of the bundle with this first number.
pub(super) fn bundle(first: u64) -> [u8; 9] {
    key(BUNDLE, first)
}

/// The first parts of the bundles whose first numbers are in a range.
pub(super) fn bundles(firsts: Range<u64>) -> Range<[u8; 9]> {
    bundle(firsts.start)..bundle(firsts.end)
}

/// A further part of a bundle, from 1 on.
pub(super) fn part(first: u64, part: u16) -> [u8; 11] {
    let mut bytes = [0; 11];
    bytes[..9].copy_from_slice(&key(PART, first));
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

/// The number in the key of a bundle, or of a cancelled record.
pub(super) fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.get(1..)?.first_chunk()?))
}
