//! One message as `application/json` is an envelope; anything else, or what is said to be raw, is the payload itself.

use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use serde_json::{Value, json};

use super::served::{Answer, Outcome, Served};
use crate::support::RedisServer;

const PUSH: &str = "POST /v1/topics/orders/messages";

/// Pushes a body with a content type.
async fn push(dwell: &Served, query: &str, content_type: &str, body: &str) -> Outcome<Answer> {
    let request = dwell.request(&format!("{PUSH}{query}"))?.header("content-type", content_type);
    dwell.send(request.body(body.to_owned())).await
}

/// The next delivery, which is acked.
async fn taken(dwell: &Served) -> Outcome<Value> {
    let delivery = dwell.reserve("orders").await?.first().cloned().ok_or("nothing was delivered")?;
    dwell.tell("POST /v1/topics/orders/groups/default/ack", json!({"receipts": [delivery["receipt"]]})).await?;
    Ok(delivery)
}

async fn json_push_is_an_envelope(dwell: Served) -> Outcome {
    dwell.ask("PUT /v1/topics/orders").await?;
    let envelope = r#"{"payload": "close order 4711", "id": "a", "key": "k", "delay": "1h", "meta": {"x": "1"}}"#;
    let pushed = push(&dwell, "", "application/json; charset=utf-8", envelope).await?;
    assert_eq!((pushed.status, &pushed.body["id"]), (201, &json!("a")), "{pushed:?}");
    assert_eq!(dwell.counts("orders").await?, [1, 0, 0, 0]);
    let found = dwell.ask("GET /v1/topics/orders/messages/a?key=k").await?.body;
    assert_eq!((&found["payload"], &found["meta"]), (&json!("close order 4711"), &json!({"x": "1"})), "{found}");
    assert_eq!(found.get("content_type"), None);

    let document = r#"{"order": 4711, "lines": [1.10, null]}"#;
    let json_payload = format!(r#"{{"payload_json": {document}, "id": "b"}}"#);
    assert_eq!(push(&dwell, "", "application/json", &json_payload).await?.status, 201);
    let delivery = taken(&dwell).await?;
    assert_eq!((&delivery["payload"], &delivery["content_type"]), (&json!(document), &json!("application/json")));

    let other = json!({"payload_json": null, "content_type": "application/vnd.shop+json"}).to_string();
    assert_eq!(push(&dwell, "", "application/json", &other).await?.status, 201);
    let delivery = taken(&dwell).await?;
    assert_eq!(
        (&delivery["payload"], &delivery["content_type"]),
        (&json!("null"), &json!("application/vnd.shop+json"))
    );
    Ok(())
}

#[tokio::test]
async fn json_push_is_an_envelope_in_the_embedded_store() -> Outcome {
    json_push_is_an_envelope(Served::start().await?).await
}

#[tokio::test]
async fn json_push_is_an_envelope_in_redis() -> Outcome {
    let redis = RedisServer::start().await?;
    let dir = crate::support::scratch()?;
    let store = StoreOptions::Redis {
        redis: RedisOptions { timeout: std::time::Duration::from_secs(10), ..RedisOptions::new(redis.url()) },
        outage: OutageOptions::new(dir.path()),
    };
    json_push_is_an_envelope(Served::start_with(|options| options.store = store).await?).await
}

#[tokio::test]
async fn json_document_is_the_payload_when_it_is_raw() -> Outcome {
    let dwell = Served::start().await?;
    let document = r#"{"payload": "not an envelope", "delay": "1h"}"#;
    assert_eq!(push(&dwell, "?raw=true", "application/json", document).await?.status, 201);
    let header = dwell.request(PUSH)?.header("content-type", "application/json").header("Dwell-Raw", "true");
    assert_eq!(dwell.send(header.body(document)).await?.status, 201);
    assert_eq!(push(&dwell, "?raw=true", "application/cloudevents+json", document).await?.status, 201);
    let mut payloads = Vec::new();
    while payloads.len() < 3 {
        payloads.extend(dwell.reserve("orders").await?.into_iter().map(|delivery| delivery["payload"].clone()));
    }
    assert_eq!(payloads, [document; 3]);
    for (query, header) in [("?raw=yes", "false"), ("", "yes")] {
        let wrong = dwell.request(&format!("{PUSH}{query}"))?.header("Dwell-Raw", header).body("x");
        assert_eq!(dwell.send(wrong).await?.status, 422, "{query} {header}");
    }
    Ok(())
}

#[tokio::test]
async fn wrong_envelope_explains_raw_and_stores_nothing() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let hint = "a JSON document as the payload is sent with ?raw=true";
    let cases = [
        ("", r#"{"order": 4711}"#, "`order`: unknown field `order`; there are"),
        ("", "[1]", "an object is expected, not a list"),
        ("?delay=1h", r#"{"payload": "x"}"#, "`delay`: is a field of an envelope"),
        ("", "{}", "`payload`: is missing"),
        ("", r#"{"payload": {"order": 1}}"#, "a string is expected; for JSON use `payload_json`"),
        ("", r#"{"payload": "x", "payload_json": 1}"#, "`payload`: is given in more than one form"),
        ("", r#"{"payload": "x", "delay": 30}"#, "`delay`: 30 has no unit"),
    ];
    for (query, body, said) in cases {
        let answer = push(&dwell, query, "application/json", body).await?;
        assert_eq!(answer.status, 422, "{body}: {answer:?}");
        let detail = answer.body["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(said), "{body}: {detail}");
        assert!(detail.contains(hint) || said.contains("payload"), "{body}: {detail}");
    }
    let meta = dwell.request(PUSH)?.header("Dwell-Meta-X", "1").json(&json!({"payload": "x"}));
    assert_eq!(dwell.send(meta).await?.status, 422);
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    let keyed = dwell.request(PUSH)?.header("Idempotency-Key", "a").json(&json!({"payload": "x"}));
    assert_eq!(dwell.send(keyed).await?.body["id"], "a");
    Ok(())
}

/// What looks like a message with its fields would be due at once, and its delay be lost.
#[tokio::test]
async fn envelope_with_another_content_type_is_refused() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let envelope = r#" {"payload": "x", "delay": "1h"}"#;
    let form = "payload=x&delay=1h";
    let refused = [
        ("text/plain", envelope),
        ("application/x-www-form-urlencoded", envelope),
        ("application/x-www-form-urlencoded", form),
        ("application/vnd.shop+json", r#"{"payload_json": {"a": 1}, "key": 7}"#),
        ("application/octet-stream", envelope),
        (
            "multipart/form-data; boundary=b",
            "--b\r\ncontent-disposition: form-data; name=payload\r\n\r\nx\r\n--b--\r\n",
        ),
    ];
    for (content_type, body) in refused {
        let answer = push(&dwell, "", content_type, body).await?;
        let said = answer.body["detail"].as_str().unwrap_or_default();
        assert!(answer.status == 422 && said.contains("application/json") && said.contains("raw=true"), "{answer:?}");
        assert_eq!(push(&dwell, "?raw=true", content_type, body).await?.status, 201, "{content_type}");
    }
    let payloads = [
        ("text/plain", "x"),
        ("text/plain", "{"),
        ("text/plain", r#"{"payload": "x", "order": 1}"#),
        ("text/plain", r#"{"delay": "1h"}"#),
        ("application/vnd.shop+json", r#"{"order": 4711}"#),
        ("application/x-www-form-urlencoded", "hello"),
        ("application/x-www-form-urlencoded", "order=4711&delay=1h"),
    ];
    for (content_type, body) in payloads {
        assert_eq!(push(&dwell, "", content_type, body).await?.status, 201, "{content_type} {body}");
    }
    assert_eq!(dwell.counts("orders").await?, [0, 13, 0, 0]);
    Ok(())
}

#[tokio::test]
async fn unknown_header_of_dwell_is_refused() -> Outcome {
    let dwell = Served::start().await?;
    for (name, status) in [
        ("Dwell-Delay", 422),
        ("dwell-key", 422),
        ("Dwell-Meta-Delay", 201),
        ("Dwell-Raw", 201),
        ("Dwell-Request-Id", 201),
    ] {
        let request = dwell.request(PUSH)?.header("content-type", "text/plain").header(name, "true").body("x");
        let answer = dwell.send(request).await?;
        assert_eq!(answer.status, status, "{name}: {answer:?}");
    }
    Ok(())
}

#[tokio::test]
async fn content_type_is_a_media_type_and_fits_the_text() -> Outcome {
    let dwell = Served::start().await?;
    assert_eq!(push(&dwell, "", "nonsense", "x").await?.status, 422);
    assert_eq!(push(&dwell, "", "text/plain; charset=latin1", "x").await?.status, 201, "its bytes are kept");
    for (fields, status) in [
        (json!({"payload": "x", "content_type": "text"}), 422),
        (json!({"payload": "x", "content_type": "text/plain; charset=latin1"}), 422),
        (json!({"payload_base64": "6Q==", "content_type": "text/plain; charset=latin1"}), 201),
        (json!({"payload": "x", "content_type": "text/plain; charset=UTF-8"}), 201),
    ] {
        let answer = push(&dwell, "", "application/json", &fields.to_string()).await?;
        assert_eq!(answer.status, status, "{fields}: {answer:?}");
    }
    Ok(())
}

#[tokio::test]
async fn encoded_body_is_refused() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    for line in [PUSH, "POST /v1/topics/orders/messages/batch", "POST /v1/topics/orders/groups/default/reserve"] {
        for encoding in ["gzip", "identity, gzip", "br"] {
            let request = dwell.request(line)?.header("Content-Encoding", encoding).body("x");
            let answer = dwell.send(request).await?;
            assert_eq!(answer.status, 415, "{line} {encoding}: {answer:?}");
            assert!(answer.body["detail"].as_str().is_some_and(|detail| detail.contains("Content-Encoding")));
        }
    }
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    let request = dwell.request(PUSH)?.header("Content-Encoding", "Identity").body("x");
    assert_eq!(dwell.send(request).await?.status, 201);
    Ok(())
}

#[tokio::test]
async fn json_answer_ends_with_a_newline() -> Outcome {
    let dwell = Served::start().await?;
    dwell.send(dwell.request(PUSH)?.body("x")).await?;
    let group = "/v1/topics/orders/groups/default";
    let lines = ["GET /livez", "GET /v1/topics", "GET /v1/topics/orders", "GET /nothing", "GET /v1/topics/absent"];
    let lists = [format!("GET {group}/dead-letters"), format!("POST {group}/reserve"), format!("{PUSH}?delay=30")];
    for line in lines.map(str::to_owned).into_iter().chain(lists) {
        let answer = dwell.driven(dwell.request(&line)?.send()).await??.text().await?;
        assert!(answer.ends_with("}\n"), "{line}: {answer:?}");
    }
    Ok(())
}

#[tokio::test]
async fn get_on_stream_reserves_nothing_and_names_the_method() -> Outcome {
    let dwell = Served::start().await?;
    dwell.send(dwell.request(PUSH)?.body("x")).await?;
    let stream = "GET /v1/topics/orders/groups/default/stream?max_in_flight=10";
    let answer = dwell.driven(dwell.request(stream)?.send()).await??;
    let allow = answer.headers().get("allow").and_then(|value| value.to_str().ok()).map(str::to_owned);
    assert_eq!((answer.status().as_u16(), allow.as_deref()), (405, Some("POST")));
    let said = answer.text().await?;
    assert!(said.contains("a stream takes messages, so it is opened with POST"), "{said}");
    assert_eq!(dwell.counts("orders").await?, [0, 1, 0, 0]);
    Ok(())
}
