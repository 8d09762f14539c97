//! A debounce with a bound, over HTTP.

use std::time::Duration;

use dwell::model::time::Timestamp;
use serde_json::json;

use super::served::{Answer, Outcome, Served};

const PUSH: &str = "POST /v1/topics/orders/messages";
const HOUR: Duration = Duration::from_secs(3_600);

async fn push(dwell: &Served, query: &str) -> Outcome<Answer> {
    dwell.send(dwell.request(&format!("{PUSH}?{query}"))?.body("x".to_owned())).await
}

#[tokio::test]
async fn bounded_debounce_answers_with_the_due_time_that_the_message_got() -> Outcome {
    let dwell = Served::start().await?;
    let query = "id=a&conflict=debounce&delay=1h&debounce_max=90m";
    assert_eq!(push(&dwell, query).await?.body["status"], "stored");
    let stored = dwell.ask("GET /v1/topics/orders/messages/a").await?.body;
    let begun: Timestamp = stored["pushed_at"].as_str().ok_or("no time")?.parse()?;
    assert_eq!(stored["due_at"], json!(begun.plus(HOUR)));
    dwell.pass(HOUR / 4);
    let moved = push(&dwell, query).await?;
    assert_eq!((moved.status, &moved.body["status"]), (200, &json!("debounced")), "{moved:?}");
    dwell.pass(HOUR / 2);
    let bound = json!(begun.plus(HOUR / 2 * 3));
    let moved = push(&dwell, query).await?;
    assert_eq!((&moved.body["status"], &moved.body["due_at"]), (&json!("debounced"), &bound), "{moved:?}");
    let again = json!({"messages": [
        {"payload": "x", "id": "a", "conflict": "debounce", "delay": "2h", "debounce_max_ms": 5_400_000},
        {"payload": "x", "id": "b", "conflict": "debounce", "delay": "2h", "debounce_max": "1h"}]});
    let results = dwell.tell(&format!("{PUSH}/batch"), again).await?["results"].clone();
    assert_eq!((&results[0]["status"], &results[0]["due_at"]), (&json!("duplicate"), &bound), "{results}");
    // The first push has the bound too.
    let first = dwell.ask("GET /v1/topics/orders/messages/b").await?.body;
    let begun: Timestamp = first["pushed_at"].as_str().ok_or("no time")?.parse()?;
    assert_eq!((&first["due_at"], &results[1]["due_at"]), (&json!(begun.plus(HOUR)), &json!(begun.plus(HOUR))));
    Ok(())
}

#[tokio::test]
async fn debounce_max_is_a_named_error_without_the_policy_and_out_of_range() -> Outcome {
    let dwell = Served::start().await?;
    for (query, field) in [
        ("debounce_max=5m", "debounce_max"),
        ("conflict=replace&debounce_max_ms=5", "debounce_max"),
        ("conflict=debounce&debounce_max=0s", "debounce_max"),
        ("conflict=debounce&debounce_max=3651d", "debounce_max"),
        ("conflict=debounce&debounce_max=1s&debounce_max_ms=1000", "debounce_max"),
    ] {
        let refused = push(&dwell, &format!("id=a&{query}")).await?;
        assert!(refused.status == 422 && refused.body["errors"][0]["parameter"] == field, "{query}: {refused:?}");
    }
    Ok(())
}
