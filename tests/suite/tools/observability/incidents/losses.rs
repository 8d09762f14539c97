//! What Redis lost, and pushes that it does not take for long.

use std::time::Duration;

use dwell::model::error::Result;
use serde_json::{Value, json};

use super::fleet::{Fleet, Setup};
use crate::support::{eventually, pause_of_load};

/// Redis was emptied, and a broker that has a part of what it lost died before. Prometheus did not know that broker, as with a
/// pod that has left discovery. The others wait until its lease ttl is over.
#[tokio::test]
async fn restore_that_lasts_fires_one_alert_beside_that_of_the_loss() -> Result<()> {
    let config = "durability = \"journal\"\n";
    let setup = Setup { config, lease_ttl: Some("50s"), is_one_unknown: true, ..Setup::default() };
    let fleet = setup.start().await?;
    fleet
        .fires(&["DwellRedisLosses", "DwellRestoring"], async {
            fleet.kill_unknown().await;
            fleet.redis().await.ask::<()>("FLUSHALL").await?;
            fleet.until("sum(dwell_restoring)", |restoring| restoring > 0.0).await?;
            fleet.attention_says("restoring", "nothing is delivered meanwhile").await?;
            fleet.waits_for("DwellRestoring").await?;
            fleet.shows("brokers restore what Redis lost").await?;
            fleet.types("DwellRestoring", "dwell brokers", &[]).await?.says(&["restoring"]);
            fleet.types("DwellRedisLosses", "redis-cli info server", &[]).await?.says(&["uptime_in_seconds"]);
            fleet.types("DwellRedisLosses", "redis-cli info replication", &[]).await?.says(&["role:master"]);
            fleet.types("DwellRedisLosses", "redis-cli info persistence", &[]).await?.says(&["aof_enabled:1"]);
            fleet.until("sum(dwell_restoring)", |restoring| restoring == 0.0).await?;
            pause_of_load(Duration::from_secs(5)).await;
            Ok(())
        })
        .await
}

/// Another program deleted the bodies of messages.
#[tokio::test]
async fn messages_that_lost_their_body_fire_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellRepairs"], async {
            let broker = &fleet.brokers[0];
            broker.tell("PUT /v1/topics/damaged", &json!({"partitions": 1})).await?;
            let push = |id: &str, delay: &str| json!({"messages": [{"payload": "x", "id": id, "delay": delay}]});
            broker.tell("POST /v1/topics/damaged/messages/batch", &push("soon", "4s")).await?;
            fleet.redis().await.ask::<u64>("HDEL {dwell:damaged:0}:default:h soon").await?;
            let ask = json!({"max": 1, "wait": "8s"});
            let taken = broker.tell("POST /v1/topics/damaged/groups/default/reserve", &ask).await?;
            assert_eq!(taken["deliveries"], json!([]));
            fleet.waits_for("DwellRepairs").await?;
            broker.tell("POST /v1/topics/damaged/messages/batch", &push("later", "1h")).await?;
            fleet.redis().await.ask::<u64>("HDEL {dwell:damaged:0}:default:h later").await?;
            let names = [("TOPIC", "damaged")];
            fleet.types("DwellRepairs", "redis-cli config get maxmemory-policy", &names).await?.says(&["noeviction"]);
            fleet.types("DwellRepairs", "dwell verify TOPIC --repair", &names).await?.says(&["repaired"]);
            Ok(())
        })
        .await
}

/// Redis is unavailable for so long that a broker refuses pushes.
#[tokio::test]
async fn full_log_fires_alerts_about_itself_its_cause_and_its_effect() -> Result<()> {
    let fleet = Fleet::start("[wal]\nlimit_bytes = 16777216\n", &[]).await?;
    fleet
        .fires(&["DwellPushesFail", "DwellRedisDown", "DwellWalFilling"], async {
            fleet.redis().await.kill()?;
            let broker = &fleet.brokers[0];
            let mut refused = 0;
            // What is refused is smaller each time, until nothing is taken.
            for size in [200_000, 20_000, 2_000, 200, 20] {
                let message = json!({"messages": [{"payload": "x".repeat(size)}]});
                let mut in_turn = 0;
                while in_turn < 10 {
                    let (status, _) = broker.send("POST /v1/topics/orders/messages/batch", &message).await?;
                    (in_turn, refused) = if status == 202 { (0, refused) } else { (in_turn + 1, refused + 1) };
                }
            }
            assert!(refused >= 50, "{refused}");
            fleet.waits_for("DwellWalFilling").await?;
            fleet.waits_for("DwellPushesFail").await?;
            let causes = Fleet::attention_of(broker, "wal_filling").await?;
            assert!(causes.len() == 1 && causes[0].contains("pushes are refused"), "{causes:?}");
            fleet.attention_says("not_ready", "full").await?;
            fleet.shows("a write-ahead log is full").await?;
            fleet.redis().await.restart().await?;
            // The pushes that failed stay an alert for as long as the budget of the hour is spent.
            eventually("the log is replayed", async || {
                let (status, ready) = broker.send("GET /readyz", &Value::Null).await?;
                Ok((status == 200 && ready["detail"].is_null()).then_some(()))
            })
            .await?;
            fleet.ends("DwellRedisDown").await?;
            fleet.ends("DwellWalFilling").await
        })
        .await
}
