//! What a consumer is answered whose receipt is not settled.

use serde_json::{Value, json};

use super::served::{Answer, Outcome, Served};

const GROUP: &str = "/v1/topics/orders/groups/default";

/// Settles with `verb`, whatever is answered.
async fn settle(dwell: &Served, verb: &str, receipts: Value) -> Outcome<Answer> {
    let mut body = json!({"receipts": receipts});
    if verb == "extend" {
        body["visibility_timeout"] = json!("1m");
    }
    dwell.send(dwell.request(&format!("POST {GROUP}/{verb}"))?.json(&body)).await
}

/// Every verb answers a single receipt with this status, type and reason, and a batch with 200 and the same verdict.
async fn is_refused(dwell: &Served, receipt: &str, verbs: &[&str], expected: (u16, &str, &str, &str)) -> Outcome {
    let (status, kind, verdict, reason) = expected;
    for verb in verbs {
        let alone = settle(dwell, verb, json!([receipt])).await?;
        assert_eq!(
            (alone.status, alone.content_type.as_str()),
            (status, "application/problem+json"),
            "{verb}: {alone:?}"
        );
        assert_eq!(alone.body["type"], format!("urn:dwell:error:{kind}"), "{verb}");
        assert_eq!((&alone.body["reason"], &alone.body["status"]), (&json!(reason), &json!(status)), "{verb}");
        let result = json!({"receipt": receipt, "status": verdict, "reason": reason});
        assert_eq!((&alone.body["failed"], &alone.body["results"]), (&json!(1), &json!([result])), "{verb}");
        assert!(alone.body["detail"].is_string() && alone.body["request_id"].is_string(), "{verb}: {alone:?}");
        let batch = settle(dwell, verb, json!([receipt, receipt])).await?;
        assert_eq!(batch.status, 200, "{verb}");
        assert_eq!(batch.body, json!({"failed": 2, "results": [result, result]}), "{verb}");
    }
    Ok(())
}

#[tokio::test]
async fn single_unsettled_receipt_gets_a_problem() -> Outcome {
    let dwell = Served::start().await?;
    let settings =
        json!({"partitions": 1, "visibility_timeout": "30s", "backoff": {"kind": "ladder", "steps": ["1h"]}});
    dwell.tell("PUT /v1/topics/orders", settings).await?;
    let push = async || dwell.send(dwell.request("POST /v1/topics/orders/messages")?.body("x")).await;
    push().await?;
    let acked = dwell.receipt("orders").await?;
    let first = settle(&dwell, "ack", json!([acked])).await?;
    assert_eq!(first.body, json!({"failed": 0, "results": [{"receipt": acked, "status": "acked"}]}));
    let again = settle(&dwell, "ack", json!([acked])).await?;
    assert_eq!((again.status, again.body), (200, first.body), "a repeat is answered as the first time");
    is_refused(&dwell, &acked, &["nack", "release", "extend"], (409, "not-settled", "stale", "already_settled"))
        .await?;

    push().await?;
    let late = dwell.receipt("orders").await?;
    dwell.pass(std::time::Duration::from_secs(31));
    // The message waits for its next attempt: its deadline has passed.
    while dwell.counts("orders").await? != [1, 0, 0, 0] {}
    is_refused(&dwell, &late, &["ack", "nack", "release", "extend"], (409, "not-settled", "stale", "deadline_passed"))
        .await?;

    dwell.send(dwell.request("POST /v1/topics/mails/messages")?.body("x")).await?;
    let others = dwell.receipt("mails").await?;
    let verbs = ["ack", "nack", "release", "extend"];
    is_refused(&dwell, &others, &verbs, (404, "unknown-receipt", "unknown", "unknown")).await?;
    is_refused(&dwell, "nonsense", &verbs, (422, "invalid-receipt", "unknown", "invalid")).await
}

#[tokio::test]
async fn a_release_gives_deliveries_back() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({"partitions": 1, "max_attempts": 1})).await?;
    dwell.send(dwell.request("POST /v1/topics/orders/messages?id=a")?.body("x")).await?;
    for _ in 0..2 {
        let reserved = dwell.tell(&format!("POST {GROUP}/reserve"), json!({"wait": "10s"})).await?;
        let delivery = &reserved["deliveries"][0];
        assert_eq!((&delivery["id"], &delivery["attempt"]), (&json!("a"), &json!(1)));
        for receipt in [json!(delivery["receipt"]), json!({"receipt": delivery["receipt"]})] {
            let released = settle(&dwell, "release", json!([receipt])).await?;
            let result = json!({"receipt": delivery["receipt"], "status": "released"});
            assert_eq!((released.status, released.body), (200, json!({"failed": 0, "results": [result]})));
        }
    }
    let message = dwell.ask("GET /v1/topics/orders/messages/a").await?.body;
    assert_eq!((&message["state"], &message["attempts"]), (&json!("ready"), &json!(0)), "{message}");
    let line = format!("POST {GROUP}/release");
    for wrong in [json!({}), json!({"receipts": []}), json!({"receipts": ["a"], "late": true})] {
        assert_eq!(dwell.send(dwell.request(&line)?.json(&wrong)).await?.status, 422, "{wrong}");
    }
    Ok(())
}

#[tokio::test]
async fn a_late_settlement_counts_after_the_visibility_timeout() -> Outcome {
    let dwell = Served::start().await?;
    let settings =
        json!({"partitions": 1, "visibility_timeout": "30s", "backoff": {"kind": "ladder", "steps": ["1h"]}});
    dwell.tell("PUT /v1/topics/orders", settings).await?;
    dwell.send(dwell.request("POST /v1/topics/orders/messages")?.body("x")).await?;
    let receipt = dwell.receipt("orders").await?;
    dwell.pass(std::time::Duration::from_secs(31));
    while dwell.counts("orders").await? != [1, 0, 0, 0] {}
    let late = async |verb: &str, more: Value| {
        let mut body = json!({"receipts": [receipt], "late": true});
        body.as_object_mut().into_iter().for_each(|body| body.extend(more.as_object().cloned().unwrap_or_default()));
        dwell.send(dwell.request(&format!("POST {GROUP}/{verb}"))?.json(&body)).await
    };
    let extended = late("extend", json!({"visibility_timeout": "5m"})).await?;
    assert_eq!((extended.status, &extended.body["results"][0]["status"]), (200, &json!("extended")), "{extended:?}");
    assert!(extended.body["results"][0]["deadline"].is_string(), "{extended:?}");
    let buried = late("nack", json!({"bury": true})).await?;
    assert_eq!((buried.status, &buried.body["reason"]), (409, &json!("deadline_passed")), "{buried:?}");
    for verb in ["nack", "ack", "ack"] {
        let settled = late(verb, json!({})).await?;
        assert_eq!((settled.status, &settled.body["results"][0]["status"]), (200, &json!(format!("{verb}ed"))));
    }
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    let unread = late("ack", json!({"late": "yes"})).await?;
    assert_eq!(unread.status, 422, "{unread:?}");
    Ok(())
}

#[tokio::test]
async fn a_reserve_takes_successive_messages_of_a_key() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({"partitions": 1, "ordering": "key"})).await?;
    let messages: Vec<_> = (0..3).map(|n| json!({"id": format!("m{n}"), "key": "k", "payload": "x"})).collect();
    dwell.tell("POST /v1/topics/orders/messages/batch", json!({"messages": messages})).await?;
    let line = format!("POST {GROUP}/reserve");
    let reserve = async |body: Value| dwell.send(dwell.request(&line)?.json(&body)).await;
    let taken = reserve(json!({"max": 10, "per_key": 2, "wait_ms": 60_000})).await?;
    let ids: Vec<_> = taken.body["deliveries"].as_array().into_iter().flatten().map(|taken| &taken["id"]).collect();
    assert_eq!(ids, ["m0", "m1"], "{taken:?}");
    for per_key in [0, 11] {
        assert_eq!(reserve(json!({"per_key": per_key})).await?.status, 422, "{per_key}");
    }
    for wrong in [json!("stay"), json!(""), json!(1), json!(null), json!("keep_rest")] {
        assert_eq!(reserve(json!({"on_failure": wrong})).await?.status, 422, "{wrong}");
    }
    assert_eq!(reserve(json!({"per_key": 2, "on_failure": "return_rest"})).await?.status, 200);
    dwell.tell("PUT /v1/topics/mails", json!({"partitions": 1})).await?;
    let mails = "POST /v1/topics/mails/groups/default/reserve";
    assert_eq!(dwell.send(dwell.request(mails)?.json(&json!({"per_key": 2}))).await?.status, 422);
    Ok(())
}

#[tokio::test]
async fn batch_settlement_has_a_reason_per_receipt() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    let batch = json!({"messages": [{"payload": "a"}, {"payload": "b"}]});
    dwell.tell("POST /v1/topics/orders/messages/batch", batch).await?;
    let mut taken = Vec::new();
    while taken.len() < 2 {
        taken.extend(dwell.reserve("orders").await?.into_iter().map(|it| it["receipt"].clone()));
    }
    settle(&dwell, "nack", json!([{"receipt": taken[0], "bury": true}])).await?;
    let answer = settle(&dwell, "ack", json!([taken[0], taken[1], "x"])).await?;
    let expected = json!({"failed": 2, "results": [
        {"receipt": taken[0], "status": "stale", "reason": "already_settled"},
        {"receipt": taken[1], "status": "acked"},
        {"receipt": "x", "status": "unknown", "reason": "invalid"},
    ]});
    assert_eq!((answer.status, answer.body), (200, expected));
    Ok(())
}

#[tokio::test]
async fn a_delivery_of_a_closed_stream_is_already_settled() -> Outcome {
    let dwell = Served::start().await?;
    dwell.send(dwell.request("POST /v1/topics/orders/messages")?.body("x")).await?;
    let mut stream = dwell.driven(dwell.request(&format!("POST {GROUP}/stream"))?.send()).await??;
    let mut line = Vec::new();
    while !line.ends_with(b"}\n") {
        line.extend(dwell.driven(stream.chunk()).await??.ok_or("the stream has ended")?);
    }
    let delivery: Value = serde_json::from_slice(line.trim_ascii())?;
    let receipt = delivery["receipt"].as_str().ok_or("no receipt")?;
    drop(stream);
    let again = dwell.reserve("orders").await?.remove(0);
    assert_eq!(again["attempt"], 2);
    is_refused(&dwell, receipt, &["ack", "extend"], (409, "not-settled", "stale", "already_settled")).await
}

#[tokio::test]
async fn a_structured_reason_is_the_last_error() -> Outcome {
    let dwell = Served::start().await?;
    let settings = json!({"partitions": 1, "max_attempts": 3, "backoff": {"kind": "ladder", "steps": ["1h"]}});
    dwell.tell("PUT /v1/topics/orders", settings).await?;
    dwell.send(dwell.request("POST /v1/topics/orders/messages?id=a")?.body("x")).await?;
    let shown = async || Ok::<_, Box<dyn std::error::Error>>(dwell.ask("GET /v1/topics/orders/messages/a").await?.body);
    let error = json!({"class": "KeyError", "message": "'order'", "stack": "at main\nat order"});
    let nack = async |how: Value| {
        let receipt = dwell.receipt("orders").await?;
        let mut body = how;
        body["receipts"] = json!([receipt]);
        dwell.tell(&format!("POST {GROUP}/nack"), body).await
    };
    nack(json!({"delay": "0s", "reason": error})).await?;
    let message = shown().await?;
    assert_eq!((&message["state"], &message["last_error"]), (&json!("ready"), &error), "{message}");
    assert_eq!(message["history"][0]["reason"], "KeyError: 'order'");
    let explained = dwell.ask("GET /v1/topics/orders/messages/a/explain").await?.body;
    assert_eq!(explained["groups"][0].get("last_error"), None, "it is due: {explained}");
    nack(json!({"delay": "0s", "reason": "smtp: 451"})).await?;
    assert_eq!(shown().await?["last_error"], json!({"message": "smtp: 451"}));
    nack(json!({"reason": error})).await?;
    let dead = dwell.ask(&format!("GET {GROUP}/dead-letters")).await?.body;
    assert_eq!((&dead["dead_letters"][0]["id"], &dead["dead_letters"][0]["last_error"]), (&json!("a"), &error));
    for (text, found) in [("KeyError", 1), ("at order", 1), ("'order'", 1), ("smtp", 0)] {
        let found_by_text =
            dwell.ask(&format!("GET {GROUP}/dead-letters?text={}", text.replace(' ', "%20"))).await?.body;
        assert_eq!(found_by_text["dead_letters"].as_array().map(Vec::len), Some(found), "{text}");
    }
    let explained = dwell.ask("GET /v1/topics/orders/messages/a/explain").await?.body;
    assert_eq!((&explained["groups"][0]["reason"], &explained["groups"][0]["last_error"]), (&json!("dead"), &error));
    Ok(())
}

#[tokio::test]
async fn each_part_of_a_reason_is_cut_and_a_thousand_fit_into_a_request() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    dwell.send(dwell.request("POST /v1/topics/orders/messages?id=a")?.body("x")).await?;
    let receipt = dwell.receipt("orders").await?;
    let long = "é".repeat(10_000);
    let reason = json!({"class": long, "message": long, "stack": long});
    let nack = json!({"receipts": [{"receipt": receipt, "bury": true, "reason": reason}]});
    dwell.tell(&format!("POST {GROUP}/nack"), nack).await?;
    let message = dwell.ask("GET /v1/topics/orders/messages/a").await?.body;
    let bytes = |part: &str| message["last_error"][part].as_str().map(str::len);
    assert_eq!((bytes("class"), bytes("message"), bytes("stack")), (Some(256), Some(1_024), Some(4_096)));
    let stack = "at orders::close (src/orders/close.rs:17)\n".repeat(100)[..4_096].to_owned();
    let whole = json!({"class": "c".repeat(256), "message": "m".repeat(1_024), "stack": stack});
    let many: Vec<_> = (0..1_000).map(|n| json!({"receipt": format!("r{n}"), "reason": whole})).collect();
    let answer = dwell.tell(&format!("POST {GROUP}/nack"), json!({"receipts": many})).await?;
    assert_eq!(answer["failed"], 1_000, "each is read");
    for wrong in
        [json!(7), json!({}), json!({"class": "x"}), json!({"message": "x", "at": "y"}), json!(null), json!([])]
    {
        let body = json!({"receipts": [{"receipt": "r", "reason": wrong}]});
        let refused = dwell.send(dwell.request(&format!("POST {GROUP}/nack"))?.json(&body)).await?;
        assert_eq!(refused.status, 422, "{wrong}: {refused:?}");
        let at = refused.body["errors"][0]["pointer"].as_str().unwrap_or_default();
        assert!(at.starts_with("/receipts/0/reason"), "{wrong}: {refused:?}");
    }
    Ok(())
}
