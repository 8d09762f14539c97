//! Topics that do not exist yet: a push says that it created one, and a consumer may come first.

use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use serde_json::json;

use super::served::{Outcome, Served};
use crate::support::RedisServer;

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

async fn consumer_that_comes_first_creates_the_topic(dwell: Served) -> Outcome {
    let reserve = dwell.tell("POST /v1/topics/orders/groups/default/reserve", json!({})).await?;
    assert_eq!(reserve, json!({"deliveries": []}));
    let pushed = dwell.send(dwell.request("POST /v1/topics/orders/messages")?.body("x")).await?;
    assert_eq!((pushed.status, pushed.body.get("topic_created")), (201, None));
    assert_eq!(dwell.reserve("orders").await?.len(), 1);
    let stream = dwell.driven(dwell.request("POST /v1/topics/mails/groups/default/stream")?.send()).await??;
    assert_eq!(stream.status().as_u16(), 200);
    drop(stream);
    assert_eq!(dwell.ask("GET /v1/topics").await?.body, json!({"topics": ["mails", "orders"]}));
    // A request that is wrong creates nothing, and a group is created by its own request only.
    let wrong =
        dwell.request("POST /v1/topics/absent/groups/default/reserve")?.json(&json!({"visibility_timeout": "1ms"}));
    assert_eq!(dwell.send(wrong).await?.status, 422);
    assert_eq!(dwell.ask("POST /v1/topics/absent/groups/default/stream?visibility_timeout=1ms").await?.status, 422);
    assert_eq!(dwell.ask("POST /v1/topics/absent/groups/audit/reserve").await?.status, 404);
    assert_eq!(dwell.ask("GET /v1/topics/absent").await?.status, 404);
    Ok(())
}

/// A broker over a Redis of its own.
async fn on_redis(redis: &RedisServer, dir: &std::path::Path) -> Outcome<Served> {
    let store = StoreOptions::Redis {
        redis: RedisOptions { timeout: std::time::Duration::from_secs(10), ..RedisOptions::new(redis.url()) },
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
async fn first_consumer_creates_the_topic_in_the_embedded_store() -> Outcome {
    consumer_that_comes_first_creates_the_topic(Served::start().await?).await
}

#[tokio::test]
async fn first_consumer_creates_the_topic_in_redis() -> Outcome {
    let (redis, dir) = (RedisServer::start().await?, crate::support::scratch()?);
    consumer_that_comes_first_creates_the_topic(on_redis(&redis, dir.path()).await?).await
}

#[tokio::test]
async fn consumer_does_not_create_a_topic_without_auto_create() -> Outcome {
    let dwell = Served::start_with(|options| options.broker.auto_create = false).await?;
    assert_eq!(dwell.ask("POST /v1/topics/orders/groups/default/reserve").await?.status, 404);
    assert_eq!(dwell.ask("POST /v1/topics/orders/groups/default/stream").await?.status, 404);
    assert_eq!(dwell.ask("GET /v1/topics").await?.body, json!({"topics": []}));
    Ok(())
}
