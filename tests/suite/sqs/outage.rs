//! SQS clients while Redis is away or does not answer: what was accepted is received, and what was deleted does not come again.

use std::time::Duration;

use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use super::{Broker, Outcome, Store, text};
use crate::support::{Proxy, RedisServer, Strike, eventually};

/// How long a call to Redis may take.
const TIMEOUT: Duration = Duration::from_secs(1);

struct Story {
    redis: RedisServer,
    proxy: Proxy,
    dwell: Broker,
    url: String,
    _dir: TempDir,
}

impl Story {
    async fn begin(attributes: Value) -> Outcome<Story> {
        let (redis, dir) = (RedisServer::durable().await?, tempdir()?);
        let proxy = Proxy::before(&redis)?;
        let redis_options = RedisOptions { timeout: TIMEOUT, ..RedisOptions::new(proxy.url()) };
        let outage = OutageOptions::new(dir.path().to_owned());
        let dwell = Broker::start_with(&Store::Embedded, |options| {
            options.store = StoreOptions::Redis { redis: redis_options, outage };
        })
        .await?;
        let name = if attributes["FifoQueue"] == "true" { "orders.fifo" } else { "orders" };
        let url = dwell.queue(name, attributes).await?;
        Ok(Story { redis, proxy, dwell, url, _dir: dir })
    }

    async fn send(&self, more: Value) -> Outcome<Value> {
        let mut message = json!({"QueueUrl": self.url, "MessageBody": "x"});
        if let (Value::Object(message), Value::Object(more)) = (&mut message, more) {
            message.extend(more);
        }
        self.dwell.tell("SendMessage", message).await
    }

    /// Receives one message, deletes it, and finds nothing more.
    async fn gets(&self, sent: &Value) -> Outcome {
        let received = self.dwell.receive(&self.url, json!({})).await?;
        assert_eq!(received["MessageId"], sent["MessageId"]);
        self.delete(&received).await?;
        self.is_empty().await
    }

    async fn delete(&self, received: &Value) -> Outcome<Value> {
        let handle = text(&received["ReceiptHandle"]);
        self.dwell.tell("DeleteMessage", json!({"QueueUrl": self.url, "ReceiptHandle": handle})).await
    }

    async fn is_empty(&self) -> Outcome {
        let ask = json!({"QueueUrl": self.url, "AttributeNames": ["All"]});
        let empty = async || {
            let asked = Broker::send(self.dwell.request("GetQueueAttributes", &ask)).await;
            let counts = asked.map_err(|error| dwell::model::error::Error::bug(error.to_string()))?.body;
            let is_zero = |kind| counts["Attributes"][format!("ApproximateNumberOfMessages{kind}")] == "0";
            Ok(["", "NotVisible"].into_iter().all(is_zero).then_some(()))
        };
        eventually("nothing is left", empty).await?;
        let none = self.dwell.tell("ReceiveMessage", json!({"QueueUrl": self.url, "WaitTimeSeconds": 1})).await?;
        assert_eq!(none, json!({}));
        Ok(())
    }
}

#[tokio::test]
async fn message_sent_during_an_outage_is_received_once() -> Outcome {
    let mut story = Story::begin(json!({})).await?;
    story.redis.kill()?;
    let sent = story.send(json!({})).await?;
    story.redis.restart().await?;
    story.gets(&sent).await
}

#[tokio::test]
async fn fifo_message_resent_during_an_outage_is_received_once() -> Outcome {
    let mut story = Story::begin(json!({"FifoQueue": "true"})).await?;
    story.redis.kill()?;
    let more = json!({"MessageGroupId": "g", "MessageDeduplicationId": "d"});
    let first = story.send(more.clone()).await?;
    story.send(more).await?;
    story.redis.restart().await?;
    story.gets(&first).await
}

#[tokio::test]
async fn send_with_a_lost_reply_is_received_once() -> Outcome {
    for strike in [Strike::Reply, Strike::Request] {
        let story = Story::begin(json!({})).await?;
        story.proxy.next(strike);
        let sent = story.send(json!({})).await?;
        story.gets(&sent).await?;
    }
    Ok(())
}

#[tokio::test]
async fn delete_with_a_lost_reply_is_applied() -> Outcome {
    let story = Story::begin(json!({})).await?;
    story.send(json!({})).await?;
    let received = story.dwell.receive(&story.url, json!({})).await?;
    story.proxy.next(Strike::Reply);
    story.delete(&received).await?;
    story.is_empty().await
}
