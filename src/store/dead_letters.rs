//! Messages that failed too often.

use crate::codec::DeadRecord;
use crate::model::error::Result;
use crate::model::message::Message;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::model::version::Version;
use async_trait::async_trait;

/// Messages that failed too often.
///
/// Errors beside those of each method: see [`crate::store`].
#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// Dead messages of a pair, oldest death first, at most `limit` after a cursor.
    async fn dead(&self, pair: &GroupPartition, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage>;

    /// Makes dead messages ready again, with no attempt counted, and answers for each whether it was dead.
    /// At most [`crate::model::limits::RECOVER_IDS_MAX`] ids.
    async fn redrive(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>>;

    /// Deletes dead messages, and answers for each whether it was dead.
    /// At most [`crate::model::limits::RECOVER_IDS_MAX`] ids.
    async fn purge(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>>;

    /// Drops a page of the dead messages that are past the bounds, oldest death first.
    async fn drop_dead(&self, pair: &GroupPartition, bounds: DeadBounds) -> Result<DeadDropped>;
}

/// A position in the dead messages of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadCursor {
    /// When the last message before it died.
    pub died_at: Timestamp,
    /// Its id.
    pub id: MessageId,
}

/// A dead message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// Its id.
    pub id: MessageId,
    /// When it died.
    pub died_at: Timestamp,
    /// Why, after how many attempts.
    pub record: DeadRecord,
    /// The version of the operation that set the message.
    pub version: Version,
    /// The message; an error when its body is unreadable.
    pub message: Result<Message>,
}

/// A page of dead messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadPage {
    /// The messages, oldest death first.
    pub dead: Vec<Dead>,
    /// Where the next page begins, if there is more.
    pub next: Option<DeadCursor>,
}

/// What a group keeps of dead messages in a partition; what is older or more is dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeadBounds {
    /// Those that died before then are dropped.
    pub died_before: Option<Timestamp>,
    /// Of the others, so many are kept: the newest.
    pub count: Option<u64>,
}

/// The outcome of one page of dropping dead messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeadDropped {
    /// Dropped because of their age.
    pub aged: u64,
    /// Dropped because there were too many.
    pub surplus: u64,
    /// Whether there is more to drop.
    pub more: bool,
    /// When the oldest one that is left died.
    pub oldest: Option<Timestamp>,
}
