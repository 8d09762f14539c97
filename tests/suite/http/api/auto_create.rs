//! Topics that do not exist yet: a push says that it created one, and a consumer waits for it.

use std::time::Duration;

use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use serde_json::{Value, json};

use super::served::{Outcome, Served};
use crate::support::RedisServer;

const RESERVE: &str = "POST /v1/topics/orders/groups/default/reserve";

async fn push_says_that_it_created_the_topic(dwell: Served) -> Outcome {
    let push =
        async |topic: &str| dwell.send(dwell.request(&format!("POST /v1/topics/{topic}/messages"))?.body("x")).await;
    let first = push("ordres").await?;
    assert_eq!((first.status, &first.body["topic_created"]), (201, &json!(true)), "{first:?}");
    assert_eq!(push("ordres").await?.body.get("topic_created"), None);
    let batch = json!({"messages": [{"payload": "a"}, {"payload": "b"}]});
    let answer = dwell.tell("POST /v1/topics/other/messages/batch", batch.clone()).await?;
    assert_eq!(answer["topic_created"], true, "{answer}");
    assert_eq!(answer["results"][0].get("topic_created"), None, "{answer}");
    assert_eq!(dwell.tell("POST /v1/topics/other/messages/batch", batch).await?.get("topic_created"), None);
    Ok(())
}

/// A request of a consumer, and a push that creates its topic while it waits.
async fn consumer_that_comes_first_waits_for_the_topic(dwell: Served) -> Outcome {
    let unknown = dwell.ask(RESERVE).await?;
    assert_eq!((unknown.status, &unknown.body["missing"]), (404, &json!({"topic": "orders"})), "{unknown:?}");
    let began = dwell.now();
    assert_eq!(dwell.send(dwell.request(RESERVE)?.json(&json!({"wait": "20s"}))).await?.status, 404);
    assert!(dwell.now().since(began) >= Duration::from_secs(20));
    assert_eq!(dwell.ask("GET /v1/topics").await?.body, json!({"topics": []}));

    let waits = dwell.request(RESERVE)?.json(&json!({"wait": "60s"})).send();
    let push = async {
        let stream = dwell.request("POST /v1/topics/orders/groups/default/stream")?.send().await?;
        Outcome::Ok((stream, dwell.request("POST /v1/topics/orders/messages")?.body("x").send().await?))
    };
    let (served, pushed) = dwell.driven(async { tokio::join!(waits, push) }).await?;
    let (mut stream, pushed) = pushed?;
    assert_eq!(pushed.json::<Value>().await?["topic_created"], true);
    let served: Value = served?.json().await?;
    // One of the two has the message.
    if served["deliveries"].as_array().is_some_and(Vec::is_empty) {
        let mut line = Vec::new();
        while line.is_empty() || line == b"\n" {
            line = dwell.driven(stream.chunk()).await??.ok_or("no line")?.to_vec();
        }
        assert!(String::from_utf8_lossy(&line).contains("receipt"), "{line:?}");
    }

    // A topic that is there is not waited for, to get a group.
    let wait = json!({"wait": "60s"});
    let other = dwell.request("POST /v1/topics/orders/groups/audit/reserve")?.json(&wait);
    let (began, other) = (dwell.now(), dwell.send(other).await?);
    assert_eq!((other.status, &other.body["missing"]["group"]), (404, &json!("audit")), "{other:?}");
    assert!(dwell.now().since(began) < Duration::from_secs(30));
    Ok(())
}

/// A broker over a Redis of its own.
async fn on_redis(redis: &RedisServer, dir: &std::path::Path) -> Outcome<Served> {
    let store = StoreOptions::Redis {
        redis: RedisOptions { timeout: Duration::from_secs(10), ..RedisOptions::new(redis.url()) },
        outage: OutageOptions::new(dir),
    };
    Served::start_with(|options| options.store = store).await
}

#[tokio::test]
async fn push_reports_topic_creation_in_the_embedded_store() -> Outcome {
    push_says_that_it_created_the_topic(Served::start().await?).await
}

#[tokio::test]
async fn push_reports_topic_creation_in_redis() -> Outcome {
    let (redis, dir) = (RedisServer::start().await?, crate::support::scratch()?);
    push_says_that_it_created_the_topic(on_redis(&redis, dir.path()).await?).await
}

#[tokio::test]
async fn consumer_waits_for_its_topic_in_the_embedded_store() -> Outcome {
    consumer_that_comes_first_waits_for_the_topic(Served::start().await?).await
}

#[tokio::test]
async fn consumer_waits_for_its_topic_in_redis() -> Outcome {
    let (redis, dir) = (RedisServer::start().await?, crate::support::scratch()?);
    consumer_that_comes_first_waits_for_the_topic(on_redis(&redis, dir.path()).await?).await
}

#[tokio::test]
async fn declared_topic_serves_consumers_that_came_before_it() -> Outcome {
    let dwell = Served::start_with(|options| options.broker.auto_create = false).await?;
    let mut stream = dwell.driven(dwell.request("POST /v1/topics/orders/groups/audit/stream")?.send()).await??;
    assert_eq!(stream.status().as_u16(), 200);
    assert_eq!(
        dwell.driven(stream.chunk()).await??.as_deref(),
        Some(&b"\n"[..]),
        "an empty line shows that it is open"
    );
    assert_eq!(dwell.ask("GET /v1/topics").await?.body, json!({"topics": []}));
    let waits = dwell.request(RESERVE)?.json(&json!({"wait": "60s"})).send();
    let declare = dwell.request("PUT /v1/topics/orders")?.json(&json!({})).send();
    let (served, declared) = dwell.driven(async { tokio::join!(waits, declare) }).await?;
    assert_eq!(declared?.status().as_u16(), 201);
    assert_eq!(
        served?.json::<Value>().await?,
        json!({"deliveries": [], "visibility_timeout_ms": 30_000}),
        "it waits for a message, until its wait ends"
    );
    // The topic has no group of that name: the client asks again and is told so.
    while let Some(line) = dwell.driven(stream.chunk()).await?? {
        assert_eq!(line.as_ref(), b"\n");
    }
    assert_eq!(dwell.ask("POST /v1/topics/orders/groups/audit/stream").await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn stop_ends_the_wait_for_a_topic() -> Outcome {
    let dwell = Served::start().await?;
    let waits = dwell.request(RESERVE)?.json(&json!({"wait": "60s"})).send();
    let stop = async {
        // Once the request is there.
        let waits = async || dwell.ask("GET /readyz").await.map(|_| ());
        waits().await?;
        dwell.server.stop().await?;
        Outcome::Ok(())
    };
    let (answered, stopped) = tokio::join!(waits, stop);
    stopped?;
    assert_eq!(answered?.status().as_u16(), 503);
    Ok(())
}
