//! Messages that are moved to another topic, of which Redis loses one or both.

use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::message::TopicName;
use dwell::model::topic::Settings;

use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::{eventually, scratch};

async fn declare(dwell: &Dwell, topics: &[&str]) -> Result<()> {
    for topic in topics {
        dwell.broker().declare(TopicName::new(*topic)?, Settings::default()).await?;
    }
    Ok(())
}

/// Moves all that a topic has.
pub(super) async fn move_all(dwell: &Dwell, from: &str, to: &str) -> Result<()> {
    let (from, to) = (TopicName::new(from)?, TopicName::new(to)?);
    eventually("all is moved", async || {
        // Owners may still have what they took, after another broker ended.
        let moved = dwell.broker().move_topic(&from, &to, None).await?;
        Ok(moved.done.then_some(()))
    })
    .await
}

impl Outage {
    /// Redis loses what it has, and each of these brokers notices.
    async fn loses_all(&mut self, brokers: &[&Dwell]) -> Result<()> {
        self.redis.kill()?;
        self.redis.restart().await?;
        for dwell in brokers {
            let noticed = async || Ok((dwell.metric("dwell_redis_losses_total")? > 0.0).then_some(()));
            eventually("the loss is noticed", noticed).await?;
            dwell.recovered().await?;
        }
        Ok(())
    }
}

/// One broker pushed, another one moved: each restores what it knows.
#[tokio::test]
async fn moved_message_is_restored_to_the_target_topic_only() -> Result<()> {
    let (mut outage, dir) = (journaled().await?, scratch()?);
    let pushes = outage.dwell().await?;
    declare(&pushes, &["orders", "wider"]).await?;
    pushes.push("orders", &["a", "b", "c"], Duration::ZERO).await?;
    let moves = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    move_all(&moves, "orders", "wider").await?;
    outage.loses_all(&[&pushes, &moves]).await?;
    moves.delivers("wider", &["a", "b", "c"]).await?;
    pushes.delivers("orders", &[]).await?;
    pushes.close().await?;
    moves.close().await
}

/// What was moved away and back has ended once where it is.
#[tokio::test]
async fn message_moved_back_is_restored_to_its_first_topic() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    declare(&dwell, &["orders", "wider"]).await?;
    dwell.push("orders", &["a", "b"], Duration::from_millis(50)).await?;
    move_all(&dwell, "orders", "wider").await?;
    move_all(&dwell, "wider", "orders").await?;
    outage.loses_all(&[&dwell]).await?;
    dwell.delivers("orders", &["a", "b"]).await?;
    dwell.delivers("wider", &[]).await?;
    dwell.close().await
}

#[tokio::test]
async fn moved_and_acked_message_stays_acked_after_a_loss() -> Result<()> {
    let (mut outage, dir) = (journaled().await?, scratch()?);
    let moves = outage.dwell().await?;
    declare(&moves, &["orders", "wider"]).await?;
    moves.push("orders", &["a", "b"], Duration::ZERO).await?;
    move_all(&moves, "orders", "wider").await?;
    let acks = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    acks.delivers("wider", &["a", "b"]).await?;
    outage.loses_all(&[&moves, &acks]).await?;
    moves.delivers("wider", &[]).await?;
    acks.delivers("orders", &[]).await?;
    moves.close().await?;
    acks.close().await
}
