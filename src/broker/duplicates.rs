//! What a producer is told when an id was there already: of the message that is there, and whether it is the same.

use bytes::Bytes;
use futures_util::future::join_all;

use super::Broker;
use super::push::PushOutcome;
use crate::error::{Error, Kind, Result};
use crate::message::{Due, Key, NewMessage};
use crate::store::Pushed;
use crate::time::Timestamp;
use crate::topic::Descriptor;

/// What a push said of a message whose id the producer chose.
pub(super) struct Said {
    key: Option<Key>,
    payload: Bytes,
    /// The due time, if it was given as a time. A repeat of a push with a delay is due later by the time between them.
    due_at: Option<Timestamp>,
}

impl Said {
    pub(super) fn of(message: &NewMessage) -> Said {
        let due_at = match message.due {
            Due::At(at) | Due::Ahead(at) => Some(at),
            Due::In(_) => None,
        };
        Said { key: message.key.clone(), payload: message.payload.clone(), due_at }
    }
}

impl Broker {
    /// Completes the outcomes of duplicates: with the due time of the message that is there, and whether it differs. A
    /// message of the same id and another key is none: that push is refused. What was settled, or cannot be read now, is
    /// left as it is.
    pub(super) async fn compare_duplicates(
        &self,
        descriptor: &Descriptor,
        said: &[Option<Said>],
        outcomes: &mut [Result<PushOutcome>],
    ) {
        let compared = outcomes.iter_mut().zip(said).filter_map(|(outcome, said)| {
            let is_duplicate = outcome.as_ref().is_ok_and(|outcome| outcome.pushed == Pushed::Duplicate);
            Some((outcome, said.as_ref().filter(|_| is_duplicate)?))
        });
        join_all(compared.map(|(outcome, said)| self.compare(descriptor, said, outcome))).await;
    }

    async fn compare(&self, descriptor: &Descriptor, said: &Said, outcome: &mut Result<PushOutcome>) {
        let Ok(pushed) = outcome else { return };
        let Ok(found) = self.find_message(descriptor, &descriptor.groups, &[pushed.partition], &pushed.id).await else {
            return;
        };
        let Some((_, there)) = found.into_iter().next() else { return };
        let there = there.message;
        if there.envelope.key != said.key {
            let why = format!(
                "message {} is there with another key, in the same partition; nothing changed: choose another id",
                pushed.id
            );
            *outcome = Err(Error::new(Kind::Conflict, why));
            return;
        }
        let is_due_then = said.due_at.is_none_or(|due_at| due_at == there.due_at);
        (pushed.differs, pushed.due_at) = (!is_due_then || there.envelope.payload != said.payload, there.due_at);
    }
}
