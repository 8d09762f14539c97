//! Storing messages under a policy about ids that are there: each message for itself, in order.

use sled::Batch;

use super::Inner;
use super::changes::{CancelledIds, counts_of, current};
use super::group_partition::Stored;
use super::keys::{KeyPrefix, Score};
use super::topics::{PartitionState, locked};
use crate::codec::{body_due_at, body_pushed_at, decode_body, encode_body, follow, is_followed, set_body_due_at};
use crate::model::error::{Error, Result};
use crate::model::message::{Conflict, GroupName, Message, MessageId};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::disk::ChunkedValue;
use crate::store::{PushVerdict, Pushed, Refused, other_id};

#[derive(Clone, Copy)]
pub(super) struct PushTerms<'a> {
    pub(super) descriptor: &'a Descriptor,
    pub(super) partition: Partition,
    /// Of the first message; those of the others count up.
    pub(super) version: Version,
    pub(super) conflict: Conflict,
}

struct StoredCopies {
    bodies: Vec<(KeyPrefix, Vec<u8>, Option<Score>)>,
    dead: bool,
}

impl StoredCopies {
    fn is_empty(&self) -> bool {
        self.bodies.is_empty() && !self.dead
    }

    /// When a push that moves the message lets it be due: at most so long after its first push as the push says.
    fn due_at(&self, message: &Message) -> Timestamp {
        let first_pushes = self.bodies.iter().filter_map(|(_, old, _)| body_pushed_at(old));
        first_pushes.map(|first| message.due_after(first)).min().unwrap_or(message.due_at)
    }
}

impl Inner {
    /// Each message for itself, in order. Messages that were pushed before a failure stay.
    pub(super) fn push_over(&self, terms: PushTerms<'_>, messages: &[Message]) -> Result<(Vec<PushVerdict>, bool)> {
        let topics = self.topics();
        let (topic, places) = current(&topics, terms.descriptor, terms.partition)?;
        let state = topic.partition(terms.partition);
        let mut state = locked(&state);
        let (mut verdicts, mut wake) = (Vec::with_capacity(messages.len()), false);
        for (n, message) in messages.iter().enumerate() {
            let terms = PushTerms { version: terms.version.plus(n), ..terms };
            let (verdict, earlier) = self.push_one(&places, &mut state, terms, message)?;
            verdicts.push(verdict);
            wake |= earlier;
        }
        Ok((verdicts, wake))
    }

    fn push_one(
        &self,
        places: &[(GroupName, KeyPrefix)],
        state: &mut PartitionState,
        terms: PushTerms<'_>,
        message: &Message,
    ) -> Result<(PushVerdict, bool)> {
        let (found, body) = (self.find(places, message)?, encode_body(message, terms.version)?);
        if found.is_empty() {
            let (pushed, wake) = self.add(places, state, terms, message, &body)?;
            return Ok((Ok(pushed).into(), wake));
        }
        if terms.conflict == Conflict::After {
            let (pushed, wake) = self.follow_in_each(places, state, terms, message, &body, &found)?;
            return Ok((pushed.into(), wake));
        }
        let due_at = found.due_at(message);
        let bounded = (due_at != message.due_at).then_some(due_at);
        if let Some(unchanged) = unchanged(&found, terms, message, due_at) {
            let bounded = bounded.filter(|_| unchanged == Ok(Pushed::Duplicate));
            return Ok((PushVerdict { bounded, ..unchanged.into() }, false));
        }
        let (mut batch, mut changed, mut wake) = (Batch::default(), Vec::new(), false);
        let new_score = self.score(places, state, terms, due_at)?;
        for (place, old, score) in found.bodies {
            let stored = Stored::new(&self.tree, place);
            let mut counts = counts_of(state, place);
            wake |= stored.zset().head()?.is_none_or(|head| due_at < head);
            if let Some(score) = score {
                stored.unschedule(&mut batch, &mut counts, &message.id, score)?;
            }
            stored.zset().add(&mut batch, &message.id, new_score);
            counts.scheduled(new_score.at);
            let mut new = old;
            if terms.conflict == Conflict::Replace {
                new.clone_from(&body);
                stored.uncharge(&mut batch, &message.id)?;
            } else {
                set_body_due_at(&mut new, due_at, terms.version);
                stored.postpone_attempt(&mut batch, &message.id, due_at)?;
            }
            stored.hash().remove(&mut batch, message.id.as_str().as_bytes())?;
            stored.hash().add(&mut batch, message.id.as_str().as_bytes(), &ChunkedValue::cut(&new)?);
            changed.push((place.group, counts));
        }
        self.apply(batch)?;
        for (group, counts) in changed {
            state.groups.entry(group).or_default().put(counts);
        }
        let pushed = if terms.conflict == Conflict::Replace { Pushed::Replaced } else { Pushed::Debounced };
        Ok((PushVerdict { bounded, ..pushed.into() }, wake))
    }

    fn score(
        &self,
        places: &[(GroupName, KeyPrefix)],
        state: &mut PartitionState,
        terms: PushTerms<'_>,
        due_at: Timestamp,
    ) -> Result<Score> {
        if !terms.descriptor.is_ordered() {
            return Ok(due_at.into());
        }
        let zsets: Vec<_> = places.iter().map(|(_, place)| Stored::new(&self.tree, *place).zset()).collect();
        let given = state.order.give(&zsets, self.now(), std::iter::once(Some(due_at)))?;
        Ok(given.first().copied().flatten().unwrap_or(due_at.into()))
    }

    fn find(&self, places: &[(GroupName, KeyPrefix)], message: &Message) -> Result<StoredCopies> {
        let mut found = StoredCopies { bodies: Vec::new(), dead: false };
        for (_, place) in places {
            let stored = Stored::new(&self.tree, *place);
            match stored.hash().get(&message.id)? {
                Some(body) => found.bodies.push((*place, body.to_vec(), stored.zset().score(&message.id)?)),
                None => found.dead |= stored.dead_hash().has(&message.id)?,
            }
        }
        Ok(found)
    }

    /// Stores a message whose id nobody has, unless it was settled lately, or cancelled after it was pushed.
    fn add(
        &self,
        places: &[(GroupName, KeyPrefix)],
        state: &mut PartitionState,
        terms: PushTerms<'_>,
        message: &Message,
        body: &[u8],
    ) -> Result<(Pushed, bool)> {
        let Some((_, shared)) = places.first() else { return Err(Error::bug("a topic without groups")) };
        if self.is_seen(*shared, &message.id)? {
            return Ok((Pushed::Duplicate, false));
        }
        let score = self.score(places, state, terms, message.due_at)?;
        let wake = self.store(places.iter().map(|(_, place)| *place), state, message, body, score, Batch::default())?;
        Ok((Pushed::Stored, wake))
    }

    /// Puts a message behind that of its id, in each group for itself; where there is none it is stored.
    fn follow_in_each(
        &self,
        places: &[(GroupName, KeyPrefix)],
        state: &mut PartitionState,
        terms: PushTerms<'_>,
        message: &Message,
        body: &[u8],
        found: &StoredCopies,
    ) -> Result<(Result<Pushed, Refused>, bool)> {
        if found.bodies.iter().any(|(_, old, _)| !is_of_key(message, old)) {
            return Ok((Err(Refused::OtherKey), false));
        }
        let Some((_, shared)) = places.first() else { return Err(Error::bug("a topic without groups")) };
        let dead_id = other_id(message, terms.descriptor, terms.partition, terms.version);
        let is_seen = self.is_seen(*shared, &message.id)?;
        let (mut batch, mut added, mut pushed) = (Batch::default(), Vec::new(), Pushed::Duplicate);
        for (group, place) in places {
            let stored = Stored::new(&self.tree, *place);
            if let Some((_, old, score)) = found.bodies.iter().find(|(at, ..)| at == place) {
                let was_followed = is_followed(old);
                if was_followed || score.is_none() {
                    let (name, followed) = (message.id.as_str().as_bytes(), follow(old, body, &dead_id));
                    stored.hash().remove(&mut batch, name)?;
                    stored.hash().add(&mut batch, name, &ChunkedValue::cut(&followed)?);
                    let is_behind = !was_followed || pushed == Pushed::Behind;
                    pushed = if is_behind { Pushed::Behind } else { Pushed::Replaced };
                }
            } else if !is_seen
                // Its copy brings it the message that is there elsewhere.
                && terms.descriptor.subscription(group).copy_of.is_none()
                && !stored.dead_hash().has(&message.id)?
            {
                pushed = Pushed::Behind;
                added.push(*place);
            }
        }
        let wake = self.store(added.into_iter(), state, message, body, message.due_at.into(), batch)?;
        Ok((Ok(pushed), wake))
    }

    /// Whether the message of this id was settled within its dedup window.
    fn is_seen(&self, place: KeyPrefix, id: &MessageId) -> Result<bool> {
        let until = Stored::new(&self.tree, place).seen().score(id)?;
        Ok(until.is_some_and(|until| until.at > self.now()))
    }

    /// Stores a message in groups that do not have it, together with what the batch has. Answers whether it is due before all others
    /// of a group.
    fn store(
        &self,
        places: impl Iterator<Item = KeyPrefix> + Clone,
        state: &mut PartitionState,
        message: &Message,
        body: &[u8],
        score: Score,
        mut batch: Batch,
    ) -> Result<bool> {
        let (mut wake, mut forgotten, value) = (false, 0, ChunkedValue::cut(body)?);
        if let Some(place) = places.clone().next() {
            forgotten = CancelledIds::new(&self.tree, place).uncancel(&mut batch, &message.id)?;
        }
        for place in places.clone() {
            let stored = Stored::new(&self.tree, place);
            wake |= stored.zset().head()?.is_none_or(|head| message.due_at < head);
            stored.zset().add(&mut batch, &message.id, score);
            stored.hash().add(&mut batch, message.id.as_str().as_bytes(), &value);
        }
        self.apply(batch)?;
        state.cancelled = state.cancelled.saturating_sub(forgotten);
        for place in places {
            let partition = state.groups.entry(place.group).or_default();
            let mut counts = partition.counts();
            counts.scheduled(score.at);
            counts.hash += 1;
            partition.put(counts);
        }
        Ok(wake)
    }
}

/// The answer to a push that changes nothing of what is there; none if it replaces or moves it.
fn unchanged(
    found: &StoredCopies,
    terms: PushTerms,
    message: &Message,
    due_at: Timestamp,
) -> Option<Result<Pushed, Refused>> {
    let is_due_then = |old: &[u8]| body_due_at(old).unwrap_or_default() == due_at;
    match terms.conflict {
        Conflict::Keep | Conflict::Reject => Some(Ok(Pushed::Duplicate)),
        _ if found.bodies.iter().any(|(_, old, _)| !is_of_key(message, old)) => Some(Err(Refused::OtherKey)),
        Conflict::Debounce if found.bodies.iter().any(|(_, old, _)| is_due_then(old)) => Some(Ok(Pushed::Duplicate)),
        _ if found.dead => Some(Err(Refused::Dead)),
        _ if found.bodies.iter().any(|(_, _, score)| score.is_none()) => Some(Err(Refused::InFlight)),
        Conflict::Debounce if found.bodies.iter().any(|(_, old, _)| expires_by(message, old, due_at)) => {
            Some(Err(Refused::Expires))
        }
        Conflict::Replace | Conflict::Debounce | Conflict::After => None,
    }
}

/// Whether what is there is the message of this id, and not one with another key.
fn is_of_key(message: &Message, old: &[u8]) -> bool {
    let old = decode_body(message.id.clone(), old.to_vec().into());
    old.is_ok_and(|old| old.envelope.key == message.envelope.key)
}

fn expires_by(message: &Message, old: &[u8], due_at: Timestamp) -> bool {
    let old = decode_body(message.id.clone(), old.to_vec().into());
    old.is_ok_and(|old| old.envelope.expires_at.is_some_and(|expires_at| expires_at <= due_at))
}
