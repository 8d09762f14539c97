//! Push: building the call of a batch, and reading its answer.

use std::collections::HashSet;

use super::expiring::{Answer, Expiring};
use super::owner::check_ids;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::{Shared, ms, topics};
use crate::clock::{Clock, Instant};
use crate::codec::encode_body;
use crate::error::{Error, Kind, Result};
use crate::limits::{CALL_IDS_MAX, PAIR_MESSAGES_MAX};
use crate::message::{Message, MessageId};
use crate::partition::Partition;
use crate::store::{PushKind, Pushed};
use crate::topic::Descriptor;

/// The part of the time of a call in which a fresh push may be applied: one over this. It does not look whether its
/// messages are there already, so it must not come after its own repeat, which waits until this part is over.
const FRESH_PART: u32 = 4;

/// Messages of one partition, which differ in their ids.
struct Offer<'a> {
    descriptor: &'a Descriptor,
    partition: Partition,
    messages: &'a [&'a Message],
    /// When whoever pushes has given up.
    until: Instant,
}

impl Shared {
    pub(super) async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        kind: PushKind,
        messages: &[Message],
    ) -> Result<Vec<Pushed>> {
        check_ids(messages.len(), CALL_IDS_MAX)?;
        // A script cannot tell equal ids of one call apart from repeats, so they are told apart here.
        let mut ids: HashSet<&MessageId> = HashSet::with_capacity(messages.len());
        let firsts: Vec<bool> = messages.iter().map(|message| ids.insert(&message.id)).collect();
        let unique: Vec<&Message> = messages.iter().zip(&firsts).filter(|(_, first)| **first).map(|(m, _)| m).collect();
        if unique.is_empty() {
            return Ok(Vec::new());
        }
        let time = self.connection.timeout();
        let began = Clock::System.instant();
        let offer = Offer { descriptor, partition, messages: &unique, until: began.plus(time) };
        let duplicates = match kind {
            PushKind::Fresh => self.push_fresh(&offer, began.plus(time / FRESH_PART)).await?,
            PushKind::Live | PushKind::Replay => self.push_looking(&offer, kind, None).await?,
        };
        let mut pushed = vec![Pushed::Stored; unique.len()];
        for index in duplicates {
            if let Some(outcome) = pushed.get_mut(index) {
                *outcome = Pushed::Duplicate;
            }
        }
        let mut pushed = pushed.into_iter();
        let outcome = |first: &bool| if *first { pushed.next() } else { None };
        Ok(firsts.iter().map(outcome).map(|outcome| outcome.unwrap_or(Pushed::Duplicate)).collect())
    }

    /// Without a look at what is there. Whatever becomes of that call, what follows looks, and comes after it.
    async fn push_fresh(&self, offer: &Offer<'_>, until: Instant) -> Result<Vec<usize>> {
        let Some(now) = self.clock.surely() else {
            return self.push_looking(offer, PushKind::Live, None).await;
        };
        // In the millisecond of `until` it is late already.
        let valid_until = (now.as_ms() + ms(until.since(Clock::System.instant()))).saturating_sub(1);
        let call = self.push_call(offer, PushKind::Fresh, valid_until)?;
        match self.expire(&call).await {
            Ok(Answer::Done(reply)) => read_duplicates(reply),
            Ok(Answer::Late | Answer::Behind) => self.push_looking(offer, PushKind::Live, None).await,
            Err(error) if error.kind() == Kind::OutcomeUnknown => {
                Clock::System.sleep_until(until).await;
                self.push_looking(offer, PushKind::Live, Some(error)).await
            }
            Err(error) => Err(error),
        }
    }

    /// What looks at what is there. `unknown` is why an earlier call may have been applied.
    async fn push_looking(&self, offer: &Offer<'_>, kind: PushKind, unknown: Option<Error>) -> Result<Vec<usize>> {
        let make = || self.push_call(offer, kind, self.valid_until(offer.until));
        let expiring = Expiring { descriptor: offer.descriptor, partition: offer.partition, until: offer.until };
        self.until_answered(&expiring, unknown, make, read_duplicates).await
    }

    /// A call that has no effect after `valid_until`, ms, when its caller has given up and taken another way.
    fn push_call(&self, offer: &Offer<'_>, kind: PushKind, valid_until: u64) -> Result<Call> {
        let Offer { descriptor, partition, messages, .. } = *offer;
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups: Vec<_> =
            descriptor.groups.iter().map(|group| self.keys.group(&descriptor.topic, partition, group)).collect();
        let mut keys = vec![shared.generation.as_str(), &shared.seen, &shared.cancelled, &shared.wake];
        for group in &groups {
            keys.extend([group.zset.as_str(), &group.hash, &group.dead_hash]);
        }
        let script = if descriptor.is_ordered() { &SCRIPTS.push_ordered } else { &SCRIPTS.push };
        keys.extend(descriptor.is_ordered().then_some(shared.order.as_str()));
        let earliest = messages.iter().map(|message| message.due_at).min().unwrap_or_default();
        let mut call = Call::new(script, &keys)
            .arg(topics::sixteen_digits(descriptor.generation))
            .arg(valid_until)
            .arg(kind.name())
            .arg(PAIR_MESSAGES_MAX)
            .arg(earliest.as_ms())
            .arg(self.time_override())
            .arg(messages.len());
        for message in messages {
            call = call.arg(message.due_at.as_ms()).arg(message.id.as_str());
        }
        for message in messages {
            call = call.arg(message.id.as_str()).arg(encode_body(message)?);
        }
        Ok(call)
    }
}

/// The indexes of duplicates.
fn read_duplicates(mut reply: Reply) -> Result<Vec<usize>> {
    let mut indexes = reply.list()?;
    let mut duplicates = Vec::with_capacity(indexes.left());
    while indexes.left() > 0 {
        duplicates.push(usize::try_from(indexes.number()?).unwrap_or(usize::MAX));
    }
    Ok(duplicates)
}
