//! dwell inside another program: producers and consumers on the same engine, without HTTP.
//!
//! ```no_run
//! use dwell::{Dwell, NewMessage, Options, StoreOptions};
//! use std::time::Duration;
//!
//! # async fn example() -> dwell::Result<()> {
//! let dwell = Dwell::open(StoreOptions::Embedded { dir: "orders-data".into() }, Options::default()).await?;
//! let close = NewMessage::new("close order 17").after(Duration::from_secs(1_800));
//! dwell.producer("orders")?.push(close).await?;
//! let mut consumer = dwell.consumer("orders", "default")?;
//! while let Some(received) = consumer.next().await? {
//!     println!("{:?}", received.delivery().message.envelope.payload);
//!     received.ack().await.map_err(|failed| failed.error)?;
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::app::engine::{Engine, StoreOptions};
use crate::broker::{
    Broker, ClockTarget, Moved, Options, PushOutcome, RescheduleOutcome, ReserveRequest, ReservedDeliveries, Selection,
    is_topic_missing,
};
use crate::delivery::{Decision, Delivery, Verdict};
use crate::model::error::{Error, Result};
use crate::model::last_error::LastError;
use crate::model::limits::WAIT_MAX;
use crate::model::message::{Due, GroupName, Key, MessageId, NewMessage, TopicName};
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;
use crate::platform::test_clock::TestClock;
use crate::store::{Cancelled, Expected};

/// A broker in this process.
pub struct Dwell {
    engine: Engine,
}

impl Dwell {
    /// Opens the store and starts.
    ///
    /// # Errors
    /// The store's: `Conflict` when another process has the directory, `Unavailable` when Redis cannot be reached, and
    /// `Invalid` when it cannot be trusted.
    pub async fn open(store: StoreOptions, options: Options) -> Result<Dwell> {
        Ok(Dwell { engine: Engine::start(store, options, Clock::System).await? })
    }

    /// Opens the embedded store in `dir`, for tests: time passes as usual, and the clock also moves it forward. A directory
    /// that was used so before continues with the time that it had.
    ///
    /// # Errors
    /// The store's; `Conflict` when the directory has been used with the clock of the machine.
    pub async fn open_on_test_clock(dir: PathBuf, options: Options) -> Result<(Dwell, TestTime)> {
        let clock = Arc::new(TestClock::open(&dir)?);
        let engine = Engine::start(StoreOptions::Embedded { dir }, options, clock.clock()).await?;
        let time = TestTime { broker: engine.broker().clone(), clock };
        Ok((Dwell { engine }, time))
    }

    /// All the verbs.
    pub fn broker(&self) -> &Broker {
        self.engine.broker()
    }

    /// Pushes to a topic. # Errors: `Invalid` name.
    pub fn producer(&self, topic: &str) -> Result<Producer> {
        Ok(Producer { broker: self.broker().clone(), topic: TopicName::new(topic)? })
    }

    /// Consumes for a group of a topic. # Errors: `Invalid` name.
    pub fn consumer(&self, topic: &str, group: &str) -> Result<Consumer> {
        let place = (TopicName::new(topic)?, GroupName::new(group)?);
        Ok(Consumer { broker: self.broker().clone(), place, batch: 1, ready: VecDeque::new() })
    }

    /// Waits until what is out is settled, gives the leases up, and closes the store. # Errors: the store's.
    pub async fn close(self) -> Result<()> {
        self.engine.close().await
    }
}

/// Moves the clock of a broker in a test.
#[derive(Clone)]
pub struct TestTime {
    broker: Broker,
    clock: Arc<TestClock>,
}

impl TestTime {
    /// The time of messages.
    pub fn now(&self) -> Timestamp {
        self.broker.now()
    }

    /// Moves the clock forward by 0 to 3,650 days. Once it returns everything that became due can be received.
    ///
    /// # Errors
    /// See [`Broker::move_clock`].
    pub async fn advance(&self, by: Duration) -> Result<Moved> {
        self.broker.move_clock(&self.clock, ClockTarget::Advance(by)).await
    }

    /// Moves the clock forward to a time that is not past. Once it returns everything that became due can be received.
    ///
    /// # Errors
    /// See [`Broker::move_clock`].
    pub async fn advance_to(&self, to: Timestamp) -> Result<Moved> {
        self.broker.move_clock(&self.clock, ClockTarget::To(to)).await
    }
}

/// Pushes to one topic.
#[derive(Clone)]
pub struct Producer {
    broker: Broker,
    topic: TopicName,
}

impl Producer {
    /// Pushes one message. # Errors: see [`Broker::push`].
    pub async fn push(&self, message: NewMessage) -> Result<PushOutcome> {
        self.broker.push(&self.topic, message).await
    }

    /// Pushes up to 1,000 messages, each answered for itself. # Errors: see [`Broker::push_batch`].
    pub async fn push_batch(&self, messages: Vec<NewMessage>) -> Result<Vec<Result<PushOutcome>>> {
        self.broker.push_batch(&self.topic, messages).await
    }

    /// Takes a message out of every group in which it waits; `key` if it was pushed with one. # Errors: see
    /// [`Broker::cancel`].
    pub async fn cancel(&self, id: &MessageId, key: Option<&Key>) -> Result<Cancelled> {
        Ok(self.broker.cancel(&self.topic, id, key).await?.1)
    }

    /// Gives a message another due time in every group in which it waits; `key` if it was pushed with one. # Errors: see
    /// [`Broker::reschedule`].
    pub async fn reschedule(&self, id: &MessageId, key: Option<&Key>, due: Due) -> Result<RescheduleOutcome> {
        self.broker.reschedule(&self.topic, id, key, due, Expected::default()).await
    }
}

/// Consumes for one group of a topic.
pub struct Consumer {
    broker: Broker,
    place: (TopicName, GroupName),
    batch: usize,
    ready: VecDeque<Received>,
}

impl Consumer {
    /// Takes up to so many messages at a time, 1 to 1,000; their visibility timeouts begin together. Default 1.
    pub fn batch(mut self, messages: usize) -> Consumer {
        self.batch = messages;
        self
    }

    /// The next message, however long it takes; `None` once the broker stops. A topic that does not exist is waited for.
    ///
    /// # Errors
    /// `NotFound` when the topic has no such group, and the store's.
    pub async fn next(&mut self) -> Result<Option<Received>> {
        loop {
            if let Some(received) = self.ready.pop_front() {
                return Ok(Some(received));
            }
            let request = ReserveRequest { max: self.batch, wait: WAIT_MAX, visibility_timeout: None };
            let reserve = self.broker.reserve_selected(&self.place.0, &self.place.1, request, Selection::default());
            let ReservedDeliveries { deliveries, visibility_timeout } = match reserve.await {
                Err(_) if self.broker.is_stopping() => return Ok(None),
                Err(error) if is_topic_missing(&error) => continue,
                reserved => reserved?,
            };
            let receive = |delivery| Received {
                broker: self.broker.clone(),
                place: self.place.clone(),
                delivery,
                visibility_timeout,
                is_late: false,
            };
            self.ready.extend(deliveries.into_iter().map(receive));
        }
    }
}

/// A message in the hands of this program. Dropping it settles nothing: it is redelivered after its deadline.
pub struct Received {
    broker: Broker,
    place: (TopicName, GroupName),
    delivery: Delivery,
    visibility_timeout: Duration,
    is_late: bool,
}

/// A settlement that did not succeed, with the delivery, so that it can be tried again.
pub struct Unsettled {
    /// `Stale` when the delivery has ended; `OutcomeUnknown` when the store, or the broker that owns the partition now, has
    /// not answered, or did not before the partition was lost: then the message is settled, or is delivered again.
    pub error: Error,
    /// The delivery.
    pub received: Received,
}

impl Received {
    /// The message, its attempt and its deadline.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// The visibility timeout that the delivery began with.
    pub fn visibility_timeout(&self) -> Duration {
        self.visibility_timeout
    }

    /// Lets [`Received::ack`], [`Received::nack`] and [`Received::extend`] count also after the delivery has ended, if the
    /// message waits and nobody has had it since. A late [`Received::bury`] or [`Received::release`] never counts.
    pub fn late(mut self) -> Received {
        self.is_late = true;
        self
    }

    /// The message is done. # Errors: see [`Unsettled`].
    pub async fn ack(self) -> std::result::Result<(), Box<Unsettled>> {
        self.settle(Decision::Ack).await
    }

    /// The message failed: it is redelivered after `delay`, or after the backoff of the topic.
    ///
    /// # Errors
    /// See [`Unsettled`].
    pub async fn nack(
        self,
        delay: Option<Duration>,
        reason: impl Into<LastError>,
    ) -> std::result::Result<(), Box<Unsettled>> {
        self.settle(Decision::Nack { delay, reason: Some(reason.into()) }).await
    }

    /// Gives the message back unhandled: it is due again at once, and this delivery counts as no attempt.
    ///
    /// # Errors
    /// See [`Unsettled`].
    pub async fn release(self) -> std::result::Result<(), Box<Unsettled>> {
        self.settle(Decision::Release).await
    }

    /// The message can never succeed: it is dead. # Errors: see [`Unsettled`].
    pub async fn bury(self, reason: impl Into<LastError>) -> std::result::Result<(), Box<Unsettled>> {
        self.settle(Decision::Bury { reason: Some(reason.into()) }).await
    }

    /// Moves the deadline to `timeout` from now. # Errors: `Stale` when the delivery is over, `Invalid` out of range.
    pub async fn extend(&mut self, timeout: Duration) -> Result<()> {
        let (receipts, (topic, group)) = (vec![self.delivery.receipt.clone()], &self.place);
        let rulings = self.broker.extend_anywhere(topic, group, receipts, timeout, self.is_late).await?;
        match rulings.first().map(|ruling| ruling.verdict) {
            Some(Verdict::Extended(deadline)) => {
                self.delivery.deadline = deadline;
                Ok(())
            }
            Some(verdict) => Err(refused(verdict)),
            None => Err(Error::bug("a receipt without a verdict")),
        }
    }

    async fn settle(self, decision: Decision) -> std::result::Result<(), Box<Unsettled>> {
        let decisions = vec![(self.delivery.receipt.clone(), decision)];
        let error = match self.broker.settle_anywhere(&self.place.0, &self.place.1, decisions, self.is_late).await {
            Err(error) => error,
            Ok(rulings) => match rulings.first().map(|ruling| ruling.verdict) {
                Some(Verdict::Acked | Verdict::Nacked | Verdict::Released | Verdict::Buried) => return Ok(()),
                Some(verdict) => refused(verdict),
                None => Error::bug("a receipt without a verdict"),
            },
        };
        Err(Box::new(Unsettled { error, received: self }))
    }
}

fn refused(verdict: Verdict) -> Error {
    match verdict {
        Verdict::Pending | Verdict::UnknownOutcome | Verdict::Unreachable => Error::outcome_unknown(verdict.detail()),
        _ => Error::stale(verdict.detail()),
    }
}
