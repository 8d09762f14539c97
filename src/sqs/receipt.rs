//! Receipt handles, and the actions that take them: DeleteMessage, ChangeMessageVisibility, and their batches.
//!
//! A handle is dwell's receipt with a digest, so that a text that dwell did not write is told from one it did. On a standard
//! queue the actions count after the visibility timeout too, as at AWS, while nobody else has received the message.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use subtle::ConstantTimeEq as _;

use super::Sqs;
use super::errors::{Failure, Result};
use super::model::{Action, Answer, Entry, Sent, in_range, required};
use super::queue::Queue;
use super::send::{batch_answer, check_batch};
use super::sigv4::hmac;
use crate::delivery::{Decision, GroupTag, Receipt, StaleReason, UnknownReason, Verdict};
use crate::model::error::Error;

const VERSION: u8 = 1;
const DIGEST_BYTES: usize = 8;
/// Characters of the longest handle that AWS allows.
const HANDLE_MAX: usize = 1_024;

pub(crate) fn encode(queue: &Queue, receipt: &Receipt) -> String {
    let receipt = receipt.to_string();
    let mut bytes = vec![VERSION];
    bytes.extend(digest(queue, &receipt));
    bytes.extend(receipt.bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Errors: `ReceiptHandleIsInvalid`; `InvalidParameterValue` for one of another queue.
pub(crate) fn decode(queue: &Queue, handle: &str) -> Result<String> {
    let invalid = || Failure::receipt(handle);
    let bytes = Some(handle).filter(|handle| handle.len() <= HANDLE_MAX);
    let bytes = bytes.and_then(|handle| URL_SAFE_NO_PAD.decode(handle).ok()).ok_or_else(invalid)?;
    let Some((&VERSION, rest)) = bytes.split_first() else { return Err(invalid()) };
    let (given, receipt) = rest.split_at_checked(DIGEST_BYTES).ok_or_else(invalid)?;
    let receipt = str::from_utf8(receipt).map_err(|_| invalid())?;
    let parsed = Receipt::parse(receipt).ok_or_else(invalid)?;
    if parsed.group != GroupTag::of(&queue.topic, &queue.group) {
        let why = "Reason: The receipt handle is not valid for this queue.";
        return Err(Failure::invalid(format!("Value {handle} for parameter ReceiptHandle is invalid. {why}")));
    }
    match bool::from(given.ct_eq(&digest(queue, receipt))) {
        true => Ok(receipt.to_owned()),
        false => Err(invalid()),
    }
}

/// The key is the same at every broker, and another one when a queue is deleted and created again.
fn digest(queue: &Queue, receipt: &str) -> [u8; DIGEST_BYTES] {
    let key = format!("{} {} {}", queue.topic, queue.group, queue.descriptor.incarnation);
    let mac = hmac(key.as_bytes(), receipt.as_bytes());
    std::array::from_fn(|at| mac[at])
}

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
        let receipt = |entry: &Entry| decode(queue, required(&entry.receipt_handle, "ReceiptHandle")?);
        let receipts: Vec<Result<String>> = entries.iter().map(receipt).collect();
        let acks = receipts.iter().flatten().map(|receipt| (receipt.clone(), Decision::Ack)).collect();
        let mut verdicts = self.decide(queue, acks).await.map(Vec::into_iter);
        let outcome = |(entry, receipt): (&Entry, Result<String>)| {
            receipt?;
            let verdict = verdicts.as_mut().map_err(|failure| failure.clone())?.next();
            let handle = entry.receipt_handle.as_deref().unwrap_or_default();
            deleted(queue, handle, verdict.ok_or_else(|| Error::bug("a receipt without a verdict"))?)
        };
        entries.iter().zip(receipts).map(outcome).collect()
    }

    async fn change(&self, queue: &Queue, entry: &Entry) -> Result<()> {
        let handle = required(&entry.receipt_handle, "ReceiptHandle")?;
        required(&entry.visibility_timeout, "VisibilityTimeout")?;
        let why = "VisibilityTimeout must be >= 0 and <= 43200.";
        let secs = in_range("VisibilityTimeout", entry.visibility_timeout, 0..=43_200, why)?.unwrap_or_default();
        let receipt = decode(queue, handle)?;
        let verdicts = match secs {
            0 => {
                let nack = Decision::Nack { delay: Some(Duration::ZERO), reason: None };
                self.decide(queue, vec![(receipt, nack)]).await?
            }
            secs => self.extend(queue, receipt, Duration::from_secs(secs)).await?,
        };
        match verdicts.first() {
            None => Err(Error::bug("a receipt without a verdict").into()),
            // It is back already: a message before it in its group was given back.
            Some(Verdict::Stale(StaleReason::Returned)) if secs == 0 => Ok(()),
            Some(verdict) => changed(handle, *verdict),
        }
    }

    /// A verdict for each, in the same order.
    async fn decide(&self, queue: &Queue, decisions: Vec<(String, Decision)>) -> Result<Vec<Verdict>> {
        if decisions.is_empty() {
            return Ok(Vec::new());
        }
        let rulings = self.broker.settle_anywhere(&queue.topic, &queue.group, decisions, !queue.is_fifo()).await?;
        Ok(rulings.iter().map(|ruling| ruling.verdict).collect())
    }

    async fn extend(&self, queue: &Queue, receipt: String, timeout: Duration) -> Result<Vec<Verdict>> {
        let (receipts, late) = (vec![receipt], !queue.is_fifo());
        let rulings = self.broker.extend_anywhere(&queue.topic, &queue.group, receipts, timeout, late).await?;
        Ok(rulings.iter().map(|ruling| ruling.verdict).collect())
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
        verdict if verdict.is_applied() => Ok(()),
        Verdict::Unknown(UnknownReason::Malformed | UnknownReason::NotIssued) => Err(Failure::receipt(handle)),
        verdict => Err(Failure::of_verdict(verdict)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::message::{GroupName, TopicName};
    use crate::model::topic::{Descriptor, Settings};
    use crate::sqs::errors::{INVALID_PARAMETER, INVALID_RECEIPT};

    fn queue(name: &str, incarnation: u64) -> crate::model::error::Result<Queue> {
        let topic = TopicName::new(name)?;
        let descriptor = Descriptor { incarnation, ..Descriptor::new(topic.clone(), Settings::default()) };
        Ok(Queue { name: name.to_owned(), topic, group: GroupName::standard(), descriptor: Arc::new(descriptor) })
    }

    #[test]
    fn receipt_handle_round_trips_and_forged_ones_are_refused() -> crate::model::error::Result<()> {
        let orders = queue("orders", 7)?;
        let tag = format!("{:08x}", crate::model::partition::hash(b"orders/default"));
        let receipt = Receipt::parse(&RECEIPT.replace("TAG", &tag));
        let receipt = receipt.ok_or_else(|| crate::model::error::Error::bug("no receipt"))?;
        let handle = encode(&orders, &receipt);
        assert!(handle.len() < 300);
        assert_eq!(decode(&orders, &handle), Ok(receipt.to_string()));
        let class = |queue: &Queue, handle: &str| decode(queue, handle).err().map(|failure| failure.class);
        for at in 0..handle.len() {
            let mut forged = handle.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap_or_default();
            assert!(class(&orders, &forged).is_some(), "{forged}");
        }
        for garbage in ["", "garbage", "AQ", "é", &"A".repeat(1_025), &handle[..handle.len() - 1]] {
            assert_eq!(class(&orders, garbage), Some(INVALID_RECEIPT), "{garbage}");
        }
        assert_eq!(class(&queue("orders", 8)?, &handle), Some(INVALID_RECEIPT));
        assert_eq!(class(&queue("other", 7)?, &handle), Some(INVALID_PARAMETER));
        Ok(())
    }

    const RECEIPT: &str = "3.17.tok.152.TAG.1.1.order-4711";
}
