//! Dedup keys and attachments over HTTP.

use serde_json::json;

use super::served::{Outcome, Served};

const PUSH: &str = "POST /v1/topics/orders/messages";

#[tokio::test]
async fn a_push_with_a_seen_dedup_key_answers_with_the_first_message() -> Outcome {
    let dwell = Served::start().await?;
    let push = async |id: &str| {
        let request = dwell.request(&format!("{PUSH}?id={id}&dedup_key=close%204711&dedup_for=10m&delay=1h"))?;
        dwell.send(request.body("x".to_owned())).await
    };
    let (first, second) = (push("a").await?, push("b").await?);
    assert_eq!((first.status, first.body.get("duplicate_of")), (201, None), "{first:?}");
    assert_eq!((second.status, &second.body["status"]), (200, &json!("duplicate")), "{second:?}");
    assert_eq!((&second.body["id"], &second.body["duplicate_of"]), (&json!("b"), &json!("a")));
    // Without a key the dedup key decides the partition, and the due time is that of the message that is there.
    assert_eq!(["partition", "due_at"].map(|f| &second.body[f]), ["partition", "due_at"].map(|f| &first.body[f]));
    let again = push("a").await?;
    assert_eq!((again.status, again.body.get("duplicate_of")), (200, None), "{again:?}");
    assert_eq!(dwell.ask("GET /v1/topics/orders/messages/a").await?.body["dedup_key"], "close 4711");

    let message = |id| json!({"payload": "y", "id": id, "dedup_key": "k", "dedup_for_ms": 60_000});
    let no_ids = [1, 2].map(|_| json!({"payload": "z", "dedup_key": "no id", "dedup_for": "1m"}));
    let batch = json!({"messages": [message("c"), message("d"), no_ids[0], no_ids[1]]});
    let answer = dwell.tell("POST /v1/topics/orders/messages/batch", batch).await?;
    let statuses: Vec<_> = (0..4).map(|n| answer["results"][n]["status"].clone()).collect();
    assert_eq!(statuses, ["stored", "duplicate", "stored", "duplicate"], "{answer}");
    assert_eq!(answer["results"][1]["duplicate_of"], "c");
    assert_eq!(answer["results"][3]["duplicate_of"], answer["results"][2]["id"]);
    Ok(())
}

#[tokio::test]
async fn a_dedup_key_is_refused_without_a_window_and_with_a_conflict_policy() -> Outcome {
    let dwell = Served::start().await?;
    for (query, field) in [
        ("dedup_key=k", "dedup_for"),
        ("dedup_for=5m", "dedup_for"),
        ("dedup_key=k&dedup_for=8d", "dedup_for"),
        ("dedup_key=&dedup_for=5m", "dedup_key"),
        ("dedup_key=k&dedup_for=5m&conflict=debounce", "dedup_key"),
    ] {
        let refused = dwell.send(dwell.request(&format!("{PUSH}?{query}"))?.body("x".to_owned())).await?;
        let detail = refused.body["detail"].as_str().unwrap_or_default().to_owned();
        assert!(refused.status == 422 && detail.contains(&format!("`{field}`")), "{query}: {refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn attachment_is_delivered_with_the_message() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell(PUSH, json!({"payload": "x", "id": "a", "attachment": "AP9n"})).await?;
    assert_eq!(dwell.ask("GET /v1/topics/orders/messages/a").await?.body["attachment"], "AP9n");
    let delivery = dwell.reserve("orders").await?.first().cloned().ok_or("nothing was delivered")?;
    assert_eq!(delivery["attachment"], "AP9n");
    dwell.tell(PUSH, json!({"payload": "x", "id": "b", "attachment": ""})).await?;
    assert_eq!(dwell.ask("GET /v1/topics/orders/messages/b").await?.body.get("attachment"), None);
    Ok(())
}
