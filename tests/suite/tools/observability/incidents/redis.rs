//! What Redis does wrong.

use std::time::Duration;

use dwell::model::error::Result;
use serde_json::{Value, json};

use super::fleet::Fleet;
use crate::support::{eventually, pause_of_load};

/// Somebody sets another `maxmemory-policy` while dwell runs. Nothing is pushed into a Redis that may delete it.
#[tokio::test]
async fn eviction_that_is_switched_on_fires_one_alert_and_loses_nothing() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellRedisEvicts"], async {
            fleet.redis().await.ask::<()>("CONFIG SET maxmemory-policy allkeys-lru").await?;
            fleet.says("maxmemory-policy allkeys-lru").await?;
            let push = json!({"messages": [{"payload": "kept"}]});
            let answer = fleet.brokers[0].tell("POST /v1/topics/orders/messages/batch", &push).await?;
            assert_eq!(answer["results"][0]["status"], "buffered");
            assert_eq!(fleet.attention("evicting").await?.len(), 1);
            assert!(fleet.attention("degraded").await?.is_empty());
            fleet.waits_for("DwellRedisEvicts").await?;
            fleet.redis().await.ask::<()>("CONFIG SET maxmemory-policy noeviction").await?;
            fleet.is_well().await?;
            eventually("nothing is said", async || Ok(fleet.attention("evicting").await?.is_empty().then_some(())))
                .await
        })
        .await
}

/// Redis is full. Consumers still get messages and settle them, so nothing says that nothing is delivered.
#[tokio::test]
async fn redis_out_of_memory_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellRedisRefuses"], async {
            let later = json!({"messages": [{"payload": "still there", "id": "before", "delay": "12s"}]});
            fleet.brokers[0].tell("POST /v1/topics/orders/messages/batch", &later).await?;
            fleet.redis().await.ask::<()>("CONFIG SET maxmemory 1000000").await?;
            fleet.says("OOM").await?;
            fleet.waits_for("DwellRedisRefuses").await?;
            eventually("a message is delivered and settled", async || {
                let (status, _) = fleet.brokers[0].send("GET /v1/topics/orders/messages/before", &Value::Null).await?;
                Ok((status == 404).then_some(()))
            })
            .await?;
            assert!(!fleet.firing().await?.contains_key("DwellRedisDown"));
            fleet.redis().await.ask::<()>("CONFIG SET maxmemory 0").await?;
            fleet.is_well().await
        })
        .await
}

/// Memory that is nearly used up is a warning before it is an incident.
#[tokio::test]
async fn redis_that_is_nearly_full_is_a_warning() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellRedisMemory"], async {
            // A part that grows by little beside a message that is large.
            fleet.redis().await.call::<()>(redis::cmd("SET").arg("another").arg(vec![0u8; 8 << 20])).await?;
            let info: String = fleet.redis().await.ask("INFO memory").await?;
            let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse::<u64>().ok());
            let most = used.unwrap_or_default() * 100 / 85;
            fleet.redis().await.ask::<()>(&format!("CONFIG SET maxmemory {most}")).await?;
            fleet.waits_for("DwellRedisMemory").await?;
            assert_eq!(fleet.attention("memory_filling").await?.len(), 1);
            fleet.redis().await.ask::<()>("DEL another").await?;
            fleet.is_well().await
        })
        .await
}

/// Redis is away. What that causes, such as lost leases and late messages, has no alerts of its own.
#[tokio::test]
async fn redis_that_is_killed_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellRedisDown"], async {
            fleet.redis().await.kill()?;
            fleet.waits_for("DwellRedisDown").await?;
            fleet.redis().await.restart().await?;
            fleet.is_well().await
        })
        .await
}

/// Redis is stopped in order and started again, for instance for a new version: nothing is lost, and nobody is woken.
#[tokio::test]
async fn clean_restart_of_redis_fires_nothing() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&[], async {
            // It ends instead of answering.
            let _ = fleet.redis().await.ask::<()>("SHUTDOWN").await;
            fleet.redis().await.kill()?;
            fleet.redis().await.restart().await?;
            pause_of_load(Duration::from_secs(20)).await;
            Ok(())
        })
        .await
}
