//! What Redis does wrong.

use std::time::Duration;

use dwell::model::error::Result;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fleet::Fleet;
use crate::support::{eventually, pause_of_load, signal_to};

/// Rates need a few scrapes, and what is counted every 10 seconds a count.
const SCRAPES: Duration = Duration::from_secs(15);

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
            fleet.shows("Redis may evict keys").await?;
            let orders = [("TOPIC", "orders")];
            fleet
                .types("DwellRedisEvicts", "redis-cli config get maxmemory-policy", &orders)
                .await?
                .says(&["allkeys-lru"]);
            fleet.types("DwellRedisEvicts", "redis-cli info stats", &orders).await?.says(&["evicted_keys:0"]);
            fleet
                .types("DwellRedisEvicts", "dwell attention", &orders)
                .await?
                .says(&["evicting", "maxmemory-policy allkeys-lru"]);
            let doctor = fleet.types("DwellRedisEvicts", "dwell doctor", &orders).await?;
            assert!(!doctor.is_done && doctor.said.contains("allkeys-lru"), "{doctor:#?}");
            fleet
                .types("DwellRedisEvicts", "redis-cli config set maxmemory-policy noeviction", &orders)
                .await?
                .says(&["OK"]);
            fleet.is_well().await?;
            fleet.types("DwellRedisEvicts", "dwell verify TOPIC", &orders).await?.says(&["consistent"]);
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
            let doctor = fleet.types("DwellRedisRefuses", "dwell doctor", &[]).await?;
            assert!(!doctor.is_done && doctor.said.contains("maxmemory"), "{doctor:#?}");
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
            let names = [("TOPIC", "orders"), ("GROUP", "default")];
            fleet.types("DwellRedisMemory", "dwell top --once", &names).await?.says(&["orders"]);
            let doctor = fleet.types("DwellRedisMemory", "dwell doctor", &names).await?;
            assert!(doctor.said.contains("maxmemory"), "{doctor:#?}");
            fleet
                .types("DwellRedisMemory", "dwell dead-letters purge TOPIC --group GROUP --all", &names)
                .await?
                .says(&["0"]);
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
            fleet.types("Runbooks", "dwell doctor", &[]).await?.says(&["ok"]);
            pause_of_load(SCRAPES).await;
            fleet.shows("all is well").await?;
            fleet.redis().await.kill()?;
            fleet.waits_for("DwellRedisDown").await?;
            fleet.attention_says("degraded", "buffered on disk").await?;
            fleet.shows("Redis is down").await?;
            let ping = fleet.types("DwellRedisDown", "redis-cli ping", &[]).await?;
            assert!(!ping.is_done && ping.said.contains("Could not connect"), "{ping:#?}");
            fleet.redis().await.restart().await?;
            fleet.is_well().await?;
            pause_of_load(SCRAPES).await;
            fleet.shows("Redis is back").await
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

/// Redis answers, and takes a third of a second for it again and again. Consumers wait, and dwell hands out late.
#[tokio::test]
async fn redis_that_is_slow_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellLate"], async {
            let process = fleet.redis().await.pid();
            let slow = async {
                loop {
                    signal_to(process, Signal::STOP)?;
                    pause_of_load(Duration::from_millis(330)).await;
                    signal_to(process, Signal::CONT)?;
                    pause_of_load(Duration::from_millis(120)).await;
                }
            };
            let watched = async {
                fleet.waits_for("DwellLate").await?;
                fleet.shows("messages of a topic are late").await
            };
            let watched = tokio::select! {
                failed = slow => failed,
                watched = watched => watched,
            };
            signal_to(process, Signal::CONT)?;
            watched
        })
        .await
}
