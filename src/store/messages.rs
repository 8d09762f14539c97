//! Messages on their way in, changes of those that wait, and calls that are applied once.
//!
//! Each live call of a producer carries an id that its partition remembers. As with Kafka's idempotent producer, it is a
//! number in a stream; a stream has one call out at a time and continues only after an answer. So the repeat of a call whose
//! answer was lost is recognised, also when its messages were consumed meanwhile, and a late copy does nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::StoreClock;
use crate::codec::{Failure, NumberedRecord};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::PAUSED_KEYS_MAX;
use crate::model::message::{Conflict, GroupName, Key, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::{CallId, Version};
use crate::platform::clock::Instant;

#[async_trait]
pub trait Messages: Send + Sync + 'static {
    /// Keeps, durably, what another broker could not bring to the store before it stops. Deletions of topics and purges of
    /// groups are left out unless `is_admin`. A page that is given again does no harm. Errors: `Conflict` when it is of another store,
    /// or nothing is kept for it here; `Invalid` for records that no broker writes; `Full` and `Unavailable` when the
    /// disk does not take it: then nothing is kept.
    async fn take_over(&self, _handed: HandedOver, _is_admin: bool) -> Result<TakenOver> {
        Err(Error::new(Kind::Conflict, "this broker has the embedded store, which takes nothing over"))
    }

    /// Stores messages of one partition for each of its groups, and answers for each. `conflict` says what becomes of one whose id
    /// a group holds in any state, or that was settled within the dedup window. With [`Conflict::Keep`] it is a duplicate and
    /// changes nothing, and all or none are stored; so is a message whose time of push is within the window of another one with its
    /// dedup key, or the other way around; the verdict says what was there. With another policy the messages are stored one after
    /// the other, and with [`Conflict::After`] each group decides for itself. So equal ids of a call meet in their order. A call that is made again is answered as before. At most
    /// [`Conflict::call_ids_max`] messages. Errors: `Stale` when the partition has seen a newer descriptor, or an id has a later
    /// version: load the topic again, and make another call.
    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<PushVerdict>>;

    /// Takes a message out of every group in which it waits, scheduled or ready. A message that is cancelled is
    /// remembered for [`crate::model::limits::CANCELLED_KEPT`]: cancelling it again is answered the same. Errors:
    /// `Stale` when the partition has seen a newer descriptor: load it again.
    async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        id: &MessageId,
    ) -> Result<Cancelled>;

    /// Deletes all messages of a group in a partition, scheduled, ready or reserved, and ends the epoch of its owner,
    /// which is announced. Other groups keep theirs. Messages that wait in a log, and were answered before, do not return.
    /// A call that is made again is answered as before, and deletes nothing that was pushed since. Errors: `Stale` when
    /// the partition has seen a newer descriptor: load it again.
    async fn purge_group(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        purge: &Purge,
    ) -> Result<Purged>;

    /// Makes the messages of a key wait in a group until a time, or no longer: no reservation by key that begins once this has
    /// answered takes one of them before. Reserved messages stay reserved. A call that is made again is answered as before. A store that
    /// loses it lets them go. Errors: `Full` past [`PAUSED_KEYS_MAX`]; `Stale` as [`Messages::push`].
    ///
    /// [`PAUSED_KEYS_MAX`]: crate::model::limits::PAUSED_KEYS_MAX
    async fn pause_key(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        pause: &KeyPause,
    ) -> Result<()>;

    /// Gives a message another due time in every group in which it waits. Attempts stay. Errors: as [`Messages::push`].
    async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled>;

    /// Settles messages of a group that wait, scheduled or ready: each only if it is as its last delivery left it, so
    /// of the same version and with as many attempts charged. Answers for each. Messages that such a call acknowledged
    /// are remembered for a while: acknowledging it again is answered the same. At most
    /// [`crate::model::limits::CALL_IDS_MAX`] messages. Errors: `Stale` when the partition has seen a newer descriptor:
    /// load it again.
    async fn settle_late(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        call: &Call,
        settlements: &[LateSettlement],
    ) -> Result<Vec<LateFate>>;

    /// The messages of this id that are on the local disk, on their way to the store.
    async fn buffered(&self, _topic: &TopicName, _id: &MessageId) -> Result<Vec<Buffered>> {
        Ok(Vec::new())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    Stored,
    /// It follows the message of its id, which is in flight, and takes its place once that has ended; or it is stored in the groups
    /// that have settled that message.
    Behind,
    /// It is in the store, and for a while on the local disk as well, in case the store loses its last moments.
    Journaled,
    /// It is on the local disk, and goes into the store once that can be reached.
    Buffered,
    /// Its id was there already; nothing changed.
    Duplicate,
    /// Its dedup key was seen within its window, in a push of this id; nothing changed.
    DuplicateOf(MessageId),
    /// It took the place of the message that waited under its id, or that followed the one in flight.
    Replaced,
    /// The message that waited under its id has its due time now.
    Debounced,
}

impl Pushed {
    pub fn name(&self) -> &'static str {
        match self {
            Pushed::Stored | Pushed::Behind => "stored",
            Pushed::Journaled => "journaled",
            Pushed::Buffered => "buffered",
            Pushed::Duplicate | Pushed::DuplicateOf(_) => "duplicate",
            Pushed::Replaced => "replaced",
            Pushed::Debounced => "debounced",
        }
    }
}

/// Why a policy did not let a push replace or move the message that is there. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A group has it in flight.
    InFlight,
    /// It is dead in a group.
    Dead,
    /// The stored message has this id and another key, so it is another message.
    OtherKey,
    /// It expires before the due time that was asked for.
    Expires,
}

/// The outcome of a push of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushVerdict {
    pub pushed: Result<Pushed, Refused>,
    /// Of a duplicate under [`Conflict::Keep`]: the message that was there; `None` once that was settled.
    pub there: Option<StoredDuplicate>,
    /// When the message is due, if its first push left it an earlier time than the push asked for.
    pub bounded: Option<Timestamp>,
}

impl PushVerdict {
    /// Whether the message was stored, and nothing was there.
    pub fn is_new(&self) -> bool {
        self.pushed == Ok(Pushed::Stored)
    }

    /// Whether it waits on the local disk.
    pub fn is_buffered(&self) -> bool {
        self.pushed == Ok(Pushed::Buffered)
    }
}

impl From<Pushed> for PushVerdict {
    fn from(pushed: Pushed) -> PushVerdict {
        Ok(pushed).into()
    }
}

impl From<Result<Pushed, Refused>> for PushVerdict {
    fn from(pushed: Result<Pushed, Refused>) -> PushVerdict {
        PushVerdict { pushed, there: None, bounded: None }
    }
}

/// The message that a push found under its id, or as the first of its dedup key, in any state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredDuplicate {
    pub due_at: Timestamp,
    /// Whether it has the same key; true also if it has another id, so that the dedup key decided.
    pub is_same_key: bool,
    /// Whether it has the same payload and attachment; not compared if the keys differ.
    pub is_same_content: bool,
}

impl StoredDuplicate {
    /// Compares a pushed message with the stored one.
    pub fn new(stored: &Message, pushed: &Message) -> StoredDuplicate {
        StoredDuplicate {
            due_at: stored.due_at,
            is_same_key: stored.id != pushed.id || stored.envelope.key == pushed.envelope.key,
            is_same_content: stored.envelope.payload == pushed.envelope.payload
                && stored.envelope.attachment == pushed.envelope.attachment,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purge {
    pub group: GroupName,
    /// Whether its dead letters are deleted too.
    pub dead_letters: bool,
}

/// A change of how long the messages of a key wait in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPause {
    pub group: GroupName,
    pub key: Key,
    /// Without it they wait no longer.
    pub until: Option<Timestamp>,
}

pub(super) fn too_many_paused() -> Error {
    let detail =
        format!("{PAUSED_KEYS_MAX} keys of this group are paused in the partition of the key, which is the limit");
    Error::new(Kind::Full, detail)
}

/// The messages that a purge deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Messages that were scheduled, ready or reserved.
    pub messages: u64,
    pub dead_letters: u64,
    /// Messages of this version or a lower one are gone from the group.
    pub version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It waited there, scheduled or ready, and what was asked is done. Also what a cancel finds done already.
    Done,
    /// The owner of the partition has it: with a consumer, or ready in its memory. Not touched.
    InFlight,
    Dead,
    /// The group does not have it: it never did, or it was settled.
    Absent,
}

impl Fate {
    pub const ALL: [Fate; 4] = [Fate::Done, Fate::InFlight, Fate::Dead, Fate::Absent];

    pub fn name(self) -> &'static str {
        match self {
            Fate::Done => "done",
            Fate::InFlight => "in_flight",
            Fate::Dead => "dead",
            Fate::Absent => "absent",
        }
    }
}

/// The fate of a message in each group of its topic, in the order of the descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fates(pub Vec<(GroupName, Fate)>);

impl Fates {
    pub fn all(groups: &[GroupName], fate: Fate) -> Fates {
        Fates(groups.iter().map(|group| (group.clone(), fate)).collect())
    }

    pub fn has(&self, fate: Fate) -> bool {
        self.0.iter().any(|(_, found)| *found == fate)
    }

    pub fn of(&self, fate: Fate) -> impl Iterator<Item = &GroupName> {
        self.0.iter().filter(move |(_, found)| *found == fate).map(|(group, _)| group)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    pub fates: Fates,
    /// The version of the cancel: what has a lower one does not come back from a log. None if nothing was cancelled.
    pub version: Option<Version>,
    /// It was on the local disk, on its way to the store, and is not any more.
    pub buffered: bool,
}

/// A message on the local disk, but for its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffered {
    pub key: Option<Key>,
    /// The key that decides its partition.
    pub routing_key: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reschedule {
    pub id: MessageId,
    pub due_at: Timestamp,
    pub expected: Expected,
}

/// Conditions for rescheduling a message. One that has the new due time already is as expected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// Due at that time, as the producer said it or a reschedule did.
    pub due_at: Option<Timestamp>,
    pub attempts: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rescheduled {
    /// It has the new due time in every group in which it waited. With its fate in each group.
    Done(Fates),
    /// In this group it is not what was expected. Nothing was changed anywhere.
    Changed(GroupName),
    /// It expires before the due time that was asked for. Nothing was changed anywhere.
    Expires,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// Requests that the store has yet to take.
    Wal,
    /// Recent answers of the store.
    Journal,
}

impl LogKind {
    pub const ALL: [LogKind; 2] = [LogKind::Wal, LogKind::Journal];

    pub fn name(self) -> &'static str {
        match self {
            LogKind::Wal => "wal",
            LogKind::Journal => "journal",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct HandedOver {
    pub store: String,
    /// When the store was last heard of, by the sender: one that is named later is the same one, emptied.
    pub heard: Option<Timestamp>,
    pub kind: LogKind,
    pub log: String,
    /// The number of the last record before these that has to be taken by the same broker: a journal is given from its
    /// beginning. 0 at the beginning, and always of a write-ahead log.
    pub after: u64,
    pub records: Vec<NumberedRecord>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenOver {
    /// It keeps so many records, and not the others, for which the token is not good.
    Kept {
        taken: u64,
        /// Deletions of topics and purges of groups that were left out.
        refused: u64,
    },
    /// It lacks the records before these, and keeps nothing.
    LacksEarlier,
}

/// A decision about a delivery that has ended: it counts while the message waits and nobody has had it since; or, if it is
/// an ack with `redelivered`, whoever has had it since, and also if the message is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateSettlement {
    /// Whether the messages of its key wait at least as long as it does, if it is no ack. Not with an ordering.
    pub pauses_key: bool,
    pub id: MessageId,
    /// Version of the message that was delivered.
    pub version: Version,
    /// Attempt of the delivery, from 1.
    pub attempt: u32,
    /// Whether an ack counts for a later delivery of the message too, and for a message that is gone: nothing brings it back.
    pub redelivered: bool,
    /// When the message is due again; `None` acknowledges it.
    pub next_at: Option<Timestamp>,
    /// Added to its history.
    pub failure: Option<Failure>,
}

impl LateSettlement {
    /// Whether it counts for a message that was delivered so many times.
    pub fn is_for(&self, attempts: u32) -> bool {
        attempts == self.attempt || self.redelivered && self.next_at.is_none() && attempts > self.attempt
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateFate {
    Done,
    /// An ack that was done by an earlier call.
    Repeated,
    /// An ack with `redelivered` of a message that is not there, and does not come back there. It may be in another topic.
    Gone,
    /// The owner of the partition has it, or a reservation that is not recovered yet.
    InFlight,
    /// Somebody has had it since, it was changed, or it is gone.
    Over,
}

/// Partitions whose streams are remembered; past it all are forgotten, and new streams begin.
const PARTITIONS_MAX: usize = 100_000;

/// How long a stream may rest; far less than its partition remembers it.
const UNUSED_MAX: Duration = Duration::from_secs(24 * 3_600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub id: CallId,
    /// The version of its first message; the others count up from it.
    pub version: Version,
    /// Whether all ids were made by dwell for this call, so that nothing can be stored under them yet.
    pub is_fresh: bool,
}

#[derive(Debug)]
pub struct Calls {
    process: String,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    begun: u64,
    free: HashMap<(TopicName, Partition), Vec<Stream>>,
}

#[derive(Debug)]
struct Stream {
    last: CallId,
    used: Instant,
}

impl Default for Calls {
    fn default() -> Calls {
        let process = ulid::Ulid::new().to_string();
        Calls { process, streams: Mutex::default() }
    }
}

impl Calls {
    pub fn begin(&self, topic: &TopicName, partition: Partition, clock: &StoreClock, messages: usize) -> Call {
        let now = clock.local().instant();
        let mut id = {
            let mut streams = self.streams();
            let free = streams.free.get_mut(&(topic.clone(), partition));
            let free = free.and_then(|free| Some(free.swap_remove(free.len().checked_sub(1)?)));
            // The partition forgets streams that are not used.
            match free.filter(|free| now.since(free.used) < UNUSED_MAX) {
                Some(Stream { last, .. }) => last,
                None => {
                    streams.begun += 1;
                    CallId { stream: format!("{}.{}", self.process, streams.begun), seq: 0 }
                }
            }
        };
        id.seq += 1;
        Call { id, version: clock.versions(messages), is_fresh: false }
    }

    /// After the answer to an applied call its stream may be used again, and after any other call never: what the
    /// partition remembers of it says for good what became of the call.
    pub fn applied(&self, topic: &TopicName, partition: Partition, clock: &StoreClock, call: Call) {
        let stream = Stream { last: call.id, used: clock.local().instant() };
        let mut streams = self.streams();
        if streams.free.len() >= PARTITIONS_MAX {
            streams.free.clear();
        }
        streams.free.entry((topic.clone(), partition)).or_default().push(stream);
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // Every change is made whole under the lock.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;
    use crate::platform::clock::Clock;

    #[test]
    fn call_stream_has_one_call_in_flight() -> Result<()> {
        let (calls, clock) = (Calls::default(), StoreClock::new(Clock::System));
        let (topic, partition) = (TopicName::new("orders")?, Partition(0));
        let first = calls.begin(&topic, partition, &clock, 10);
        let second = calls.begin(&topic, partition, &clock, 1);
        assert_ne!(first.id.stream, second.id.stream);
        assert!(second.version >= first.version.plus(10));
        calls.applied(&topic, partition, &clock, second.clone());
        let third = calls.begin(&topic, partition, &clock, 1);
        assert_eq!((third.id.stream, third.id.seq), (second.id.stream, 2));
        assert_ne!(calls.begin(&topic, partition, &clock, 1).id.stream, first.id.stream);
        Ok(())
    }
}
