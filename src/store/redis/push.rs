//! Push: building the call of a batch, and repeating it within its time.

use std::collections::HashSet;
use std::time::Duration;

use super::owner::check_ids;
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

/// The pause before a push is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(20);

/// What Redis said of a push.
enum Answer {
    /// The indexes of duplicates.
    Done(Vec<usize>),
    /// The partition has not seen this descriptor yet.
    Behind,
    /// It came after its time was up, by the clock of Redis as it is now known.
    Late,
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
        let until = Clock::System.instant().plus(self.connection.timeout());
        let call = || self.push_call(descriptor, partition, kind, &unique, until);
        let duplicates = self.push_until_answered(descriptor, partition, call, until).await?;
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

    /// Calls are repeated under the same ids while time is left: a repeat cannot store anything twice. One that was late
    /// is made anew, once: the clock of Redis was another one than was thought.
    async fn push_until_answered(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        make: impl Fn() -> Result<Call>,
        until: Instant,
    ) -> Result<Vec<usize>> {
        let (mut call, mut unknown, mut was_late) = (make()?, None, false);
        loop {
            let error = match self.push_once(&call).await {
                Ok(Answer::Done(duplicates)) => return Ok(duplicates),
                Ok(Answer::Behind) => match self.roll(descriptor, partition).await {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Ok(Answer::Late) if !was_late && Clock::System.instant() < until => {
                    (call, was_late) = (make()?, true);
                    continue;
                }
                Ok(Answer::Late) => {
                    Error::unavailable("the call reached Redis after its time was up and was not applied")
                }
                Err(error) => error,
            };
            let repeatable = matches!(error.kind(), Kind::OutcomeUnknown);
            if repeatable {
                unknown.get_or_insert(error.clone());
            }
            if !repeatable || Clock::System.instant() >= until {
                // Once one call may have been applied, no later failure makes it certain that it was not.
                return Err(unknown.unwrap_or(error));
            }
            // A connection that breaks at once would be made anew a thousand times a second.
            Clock::System.sleep(REPEAT_AFTER).await;
        }
    }

    async fn push_once(&self, call: &Call) -> Result<Answer> {
        let (status, mut reply) = self.ask(call).await?;
        match status.as_str() {
            "OK" => {
                let mut indexes = reply.list()?;
                let mut duplicates = Vec::with_capacity(indexes.left());
                while indexes.left() > 0 {
                    duplicates.push(usize::try_from(indexes.number()?).unwrap_or(usize::MAX));
                }
                Ok(Answer::Done(duplicates))
            }
            "BEHIND" => Ok(Answer::Behind),
            "LATE" => Ok(Answer::Late),
            "FULL" => Err(Error::new(
                Kind::Full,
                format!("a partition holds at most {PAIR_MESSAGES_MAX} messages; drain it or use more partitions"),
            )),
            _ => Err(Error::stale("the topic was changed or deleted; load it again")),
        }
    }

    /// A call that has no effect after `until`, when its caller has given up and taken another way.
    fn push_call(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        kind: PushKind,
        messages: &[&Message],
        until: Instant,
    ) -> Result<Call> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups: Vec<_> =
            descriptor.groups.iter().map(|group| self.keys.group(&descriptor.topic, partition, group)).collect();
        let mut keys = vec![shared.generation.as_str(), &shared.seen, &shared.cancelled, &shared.wake];
        for group in &groups {
            keys.extend([group.zset.as_str(), &group.hash, &group.dead_hash]);
        }
        let script = if descriptor.is_ordered() { &SCRIPTS.push_ordered } else { &SCRIPTS.push };
        keys.extend(descriptor.is_ordered().then_some(shared.order.as_str()));
        let valid_until = self.clock.now().as_ms() + ms(until.since(Clock::System.instant()));
        let earliest = messages.iter().map(|message| message.due_at).min().unwrap_or_default();
        let mut call = Call::new(script, &keys)
            .arg(topics::sixteen_digits(descriptor.generation))
            .arg(valid_until)
            .arg(match kind {
                PushKind::Live => "live",
                PushKind::Replay => "replay",
            })
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

    /// Shows the descriptor to a partition. # Errors: `Stale` when it has seen a newer one.
    pub(super) async fn roll(&self, descriptor: &Descriptor, partition: Partition) -> Result<()> {
        let keys = self.keys.partition(&descriptor.topic, partition);
        let call = Call::new(&SCRIPTS.roll, &[&keys.generation]).arg(topics::write(descriptor)?).arg("");
        topics::rolled(self.connection.eval(&call).await?)
    }
}
