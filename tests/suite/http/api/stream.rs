//! Deliveries as a stream, over real connections.

use std::collections::HashSet;

use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use reqwest::Response;
use serde_json::{Value, json};

use super::served::{Outcome, Served};
use crate::support::RedisServer;

const GROUP: &str = "/v1/topics/orders/groups/default";

/// The lines of a stream, as they come.
struct Lines {
    response: Response,
    rest: Vec<u8>,
}

impl Lines {
    async fn open(dwell: &Served, query: &str) -> Outcome<Lines> {
        let response = dwell.request(&format!("POST {GROUP}/stream{query}"))?.send().await?;
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        Ok(Lines { response, rest: Vec::new() })
    }

    /// The next line as it is, `None` at the end of the stream.
    async fn line(&mut self) -> Outcome<Option<String>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let rest = self.rest.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.rest, rest);
                line.pop();
                return Ok(Some(String::from_utf8(line)?));
            }
            match self.response.chunk().await? {
                Some(chunk) => self.rest.extend_from_slice(&chunk),
                None if self.rest.is_empty() => return Ok(None),
                None => return Err("the stream ends within a line".into()),
            }
        }
    }

    async fn delivery(&mut self) -> Outcome<Value> {
        let line = self.line().await?.ok_or("the stream has ended")?;
        Ok(serde_json::from_str(&line)?)
    }
}

async fn push(dwell: &Served, id: &str) -> Outcome {
    let pushed = dwell.send(dwell.request(&format!("POST /v1/topics/orders/messages?id={id}"))?.body("x")).await?;
    assert_eq!(pushed.status, 201);
    Ok(())
}

#[tokio::test]
async fn stream_line_equals_a_reserve_item_and_ack_frees_its_slot() -> Outcome {
    let dwell = Served::start().await?;
    push(&dwell, "a").await?;
    push(&dwell, "b").await?;
    let mut lines = Lines::open(&dwell, "?max_in_flight=1&visibility_timeout=10m").await?;
    let first = lines.delivery().await?;
    assert_eq!((&first["attempt"], &first["payload"]), (&json!(1), &json!("x")));
    // Nothing but silence, every 15 s, until the first is settled.
    for _ in 0..3 {
        let before = dwell.now();
        assert_eq!(dwell.driven(lines.line()).await??.as_deref(), Some(""));
        assert!(dwell.now().since(before).as_secs() <= 15);
    }
    let ack = json!({"receipts": [first["receipt"]]});
    assert_eq!(dwell.tell(&format!("POST {GROUP}/ack"), ack).await?["results"][0]["status"], "acked");
    let second = lines.delivery().await?;
    assert_ne!(first["id"], second["id"]);
    drop(lines);
    let again = dwell.reserve("orders").await?.remove(0);
    assert_eq!((&again["id"], &again["attempt"]), (&second["id"], &json!(2)));
    let names = |delivery: &Value| delivery.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(&second), names(&again));
    Ok(())
}

#[tokio::test]
async fn deliveries_of_a_disconnected_client_return_at_once() -> Outcome {
    let dwell = Served::start().await?;
    push(&dwell, "a").await?;
    let before = dwell.now();
    // While it waits for a line, and while it waits for a place.
    for (attempt, query) in [(1, ""), (2, "?max_in_flight=1")] {
        let mut lines = Lines::open(&dwell, query).await?;
        assert_eq!(lines.delivery().await?["attempt"], attempt);
    }
    let mut lines = Lines::open(&dwell, "").await?;
    assert_eq!(lines.delivery().await?["attempt"], 3);
    assert_eq!(dwell.now(), before, "no time has passed");
    Ok(())
}

#[tokio::test]
async fn stop_ends_a_stream_and_waits_for_its_deliveries() -> Outcome {
    let dwell = Served::start().await?;
    push(&dwell, "a").await?;
    push(&dwell, "b").await?;
    let mut lines = Lines::open(&dwell, "?max_in_flight=1").await?;
    let delivery = lines.delivery().await?;
    let ack = dwell.request(&format!("POST {GROUP}/ack"))?.json(&json!({"receipts": [delivery["receipt"]]}));
    let consumer = async {
        assert_eq!(lines.line().await?, None);
        Outcome::Ok(ack.send().await?.json::<Value>().await?["results"][0]["status"].clone())
    };
    let (stopped, acked) = tokio::join!(dwell.server.stop(), consumer);
    stopped?;
    assert_eq!(acked?, "acked");
    Ok(())
}

#[tokio::test]
async fn a_deleted_topic_ends_its_streams() -> Outcome {
    let dwell = Served::start().await?;
    push(&dwell, "a").await?;
    let mut lines = Lines::open(&dwell, "").await?;
    lines.delivery().await?;
    assert_eq!(dwell.ask("DELETE /v1/topics/orders").await?.status, 204);
    assert_eq!(lines.line().await?, None);
    Ok(())
}

#[tokio::test]
async fn invalid_stream_request_is_explained() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let cases = [
        ("?max_in_flight=0", 422, "`max_in_flight`: \"0\" is not a whole number in 1 to 1000"),
        ("?max_in_flight=1001", 422, "`max_in_flight`"),
        ("?visibility_timeout=99ms", 422, "`visibility_timeout`: 99ms is not in 100ms to 12h"),
        ("?max=1", 422, "`max`: is not a parameter; there are max_in_flight, visibility_timeout"),
    ];
    for (query, status, said) in cases {
        let answer = dwell.ask(&format!("POST {GROUP}/stream{query}")).await?;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
        assert!(answer.body["detail"].as_str().is_some_and(|detail| detail.contains(said)), "{query}: {answer:?}");
    }
    assert_eq!(dwell.ask("POST /v1/topics/orders/groups/other/stream").await?.status, 404);
    let body = dwell.request(&format!("POST {GROUP}/stream"))?.json(&json!({"max_in_flight": 5}));
    assert_eq!(dwell.send(body).await?.status, 422);
    Ok(())
}

/// Fewer without optimizations, so that the suite stays short.
const MESSAGES: usize = if cfg!(debug_assertions) { 10_000 } else { 50_000 };

/// Two clients share many messages; one of them goes away half-way with its hands full.
async fn nothing_is_lost_when_a_client_goes_away(dwell: Served) -> Outcome {
    for page in 0..MESSAGES / 1_000 {
        let message = |n| json!({"payload": "x", "id": format!("m{}", page * 1_000 + n)});
        let batch = json!({"messages": (0..1_000).map(message).collect::<Vec<_>>()});
        dwell.tell("POST /v1/topics/orders/messages/batch", batch).await?;
    }
    let (mut stays, mut leaves) = (Lines::open(&dwell, "").await?, Some(Lines::open(&dwell, "").await?));
    let (mut acked, mut again) = (HashSet::new(), 0);
    let mut unsettled = Vec::new();
    while acked.len() < MESSAGES {
        if acked.len() >= MESSAGES / 2
            && let Some(mut lines) = leaves.take()
        {
            lines.delivery().await?;
        }
        if let Some(lines) = leaves.as_mut() {
            unsettled.push(lines.delivery().await?);
        }
        unsettled.push(stays.delivery().await?);
        if unsettled.len() >= 50 || acked.len() + unsettled.len() >= MESSAGES {
            let receipts: Vec<_> = unsettled.iter().map(|delivery| &delivery["receipt"]).collect();
            let verdicts = dwell.tell(&format!("POST {GROUP}/ack"), json!({ "receipts": receipts })).await?;
            for (delivery, verdict) in unsettled.drain(..).zip(verdicts["results"].as_array().ok_or("no results")?) {
                if verdict["status"] == "acked" {
                    again += usize::from(delivery["attempt"] != 1);
                    assert!(acked.insert(delivery["id"].to_string()), "{delivery}");
                }
            }
        }
    }
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    // What the client had in hand came again, and nothing else.
    assert!((1..=100).contains(&again), "{again}");
    Ok(())
}

#[tokio::test]
async fn stream_backlog_survives_a_client_in_the_embedded_store() -> Outcome {
    nothing_is_lost_when_a_client_goes_away(Served::start().await?).await
}

#[tokio::test]
async fn stream_backlog_survives_a_client_in_redis() -> Outcome {
    let redis = RedisServer::start().await?;
    let dir = crate::support::scratch()?;
    let store = StoreOptions::Redis {
        redis: RedisOptions { timeout: std::time::Duration::from_secs(10), ..RedisOptions::new(redis.url()) },
        outage: OutageOptions::new(dir.path()),
    };
    nothing_is_lost_when_a_client_goes_away(Served::start_with(|options| options.store = store).await?).await
}
