//! SendMessage and SendMessageBatch.

use super::errors::{BATCH_TOO_LONG, Failure, INTERNAL, Result};
use super::message::{self, Outgoing};
use super::model::{Action, Answer, Entry, Sent};
use super::queue::Queue;
use super::{Caller, Sqs, batch, ids};
use crate::broker::PushOutcome;
use crate::model::error::Error;
use crate::model::message::{GroupName, NewMessage};
use crate::sqs::errors::UNSUPPORTED;

/// Bytes of all messages of a batch.
const BATCH_BYTES_MAX: usize = 1_048_576;

impl Sqs {
    pub(crate) async fn send_message(&self, caller: &Caller, queue: &Queue, entries: Vec<Entry>) -> Result<Answer> {
        entries.iter().try_for_each(|entry| message::check_fifo(queue, entry))?;
        let sent = self.send(caller, queue, &entries, false).await?.pop();
        let sent = sent.unwrap_or_else(|| Err(Failure::new(INTERNAL, "A message without an answer.")))?;
        Ok(Answer { sent: Some(sent), ..Answer::default() })
    }

    pub(crate) async fn send_batch(&self, caller: &Caller, queue: &Queue, entries: Vec<Entry>) -> Result<Answer> {
        batch::check(Action::SendMessageBatch, &entries)?;
        let bytes: usize = entries.iter().map(message::size).sum();
        if bytes > BATCH_BYTES_MAX {
            let why =
                format!("Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent {bytes} bytes.");
            return Err(Failure::new(BATCH_TOO_LONG, why));
        }
        // AWS has the same text and another code here.
        let invalid = |failure: Failure| Failure::invalid(failure.message);
        entries.iter().try_for_each(|entry| message::check_fifo(queue, entry)).map_err(invalid)?;
        let outcomes = self.send(caller, queue, &entries, true).await?;
        Ok(batch::answer(entries, outcomes))
    }

    /// Each entry is answered for itself.
    async fn send(
        &self,
        caller: &Caller,
        queue: &Queue,
        entries: &[Entry],
        is_batch: bool,
    ) -> Result<Vec<Result<Sent>>> {
        if queue.group != GroupName::standard() {
            return Err(Failure::new(UNSUPPORTED, "Messages are sent to the topic, not to one of its groups."));
        }
        let checked = entries.iter().enumerate().map(|entry| self.outgoing(caller, queue, entry, is_batch));
        let (mut messages, mut outcomes): (Vec<NewMessage>, Vec<Result<Sent>>) = (Vec::new(), Vec::new());
        for checked in checked {
            outcomes.push(checked.map(|Outgoing { message, sent }| {
                messages.push(message);
                sent
            }));
        }
        if messages.is_empty() {
            return Ok(outcomes);
        }
        let mut pushed = self.broker.push_batch(&queue.topic, messages).await?.into_iter();
        for outcome in &mut outcomes {
            if let Ok(sent) = outcome {
                let pushed = pushed.next().unwrap_or_else(|| Err(Error::bug("a push without an outcome")));
                *outcome = pushed.map(|pushed| completed(queue, sent.clone(), &pushed)).map_err(Failure::from);
            }
        }
        Ok(outcomes)
    }
}

/// A duplicate is answered with the id and the number of the first message.
fn completed(queue: &Queue, sent: Sent, pushed: &PushOutcome) -> Sent {
    let id = pushed.duplicate_of.as_ref().unwrap_or(&pushed.id).as_str();
    let number = queue.is_fifo().then(|| ids::sequence_number(id, pushed.due_at));
    Sent { message_id: Some(ids::of_message(id)), sequence_number: number, ..sent }
}
