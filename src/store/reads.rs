//! Looking at messages without taking them, and listing them a page at a time.

use std::time::Duration;

use async_trait::async_trait;

use super::{MemberId, PausedKey};
use crate::codec::{DeadLetterRecord, Failure};
use crate::model::error::Result;
use crate::model::message::{Key, Message, MessageId, TopicName};
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::model::version::Version;

#[async_trait]
pub trait Reads: Send + Sync + 'static {
    async fn peek(&self, partition: &GroupPartition, id: &MessageId) -> Result<Option<Peeked>>;

    /// That a partition has what this process was answered, so that what is missing was not lost. Errors: `Stale` if not.
    async fn check_kept(&self, partition: &GroupPartition) -> Result<()>;

    /// Messages of a partition that wait, scheduled or ready, and are tried next in the window, earliest first, then by id:
    /// at most `limit` after a cursor. A message that does not move meanwhile is listed exactly once.
    async fn waiting(
        &self,
        partition: &GroupPartition,
        window: Window,
        after: Option<&WaitingCursor>,
        limit: usize,
    ) -> Result<Page<WaitingCursor>>;

    /// Outlines of the messages that [`Reads::waiting`] lists, for ranges in the order asked: a merge of partitions reads
    /// them before it reads the messages.
    async fn outlines(&self, ranges: &[WaitingRange]) -> Result<Vec<OutlinePage>>;

    /// Messages of a partition in flight, at most `limit` after a cursor. One may be listed twice, but none is left out.
    async fn in_flight(
        &self,
        partition: &GroupPartition,
        after: Option<&InFlightCursor>,
        limit: usize,
    ) -> Result<Page<InFlightCursor>>;

    /// The paused keys of a group in a partition, those that are free first, at most `limit`; and how many there are.
    async fn paused_keys(&self, partition: &GroupPartition, limit: usize) -> Result<(u64, Vec<PausedKey>)>;

    /// Until when a key of a group is paused; `None` if it is not.
    async fn paused_until(&self, partition: &GroupPartition, key: &Key) -> Result<Option<Timestamp>>;

    /// Counts the messages of partitions, in the order asked.
    async fn stats(&self, partitions: &[GroupPartition]) -> Result<Vec<PartitionStats>>;

    /// Counts the messages of partitions, in the order asked, and those that become due within each span from now.
    async fn depth(&self, partitions: &[GroupPartition], within: &[Duration]) -> Result<Vec<PartitionDepth>>;

    /// Counts what becomes due in the spans ahead, for partitions in the order asked. Messages in flight are not counted.
    async fn forecast(&self, partitions: &[GroupPartition], spans: Spans) -> Result<Vec<Forecast>>;

    /// A page of the waiting messages of a partition due in a window, earliest first, at most `limit` after a place.
    async fn window(
        &self,
        partition: &GroupPartition,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageState {
    Scheduled,
    Ready,
    /// Behind an earlier message of its key, at the owner of its partition. The store itself answers `InFlight`.
    Blocked,
    /// The first of its key, at the owner of its partition, until its next attempt. The store itself answers `InFlight`.
    Backoff,
    /// Reserved. A broker says so only if a consumer has it, or the owner does not answer.
    InFlight,
    Dead {
        died_at: Timestamp,
        record: DeadLetterRecord,
    },
}

impl MessageState {
    pub fn name(&self) -> &'static str {
        match self {
            MessageState::Scheduled => "scheduled",
            MessageState::Ready => "ready",
            MessageState::Blocked => "blocked",
            MessageState::Backoff => "backoff",
            MessageState::InFlight => "in_flight",
            MessageState::Dead { .. } => "dead",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked {
    pub message: Message,
    pub version: Version,
    pub state: MessageState,
    /// When it is tried next; only while scheduled or ready.
    pub next_at: Option<Timestamp>,
    pub attempts: u32,
    /// Whose lease the partition is: who has it while it is in flight.
    pub owner: Option<MemberId>,
    /// How the last attempts failed, oldest first; a dead message has them in its record.
    pub history: Vec<Failure>,
    /// The topic that it is being moved to; in flight until it is there or given back.
    pub moving_to: Option<TopicName>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionStats {
    pub scheduled: u64,
    pub ready: u64,
    /// Behind an earlier message of their key, at the owner. The store counts them as `in_flight`.
    pub blocked: u64,
    /// The first of their key, at the owner, until their next attempt. The store counts them as `in_flight`.
    pub backoff: u64,
    /// Reserved; those that the owner holds and no consumer has are counted where they belong, if it answers.
    pub in_flight: u64,
    pub dead: u64,
    pub head: Option<Timestamp>,
    /// For how long the oldest message that is ready or blocked has been due.
    pub oldest_ready_age: Option<Duration>,
    pub owner: Option<MemberId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowPage {
    /// Messages in the whole window.
    pub count: u64,
    /// When they are due, or due again, and their ids; the earliest first.
    pub messages: Vec<(Timestamp, MessageId)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    pub from: Timestamp,
    /// How long each is, whole milliseconds.
    pub step: Duration,
    /// How many there are, 1 to [`crate::model::limits::FORECAST_SPANS_MAX`].
    pub count: usize,
}

impl PartitionStats {
    /// Messages in any state but dead.
    pub fn live(&self) -> u64 {
        self.scheduled + self.ready + self.blocked + self.backoff + self.in_flight
    }

    /// Messages that are due, or were, and are not settled.
    pub fn backlog(&self) -> u64 {
        self.live() - self.scheduled
    }
}

impl Spans {
    /// The end of a span, from 1 on; that of 0 is where the first begins.
    pub fn end(&self, span: usize) -> Timestamp {
        self.from.plus(self.step.saturating_mul(u32::try_from(span).unwrap_or(u32::MAX)))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forecast {
    pub ready: u64,
    /// In each span, its end included.
    pub spans: Vec<u64>,
    pub later: u64,
    /// Those that hold their key until their next attempt, whose time the store does not know: the broker counts them.
    pub backoff: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionDepth {
    pub stats: PartitionStats,
    pub due: Vec<u64>,
}

/// A span of time: from its beginning on, and before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Window {
    pub const ALL: Window = Window { from: Timestamp::from_ms(0), to: Timestamp::from_ms(u64::MAX) };

    pub fn has(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// A position among messages that wait: behind this one, whether or not it is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingCursor {
    pub next_at: Timestamp,
    pub id: MessageId,
}

/// The first waiting messages of a partition: in a window, behind a cursor, at most `limit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRange {
    pub partition: GroupPartition,
    pub window: Window,
    pub after: Option<WaitingCursor>,
    pub limit: usize,
}

/// A waiting message without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    pub next_at: Timestamp,
    pub id: MessageId,
    /// Size of its body.
    pub bytes: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutlinePage {
    pub messages: Vec<Outline>,
    /// Where the next page begins, if there is more.
    pub next: Option<WaitingCursor>,
}

/// A position among messages in flight. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlightCursor {
    /// A step, without spaces and full stops.
    pub step: String,
    /// The last message of it that was listed; `None` at its beginning.
    pub after: Option<MessageId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub id: MessageId,
    /// When it is tried next; `None` while it is in flight.
    pub next_at: Option<Timestamp>,
    pub attempts: u32,
    pub history: Vec<Failure>,
    /// The message; an error when its body is unreadable.
    pub message: Result<Message>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<C> {
    pub messages: Vec<Listed>,
    /// Where the next page begins, if there is more. There may be more although this page is empty.
    pub next: Option<C>,
}

impl<C> Default for Page<C> {
    fn default() -> Page<C> {
        Page { messages: Vec::new(), next: None }
    }
}
