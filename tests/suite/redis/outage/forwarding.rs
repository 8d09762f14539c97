//! Dead letters that are forwarded while Redis loses data, is away, or does not answer.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::delivery::Decision;
use dwell::model::error::Result;
use dwell::model::message::{GroupName, TopicName};
use dwell::model::topic::{DeadLetterTopic, Settings};

use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::{Mode, PATIENCE, Strike, eventually, scratch};

/// All pages are of one stream.
fn one_partition() -> Settings {
    Settings { partitions: NonZeroU16::MIN, ..Settings::default() }
}

async fn declare(dwell: &Dwell) -> Result<()> {
    let dead_letter = Some(DeadLetterTopic { topic: TopicName::new("orders-dead")? });
    let broker = dwell.broker();
    broker.declare(TopicName::new("orders")?, Settings { dead_letter, ..one_partition() }).await?;
    Ok(())
}

async fn declare_both(dwell: &Dwell) -> Result<()> {
    dwell.broker().declare(TopicName::new("orders-dead")?, one_partition()).await?;
    declare(dwell).await
}

/// Buries so many messages of the topic `orders`.
pub(super) async fn bury(dwell: &Dwell, count: usize) -> Result<()> {
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let mut left = count;
    while left > 0 {
        let request = ReserveRequest { max: left, wait: PATIENCE, visibility_timeout: None };
        let taken = dwell.broker().reserve(&topic, &group, request).await?;
        left -= taken.len();
        let bury = |receipt: String| (receipt, Decision::Bury { reason: None });
        let decisions: Vec<_> = taken.iter().map(|delivery| bury(delivery.receipt.to_string())).collect();
        dwell.broker().settle(&topic, &group, decisions).await?;
    }
    Ok(())
}

/// Waits until a topic has so many messages, dead ones among them.
pub(super) async fn holds(dwell: &Dwell, topic: &str, [ready, dead]: [u64; 2]) -> Result<()> {
    let topic = TopicName::new(topic)?;
    eventually("the topic holds so many messages", async || {
        let Ok(stats) = dwell.broker().stats(&topic).await else { return Ok(None) };
        let sum = |count: fn(&dwell::store::PartitionStats) -> u64| stats.iter().map(|(_, s)| count(s)).sum::<u64>();
        Ok((sum(|s| s.ready + s.in_flight) == ready && sum(|s| s.dead) == dead).then_some(()))
    })
    .await
}

#[tokio::test]
async fn forwarding_lost_by_redis_is_restored_to_one_topic() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    declare_both(&dwell).await?;
    dwell.push("orders", &["a", "b"], Duration::ZERO).await?;
    let snapshot = outage.redis.snapshot().await?;
    bury(&dwell, 2).await?;
    holds(&dwell, "orders-dead", [2, 0]).await?;
    dwell.close().await?;
    outage.redis.rewind(&snapshot).await?;
    let dwell = outage.dwell().await?;
    dwell.delivers("orders-dead", &["a", "b"]).await?;
    dwell.delivers("orders", &[]).await?;
    dwell.close().await
}

#[tokio::test]
async fn forwarded_and_consumed_dead_letter_does_not_return() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    declare(&dwell).await?;
    dwell.push("orders", &["a"], Duration::ZERO).await?;
    bury(&dwell, 1).await?;
    holds(&dwell, "orders", [0, 1]).await?;
    let snapshot = outage.redis.snapshot().await?;
    dwell.broker().declare(TopicName::new("orders-dead")?, Settings::default()).await?;
    // A change of its topic lets the owner look at once.
    let orders = dwell.broker().topic(&TopicName::new("orders")?).await?;
    let changed = Settings { max_attempts: 3, ..orders.settings.clone() };
    dwell.broker().declare(TopicName::new("orders")?, changed).await?;
    dwell.delivers("orders-dead", &["a"]).await?;
    dwell.close().await?;
    outage.redis.rewind(&snapshot).await?;
    let dwell = outage.dwell().await?;
    dwell.delivers("orders", &[]).await?;
    dwell.delivers("orders-dead", &[]).await?;
    holds(&dwell, "orders", [0, 0]).await?;
    dwell.close().await
}

#[tokio::test]
async fn forwarding_by_two_brokers_is_restored_in_any_order() -> Result<()> {
    let mut outage = journaled().await?;
    let dir = scratch()?;
    let first = outage.dwell().await?;
    declare_both(&first).await?;
    first.push("orders", &["a"], Duration::ZERO).await?;
    bury(&first, 1).await?;
    holds(&first, "orders-dead", [1, 0]).await?;
    first.close().await?;
    let second = outage.dwell_in(dir.path(), outage.proxy.url(), false).await?;
    second.push("orders", &["b"], Duration::ZERO).await?;
    bury(&second, 1).await?;
    holds(&second, "orders-dead", [2, 0]).await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    holds(&second, "orders-dead", [1, 0]).await?;
    let first = outage.dwell().await?;
    first.delivers("orders-dead", &["a", "b"]).await?;
    first.delivers("orders", &[]).await?;
    first.close().await?;
    second.close().await
}

#[tokio::test]
async fn forward_page_in_flight_is_not_repeated_after_a_loss() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    declare_both(&dwell).await?;
    dwell.push("orders", &["a"], Duration::ZERO).await?;
    outage.proxy.next_with(Strike::Request, "orders-dead:0}:c:");
    bury(&dwell, 1).await?;
    eventually("a page is on its way", async || Ok(outage.proxy.struck().ok())).await?;
    let snapshot = outage.redis.snapshot().await?;
    holds(&dwell, "orders-dead", [1, 0]).await?;
    dwell.close().await?;
    outage.redis.rewind(&snapshot).await?;
    let dwell = outage.dwell().await?;
    dwell.delivers("orders-dead", &["a"]).await?;
    dwell.delivers("orders", &[]).await?;
    holds(&dwell, "orders-dead", [0, 0]).await?;
    dwell.close().await
}

#[tokio::test]
async fn dead_letter_forwarding_waits_out_an_outage() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    declare_both(&dwell).await?;
    let ids: Vec<String> = (0..40).map(|n| format!("m{n:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    dwell.push("orders", &ids, Duration::ZERO).await?;
    bury(&dwell, 20).await?;
    outage.proxy.set(Mode::Refuse);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    bury(&dwell, 20).await?;
    dwell.delivers("orders-dead", &ids).await?;
    holds(&dwell, "orders", [0, 0]).await?;
    dwell.close().await
}
