//! The owner of a partition of a group.

use super::Epoch;
use crate::codec::DeadRecord;
use crate::codec::Failure;
use crate::model::error::Result;
use crate::model::limits::CALL_BYTES_MAX;
use crate::model::limits::CALL_IDS_MAX;
use crate::model::message::Message;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::version::Version;
use async_trait::async_trait;
use std::time::Duration;

/// What the owner of a pair may do: the handle of one epoch.
///
/// The methods take `&mut self`, so that a second call in flight does not compile. Calls are numbered and repeated
/// unchanged until they are answered, so none of them ever ends in `OutcomeUnknown`; they may take as long as an outage.
/// Dropping a handle gives nothing up: what it reserved waits for the next epoch's recovery.
///
/// # Errors
/// `Stale` when another epoch owns the pair, or the store lost data that this epoch had written: the owner has to
/// forget what it holds and acquire anew. `Corrupt` when the keys are not what dwell wrote.
#[async_trait]
pub trait Owner: Send {
    /// The epoch of this handle.
    fn epoch(&self) -> &Epoch;

    /// Whether the last call may have been applied although it never succeeded: a copy of it went unanswered before the
    /// store refused another one, or its future was dropped while a copy was out.
    fn is_in_doubt(&self) -> bool;

    /// Says that the topic has an ordering: reservations keep the places of their messages, so that what is given back, or
    /// recovered by the next epoch, stands where it stood. Before the first reservation.
    fn keep_places(&mut self);

    /// Schedules again a page of what older epochs hold reserved. Repeat until nothing is left, before reserving.
    async fn recover(&mut self) -> Result<Recovered>;

    /// Schedules again a page of the bodies that are in no place, not earlier than they were due, and drops ids without
    /// body, after `from`. Only after recovery found either, and before anything is reserved.
    async fn repair(&mut self, from: Option<RepairCursor>) -> Result<Repaired>;

    /// Takes messages that are due, oldest due time first.
    async fn reserve(&mut self, limit: ReserveLimit) -> Result<Reserved>;

    /// Applies decisions about reserved messages, all or none.
    async fn settle(&mut self, settlement: &Settlement) -> Result<()>;

    /// Charges attempts before messages are handed out again.
    async fn start(&mut self, charges: &[Charge]) -> Result<()>;

    /// Gives the lease up, so that another member may take it at once.
    async fn release(self: Box<Self>) -> Result<()>;
}

/// What a renewal sees of a pair: the safety look that makes a lost wake harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// The earliest due time in the zset.
    pub head: Option<Timestamp>,
    /// The generation of the topic that the partition has seen.
    pub generation: u64,
}

/// The outcome of one page of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Messages that were scheduled again. If an answer was lost, only what the repeated call still found.
    pub messages: usize,
    /// Whether older epochs had left reservations, even if this page found none of them any more.
    pub left_behind: bool,
    /// Whether older epochs still hold something.
    pub more: bool,
    /// Once nothing is held: how many bodies are not in the zset, and so in no place, or how many ids have no body.
    /// Anything but 0 is a defect or a data loss, and calls for a repair.
    pub orphans: u64,
}

/// Where a repair goes on. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairCursor(pub String);

/// The outcome of one page of repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Messages that were scheduled again, and ids without body that were dropped.
    pub messages: usize,
    /// Where the next page begins, if there is more.
    pub next: Option<RepairCursor>,
}

/// How much one reservation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveLimit {
    /// Messages, 1 to [`CALL_IDS_MAX`].
    pub messages: usize,
    /// Bytes of bodies; one message is taken even if it is larger.
    pub bytes: usize,
}

impl Default for ReserveLimit {
    fn default() -> ReserveLimit {
        ReserveLimit { messages: CALL_IDS_MAX, bytes: CALL_BYTES_MAX }
    }
}

/// The name of a reservation: its number within the owner's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reservation(pub u64);

/// The outcome of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// Its name, for settling.
    pub reservation: Reservation,
    /// What was due, oldest first; may be empty.
    pub messages: Vec<ReservedMessage>,
    /// The earliest due time of what is left in the zset.
    pub head: Option<Timestamp>,
    /// Ids in the zset that had no body: dropped. Anything but 0 is a defect or a data loss.
    pub dropped: usize,
    /// Bodies in the hash that are not in the zset: what the owner must hold unsettled, or something is amiss.
    pub unsettled: u64,
}

/// One reserved message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedMessage {
    /// Its id.
    pub id: MessageId,
    /// When it became due, or due again after a retry.
    pub ready_at: Timestamp,
    /// Where it stood in the zset. With an ordering that stays so, also after a retry; without one it is `ready_at`.
    pub place: Timestamp,
    /// Attempts charged before.
    pub attempts: u32,
    /// Bytes of its body.
    pub bytes: usize,
    /// The version of the operation that set it.
    pub version: Version,
    /// The message; an error when its body is unreadable.
    pub message: Result<Message>,
}

/// Decisions about reserved messages, applied all or none. At most [`CALL_IDS_MAX`] ids altogether.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Done, or expired: gone for good.
    pub acked: Vec<MessageId>,
    /// Failed: scheduled again.
    pub retried: Vec<Retried>,
    /// Failed, in a topic with ordering: stays reserved, since it holds its key. What is also in `returned` goes back.
    pub kept: Vec<Retried>,
    /// Never handed out: scheduled again without a charge.
    pub returned: Vec<Returned>,
    /// Dead.
    pub buried: Vec<Buried>,
    /// For every reservation that lost a message other than by ack, and for every one with nothing left:
    /// the ids that remain.
    pub remaining: Vec<(Reservation, Vec<MessageId>)>,
    /// How long the acked ids are remembered as duplicates; zero is not at all.
    pub dedup_window: Duration,
}

impl Settlement {
    /// Number of decisions.
    pub fn len(&self) -> usize {
        self.acked.len() + self.retried.len() + self.kept.len() + self.returned.len() + self.buried.len()
    }

    /// Whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.remaining.is_empty()
    }
}

/// A failed message, to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retried {
    /// Its id.
    pub id: MessageId,
    /// When it is due again.
    pub next_at: Timestamp,
    /// Attempts charged now, absolute, so that a repeat does not count twice.
    pub attempts: u32,
    /// What is added to its history, unless it was only given back.
    pub failure: Option<Failure>,
}

/// A message given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// Its id.
    pub id: MessageId,
    /// The due time it goes back to. With an ordering it goes back to its place, which is in this millisecond.
    pub ready_at: Timestamp,
}

/// A message that dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buried {
    /// Its id.
    pub id: MessageId,
    /// Why. Its history is what the store has.
    pub record: DeadRecord,
    /// What is added to its history, if it died of an attempt.
    pub failure: Option<Failure>,
}

/// An attempt that is charged before it is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The message.
    pub id: MessageId,
    /// Attempts charged now, absolute.
    pub attempts: u32,
}
