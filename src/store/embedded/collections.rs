//! The data structures of a partition, on sled: hash and zset as in Redis, the order within a millisecond, and reservations.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use sled::{Batch, IVec, Tree};

use super::commit::broken;
use super::keys::{
    KeyPrefix, Kind, Score, TIES, name_of, read_id, read_score, score_bytes, score_of, scored_of, sorted_bytes,
    sorted_entry, sorted_key,
};
use crate::model::error::{Error, Result};
use crate::model::message::{Key, MessageId};
use crate::model::time::Timestamp;
use crate::platform::disk::ChunkedValue;
use crate::store::{Epoch, Reservation};

/// One hash of a place. Changes go into a batch, so that they happen together with others or not at all.
#[derive(Clone, Copy)]
pub(super) struct Hash<'a> {
    tree: &'a Tree,
    place: KeyPrefix,
    kind: Kind,
}

impl<'a> Hash<'a> {
    pub(super) fn messages(tree: &'a Tree, place: KeyPrefix) -> Hash<'a> {
        Hash { tree, place, kind: Kind::Hash }
    }

    pub(super) fn dead(tree: &'a Tree, place: KeyPrefix) -> Hash<'a> {
        Hash { tree, place, kind: Kind::DeadHash }
    }

    pub(super) fn reservations(tree: &'a Tree, place: KeyPrefix) -> Hash<'a> {
        Hash { tree, place, kind: Kind::Reservation }
    }

    pub(super) fn cron_jobs(tree: &'a Tree, place: KeyPrefix) -> Hash<'a> {
        Hash { tree, place: place.shared(), kind: Kind::Schedule }
    }

    pub(super) fn value(&self, name: &[u8]) -> Result<Option<Bytes>> {
        let first = self.tree.get(self.place.named(self.kind, name)).map_err(broken)?;
        first.map(|first| self.join(name, first)).transpose()
    }

    /// Names with values, sorted by name.
    pub(super) fn entries(&self) -> impl Iterator<Item = Result<(Vec<u8>, Bytes)>> + use<'a> {
        let hash = *self;
        self.tree.scan_prefix(self.place.of(self.kind)).map(move |entry| {
            let (key, first) = entry.map_err(broken)?;
            let name = name_of(&key);
            Ok((name.to_vec(), hash.join(name, first)?))
        })
    }

    pub(super) fn values(&self) -> impl Iterator<Item = Result<Bytes>> + use<'a> {
        self.entries().map(|entry| entry.map(|(_, value)| value))
    }

    pub(super) fn last_errors(tree: &'a Tree, place: KeyPrefix) -> Hash<'a> {
        Hash { tree, place, kind: Kind::LastError }
    }

    pub(super) fn charges(tree: &'a Tree, place: KeyPrefix) -> Hash<'a> {
        Hash { tree, place, kind: Kind::Attempts }
    }

    pub(super) fn has(&self, id: &MessageId) -> Result<bool> {
        self.tree.contains_key(self.place.named(self.kind, id.as_str().as_bytes())).map_err(broken)
    }

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

    pub(super) fn remove(&self, batch: &mut Batch, name: &[u8]) -> Result<bool> {
        Ok(self.take(batch, name)?.is_some())
    }

    /// Removes a value, and answers the first part of it.
    pub(super) fn take(&self, batch: &mut Batch, name: &[u8]) -> Result<Option<IVec>> {
        let key = self.place.named(self.kind, name);
        let Some(first) = self.tree.get(&key).map_err(broken)? else { return Ok(None) };
        batch.remove(key);
        for number in 1..=ChunkedValue::further_of(&first)? {
            batch.remove(self.place.part(self.kind, name, number));
        }
        Ok(Some(first))
    }

    pub(super) fn below(&self, end: &[u8]) -> impl Iterator<Item = Result<(Vec<u8>, Bytes)>> + use<'a> {
        let (hash, range) = (*self, self.place.of(self.kind)..self.place.named(self.kind, end));
        self.tree.range(range).map(move |entry| {
            let (key, first) = entry.map_err(broken)?;
            let name = name_of(&key);
            Ok((name.to_vec(), hash.join(name, first)?))
        })
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Result<MessageId>> + use<'a> {
        let prefix = self.place.of(self.kind);
        self.tree.scan_prefix(prefix).keys().map(|key| read_id(name_of(&key.map_err(broken)?)))
    }

    /// The names that follow one, whether or not that one is still there; all without one.
    pub(super) fn ids_after(&self, id: Option<&MessageId>) -> impl Iterator<Item = Result<MessageId>> + use<'a> {
        ids_after(self.tree, self.place, self.kind, id)
    }

    fn join(&self, name: &[u8], first: IVec) -> Result<Bytes> {
        ChunkedValue::join(first, |number| self.tree.get(self.place.part(self.kind, name, number)).map_err(broken))
    }
}

/// The ids of one kind that follow `id` by name, whether or not that one is still there; all without one.
fn ids_after(
    tree: &Tree,
    place: KeyPrefix,
    kind: Kind,
    id: Option<&MessageId>,
) -> impl Iterator<Item = Result<MessageId>> + use<> {
    let from = match id {
        None => Bound::Included(place.of(kind)),
        Some(id) => Bound::Excluded(place.named(kind, id.as_str().as_bytes())),
    };
    let range = (from, Bound::Excluded(place.behind(kind)));
    tree.range(range).keys().map(|key| read_id(name_of(&key.map_err(broken)?)))
}

const HALF: u16 = TIES / 2;

/// Milliseconds of which the last position is remembered. Past them the earliest are forgotten.
const REMEMBERED: usize = 2_000;

/// The positions given last in a partition, in a topic with ordering: each is given once, and later pushes get later ones.
/// A message pushed before its millisecond has come gets a position in the first half of it, behind the last one in a
/// zset: nothing of that millisecond is reserved yet. A later one gets a position in the second half, behind the last one
/// that was given, which may be reserved by now. So nothing that returns to a position finds it taken. A half that is full
/// continues in the next millisecond. In memory: an owner that dies with it has nothing reserved that could return.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: BTreeMap<Timestamp, Score>,
}

impl Order {
    pub(super) fn give(
        &mut self,
        zsets: &[Zset<'_>],
        now: Timestamp,
        due: impl Iterator<Item = Option<Timestamp>>,
    ) -> Result<Vec<Option<Score>>> {
        let positions = due.map(|due| due.map(|due| self.position(zsets, now, due)).transpose()).collect();
        // Entries of the zsets can be found there.
        self.last.retain(|at, last| *at <= now || last.at > *at);
        while self.last.len() > REMEMBERED {
            self.last.pop_first();
        }
        positions
    }

    fn position(&mut self, zsets: &[Zset<'_>], now: Timestamp, due: Timestamp) -> Result<Score> {
        let mut at = due;
        let position = loop {
            let last = match self.last.get(&at) {
                Some(last) if last.at > at => {
                    at = last.at;
                    continue;
                }
                Some(last) => last.tie,
                None => held_last(zsets, at)?,
            };
            let (first, full) = if at <= now { (HALF, TIES) } else { (1, HALF) };
            let tie = first.max(last + 1);
            if tie < full {
                break Score { tie, ..at.into() };
            }
            at = at.plus(Duration::from_millis(1));
        };
        self.last.insert(position.at, position);
        self.last.insert(due, position);
        Ok(position)
    }
}

fn held_last(zsets: &[Zset<'_>], at: Timestamp) -> Result<u16> {
    let mut last = 0;
    for zset in zsets {
        last = last.max(zset.last_in(at)?.map_or(0, |score| score.tie));
    }
    Ok(last)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: MessageId,
    /// Where it stood; only with an ordering.
    pub(super) position: Option<Score>,
}

impl Entry {
    /// `id`, or `id ms tie`: no id has a space.
    fn write(&self) -> String {
        match self.position {
            Some(position) => format!("{} {} {}", self.id, position.at.as_ms(), position.tie),
            None => self.id.to_string(),
        }
    }

    fn read(line: &[u8]) -> Result<Entry> {
        let mut words = line.split(|byte| *byte == b' ');
        let id = read_id(words.next().unwrap_or_default())?;
        let Some(at) = words.next() else { return Ok(Entry { id, position: None }) };
        let wrong = || Error::corrupt("the store holds a reservation with an unreadable position");
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| wrong());
        let at = text(at)?.parse().map_err(|_| wrong())?;
        let tie = text(words.next().unwrap_or_default())?.parse().map_err(|_| wrong())?;
        Ok(Entry { id, position: Some(Score { tie, ..Timestamp::from_ms(at).into() }) })
    }
}

/// The name under which a reservation is kept. Names sort by epoch.
pub(super) fn reservation_name(epoch: &Epoch, reservation: Reservation) -> Vec<u8> {
    [epoch.number().to_be_bytes(), reservation.0.to_be_bytes()].concat()
}

/// The value of a reservation, an entry a line: ids have no line breaks.
pub(super) fn reservation_value<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<ChunkedValue> {
    let lines: Vec<String> = entries.into_iter().map(Entry::write).collect();
    ChunkedValue::cut(lines.join("\n").as_bytes())
}

pub(super) fn reservation_entries(value: &[u8]) -> Result<Vec<Entry>> {
    value.split(|byte| *byte == b'\n').map(Entry::read).collect()
}

#[cfg(feature = "fuzzing")]
pub fn rewritten(value: &[u8]) -> Result<Vec<u8>> {
    let lines: Vec<String> = reservation_entries(value)?.iter().map(Entry::write).collect();
    Ok(lines.join("\n").into_bytes())
}

#[derive(Clone, Copy)]
pub(super) struct Zset<'a> {
    tree: &'a Tree,
    place: KeyPrefix,
    by_score: Kind,
    by_id: Kind,
}

impl<'a> Zset<'a> {
    pub(super) fn messages(tree: &'a Tree, place: KeyPrefix) -> Zset<'a> {
        Zset { tree, place, by_score: Kind::ByScore, by_id: Kind::ById }
    }

    pub(super) fn dead(tree: &'a Tree, place: KeyPrefix) -> Zset<'a> {
        Zset { tree, place, by_score: Kind::DeadByScore, by_id: Kind::DeadById }
    }

    /// The settled ids that a partition remembers, by the time until which it does.
    pub(super) fn seen(tree: &'a Tree, place: KeyPrefix) -> Zset<'a> {
        Zset { tree, place: place.shared(), by_score: Kind::SeenByScore, by_id: Kind::SeenById }
    }

    pub(super) fn score(&self, id: &MessageId) -> Result<Option<Score>> {
        let key = self.place.named(self.by_id, id.as_str().as_bytes());
        self.tree.get(key).map_err(broken)?.map(|score| read_score(&score)).transpose()
    }

    /// The earliest due time, but for sorted messages: they stand behind it.
    pub(super) fn head(&self) -> Result<Option<Timestamp>> {
        let first = self.tree.scan_prefix(self.place.of(self.by_score)).keys().next();
        let first = first.transpose().map_err(broken)?.map(|key| score_of(&key)).transpose()?;
        Ok(first.filter(|score| !score.sorted).map(|score| score.at))
    }

    /// The earliest due time of all.
    pub(super) fn earliest(&self) -> Result<Option<Timestamp>> {
        Ok(self.from(Timestamp::ZERO).next().transpose()?.map(|(score, _)| score.at))
    }

    /// The key of an id that is sorted.
    pub(super) fn sorted_key(&self, id: &MessageId) -> Result<Option<Key>> {
        let value = self.tree.get(self.place.named(self.by_id, id.as_str().as_bytes())).map_err(broken)?;
        value.map_or(Ok(None), |value| sorted_key(&value))
    }

    /// The sorted ids of a key with their ready times, oldest first.
    pub(super) fn of_key(&self, key: Option<&Key>) -> impl Iterator<Item = Result<(Timestamp, MessageId)>> + use<> {
        self.tree.scan_prefix(self.place.sorted_of(key)).keys().map(|entry| {
            let (_, at, id) = sorted_entry(&entry.map_err(broken)?)?;
            Ok((at, id))
        })
    }

    /// Adds an id that is not in it to the sorted ones of its key.
    pub(super) fn sort(&self, batch: &mut Batch, id: &MessageId, at: Timestamp, key: Option<&Key>) {
        batch.insert(self.place.scored(self.by_score, Score::sorted(at), id.as_str()), b"");
        batch.insert(self.place.named(self.by_id, id.as_str().as_bytes()), sorted_bytes(at, key));
        batch.insert(self.place.sorted(key, at, id), b"");
    }

    /// Removes an id that is sorted at this time and with this key.
    pub(super) fn unsort(&self, batch: &mut Batch, id: &MessageId, at: Timestamp, key: Option<&Key>) {
        self.remove(batch, id, Score::sorted(at));
        batch.remove(self.place.sorted(key, at, id));
    }

    /// Adds an id that is not in it.
    pub(super) fn add(&self, batch: &mut Batch, id: &MessageId, score: impl Into<Score>) {
        let score = score.into();
        batch.insert(self.place.scored(self.by_score, score, id.as_str()), b"");
        batch.insert(self.place.named(self.by_id, id.as_str().as_bytes()), score_bytes(score));
    }

    /// Removes an id that has this score. One that is sorted has another entry too: see [`Zset::unsort`].
    pub(super) fn remove(&self, batch: &mut Batch, id: &MessageId, score: impl Into<Score>) {
        batch.remove(self.place.scored(self.by_score, score, id.as_str()));
        batch.remove(self.place.named(self.by_id, id.as_str().as_bytes()));
    }

    /// All of them by time, the sorted ones behind the others.
    pub(super) fn iter(&self) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        let to = Bound::Excluded(self.place.behind(self.by_score));
        self.range((Bound::Included(self.place.of(self.by_score)), to))
    }

    /// Those that are not sorted, by time.
    pub(super) fn unsorted(&self) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        let to = Bound::Excluded(self.place.scored(self.by_score, Score::sorted(Timestamp::ZERO), ""));
        self.range((Bound::Included(self.place.of(self.by_score)), to))
    }

    /// Those that are not sorted and due by this time, the last first.
    pub(super) fn newest(&self, now: Timestamp) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        let behind = Timestamp::from_ms(now.as_ms().saturating_add(1));
        let sorted = self.place.scored(self.by_score, Score::sorted(Timestamp::ZERO), "");
        let to = self.place.scored(self.by_score, behind, "").min(sorted);
        let range = self.place.of(self.by_score)..to;
        self.tree.range(range).keys().rev().map(|key| scored_of(&key.map_err(broken)?))
    }

    /// Those from this time on by time, the sorted ones among the others.
    pub(super) fn from(&self, at: Timestamp) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        self.merged(at.into(), None)
    }

    /// Those behind a place by time and id, the sorted ones among the others.
    pub(super) fn after(
        &self,
        score: Score,
        id: &MessageId,
    ) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        self.merged(score, Some(id))
    }

    /// The entries before this place, or all of them, the last first.
    pub(super) fn before(
        &self,
        place: Option<(Score, &MessageId)>,
    ) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        let from = self.place.of(self.by_score);
        let to = match place {
            Some((score, id)) => self.place.scored(self.by_score, score, id.as_str()),
            None => self.place.behind(self.by_score),
        };
        self.tree.range(from..to).keys().rev().map(|key| scored_of(&key.map_err(broken)?))
    }

    fn last_in(&self, at: Timestamp) -> Result<Option<Score>> {
        let next = Timestamp::from_ms(at.as_ms().saturating_add(1));
        let from = self.place.scored(self.by_score, at, "");
        let to = self.place.scored(self.by_score, next, "");
        let last = self.tree.range(from..to).keys().next_back();
        last.transpose().map_err(broken)?.map(|key| Ok(scored_of(&key)?.0)).transpose()
    }

    pub(super) fn ids_after(&self, id: Option<&MessageId>) -> impl Iterator<Item = Result<MessageId>> + use<> {
        ids_after(self.tree, self.place, self.by_id, id)
    }

    /// How many are due after `low` and not after `high`, sorted or not. Reads them all.
    pub(super) fn count(&self, low: Timestamp, high: Timestamp) -> Result<u64> {
        let next = |at: Timestamp| Timestamp::from_ms(at.as_ms().saturating_add(1));
        let mut count = 0;
        for sorted in [false, true] {
            let bound = |at: Timestamp| {
                let score = if sorted { Score::sorted(next(at)) } else { next(at).into() };
                self.place.scored(self.by_score, score, "")
            };
            for key in self.tree.range(bound(low)..bound(high)).keys() {
                key.map_err(broken)?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn merged(
        &self,
        from: Score,
        after: Option<&MessageId>,
    ) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        let bound = |score| match after {
            Some(id) => Bound::Excluded(self.place.scored(self.by_score, score, id.as_str())),
            None => Bound::Included(self.place.scored(self.by_score, score, "")),
        };
        let sorted = self.place.scored(self.by_score, Score::sorted(Timestamp::ZERO), "");
        let unsorted = match bound(from.unsorted()) {
            // A time that no message has.
            Bound::Included(low) | Bound::Excluded(low) if low > sorted => Bound::Included(sorted.clone()),
            low => low,
        };
        let end = Bound::Excluded(self.place.behind(self.by_score));
        Merged {
            unsorted: self.range((unsorted, Bound::Excluded(sorted))).peekable(),
            sorted: self.range((bound(Score { sorted: true, ..from }), end)).peekable(),
        }
    }

    fn range(
        &self,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> impl Iterator<Item = Result<(Score, MessageId)>> + use<> {
        self.tree.range(range).keys().map(|key| scored_of(&key.map_err(broken)?))
    }
}

/// Two parts of a zset as one, by time and id. An error comes at once.
struct Merged<A: Iterator, B: Iterator> {
    unsorted: Peekable<A>,
    sorted: Peekable<B>,
}

impl<A, B> Iterator for Merged<A, B>
where
    A: Iterator<Item = Result<(Score, MessageId)>>,
    B: Iterator<Item = Result<(Score, MessageId)>>,
{
    type Item = Result<(Score, MessageId)>;

    fn next(&mut self) -> Option<Self::Item> {
        let sorted_first = match (self.unsorted.peek(), self.sorted.peek()) {
            (Some(Ok((due, id))), Some(Ok((ready, sorted)))) => (ready.at, ready.tie, sorted) < (due.at, due.tie, id),
            (Some(_), _) => false,
            (None, _) => true,
        };
        if sorted_first { self.sorted.next() } else { self.unsorted.next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_round_trips_with_and_without_a_position() -> Result<()> {
        let position = Some(Score { tie: 32_767, ..Timestamp::from_ms(1_767_323_045_678).into() });
        for entry in [None, position].map(|position| Ok(Entry { id: MessageId::new("a")?, position })) {
            let entry: Entry = entry?;
            assert_eq!(Entry::read(entry.write().as_bytes())?, entry);
        }
        for bad in ["", "a b", "a 1", "a 1 x", "a 1 99999"] {
            assert!(Entry::read(bad.as_bytes()).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
