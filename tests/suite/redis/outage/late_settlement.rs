//! Late settlements of messages that Redis then loses.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, MessageId, TopicName};
use dwell::model::retry::{Backoff, Step};
use dwell::model::topic::Settings;
use dwell::store::State;

use super::Dwell;
use super::journal::journaled;
use crate::support::eventually;

impl Dwell {
    /// Takes a message, and lets its deadline pass: then it waits for an hour.
    async fn too_late(&self, id: &str) -> Result<Delivery> {
        let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
        let backoff = Backoff::Ladder { steps: vec![Step(Duration::from_secs(3_600))] };
        let visibility_timeout = Duration::from_secs(1);
        let settings = Settings { partitions: NonZeroU16::MIN, visibility_timeout, backoff, ..Settings::default() };
        self.broker().declare(topic.clone(), settings).await?;
        self.push_one("orders", id).await?;
        let request = ReserveRequest { max: 1, wait: Duration::from_secs(5), visibility_timeout: None };
        let taken = self.broker().reserve(&topic, &group, request).await?.pop();
        eventually("the deadline has passed", async || {
            let (_, peeked) = self.broker().peek(&topic, &group, &MessageId::new(id)?, None).await?;
            Ok((peeked.state == State::Scheduled).then_some(()))
        })
        .await?;
        taken.ok_or_else(|| Error::not_found("a delivery"))
    }

    async fn ack_late(&self, delivery: &Delivery) -> Result<Verdict> {
        let decisions = vec![(delivery.receipt.to_string(), Decision::Ack)];
        let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
        Ok(self.broker().settle_anywhere(&topic, &group, decisions, true).await?[0].verdict)
    }
}

#[tokio::test]
async fn late_acked_message_does_not_return_after_a_rewind() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let taken = dwell.too_late("a").await?;
    let snapshot = outage.redis.snapshot().await?;
    assert_eq!(dwell.ack_late(&taken).await?, Verdict::Acked);
    dwell.close().await?;
    outage.redis.rewind(&snapshot).await?;
    assert_eq!(outage.stored("orders").await?, 1);
    let dwell = outage.dwell().await?;
    dwell.delivers("orders", &[]).await?;
    assert_eq!(outage.stored("orders").await?, 0);
    dwell.close().await
}

#[tokio::test]
async fn late_acked_message_does_not_return_after_a_flush() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let taken = dwell.too_late("a").await?;
    assert_eq!(dwell.ack_late(&taken).await?, Verdict::Acked);
    dwell.push_one("orders", "b").await?;
    dwell.close().await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let dwell = outage.dwell().await?;
    dwell.delivers("orders", &["b"]).await?;
    assert_eq!(outage.stored("orders").await?, 0);
    dwell.close().await
}
