//! A value cut into parts that sled keeps in its log.
//!
//! sled moves a leaf over 128 KiB into a file of its own, which it never fsyncs, so that a power cut could take it, and
//! it rewrites the whole leaf every few changes. A leaf holds about 16 entries, so a value is cut into parts of 4 KiB:
//! the first entry is `bytes | number of further parts (2 bytes)`. Tests check that sled never makes such a file.

use bytes::Bytes;
use sled::IVec;

use crate::model::error::{Error, Result};

/// Bytes of a value in one entry of the tree.
pub(crate) const PART_BYTES: usize = 4 * 1024;

/// Bytes of the number of further parts.
const COUNT_BYTES: usize = 2;

/// A value cut into the entries that will hold it; putting it under several names shares them.
pub(crate) struct ChunkedValue {
    /// What stands under its name.
    pub(crate) first: IVec,
    /// The rest, numbered from 1 on.
    pub(crate) further: Vec<IVec>,
}

impl ChunkedValue {
    /// Cuts a value.
    ///
    /// # Errors
    /// `Bug` past 256 MiB, which no limit of dwell lets through.
    pub(crate) fn cut(bytes: &[u8]) -> Result<ChunkedValue> {
        let (head, tail) = bytes.split_at(bytes.len().min(PART_BYTES));
        let further: Vec<IVec> = tail.chunks(PART_BYTES).map(IVec::from).collect();
        let count = u16::try_from(further.len()).map_err(|_| Error::bug("a value of more than 65,535 parts"))?;
        let mut first = Vec::with_capacity(head.len() + COUNT_BYTES);
        first.extend_from_slice(head);
        first.extend_from_slice(&count.to_be_bytes());
        Ok(ChunkedValue { first: first.into(), further })
    }

    /// The number of further parts, from the first one.
    ///
    /// # Errors
    /// `Corrupt` when it is not the first part of a value.
    pub(crate) fn further_of(first: &[u8]) -> Result<u16> {
        let count =
            first.last_chunk::<COUNT_BYTES>().ok_or_else(|| Error::corrupt("the store holds an empty value"))?;
        Ok(u16::from_be_bytes(*count))
    }

    /// All bytes of a value whose further parts are found so. A part that is missing leaves a gap, which a checksum of the
    /// value then shows.
    ///
    /// # Errors
    /// Those of `part`, and `Corrupt` as above.
    pub(crate) fn join(first: IVec, part: impl Fn(u16) -> Result<Option<IVec>>) -> Result<Bytes> {
        let parts = ChunkedValue::further_of(&first)?;
        let end = first.len() - COUNT_BYTES;
        if parts == 0 {
            return Ok(Bytes::from_owner(first).slice(..end));
        }
        let mut bytes = Vec::with_capacity((usize::from(parts) + 1) * PART_BYTES);
        bytes.extend_from_slice(&first[..end]);
        for number in 1..=parts {
            if let Some(part) = part(number)? {
                bytes.extend_from_slice(&part);
            }
        }
        Ok(bytes.into())
    }
}
