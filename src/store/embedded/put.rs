//! Pushes with a policy about ids that are there.

use sled::Batch;

use super::Inner;
use super::cancelled::CancelledIds;
use super::changes::current;
use super::keys::{Place, Score};
use super::pair::{PairState, Stored};
use super::topics::{PartitionState, locked};
use crate::codec::{body_due_at, decode_body, encode_body, set_body_due_at};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::PUT_IDS_MAX;
use crate::model::message::{Conflict, GroupName, Message};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::disk::ChunkedValue;
use crate::store::{Call, Channel, Pushed, Put};

/// How a message is put.
#[derive(Clone, Copy)]
struct Terms {
    /// The version of the message.
    version: Version,
    conflict: Conflict,
    /// Whether the topic has an ordering.
    ordered: bool,
}

/// What is there under an id.
struct Found {
    /// The bodies, with the group, and the score of those that wait.
    bodies: Vec<(Place, Vec<u8>, Option<Score>)>,
    dead: bool,
}

impl Inner {
    pub(super) async fn put(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        if messages.len() > PUT_IDS_MAX {
            let detail = format!("{} messages in one call, at most {PUT_IDS_MAX}", messages.len());
            return Err(Error::new(Kind::TooLarge, detail));
        }
        self.check_storable()?;
        let (answers, wake) = self.put_all(
            descriptor,
            partition,
            Terms { version: call.version, conflict, ordered: descriptor.is_ordered() },
            messages,
        )?;
        if wake {
            self.wakes.wake(&Channel::Head(descriptor.topic.clone(), partition));
        }
        self.commit().await?;
        Ok(answers)
    }

    /// Each message for itself, in order. What was put before a failure stays.
    fn put_all(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        terms: Terms,
        messages: &[Message],
    ) -> Result<(Vec<Put>, bool)> {
        let topics = self.topics();
        let (topic, places) = current(&topics, descriptor, partition)?;
        let state = topic.partition(partition);
        let mut state = locked(&state);
        let (mut answers, mut wake) = (Vec::with_capacity(messages.len()), false);
        for (n, message) in messages.iter().enumerate() {
            let terms = Terms { version: terms.version.plus(n), ..terms };
            let (answer, earlier) = self.put_one(&places, &mut state, terms, message)?;
            answers.push(answer);
            wake |= earlier;
        }
        Ok((answers, wake))
    }

    fn put_one(
        &self,
        places: &[(GroupName, Place)],
        state: &mut PartitionState,
        terms: Terms,
        message: &Message,
    ) -> Result<(Put, bool)> {
        let (found, body) = (self.find(places, message)?, encode_body(message, terms.version)?);
        if found.bodies.is_empty() && !found.dead {
            return self.add(places, state, terms, message, &body);
        }
        if let Some(refused) = refusal(&found, terms, message) {
            return Ok((refused, false));
        }
        let (mut batch, mut changed, mut wake) = (Batch::default(), Vec::new(), false);
        let new_score = self.score(places, state, terms, message.due_at)?;
        for (place, old, score) in found.bodies {
            let stored = Stored::new(&self.tree, place);
            let mut counts = state.pairs.get(&place.group).map_or_else(Default::default, |pair| pair.counts);
            wake |= stored.zset().head()?.is_none_or(|head| message.due_at < head);
            if let Some(score) = score {
                stored.zset().remove(&mut batch, &message.id, score);
                counts.unscheduled(score.at);
            }
            stored.zset().add(&mut batch, &message.id, new_score);
            counts.scheduled(new_score.at);
            let mut new = old;
            if terms.conflict == Conflict::Replace {
                new.clone_from(&body);
                stored.uncharge(&mut batch, &message.id);
            } else {
                set_body_due_at(&mut new, message.due_at, terms.version);
                stored.postpone_attempt(&mut batch, &message.id, message.due_at)?;
            }
            stored.hash().remove(&mut batch, message.id.as_str().as_bytes())?;
            stored.hash().add(&mut batch, message.id.as_str().as_bytes(), &ChunkedValue::cut(&new)?);
            changed.push((place.group, counts));
        }
        self.apply(batch)?;
        for (group, counts) in changed {
            state.pairs.entry(group).or_default().counts = counts;
        }
        let pushed = if terms.conflict == Conflict::Replace { Pushed::Replaced } else { Pushed::Debounced };
        Ok((Put::Pushed(pushed), wake))
    }

    /// The score of what is due then: with an ordering also its place.
    fn score(
        &self,
        places: &[(GroupName, Place)],
        state: &mut PartitionState,
        terms: Terms,
        due_at: Timestamp,
    ) -> Result<Score> {
        if !terms.ordered {
            return Ok(due_at.into());
        }
        let zsets: Vec<_> = places.iter().map(|(_, place)| Stored::new(&self.tree, *place).zset()).collect();
        let given = state.order.give(&zsets, self.now(), std::iter::once(Some(due_at)))?;
        Ok(given.first().copied().flatten().unwrap_or(due_at.into()))
    }

    fn find(&self, places: &[(GroupName, Place)], message: &Message) -> Result<Found> {
        let mut found = Found { bodies: Vec::new(), dead: false };
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
        places: &[(GroupName, Place)],
        state: &mut PartitionState,
        terms: Terms,
        message: &Message,
        body: &[u8],
    ) -> Result<(Put, bool)> {
        let (mut batch, mut wake, mut forgotten) = (Batch::default(), false, 0);
        let duplicate = (Put::Pushed(Pushed::Duplicate), false);
        if let Some((_, place)) = places.first() {
            let seen = Stored::new(&self.tree, *place).seen().score(&message.id)?;
            if seen.is_some_and(|until| until.at > self.now()) {
                return Ok(duplicate);
            }
            let ids = CancelledIds::new(&self.tree, *place);
            if let Some(memory) = ids.get(&message.id)? {
                ids.forget(&mut batch, &message.id, memory.at);
                forgotten = 1;
            }
        }
        let value = ChunkedValue::cut(body)?;
        let score = self.score(places, state, terms, message.due_at)?;
        for (_, place) in places {
            let stored = Stored::new(&self.tree, *place);
            wake |= stored.zset().head()?.is_none_or(|head| message.due_at < head);
            stored.zset().add(&mut batch, &message.id, score);
            stored.hash().add(&mut batch, message.id.as_str().as_bytes(), &value);
        }
        self.apply(batch)?;
        state.cancelled = state.cancelled.saturating_sub(forgotten);
        for (_, place) in places {
            let PairState { counts, .. } = state.pairs.entry(place.group).or_default();
            counts.scheduled(score.at);
            counts.hash += 1;
        }
        Ok((Put::Pushed(Pushed::Stored), wake))
    }
}

/// What is answered about an id that is there; nothing when the message may be replaced or moved.
fn refusal(found: &Found, terms: Terms, message: &Message) -> Option<Put> {
    let due_at = message.due_at;
    let is_due_then = |old: &[u8]| body_due_at(old).unwrap_or_default() == due_at;
    match terms.conflict {
        Conflict::Keep | Conflict::Reject => Some(Put::Pushed(Pushed::Duplicate)),
        _ if found.bodies.iter().any(|(_, old, _)| !is_of_key(message, old)) => Some(Put::OtherKey),
        Conflict::Debounce if found.bodies.iter().any(|(_, old, _)| is_due_then(old)) => {
            Some(Put::Pushed(Pushed::Duplicate))
        }
        _ if found.dead => Some(Put::Dead),
        _ if found.bodies.iter().any(|(_, _, score)| score.is_none()) => Some(Put::InFlight),
        Conflict::Debounce if found.bodies.iter().any(|(_, old, _)| expires_by(message, old, due_at)) => {
            Some(Put::Expires)
        }
        Conflict::Replace | Conflict::Debounce => None,
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
