//! dwell from outside, over HTTP, or inside this process.

use std::time::Duration;

use dwell::broker::{Options, ReserveRequest};
use dwell::dispatch::{Decision, Verdict};
use dwell::embed::Dwell;
use dwell::engine::{FailoverOptions, RedisOptions, StoreOptions};
use dwell::message::{GroupName, NewMessage, TopicName};
use dwell::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::measures::{Peer, Result, Taken};

/// How long a consumer waits before it asks again.
const WAIT: Duration = Duration::from_millis(500);

pub(crate) enum Side {
    Http { client: reqwest::Client, url: String },
    Library { dwell: Dwell, topic: TopicName, group: GroupName },
}

impl Side {
    /// `http` or `library`.
    pub(crate) async fn open(mode: &str) -> Result<Side> {
        if mode == "http" {
            let url = format!("http://127.0.0.1:{}/v1/topics/bench", std::env::var("PORT")?);
            let client = reqwest::Client::builder().no_proxy().build()?;
            client.put(&url).json(&json!({})).send().await?.error_for_status()?;
            return Ok(Side::Http { client, url });
        }
        let dir = std::path::PathBuf::from(std::env::var("DATA")?).join("dwell");
        let url = format!("redis://127.0.0.1:{}", std::env::var("REDIS_PORT")?);
        let store = StoreOptions::Redis { redis: RedisOptions::new(url), failover: FailoverOptions::new(dir) };
        let dwell = Dwell::open(store, Options::default()).await?;
        let topic = TopicName::new("bench")?;
        dwell.broker().declare(topic.clone(), dwell.broker().topic_defaults().clone()).await?;
        Ok(Side::Library { dwell, topic, group: GroupName::new("default")? })
    }
}

impl Peer for Side {
    fn batch(&self) -> usize {
        match self {
            Side::Http { .. } => 100,
            Side::Library { .. } => 500,
        }
    }

    fn callers(&self) -> usize {
        match self {
            Side::Http { .. } => 8,
            Side::Library { .. } => 4,
        }
    }

    async fn push(&self, _: usize, messages: Vec<(u64, String)>) -> Result<()> {
        match self {
            Side::Http { client, url } => {
                let one = |(due, payload): &(u64, String)| json!({"payload": payload, "due_at": due});
                let body = json!({"messages": messages.iter().map(one).collect::<Vec<_>>()});
                let answer = client.post(format!("{url}/messages/batch")).json(&body).send().await?;
                let status = answer.status();
                let text = answer.text().await?;
                if status.as_u16() != 201 {
                    return Err(format!("a push was answered {status}: {text}").into());
                }
            }
            Side::Library { dwell, topic, .. } => {
                let one = |(due, payload)| NewMessage::new(payload).at(Timestamp::from_ms(due));
                let messages = messages.into_iter().map(one).collect();
                for outcome in dwell.broker().push_batch(topic, messages).await? {
                    outcome?;
                }
            }
        }
        Ok(())
    }

    async fn take(&self, _: usize) -> Result<Vec<Taken>> {
        match self {
            Side::Http { client, url } => {
                #[derive(Deserialize)]
                struct Answer {
                    deliveries: Vec<Taken>,
                }
                let body = json!({"max": self.batch(), "wait": WAIT.as_millis() as u64});
                let answer = client.post(format!("{url}/groups/default/reserve")).json(&body).send().await?;
                Ok(answer.error_for_status()?.json::<Answer>().await?.deliveries)
            }
            Side::Library { dwell, topic, group } => {
                let request = ReserveRequest { max: self.batch(), wait: WAIT, visibility_timeout: None };
                let deliveries = dwell.broker().reserve(topic, group, request).await?;
                let one = |delivery: dwell::dispatch::Delivery| Taken {
                    receipt: delivery.receipt.to_string(),
                    payload: String::from_utf8_lossy(&delivery.message.envelope.payload).into_owned(),
                };
                Ok(deliveries.into_iter().map(one).collect())
            }
        }
    }

    async fn ack(&self, _: usize, taken: Vec<Taken>) -> Result<usize> {
        let receipts: Vec<String> = taken.into_iter().map(|taken| taken.receipt).collect();
        match self {
            Side::Http { client, url } => {
                let body = json!({ "receipts": receipts });
                let answer = client.post(format!("{url}/groups/default/ack")).json(&body).send().await?;
                let answer: Value = answer.error_for_status()?.json().await?;
                let results = answer["results"].as_array().ok_or("no results")?;
                Ok(results.iter().filter(|result| result["status"] == "acked").count())
            }
            Side::Library { dwell, topic, group } => {
                let decisions = receipts.into_iter().map(|receipt| (receipt, Decision::Ack)).collect();
                let verdicts = dwell.broker().settle(topic, group, decisions).await?;
                Ok(verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Acked)).count())
            }
        }
    }
}
