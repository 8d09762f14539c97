//! Topics whose messages nobody gets.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use dwell::model::error::Result;
use serde_json::json;

use super::fleet::Fleet;
use crate::support::{Application, eventually, pause_of_load};

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
            let mail = json!({"messages": vec![json!({"payload": "dear customer"}); 20]});
            fleet.brokers[0].tell("POST /v1/topics/mail/messages/batch", &mail).await?;
            fleet.waits_for("DwellWebhookFails").await
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
            fleet.is_scraped_again().await?;
            let brief = json!({"messages": vec![json!({"payload": "soon over", "ttl": "1s"}); 3]});
            broker.tell("POST /v1/topics/brief/messages/batch", &brief).await?;
            pause_of_load(Duration::from_secs(2)).await;
            let ask = json!({"max": 10});
            let taken = broker.tell("POST /v1/topics/brief/groups/default/reserve", &ask).await?;
            assert_eq!(taken["deliveries"], json!([]));
            fleet.waits_for("DwellExpired").await?;
            eventually("attention names it", async || Ok((fleet.attention("expired").await?.len() == 1).then_some(())))
                .await
        })
        .await
}
