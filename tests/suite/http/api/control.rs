//! What a producer does to messages that wait, and to ids that are there.

use serde_json::{Value, json};

use super::served::{Answer, Outcome, Served};

const A: &str = "/v1/topics/orders/messages/a";

async fn push(dwell: &Served, query: &str, payload: &'static str) -> Outcome<Answer> {
    let request = dwell.request(&format!("POST /v1/topics/orders/messages?{query}"))?;
    dwell.send(request.body(payload)).await
}

fn groups(status: &str) -> Value {
    json!([{"group": "default", "status": status}])
}

#[tokio::test]
async fn cancel_works_while_waiting_and_not_in_flight() -> Outcome {
    let dwell = Served::start().await?;
    push(&dwell, "id=a&delay=1h", "close order 4711").await?;
    for _ in 0..2 {
        let cancelled = dwell.ask(&format!("DELETE {A}")).await?;
        let expected = json!({"id": "a", "partition": 2, "status": "cancelled", "groups": groups("cancelled")});
        assert_eq!((cancelled.status, cancelled.body), (200, expected));
    }
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    assert_eq!(dwell.ask(&format!("GET {A}")).await?.status, 404);
    let never = dwell.ask("DELETE /v1/topics/orders/messages/never").await?;
    assert_eq!((never.status, &never.body["groups"]), (404, &groups("absent")), "{never:?}");
    assert_eq!(dwell.ask("DELETE /v1/topics/nowhere/messages/a").await?.status, 404);

    assert_eq!(push(&dwell, "id=a", "again").await?.status, 201);
    let receipt = dwell.receipt("orders").await?;
    for (method, body) in [("DELETE", json!({})), ("PATCH", json!({"delay": "0s"}))] {
        let refused = dwell.send(dwell.request(&format!("{method} {A}"))?.json(&body)).await?;
        assert_eq!((refused.status, &refused.body["type"]), (409, &json!("urn:dwell:error:conflict")), "{refused:?}");
        assert_eq!(refused.body["groups"], groups("in_flight"));
    }
    let bury = json!({"receipts": [{"receipt": receipt, "bury": true}]});
    dwell.tell("POST /v1/topics/orders/groups/default/nack", bury).await?;
    let dead = dwell.ask(&format!("DELETE {A}")).await?;
    assert_eq!((dead.status, &dead.body["groups"]), (409, &groups("dead")));
    Ok(())
}

#[tokio::test]
async fn reschedule_honours_if_match() -> Outcome {
    let dwell = Served::start().await?;
    push(&dwell, "id=a&delay=1h", "close order 4711").await?;
    let look = async || dwell.ask(&format!("GET {A}")).await;
    let etag = look().await?.body["etag"].as_str().ok_or("no etag")?.to_owned();
    let patch = async |etag: &str, body: Value| -> Outcome<Answer> {
        dwell.send(dwell.request(&format!("PATCH {A}"))?.header("If-Match", etag).json(&body)).await
    };
    let moved = patch(&etag, json!({"due_at": "2026-01-02T05:00:00Z"})).await?;
    let expected = json!({"id": "a", "partition": 2, "status": "rescheduled", "due_at": "2026-01-02T05:00:00.000Z",
        "groups": groups("rescheduled")});
    assert_eq!((moved.status, moved.body), (200, expected));
    assert_eq!(look().await?.body["next_at"], "2026-01-02T05:00:00.000Z");
    let stale = patch(&etag, json!({"delay": "0s"})).await?;
    assert_eq!((stale.status, &stale.body["type"]), (412, &json!("urn:dwell:error:precondition-failed")));
    assert_eq!(patch("*", json!({"delay": "0s"})).await?.status, 200);
    assert_eq!(look().await?.body["state"], "ready");
    for (etag, body) in [
        ("garbage", json!({"delay": "0s"})),
        ("*", json!({})),
        ("*", json!({"delay": "0s", "due_at": "2026-01-02T03:04:05Z"})),
        ("*", json!({"delay": "3651d"})),
        ("*", json!({"dealy": 0})),
    ] {
        assert_eq!(patch(etag, body.clone()).await?.status, 422, "{etag} {body}");
    }
    push(&dwell, "id=b&delay=1h&ttl=1m", "short").await?;
    let late = dwell.request("PATCH /v1/topics/orders/messages/b")?.json(&json!({"delay": "2h"}));
    let late = dwell.send(late).await?;
    assert!(late.status == 422 && late.body["detail"].as_str().is_some_and(|why| why.contains("expires")), "{late:?}");
    assert_eq!(dwell.reserve("orders").await?[0]["id"], "a");
    Ok(())
}

#[tokio::test]
async fn a_message_may_have_the_id_batch() -> Outcome {
    let dwell = Served::start().await?;
    push(&dwell, "id=batch&delay=1h", "x").await?;
    let path = "/v1/topics/orders/messages/batch";
    assert_eq!(dwell.tell(&format!("PATCH {path}"), json!({"delay": "2h"})).await?["status"], "rescheduled");
    assert_eq!(dwell.ask(&format!("DELETE {path}")).await?.body["status"], "cancelled");
    Ok(())
}

#[tokio::test]
async fn push_conflict_policy_decides_about_an_existing_id() -> Outcome {
    let dwell = Served::start().await?;
    let said = async |query: &str| -> Outcome<(u16, Value)> {
        let answer = push(&dwell, query, "x").await?;
        let what = if answer.status < 300 { &answer.body["status"] } else { &answer.body["type"] };
        Ok((answer.status, what.clone()))
    };
    let conflict = (409, json!("urn:dwell:error:conflict"));
    assert_eq!(said("id=a&delay=1h&conflict=reject").await?, (201, json!("stored")));
    assert_eq!(said("id=a&delay=2h&conflict=reject").await?, conflict);
    assert_eq!(said("id=a&delay=2h&conflict=keep").await?, (200, json!("duplicate")));
    assert_eq!(said("id=a&delay=2h&conflict=replace").await?, (200, json!("replaced")));
    assert_eq!(said("id=a&delay=3h&conflict=debounce").await?, (200, json!("debounced")));
    assert_eq!(said("id=a&delay=0s&conflict=debounce").await?, (200, json!("debounced")));
    dwell.receipt("orders").await?;
    assert_eq!(said("id=a&delay=3h&conflict=debounce").await?, conflict);
    assert_eq!(said("id=a&conflict=other").await?.0, 422);

    let batch = json!({"messages": [
        {"payload": "1", "id": "b", "delay": "1h", "conflict": "replace"},
        {"payload": "2", "id": "b", "delay": "1h", "conflict": "replace"},
        {"payload": "3", "id": "b", "delay": "2h"},
        {"payload": "4", "id": "b", "delay": "2h", "conflict": "reject"},
        {"payload": "5", "id": "b", "delay": "3h", "conflict": "debounce"}]});
    let batch = dwell.send(dwell.request("POST /v1/topics/orders/messages/batch")?.json(&batch)).await?;
    let results = batch.body["results"].as_array().ok_or("no results")?;
    let statuses: Vec<_> = results.iter().map(|result| result["status"].as_str().unwrap_or_default()).collect();
    assert_eq!((batch.status, statuses), (207, vec!["stored", "replaced", "duplicate", "error", "debounced"]));
    assert_eq!(results[3]["error"]["status"], 409);
    assert_eq!(dwell.ask("GET /v1/topics/orders/messages/b").await?.body["payload"], "2");
    Ok(())
}

#[tokio::test]
async fn idempotency_key_header_is_the_message_id() -> Outcome {
    let dwell = Served::start().await?;
    let push_of = async |query: &str, key: &str, payload: &'static str| -> Outcome<Answer> {
        let request = dwell.request(&format!("POST /v1/topics/orders/messages?{query}"))?;
        dwell.send(request.header("Idempotency-Key", key).body(payload)).await
    };
    let push = async |query: &str, key: &str| push_of(query, key, "x").await;
    assert_eq!(push("delay=1h", "4711").await?.body["id"], "4711");
    assert_eq!(push("delay=1h", "4711").await?.body["status"], "duplicate");
    let other = push_of("delay=1h", "4711", "y").await?;
    assert!(other.status == 422 && other.body["detail"].to_string().contains("message 4711"), "{other:?}");
    assert_eq!(other.body["errors"][0]["header"], "Idempotency-Key", "{other:?}");
    // An id says which message it is, and not that the request is the same.
    let by_id = dwell.send(dwell.request("POST /v1/topics/orders/messages?id=4711")?.body("y")).await?;
    assert_eq!((&by_id.body["status"], &by_id.body["differs"]), (&json!("duplicate"), &json!(true)), "{by_id:?}");
    // Somebody else moved it: the repeat is the same request all the same.
    let moved = dwell.request("PATCH /v1/topics/orders/messages/4711")?.json(&json!({"delay": "2h"}));
    assert_eq!(dwell.send(moved).await?.status, 200);
    assert_eq!(push("delay=1h", "4711").await?.body["status"], "duplicate");
    let envelope = dwell.request("POST /v1/topics/orders/messages")?.header("Idempotency-Key", "4711");
    assert_eq!(dwell.send(envelope.json(&json!({"payload": "z"}))).await?.status, 422);
    for (query, key) in [("id=a", "4711"), ("", "has spaces in it"), ("", "")] {
        let refused = push(query, key).await?;
        assert_eq!(refused.status, 422, "{refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn messages_are_listed_by_state_and_window() -> Outcome {
    let dwell = Served::start().await?;
    for n in 0..30 {
        push(&dwell, &format!("id=m{n:02}&delay={}m", n + 10), "x").await?;
    }
    push(&dwell, "id=now", "x").await?;
    push(&dwell, "id=dead", "x").await?;
    let mut deliveries = Vec::new();
    while deliveries.len() < 2 {
        deliveries.extend(dwell.reserve("orders").await?);
    }
    let of = |id: &str| deliveries.iter().find(|delivery| delivery["id"] == id).ok_or("not delivered");
    let bury = json!({"receipts": [{"receipt": of("dead")?["receipt"], "bury": true}]});
    dwell.tell("POST /v1/topics/orders/groups/default/nack", bury).await?;
    // Where nobody consumes nothing is held ready.
    dwell.send(dwell.request("POST /v1/topics/mails/messages?id=ready")?.body("x")).await?;
    let list_of = async |topic: &str, query: &str| -> Outcome<Vec<String>> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = dwell.ask(&format!("GET /v1/topics/{topic}/messages?limit=7{query}{cursor}")).await?;
            assert_eq!(page.status, 200, "{page:?}");
            let messages = page.body["messages"].as_array().ok_or("no messages")?;
            found.extend(messages.iter().map(|message| message["id"].as_str().unwrap_or_default().to_owned()));
            match page.body["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        found.sort();
        Ok(found)
    };
    let list = async |query: &str| list_of("orders", query).await;
    let scheduled: Vec<String> = (0..30).map(|n| format!("m{n:02}")).collect();
    assert_eq!(list("&state=scheduled").await?, scheduled);
    assert_eq!(list_of("mails", "&state=ready").await?, ["ready"]);
    assert_eq!(list_of("mails", "&state=scheduled").await?, Vec::<String>::new());
    assert_eq!(list("&state=in_flight").await?, ["now"]);
    assert_eq!(list("&state=dead").await?, ["dead"]);
    assert_eq!(list("").await?, scheduled);
    assert_eq!(list("&order=due").await?, scheduled);
    let (from, to) = (dwell.now().as_ms() + 14 * 60_000 + 30_000, dwell.now().as_ms() + 17 * 60_000 + 30_000);
    assert_eq!(list(&format!("&from={from}&to={to}")).await?.len(), 3);
    let by_due = dwell.ask("GET /v1/topics/orders/messages?order=due&limit=30").await?;
    let ids: Vec<_> = by_due.body["messages"].as_array().into_iter().flatten().map(|message| &message["id"]).collect();
    assert_eq!(ids, scheduled.iter().collect::<Vec<_>>(), "{by_due:?}");
    for query in [
        "state=waiting",
        "limit=0",
        "cursor=x",
        "state=dead&cursor=0.w.5.a",
        "from=yesterday",
        "status=ready",
        "order=sideways",
        "state=dead&order=due",
        "order=due&cursor=0.w.5.a",
        "cursor=due.0.5.a",
    ] {
        let refused = dwell.ask(&format!("GET /v1/topics/orders/messages?{query}")).await?;
        assert_eq!(refused.status, 422, "{query}");
    }
    assert_eq!(dwell.ask("GET /v1/topics/nowhere/messages").await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn message_is_rescheduled_to_the_past_only_on_request() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("POST /v1/topics/orders/messages", json!({"payload": "x", "id": "a", "delay": "1h"})).await?;
    let change = async |body: serde_json::Value| {
        dwell.send(dwell.request("PATCH /v1/topics/orders/messages/a")?.json(&body)).await
    };
    let refused = change(json!({"due_at": "2020-01-01T00:00:00Z"})).await?;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.body["detail"].as_str().is_some_and(|detail| detail.contains("`past`")), "{refused:?}");
    assert_eq!(dwell.counts("orders").await?, [1, 0, 0, 0]);
    assert_eq!(change(json!({"due_at": "2020-01-01T00:00:00Z", "past": "now"})).await?.status, 200);
    Ok(())
}
