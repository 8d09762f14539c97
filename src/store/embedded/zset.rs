//! A zset: ids ordered by score, and the score of each id. It is what Redis calls by that name.

use std::ops::Bound;

use sled::{Batch, Tree};

use super::keys::{Kind, Place, Score, name_of, read_id, read_score, score_bytes, score_of, scored_of};
use super::open::broken;
use crate::model::error::Result;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;

/// One zset of a place. Changes go into a batch, so that they happen together with others or not at all.
#[derive(Clone, Copy)]
pub(super) struct Zset<'a> {
    tree: &'a Tree,
    place: Place,
    by_score: Kind,
    by_id: Kind,
}

impl<'a> Zset<'a> {
    /// The messages of a pair that are scheduled or ready, by due time.
    pub(super) fn messages(tree: &'a Tree, place: Place) -> Zset<'a> {
        Zset { tree, place, by_score: Kind::ByScore, by_id: Kind::ById }
    }

    /// The dead messages of a pair, by time of death.
    pub(super) fn dead(tree: &'a Tree, place: Place) -> Zset<'a> {
        Zset { tree, place, by_score: Kind::DeadByScore, by_id: Kind::DeadById }
    }

    /// The settled ids that a partition remembers, by the time until which it does.
    pub(super) fn seen(tree: &'a Tree, place: Place) -> Zset<'a> {
        Zset { tree, place: place.shared(), by_score: Kind::SeenByScore, by_id: Kind::SeenById }
    }

    /// The score of an id.
    pub(super) fn score(&self, id: &MessageId) -> Result<Option<Score>> {
        let key = self.place.named(self.by_id, id.as_str().as_bytes());
        self.tree.get(key).map_err(broken)?.map(|score| read_score(&score)).transpose()
    }

    /// The lowest score.
    pub(super) fn head(&self) -> Result<Option<Timestamp>> {
        let first = self.tree.scan_prefix(self.place.of(self.by_score)).keys().next();
        first.transpose().map_err(broken)?.map(|key| score_of(&key)).transpose()
    }

    /// Adds an id that is not in it.
    pub(super) fn add(&self, batch: &mut Batch, id: &MessageId, score: impl Into<Score>) {
        let score = score.into();
        batch.insert(self.place.scored(self.by_score, score, id.as_str()), b"");
        batch.insert(self.place.named(self.by_id, id.as_str().as_bytes()), score_bytes(score));
    }

    /// Removes an id that has this score.
    pub(super) fn remove(&self, batch: &mut Batch, id: &MessageId, score: impl Into<Score>) {
        batch.remove(self.place.scored(self.by_score, score, id.as_str()));
        batch.remove(self.place.named(self.by_id, id.as_str().as_bytes()));
    }

    /// All of it, lowest score first; equal scores by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        self.range(Bound::Included(self.place.of(self.by_score)))
    }

    /// All from a score on.
    pub(super) fn from(&self, score: Timestamp) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        self.range(Bound::Included(self.place.scored(self.by_score, score, "")))
    }

    /// What follows an entry, whether or not that entry is still there.
    pub(super) fn after(
        &self,
        score: Score,
        id: &MessageId,
    ) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        self.range(Bound::Excluded(self.place.scored(self.by_score, score, id.as_str())))
    }

    /// The last score within a millisecond.
    pub(super) fn last_in(&self, at: Timestamp) -> Result<Option<Score>> {
        let next = Timestamp::from_ms(at.as_ms().saturating_add(1));
        let from = self.place.scored(self.by_score, at, "");
        let to = self.place.scored(self.by_score, next, "");
        let last = self.tree.range(from..to).keys().next_back();
        last.transpose().map_err(broken)?.map(|key| Ok(scored_of(&key)?.0)).transpose()
    }

    /// The ids that follow one, by name, whether or not that one is still there; all without one.
    pub(super) fn ids_after(&self, id: Option<&MessageId>) -> impl Iterator<Item = Result<MessageId>> + use<> {
        let from = match id {
            None => Bound::Included(self.place.of(self.by_id)),
            Some(id) => Bound::Excluded(self.place.named(self.by_id, id.as_str().as_bytes())),
        };
        let range = (from, Bound::Excluded(self.place.behind(self.by_id)));
        self.tree.range(range).keys().map(|key| read_id(name_of(&key.map_err(broken)?)))
    }

    /// How many have a score above `low` and not above `high`. Reads them all.
    pub(super) fn count(&self, low: Timestamp, high: Timestamp) -> Result<u64> {
        let next = |score: Timestamp| Timestamp::from_ms(score.as_ms().saturating_add(1));
        let from = self.place.scored(self.by_score, next(low), "");
        let to = self.place.scored(self.by_score, next(high), "");
        let mut count = 0;
        for key in self.tree.range(from..to).keys() {
            key.map_err(broken)?;
            count += 1;
        }
        Ok(count)
    }

    fn range(&self, from: Bound<Vec<u8>>) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        let to = Bound::Excluded(self.place.behind(self.by_score));
        self.tree.range((from, to)).keys().map(|key| scored_of(&key.map_err(broken)?))
    }
}
