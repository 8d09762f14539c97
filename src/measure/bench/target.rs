//! How the load reaches a broker: as a library, or over HTTP. Both take the same calls. And the
//! load itself.

use std::cell::Cell;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell_client::{Ack, Error, Reserve, TopicSettings};
use futures_util::future::{self, Either, try_join_all};
use tokio_util::sync::CancellationToken;

use crate::broker::{Broker, ReserveRequest};
use crate::cli::failure::Failure;
use crate::cli::remote::{At as _, Remote};
use crate::delivery::Decision;
use crate::model::message::{GroupName, Key, NewMessage, TopicName};
use crate::model::spelling::counted;
use crate::model::time::Timestamp;
use crate::model::topic::Settings;
use crate::platform::clock::{Clock, Instant};

#[derive(Clone)]
pub(super) enum Target {
    Library(Box<Broker>),
    Http(Remote),
}

#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) receipt: String,
    pub(super) due_at: Timestamp,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted<'a> {
    pub(super) due_at: Option<Timestamp>,
    pub(super) key: Option<&'a str>,
}

impl Wanted<'_> {
    fn message(self, payload: &str) -> Result<NewMessage, Failure> {
        let mut message = NewMessage::new(payload.to_owned());
        message.key = self.key.map(Key::new).transpose()?;
        Ok(match self.due_at {
            Some(due_at) => message.at(due_at),
            None => message,
        })
    }

    fn to_send(self, payload: &str) -> dwell_client::NewMessage {
        let message = dwell_client::NewMessage::text(payload);
        let message = self.key.into_iter().fold(message, dwell_client::NewMessage::key);
        self.due_at.into_iter().fold(message, dwell_client::NewMessage::due_at)
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
                let settings = Settings { partitions, ..Settings::default() };
                Ok(broker.declare(topic.clone(), settings).await.map(drop)?)
            }
            Target::Http(Remote { client, place }) => {
                let settings = TopicSettings::default().partitions(partitions.get());
                Ok(client.create_topic(topic.as_str(), settings).await.at(place).map(drop)?)
            }
        }
    }

    pub(super) async fn delete(&self, topic: &TopicName) -> Result<(), Failure> {
        match self {
            Target::Library(broker) => Ok(broker.delete_topic(topic).await?),
            Target::Http(Remote { client, place }) => Ok(client.delete_topic(topic.as_str()).await.at(place)?),
        }
    }

    /// Pushes one message by itself. # Errors: also when it was not stored.
    pub(super) async fn push(&self, topic: &TopicName, payload: &str, wanted: Wanted<'_>) -> Result<(), Failure> {
        match self {
            Target::Library(broker) => {
                broker.push(topic, wanted.message(payload)?).await.map(drop).map_err(Failure::from)
            }
            Target::Http(Remote { client, place }) => {
                let pushed = client.push(topic.as_str(), wanted.to_send(payload)).await.at(place)?;
                pushed.is_accepted().then_some(()).ok_or_else(|| Failure::new(format!("a push was {}", pushed.status)))
            }
        }
    }

    /// Pushes messages in one request. # Errors: also when one was not stored.
    pub(super) async fn push_batch(
        &self,
        topic: &TopicName,
        payload: &str,
        wanted: &[Wanted<'_>],
    ) -> Result<(), Failure> {
        match self {
            Target::Library(broker) => {
                let messages = wanted.iter().map(|wanted| wanted.message(payload)).collect::<Result<_, _>>()?;
                let outcomes = broker.push_batch(topic, messages).await?;
                outcomes.into_iter().find_map(Result::err).map_or(Ok(()), |error| Err(error.into()))
            }
            Target::Http(Remote { client, place }) => {
                let messages = wanted.iter().map(|wanted| wanted.to_send(payload));
                let pushed = match client.push_many(topic.as_str(), messages).await {
                    Err(Error::NotAccepted(not_accepted)) => not_accepted.results,
                    pushed => pushed.at(place)?,
                };
                let refused = pushed.iter().find(|pushed| !pushed.is_accepted());
                refused.map_or(Ok(()), |refused| Err(Failure::new(format!("a push was {}", refused.status))))
            }
        }
    }

    pub(super) async fn reserve(&self, topic: &TopicName, max: usize, wait: Duration) -> Result<Vec<Taken>, Failure> {
        match self {
            Target::Library(broker) => {
                let request = ReserveRequest { max, wait, visibility_timeout: None };
                let deliveries = broker.reserve(topic, &GroupName::standard(), request).await?;
                let taken = deliveries.into_iter();
                Ok(taken.map(|d| Taken { receipt: d.receipt, due_at: d.message.due_at }).collect())
            }
            Target::Http(Remote { client, place }) => {
                let reserve = Reserve::up_to(max).wait(wait);
                let reserved = client.reserve(topic.as_str(), GROUP, reserve).await.at(place)?;
                let taken = reserved.deliveries.into_iter();
                Ok(taken.map(|delivery| Taken { receipt: delivery.receipt, due_at: delivery.due_at }).collect())
            }
        }
    }

    /// Acks. # Errors: also when one was not acked.
    pub(super) async fn ack(&self, topic: &TopicName, taken: Vec<Taken>) -> Result<(), Failure> {
        let refused = match self {
            Target::Library(broker) => {
                let decisions = taken.into_iter().map(|taken| (taken.receipt, Decision::Ack)).collect();
                let verdicts = broker.settle(topic, &GroupName::standard(), decisions).await?;
                verdicts.iter().map(|verdict| verdict.name()).find(|name| *name != "acked").map(Into::into)
            }
            Target::Http(Remote { client, place }) => {
                let ack = Ack::of(taken.into_iter().map(|taken| taken.receipt));
                let verdicts = client.ack(topic.as_str(), GROUP, ack).await.at(place)?;
                verdicts.into_iter().map(|verdict| verdict.status).find(|status| status != "acked")
            }
        };
        refused.map_or(Ok(()), |status| Err(Failure::new(format!("an ack was {status}"))))
    }
}

/// Every topic has it.
const GROUP: &str = "default";

const WAIT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) struct Load<'a> {
    pub(super) target: &'a Target,
    pub(super) topic: TopicName,
    pub(super) payload: &'a str,
    /// Messages of a request; one is the request for a single message.
    pub(super) batch: usize,
    pub(super) lanes: usize,
}

/// Messages that consumers have seen so far. Everything runs in one future, so cells are enough.
pub(super) struct Tally {
    left: Cell<usize>,
    first: Cell<Option<(Instant, usize)>>,
    last: Cell<Instant>,
    done: CancellationToken,
}

impl Tally {
    pub(super) fn new(messages: usize) -> Tally {
        let (left, first, last) = (Cell::new(messages), Cell::new(None), Cell::new(Clock::System.instant()));
        Tally { left, first, last, done: CancellationToken::new() }
    }

    /// When the first delivery came; if none did, the last ack.
    pub(super) fn first(&self) -> Instant {
        self.first.get().map_or(self.last.get(), |(at, _)| at)
    }

    /// When the last ack was answered.
    pub(super) fn last(&self) -> Instant {
        self.last.get()
    }
}

impl Load<'_> {
    /// Pushes so many messages; answers how many a second.
    pub(super) async fn push<'a>(&self, messages: usize, wanted: impl Fn(usize) -> Wanted<'a>) -> Result<f64, Failure> {
        let began = Clock::System.instant();
        self.pushing(messages, wanted).await?;
        Ok(per_second(messages, Clock::System.instant().since(began)))
    }

    async fn pushing<'a>(&self, messages: usize, wanted: impl Fn(usize) -> Wanted<'a>) -> Result<(), Failure> {
        let next = Cell::new(0);
        let lane = async || {
            loop {
                let from = next.get();
                let to = (from + self.batch).min(messages);
                if from == to {
                    return Ok::<_, Failure>(());
                }
                next.set(to);
                match self.batch {
                    1 => self.target.push(&self.topic, self.payload, wanted(from)).await?,
                    _ => {
                        let batch: Vec<_> = (from..to).map(&wanted).collect();
                        self.target.push_batch(&self.topic, self.payload, &batch).await?;
                    }
                }
            }
        };
        try_join_all((0..self.lanes).map(|_| lane())).await.map(drop)
    }

    /// Consumes so many messages, until the last ack; `seen` gets every delivery when it comes.
    pub(super) async fn consume(&self, messages: usize, seen: impl Fn(&Taken)) -> Result<Instant, Failure> {
        let tally = Tally::new(messages);
        self.consuming(&tally, seen).await?;
        Ok(tally.last.get())
    }

    /// Consumes a backlog; answers how many a second, from the first delivery on: taking the leases is not counted.
    pub(super) async fn drain(&self, messages: usize) -> Result<f64, Failure> {
        let tally = Tally::new(messages);
        self.consuming(&tally, |_| ()).await?;
        let (began, first) = tally.first.get().unwrap_or((tally.last.get(), 0));
        let counted = if first < messages { messages - first } else { messages };
        Ok(per_second(counted, tally.last.get().since(began)))
    }

    /// Pushes and consumes at the same time; answers how many a second, from the first push to the last ack.
    pub(super) async fn life(&self, messages: usize) -> Result<f64, Failure> {
        // The leases are taken before.
        self.target.reserve(&self.topic, 1, Duration::ZERO).await?;
        let began = Clock::System.instant();
        let tally = Tally::new(messages);
        let pushing = self.pushing(messages, |_| Wanted::default());
        future::try_join(pushing, self.consuming(&tally, |_| ())).await?;
        Ok(per_second(messages, tally.last.get().since(began)))
    }

    /// Consumes until all loads of a tally together have acked its messages.
    pub(super) async fn consuming(&self, tally: &Tally, seen: impl Fn(&Taken)) -> Result<(), Failure> {
        let lane = async || {
            loop {
                let taken = self.target.reserve(&self.topic, self.batch, WAIT).await?;
                if taken.is_empty() {
                    continue;
                }
                taken.iter().for_each(&seen);
                let count = taken.len();
                if tally.first.get().is_none() {
                    tally.first.set(Some((Clock::System.instant(), count)));
                }
                self.target.ack(&self.topic, taken).await?;
                tally.left.set(tally.left.get().saturating_sub(count));
                if tally.left.get() == 0 {
                    tally.last.set(Clock::System.instant());
                    tally.done.cancel();
                    return Ok::<_, Failure>(());
                }
            }
        };
        let lanes = try_join_all((0..self.lanes).map(|_| lane()));
        let done = async {
            tokio::select! {
                () = tally.done.cancelled() => Ok(()),
                () = Clock::System.sleep(PATIENCE) => {
                    Err(Failure::new(format!("not acked after {PATIENCE:?}: {}", counted(tally.left.get(), "message"))))
                }
            }
        };
        tokio::pin!(lanes, done);
        // The lanes that still wait when all is done are dropped.
        match future::select(lanes, done).await {
            Either::Left((ended, done)) => match ended {
                Ok(_) => done.await,
                Err(failure) => Err(failure),
            },
            Either::Right((done, _)) => done,
        }
    }
}

/// A rate; of nothing it is zero.
pub(super) fn per_second(count: usize, took: Duration) -> f64 {
    let count = count as f64;
    if took.is_zero() { 0.0 } else { count / took.as_secs_f64() }
}
