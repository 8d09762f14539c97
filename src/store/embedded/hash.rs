//! A hash: a name and its bytes. It is what Redis calls by that name.
//!
//! sled moves a leaf over 128 KiB into a file of its own, which it never fsyncs, so that a power cut could take it, and
//! it rewrites the whole leaf every few changes. A leaf holds about 16 entries, so a value is cut into parts of 4 KiB:
//! the first entry is `bytes | number of further parts (2 bytes)`. A test checks that sled never makes such a file.

use bytes::Bytes;
use sled::{Batch, IVec, Tree};

use super::keys::{Kind, Place, name_of, read_id};
use super::open::broken;
use crate::error::{Error, Result};
use crate::message::MessageId;

/// Bytes of a value in one entry of the tree.
const PART_BYTES: usize = 4 * 1024;

/// Bytes of the number of further parts.
const COUNT_BYTES: usize = 2;

/// One hash of a place. Changes go into a batch, so that they happen together with others or not at all.
#[derive(Clone, Copy)]
pub(super) struct Hash<'a> {
    tree: &'a Tree,
    place: Place,
    kind: Kind,
}

impl<'a> Hash<'a> {
    /// The bodies of a pair's messages: scheduled, ready and in flight.
    pub(super) fn messages(tree: &'a Tree, place: Place) -> Hash<'a> {
        Hash { tree, place, kind: Kind::Hash }
    }

    /// The dead messages of a pair.
    pub(super) fn dead(tree: &'a Tree, place: Place) -> Hash<'a> {
        Hash { tree, place, kind: Kind::DeadHash }
    }

    /// The reservations of a pair.
    pub(super) fn reservations(tree: &'a Tree, place: Place) -> Hash<'a> {
        Hash { tree, place, kind: Kind::Reservation }
    }

    /// Whether an id is there.
    pub(super) fn has(&self, id: &MessageId) -> Result<bool> {
        self.tree.contains_key(self.place.named(self.kind, id.as_str().as_bytes())).map_err(broken)
    }

    /// The bytes of an id.
    pub(super) fn get(&self, id: &MessageId) -> Result<Option<Bytes>> {
        let name = id.as_str().as_bytes();
        let first = self.tree.get(self.place.named(self.kind, name)).map_err(broken)?;
        first.map(|first| self.join(name, first)).transpose()
    }

    /// Puts a value under a name that is not there, or whose removal is in the same batch.
    pub(super) fn add(&self, batch: &mut Batch, name: &[u8], value: &Value) {
        batch.insert(self.place.named(self.kind, name), value.first.clone());
        for (number, part) in (1..).zip(&value.further) {
            batch.insert(self.place.part(self.kind, name, number), part.clone());
        }
    }

    /// Removes a name, and answers whether it was there.
    pub(super) fn remove(&self, batch: &mut Batch, name: &[u8]) -> Result<bool> {
        let key = self.place.named(self.kind, name);
        let Some(first) = self.tree.get(&key).map_err(broken)? else { return Ok(false) };
        batch.remove(key);
        for number in 1..=further_parts(&first)? {
            batch.remove(self.place.part(self.kind, name, number));
        }
        Ok(true)
    }

    /// The names below `end` and their bytes, in order.
    pub(super) fn below(&self, end: &[u8]) -> impl Iterator<Item = Result<(Vec<u8>, Bytes)>> + use<'a> {
        let (hash, range) = (*self, self.place.of(self.kind)..self.place.named(self.kind, end));
        self.tree.range(range).map(move |entry| {
            let (key, first) = entry.map_err(broken)?;
            let name = name_of(&key);
            Ok((name.to_vec(), hash.join(name, first)?))
        })
    }

    /// All names, as message ids, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = Result<MessageId>> + use<'a> {
        let prefix = self.place.of(self.kind);
        self.tree.scan_prefix(prefix).keys().map(|key| read_id(name_of(&key.map_err(broken)?)))
    }

    /// All bytes of a value. A part that is missing leaves a gap, which the checksum of a body then shows.
    fn join(&self, name: &[u8], first: IVec) -> Result<Bytes> {
        let parts = further_parts(&first)?;
        let end = first.len() - COUNT_BYTES;
        if parts == 0 {
            return Ok(Bytes::from_owner(first).slice(..end));
        }
        let mut bytes = Vec::with_capacity((usize::from(parts) + 1) * PART_BYTES);
        bytes.extend_from_slice(&first[..end]);
        for number in 1..=parts {
            if let Some(part) = self.tree.get(self.place.part(self.kind, name, number)).map_err(broken)? {
                bytes.extend_from_slice(&part);
            }
        }
        Ok(bytes.into())
    }
}

/// A value cut into the entries that will hold it; putting it under several names shares them.
pub(super) struct Value {
    first: IVec,
    further: Vec<IVec>,
}

impl Value {
    /// Cuts a value.
    ///
    /// # Errors
    /// `Bug` past 256 MiB, which no limit of dwell lets through.
    pub(super) fn new(bytes: &[u8]) -> Result<Value> {
        let (head, tail) = bytes.split_at(bytes.len().min(PART_BYTES));
        let further: Vec<IVec> = tail.chunks(PART_BYTES).map(IVec::from).collect();
        let count = u16::try_from(further.len()).map_err(|_| Error::bug("a value of more than 65,535 parts"))?;
        let mut first = Vec::with_capacity(head.len() + COUNT_BYTES);
        first.extend_from_slice(head);
        first.extend_from_slice(&count.to_be_bytes());
        Ok(Value { first: first.into(), further })
    }
}

/// The number of further parts at the end of a first entry.
fn further_parts(first: &[u8]) -> Result<u16> {
    let count = first.last_chunk::<COUNT_BYTES>().ok_or_else(|| Error::corrupt("the store holds an empty value"))?;
    Ok(u16::from_be_bytes(*count))
}
