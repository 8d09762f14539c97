//! Topics whose messages nobody gets.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use dwell::model::error::Result;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::consumers::fail_first;
use super::fleet::{Fleet, Setup};
use crate::support::{Application, eventually, pause_of_load};
use crate::tools::observability::broker::Broker;
use crate::tools::observability::queries::list;

/// The retries of a webhook that fails are no second alert.
#[tokio::test]
async fn webhook_that_fails_fires_one_alert() -> Result<()> {
    let broken = Application::serve(Router::new().fallback(|| async { StatusCode::INTERNAL_SERVER_ERROR }), 0).await?;
    let url = broken.url();
    let config = format!("[[webhook]]\ntopic = \"mail\"\ngroup = \"default\"\nurl = \"{url}\"\n");
    let fleet = Fleet::start(&config, &[]).await?;
    fleet
        .fires(&["DwellWebhookFails"], async {
            let backoff = json!({"kind": "ladder", "steps": ["1s"]});
            fleet.brokers[0]
                .tell("PUT /v1/topics/mail", &json!({"partitions": 2, "max_attempts": 0, "backoff": backoff}))
                .await?;
            // The webhook finds its group.
            pause_of_load(Duration::from_secs(5)).await;
            let mail: Vec<Value> =
                (0..20).map(|n| json!({"payload": "dear customer", "id": format!("m{n}")})).collect();
            fleet.brokers[0].tell("POST /v1/topics/mail/messages/batch", &json!({"messages": mail})).await?;
            fleet.waits_for("DwellWebhookFails").await?;
            let names = [("TOPIC", "mail"), ("GROUP", "default"), ("ID", "m1")];
            fleet.types("DwellWebhookFails", "dwell explain TOPIC ID", &names).await?.says(&["500"]);
            fleet
                .types("DwellWebhookFails", "dwell group pause TOPIC GROUP --for 30m", &names)
                .await?
                .says(&["default is paused until"]);
            Ok(())
        })
        .await
}

#[tokio::test]
async fn messages_that_expire_fire_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellExpired"], async {
            let broker = &fleet.brokers[0];
            broker.tell("PUT /v1/topics/brief", &json!({"partitions": 1})).await?;
            let ask = json!({"max": 10});
            broker.tell("POST /v1/topics/brief/groups/default/reserve", &ask).await?;
            // None had expired when Prometheus looked first.
            let expired = r#"max(dwell_settled_total{topic="brief",outcome="expired"})"#;
            fleet.until(expired, |expired| expired == 0.0).await?;
            let brief = json!({"messages": vec![json!({"payload": "soon over", "ttl": "1s"}); 3]});
            broker.tell("POST /v1/topics/brief/messages/batch", &brief).await?;
            pause_of_load(Duration::from_secs(2)).await;
            let taken = broker.tell("POST /v1/topics/brief/groups/default/reserve", &ask).await?;
            assert_eq!(taken["deliveries"], json!([]));
            fleet.waits_for("DwellExpired").await?;
            eventually("attention names it", async || Ok((fleet.attention("expired").await?.len() == 1).then_some(())))
                .await?;
            fleet
                .types("DwellExpired", "dwell topic update TOPIC --on-expiry bury", &[("TOPIC", "brief")])
                .await?
                .says(&["on expiry           bury"]);
            Ok(())
        })
        .await
}

/// More die than the topic keeps.
#[tokio::test]
async fn dead_letters_that_are_dropped_fire_two_alerts() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellDeadLetters", "DwellDeadLettersDropped"], async {
            let broker = &fleet.brokers[0];
            broker.tell("PUT /v1/topics/fragile", &json!({"partitions": 1, "dead_max_count": 3})).await?;
            let fragile = json!({"messages": vec![json!({"payload": "fragile"}); 10]});
            broker.tell("POST /v1/topics/fragile/messages/batch", &fragile).await?;
            // None was dead when Prometheus looked first.
            fleet.until(r#"max(dwell_messages{topic="fragile",state="dead"})"#, |dead| dead == 0.0).await?;
            let mut died = 0;
            while died < 10 {
                let ask = json!({"max": 10, "wait": "20s"});
                let taken = broker.tell("POST /v1/topics/fragile/groups/default/reserve", &ask).await?;
                let receipts: Vec<&Value> = list(&taken, "deliveries").map(|taken| &taken["receipt"]).collect();
                // So that what is dropped is dropped where somebody looks.
                fleet.is_scraped_again().await?;
                let bury = json!({"receipts": receipts, "reason": "not wanted", "bury": true});
                broker.tell("POST /v1/topics/fragile/groups/default/nack", &bury).await?;
                died += receipts.len();
            }
            fleet.waits_for("DwellDeadLettersDropped").await?;
            fleet.waits_for("DwellDeadLetters").await?;
            fleet.attention_says("dead_letters", "3 dead letters").await?;
            let names = [("TOPIC", "fragile")];
            fleet
                .types("DwellDeadLettersDropped", "dwell dead-letters list TOPIC", &names)
                .await?
                .says(&["buried", "not wanted"]);
            fleet
                .types("DwellDeadLetters", "dwell dead-letters list TOPIC", &names)
                .await?
                .says(&["buried", "not wanted"]);
            fleet.types("DwellDeadLetters", "dwell dead-letters redrive TOPIC --all", &names).await?.says(&["3"]);
            Ok(())
        })
        .await
}

/// A topic with 300 messages of one key, of which the first has failed.
fn held_up(broker: &Broker) -> BoxFuture<'_, Result<()>> {
    async move {
        broker.tell("PUT /v1/topics/shop", &json!({"partitions": 1, "ordering": "key"})).await?;
        let of_key = |n| json!({"payload": "x", "id": format!("m{n}"), "key": "customer-1"});
        let all: Vec<Value> = (0..300).map(of_key).collect();
        broker.tell("POST /v1/topics/shop/messages/batch", &json!({"messages": all})).await?;
        fail_first(broker, "shop").await
    }
    .boxed()
}

/// What waits behind a message that failed has one alert, and it is not that of consumers that are gone.
#[tokio::test]
async fn key_that_holds_up_hundreds_fires_one_alert() -> Result<()> {
    let fleet = Setup { before: Some(held_up), ..Setup::default() }.start().await?;
    let waits = async {
        loop {
            let ask = json!({"max": 10, "wait": "20s"});
            // Its consumers are there, and nothing is for them.
            let _ = fleet.brokers[0].send("POST /v1/topics/shop/groups/default/reserve", &ask).await;
            pause_of_load(Duration::from_millis(100)).await;
        }
    };
    let fires = fleet.fires(&["DwellBlocked"], async {
        fleet.waits_for("DwellBlocked").await?;
        fleet.attention_says("blocked", "299 blocked").await?;
        let names = [("TOPIC", "shop"), ("ID", "m7")];
        fleet.types("DwellBlocked", "dwell message list TOPIC --state blocked", &names).await?.says(&["m1", "blocked"]);
        fleet.types("DwellBlocked", "dwell explain TOPIC ID", &names).await?.says(&["m0"]);
        fleet
            .types("DwellBlocked", "dwell topic update TOPIC --max-attempts 5", &names)
            .await?
            .says(&["max attempts        5"]);
        Ok(())
    });
    tokio::select! {
        () = waits => Ok(()),
        fired = fires => fired,
    }
}

/// A group that somebody paused and forgot. Nobody is told that consumers are gone.
#[tokio::test]
async fn group_that_is_paused_for_long_fires_one_alert() -> Result<()> {
    let fleet = Setup { before: Some(paused), ..Setup::default() }.start().await?;
    fleet
        .fires(&["DwellPaused"], async {
            fleet.waits_for("DwellPaused").await?;
            fleet.attention_says("paused", "paused until it is resumed, with 5 ready messages").await?;
            let names = [("TOPIC", "quiet"), ("GROUP", "default")];
            fleet.types("DwellPaused", "dwell group get TOPIC GROUP", &names).await?.says(&["paused"]);
            fleet.types("DwellPaused", "dwell group resume TOPIC GROUP", &names).await?.says(&["default is active"]);
            let ask = json!({"max": 5, "wait": "5s"});
            let taken = fleet.brokers[0].tell("POST /v1/topics/quiet/groups/default/reserve", &ask).await?;
            let receipts: Vec<&Value> = list(&taken, "deliveries").map(|taken| &taken["receipt"]).collect();
            let ack = json!({"receipts": receipts});
            fleet.brokers[0].tell("POST /v1/topics/quiet/groups/default/ack", &ack).await?;
            fleet.is_well().await
        })
        .await
}

fn paused(broker: &Broker) -> BoxFuture<'_, Result<()>> {
    async move {
        broker.tell("PUT /v1/topics/quiet", &json!({"partitions": 1})).await?;
        let waiting = json!({"messages": vec![json!({"payload": "x"}); 5]});
        broker.tell("POST /v1/topics/quiet/messages/batch", &waiting).await?;
        broker.tell("POST /v1/topics/quiet/groups/default/pause", &json!({})).await.map(drop)
    }
    .boxed()
}
