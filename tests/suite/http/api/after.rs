//! A push that follows the message of its id, over HTTP.

use std::time::Duration;

use serde_json::json;

use super::served::{Outcome, Served};

const PUSH: &str = "POST /v1/topics/orders/messages";
const GROUP: &str = "/v1/topics/orders/groups/default";

#[tokio::test]
async fn message_in_flight_shows_when_its_successor_is_due() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell(PUSH, json!({"id": "a", "payload": "first"})).await?;
    let taken = dwell.tell(&format!("POST {GROUP}/reserve"), json!({"wait": "20s"})).await?;
    let receipt = taken["deliveries"][0]["receipt"].clone();
    let after = json!({"id": "a", "payload": "second", "conflict": "after", "delay": "1h"});
    let pushed = dwell.send(dwell.request(PUSH)?.json(&after)).await?;
    assert_eq!((pushed.status, &pushed.body["status"]), (201, &json!("stored")), "{pushed:?}");
    let shown = dwell.ask("GET /v1/topics/orders/messages/a").await?.body;
    assert_eq!((&shown["payload"], &shown["successor_due_at"]), (&json!("first"), &pushed.body["due_at"]), "{shown}");
    dwell.tell(&format!("POST {GROUP}/ack"), json!({"receipts": [receipt]})).await?;
    let shown = dwell.ask("GET /v1/topics/orders/messages/a").await?.body;
    assert_eq!((&shown["payload"], &shown["state"]), (&json!("second"), &json!("scheduled")), "{shown}");
    assert_eq!(shown["successor_due_at"], json!(null));
    let again = dwell.send(dwell.request(PUSH)?.json(&after)).await?;
    assert_eq!((again.status, &again.body["status"]), (200, &json!("duplicate")), "it waits: {again:?}");
    dwell.pass(Duration::from_secs(3_600));
    let taken = dwell.tell(&format!("POST {GROUP}/reserve"), json!({"wait": "20s"})).await?;
    assert_eq!(taken["deliveries"][0]["payload"], "second");
    Ok(())
}

#[tokio::test]
async fn nothing_follows_in_a_topic_with_ordering() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({"ordering": "key"})).await?;
    let after = json!({"id": "a", "key": "k", "payload": "x", "conflict": "after"});
    let refused = dwell.send(dwell.request(PUSH)?.json(&after)).await?;
    assert!(refused.status == 422 && refused.body["errors"][0]["pointer"] == "/conflict", "{refused:?}");
    let batch = json!({"messages": [{"payload": "y", "key": "k"}, after]});
    let mixed = dwell.send(dwell.request(&format!("{PUSH}/batch"))?.json(&batch)).await?;
    let results = &mixed.body["results"];
    assert_eq!((mixed.status, &results[0]["status"], &results[1]["status"]), (207, &json!("stored"), &json!("error")));
    Ok(())
}
