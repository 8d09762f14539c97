//! Methods of a store for the outage layer: applying the records of a log; and what a stopping broker gives to another one.

use std::time::Duration;

use async_trait::async_trait;

use super::{Contract, Purge, Pushed, Refused};
use crate::model::error::Result;
use crate::model::message::{Conflict, CronJobName, GroupName, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::schedule::Schedule;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::{CallId, CallPart, Version};

/// Numbers of a log whose records a partition remembers together, once they were handed over: a small hash.
const ORIGIN_PAGE: u64 = 128;

#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// The number of its record. Those of a partition grow from call to call.
    pub number: u64,
    pub version: Version,
    pub message: Message,
    /// Its place in the log of the broker that handed it over, if one did.
    pub origin: Option<CallId>,
}

/// The part of a log with a handed-over record. A partition remembers each part, so one call replays one part.
pub fn origin_page(origin: &CallId) -> (String, u64) {
    (origin.stream.clone(), origin.seq / ORIGIN_PAGE)
}

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "most of them are the large one")]
pub enum Change {
    Set {
        message: Message,
        version: Version,
        /// The groups in which; empty is all of them.
        groups: Vec<GroupName>,
        call: CallId,
    },
    End {
        id: MessageId,
        /// A message with this version or a lower one is over.
        version: Version,
        groups: Vec<GroupName>,
        /// A consumer acknowledged it.
        is_acked: bool,
    },
}

/// A cron job as a journal keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptCronJob {
    pub name: CronJobName,
    /// The version of its last change, of which a deletion is one.
    pub revision: Version,
    /// Every occurrence up to here is done with.
    pub last: Timestamp,
    /// `None` if it was deleted.
    pub schedule: Option<Schedule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It noticed that the store lost something.
    Lost,
    Busy,
    /// It has restored all that it had, and began to offer it at this time of the store.
    Settled(Timestamp),
    /// It stops, and has nothing that is not in the store.
    Gone,
    /// Nothing is said; the others are looked at.
    Look,
}

impl Progress {
    pub fn name(self) -> &'static str {
        match self {
            Progress::Lost => "lost",
            Progress::Busy => "busy",
            Progress::Settled(_) => "settled",
            Progress::Gone => "gone",
            Progress::Look => "look",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reports {
    pub now: Timestamp,
    pub lost_at: Timestamp,
    /// Whether the store knew of this broker before.
    pub was_listed: bool,
    pub brokers: Vec<BrokerReport>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerReport {
    pub broker: String,
    pub is_settled: bool,
    /// When it said so, by the store's clock.
    pub at: Timestamp,
}

/// Which data a store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub id: String,
    /// It had none, and took the offered one.
    pub is_new: bool,
}

/// For how long a deleted topic leaves a tombstone: without one, a topic that was there since is not deleted but lost.
pub const TOMBSTONE_KEPT: Duration = Duration::from_secs(86_400);

/// A store to which logs are applied. Everything here may be said again, and in any order of logs.
#[async_trait]
pub trait LogTarget: Contract {
    /// The identity of the store's data, and whether the store had none and took this one, or a new one. A store that had another one
    /// before has lost it, and perhaps all that it had. A new one is a ULID of the store's time: it says when it was given.
    async fn identity(&self, known: Option<&str>) -> Result<Identity>;

    /// The descriptor of a topic, or its tombstone for as long as there is one.
    async fn topic_or_tombstone(&self, topic: &TopicName) -> Result<Option<Descriptor>>;

    /// Whether any partition remembers what it answered this broker, or these topics are there, made when this broker knew them to be made:
    /// then it is the same store, whatever its name.
    async fn remembers(&self, topics: &[Descriptor]) -> Result<bool>;

    /// The store of this identity is the one that calls are for; one that answers under another name is given nothing.
    fn accept(&self, identity: &str);

    /// Lets the newest descriptor of a topic count, of `known` and those that the store has: one that is missing is created again as it
    /// was, and one whose tombstone is newer deleted. Lists it and its cron jobs again, since only the lists may be lost. Answers the
    /// newest, and whether the topic was missing.
    async fn merge(&self, known: &Descriptor) -> Result<(Descriptor, bool)>;

    /// Whether a message of an unanswered call was set by it, or its id was there; if not, no copy of it ever sets it.
    async fn fence(&self, topic: &TopicName, partition: Partition, part: &CallPart) -> Result<bool>;

    /// Stores messages of a partition that a log kept, in the order of their numbers: what the partition has from this
    /// log already, or what has a later version, is a duplicate. Answers for each, up to one that a consumer has and
    /// that is neither replaced nor moved meanwhile: that one and what follows was not looked at. At most
    /// [`crate::model::limits::POLICY_IDS_MAX`] messages. Errors: `Stale` when the partition has seen a newer descriptor:
    /// load it again. `Unavailable` when the store is suspected of another number of losses than `losses`: nothing was
    /// applied. A record that a broker handed over is applied once, by whichever broker replays it first: the one that has it
    /// now, another one that was given it too, or the one that had it first.
    async fn replay(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        log: &str,
        conflict: Conflict,
        messages: &[Replayed],
        losses: u64,
    ) -> Result<Vec<Result<Pushed, Refused>>>;

    /// Cancels what waits under an id and has a lower version, also if it comes out of a log later. Errors: `Stale`
    /// when the partition has seen a newer descriptor: load it again.
    async fn withdraw(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        version: Version,
    ) -> Result<()>;

    /// Purges a group in a partition again, if the store lost that it was: deletes what has this version or a lower one,
    /// also if it comes out of a log later; and answers how many messages. Errors: as [`LogTarget::restore`].
    async fn reapply_purge(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        purge: &Purge,
        version: Version,
        losses: u64,
    ) -> Result<u64>;

    /// Brings a cron job to the state that a journal says the store had answered for, and answers whether that changed it. Errors: as
    /// [`LogTarget::restore`].
    async fn restore_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        cron: &KeptCronJob,
        losses: u64,
    ) -> Result<bool>;

    /// Brings messages of a partition to the state that a journal says the store had answered for, where the store lost
    /// it; and answers how many it changed. At most [`crate::model::limits::RESTORE_CHANGES_MAX`] changes, all of what
    /// one call set or none. Errors: `Stale` when the partition has seen a newer descriptor: load it again.
    /// `Unavailable` when the store is suspected of another number of losses than `losses`: nothing was applied.
    async fn restore(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        changes: &[Change],
        losses: u64,
    ) -> Result<u64>;

    /// Says how far this broker is with restoring, and answers what all brokers said that keep a journal. A broker that
    /// began to offer before a loss that another one noticed is not settled, whatever it says.
    async fn report(&self, broker: &str, progress: Progress) -> Result<Reports>;

    /// Asks every partition that this broker has called whether it has all that it answered. Errors: those of a partition that did not
    /// say; what others said is known.
    async fn compare(&self) -> Result<()>;

    /// Whether a partition may have lost something that this broker, or its journal, was answered: it was found to, or was not
    /// compared since this process began.
    fn may_lack(&self, topic: &TopicName, partition: Partition) -> bool;

    /// Whether any partition was found to have lost something that is not restored yet.
    fn has_lost(&self) -> bool;

    /// This broker has found a loss that no call met: what is restored before it counts for nothing.
    fn suspect_loss(&self);

    /// Nothing is to be reserved from now on until [`LogTarget::restored`], and the same from each later loss on. `is_heard` when there
    /// was a loss that the store did not notice.
    fn hold_at_losses(&self, is_heard: bool);

    /// Everything is restored that was lost in so many losses.
    fn restored(&self, losses: u64);
}
