//! Messages that failed too often.

use async_trait::async_trait;

use crate::codec::DeadLetterRecord;
use crate::model::error::{Error, Result};
use crate::model::limits::FORWARD_HOPS_MAX;
use crate::model::message::{DeadLetterSource, Envelope, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::model::version::Version;

#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// Dead messages of a partition, oldest death first, at most `limit` after a cursor.
    async fn dead(
        &self,
        partition: &GroupPartition,
        after: Option<&DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage> {
        let (partition, after) = (partition.clone(), after.cloned());
        self.dead_by_age(&DeadLetterRange { partition, order: AgeOrder::OldestFirst, after, limit }).await
    }

    /// Dead messages of a partition by the time of their death, and then by id. One that stays is listed exactly once.
    async fn dead_by_age(&self, range: &DeadLetterRange) -> Result<DeadLetterPage>;

    /// Outlines of the messages that [`DeadLetters::dead_by_age`] lists, for ranges in the order asked: a merge of partitions
    /// reads them before it reads the messages.
    async fn dead_outlines(&self, ranges: &[DeadLetterRange]) -> Result<Vec<DeadLetterOutlinePage>>;

    /// Makes at most [`crate::model::limits::RECOVER_IDS_MAX`] dead messages ready, with no attempt counted;
    /// answers for each whether it was dead.
    async fn redrive(&self, partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>>;

    /// Deletes at most [`crate::model::limits::RECOVER_IDS_MAX`] dead messages; answers for each the version that it had,
    /// or `None` if it was not dead.
    async fn purge(&self, partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<Option<Version>>>;

    /// Moves at most [`crate::model::limits::RECOVER_IDS_MAX`] dead letters to the topic `to`, where all its groups get
    /// them at once: a dead letter is in one of the two topics all the while, and [`DeadLetters::forwarded`] has to follow.
    /// A page that an earlier call left comes first, also without `to`. Repeat it until there is nothing; a repeat stores
    /// nothing twice. One whose id is taken there gets another. Errors: `Corrupt`; whatever else the other topic refuses is
    /// in [`Forwarded`].
    async fn forward(&self, partition: &GroupPartition, to: Option<&Descriptor>, ids: &[MessageId]) -> Result<Forward>;

    /// Forgets a page that was forwarded, and makes what was refused dead letters of the partition again.
    async fn forwarded(&self, partition: &GroupPartition, page: &Forwarded) -> Result<()>;

    /// Drops a page of the dead messages that are past the bounds, oldest death first.
    async fn drop_dead(&self, partition: &GroupPartition, bounds: DeadLetterRetention) -> Result<DroppedDeadLetters>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterCursor {
    pub died_at: Timestamp,
    pub id: MessageId,
}

/// Which death comes first in a list of dead letters. Equal times are ordered by id, in the same direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgeOrder {
    OldestFirst,
    NewestFirst,
}

/// The first dead letters of a partition in an order: behind a cursor, at most `limit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterRange {
    pub partition: GroupPartition,
    pub order: AgeOrder,
    pub after: Option<DeadLetterCursor>,
    pub limit: usize,
}

/// A dead letter without its record and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterOutline {
    pub died_at: Timestamp,
    pub id: MessageId,
    /// Size of its record and its body.
    pub bytes: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterOutlinePage {
    pub dead: Vec<DeadLetterOutline>,
    /// Where the next page begins, if there is more.
    pub next: Option<DeadLetterCursor>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    pub id: MessageId,
    pub died_at: Timestamp,
    pub record: DeadLetterRecord,
    pub version: Version,
    /// The message; an error when its body is unreadable.
    pub message: Result<Message>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterPage {
    pub dead: Vec<Dead>,
    pub next: Option<DeadLetterCursor>,
}

/// Bounds of the dead letters of a group in a partition; those past them are dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeadLetterRetention {
    pub died_before: Option<Timestamp>,
    /// Of the others, so many are kept: the newest.
    pub count: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Forward {
    Nothing,
    /// A page is on its way to this other topic.
    Elsewhere {
        topic: TopicName,
        incarnation: u64,
        page: Forwarded,
    },
    Done(Forwarded),
}

/// A page of dead letters that were forwarded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Forwarded {
    pub page: u64,
    /// The stream of the pages of the partition that were answered to this broker; with the number of a page it is the
    /// call that stored the messages.
    pub stream: String,
    pub messages: Vec<ForwardedMessage>,
    /// Messages that the other topic refused; `refusal` says why.
    pub refused: Vec<MessageId>,
    pub refusal: Option<Error>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ForwardedMessage {
    /// Its id in the partition.
    pub id: MessageId,
    pub version: Version,
    /// The message in the other topic.
    pub message: Message,
    pub new_version: Version,
    /// An earlier call stored it, perhaps with another version.
    pub was_stored: bool,
}

impl Dead {
    /// Whether so many topics have forwarded it that it stays where it is, unless it would go to a topic that forwards
    /// nothing.
    pub fn is_at_hop_limit(&self) -> bool {
        self.message.as_ref().is_ok_and(|message| message.envelope.hops() >= FORWARD_HOPS_MAX)
    }

    /// The message that it is in the topic `to`: due now, with the attempts and the time to live of that topic. Errors:
    /// `Corrupt` when its body is unreadable.
    pub fn forwarded(self, partition: &GroupPartition, to: &Descriptor, now: Timestamp) -> Result<Message> {
        let Dead { id, died_at, record, message, .. } = self;
        let envelope = message?.envelope;
        let source = DeadLetterSource {
            topic: partition.topic.clone(),
            group: partition.group.clone(),
            id: id.clone(),
            reason: record.reason.name().to_owned(),
            attempts: record.attempts,
            died_at,
            last_error: record.last_error,
            hops: envelope.hops().saturating_add(1),
        };
        let ttl = to.settings.ttl;
        let expires_at = (!ttl.is_zero()).then(|| now.plus(ttl));
        let dead_letter_source = Some(Box::new(source));
        Ok(Message {
            id,
            due_at: now,
            debounce_max: None,
            envelope: Envelope { expires_at, max_attempts: None, dead_letter_source, ..envelope },
            successor: None,
        })
    }
}

/// The id of a message that is stored in a partition in which its own is taken.
pub(super) fn other_id(message: &Message, to: &Descriptor, partition: Partition, version: Version) -> MessageId {
    let fits = |id: &MessageId| message.envelope.key.is_some() || to.partition_of(id.as_str()) == partition;
    let first = message.id.beside(version.as_us());
    (version.as_us()..).map(|number| message.id.beside(number)).find(fits).unwrap_or(first)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedDeadLetters {
    pub aged: u64,
    pub surplus: u64,
    pub more: bool,
    /// When the oldest one that is left died.
    pub oldest: Option<Timestamp>,
}
