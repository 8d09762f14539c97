//! What a producer is told when an id was there already: of the message that is there, and whether it is the same.

use super::push::PushOutcome;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{Due, GroupName, Message, MessageId};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::store::{Pushed, Store};

/// Messages that one call looks at: a payload may have 1 MiB.
const TOGETHER: usize = 16;

/// The message that is there, beside the one that was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct There {
    due_at: Timestamp,
    is_same_key: bool,
    is_same_payload: bool,
}

/// Looks at what is there of the messages that were duplicates. What was settled, is dead or cannot be read now is `None`.
pub(super) async fn look(
    store: &Store,
    descriptor: &Descriptor,
    partition: Partition,
    messages: &[Message],
    pushed: &[Pushed],
) -> Vec<Option<There>> {
    let mut there = vec![None; messages.len()];
    let is_duplicate = |n: &usize| pushed.get(*n) == Some(&Pushed::Duplicate);
    let mut left: Vec<usize> = (0..messages.len()).filter(is_duplicate).collect();
    for group in &descriptor.groups {
        left = look_in(store, descriptor, partition, group, (messages, left), &mut there).await;
    }
    there
}

/// Looks in one group, and answers which are not there.
async fn look_in(
    store: &Store,
    descriptor: &Descriptor,
    partition: Partition,
    group: &GroupName,
    (messages, wanted): (&[Message], Vec<usize>),
    there: &mut [Option<There>],
) -> Vec<usize> {
    let (pair, mut absent) = (descriptor.pair(partition, group), Vec::new());
    for some in wanted.chunks(TOGETHER) {
        let ids: Vec<_> = some.iter().map(|n| messages[*n].id.clone()).collect();
        let found = store.reads.bodies(&pair, &ids).await.unwrap_or_default();
        for (at, n) in some.iter().enumerate() {
            match found.get(at).and_then(Option::as_ref) {
                Some(stored) => there[*n] = Some(There::new(stored, &messages[*n])),
                None => absent.push(*n),
            }
        }
    }
    absent
}

impl There {
    fn new(stored: &Message, pushed: &Message) -> There {
        There {
            due_at: stored.due_at,
            is_same_key: stored.envelope.key == pushed.envelope.key,
            is_same_payload: stored.envelope.payload == pushed.envelope.payload,
        }
    }

    /// The outcome of a duplicate, which says what is there. `due` is the time at which the push wants its message, if it
    /// gives one: with a delay, a repeat is due later by the time between the two.
    ///
    /// # Errors
    /// `Conflict`: what is there has another key, so it is another message.
    pub(super) fn outcome(self, due: Option<Timestamp>, outcome: PushOutcome) -> Result<PushOutcome> {
        if !self.is_same_key {
            return Err(other_key(&outcome.id));
        }
        let differs = !self.is_same_payload || due.is_some_and(|due| due != self.due_at);
        Ok(PushOutcome { due_at: self.due_at, differs, ..outcome })
    }
}

/// The error of a push whose id belongs to another message of the partition.
pub(super) fn other_key(id: &MessageId) -> Error {
    let why =
        format!("message {id} is there with another key, in the same partition; nothing changed: choose another id");
    Error::new(Kind::Conflict, why)
}

/// The time at which a push wants its message, if it gives one.
pub(super) fn time_of(due: Due) -> Option<Timestamp> {
    match due {
        Due::At(at) | Due::Ahead(at) => Some(at),
        Due::In(_) => None,
    }
}
