//! What consumers do, or do not.

use std::time::Duration;

use dwell::model::error::Result;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::fleet::{Consumer, Fleet, Setup};
use crate::support::{eventually, pause_of_load};
use crate::tools::observability::broker::Broker;
use crate::tools::observability::queries::{list, text};

/// What is late because of the consumer is no alert about dwell: a poll every two seconds is fine.
#[tokio::test]
async fn consumer_that_polls_every_two_seconds_fires_nothing() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires_under(Consumer::Polls, &[], async {
            pause_of_load(Duration::from_secs(45)).await;
            let late = fleet.value("max(group:dwell_late:ratio_rate1h)").await?;
            assert!(late.is_some_and(|late| late < 0.1), "{late:?}");
            // In all they were late, by a second on average.
            let mean = "sum(dwell_lateness_unasked_seconds_sum) / sum(dwell_lateness_unasked_seconds_count)";
            let mean = fleet.value(mean).await?;
            assert!(mean.is_some_and(|mean| mean > 0.4), "{mean:?}");
            Ok(())
        })
        .await
}

/// Messages were due for minutes before anybody asked for them.
#[tokio::test]
async fn messages_that_nobody_asked_for_in_time_fire_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellUnasked"], async {
            let old = json!({"messages": [{"payload": "old"}]});
            fleet.brokers[0].tell("PUT /v1/topics/seldom", &json!({"partitions": 1})).await?;
            fleet.brokers[0].tell("POST /v1/topics/seldom/messages/batch", &old).await?;
            pause_of_load(Duration::from_secs(63)).await;
            let ask = json!({"max": 1, "wait": "5s"});
            fleet.brokers[0].tell("POST /v1/topics/seldom/groups/default/reserve", &ask).await?;
            fleet.waits_for("DwellUnasked").await?;
            let group = [("TOPIC", "seldom"), ("GROUP", "default")];
            fleet
                .types("DwellUnasked", "dwell group get TOPIC GROUP", &group)
                .await?
                .says(&["default: active", "demand"]);
            Ok(())
        })
        .await
}

/// A topic with 20 messages that nobody takes, and one with three of a key, of which the first has failed.
fn abandoned(broker: &Broker) -> BoxFuture<'_, Result<()>> {
    async move {
        broker.tell("PUT /v1/topics/keyed", &json!({"partitions": 1, "ordering": "key"})).await?;
        let of_key = ["first", "second", "third"].map(|id| json!({"payload": "x", "id": id, "key": "customer-1"}));
        broker.tell("POST /v1/topics/keyed/messages/batch", &json!({"messages": of_key})).await?;
        fail_first(broker, "keyed").await?;
        broker.tell("PUT /v1/topics/stale", &json!({"partitions": 1})).await?;
        let others: Vec<Value> = (0..20).map(|n| json!({"payload": "x", "id": format!("m{n}")})).collect();
        broker.tell("POST /v1/topics/stale/messages/batch", &json!({"messages": others})).await.map(drop)
    }
    .boxed()
}

/// A consumer takes the first message of a topic, and fails for an hour.
pub(super) async fn fail_first(broker: &Broker, topic: &str) -> Result<()> {
    let group = format!("/v1/topics/{topic}/groups/default");
    let mut receipts = Vec::new();
    while receipts.is_empty() {
        let taken = broker.tell(&format!("POST {group}/reserve"), &json!({"max": 1, "wait": "20s"})).await?;
        receipts.extend(list(&taken, "deliveries").map(|delivery| text(delivery, "receipt").to_owned()));
    }
    let nack = json!({"receipts": receipts, "delay": "1h", "reason": "not now"});
    broker.tell(&format!("POST {group}/nack"), &nack).await.map(drop)
}

/// All consumers of a topic are gone.
#[tokio::test]
async fn messages_that_wait_for_a_consumer_fire_one_alert() -> Result<()> {
    let fleet = Setup { before: Some(abandoned), ..Setup::default() }.start().await?;
    let waits = async {
        loop {
            let ask = json!({"max": 10, "wait": "20s"});
            // The other topic has a consumer, for whom nothing is.
            let _ = fleet.brokers[0].send("POST /v1/topics/keyed/groups/default/reserve", &ask).await;
            pause_of_load(Duration::from_millis(100)).await;
        }
    };
    let fires = fleet.fires(&["DwellBacklogGrows"], async {
        fleet.waits_for("DwellBacklogGrows").await?;
        fleet.attention_says("no_consumer", "20 ready messages").await?;
        fleet.shows("all consumers of a topic are gone").await?;
        let names = [("TOPIC", "stale"), ("GROUP", "default")];
        let of_key = [("TOPIC", "keyed"), ("ID", "second")];
        fleet.types("DwellBacklogGrows", "dwell topic get TOPIC", &names).await?.says(&["owner", "stale"]);
        fleet.types("DwellBacklogGrows", "dwell group list TOPIC", &names).await?.says(&["default", "active"]);
        fleet.types("DwellBacklogGrows", "dwell group get TOPIC GROUP", &names).await?.says(&["default: active"]);
        fleet
            .types("DwellBacklogGrows", "dwell message list TOPIC --state backoff", &of_key)
            .await?
            .says(&["first", "backoff"]);
        fleet.types("DwellBacklogGrows", "dwell explain TOPIC ID", &of_key).await?.says(&["first"]);
        fleet.types("Consumers get nothing", "dwell topic get TOPIC", &names).await?.says(&["ready", "owner"]);
        fleet.types("Consumers get nothing", "dwell group get TOPIC GROUP", &names).await?.says(&["owner"]);
        let late = [("TOPIC", "stale"), ("ID", "m1")];
        fleet.types("A message is not delivered", "dwell explain TOPIC ID", &late).await?.says(&["no_consumer"]);
        let ask = json!({"max": 20, "wait": "5s"});
        let taken = fleet.brokers[0].tell("POST /v1/topics/stale/groups/default/reserve", &ask).await?;
        let receipts: Vec<&str> = list(&taken, "deliveries").map(|delivery| text(delivery, "receipt")).collect();
        let ack = json!({"receipts": receipts});
        fleet.brokers[0].tell("POST /v1/topics/stale/groups/default/ack", &ack).await.map(drop)
    });
    tokio::select! {
        () = waits => Ok(()),
        fired = fires => fired,
    }
}

/// Consumers fail most of the time, since something behind them is down.
#[tokio::test]
async fn consumers_that_fail_fire_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellRetryStorm"], async {
            let broker = &fleet.brokers[0];
            let often = json!({"kind": "ladder", "steps": ["500ms"]});
            broker.tell("PUT /v1/topics/storm", &json!({"partitions": 1, "max_attempts": 0, "backoff": often})).await?;
            let failing: Vec<Value> = (0..10).map(|n| json!({"payload": "x", "id": format!("m{n}")})).collect();
            broker.tell("POST /v1/topics/storm/messages/batch", &json!({"messages": failing})).await?;
            let fails = async {
                loop {
                    let ask = json!({"max": 10, "wait": "2s"});
                    let taken = broker.tell("POST /v1/topics/storm/groups/default/reserve", &ask).await?;
                    let receipts: Vec<&Value> = list(&taken, "deliveries").map(|taken| &taken["receipt"]).collect();
                    if !receipts.is_empty() {
                        let nack = json!({"receipts": receipts, "reason": "the mail server is down"});
                        broker.tell("POST /v1/topics/storm/groups/default/nack", &nack).await?;
                    }
                }
            };
            let watched = async {
                fleet.waits_for("DwellRetryStorm").await?;
                fleet.attention_says("retry_storm", "consumers fail").await?;
                let names = [("TOPIC", "storm"), ("GROUP", "default"), ("ID", "m1")];
                fleet
                    .types("DwellRetryStorm", "dwell group pause TOPIC GROUP --for 30m", &names)
                    .await?
                    .says(&["default is paused until"]);
                // A consumer may still have it.
                eventually("explain has the last error", async || {
                    let explained = fleet.types("DwellRetryStorm", "dwell explain TOPIC ID", &names).await?;
                    Ok(explained.said.contains("the mail server is down").then_some(()))
                })
                .await
            };
            tokio::select! {
                failed = fails => failed,
                watched = watched => watched,
            }
        })
        .await
}

/// Consumers take messages and say nothing in time. The second attempt of each is acked, so that there is no storm.
#[tokio::test]
async fn deliveries_that_time_out_fire_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellTimedOut"], async {
            let broker = &fleet.brokers[0];
            let soon = json!({"kind": "ladder", "steps": ["100ms"]});
            broker.tell("PUT /v1/topics/slow", &json!({"partitions": 1, "backoff": soon})).await?;
            let forgets = async {
                loop {
                    let one = json!({"messages": [{"payload": "long work"}]});
                    broker.tell("POST /v1/topics/slow/messages/batch", &one).await?;
                    for timeout in ["300ms", "30s"] {
                        let ask = json!({"max": 1, "wait": "3s", "visibility_timeout": timeout});
                        let taken = broker.tell("POST /v1/topics/slow/groups/default/reserve", &ask).await?;
                        let receipts: Vec<&Value> = list(&taken, "deliveries").map(|taken| &taken["receipt"]).collect();
                        if timeout == "30s" && !receipts.is_empty() {
                            let ack = json!({"receipts": receipts});
                            broker.tell("POST /v1/topics/slow/groups/default/ack", &ack).await?;
                        }
                    }
                    pause_of_load(Duration::from_secs(1)).await;
                }
            };
            let watched = async {
                fleet.waits_for("DwellTimedOut").await?;
                fleet
                    .types("DwellTimedOut", "dwell topic update TOPIC --visibility-timeout 5m", &[("TOPIC", "slow")])
                    .await?
                    .says(&["visibility timeout  5m"]);
                Ok(())
            };
            tokio::select! {
                failed = forgets => failed,
                watched = watched => watched,
            }
        })
        .await
}
