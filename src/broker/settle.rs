//! Settling deliveries of this process, and what consumers ask for: a request to reserve, and which messages.

use std::time::Duration;

use super::{Broker, check_count};
use crate::delivery::remote::TopicGroup;
use crate::delivery::{Decision, Delivery, GroupTag, Read, Receipt, StaleReason, Verdict, check_receipt, is_of};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{MIN_AGE_MAX, PER_KEY_MAX, WAIT_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::retry::OnFailure;
use crate::model::time::show_span;
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
        if kept.is_err() || self.store.backend.losses().borrow().is_giving_back() {
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

#[derive(Debug, Clone, Copy)]
pub struct ReserveRequest {
    /// 1 to 1,000 deliveries.
    pub max: usize,
    /// How long to wait for the first one, at most 60 s. Zero looks for up to [`crate::delivery::SHORT_POLL`].
    pub wait: Duration,
    pub visibility_timeout: Option<Duration>,
}

/// Which messages a consumer wants.
#[derive(Debug, Clone, Copy)]
pub struct Selection {
    /// Only messages that were pushed at least this long ago, at most 3,650 d.
    pub min_age: Duration,
    /// With ordering: successive messages of one key in one batch, 1 to 10.
    pub per_key: usize,
    /// Policy for the later messages of a key in this batch when one fails.
    pub on_failure: OnFailure,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection { min_age: Duration::ZERO, per_key: 1, on_failure: OnFailure::default() }
    }
}

impl Selection {
    pub(super) fn check_ordering(self, descriptor: &Descriptor) -> Result<()> {
        if self.per_key > 1 && !descriptor.is_ordered() {
            return Err(Error::invalid("per_key", "is above 1, but the topic has no ordering"));
        }
        Ok(())
    }
}

impl ReserveRequest {
    /// Checks every limit, also those of the selection. Errors: `Invalid`, naming the field.
    pub fn check(&self, Selection { min_age, per_key, on_failure }: Selection) -> Result<()> {
        check_count("max", self.max)?;
        if !(1..=PER_KEY_MAX).contains(&per_key) {
            return Err(Error::range("per_key", format!("is 1 to {PER_KEY_MAX}")));
        }
        if on_failure == OnFailure::KeepRest && per_key == 1 {
            return Err(Error::invalid(
                "on_failure",
                "is `keep_rest`, but `per_key` is not above 1: a batch has no rest",
            ));
        }
        if min_age > MIN_AGE_MAX {
            return Err(Error::range("min_age", format!("is at most {}", show_span(MIN_AGE_MAX))));
        }
        if self.wait > WAIT_MAX {
            return Err(Error::range("wait", format!("is at most {}", show_span(WAIT_MAX))));
        }
        self.visibility_timeout.map_or(Ok(()), check_visibility_timeout)
    }
}
