//! Members of a group, and the slots of one with a rate.

use super::{Heartbeat, LiveMember, MemberId, MemberReport};
use crate::model::error::Result;
use crate::model::message::GroupName;
use crate::model::message::TopicName;
use async_trait::async_trait;
use bytes::Bytes;
use std::time::Duration;

/// Members of a group, and the slots of one with a rate.
///
/// Errors beside those of each method: see [`crate::store`].
#[async_trait]
pub trait Groups: Send + Sync + 'static {
    /// Records heartbeats of a member in some groups, and returns the live members of each group, sorted: those with a
    /// heartbeat within `ttl`. Announces a member that is new, and one whose demand has changed.
    async fn heartbeat(
        &self,
        member: &MemberId,
        heartbeats: &[Heartbeat],
        ttl: Duration,
    ) -> Vec<Result<Vec<LiveMember>>>;

    /// Reads the live members of a group, those with a heartbeat within `ttl`, sorted.
    async fn members(&self, topic: &TopicName, group: &GroupName, ttl: Duration) -> Result<Vec<MemberReport>>;

    /// Says that a member leaves its group. Leaving again does nothing.
    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()>;

    /// Gives out slots of a group, each one once and at least `spacing` behind the one before.
    async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots>;

    /// Sends a datagram to a member, at most [`crate::model::limits::DATAGRAM_BYTES_MAX`] bytes. False if certainly no process
    /// receives what is sent to it now; true promises nothing.
    async fn send(&self, to: &MemberId, datagram: Bytes) -> Result<bool>;
}

/// What is asked of the slots of a group, in each of which one message may be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAsk {
    /// How many, at most.
    pub count: u32,
    /// From the beginning of one to that of the next.
    pub spacing: Duration,
    /// How far from now the last one may begin; at most [`crate::model::limits::SLOT_AHEAD_MAX`].
    pub within: Duration,
}

/// Slots that nobody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// How many.
    pub count: u32,
    /// From the time of the store at the answer to the beginning of the first; with none, to that of the next that could be
    /// given.
    pub after: Duration,
}
