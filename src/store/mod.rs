//! The store contract: what anyone may do to a topic ([`Store`]), and what the owner of a pair may do
//! through the handle that [`Store::acquire`] returned ([`Owner`]).
//!
//! Two stores fulfil it: Redis and the embedded sled store. The conformance suite is its definition. Nothing above
//! this module knows which store it has. A store decides nothing about retries, deadlines or who should own what.

mod verify;
mod call;
mod depth;
mod clock;
mod clock_note;
mod changes;
mod datagram;
pub mod embedded;
mod epoch;
mod hand_over;
mod listing;
mod log_target;
mod data_loss;
mod member;
mod outcome;
mod schedule;
mod notifications;
pub mod redis;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use call::{Call, Calls};
pub use changes::{Cancelled, Expected, Fate, Fates, Put, Reschedule, Rescheduled};
pub use clock::StoreClock;
pub use clock_note::ClockNote;
pub use data_loss::Loss;
pub use datagram::{Datagram, Datagrams};
pub use depth::{CensusClaim, HealthSnapshot, PartitionDepth};
pub(crate) use epoch::random_text;
pub use epoch::{Claim, Epoch, MemberId, Tenant};
pub use hand_over::{HandedOver, LogKind, TakenOver};
pub use listing::{InFlightCursor, Listed, Page, WaitingCursor, Window};
pub use log_target::{BrokerReport, Change, LogTarget, Progress, Replayed, Reports, origin_page};
pub use member::{Heartbeat, LiveMember, MemberReport, MemberState, slot_of};
pub use notifications::{Channel, Releases, Sleeper, Wake, Wakes};
pub use outcome::{
    Acquired, Buried, Charge, Copied, CopyCursor, Dead, DeadBounds, DeadCursor, DeadDropped, DeadPage, Description,
    Forecast, Glance, MovedPage, PartitionStats, Peeked, Pushed, Recovered, Renewal, RepairCursor, Repaired,
    Reservation, ReserveLimit, Reserved, ReservedMessage, Retried, Returned, Settlement, SlotAsk, Slots, Spans, State,
    WindowPage,
};
pub use schedule::{Fired, Firing, ScheduleChange, ScheduleRecord};
pub use verify::{Defect, Finding, VerifyCursor, VerifyPage};

use crate::model::error::{Error, Kind, Result};
use crate::model::message::{Conflict, GroupName, Key, Message, MessageId, ScheduleName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};

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

    /// Keeps, durably, what another broker could not bring to the store before it stops. Deletions of topics are left out
    /// unless `is_admin`. A page that is given again does no harm.
    ///
    /// # Errors
    /// `Conflict` when it is of another store, or nothing is kept for it here; `Invalid` for records that no broker writes;
    /// `Full` and `Unavailable` when the disk does not take it: then nothing is kept.
    async fn take_over(&self, _handed: HandedOver, _is_admin: bool) -> Result<TakenOver> {
        Err(Error::new(Kind::Conflict, "this broker has the embedded store, which takes nothing over"))
    }

    /// How many replicas have what is answered as stored; 0 where none is waited for.
    fn replicas(&self) -> u32 {
        0
    }

    /// The identity of the data behind the store, which lives as long as the data: a store that has none takes the one
    /// that is offered. Who finds another one than before has other data before it.
    async fn identity(&self, offered: &str) -> Result<String>;

    /// The descriptor of a topic, if it exists and was not deleted.
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>>;

    /// The same for who only looks: nothing is remembered of the topic for the time when the store is away.
    async fn look_at_topic(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        self.topic(topic).await
    }

    /// The names of all topics, sorted.
    async fn topics(&self) -> Result<Vec<TopicName>>;

    /// Makes a topic, or returns the one that exists. The store sets generation and incarnation. A descriptor that has an
    /// incarnation is of a topic that the store may have lost: it is made again as that very topic.
    ///
    /// # Errors
    /// `Full` past [`crate::model::limits::TOPICS_MAX`] topics; `NotFound` when that very topic was deleted.
    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Replaces the descriptor that has `wanted.generation`, and returns the new one with its new generation. Once it has
    /// answered no partition takes a push under an older one, so a group that is new gets all that is pushed from then on,
    /// and of groups that `wanted` does not name everything is gone.
    ///
    /// # Errors
    /// `Stale` when the topic has another generation now, `NotFound` when it is gone.
    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Makes sure that no partition takes a push under an older descriptor than this one, which is in place: the update
    /// that made it may have been cut short.
    ///
    /// # Errors
    /// `Stale` when a partition has seen a newer one, or the topic is gone.
    async fn proclaim(&self, descriptor: &Descriptor) -> Result<()>;

    /// Gives a group that is a copy of another one a page of what that one holds in a partition, scheduled, ready or in
    /// flight, due when its producer said. Repeat from the cursor until there is none. What the group has already is left
    /// alone, so that beginning again copies nothing twice.
    ///
    /// # Errors
    /// `Stale` when the partition does not know that the group is being copied, or knows that it no longer is.
    async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied>;

    /// Deletes a topic with all its messages. Deleting one that is gone does nothing.
    async fn delete(&self, descriptor: &Descriptor) -> Result<()>;

    /// The same, if the topic still has the generation of `descriptor`: of two that change it at once one succeeds.
    ///
    /// # Errors
    /// `Stale` when it has another one.
    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<()>;

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

    /// The keys of the messages of this id that are on the local disk, on their way to the store.
    async fn buffered(&self, _topic: &TopicName, _id: &MessageId) -> Result<Vec<Option<Key>>> {
        Ok(Vec::new())
    }

    /// Counts the messages of pairs, in the order asked.
    async fn stats(&self, pairs: &[GroupPartition]) -> Result<Vec<PartitionStats>>;

    /// Counts the messages of pairs, and of what is scheduled how much becomes due within each of some spans from now, in
    /// the order asked.
    async fn depth(&self, pairs: &[GroupPartition], within: &[Duration]) -> Result<Vec<PartitionDepth>>;

    /// Makes this member the one that counts for all who share the store, for `ttl` from now, unless another one is.
    async fn claim_census(&self, _member: &MemberId, _ttl: Duration) -> Result<CensusClaim> {
        Ok(CensusClaim::Alone)
    }

    /// Lets another one count for all. Saying it again, or of what this member does not have, does nothing.
    async fn give_census(&self, _member: &MemberId) -> Result<()> {
        Ok(())
    }

    /// What its process can say of it at once, without asking it: for those who look at metrics.
    fn vitals(&self) -> HealthSnapshot;

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

    /// Where there are schedules: partitions of topics, sorted. Some may have none any more, or be of a topic that is gone.
    async fn schedule_places(&self) -> Result<Vec<(TopicName, Partition)>>;

    /// The schedules of a partition, sorted by name; none of a topic that is gone.
    async fn schedules(&self, topic: &TopicName, partition: Partition) -> Result<Vec<ScheduleRecord>>;

    /// Makes a schedule, or changes it if it is still what the author of the change saw; false when it is not. What is
    /// done up to then never goes back. [`Channel::Schedules`] is woken.
    ///
    /// # Errors
    /// `Stale` when the partition has seen a newer descriptor; `Full` past [`crate::model::limits::SCHEDULES_MAX`].
    async fn put_schedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &ScheduleChange,
    ) -> Result<bool>;

    /// Removes a schedule, and answers whether it was there. [`Channel::Schedules`] is woken.
    async fn remove_schedule(&self, topic: &TopicName, partition: Partition, name: &ScheduleName) -> Result<bool>;

    /// Fires occurrences of a schedule: pushes their messages and marks them as done in one step, once for all callers
    /// and all repeats, whatever became of the messages since. Saying it again is safe.
    ///
    /// # Errors
    /// `Stale` when the partition has seen a newer descriptor; `Full`.
    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired>;

    /// Moves a page of what a pair of the topic `from` holds, but for what is in flight, into the pairs of the same group of
    /// another topic, each message where its key belongs there. A message is in one of the two all the while; saying it
    /// again after a failure goes on with it, and doubles nothing, also when what arrived was consumed since.
    ///
    /// # Errors
    /// `Stale` when the other topic has changed or either is gone; `Full`.
    async fn move_page(&self, from: &Descriptor, pair: &GroupPartition, to: &Descriptor) -> Result<MovedPage>;

    /// Looks at a page of what a pair holds, whether ids and bodies agree with each other, and mends what does not if
    /// asked to.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from here.
    async fn audit(&self, pair: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage>;

    /// Records heartbeats of a member in some groups, and returns the live members of each group, sorted: those with a
    /// heartbeat within `ttl`. Announces a member that is new, and one whose demand has changed.
    async fn beat(&self, member: &MemberId, heartbeats: &[Heartbeat], ttl: Duration) -> Vec<Result<Vec<LiveMember>>>;

    /// Reads the live members of a group, those with a heartbeat within `ttl`, sorted.
    async fn members(&self, topic: &TopicName, group: &GroupName, ttl: Duration) -> Result<Vec<MemberReport>>;

    /// Says that a member leaves its group. Leaving again does nothing.
    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()>;

    /// Gives out slots of a group, each one once and at least `spacing` behind the one before.
    async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots>;

    /// Takes the lease of a pair for `ttl`, if it is free or this member's. Every acquisition is a new epoch.
    ///
    /// # Errors
    /// `Stale` when the topic has a newer generation than `generation` in that partition, or was deleted; `Conflict` when
    /// another acquisition came first, and changed nothing: try again.
    async fn acquire(
        &self,
        pair: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Acquired>;

    /// Who owns pairs now, in the order asked; `None` for a pair without an epoch, and in a store of one process.
    async fn tenants(&self, pairs: &[GroupPartition]) -> Result<Vec<Option<Tenant>>>;

    /// Sends a datagram to a member, at most [`crate::model::limits::DATAGRAM_BYTES_MAX`] bytes. False if certainly no process
    /// receives what is sent to it now; true promises nothing.
    async fn send(&self, to: &MemberId, datagram: Bytes) -> Result<bool>;

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
