//! Dead letters that are deleted one by one, and a Redis that loses data after that.

use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::message::{GroupName, MessageId, TopicName};

use super::forwarding::{bury, holds};
use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::{Mode, Snapshot};

/// Deletes these dead letters of the topic `orders`; how many there were.
async fn purge_dead(dwell: &Dwell, ids: &[&str]) -> Result<u64> {
    let ids: Vec<MessageId> = ids.iter().map(|id| MessageId::new(*id)).collect::<Result<_>>()?;
    dwell.broker().purge(&TopicName::new("orders")?, &GroupName::standard(), Some(&ids)).await
}

/// Three messages die, and two of the dead letters are deleted; the id of one is used again. What Redis held before the
/// deaths, and before the deletions.
async fn deleted() -> Result<(Outage, [Snapshot; 2])> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["a", "b", "c"], Duration::ZERO).await?;
    let alive = outage.redis.snapshot().await?;
    bury(&dwell, 3).await?;
    holds(&dwell, "orders", [0, 3]).await?;
    let dead = outage.redis.snapshot().await?;
    assert_eq!(purge_dead(&dwell, &["a", "b", "a", "nobody"]).await?, 2);
    dwell.push_one("orders", "b").await?;
    dwell.close().await?;
    Ok((outage, [alive, dead]))
}

#[tokio::test]
async fn deleted_dead_letter_does_not_return_as_a_message() -> Result<()> {
    let (outage, [alive, _]) = deleted().await?;
    outage.redis.rewind(&alive).await?;
    let dwell = outage.dwell().await?;
    // That `c` died is lost: only messages are restored.
    dwell.delivers("orders", &["b", "c"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn deleted_dead_letter_does_not_return_as_a_dead_letter() -> Result<()> {
    let (outage, [_, dead]) = deleted().await?;
    outage.redis.rewind(&dead).await?;
    let dwell = outage.dwell().await?;
    dwell.delivers("orders", &["b"]).await?;
    holds(&dwell, "orders", [0, 1]).await?;
    dwell.close().await
}

#[tokio::test]
async fn dead_letter_deletion_is_refused_during_an_outage() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["a"], Duration::ZERO).await?;
    bury(&dwell, 1).await?;
    holds(&dwell, "orders", [0, 1]).await?;
    outage.proxy.set(Mode::Refuse);
    assert!(purge_dead(&dwell, &["a"]).await.is_err());
    outage.proxy.set(Mode::Pass);
    holds(&dwell, "orders", [0, 1]).await?;
    assert_eq!(purge_dead(&dwell, &["a"]).await?, 1);
    dwell.close().await
}
