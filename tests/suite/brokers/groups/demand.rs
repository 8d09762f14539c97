//! Partitions follow the consumers: no message waits for one that is elsewhere.

use std::time::{Duration, Instant};

use dwell::model::error::Result;
use futures_util::future::try_join;
use serde_json::json;

use super::fleet::{Fleet, ORDERS, declare};
use super::sidecar::Sidecar;
use crate::support::{RedisServer, eventually};

const MESSAGES: usize = 64;

/// Two brokers with these settings, and a topic with so many partitions.
async fn pair(with: &[(&str, &str)], partitions: u16) -> Result<(Fleet, Sidecar, Sidecar)> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start_with("a", with).await?, fleet.start_with("b", with).await?);
    declare(&a, ORDERS, partitions).await?;
    Ok((fleet, a, b))
}

/// Somebody asked at `a` once. Without demand-based shares half of the messages wait for `group.idle_timeout`.
#[tokio::test]
async fn messages_do_not_wait_for_a_departed_consumer() -> Result<()> {
    let (_fleet, members) = Fleet::with(16, &["a", "b"]).await?;
    let [a, b] = [&members[0], &members[1]];
    a.reserve(ORDERS, 1, "0s").await?;
    let since = Instant::now();
    let messages: Vec<_> = (0..MESSAGES).map(|n| json!({"id": format!("m{n}"), "payload": "x"})).collect();
    try_join(a.push(ORDERS, &messages), b.take(ORDERS, MESSAGES)).await?;
    let took = since.elapsed();
    println!("{MESSAGES} messages came after {took:?} at most");
    // The idle timeout of these stories is a minute.
    assert!(took < Duration::from_secs(30), "{took:?}");
    Ok(())
}

#[tokio::test]
async fn working_consumer_keeps_the_share_of_its_broker_for_a_lease_ttl() -> Result<()> {
    let (fleet, a, b) = &pair(&[("DWELL_LEASE_TTL", "20s")], 8).await?;
    a.shared_by(&[a, b], ORDERS, &[4, 4]).await?;
    a.push(ORDERS, &(0..40).map(|n| json!({"id": format!("m{n}"), "payload": "x"})).collect::<Vec<_>>()).await?;
    let (held, _) = try_join(a.take(ORDERS, 5), b.take(ORDERS, 5)).await?;
    let (since, before) = (Instant::now(), fleet.epochs(8).await?);
    while since.elapsed() < Duration::from_secs(3) {
        b.reserve(ORDERS, 10, "100ms").await?;
    }
    assert_eq!(fleet.epochs(8).await?, before, "its deliveries count as demand");
    assert_eq!(a.ack(ORDERS, &held).await?, ["acked"; 5]);
    Ok(())
}

/// Its consumer died, or works for long. The others get what is due in all partitions but those of which it has a message.
#[tokio::test]
async fn messages_do_not_wait_for_a_delivery_without_end() -> Result<()> {
    let brief = [("DWELL_GROUP_HEARTBEAT", "300ms"), ("DWELL_LEASE_TTL", "2s")];
    let (_fleet, a, b) = pair(&brief, 16).await?;
    a.push(ORDERS, &[json!({"id": "held", "payload": "x"})]).await?;
    let held = a.take(ORDERS, 1).await?;
    let messages: Vec<_> =
        (0..MESSAGES).map(|n| json!({"id": format!("m{n}"), "payload": "x", "delay": "5s"})).collect();
    a.push(ORDERS, &messages).await?;
    let since = Instant::now();
    let mut got = Vec::new();
    while since.elapsed() < Duration::from_secs(12) {
        got.extend(b.reserve(ORDERS, 10, "500ms").await?);
    }
    assert!(got.len() > MESSAGES / 2, "{} of {MESSAGES}", got.len());
    assert_eq!(a.ack(ORDERS, &held).await?, ["acked"]);
    b.take(ORDERS, MESSAGES - got.len()).await?;
    Ok(())
}

/// With heartbeats a minute apart: nobody waits for one.
#[tokio::test]
async fn demand_start_and_end_are_announced_immediately() -> Result<()> {
    let (_fleet, a, b) = pair(&[("DWELL_GROUP_HEARTBEAT", "1m"), ("DWELL_LEASE_TTL", "4m")], 8).await?;
    let since = Instant::now();
    let both = [&a, &b];
    for (askers, shares) in [(&both[..], &[4, 4][..]), (&[&a], &[8]), (&both, &[4, 4])] {
        a.shared_by(askers, ORDERS, shares).await?;
    }
    let took = since.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    Ok(())
}

/// The one that waits for it looks each second.
#[tokio::test]
async fn topic_is_awaited_that_another_broker_creates() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start("a").await?, fleet.start("b").await?);
    let create = async {
        eventually("b waits", async || Ok((b.metric("dwell_http_connections", "").await? >= 2.0).then_some(())))
            .await?;
        a.push(ORDERS, &[json!({"id": "first", "payload": "x"})]).await
    };
    let (taken, ()) = try_join(b.reserve(ORDERS, 1, "60s"), create).await?;
    assert_eq!(taken[0].id, "first");
    Ok(())
}
