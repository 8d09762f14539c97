//! The store contract: what anyone may do to a topic ([`Store`]), and what the owner of a pair may do
//! through the handle that [`Store::acquire`] returned ([`Owner`]).
//!
//! Two stores fulfil it: Redis and the embedded sled store. The conformance suite is its definition. Nothing above
//! this module knows which store it has. A store decides nothing about retries, deadlines or who should own what.

mod clock;
pub mod embedded;
mod epoch;
mod loss;
mod outcome;
mod wake;
pub mod redis;

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use clock::StoreClock;
pub use epoch::{Claim, Epoch, MemberId};
pub use loss::Loss;
pub use outcome::{
    Acquired, Buried, Charge, Dead, DeadCursor, DeadPage, Description, Glance, PairStats, Peeked, PushKind, Pushed,
    Recovered, Renewal, RepairCursor, Repaired, Reservation, ReserveLimit, Reserved, ReservedMessage, Retried,
    Returned, Settlement, State,
};
pub use wake::{Channel, Wake, Wakes};

use crate::error::Result;
use crate::message::{GroupName, Message, MessageId, TopicName};
use crate::partition::Partition;
use crate::topic::{Descriptor, Pair};

/// What anyone may do to a topic.
///
/// Every call ends by the store's own time limit. Besides the errors named at each method, every method may fail with
/// `Unavailable` (certainly not applied), `OutcomeUnknown` (perhaps applied; repeating it is safe) and `Corrupt`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What it is and what it survives, for the banner and for `/readyz`.
    fn describe(&self) -> Description;

    /// The store's clock, the one clock of the whole fleet, as far as this process knows it.
    fn clock(&self) -> &StoreClock;

    /// Announcements.
    fn wakes(&self) -> &Wakes;

    /// Whether the store may have lost what it had answered. Changes with every new suspicion.
    fn losses(&self) -> watch::Receiver<Loss>;

    /// What the store has to do in the background, until `stop`. The server runs it.
    async fn run(&self, stop: CancellationToken);

    /// Answers once the store answers.
    async fn ping(&self) -> Result<()>;

    /// Whether a push would be accepted durably now; and if so, what is degraded, in a sentence.
    ///
    /// # Errors
    /// Why it would not.
    async fn ready(&self) -> Result<Option<String>> {
        self.ping().await.map(|()| None)
    }

    /// Makes everything durable that was answered and releases what it holds.
    async fn close(&self) -> Result<()>;

    /// The identity of the data behind the store, which lives as long as the data: a store that has none takes the one
    /// that is offered. Who finds another one than before has other data before it.
    async fn identity(&self, offered: &str) -> Result<String>;

    /// The descriptor of a topic, if it exists and was not deleted.
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>>;

    /// The names of all topics, sorted.
    async fn topics(&self) -> Result<Vec<TopicName>>;

    /// Makes a topic, or returns the one that exists. The store sets generation and incarnation. A descriptor that has an
    /// incarnation is of a topic that the store may have lost: it is made again as that very topic.
    ///
    /// # Errors
    /// `Full` past [`crate::limits::TOPICS_MAX`] topics; `NotFound` when that very topic was deleted.
    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Replaces the descriptor that has `wanted.generation`, and returns the new one with its new generation.
    ///
    /// # Errors
    /// `Stale` when the topic has another generation now, `NotFound` when it is gone.
    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Deletes a topic with all its messages. Deleting one that is gone does nothing.
    async fn delete(&self, descriptor: &Descriptor) -> Result<()>;

    /// Stores messages of one partition in the pairs of all groups, all or none, and answers for each.
    ///
    /// An id that a group holds in any state, or that was settled within the dedup window, is a duplicate and changes
    /// nothing. At most [`crate::limits::CALL_IDS_MAX`] messages.
    ///
    /// # Errors
    /// `Stale` when the partition has seen a newer descriptor: load it again.
    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        kind: PushKind,
        messages: &[Message],
    ) -> Result<Vec<Pushed>>;

    /// Looks at one message of a pair.
    async fn peek(&self, pair: &Pair, id: &MessageId) -> Result<Option<Peeked>>;

    /// Counts the messages of pairs, in the order asked.
    async fn stats(&self, pairs: &[Pair]) -> Result<Vec<PairStats>>;

    /// Dead messages of a pair, oldest death first, at most `limit` after a cursor.
    async fn dead(&self, pair: &Pair, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage>;

    /// Makes dead messages ready again, with no attempt counted, and answers for each whether it was dead.
    /// At most [`crate::limits::RECOVER_IDS_MAX`] ids.
    async fn redrive(&self, pair: &Pair, ids: &[MessageId]) -> Result<Vec<bool>>;

    /// Deletes dead messages, and answers for each whether it was dead.
    /// At most [`crate::limits::RECOVER_IDS_MAX`] ids.
    async fn purge(&self, pair: &Pair, ids: &[MessageId]) -> Result<Vec<bool>>;

    /// Says that a member of a group lives, and answers which ones do, sorted. Who has not said so for `ttl` does not.
    async fn beat(
        &self,
        topic: &TopicName,
        group: &GroupName,
        member: &MemberId,
        ttl: Duration,
    ) -> Result<Vec<MemberId>>;

    /// Says that a member leaves its group. Leaving again does nothing.
    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()>;

    /// Takes the lease of a pair for `ttl`, if it is free or this member's. Every acquisition is a new epoch.
    ///
    /// # Errors
    /// `Stale` when the topic has a newer generation than `generation` in that partition, or was deleted; `Conflict` when
    /// another acquisition came first, and changed nothing: try again.
    async fn acquire(&self, pair: &Pair, member: &MemberId, ttl: Duration, generation: u64) -> Result<Acquired>;

    /// Prolongs leases to `ttl` from now, each answered for itself. A lease that lapsed and that nobody took is resumed
    /// under the same epoch.
    async fn renew(&self, member: &MemberId, claims: &[Claim], ttl: Duration) -> Vec<Result<Renewal>>;
}

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
