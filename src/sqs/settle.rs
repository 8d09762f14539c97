//! DeleteMessage, ChangeMessageVisibility, and their batches.
//!
//! On a standard queue they count after the visibility timeout too, as at AWS, while nobody else has received the message.

use std::time::Duration;

use futures_util::future::join_all;

use super::errors::{Failure, Result};
use super::model::{Action, Answer, Entry, Sent, required};
use super::queue::Queue;
use super::receive::in_range;
use super::{Sqs, batch, receipt};
use crate::delivery::{Decision, StaleReason, UnknownReason, Verdict};
use crate::model::error::Error;

impl Sqs {
    /// Of one message, or of a batch.
    pub(crate) async fn settle(&self, action: Action, queue: &Queue, entries: Vec<Entry>) -> Result<Answer> {
        if !action.is_single() {
            batch::check(action, &entries)?;
        }
        let is_delete = matches!(action, Action::DeleteMessage | Action::DeleteMessageBatch);
        let settle = |entry| self.settle_one(is_delete, queue, entry);
        let mut outcomes = join_all(entries.iter().map(settle)).await;
        if action.is_single() {
            return outcomes.pop().unwrap_or(Ok(())).map(|()| Answer::default());
        }
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map(|()| Sent::default())).collect();
        Ok(batch::answer(entries, outcomes))
    }

    async fn settle_one(&self, is_delete: bool, queue: &Queue, entry: &Entry) -> Result<()> {
        let handle = required(&entry.receipt_handle, "ReceiptHandle")?;
        if is_delete {
            let receipt = receipt::decode(queue, handle)?;
            return deleted(queue, handle, self.decide(queue, receipt, Decision::Ack).await?);
        }
        required(&entry.visibility_timeout, "VisibilityTimeout")?;
        let why = "VisibilityTimeout must be >= 0 and <= 43200.";
        let secs = in_range("VisibilityTimeout", entry.visibility_timeout, 0..=43_200, why)?.unwrap_or_default();
        let receipt = receipt::decode(queue, handle)?;
        let verdict = match secs {
            0 => {
                let nack = Decision::Nack { delay: Some(Duration::ZERO), reason: None };
                match self.decide(queue, receipt, nack).await? {
                    // It is back already: a message before it in its group was given back.
                    Verdict::Stale(StaleReason::Returned) => return Ok(()),
                    verdict => verdict,
                }
            }
            secs => self.extend(queue, receipt, Duration::from_secs(secs)).await?,
        };
        changed(handle, verdict)
    }

    async fn decide(&self, queue: &Queue, receipt: String, decision: Decision) -> Result<Verdict> {
        let (decisions, late) = (vec![(receipt, decision)], !queue.is_fifo());
        let rulings = self.broker.settle_anywhere(&queue.topic, &queue.group, decisions, late).await?;
        Ok(rulings.first().ok_or_else(|| Error::bug("a receipt without a verdict"))?.verdict)
    }

    async fn extend(&self, queue: &Queue, receipt: String, timeout: Duration) -> Result<Verdict> {
        let (receipts, late) = (vec![receipt], !queue.is_fifo());
        let rulings = self.broker.extend_anywhere(&queue.topic, &queue.group, receipts, timeout, late).await?;
        Ok(rulings.first().ok_or_else(|| Error::bug("a receipt without a verdict"))?.verdict)
    }
}

/// To delete what is gone, or what another consumer has, succeeds, but for an expired handle of a FIFO queue.
fn deleted(queue: &Queue, handle: &str, verdict: Verdict) -> Result<()> {
    match verdict {
        Verdict::Stale(StaleReason::DeadlinePassed) if queue.is_fifo() => {
            Err(Failure::parameter("ReceiptHandle", handle, "The receipt handle has expired."))
        }
        Verdict::Stale(_) => Ok(()),
        verdict => settled(handle, verdict),
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
        verdict if verdict.stands() => Ok(()),
        Verdict::Unknown(UnknownReason::Malformed | UnknownReason::NotIssued) => Err(Failure::receipt(handle)),
        verdict => Err(Failure::of_verdict(verdict)),
    }
}
