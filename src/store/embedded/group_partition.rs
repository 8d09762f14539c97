//! A partition: what the tree holds of it, and what memory holds of it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use sled::{Batch, Tree};

use super::collections::{Hash, Zset};
use super::commit::broken;
use super::keys::{KeyPrefix, Kind, Score, read_time};
use crate::codec::{
    Failure, body_due_at, decode_history, decode_last_error, encode_last_error, extend_history, is_followed, take_apart,
};
use crate::model::error::{Error, Result};
use crate::model::message::{Key, MessageId};
use crate::model::time::Timestamp;
use crate::model::version::Version;
use crate::platform::clock::Instant;
use crate::platform::disk::ChunkedValue;
use crate::store::{Epoch, KeyCount, MemberId, PausedKey, SortedKeys};

const CHARGE_BYTES: usize = 4;

#[derive(Debug, Default)]
pub(super) struct GroupPartitionState {
    counts: Counts,
    /// How many sorted messages there are of each key that has some, and of none.
    sorted: BTreeMap<Option<Key>, u64>,
    /// Until when the messages of each paused key wait; some may be over.
    paused: BTreeMap<Key, Timestamp>,
    /// Its owner; `None` after a release or a restart.
    pub(super) lease: Option<Lease>,
    /// The last messages that late settlements acknowledged, so that a repeated one is answered the same.
    pub(super) acked_late: VecDeque<(MessageId, Version)>,
}

impl GroupPartitionState {
    /// A copy of its counts, for a verb to change.
    pub(super) fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Puts back a copy that a verb changed, once its batch was applied.
    pub(super) fn put(&mut self, mut counts: Counts) {
        for (key, is_more) in counts.sorted.drain(..) {
            let count = self.sorted.entry(key.clone()).or_default();
            *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.sorted.remove(&key);
            }
        }
        self.counts = counts;
    }

    pub(super) fn has_sorted(&self) -> bool {
        !self.sorted.is_empty()
    }

    pub(super) fn sorted_of(&self, key: Option<&Key>) -> u64 {
        self.sorted.get(&key.cloned()).copied().unwrap_or(0)
    }

    /// A page of the keys of sorted messages, after one.
    pub(super) fn sorted_keys(&self, after: Option<&KeyCount>, limit: usize) -> SortedKeys {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.key.clone()));
        let mut left = self.sorted.range((from, Bound::Unbounded));
        let page = left.by_ref().take(limit).map(|(key, messages)| KeyCount { key: key.clone(), messages: *messages });
        SortedKeys { keys: page.collect(), more: left.next().is_some() }
    }

    pub(super) fn paused_until(&self, key: &Key, now: Timestamp) -> Option<Timestamp> {
        self.paused.get(key).copied().filter(|until| *until > now)
    }

    /// Its paused keys, those that are free first.
    pub(super) fn paused(&self, now: Timestamp) -> Vec<PausedKey> {
        let paused = self.paused.iter().filter(|(_, until)| **until > now);
        let mut paused: Vec<_> = paused.map(|(key, until)| PausedKey { key: key.clone(), until: *until }).collect();
        paused.sort_by(|one, other| (one.until, &one.key).cmp(&(other.until, &other.key)));
        paused
    }

    /// How many keys are paused, or were until lately.
    pub(super) fn count_paused(&self) -> usize {
        self.paused.len()
    }

    /// How long a key is paused if it is to wait at least until then.
    pub(super) fn pause_at_least(&self, key: &Key, until: Timestamp) -> Timestamp {
        self.paused.get(key).map_or(until, |there| until.max(*there))
    }

    /// Notes a pause that the tree has.
    pub(super) fn found_paused(&mut self, key: Key, until: Timestamp) {
        self.paused.insert(key, until);
    }

    /// Notes that the tree has no pause of these keys any more.
    pub(super) fn forget_paused(&mut self, keys: &[Key]) {
        for key in keys {
            self.paused.remove(key);
        }
    }

    /// The keys whose pause is over.
    pub(super) fn no_longer_paused(&self, now: Timestamp) -> Vec<Key> {
        self.paused.iter().filter(|(_, until)| **until <= now).map(|(key, _)| key.clone()).collect()
    }

    /// Counts those that are due at `now`: as [`Counts::ready`].
    pub(super) fn ready(&mut self, zset: Zset<'_>, now: Timestamp) -> Result<u64> {
        self.counts.ready(zset, now)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    tree: &'a Tree,
    place: KeyPrefix,
}

impl<'a> Stored<'a> {
    pub(super) fn new(tree: &'a Tree, place: KeyPrefix) -> Stored<'a> {
        Stored { tree, place }
    }

    pub(super) fn zset(&self) -> Zset<'a> {
        Zset::messages(self.tree, self.place)
    }

    /// Takes an id that has this score out of the zset, and out of the sorted ones if it is one.
    pub(super) fn unschedule(
        &self,
        batch: &mut Batch,
        counts: &mut Counts,
        id: &MessageId,
        score: Score,
    ) -> Result<()> {
        counts.unscheduled(score.at);
        if score.sorted {
            let key = self.zset().sorted_key(id)?;
            self.zset().unsort(batch, id, score.at, key.as_ref());
            counts.sorted.push((key, false));
        } else {
            self.zset().remove(batch, id, score);
        }
        Ok(())
    }

    /// Adds an id that is in the hash and not in the zset to the sorted ones of its key.
    pub(super) fn sort(
        &self,
        batch: &mut Batch,
        counts: &mut Counts,
        id: &MessageId,
        ready_at: Timestamp,
        key: Option<&Key>,
    ) {
        self.zset().sort(batch, id, ready_at, key);
        counts.scheduled(ready_at);
        counts.found_sorted(key.cloned());
    }

    /// Takes the body of a message that has ended away: one that follows it takes its place. Answers whether the message was there,
    /// and whether one does.
    pub(super) fn end(&self, batch: &mut Batch, counts: &mut Counts, id: &MessageId) -> Result<(bool, bool)> {
        let name = id.as_str().as_bytes();
        let Some(first) = self.hash().take(batch, name)? else { return Ok((false, false)) };
        self.uncharge(batch, id)?;
        let body = if is_followed(&first) { self.hash().get(id)? } else { None };
        let followed = body.and_then(|body| take_apart(&body));
        match &followed {
            Some(followed) => self.succeed(batch, counts, id, &followed.successor)?,
            None => counts.hash = counts.hash.saturating_sub(1),
        }
        Ok((true, followed.is_some()))
    }

    /// Stores a successor in the place of its message, whose body this batch has removed and which is not in the zset.
    pub(super) fn succeed(
        &self,
        batch: &mut Batch,
        counts: &mut Counts,
        id: &MessageId,
        successor: &[u8],
    ) -> Result<()> {
        let due_at = body_due_at(successor).unwrap_or_default();
        self.hash().add(batch, id.as_str().as_bytes(), &ChunkedValue::cut(successor)?);
        self.zset().add(batch, id, due_at);
        counts.scheduled(due_at);
        Ok(())
    }

    pub(super) fn hash(&self) -> Hash<'a> {
        Hash::messages(self.tree, self.place)
    }

    pub(super) fn dead_zset(&self) -> Zset<'a> {
        Zset::dead(self.tree, self.place)
    }

    pub(super) fn dead_hash(&self) -> Hash<'a> {
        Hash::dead(self.tree, self.place)
    }

    pub(super) fn reservations(&self) -> Hash<'a> {
        Hash::reservations(self.tree, self.place)
    }

    pub(super) fn seen(&self) -> Zset<'a> {
        Zset::seen(self.tree, self.place)
    }

    pub(super) fn charges(&self) -> Hash<'a> {
        Hash::charges(self.tree, self.place)
    }

    /// Makes the messages of a key wait until a time, or no longer.
    pub(super) fn pause(&self, batch: &mut Batch, key: &Key, until: Option<Timestamp>) {
        let name = self.place.named(Kind::Paused, key.as_str().as_bytes());
        match until {
            Some(until) => batch.insert(name, &until.as_ms().to_be_bytes()),
            None => batch.remove(name),
        }
    }

    fn last_errors(&self) -> Hash<'a> {
        Hash::last_errors(self.tree, self.place)
    }

    pub(super) fn attempts(&self, id: &MessageId) -> Result<Option<u32>> {
        let wrong = || Error::corrupt("the store holds a count of attempts of a wrong length");
        let read = |entry: sled::IVec| entry.first_chunk().copied().map(u32::from_be_bytes).ok_or_else(wrong);
        self.charged(id)?.map(read).transpose()
    }

    pub(super) fn history(&self, id: &MessageId, failure: Option<&Failure>) -> Result<Vec<u8>> {
        let entry = self.charged(id)?.unwrap_or_default();
        let (_, lines) = split_next_attempt(entry.get(CHARGE_BYTES..).unwrap_or_default());
        Ok(failure.map_or(lines.to_vec(), |failure| extend_history(lines, failure)))
    }

    /// How the last attempts failed, oldest first.
    pub(super) fn failures(&self, id: &MessageId) -> Result<Vec<Failure>> {
        let mut failures = decode_history(&self.history(id, None)?)?;
        if let Some(last) = failures.last_mut() {
            last.error = self.last_errors().get(id)?.map(|bytes| decode_last_error(&bytes)).transpose()?;
        }
        Ok(failures)
    }

    /// An error is up to two parts of a value; those of earlier attempts leave.
    fn note_error(&self, batch: &mut Batch, id: &MessageId, failure: Option<&Failure>) -> Result<()> {
        let Some(failure) = failure else { return Ok(()) };
        let (errors, name) = (self.last_errors(), id.as_str().as_bytes());
        errors.remove(batch, name)?;
        if let Some(error) = &failure.error {
            errors.add(batch, name, &ChunkedValue::cut(&encode_last_error(error))?);
        }
        Ok(())
    }

    pub(super) fn charge(
        &self,
        batch: &mut Batch,
        id: &MessageId,
        attempts: u32,
        failure: Option<&Failure>,
    ) -> Result<()> {
        match self.next_attempt(id)? {
            Some(next_at) => self.charge_until(batch, id, attempts, next_at, failure),
            None => {
                self.note_error(batch, id, failure)?;
                let entry = [&attempts.to_be_bytes()[..], &self.history(id, failure)?].concat();
                batch.insert(self.place.named(Kind::Attempts, id.as_str().as_bytes()), entry);
                Ok(())
            }
        }
    }

    /// When a message that keeps its place is tried again.
    pub(super) fn next_attempt(&self, id: &MessageId) -> Result<Option<Timestamp>> {
        let entry = self.charged(id)?.unwrap_or_default();
        let (next_at, _) = split_next_attempt(entry.get(CHARGE_BYTES..).unwrap_or_default());
        next_at.map(read_time).transpose()
    }

    /// Moves the next attempt of a message that kept its place to its new due time.
    pub(super) fn postpone_attempt(&self, batch: &mut Batch, id: &MessageId, due_at: Timestamp) -> Result<()> {
        match (self.attempts(id)?, self.next_attempt(id)?) {
            (Some(attempts), Some(_)) => self.charge_until(batch, id, attempts, due_at, None),
            _ => Ok(()),
        }
    }

    pub(super) fn bring_charge(&self, batch: &mut Batch, from: &Stored<'_>, id: &MessageId) -> Result<()> {
        if let Some(entry) = from.charged(id)? {
            batch.insert(self.place.named(Kind::Attempts, id.as_str().as_bytes()), entry);
        }
        if let Some(error) = from.last_errors().get(id)? {
            self.last_errors().add(batch, id.as_str().as_bytes(), &ChunkedValue::cut(&error)?);
        }
        Ok(())
    }

    fn charged(&self, id: &MessageId) -> Result<Option<sled::IVec>> {
        self.tree.get(self.place.named(Kind::Attempts, id.as_str().as_bytes())).map_err(broken)
    }

    /// Charges attempts to a message that keeps its place in the sorted set, with the time of its next attempt.
    pub(super) fn charge_until(
        &self,
        batch: &mut Batch,
        id: &MessageId,
        attempts: u32,
        next_at: Timestamp,
        failure: Option<&Failure>,
    ) -> Result<()> {
        self.note_error(batch, id, failure)?;
        let next_at = [&[NEXT_ATTEMPT][..], &next_at.as_ms().to_be_bytes()].concat();
        let entry = [&attempts.to_be_bytes()[..], &next_at, &self.history(id, failure)?].concat();
        batch.insert(self.place.named(Kind::Attempts, id.as_str().as_bytes()), entry);
        Ok(())
    }

    pub(super) fn uncharge(&self, batch: &mut Batch, id: &MessageId) -> Result<()> {
        batch.remove(self.place.named(Kind::Attempts, id.as_str().as_bytes()));
        self.last_errors().remove(batch, id.as_str().as_bytes()).map(drop)
    }

    pub(super) fn last_epoch(&self) -> Result<LastEpoch> {
        let Some(bytes) = self.tree.get(self.place.of(Kind::Epoch)).map_err(broken)? else {
            return Ok(LastEpoch::Never);
        };
        let (number, last_delivery) = bytes.split_at_checked(8).unwrap_or_default();
        match (number.try_into().map(u64::from_be_bytes), last_delivery.try_into().map(u64::from_be_bytes)) {
            (Ok(number), Ok(ms)) => Ok(LastEpoch::Released(number, Timestamp::from_ms(ms))),
            (Ok(number), Err(_)) if last_delivery.is_empty() => Ok(LastEpoch::Begun(number)),
            _ => Err(Error::corrupt("the store holds an epoch of a wrong length")),
        }
    }

    pub(super) fn begin_epoch(&self, batch: &mut Batch, number: u64) {
        batch.insert(self.place.of(Kind::Epoch), &number.to_be_bytes());
    }

    pub(super) fn release_epoch(&self, batch: &mut Batch, number: u64, last_delivery: Timestamp) {
        let value = [number.to_be_bytes(), last_delivery.as_ms().to_be_bytes()].concat();
        batch.insert(self.place.of(Kind::Epoch), value);
    }
}

/// The last epoch of a partition, as far as the disk knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastEpoch {
    Never,
    /// It lapsed, or its owner is there.
    Begun(u64),
    /// With when its last delivery may have been made.
    Released(u64, Timestamp),
}

impl LastEpoch {
    /// 0 before the first.
    pub(super) fn number(self) -> u64 {
        match self {
            LastEpoch::Never => 0,
            LastEpoch::Begun(number) | LastEpoch::Released(number, _) => number,
        }
    }
}

/// The byte before the time of the next attempt, which begins no line of a history.
const NEXT_ATTEMPT: u8 = 1;

fn split_next_attempt(rest: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match rest {
        [NEXT_ATTEMPT, rest @ ..] if rest.len() >= 8 => {
            let (next_at, lines) = rest.split_at(8);
            (Some(next_at), lines)
        }
        lines => (None, lines),
    }
}

#[derive(Debug)]
pub(super) struct Lease {
    member: MemberId,
    until: Instant,
    epoch: Epoch,
}

impl Lease {
    pub(super) fn new(member: MemberId, epoch: Epoch, now: Instant, ttl: Duration) -> Lease {
        Lease { member, until: now.plus(ttl), epoch }
    }

    /// Whether it is held under this epoch. It is, even after it lapsed, until somebody takes it.
    pub(super) fn has_epoch(&self, epoch: &Epoch) -> bool {
        self.epoch == *epoch
    }

    pub(super) fn member(&self, now: Instant) -> Option<&MemberId> {
        (self.until > now).then_some(&self.member)
    }

    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until.since(now)
    }

    pub(super) fn prolong(&mut self, member: &MemberId, epoch: &Epoch, now: Instant, ttl: Duration) -> bool {
        let mine = self.member == *member && self.epoch == *epoch;
        if mine {
            self.until = now.plus(ttl);
        }
        mine
    }
}

/// How many messages a partition holds. A verb changes a copy, and puts it back once its batch was applied.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) zset: u64,
    pub(super) hash: u64,
    pub(super) dead: u64,
    /// Up to where the members of the zset were counted as due.
    due_until: Timestamp,
    due: u64,
    /// The keys of messages that a verb sorted, and of sorted ones that it took away; empty but while it is at it.
    sorted: Vec<(Option<Key>, bool)>,
}

impl Counts {
    pub(super) fn scheduled(&mut self, score: Timestamp) {
        self.zset += 1;
        self.due += u64::from(score <= self.due_until);
    }

    /// Counts one that is scheduled as sorted.
    pub(super) fn found_sorted(&mut self, key: Option<Key>) {
        self.sorted.push((key, true));
    }

    pub(super) fn unscheduled(&mut self, score: Timestamp) {
        self.zset = self.zset.saturating_sub(1);
        self.due = self.due.saturating_sub(u64::from(score <= self.due_until));
    }

    /// How many are due at `now`. Reads only what became due since the last call, so frequent calls are cheap.
    pub(super) fn ready(&mut self, zset: Zset<'_>, now: Timestamp) -> Result<u64> {
        if now >= self.due_until {
            self.due += zset.count(self.due_until, now)?;
        } else {
            self.due = self.due.saturating_sub(zset.count(now, self.due_until)?);
        }
        self.due_until = now;
        Ok(self.due)
    }
}
