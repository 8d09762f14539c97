//! Messages on their way in, and changes of those that wait.

use super::{Call, Cancelled, HandedOver, Put, Reschedule, Rescheduled, TakenOver};
use crate::model::error::Error;
use crate::model::error::Kind;
use crate::model::error::Result;
use crate::model::message::Conflict;
use crate::model::message::Key;
use crate::model::message::Message;
use crate::model::message::MessageId;
use crate::model::message::TopicName;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use async_trait::async_trait;

/// Messages on their way in, and changes of those that wait.
///
/// Errors beside those of each method: see [`crate::store`].
#[async_trait]
pub trait Messages: Send + Sync + 'static {
    /// Keeps, durably, what another broker could not bring to the store before it stops. Deletions of topics are left out
    /// unless `is_admin`. A page that is given again does no harm.
    ///
    /// # Errors
    /// `Conflict` when it is of another store, or nothing is kept for it here; `Invalid` for records that no broker writes;
    /// `Full` and `Unavailable` when the disk does not take it: then nothing is kept.
    async fn take_over(&self, _handed: HandedOver, _is_admin: bool) -> Result<TakenOver> {
        Err(Error::new(Kind::Conflict, "this broker has the embedded store, which takes nothing over"))
    }

    /// Stores messages of one partition in the pairs of all groups, all or none, and answers for each.
    ///
    /// An id that a group holds in any state, or that was settled within the dedup window, is a duplicate and changes
    /// nothing. A call that is made again is answered as before. At most [`crate::model::limits::CALL_IDS_MAX`] messages.
    ///
    /// # Errors
    /// `Stale` when the partition has seen a newer descriptor, or an id has a later version: load the topic again, and make
    /// another call.
    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        messages: &[Message],
    ) -> Result<Vec<Pushed>>;

    /// The same for messages with a policy about ids that are there, which is not [`Conflict::Keep`]: one after the other, so
    /// that equal ids meet each other. At most [`crate::model::limits::PUT_IDS_MAX`] messages.
    ///
    /// # Errors
    /// As [`Store::push`].
    async fn put(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>>;

    /// Takes a message out of every group in which it waits, scheduled or ready. A message that is cancelled is remembered
    /// for [`crate::model::limits::CANCELLED_KEPT`]: cancelling it again is answered the same.
    ///
    /// # Errors
    /// `Stale` when the partition has seen a newer descriptor: load it again.
    async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        id: &MessageId,
    ) -> Result<Cancelled>;

    /// Gives a message another due time in every group in which it waits, scheduled or ready. Attempts stay.
    ///
    /// # Errors
    /// As [`Store::push`].
    async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled>;

    /// The keys of the messages of this id that are on the local disk, on their way to the store.
    async fn buffered(&self, _topic: &TopicName, _id: &MessageId) -> Result<Vec<Option<Key>>> {
        Ok(Vec::new())
    }
}

/// What became of one pushed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the store.
    Stored,
    /// It is in the store, and for a while on the local disk as well, in case the store loses its last moments.
    Journaled,
    /// It is on the local disk, and goes into the store once that can be reached.
    Buffered,
    /// Its id was there already; nothing changed.
    Duplicate,
    /// It took the place of the message that waited under its id.
    Replaced,
    /// The message that waited under its id has its due time now.
    Debounced,
}

impl Pushed {
    /// The stable name, as in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Pushed::Stored => "stored",
            Pushed::Journaled => "journaled",
            Pushed::Buffered => "buffered",
            Pushed::Duplicate => "duplicate",
            Pushed::Replaced => "replaced",
            Pushed::Debounced => "debounced",
        }
    }
}
