//! Settling: what consumers say of deliveries, decided where the owner is.

use std::time::Duration;

use super::{Broker, check_count};
use crate::delivery::{Decision, GroupTag, Receipt, StaleReason, Verdict, check_receipt};
use crate::model::error::Result;
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::{Descriptor, check_visibility_timeout};

/// The verdict about a receipt where this process owns no partition of the group.
fn nobodys(receipt: &str, descriptor: &Descriptor, group: &GroupName) -> Verdict {
    let tag = GroupTag::of(&descriptor.topic, group);
    check_receipt(Receipt::parse(receipt), tag, descriptor)
        .map_or_else(|why| why, |_| Verdict::Stale(StaleReason::LostPartition))
}

impl Broker {
    /// Settles deliveries of this process, each answered for itself, in the order asked.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` with none or too many.
    pub async fn settle(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
    ) -> Result<Vec<Verdict>> {
        self.settle_within(topic, group, decisions, self.settle_timeout()).await
    }

    /// The same, with another time to wait for the store before an answer is `pending`.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` with none or too many.
    pub async fn settle_within(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        check_count("receipts", decisions.len())?;
        let descriptor = self.topics.group(topic, group).await?;
        let Some(dispatch) = self.groups.find(&descriptor, group)? else {
            return Ok(decisions.iter().map(|(receipt, _)| nobodys(receipt, &descriptor, group)).collect());
        };
        let read = |(receipt, decision): (String, Decision)| (Receipt::parse(&receipt), decision);
        let decisions = decisions.into_iter().map(read).collect();
        Ok(dispatch.settle(decisions, timeout).await)
    }

    /// How long a settling request waits for the store before it answers `pending`.
    pub fn settle_timeout(&self) -> Duration {
        self.options.settle_timeout
    }

    /// Moves deadlines of this process' deliveries to `timeout` from now, each answered for itself.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` out of range.
    pub async fn extend(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: &[String],
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        check_count("receipts", receipts.len())?;
        check_visibility_timeout(timeout)?;
        let descriptor = self.topics.group(topic, group).await?;
        match self.groups.find(&descriptor, group)? {
            Some(dispatch) => Ok(dispatch.extend(receipts.iter().map(|it| Receipt::parse(it)).collect(), timeout)),
            None => Ok(receipts.iter().map(|receipt| nobodys(receipt, &descriptor, group)).collect()),
        }
    }

    /// The receipts that another process may know more about, each with its place in the list.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` with none or too many.
    pub async fn elsewhere(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: &[&str],
    ) -> Result<Vec<(usize, Receipt)>> {
        check_count("receipts", receipts.len())?;
        let descriptor = self.topics.group(topic, group).await?;
        let dispatch = self.groups.find(&descriptor, group)?;
        let tag = GroupTag::of(topic, group);
        let read = |text: &str| check_receipt(Receipt::parse(text), tag, &descriptor).ok();
        let read = receipts.iter().enumerate().filter_map(|(at, text)| Some((at, read(text)?)));
        let knows = |receipt: &Receipt| dispatch.as_ref().is_some_and(|dispatch| dispatch.knows(receipt));
        Ok(read.filter(|(_, receipt)| !knows(receipt)).collect())
    }
}
