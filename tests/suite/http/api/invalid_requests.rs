//! Requests that are refused: the right status, a problem that says what is wrong and where, and nothing stored.

use serde_json::json;

use super::served::{Outcome, Served};

/// A request is refused so, and nothing of it is stored.
async fn refused(dwell: &Served, line: &str, body: impl Into<reqwest::Body>, status: u16, said: &str) -> Outcome {
    let content_type =
        if line.contains("/messages?") || line.ends_with("/messages") { "text/plain" } else { "application/json" };
    let answer = dwell.send(dwell.request(line)?.header("content-type", content_type).body(body)).await?;
    assert_eq!(answer.status, status, "{line}: {answer:?}");
    assert_eq!(answer.content_type, "application/problem+json", "{line}");
    assert_eq!(answer.body["status"], status, "{line}");
    assert!(
        answer.body["type"].as_str().is_some_and(|kind| kind.starts_with("urn:dwell:error:")),
        "{line}: {answer:?}"
    );
    assert!(answer.body["detail"].as_str().is_some_and(|detail| detail.contains(said)), "{line}: {answer:?}");
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0], "{line}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_push_stores_nothing() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let push = "POST /v1/topics/orders/messages";
    refused(&dwell, &format!("{push}?delay_s=5"), "x", 422, "`delay_s`: is not a parameter").await?;
    refused(&dwell, &format!("{push}?delay=5s&delay=6s"), "x", 422, "`delay`: is given twice").await?;
    refused(&dwell, &format!("{push}?delay=soon"), "x", 422, "`delay`: \"soon\" is not a duration").await?;
    refused(&dwell, &format!("{push}?delay=-5s"), "x", 422, "`delay`: \"-5s\" is negative").await?;
    refused(
        &dwell,
        &format!("{push}?delay=5s&due_at=2026-01-02T03:04:05Z"),
        "x",
        422,
        "`delay`: is given together with",
    )
    .await?;
    refused(&dwell, &format!("{push}?key=%FF"), "x", 400, "`key` is not UTF-8").await?;
    refused(&dwell, &format!("{push}?key="), "x", 422, "`key`: a key has 1 to 256 bytes").await?;
    refused(&dwell, push, vec![0; 1_048_577], 413, "at most 1048576").await
}

#[tokio::test]
async fn a_wrong_batch_stores_nothing() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let batch = "POST /v1/topics/orders/messages/batch";
    let with = |bad: &str| format!(r#"{{"messages": [{{"payload": "good"}}, {bad}]}}"#);
    refused(&dwell, batch, with(r#"{"payload": "a", "delay_s": 5}"#), 422, "`messages[1].delay_s`").await?;
    refused(&dwell, batch, with(r#"{"payload": "a", "delay": "-5s"}"#), 422, "`messages[1].delay`").await?;
    refused(&dwell, batch, with(r#"{"payload": "a", "delay": "1s", "delay": "2s"}"#), 422, "is given twice").await?;
    refused(&dwell, batch, with(r#"{"payload": "a", "key": "\u0000"}"#), 422, "`messages[1].key`").await?;
    refused(&dwell, batch, with("{}").replace("{}", "{"), 400, "is not JSON").await?;
    refused(&dwell, batch, b"{\"messages\": [{\"payload\": \"a\", \"key\": \"\xff\"}]}".to_vec(), 400, "is not JSON")
        .await?;
    let many = |n: usize| json!({"messages": vec![json!({"payload": "a"}); n]}).to_string();
    refused(&dwell, batch, many(10_001), 422, "more than 1000 items").await?;
    refused(&dwell, batch, many(0), 422, "`messages`: the list is empty").await?;
    refused(&dwell, batch, vec![b' '; 8 * 1024 * 1024 + 1], 413, "at most 8388608").await?;
    // At the limit it is stored, through the same connection that the refused body came through.
    let answer = dwell.tell(batch, serde_json::from_str(&many(1_000))?).await?;
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(1_000));
    assert_eq!(dwell.counts("orders").await?, [0, 1_000, 0, 0]);
    Ok(())
}

#[tokio::test]
async fn without_auto_create_a_topic_must_exist() -> Outcome {
    let dwell = Served::start_with(|options| options.broker.auto_create = false).await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    refused(&dwell, "POST /v1/topics/unknown/messages", "x", 404, "unknown").await?;
    let batch = json!({"messages": [{"payload": "a"}]}).to_string();
    refused(&dwell, "POST /v1/topics/unknown/messages/batch", batch, 404, "unknown").await?;
    refused(&dwell, "POST /v1/topics/unknown/groups/default/reserve", "", 404, "unknown").await?;
    assert_eq!(dwell.ask("GET /v1/topics").await?.body, json!({"topics": ["orders"]}));
    Ok(())
}

#[tokio::test]
async fn invalid_reserve_request_is_explained() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let group = "POST /v1/topics/orders/groups/default";
    refused(&dwell, &format!("{group}/reserve"), r#"{"max": 0}"#, 422, "`max`: 0 is not in 1 to 1000").await?;
    refused(&dwell, &format!("{group}/reserve"), r#"{"max": 1001}"#, 422, "`max`").await?;
    refused(&dwell, &format!("{group}/reserve"), r#"{"wait": "61s"}"#, 422, "`wait`: is at most 1m").await?;
    let short = r#"{"visibility_timeout": "99ms"}"#;
    refused(&dwell, &format!("{group}/reserve"), short, 422, "`visibility_timeout`: 99ms is not in 100ms to 12h")
        .await?;
    refused(&dwell, "POST /v1/topics/orders/groups/other/reserve", "{}", 404, "no group other").await?;
    let extend = r#"{"receipts": ["a"], "visibility_timeout": "13h"}"#;
    refused(&dwell, &format!("{group}/extend"), extend, 422, "`visibility_timeout`").await?;
    refused(&dwell, "GET /v1/topics/orders/groups/default/dead-letters?cursor=x", "", 422, "cursor").await?;
    refused(&dwell, "GET /v1/topics/orders/messages/absent", "", 404, "absent").await?;
    let declare = "PUT /v1/topics/orders";
    refused(&dwell, declare, r#"{"partitions": 1025}"#, 422, "`partitions`: 1025 is not in 1 to 1024").await?;
    refused(&dwell, declare, r#"{"backoff": {"kind": "ladder", "steps": []}}"#, 422, "the list is empty; 1 to 32 items")
        .await
}

#[tokio::test]
async fn badly_encoded_path_is_refused() -> Outcome {
    let dwell = Served::start().await?;
    let bad =
        ["/v1/topics/a%zz", "/v1/topics/%", "/v1/topics/a%2/messages", "/v1/topics/a/messages/%4", "/v1/topics/%C3%28"];
    for path in bad.into_iter().chain(["/v1/topics/a/groups/%g0/dead-letters", "/v1/topics/a/cron/%-1", "/nothing/%zz"])
    {
        let answer = dwell
            .raw(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
            .await?;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{path}: {answer}");
        assert!(answer.contains("urn:dwell:error:malformed") && answer.contains("the path "), "{path}: {answer}");
    }
    Ok(())
}

#[tokio::test]
async fn misspelt_path_and_parameter_are_named() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    for (line, status, said) in [
        ("POST /v1/topics/orders/messages/", 404, "without the slash at its end it is \"/v1/topics/orders/messages\""),
        ("POST /topics/orders/messages", 404, "\"/v1/topics/orders/messages\""),
        ("POST /v1/topics/orders/messages?ID=a", 422, "did you mean `id`?"),
        ("POST /v1/topics/orders/messages?due_at=2026-12-01T10:00:00+01:00", 422, "write a + in a query as %2B"),
    ] {
        refused(&dwell, line, "x", status, said).await?;
    }
    let wait = dwell.send(dwell.request("POST /v1/topics/orders/messages?wait=10s")?.body("x")).await?;
    assert!(wait.body["detail"].as_str().is_some_and(|detail| !detail.contains("mean")), "{wait:?}");
    Ok(())
}

/// What a request says is done, or it is refused: a field, a header or a condition that nobody looks at would be lost without a word.
#[tokio::test]
async fn nothing_that_a_request_says_is_ignored() -> Outcome {
    let dwell = Served::start().await?;
    for line in
        ["PUT /v1/topics/orders", "PUT /v1/topics/orders/groups/audit", "POST /v1/topics/orders/groups/audit/pause"]
    {
        assert!(dwell.ask(line).await?.status < 300, "{line}");
    }
    let cron = json!({"every": "1h", "payload": "x"});
    assert_eq!(dwell.tell("PUT /v1/topics/orders/cron/hourly", cron).await?["name"], "hourly");
    let changes = [
        "POST /v1/topics/orders/groups/audit/resume",
        "POST /v1/topics/orders/groups/audit/verify",
        "POST /v1/topics/orders/groups/audit/stream",
        "POST /v1/topics/orders/cron/hourly/pause",
        "DELETE /v1/topics/orders/cron/hourly",
        "DELETE /v1/topics/orders/messages/m",
        "DELETE /v1/topics/orders/groups/audit",
        "DELETE /v1/topics/orders",
    ];
    for line in changes {
        refused(&dwell, line, r#"{"dry_run": true}"#, 422, "unknown field `dry_run`").await?;
        refused(&dwell, line, "{", 400, "is not JSON").await?;
        let compressed = dwell.request(line)?.header("content-encoding", "gzip").body("x");
        assert_eq!(dwell.send(compressed).await?.status, 415, "{line}");
        let plain = dwell.request(line)?.header("content-type", "text/plain").body("x");
        assert_eq!(dwell.send(plain).await?.status, 415, "{line}");
        for condition in ["if-match", "if-none-match", "if-unmodified-since"] {
            if condition == "if-match" && line == "DELETE /v1/topics/orders" {
                continue;
            }
            let answer = dwell.send(dwell.request(line)?.header(condition, "\"1\"")).await?;
            let detail = answer.body["detail"].as_str().unwrap_or_default();
            assert!(
                answer.status == 422 && detail.contains("is a condition that this request does not check"),
                "{line}: {answer:?}"
            );
        }
    }
    let there = dwell.ask("GET /v1/topics/orders/groups/audit").await?;
    assert_eq!((there.status, &there.body["state"]), (200, &json!("paused")));
    assert_eq!(dwell.ask("GET /v1/topics/orders/cron/hourly").await?.body["state"], "active");
    // `{}` has no fields.
    let resumed = dwell.tell("POST /v1/topics/orders/groups/audit/resume", json!({})).await?;
    assert_eq!(resumed["state"], "active");

    let batch = json!({"messages": [{"payload": "a"}]});
    for (header, value) in
        [("idempotency-key", "k"), ("dwell-delay", "30m"), ("dwell-meta-a", "b"), ("dwell-raw", "true")]
    {
        let request = dwell.request("POST /v1/topics/orders/messages/batch")?.header(header, value);
        let answer = dwell.send(request.header("content-type", "application/json").body(batch.to_string())).await?;
        assert_eq!(
            (answer.status, &answer.body["errors"][0]["code"]),
            (422, &json!("unknown")),
            "{header}: {answer:?}"
        );
    }
    for conflict in ["replace", "debounce", "reject"] {
        let push = format!("POST /v1/topics/orders/messages?conflict={conflict}");
        let answer = dwell.send(dwell.request(&push)?.header("idempotency-key", "k").body("x")).await?;
        assert_eq!((answer.status, &answer.body["errors"][0]["code"]), (422, &json!("exclusive")), "{answer:?}");
    }
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    Ok(())
}
