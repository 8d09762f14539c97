//! A push with `spread`, over HTTP: the values are those of the page docs/reference/producing.md.

use std::time::Duration;

use dwell::model::time::Timestamp;
use serde_json::json;

use super::served::{Answer, Outcome, Served};

const PUSH: &str = "POST /v1/topics/orders/messages";

async fn push(dwell: &Served, query: &str) -> Outcome<Answer> {
    dwell.send(dwell.request(&format!("{PUSH}?{query}"))?.body("x".to_owned())).await
}

fn ahead(dwell: &Served, seconds: u64) -> Timestamp {
    Timestamp::from_ms(dwell.now().as_ms() / 1_000 * 1_000).plus(Duration::from_secs(seconds))
}

fn text(at: Timestamp, ms: u64) -> serde_json::Value {
    json!(at.plus(Duration::from_millis(ms)).to_string())
}

#[tokio::test]
async fn spread_moves_the_due_time_by_a_value_of_the_id_and_a_repeat_gets_the_same() -> Outcome {
    let dwell = Served::start().await?;
    let at = ahead(&dwell, 3_600);
    let first = push(&dwell, &format!("id=order-1&due_at={at}&spread=10m")).await?;
    assert_eq!((first.status, &first.body["due_at"]), (201, &text(at, 253_017)), "{first:?}");
    let again = push(&dwell, &format!("id=order-1&due_at={at}&spread_ms=600000")).await?;
    assert_eq!((again.status, &again.body["status"]), (200, &json!("duplicate")), "{again:?}");
    assert_eq!((&again.body["due_at"], again.body.get("differs")), (&text(at, 253_017), None), "{again:?}");
    let other = push(&dwell, &format!("id=order-1&due_at={at}&spread=1s")).await?;
    assert_eq!((&other.body["status"], &other.body["differs"]), (&json!("duplicate"), &json!(true)), "{other:?}");

    let replaced = push(&dwell, &format!("id=order-1&due_at={at}&spread=1d&conflict=replace")).await?;
    assert_eq!((&replaced.body["status"], &replaced.body["due_at"]), (&json!("replaced"), &text(at, 32_653_017)));
    let debounced = push(&dwell, &format!("id=order-1&due_at={at}&spread=1s&conflict=debounce")).await?;
    assert_eq!((&debounced.body["status"], &debounced.body["due_at"]), (&json!("debounced"), &text(at, 17)));
    assert_eq!(dwell.ask("GET /v1/topics/orders/messages/order-1").await?.body["due_at"], text(at, 17));
    Ok(())
}

#[tokio::test]
async fn each_message_of_a_batch_has_its_spread_and_the_ttl_counts_from_the_due_time() -> Outcome {
    let dwell = Served::start().await?;
    let at = ahead(&dwell, 60);
    let message = |id| json!({"payload": "x", "id": id, "due_at": at, "spread": "10m", "ttl": "1h"});
    let batch = json!({"messages": [message("order-2"), message("close-4711"),
        {"payload": "x", "id": "plain", "due_at": at}, {"payload": "x", "due_at": at, "spread_ms": 1000}]});
    let answer = dwell.tell(&format!("{PUSH}/batch"), batch).await?;
    let due = |n: usize| answer["results"][n]["due_at"].clone();
    assert_eq!([due(0), due(1), due(2)], [text(at, 105_931), text(at, 229_296), text(at, 0)], "{answer}");
    // The id that dwell makes decides too.
    let id = answer["results"][3]["id"].as_str().ok_or("no id")?.to_owned();
    let again = push(&dwell, &format!("id={id}&due_at={at}&spread=1s")).await?;
    assert_eq!((&again.body["status"], again.body.get("differs")), (&json!("duplicate"), None), "{again:?}");
    let stored = dwell.ask("GET /v1/topics/orders/messages/order-2").await?.body;
    assert_eq!(stored["expires_at"], text(at, 105_931 + 3_600_000), "{stored}");
    Ok(())
}

#[tokio::test]
async fn spread_out_of_range_is_a_named_error_for_every_id() -> Outcome {
    let dwell = Served::start().await?;
    for (query, field) in [
        ("spread=0s", "spread"),
        ("spread_ms=0", "spread"),
        ("spread=3651d", "spread"),
        ("delay=3649d&spread=25h", "spread"),
        ("spread=1s&spread_ms=1000", "spread"),
        ("spread=often", "spread"),
    ] {
        for id in ["a", "b", "c"] {
            let refused = push(&dwell, &format!("id={id}&{query}")).await?;
            let errors = &refused.body["errors"][0];
            assert!(refused.status == 422 && errors["parameter"] == field, "{query}: {refused:?}");
        }
    }
    assert_eq!(push(&dwell, "id=a&delay=3649d&spread=1d").await?.status, 201);
    let cron = json!({"every": "1h", "payload": "x", "spread": "10m"});
    let refused = dwell.send(dwell.request("PUT /v1/topics/orders/cron/a")?.json(&cron)).await?;
    assert!(refused.status == 422 && refused.body["detail"].to_string().contains("spread"), "{refused:?}");
    Ok(())
}
