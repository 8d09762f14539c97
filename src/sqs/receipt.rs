//! The actions that take receipt handles: DeleteMessage, ChangeMessageVisibility, and their batches.
//!
//! A handle is the receipt of the delivery. On a standard queue the actions count after the visibility timeout too, as at AWS,
//! while nobody else has received the message; and a delete counts even then. As there, they concern one queue: what was moved
//! to another one, also as a dead letter, is there.

use std::time::Duration;

use futures_util::future::join_all;

use super::Sqs;
use super::batch::{batch_answer, check_batch};
use super::errors::{Failure, Result};
use super::model::{Action, Answer, Entry, Sent, in_range, required};
use super::queue::Queue;
use crate::delivery::{Decision, GroupTag, Late, Receipt, UnknownReason, Verdict};
use crate::model::error::Error;

impl Sqs {
    /// Of one message, or of a batch.
    pub(crate) async fn settle(&self, action: Action, queue: &Queue, entries: Vec<Entry>) -> Result<Answer> {
        if !action.is_single() {
            check_batch(action, &entries)?;
        }
        let is_delete = matches!(action, Action::DeleteMessage | Action::DeleteMessageBatch);
        let mut outcomes = if is_delete {
            self.delete(queue, &entries).await
        } else {
            join_all(entries.iter().map(|entry| self.change(queue, entry))).await
        };
        if action.is_single() {
            return outcomes.pop().unwrap_or(Ok(())).map(|()| Answer::default());
        }
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map(|()| Sent::default())).collect();
        Ok(batch_answer(entries, outcomes))
    }

    /// All of a batch in one call.
    async fn delete(&self, queue: &Queue, entries: &[Entry]) -> Vec<Result<()>> {
        let handles = join_all(entries.iter().map(|entry| self.handle(queue, entry))).await;
        let acks = handles.iter().flatten().map(|handle| (handle.clone(), Decision::Ack)).collect();
        let mut verdicts = self.decide(queue, acks).await.map(Vec::into_iter);
        let outcome = |handle: Result<String>| {
            let handle = handle?;
            let verdict = verdicts.as_mut().map_err(|failure| failure.clone())?.next();
            Ok((handle, verdict.ok_or_else(|| Error::bug("a receipt without a verdict"))?))
        };
        let verdicts: Vec<Result<(String, Verdict)>> = handles.into_iter().map(outcome).collect();
        let deleted = verdicts.into_iter().map(async |made| {
            let (handle, verdict) = made?;
            self.deleted(queue, &handle, verdict).await
        });
        join_all(deleted).await
    }

    /// A delete that is answered with success counts: the queue does not have the message any more. Errors: also
    /// `ServiceUnavailable` while the store does not answer.
    async fn deleted(&self, queue: &Queue, handle: &str, verdict: Verdict) -> Result<()> {
        match verdict {
            // Perhaps it was deleted before, which the memory of the owner does not know any more.
            Verdict::Stale(_) => match self.broker.is_there(&queue.topic, &queue.group, handle).await? {
                true => Err(Failure::parameter("ReceiptHandle", handle, "The receipt handle has expired.")),
                false => Ok(()),
            },
            verdict => settled(handle, verdict),
        }
    }

    /// The handle of an entry. Errors: `ReceiptHandleIsInvalid` for one of a queue that was deleted, and created again; what else
    /// is wrong with it is left to the verdict.
    async fn handle(&self, queue: &Queue, entry: &Entry) -> Result<String> {
        let handle = required(&entry.receipt_handle, "ReceiptHandle")?;
        let group = GroupTag::of(&queue.topic, &queue.group);
        let of_before =
            |receipt: &Receipt| receipt.group == group && receipt.incarnation < queue.descriptor.incarnation;
        match self.broker.receipt_keys().read(&[handle]).await.first() {
            Some(Ok(receipt)) if of_before(receipt) => Err(Failure::receipt(handle)),
            _ => Ok(handle.clone()),
        }
    }

    async fn change(&self, queue: &Queue, entry: &Entry) -> Result<()> {
        let handle = &self.handle(queue, entry).await?;
        required(&entry.visibility_timeout, "VisibilityTimeout")?;
        let why = "VisibilityTimeout must be >= 0 and <= 43200.";
        let secs = in_range("VisibilityTimeout", entry.visibility_timeout, 0..=43_200, why)?.unwrap_or_default();
        let verdicts = match secs {
            0 => {
                let nack = Decision::Nack { delay: Some(Duration::ZERO), reason: None };
                self.decide(queue, vec![(handle.clone(), nack)]).await?
            }
            secs => self.extend(queue, handle.clone(), Duration::from_secs(secs)).await?,
        };
        match verdicts.first() {
            None => Err(Error::bug("a receipt without a verdict").into()),
            Some(verdict) => changed(handle, *verdict),
        }
    }

    /// A verdict for each, in the same order.
    async fn decide(&self, queue: &Queue, decisions: Vec<(String, Decision)>) -> Result<Vec<Verdict>> {
        if decisions.is_empty() {
            return Ok(Vec::new());
        }
        let late = if queue.is_fifo() { Late::No } else { Late::Redelivered };
        let rulings = self.broker.settle_anywhere(&queue.topic, &queue.group, decisions, late).await?;
        Ok(rulings.iter().map(|ruling| ruling.verdict).collect())
    }

    async fn extend(&self, queue: &Queue, receipt: String, timeout: Duration) -> Result<Vec<Verdict>> {
        let (receipts, late) = (vec![receipt], !queue.is_fifo());
        let rulings = self.broker.extend_anywhere(&queue.topic, &queue.group, receipts, timeout, late).await?;
        Ok(rulings.iter().map(|ruling| ruling.verdict).collect())
    }
}

fn changed(handle: &str, verdict: Verdict) -> Result<()> {
    match verdict {
        Verdict::Stale(_) => {
            let why = "Message does not exist or is not available for visibility timeout change.";
            Err(Failure::parameter("ReceiptHandle", handle, why))
        }
        verdict => settled(handle, verdict),
    }
}

fn settled(handle: &str, verdict: Verdict) -> Result<()> {
    match verdict {
        Verdict::Acked | Verdict::Nacked | Verdict::Released | Verdict::Buried | Verdict::Extended(_) => Ok(()),
        Verdict::Unknown(UnknownReason::Invalid) => Err(Failure::receipt(handle)),
        Verdict::Unknown(UnknownReason::NotIssued) => {
            Err(Failure::parameter("ReceiptHandle", handle, "The receipt handle is not valid for this queue."))
        }
        verdict => Err(Failure::of_verdict(verdict)),
    }
}
