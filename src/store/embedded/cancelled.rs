//! What a partition remembers of messages that were cancelled.

use std::ops::Bound;

use sled::{Batch, Tree};

use super::keys::{Kind, Place, scored_of};
use super::open::broken;
use crate::model::error::{Error, Result};
use crate::model::message::{GroupName, MessageId};
use crate::model::time::Timestamp;

/// One cancelled message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Memory {
    /// When it was cancelled: what was pushed before stays away.
    pub(super) at: Timestamp,
    /// The groups of which it was not taken.
    pub(super) spared: Vec<GroupName>,
}

/// The cancelled ids of a partition, by the time when that was.
#[derive(Clone, Copy)]
pub(super) struct CancelledIds<'a> {
    tree: &'a Tree,
    place: Place,
}

impl<'a> CancelledIds<'a> {
    /// Those of the partition of this place.
    pub(super) fn new(tree: &'a Tree, place: Place) -> CancelledIds<'a> {
        CancelledIds { tree, place: place.shared() }
    }

    /// What is remembered of an id.
    pub(super) fn get(&self, id: &MessageId) -> Result<Option<Memory>> {
        let Some(value) = self.tree.get(self.key(id)).map_err(broken)? else { return Ok(None) };
        let wrong = || Error::corrupt("the store holds an unreadable note of a cancelled message");
        let (at, spared) = value.split_first_chunk::<8>().ok_or_else(wrong)?;
        let spared = std::str::from_utf8(spared).map_err(|_| wrong())?;
        let spared = spared.split_whitespace().map(GroupName::new).collect::<Result<_>>().map_err(|_| wrong())?;
        Ok(Some(Memory { at: Timestamp::from_ms(u64::from_be_bytes(*at)), spared }))
    }

    /// Remembers an id, of which `before` was remembered.
    pub(super) fn set(&self, batch: &mut Batch, id: &MessageId, before: Option<&Memory>, memory: &Memory) {
        if let Some(before) = before {
            batch.remove(self.place.scored(Kind::CancelledByScore, before.at, id.as_str()));
        }
        batch.insert(self.place.scored(Kind::CancelledByScore, memory.at, id.as_str()), b"");
        let mut value = memory.at.as_ms().to_be_bytes().to_vec();
        for group in &memory.spared {
            value.push(b' ');
            value.extend_from_slice(group.as_str().as_bytes());
        }
        batch.insert(self.key(id), value);
    }

    /// Forgets an id that was cancelled at that time.
    pub(super) fn forget(&self, batch: &mut Batch, id: &MessageId, at: Timestamp) {
        batch.remove(self.place.scored(Kind::CancelledByScore, at, id.as_str()));
        batch.remove(self.key(id));
    }

    /// All of them, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Result<(Timestamp, MessageId)>> + use<> {
        let from = Bound::Included(self.place.of(Kind::CancelledByScore));
        let to = Bound::Excluded(self.place.behind(Kind::CancelledByScore));
        self.tree.range((from, to)).keys().map(|key| {
            let (score, id) = scored_of(&key.map_err(broken)?)?;
            Ok((score.at, id))
        })
    }

    fn key(&self, id: &MessageId) -> Vec<u8> {
        self.place.named(Kind::CancelledById, id.as_str().as_bytes())
    }
}
