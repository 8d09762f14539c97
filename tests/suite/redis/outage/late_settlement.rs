//! Late settlements of messages that Redis then loses.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, MessageId, TopicName};
use dwell::model::retry::{Backoff, LadderStep};
use dwell::model::topic::{DeadLetterTopic, Settings};
use dwell::store::MessageState;

use super::forwarding::holds;
use super::journal::journaled;
use super::topic_move::move_all;
use super::{Dwell, Outage};
use crate::support::eventually;

impl Dwell {
    /// Takes a message, and lets its deadline pass: then it waits for an hour.
    async fn too_late(&self, id: &str) -> Result<Delivery> {
        let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
        let backoff = Backoff::Ladder { steps: vec![LadderStep(Duration::from_secs(3_600))] };
        let visibility_timeout = Duration::from_secs(1);
        let settings = Settings { partitions: NonZeroU16::MIN, visibility_timeout, backoff, ..Settings::default() };
        self.broker().declare(topic.clone(), settings).await?;
        self.push_one("orders", id).await?;
        let request = ReserveRequest { max: 1, wait: Duration::from_secs(5), visibility_timeout: None };
        let taken = self.broker().reserve(&topic, &group, request).await?.pop();
        eventually("the deadline has passed", async || {
            let (_, peeked) = self.broker().peek(&topic, &group, &MessageId::new(id)?, None).await?;
            Ok((peeked.state == MessageState::Scheduled).then_some(()))
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

impl Outage {
    /// Redis loses everything, and a broker with the journal of this one restores it.
    async fn restored(&mut self, dwell: Dwell) -> Result<Dwell> {
        dwell.close().await?;
        self.redis.kill()?;
        self.redis.restart().await?;
        let dwell = self.dwell().await?;
        dwell.recovered().await?;
        Ok(dwell)
    }
}

#[tokio::test]
async fn repeated_late_ack_is_told_so_after_a_loss() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let taken = dwell.too_late("a").await?;
    assert_eq!(dwell.ack_late(&taken).await?, Verdict::Acked);
    let dwell = outage.restored(dwell).await?;
    assert_eq!(dwell.ack_late(&taken).await?, Verdict::Acked);
    dwell.close().await
}

/// A moved message waits in the other topic, so nobody may be told that it is over.
#[tokio::test]
async fn late_ack_of_a_moved_or_cancelled_message_is_stale_after_a_loss() -> Result<()> {
    let mut outage = journaled().await?;
    let mut dwell = outage.dwell().await?;
    let [cancelled, moved] = [dwell.too_late("a").await?, dwell.too_late("b").await?];
    dwell.broker().cancel(&TopicName::new("orders")?, &MessageId::new("a")?, None).await?;
    dwell.broker().declare(TopicName::new("wider")?, Settings::default()).await?;
    move_all(&dwell, "orders", "wider").await?;
    for _ in 0..2 {
        let late = [dwell.ack_late(&cancelled).await?, dwell.ack_late(&moved).await?];
        assert!(late.iter().all(|verdict| matches!(verdict, Verdict::Stale(_))), "{late:?}");
        dwell = outage.restored(dwell).await?;
    }
    dwell.close().await
}

#[tokio::test]
async fn late_ack_of_a_forwarded_message_is_stale_after_a_loss() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let [orders, dead] = [TopicName::new("orders")?, TopicName::new("orders-dead")?];
    dwell.broker().declare(dead.clone(), Settings::default()).await?;
    let (partitions, visibility_timeout) = (NonZeroU16::MIN, Duration::from_millis(100));
    let dead_letter = Some(DeadLetterTopic { topic: dead });
    let settings = Settings { partitions, visibility_timeout, dead_letter, max_attempts: 1, ..Settings::default() };
    dwell.broker().declare(orders.clone(), settings).await?;
    dwell.push_one("orders", "a").await?;
    let request = ReserveRequest { max: 1, wait: Duration::from_secs(5), visibility_timeout: None };
    let taken = dwell.broker().reserve(&orders, &GroupName::standard(), request).await?.remove(0);
    holds(&dwell, "orders-dead", [1, 0]).await?;
    let dwell = outage.restored(dwell).await?;
    assert!(matches!(dwell.ack_late(&taken).await?, Verdict::Stale(_)));
    dwell.delivers("orders-dead", &["a"]).await?;
    dwell.close().await
}
