//! Settling deliveries of this process.

use std::time::Duration;

use super::{Broker, check_count};
use crate::delivery::remote::TopicGroup;
use crate::delivery::{Decision, Delivery, GroupTag, Read, Receipt, StaleReason, Verdict, check_receipt, is_of};
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::{Descriptor, check_visibility_timeout};
use crate::store::restoring;

/// The verdict on a receipt of a group whose partitions this process does not own.
fn nobodys(receipt: Read, descriptor: &Descriptor, group: &GroupName) -> Verdict {
    let tag = GroupTag::of(&descriptor.topic, group);
    check_receipt(receipt, tag, descriptor).map_or_else(|why| why, |_| Verdict::Stale(StaleReason::LostPartition))
}

impl Broker {
    /// Of this process, each answered for itself, in the order asked. Errors: `NotFound`, `Invalid` with none or too
    /// many.
    pub async fn settle(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
    ) -> Result<Vec<Verdict>> {
        self.settle_within(topic, group, decisions, self.settle_timeout()).await
    }

    /// With another time to wait for the store before an answer is `pending`. Errors: as [`Broker::settle`].
    pub async fn settle_within(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        let (texts, decisions): (Vec<String>, Vec<Decision>) = decisions.into_iter().unzip();
        let receipts = self.receipt_keys.read(&texts).await;
        let decisions = receipts.into_iter().zip(decisions).collect();
        let verdicts = self.settle_uncounted(topic, group, decisions, timeout).await?;
        self.count_ended((topic, group), &verdicts);
        Ok(verdicts)
    }

    pub(super) async fn settle_uncounted(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(Read, Decision)>,
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        check_count("receipts", decisions.len())?;
        let descriptor = self.topics.group(topic, group).await?;
        let Some(delivery) = self.groups.find(&descriptor, group)? else {
            return Ok(decisions.into_iter().map(|(receipt, _)| nobodys(receipt, &descriptor, group)).collect());
        };
        Ok(delivery.settle(decisions, timeout).await)
    }

    /// Counts the decisions that do not count, since their deliveries have ended.
    pub(super) fn count_ended(&self, (topic, group): TopicGroup<'_>, verdicts: &[Verdict]) {
        let count = |is: fn(&&Verdict) -> bool| verdicts.iter().filter(is).count() as u64;
        let stale = count(|verdict| matches!(verdict, Verdict::Stale(_)));
        let unknown_outcome = count(|verdict| **verdict == Verdict::UnknownOutcome);
        if stale + unknown_outcome > 0 {
            let counts = self.metrics.group(topic, group);
            counts.stale.inc_by(stale);
            counts.unknown_outcome.inc_by(unknown_outcome);
        }
    }

    pub fn settle_timeout(&self) -> Duration {
        self.options.settle_timeout
    }

    /// Deliveries of a topic with ordering once more, with a new deadline; `None` unless this process made all of them,
    /// all are in flight, and nothing was said about any. Errors: `NotFound`, `Invalid` out of range.
    pub async fn repeat_deliveries(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: &[String],
        visibility_timeout: Option<Duration>,
    ) -> Result<Option<Vec<Delivery>>> {
        let descriptor = self.topics.group(topic, group).await?;
        let timeout = visibility_timeout.unwrap_or(descriptor.settings.visibility_timeout);
        check_visibility_timeout(timeout)?;
        let Some(delivery) = self.groups.find(&descriptor, group)? else { return Ok(None) };
        Ok(delivery.repeat(self.receipt_keys.read(receipts).await, receipts, timeout))
    }

    /// Whether a group still has the message of a receipt, alive or dead. Errors: `NotFound`, the store's; `Invalid` for a
    /// text that is no receipt; `Unavailable` for what the store lost and may be given back.
    pub async fn is_there(&self, topic: &TopicName, group: &GroupName, receipt: &str) -> Result<bool> {
        let descriptor = self.topics.group(topic, group).await?;
        let read = self.receipt_keys.read(&[receipt.to_owned()]).await.pop();
        let receipt = read.and_then(Result::ok).ok_or_else(|| Error::invalid("receipt", "is not a receipt"))?;
        let partition = descriptor.group_partition(receipt.partition, group);
        if self.store.reads.peek(&partition, &receipt.id).await?.is_some() {
            return Ok(true);
        }
        let kept = self.store.reads.check_kept(&partition).await;
        if kept.is_err() || self.store.backend.losses().borrow().is_suspected() {
            return Err(kept.err().filter(|error| error.kind() != Kind::Stale).unwrap_or_else(restoring));
        }
        Ok(false)
    }

    /// To `timeout` from now, each answered for itself. Errors: `NotFound`, `Invalid` out of range.
    pub async fn extend(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: &[String],
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        self.extend_read(topic, group, self.receipt_keys.read(receipts).await, timeout).await
    }

    pub(super) async fn extend_read(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: Vec<Read>,
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        check_count("receipts", receipts.len())?;
        check_visibility_timeout(timeout)?;
        let descriptor = self.topics.group(topic, group).await?;
        match self.groups.find(&descriptor, group)? {
            Some(delivery) => Ok(delivery.extend(receipts, timeout)),
            None => Ok(receipts.into_iter().map(|receipt| nobodys(receipt, &descriptor, group)).collect()),
        }
    }

    /// Those that another process may know more about, with their index. Late ones are for the owner of now. Errors:
    /// `NotFound`, `Invalid` with none or too many.
    pub async fn elsewhere(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: &[&str],
        late: bool,
    ) -> Result<Vec<(usize, Receipt)>> {
        self.elsewhere_of((topic, group), &self.receipt_keys.read(receipts).await, late).await
    }

    pub(super) async fn elsewhere_of(
        &self,
        (topic, group): TopicGroup<'_>,
        receipts: &[Read],
        late: bool,
    ) -> Result<Vec<(usize, Receipt)>> {
        check_count("receipts", receipts.len())?;
        let descriptor = self.topics.group(topic, group).await?;
        let delivery = self.groups.find(&descriptor, group)?;
        let tag = GroupTag::of(topic, group);
        let knows = |receipt: &Receipt| delivery.as_ref().is_some_and(|delivery| delivery.knows(receipt, late));
        let unknown = |receipt: &Receipt| is_of(receipt, tag, &descriptor) && !knows(receipt);
        let receipts = receipts.iter().enumerate().filter_map(|(at, receipt)| Some((at, receipt.as_ref().ok()?)));
        Ok(receipts.filter(|(_, receipt)| unknown(receipt)).map(|(at, receipt)| (at, receipt.clone())).collect())
    }
}
