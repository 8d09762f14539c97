//! Push: building the call of a batch, and reading its answer.

use std::collections::HashSet;

use super::deadline_call::DeadlineCall;
use super::owner::check_ids;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::{Shared, topics};
use crate::codec::encode_body;
use crate::model::error::Result;
use crate::model::limits::{CALL_IDS_MAX, PAIR_MESSAGES_MAX};
use crate::model::message::{Message, MessageId};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::platform::clock::Clock;
use crate::store::{self, Pushed};

impl Shared {
    pub(super) async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        messages: &[Message],
    ) -> Result<Vec<Pushed>> {
        check_ids(messages.len(), CALL_IDS_MAX)?;
        // A script cannot tell equal ids of one call apart from repeats, so they are told apart here.
        let mut ids: HashSet<&MessageId> = HashSet::with_capacity(messages.len());
        let firsts: Vec<bool> = messages.iter().map(|message| ids.insert(&message.id)).collect();
        let numbered = messages.iter().enumerate().zip(&firsts);
        let unique: Vec<(usize, &Message)> = numbered.filter(|(_, first)| **first).map(|(pair, _)| pair).collect();
        if unique.is_empty() {
            return Ok(Vec::new());
        }
        let until = Clock::System.instant().plus(self.connection.timeout());
        let make = || self.push_call(descriptor, partition, call, &unique, self.valid_until(until));
        let duplicates =
            self.until_answered(&DeadlineCall { descriptor, partition, until }, make, read_duplicates).await?;
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

    /// A call that has no effect after `valid_until`, ms, when its caller has given up and taken another way. Each
    /// message has its number in the whole call: its version counts from there, as it does in the logs.
    fn push_call(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &store::Call,
        messages: &[(usize, &Message)],
        valid_until: u64,
    ) -> Result<Call> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let memory = self.keys.call(&descriptor.topic, partition, &id.id.stream);
        let groups: Vec<_> =
            descriptor.groups.iter().map(|group| self.keys.group(&descriptor.topic, partition, group)).collect();
        let mut keys =
            vec![shared.generation.as_str(), &memory, &shared.seen, &shared.cancelled, &shared.wake, &shared.gone];
        for group in &groups {
            keys.extend([group.zset.as_str(), &group.hash, &group.dead_hash]);
        }
        let script = if descriptor.is_ordered() { &SCRIPTS.push_ordered } else { &SCRIPTS.push };
        keys.extend(descriptor.is_ordered().then_some(shared.order.as_str()));
        let earliest = messages.iter().map(|(_, message)| message.due_at).min().unwrap_or_default();
        let mut call = Call::new(script, &keys)
            .arg(topics::sixteen_digits(descriptor.generation))
            .arg(valid_until)
            .arg(if id.is_fresh { "fresh" } else { "live" })
            .arg(PAIR_MESSAGES_MAX)
            .arg(earliest.as_ms())
            .arg(self.time_override())
            .arg(id.id.seq)
            .arg(id.version.as_us())
            .arg(messages.len());
        for (_, message) in messages {
            call = call.arg(message.due_at.as_ms()).arg(message.id.as_str());
        }
        for (number, message) in messages {
            call = call.arg(message.id.as_str()).arg(encode_body(message, id.version.plus(*number))?);
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
