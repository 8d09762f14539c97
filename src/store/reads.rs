//! Looking at messages without taking them.

use super::{InFlightCursor, MemberId, Page, WaitingCursor, Window};
use crate::codec::DeadRecord;
use crate::codec::Failure;
use crate::model::error::Result;
use crate::model::message::Message;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::model::version::Version;
use async_trait::async_trait;
use std::time::Duration;

/// Looking at messages without taking them.
///
/// Errors beside those of each method: see [`crate::store`].
#[async_trait]
pub trait Reads: Send + Sync + 'static {
    /// Looks at one message of a pair.
    async fn peek(&self, pair: &GroupPartition, id: &MessageId) -> Result<Option<Peeked>>;

    /// The messages of these ids that a pair has, scheduled, ready or in flight, in the order asked; what is not there or
    /// unreadable is `None`. Meant for a few ids: each may have a payload of 1 MiB.
    async fn bodies(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<Option<Message>>> {
        let mut bodies = Vec::with_capacity(ids.len());
        for id in ids {
            let peeked = self.peek(pair, id).await?.filter(|peeked| !matches!(peeked.state, State::Dead { .. }));
            bodies.push(peeked.map(|peeked| peeked.message));
        }
        Ok(bodies)
    }

    /// Messages of a pair that wait, scheduled or ready, and are tried next in the window, earliest first, then by id: at
    /// most `limit` after a cursor. What does not move meanwhile is listed exactly once.
    async fn waiting(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&WaitingCursor>,
        limit: usize,
    ) -> Result<Page<WaitingCursor>>;

    /// Messages of a pair that are in flight, at most `limit` after a cursor. What is in flight all the while is listed, and
    /// may be listed twice.
    async fn in_flight(
        &self,
        pair: &GroupPartition,
        after: Option<&InFlightCursor>,
        limit: usize,
    ) -> Result<Page<InFlightCursor>>;

    /// Counts the messages of pairs, in the order asked.
    async fn stats(&self, pairs: &[GroupPartition]) -> Result<Vec<PartitionStats>>;

    /// Counts the messages of pairs, and of what is scheduled how much becomes due within each of some spans from now, in
    /// the order asked.
    async fn depth(&self, pairs: &[GroupPartition], within: &[Duration]) -> Result<Vec<PartitionDepth>>;

    /// Counts what becomes due in the spans ahead, for pairs in the order asked. What is in flight is not counted.
    async fn forecast(&self, pairs: &[GroupPartition], spans: Spans) -> Result<Vec<Forecast>>;

    /// A page of the messages of a pair that wait, scheduled or ready, and are due in a window, at most `limit` after a
    /// place; the earliest first.
    async fn window(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage>;
}

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Due later.
    Scheduled,
    /// Due and not taken.
    Ready,
    /// Reserved by the owner of its pair.
    InFlight,
    /// Dead since then.
    Dead {
        /// When it died.
        died_at: Timestamp,
        /// Why.
        record: DeadRecord,
    },
}

impl State {
    /// The stable name, as in the API and in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            State::Scheduled => "scheduled",
            State::Ready => "ready",
            State::InFlight => "in_flight",
            State::Dead { .. } => "dead",
        }
    }
}

/// One message, looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked {
    /// The message.
    pub message: Message,
    /// The version of the operation that set it.
    pub version: Version,
    /// Where it is.
    pub state: State,
    /// When it is tried next; only while scheduled or ready.
    pub next_at: Option<Timestamp>,
    /// Attempts that were charged.
    pub attempts: u32,
    /// Whose lease the pair is: who has it while it is in flight.
    pub owner: Option<MemberId>,
    /// How the last attempts failed, oldest first; a dead message has them in its record.
    pub history: Vec<Failure>,
}

/// What a pair holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Due later.
    pub scheduled: u64,
    /// Due and not taken.
    pub ready: u64,
    /// Reserved by the owner.
    pub in_flight: u64,
    /// Dead.
    pub dead: u64,
    /// The earliest due time of what is scheduled or ready.
    pub head: Option<Timestamp>,
    /// For how long the oldest ready message has been due.
    pub oldest_ready_age: Option<Duration>,
    /// Whose lease it is.
    pub owner: Option<MemberId>,
}

/// A page of what waits in a window of due times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowPage {
    /// Messages in the whole window.
    pub count: u64,
    /// When they are due, or due again, and their ids; the earliest first.
    pub messages: Vec<(Timestamp, MessageId)>,
}

/// Equal spans of time ahead, to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    /// Where the first one begins.
    pub from: Timestamp,
    /// How long each is, whole milliseconds.
    pub step: Duration,
    /// How many there are, 1 to [`crate::model::limits::FORECAST_SPANS_MAX`].
    pub count: usize,
}

impl Spans {
    /// The end of a span, from 1 on; that of 0 is where the first begins.
    pub fn end(&self, span: usize) -> Timestamp {
        self.from.plus(self.step.saturating_mul(u32::try_from(span).unwrap_or(u32::MAX)))
    }
}

/// How many messages become due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forecast {
    /// They are due where the first span begins.
    pub ready: u64,
    /// In each span, its end included.
    pub spans: Vec<u64>,
    /// After the last one.
    pub later: u64,
}

/// What a pair holds, and how much of it becomes due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionDepth {
    /// What it holds.
    pub stats: PartitionStats,
    /// What is scheduled and becomes due within each of the spans that were asked for.
    pub due: Vec<u64>,
}
