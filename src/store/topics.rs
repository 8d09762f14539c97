//! Topics and their cron jobs: descriptors and definitions, and how these change.

use async_trait::async_trait;

use crate::model::error::{Error, Result};
use crate::model::message::{CronJobName, Message, TopicName};
use crate::model::partition::Partition;
use crate::model::schedule::Schedule;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::{CallId, Version};

#[async_trait]
pub trait Topics: Send + Sync + 'static {
    /// The descriptor of a topic, which is remembered for the time when the store is unavailable; `None` if there is no such topic.
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>>;

    /// The descriptor of a topic, which is not remembered.
    async fn topic_uncached(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        self.topic(topic).await
    }

    /// The descriptor of a topic as the store itself has it now, also while pushes are buffered. Errors: `Unavailable`, also where only what is
    /// remembered could be answered.
    async fn topic_there(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        self.topic(topic).await
    }

    async fn topics(&self) -> Result<Vec<TopicName>>;

    /// Creates a topic, or returns the existing one. The store sets generation and incarnation. A descriptor with an
    /// incarnation is of a topic that the store may have lost, and is created again as that very topic. Errors: `Full`
    /// past [`crate::model::limits::TOPICS_MAX`] topics; `NotFound` when that very topic was deleted.
    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Says that a topic, as it was found, is to be there from now on. A store that remembers it without having asked promises it:
    /// another broker may have deleted it.
    async fn assure(&self, _: &Descriptor) -> Result<()> {
        Ok(())
    }

    /// Replaces the descriptor that has `wanted.generation`, and returns the new one with its new generation. Once it
    /// has answered no partition takes a push under an older one, so a group that is new gets all that is pushed from
    /// then on, and of groups that `wanted` does not name everything is gone. Errors: `Stale` when the topic has
    /// another generation now, `NotFound` when it is gone.
    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Makes sure that no partition takes a push under an older descriptor than this one, which is in place. Errors:
    /// `Stale` when a partition has seen a newer one, or the topic is gone.
    async fn publish_descriptor(&self, descriptor: &Descriptor) -> Result<()>;

    /// Deletes a topic with all its messages. Answers its tombstone, by this call or an earlier one; its generation is above the versions
    /// of all that was pushed to the topic. `None`, and nothing is deleted, if there is no such topic, or another one of its name.
    async fn delete(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>>;

    /// Deletes a topic as [`Topics::delete`] does, if its generation is still that of `descriptor`. Errors: `Stale` when it is not.
    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>>;
}

#[async_trait]
pub trait CronJobs: Send + Sync + 'static {
    /// Partitions that have cron jobs, sorted. Some may have none any more, or belong to a topic that is gone.
    async fn cron_partitions(&self) -> Result<Vec<(TopicName, Partition)>>;

    /// The cron jobs of a partition, sorted by name; none of a topic that is gone. One that cannot be read is among them.
    async fn list(&self, topic: &TopicName, partition: Partition) -> Result<Vec<CronJobRecord>>;

    /// Creates a cron job, or changes it if it is still as the author of the change saw it. Answers the mark up to which occurrences
    /// are done then, which never goes back; `None` if it is not as the author saw it. Wakes [`crate::store::Channel::CronJobs`].
    /// Errors: `Stale` when the partition has seen a newer descriptor, or a revision that is not older than this one; `Full` past
    /// [`crate::model::limits::CRON_JOBS_MAX`].
    async fn put_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &CronJobChange,
    ) -> Result<Option<Timestamp>>;

    /// Deletes a cron job, and answers what is known of its deletion, by this call or an earlier one. Wakes
    /// [`crate::store::Channel::CronJobs`]. Errors: `Stale` when the partition has seen a newer descriptor.
    async fn delete_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        name: &CronJobName,
    ) -> Result<CronJobDeletion>;

    /// Pushes the messages of occurrences and marks these as done in one step, once for all callers and repeats.
    /// Errors: `Stale` when the partition has seen a newer descriptor; `Full`.
    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct CronJobRecord {
    pub schedule: Schedule,
    /// The version of its last change.
    pub revision: Version,
    /// Every occurrence up to here is done with, for good.
    pub last: Timestamp,
}

impl CronJobRecord {
    /// `<revision, us> <done up to, ms> <definition>`, as both stores keep it.
    pub fn to_text(&self) -> Result<String> {
        Ok(format!("{} {} {}", self.revision.as_us(), self.last.as_ms(), self.schedule.to_json()?))
    }

    /// An unreadable one is [`crate::model::schedule::Timing::Unreadable`], so that it stops no other cron job.
    pub fn from_text(name: &CronJobName, text: &str) -> CronJobRecord {
        let mut parts = text.splitn(3, ' ');
        let mut number = || parts.next().and_then(|number| number.parse().ok());
        let marks = number().zip(number());
        let Some(((revision, last), json)) = marks.zip(parts.next()) else {
            let why = Error::corrupt("a cron job is not what dwell wrote");
            let schedule = Schedule::unreadable(name.clone(), text, &why);
            return CronJobRecord { schedule, revision: Version::default(), last: Timestamp::ZERO };
        };
        let schedule = Schedule::from_json(json).unwrap_or_else(|why| Schedule::unreadable(name.clone(), json, &why));
        CronJobRecord { schedule, revision: Version::from_us(revision), last: Timestamp::from_ms(last) }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct CronJobChange {
    pub schedule: Schedule,
    /// The revision that its author saw; `None` when there was none.
    pub seen: Option<Version>,
    pub revision: Version,
    /// Up to where occurrences are done with; `None` keeps what the store has.
    pub last: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CronJobDeletion {
    /// Whether this call found it.
    pub was_there: bool,
    /// Above that of the cron job; `None` if the store remembers no deletion.
    pub revision: Option<Version>,
}

/// Occurrences of a schedule to be fired: pushed and marked as done, all or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Firing {
    pub schedule: Schedule,
    pub revision: Version,
    /// If the store has done with occurrences up to here.
    pub last: Timestamp,
    /// Then it is done with those up to here,
    pub done: Timestamp,
    pub messages: Vec<Message>,
    /// The version of the first message; those of the others count up.
    pub version: Version,
}

impl Firing {
    /// The call that a partition remembers of it: the calls of a cron job are numbered by what is done then.
    pub fn call(&self) -> CallId {
        CallId { stream: format!("{FIRINGS}{}", self.schedule.name), seq: self.done.as_ms() }
    }
}

/// The stream of a cron job begins with it; its name follows.
const FIRINGS: &str = "cron.";

/// Whether a call fired a cron job, so that its number is a time, ms.
pub fn is_firing(call: &CallId) -> bool {
    call.stream.starts_with(FIRINGS)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fired {
    /// It was done by this call; for each message whether it is new.
    Done(Vec<bool>),
    /// By the store's clock nothing has occurred yet.
    Early,
    /// Someone was faster: the same version is done up to there.
    Before(Timestamp),
    Changed,
}
