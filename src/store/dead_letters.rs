//! Messages that failed too often.

use async_trait::async_trait;

use crate::codec::DeadRecord;
use crate::model::error::Result;
use crate::model::message::{Message, MessageId};
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::model::version::Version;

#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// Dead messages of a pair, oldest death first, at most `limit` after a cursor.
    async fn dead(&self, pair: &GroupPartition, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage>;

    /// Makes at most [`crate::model::limits::RECOVER_IDS_MAX`] dead messages ready, with no attempt counted;
    /// answers for each whether it was dead.
    async fn redrive(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>>;

    /// Deletes at most [`crate::model::limits::RECOVER_IDS_MAX`] dead messages; answers for each whether it was dead.
    async fn purge(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>>;

    /// Drops a page of the dead messages that are past the bounds, oldest death first.
    async fn drop_dead(&self, pair: &GroupPartition, bounds: DeadBounds) -> Result<DeadDropped>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadCursor {
    pub died_at: Timestamp,
    pub id: MessageId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    pub id: MessageId,
    pub died_at: Timestamp,
    pub record: DeadRecord,
    pub version: Version,
    /// The message; an error when its body is unreadable.
    pub message: Result<Message>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadPage {
    pub dead: Vec<Dead>,
    pub next: Option<DeadCursor>,
}

/// What a group keeps of dead messages in a partition; what is older or more is dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeadBounds {
    pub died_before: Option<Timestamp>,
    /// Of the others, so many are kept: the newest.
    pub count: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeadDropped {
    pub aged: u64,
    pub surplus: u64,
    pub more: bool,
    /// When the oldest one that is left died.
    pub oldest: Option<Timestamp>,
}
