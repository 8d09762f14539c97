//! How the load reaches a broker: as a library, or over HTTP. Both take the same calls.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use crate::broker::{Broker, ReserveRequest};
use crate::cli::api::{Declaration, Reserve};
use crate::cli::client::{Client, GroupOf, Query};
use crate::cli::failure::Failure;
use crate::delivery::Decision;
use crate::model::message::{GroupName, NewMessage, TopicName};
use crate::model::time::Timestamp;
use crate::model::topic::Settings;

/// A way into a broker.
#[derive(Clone)]
pub(super) enum Target {
    /// In this process.
    Library(Broker),
    /// Over a socket.
    Http(Client),
}

/// A delivery, as far as a bench looks at it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Taken {
    pub(super) receipt: String,
    pub(super) due_at: Timestamp,
}

/// A message of a batch over HTTP.
#[derive(Serialize)]
struct Item<'a> {
    payload: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Timestamp>,
}

/// What is pushed: when it is due, at once if nothing is said, and with which key.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) due_at: Option<Timestamp>,
    pub(super) key: Option<&'static str>,
}

impl Wanted {
    fn message(self, payload: &str) -> Result<NewMessage, Failure> {
        let mut message = NewMessage::new(payload.to_owned());
        message.key = self.key.map(crate::model::message::Key::new).transpose()?;
        Ok(match self.due_at {
            Some(due_at) => message.at(due_at),
            None => message,
        })
    }
}

impl Target {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Target::Library(_) => "library",
            Target::Http(_) => "HTTP",
        }
    }

    pub(super) async fn declare(&self, topic: &TopicName, partitions: NonZeroU16) -> Result<(), Failure> {
        match self {
            Target::Library(broker) => {
                broker.declare(topic.clone(), Settings { partitions, ..Settings::default() }).await?;
            }
            Target::Http(client) => {
                let settings = Declaration { partitions: Some(partitions.get()), ..Declaration::default() };
                client.declare(topic, &settings).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn delete(&self, topic: &TopicName) -> Result<(), Failure> {
        match self {
            Target::Library(broker) => Ok(broker.delete_topic(topic).await?),
            Target::Http(client) => Ok(client.delete_topic(topic).await?),
        }
    }

    /// Pushes one message by itself. # Errors: also when it was not stored.
    pub(super) async fn push(&self, topic: &TopicName, payload: &str, wanted: Wanted) -> Result<(), Failure> {
        let message = wanted.message(payload)?;
        match self {
            Target::Library(broker) => broker.push(topic, message).await.map(drop).map_err(Failure::from),
            Target::Http(client) => {
                let mut query = Query::default();
                query.0.extend(wanted.due_at.map(|due_at| ("due_at", due_at.as_ms().to_string())));
                query.0.extend(wanted.key.map(|key| ("key", key.to_owned())));
                let pushed = client.push(topic, message, &query).await?;
                pushed.is_accepted().then_some(()).ok_or_else(|| Failure::new(format!("a push was {}", pushed.status)))
            }
        }
    }

    /// Pushes messages in one request. # Errors: also when one was not stored.
    pub(super) async fn push_batch(&self, topic: &TopicName, payload: &str, wanted: &[Wanted]) -> Result<(), Failure> {
        match self {
            Target::Library(broker) => {
                let messages = wanted.iter().map(|wanted| wanted.message(payload)).collect::<Result<_, _>>()?;
                let outcomes = broker.push_batch(topic, messages).await?;
                outcomes.into_iter().find_map(Result::err).map_or(Ok(()), |error| Err(error.into()))
            }
            Target::Http(client) => {
                let item = |wanted: &Wanted| Item { payload, key: wanted.key, due_at: wanted.due_at };
                let items: Vec<_> = wanted.iter().map(item).collect();
                let pushed = client.push_batch(topic, &items).await?;
                let refused = pushed.iter().find(|pushed| !pushed.is_accepted());
                refused.map_or(Ok(()), |refused| Err(Failure::new(format!("a push was {}", refused.status))))
            }
        }
    }

    /// Takes deliveries, or waits for the first one.
    pub(super) async fn reserve(
        &self,
        topic: &TopicName,
        max: usize,
        wait: std::time::Duration,
    ) -> Result<Vec<Taken>, Failure> {
        match self {
            Target::Library(broker) => {
                let request = ReserveRequest { max, wait, visibility_timeout: None };
                let deliveries = broker.reserve(topic, &GroupName::standard(), request).await?;
                let taken = deliveries.into_iter();
                Ok(taken.map(|d| Taken { receipt: d.receipt.to_string(), due_at: d.message.due_at }).collect())
            }
            Target::Http(client) => {
                let request = Reserve { max, wait, visibility_timeout: None, min_age: None };
                Ok(client.reserve_as(&of(topic), &request).await?)
            }
        }
    }

    /// Acks. # Errors: also when one was not acked.
    pub(super) async fn ack(&self, topic: &TopicName, taken: Vec<Taken>) -> Result<(), Failure> {
        let refused = match self {
            Target::Library(broker) => {
                let decisions = taken.into_iter().map(|taken| (taken.receipt, Decision::Ack)).collect();
                let verdicts = broker.settle(topic, &GroupName::standard(), decisions).await?;
                verdicts.iter().map(|verdict| verdict.name()).find(|name| *name != "acked").map(str::to_owned)
            }
            Target::Http(client) => {
                let receipts: Vec<_> = taken.into_iter().map(|taken| taken.receipt).collect();
                let verdicts = client.ack(&of(topic), &receipts).await?;
                verdicts.into_iter().map(|verdict| verdict.status).find(|status| status != "acked")
            }
        };
        refused.map_or(Ok(()), |status| Err(Failure::new(format!("an ack was {status}"))))
    }
}

fn of(topic: &TopicName) -> GroupOf {
    GroupOf { topic: topic.clone(), group: GroupName::standard() }
}
