//! The journal: what the store answered lately, as records, in case it loses its last moments. An answer is kept after the
//! store has given it and before the client is told.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::watch;

use super::BufferedStore;
use super::offer::Answer;
use crate::model::error::{Error, Result};
use crate::model::message::{GroupName, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::model::version::{CallId, Version};
use crate::platform::clock::{Clock, Instant};
use crate::platform::log_throttle::RepeatThrottle;
use crate::store::{
    Call, Charge, Epoch, Fate, Fates, Forwarded, KeyCount, LateFate, LateSettlement, LogTarget, Loss, Owner, Purge,
    PushVerdict, Pushed, Recovered, Refused, RepairCursor, Repaired, ReserveLimit, Reserved, Settlement, SortedKeys,
};
use crate::telemetry::metrics::WalMetrics;
use crate::wal::{Position, Record, Wal};

const LOOKS: u32 = 3;

/// Messages of a push that are read back at the same time.
const READS_AT_ONCE: usize = 32;

/// A log of what the store answered, for a window. A record is dropped only when the same store has answered for a
/// whole window after it was kept. Time is counted on the monotonic clock: a wall clock that jumps drops nothing.
pub(super) struct Journal {
    log: Wal,
    window: Duration,
    clock: Clock,
    metrics: WalMetrics,
    timeline: Mutex<Timeline>,
    unwritten: RepeatThrottle,
}

#[derive(Default)]
struct Timeline {
    marks: VecDeque<(Instant, Position)>,
    unbroken: Instant,
}

impl Timeline {
    fn due(&mut self, now: Instant, window: Duration) -> Option<Position> {
        if now.since(self.unbroken) < window {
            return None;
        }
        let old = self.marks.partition_point(|(at, _)| now.since(*at) >= window);
        self.marks.drain(..old).next_back().map(|(_, position)| position)
    }
}

impl Journal {
    pub(super) fn new(log: Wal, window: Duration, clock: Clock, metrics: WalMetrics) -> Journal {
        let timeline = Mutex::new(Timeline { marks: VecDeque::new(), unbroken: clock.instant() });
        Journal { log, window, clock, metrics, timeline, unwritten: RepeatThrottle::default() }
    }

    pub(super) fn log(&self) -> &Wal {
        &self.log
    }

    pub(super) fn window(&self) -> Duration {
        self.window
    }

    pub(super) fn metrics(&self) -> &WalMetrics {
        &self.metrics
    }

    /// Keeps what the store answered. A journal that cannot be written makes no push fail: its answer says so.
    pub(super) async fn keep(&self, records: Vec<Record>) -> bool {
        if records.is_empty() {
            return true;
        }
        let kept = self.log.append(records).await;
        if let Err(error) = &kept
            && self.unwritten.is_due(self.clock.instant())
        {
            tracing::warn!(%error, "journal not written: pushes are only in the store");
        }
        kept.is_ok()
    }

    /// The store was not there, or is another one: what is kept now is kept for a whole window from now on.
    pub(super) fn broken(&self) {
        self.timeline().unbroken = self.clock.instant();
    }

    /// Notes where the log ends now, and trims what is older than the window. Looks a few times in a window at most.
    pub(super) async fn trim_old(&self) -> Result<()> {
        let now = self.clock.instant();
        let due = {
            let mut timeline = self.timeline();
            if timeline.marks.back().is_some_and(|(at, _)| now.since(*at) < self.window / LOOKS) {
                return Ok(());
            }
            if let Some(end) = self.log.depth().end {
                timeline.marks.push_back((now, end));
            }
            timeline.due(now, self.window)
        };
        match due {
            Some(position) => self.log.trim(position).await,
            None => Ok(()),
        }
    }

    fn timeline(&self) -> std::sync::MutexGuard<'_, Timeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: LogTarget> BufferedStore<S> {
    /// Keeps what a push set, and answers whether all of it is kept. `losses` is how many there had been before the
    /// push. Errors: `OutcomeUnknown` when the store may have lost it before it was kept.
    pub(super) async fn keep_sets(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        messages: &[Message],
        verdicts: &[PushVerdict],
        losses: u64,
    ) -> Result<bool> {
        let Some(journal) = &self.journal else { return Ok(false) };
        let mut records = Vec::with_capacity(messages.len());
        let numbered: Vec<_> = messages.iter().zip(verdicts).enumerate().collect();
        for some in numbered.chunks(READS_AT_ONCE) {
            let sets = some.iter().map(|(n, (message, verdict))| {
                let (version, pushed) = (call.version.plus(*n), verdict.pushed.clone());
                self.set(descriptor, partition, message, version, pushed, (&call.id, losses))
            });
            for set in join_all(sets).await {
                records.extend(set?);
            }
        }
        self.kept(journal, records, losses).await
    }

    /// Keeps what a page of the WAL came to. False when it has to be offered again.
    pub(super) async fn keep_page_answers(&self, log: &str, answers: Vec<Answer>, losses: u64) -> bool {
        let Some(journal) = &self.journal else { return true };
        let mut records = Vec::with_capacity(answers.len());
        for answer in answers {
            let (descriptor, message, version, pushed, call) = match answer {
                Answer::End(end) => {
                    records.push(end);
                    continue;
                }
                Answer::Set(descriptor, message, version, pushed, number) => {
                    (descriptor, message, version, pushed, CallId { stream: log.to_owned(), seq: number })
                }
                // It may have become another one since.
                Answer::Applied(descriptor, message, version, call) => {
                    (descriptor, message, version, Ok(Pushed::Duplicate), call)
                }
            };
            let partition = descriptor.partition_of(message.routing_key());
            match self.set(&descriptor, partition, &message, version, pushed, (&call, losses)).await {
                // The message that replaced it may be in no journal.
                Ok(sets) if sets.is_empty() => records.push(over(&descriptor, partition, &message, version)),
                Ok(sets) => records.extend(sets),
                Err(_) => return false,
            }
        }
        self.kept(journal, records, losses).await.is_ok()
    }

    /// Keeps a message that was rescheduled in a group, as each group has it: the push that set it is perhaps in no journal yet.
    pub(super) async fn keep_reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        id: &MessageId,
        fates: &Fates,
        losses: u64,
    ) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if !fates.has(Fate::Done) {
            return Ok(());
        }
        let records = self.read_back(descriptor, partition, id, &descriptor.groups, (&call.id, losses)).await?;
        self.kept(journal, records, losses).await.map(drop)
    }

    pub(super) async fn keep_cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        (fates, version): (&Fates, Version),
        losses: u64,
    ) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let groups: Vec<GroupName> = fates.of(Fate::Done).cloned().collect();
        if groups.is_empty() {
            return Ok(());
        }
        let (topic, id) = (descriptor.topic.clone(), id.clone());
        let end = Record::End { topic, partition, id, version, groups, is_acked: false };
        self.kept(journal, vec![end], losses).await.map(drop)
    }

    /// Keeps that dead letters of a partition are messages of another topic now.
    pub(super) async fn keep_forwarded(
        &self,
        group_partition: &GroupPartition,
        to: &Descriptor,
        page: &Forwarded,
        losses: u64,
    ) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let call = CallId { stream: page.stream.clone(), seq: page.page };
        let mut records = Vec::with_capacity(2 * page.messages.len());
        for forwarded in &page.messages {
            let pushed = if forwarded.was_stored { Pushed::Duplicate } else { Pushed::Stored };
            let (message, version) = (&forwarded.message, forwarded.new_version);
            let partition = to.partition_of(message.routing_key());
            records.extend(self.set(to, partition, message, version, Ok(pushed), (&call, losses)).await?);
        }
        records.extend(page.messages.iter().map(|gone| end(group_partition, gone.id.clone(), gone.version)));
        self.kept(journal, records, losses).await.map(drop)
    }

    /// Keeps that these dead letters, with these versions, were deleted.
    pub(super) async fn keep_purged_dead(
        &self,
        group_partition: &GroupPartition,
        purged: impl Iterator<Item = (&MessageId, Version)>,
        losses: u64,
    ) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let ends = purged.map(|(id, version)| end(group_partition, id.clone(), version)).collect();
        self.kept(journal, ends, losses).await.map(drop)
    }

    pub(super) async fn keep_purge(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        purge: &Purge,
        version: Version,
        losses: u64,
    ) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let (topic, Purge { group, dead_letters }) = (descriptor.topic.clone(), purge.clone());
        let record = Record::Purge { topic, partition, group, dead_letters, version };
        self.kept(journal, vec![record], losses).await.map(drop)
    }

    /// Keeps that messages were acknowledged after their deadlines, for this group.
    pub(super) async fn keep_late_ends(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        settled: impl Iterator<Item = (&LateSettlement, &LateFate)>,
        losses: u64,
    ) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        // The broker that did it may have ended before it kept it.
        let is_acked = |fate: &LateFate| match fate {
            LateFate::Done | LateFate::Repeated => Some(true),
            LateFate::Gone => Some(false),
            LateFate::InFlight | LateFate::Over => None,
        };
        let group_partition = descriptor.group_partition(partition, group);
        let end = |(late, fate): (&LateSettlement, &LateFate)| {
            let is_acked = is_acked(fate).filter(|_| late.next_at.is_none())?;
            Some(ended(&group_partition, late.id.clone(), late.version, is_acked))
        };
        let ends = settled.filter_map(end).collect();
        self.kept(journal, ends, losses).await.map(drop)
    }

    /// Forgets a topic, and keeps the tombstone that the store has of it.
    pub(super) async fn keep_deletion(&self, topic: &TopicName, tombstone: Option<&Descriptor>) {
        self.topic_cache.forget(topic);
        self.topic_cache.save().await;
        let Some(tombstone) = tombstone else { return };
        self.topic_cache.bury(tombstone);
        if let Some(journal) = &self.journal {
            journal.keep(vec![Record::Delete(tombstone.clone())]).await;
        }
    }

    /// Keeps records, and answers whether the journal has them. Errors: as [`BufferedStore::keep_sets`].
    pub(super) async fn keep_records(&self, records: Vec<Record>, losses: u64) -> Result<bool> {
        match &self.journal {
            Some(journal) => self.kept(journal, records, losses).await,
            None => Ok(false),
        }
    }

    async fn kept(&self, journal: &Journal, records: Vec<Record>, losses: u64) -> Result<bool> {
        let is_kept = journal.keep(records).await;
        if self.losses() == losses {
            return Ok(is_kept);
        }
        // The journal may have been offered before these were in it, to a store that does not have them.
        Err(lost_meanwhile())
    }

    /// The records of one message: none if it was refused.
    async fn set(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        message: &Message,
        version: Version,
        pushed: Result<Pushed, Refused>,
        (call, losses): (&CallId, u64),
    ) -> Result<Vec<Record>> {
        match pushed {
            Ok(Pushed::Stored) => {
                let (topic, message, call) = (descriptor.topic.clone(), message.clone(), call.clone());
                // A group that is created later does not have it.
                let groups = descriptor.groups.clone();
                Ok(vec![Record::Set { topic, message, version, groups, call }])
            }
            // The stored message is the one that the producer was promised; it need not be in every group, nor what it pushed.
            Ok(Pushed::Behind | Pushed::Replaced | Pushed::Debounced | Pushed::Duplicate) => {
                self.read_back(descriptor, partition, &message.id, &descriptor.groups, (call, losses)).await
            }
            Ok(Pushed::DuplicateOf(first)) => {
                self.read_back(descriptor, partition, &first, &descriptor.groups, (call, losses)).await
            }
            Ok(Pushed::Journaled | Pushed::Buffered) | Err(_) => Ok(Vec::new()),
        }
    }

    /// A message as these groups have it now, with its successor: a record for each version of the two, since one may be in flight
    /// in a group and have been rescheduled in the others. Errors: `OutcomeUnknown` when the store may have lost it after so many losses:
    /// then what is there, or is not, says nothing of the call.
    async fn read_back(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        groups: &[GroupName],
        (call, losses): (&CallId, u64),
    ) -> Result<Vec<Record>> {
        let mut versions: BTreeMap<(Version, Option<Version>), (Message, Vec<GroupName>)> = BTreeMap::new();
        for group in groups {
            let peeked = self.limited(self.store.peek(&descriptor.group_partition(partition, group), id)).await?;
            let Some(found) = peeked else { continue };
            let follower = found.message.successor.as_ref().map(|successor| successor.version);
            let having = versions.entry((found.version, follower)).or_insert_with(|| (found.message, Vec::new()));
            having.1.push(group.clone());
        }
        if self.losses() != losses {
            return Err(lost_meanwhile());
        }
        let set = |((version, _), (message, groups))| {
            let (topic, call) = (descriptor.topic.clone(), call.clone());
            Record::Set { topic, message, version, groups, call }
        };
        Ok(versions.into_iter().map(set).collect())
    }
}

const LOST_MEANWHILE: &str = "the store lost data meanwhile";

fn lost_meanwhile() -> Error {
    Error::outcome_unknown(LOST_MEANWHILE)
}

/// A message of this version is over for a group.
fn end(of: &GroupPartition, id: MessageId, version: Version) -> Record {
    ended(of, id, version, false)
}

/// A consumer acknowledged a message of this version.
fn acked(of: &GroupPartition, id: MessageId, version: Version) -> Record {
    ended(of, id, version, true)
}

fn ended(of: &GroupPartition, id: MessageId, version: Version, is_acked: bool) -> Record {
    let GroupPartition { topic, partition, group } = of.clone();
    Record::End { topic, partition, id, version, groups: vec![group], is_acked }
}

fn over(descriptor: &Descriptor, partition: Partition, message: &Message, version: Version) -> Record {
    let (topic, id) = (descriptor.topic.clone(), message.id.clone());
    Record::End { topic, partition, id, version, groups: Vec::new(), is_acked: false }
}

pub(super) struct JournaledOwner {
    inner: Box<dyn Owner>,
    journal: Arc<Journal>,
    losses: watch::Receiver<Loss>,
    group_partition: GroupPartition,
    reserved: HashMap<MessageId, Version>,
    /// The store has acknowledgments that the journal perhaps does not have.
    in_doubt: bool,
}

impl JournaledOwner {
    pub(super) fn new(
        inner: Box<dyn Owner>,
        journal: Arc<Journal>,
        losses: watch::Receiver<Loss>,
        group_partition: GroupPartition,
    ) -> JournaledOwner {
        JournaledOwner { inner, journal, losses, group_partition, reserved: HashMap::new(), in_doubt: false }
    }

    fn note(&mut self, reserved: &Reserved) {
        self.reserved.extend(reserved.messages.iter().map(|message| (message.id.clone(), message.version)));
    }

    fn end(&mut self, id: &MessageId) -> Option<Record> {
        let version = self.reserved.remove(id)?;
        Some(acked(&self.group_partition, id.clone(), version))
    }
}

#[async_trait]
impl Owner for JournaledOwner {
    fn epoch(&self) -> &Epoch {
        self.inner.epoch()
    }

    fn is_in_doubt(&self) -> bool {
        self.in_doubt || self.inner.is_in_doubt()
    }

    fn keep_positions(&mut self) {
        self.inner.keep_positions();
    }

    async fn recover(&mut self) -> Result<Recovered> {
        self.inner.recover().await
    }

    async fn repair(&mut self, from: Option<RepairCursor>) -> Result<Repaired> {
        self.inner.repair(from).await
    }

    async fn reserve(&mut self, limit: ReserveLimit) -> Result<Reserved> {
        let reserved = self.inner.reserve(limit).await?;
        self.note(&reserved);
        Ok(reserved)
    }

    async fn reserve_by_key(
        &mut self,
        limit: ReserveLimit,
        keys: &[KeyCount],
        share: Option<usize>,
    ) -> Result<Reserved> {
        let reserved = self.inner.reserve_by_key(limit, keys, share).await?;
        self.note(&reserved);
        Ok(reserved)
    }

    async fn sorted_keys(&mut self, after: Option<&KeyCount>) -> Result<SortedKeys> {
        self.inner.sorted_keys(after).await
    }

    /// Errors: also `Stale`, in doubt, when the store may have lost an acknowledgment before it was kept.
    async fn settle(&mut self, settlement: &Settlement) -> Result<()> {
        let losses = self.losses.borrow().count;
        self.inner.settle(settlement).await?;
        let ends: Vec<Record> = settlement.acked.iter().filter_map(|id| self.end(id)).collect();
        let retried = settlement.retried.iter().map(|retried| &retried.id);
        let buried = settlement.buried.iter().map(|buried| &buried.id);
        let returned = settlement.returned.iter().map(|returned| &returned.id);
        let sorted = settlement.sorted.iter().map(|sorted| &sorted.id);
        for id in retried.chain(buried).chain(returned).chain(sorted) {
            self.reserved.remove(id);
        }
        if ends.is_empty() {
            return Ok(());
        }
        self.in_doubt = true;
        self.journal.keep(ends).await;
        if self.losses.borrow().count != losses {
            // The journal may have been offered before these were in it.
            return Err(Error::stale(LOST_MEANWHILE));
        }
        self.in_doubt = false;
        Ok(())
    }

    async fn start(&mut self, charges: &[Charge]) -> Result<()> {
        self.inner.start(charges).await
    }

    fn last_delivery(&self) -> Timestamp {
        self.inner.last_delivery()
    }

    async fn release(self: Box<Self>, last_delivery: Timestamp) -> Result<()> {
        self.inner.release(last_delivery).await
    }
}

#[cfg(test)]
mod tests;
