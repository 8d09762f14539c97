//! Clients of Amazon SQS: requests of both protocols, as SDKs send them, to a served broker on each store.

mod access;
mod dead_letters;
mod fifo;
mod group_queues;
mod hostile;
mod management;
mod messages;
mod outage;
mod random;

use std::time::Duration;

use dwell::api::http::Listen;
use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use dwell::app::server::{Server, ServerOptions};
use dwell::platform::https::{self, Roots};
use dwell::sqs::SqsOptions;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::support::{RedisServer, eventually};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A broker, and a client that speaks to it.
struct Broker {
    _server: Server,
    client: Client,
    base: String,
    _dir: TempDir,
}

/// Where brokers keep their messages.
enum Store {
    Embedded,
    Redis(RedisServer),
}

#[derive(Debug)]
struct Answer {
    status: u16,
    body: Value,
    /// The code of Query, in a header.
    code: Option<String>,
}

/// Makes a test of every story for every store.
macro_rules! stories {
    ($($story:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $story() -> crate::sqs::Outcome {
                super::$story(&crate::sqs::Store::Embedded).await
            })*
        }
        mod redis {
            $(#[tokio::test]
            async fn $story() -> crate::sqs::Outcome {
                super::$story(&crate::sqs::Store::Redis(crate::support::RedisServer::start().await?)).await
            })*
        }
    };
}
use stories;

impl Broker {
    async fn start(store: &Store) -> Outcome<Broker> {
        Broker::start_with(store, |_| {}).await
    }

    async fn start_with(store: &Store, change: impl FnOnce(&mut ServerOptions)) -> Outcome<Broker> {
        let dir = tempdir()?;
        let store = match store {
            Store::Embedded => StoreOptions::Embedded { dir: dir.path().join("store") },
            Store::Redis(server) => StoreOptions::Redis {
                redis: RedisOptions::new(server.url()),
                outage: OutageOptions::new(dir.path().to_owned()),
            },
        };
        let mut options = ServerOptions::new(Listen::ephemeral(), store, dwell::broker::Options::default());
        options.sqs = Some(SqsOptions::default());
        change(&mut options);
        let server = Server::start(options).await?;
        let client = https::client(&Roots::none())?.no_proxy().timeout(Duration::from_secs(60)).build()?;
        Ok(Broker { base: server.url(), _server: server, client, _dir: dir })
    }

    fn request(&self, action: &str, body: &Value) -> RequestBuilder {
        let target = format!("AmazonSQS.{action}");
        let request = self.client.post(&self.base).header("x-amz-target", target);
        request.header("content-type", "application/x-amz-json-1.0").body(body.to_string())
    }

    async fn send(request: RequestBuilder) -> Outcome<Answer> {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let code = headers.get("x-amzn-query-error").map(|code| code.to_str().map(str::to_owned)).transpose()?;
        assert_eq!(headers["content-type"], "application/x-amz-json-1.0");
        assert_eq!(headers["x-amzn-requestid"].len(), 36);
        let bytes = response.bytes().await?;
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes)? };
        Ok(Answer { status, body, code })
    }

    /// The body of an answer that has to be a success.
    async fn tell(&self, action: &str, body: Value) -> Outcome<Value> {
        let answer = Broker::send(self.request(action, &body)).await?;
        assert_eq!(answer.status, 200, "{action}: {answer:?}");
        Ok(answer.body)
    }

    /// Shape, code and text of an answer that has to be an error.
    async fn refused(&self, action: &str, body: Value) -> Outcome<(String, String, String)> {
        let answer = Broker::send(self.request(action, &body)).await?;
        assert!(answer.status >= 400, "{action} {body}: {answer:?}");
        let shape = answer.body["__type"].as_str().and_then(|shape| shape.strip_prefix("com.amazonaws.sqs#"));
        let code = answer.code.as_deref().and_then(|code| code.split(';').next()).unwrap_or_default().to_owned();
        let message = answer.body["message"].as_str().unwrap_or_default().to_owned();
        Ok((shape.unwrap_or_default().to_owned(), code, message))
    }

    /// A queue of that name with these attributes; answers its URL.
    async fn queue(&self, name: &str, attributes: Value) -> Outcome<String> {
        let created = self.tell("CreateQueue", json!({"QueueName": name, "Attributes": attributes})).await?;
        Ok(text(&created["QueueUrl"]))
    }

    /// One message, waiting for it.
    async fn receive(&self, url: &str, more: Value) -> Outcome<Value> {
        let mut ask = json!({"QueueUrl": url, "WaitTimeSeconds": 20});
        if let (Value::Object(ask), Value::Object(more)) = (&mut ask, more) {
            ask.extend(more);
        }
        let answer = self.tell("ReceiveMessage", ask).await?;
        match answer["Messages"].as_array().map(Vec::as_slice) {
            Some([message]) => Ok(message.clone()),
            other => Err(format!("one message was expected: {other:?}").into()),
        }
    }

    /// Waits until so many messages are visible.
    async fn visible(&self, url: &str, messages: u64) -> Outcome {
        let ask = json!({"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessages"]});
        let expected = json!(messages.to_string());
        let count = async || {
            let counts = self.tell("GetQueueAttributes", ask.clone()).await;
            let counts = counts.map_err(|error| dwell::model::error::Error::bug(error.to_string()))?;
            let is_so = counts["Attributes"]["ApproximateNumberOfMessages"] == expected;
            Ok(is_so.then_some(()))
        };
        Ok(eventually("messages are visible", count).await?)
    }

    async fn form(&self, pairs: &[(&str, &str)]) -> Outcome<(u16, String)> {
        let form: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={}", percent(value))).collect();
        let request = self.client.post(&self.base).header("content-type", "application/x-www-form-urlencoded");
        let response = request.body(form.join("&")).send().await?;
        assert_eq!(response.headers()["content-type"], "text/xml");
        Ok((response.status().as_u16(), response.text().await?))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
