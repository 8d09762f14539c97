//! Settings of topics that requests change: annotations, attempts without a limit, a topic for dead letters.

use serde_json::{Value, json};

use super::served::{Outcome, Served};

async fn refused(dwell: &Served, topic: &str, body: Value) -> Outcome<Vec<(String, String)>> {
    let answer = dwell.send(dwell.request(&format!("PUT /v1/topics/{topic}"))?.json(&body)).await?;
    assert_eq!(answer.status, 422, "{answer:?}");
    let errors = answer.body["errors"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(errors.iter().map(|error| (text(&error["pointer"]), text(&error["code"]))).collect())
}

#[tokio::test]
async fn annotations_are_merged_and_an_empty_text_removes_one() -> Outcome {
    let dwell = Served::start().await?;
    let created =
        dwell.tell("PUT /v1/topics/orders", json!({"annotations": {"team": "checkout", "tier": "1"}})).await?;
    assert_eq!(created["settings"]["annotations"], json!({"team": "checkout", "tier": "1"}));
    let changed = dwell.tell("PUT /v1/topics/orders", json!({"annotations": {"tier": "", "owner": "ada\n"}})).await?;
    assert_eq!(changed["settings"]["annotations"], json!({"team": "checkout", "owner": "ada\n"}));
    dwell.tell("PUT /v1/topics/orders", json!({"max_attempts": 3})).await?;
    let seen = dwell.ask("GET /v1/topics/orders").await?.body;
    assert_eq!(seen["settings"]["annotations"], json!({"team": "checkout", "owner": "ada\n"}));
    let none = dwell.tell("PUT /v1/topics/orders", json!({"annotations": {"team": "", "owner": ""}})).await?;
    assert_eq!(none["settings"].get("annotations"), None);
    Ok(())
}

#[tokio::test]
async fn annotation_limits_are_enforced() -> Outcome {
    let dwell = Served::start().await?;
    let most = json!({"annotations": {"n".repeat(128): "x".repeat(16 * 1024 - 128)}});
    dwell.tell("PUT /v1/topics/orders", most).await?;
    let over = refused(&dwell, "orders", json!({"annotations": {"another": "x"}})).await?;
    assert_eq!(over, [("/annotations".to_owned(), "range".to_owned())]);
    for wrong in [json!({"": "x"}), json!({"n".repeat(129): "x"}), json!({"a": 1}), json!({"a": null}), json!(["a"])] {
        refused(&dwell, "orders", json!({"annotations": wrong})).await?;
    }
    let twice = dwell.request("PUT /v1/topics/orders")?.header("content-type", "application/json");
    let twice = dwell.send(twice.body(r#"{"annotations": {"a": "1", "a": "2"}}"#)).await?;
    assert_eq!((twice.status, &twice.body["errors"][0]["code"]), (422, &json!("repeated")), "{twice:?}");
    Ok(())
}

#[tokio::test]
async fn max_attempts_can_be_unlimited() -> Outcome {
    let dwell = Served::start().await?;
    let created = dwell.tell("PUT /v1/topics/orders", json!({"max_attempts": 0})).await?;
    assert_eq!(created["settings"]["max_attempts"], 0);
    assert_eq!(dwell.ask("POST /v1/topics/orders/messages?id=a&max_attempts=0").await?.status, 201);
    assert_eq!(dwell.ask("GET /v1/topics/orders/messages/a").await?.body["max_attempts"], 0);
    refused(&dwell, "orders", json!({"max_attempts": 1_001})).await?;
    Ok(())
}

#[tokio::test]
async fn buried_message_arrives_in_the_dead_letter_topic_with_its_source() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders-dead", json!({"partitions": 1})).await?;
    let created = dwell.tell("PUT /v1/topics/orders", json!({"dead_letter": {"topic": "orders-dead"}})).await?;
    assert_eq!(created["settings"]["dead_letter"], json!({"topic": "orders-dead"}));
    assert_eq!(dwell.ask("POST /v1/topics/orders/messages?id=a&key=k").await?.status, 201);
    let receipt = dwell.receipt("orders").await?;
    let nack = json!({"receipts": [{"receipt": receipt, "reason": "no such customer", "bury": true}]});
    dwell.tell("POST /v1/topics/orders/groups/default/nack", nack).await?;
    let request = json!({"wait": "10s"});
    let reserved = dwell.tell("POST /v1/topics/orders-dead/groups/default/reserve", request).await?;
    let delivery = &reserved["deliveries"][0];
    assert_eq!((&delivery["id"], &delivery["key"], &delivery["attempt"]), (&json!("a"), &json!("k"), &json!(1)));
    let source = &delivery["dead_letter_source"];
    assert_eq!((&source["topic"], &source["group"], &source["id"]), (&json!("orders"), &json!("default"), &json!("a")));
    assert_eq!((&source["reason"], &source["attempts"]), (&json!("buried"), &json!(1)), "{source}");
    assert_eq!(source["last_error"], json!({"message": "no such customer"}));
    let none = dwell.tell("PUT /v1/topics/orders", json!({"dead_letter": {"topic": ""}})).await?;
    assert_eq!(none["settings"].get("dead_letter"), None);
    Ok(())
}

#[tokio::test]
async fn dead_letter_topic_must_be_another_topic() -> Outcome {
    let dwell = Served::start().await?;
    refused(&dwell, "orders", json!({"dead_letter": {"topic": "orders"}})).await?;
    for wrong in [json!({}), json!({"topic": "a b"}), json!({"topic": "b", "group": "c"}), json!("b"), json!(null)] {
        refused(&dwell, "orders", json!({"dead_letter": wrong})).await?;
    }
    Ok(())
}

#[tokio::test]
async fn reserve_says_which_visibility_timeout_it_used() -> Outcome {
    const RESERVE: &str = "POST /v1/topics/orders/groups/default/reserve";
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({"visibility_timeout": "7s"})).await?;
    assert_eq!(dwell.tell(RESERVE, json!({})).await?, json!({"deliveries": [], "visibility_timeout_ms": 7_000}));
    assert_eq!(dwell.ask("POST /v1/topics/orders/messages?id=a").await?.status, 201);
    let asked = dwell.tell(RESERVE, json!({"wait": "10s", "visibility_timeout": "1m"})).await?;
    assert_eq!((&asked["deliveries"][0]["id"], &asked["visibility_timeout_ms"]), (&json!("a"), &json!(60_000)));
    dwell.tell("PUT /v1/topics/orders", json!({"visibility_timeout": "500ms"})).await?;
    assert_eq!(dwell.tell(RESERVE, json!({})).await?["visibility_timeout_ms"], 500);
    Ok(())
}
