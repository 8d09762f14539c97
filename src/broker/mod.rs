//! The verbs of dwell, for every way in: HTTP, command line, library.

use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::{Decision, Delivery, Verdict};
use crate::error::{Error, Result};
use crate::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use crate::metrics::Metrics;
use crate::partition::Partition;
use crate::store::{Dead, Description, PairStats, Peeked, Pushed, Store};
use crate::tasks::Tasks;
use crate::time::Timestamp;
use crate::topic::{Descriptor, Pair, Settings};

/// How a broker behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a lease runs without a renewal. 1 s to 10 min.
    pub lease_ttl: Duration,
    /// How long a stop waits for deliveries that are out.
    pub drain_timeout: Duration,
    /// The settings of topics that are made without any.
    pub topic_defaults: Settings,
    /// Whether a push to a topic that does not exist makes it.
    pub auto_create: bool,
    /// How long a settling request waits for the store before it answers `pending`.
    pub settle_timeout: Duration,
}

/// A broker over one store.
#[derive(Clone)]
pub struct Broker {
    inner: Arc<()>,
}

/// What a declaration did.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// The topic as it is now.
    pub descriptor: Descriptor,
    /// Whether it was made by this call.
    pub created: bool,
}

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushOutcome {
    /// The id, given or made.
    pub id: MessageId,
    /// Where it went.
    pub partition: Partition,
    /// When it is due. For a duplicate: what this push asked for, not what the existing message has.
    pub due_at: Timestamp,
    /// Stored, or a duplicate.
    pub pushed: Pushed,
}

/// What a consumer asks for.
#[derive(Debug, Clone, Copy)]
pub struct ReserveRequest {
    /// 1 to 1,000 deliveries.
    pub max: usize,
    /// How long to wait for the first one; zero answers at once. At most 60 s.
    pub wait: Duration,
    /// Overrides the topic's visibility timeout.
    pub visibility_timeout: Option<Duration>,
}

/// A page of dead messages over all partitions, and the cursor of the next.
#[derive(Debug, Clone)]
pub struct DeadList {
    /// The messages with their partitions.
    pub dead: Vec<(Partition, Dead)>,
    /// Opaque; `None` at the end.
    pub next: Option<String>,
}

/// Whether the broker can do its work.
#[derive(Debug, Clone)]
pub struct Health {
    /// Whether pushes are accepted durably.
    pub ready: bool,
    /// Why not, or what is degraded.
    pub detail: Option<String>,
    /// The store.
    pub store: Description,
}

impl Broker {
    /// A broker over `store`, whose loops run in `tasks`.
    pub fn new(_store: Arc<dyn Store>, _metrics: Arc<Metrics>, _tasks: Tasks, _options: Options) -> Broker {
        Broker { inner: Arc::new(()) }
    }

    /// The metrics of this process.
    pub fn metrics(&self) -> Arc<Metrics> {
        let _ = &self.inner;
        Metrics::new().map(Arc::new).unwrap_or_else(|_| unreachable!())
    }

    /// Makes a topic, or changes the settings of one. Declaring what is there already does nothing.
    ///
    /// # Errors
    /// `Invalid` settings; `Conflict` for another number of partitions; `Full` past the limit of topics.
    pub async fn declare(&self, _topic: TopicName, _settings: Settings) -> Result<Declared> {
        Err(Error::bug("not yet"))
    }

    /// The settings of new topics.
    pub fn topic_defaults(&self) -> &Settings {
        unreachable!()
    }

    /// A topic. # Errors: `NotFound`.
    pub async fn topic(&self, _topic: &TopicName) -> Result<Arc<Descriptor>> {
        Err(Error::bug("not yet"))
    }

    /// The names of all topics, sorted.
    pub async fn topics(&self) -> Result<Vec<TopicName>> {
        Err(Error::bug("not yet"))
    }

    /// Counts the messages of every partition and group of a topic. # Errors: `NotFound`.
    pub async fn stats(&self, _topic: &TopicName) -> Result<Vec<(Pair, PairStats)>> {
        Err(Error::bug("not yet"))
    }

    /// Deletes a topic with all its messages. # Errors: `NotFound`.
    pub async fn delete_topic(&self, _topic: &TopicName) -> Result<()> {
        Err(Error::bug("not yet"))
    }

    /// Pushes one message. # Errors: `Invalid`, `TooLarge`, `NotFound` (no auto-create), `Full`, and the store's.
    pub async fn push(&self, _topic: &TopicName, _message: NewMessage) -> Result<PushOutcome> {
        Err(Error::bug("not yet"))
    }

    /// Pushes up to 1,000 messages; each is answered for itself.
    ///
    /// # Errors
    /// `Invalid` when there are none or too many, `NotFound` (no auto-create): then nothing was stored.
    pub async fn push_batch(&self, _topic: &TopicName, _messages: Vec<NewMessage>) -> Result<Vec<Result<PushOutcome>>> {
        Err(Error::bug("not yet"))
    }

    /// Waits for deliveries. Empty when `wait` ends or the broker stops.
    ///
    /// # Errors
    /// `Invalid` out of range, `NotFound`, `Full` with too many consumers waiting.
    pub async fn reserve(
        &self,
        _topic: &TopicName,
        _group: &GroupName,
        _request: ReserveRequest,
    ) -> Result<Vec<Delivery>> {
        Err(Error::bug("not yet"))
    }

    /// Settles deliveries, each answered for itself, in the order asked. # Errors: `NotFound`, `Invalid`.
    pub async fn settle(
        &self,
        _topic: &TopicName,
        _group: &GroupName,
        _decisions: Vec<(String, Decision)>,
    ) -> Result<Vec<Verdict>> {
        Err(Error::bug("not yet"))
    }

    /// Moves deadlines to `timeout` from now. # Errors: `NotFound`, `Invalid`.
    pub async fn extend(
        &self,
        _topic: &TopicName,
        _group: &GroupName,
        _receipts: &[String],
        _timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        Err(Error::bug("not yet"))
    }

    /// Looks at one message; `key` if it was pushed with one. # Errors: `NotFound`.
    pub async fn peek(
        &self,
        _topic: &TopicName,
        _group: &GroupName,
        _id: &MessageId,
        _key: Option<&Key>,
    ) -> Result<(Partition, Peeked)> {
        Err(Error::bug("not yet"))
    }

    /// Lists dead messages, partition by partition, oldest death first. # Errors: `NotFound`, `Invalid` cursor or limit.
    pub async fn dead(
        &self,
        _topic: &TopicName,
        _group: &GroupName,
        _cursor: Option<&str>,
        _limit: usize,
    ) -> Result<DeadList> {
        Err(Error::bug("not yet"))
    }

    /// Makes dead messages ready again: these ids, or all that are dead now. Answers how many. # Errors: `NotFound`.
    pub async fn redrive(&self, _topic: &TopicName, _group: &GroupName, _ids: Option<&[MessageId]>) -> Result<usize> {
        Err(Error::bug("not yet"))
    }

    /// Deletes dead messages: these ids, or all that are dead now. Answers how many. # Errors: `NotFound`.
    pub async fn purge(&self, _topic: &TopicName, _group: &GroupName, _ids: Option<&[MessageId]>) -> Result<usize> {
        Err(Error::bug("not yet"))
    }

    /// Whether pushes can be accepted.
    pub async fn health(&self) -> Health {
        unreachable!()
    }
}
