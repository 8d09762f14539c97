//! A hash: a name and its bytes, cut into parts. It is what Redis calls by that name.

use std::ops::Bound;

use bytes::Bytes;
use sled::{Batch, IVec, Tree};

use super::keys::{Kind, Place, name_of, read_id};
use super::open::broken;
use crate::model::error::Result;
use crate::model::message::MessageId;
use crate::platform::disk::ChunkedValue;

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

    /// The schedules of a partition.
    pub(super) fn schedules(tree: &'a Tree, place: Place) -> Hash<'a> {
        Hash { tree, place: place.shared(), kind: Kind::Schedule }
    }

    /// The bytes of a name.
    pub(super) fn value(&self, name: &[u8]) -> Result<Option<Bytes>> {
        let first = self.tree.get(self.place.named(self.kind, name)).map_err(broken)?;
        first.map(|first| self.join(name, first)).transpose()
    }

    /// All values, in the order of their names.
    pub(super) fn values(&self) -> impl Iterator<Item = Result<Bytes>> + use<'a> {
        let hash = *self;
        self.tree.scan_prefix(self.place.of(self.kind)).map(move |entry| {
            let (key, first) = entry.map_err(broken)?;
            hash.join(name_of(&key), first)
        })
    }

    /// The attempts charged to a pair's messages.
    pub(super) fn charges(tree: &'a Tree, place: Place) -> Hash<'a> {
        Hash { tree, place, kind: Kind::Attempts }
    }

    /// Whether an id is there.
    pub(super) fn has(&self, id: &MessageId) -> Result<bool> {
        self.tree.contains_key(self.place.named(self.kind, id.as_str().as_bytes())).map_err(broken)
    }

    /// The bytes of an id.
    pub(super) fn get(&self, id: &MessageId) -> Result<Option<Bytes>> {
        self.value(id.as_str().as_bytes())
    }

    /// Puts a value under a name that is not there, or whose removal is in the same batch.
    pub(super) fn add(&self, batch: &mut Batch, name: &[u8], value: &ChunkedValue) {
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
        for number in 1..=ChunkedValue::further_of(&first)? {
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

    /// The names that follow one, whether or not that one is still there; all without one.
    pub(super) fn ids_after(&self, id: Option<&MessageId>) -> impl Iterator<Item = Result<MessageId>> + use<'a> {
        let from = match id {
            None => Bound::Included(self.place.of(self.kind)),
            Some(id) => Bound::Excluded(self.place.named(self.kind, id.as_str().as_bytes())),
        };
        let range = (from, Bound::Excluded(self.place.behind(self.kind)));
        self.tree.range(range).keys().map(|key| read_id(name_of(&key.map_err(broken)?)))
    }

    fn join(&self, name: &[u8], first: IVec) -> Result<Bytes> {
        ChunkedValue::join(first, |number| self.tree.get(self.place.part(self.kind, name, number)).map_err(broken))
    }
}
