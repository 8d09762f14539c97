//! A page of the WAL, offered to the store: what it took, and what is left. The journal is offered in `restore`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_util::future::join_all;

use super::{BufferedStore, call_of};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::POLICY_IDS_MAX;
use crate::model::message::{Conflict, Message, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::{Descriptor, Settings};
use crate::model::version::{CallId, CallPart, Version};
use crate::platform::clock::Clock;
use crate::store::{LogTarget, Owners, Pushed, Refused, Replayed, origin_page, restoring};
use crate::wal::{Entry, Record};

const RELOADS_MAX: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Offered {
    pub(super) stored: u64,
    pub(super) duplicate: u64,
    pub(super) dropped: u64,
    pub(super) passed: u64,
    pub(super) answers: Vec<Answer>,
    /// Whether the store was sent something and did not answer: nobody knows whether it was applied.
    pub(super) is_unknown: bool,
    pub(super) left: Vec<Record>,
    pub(super) why: Option<Error>,
}

/// A log of which a page is offered.
#[derive(Clone, Copy)]
pub(super) struct Log<'a> {
    pub(super) name: &'a str,
    /// How many losses the store was suspected of when the page was found to be next. A store that is found to have lost data
    /// since then takes nothing.
    pub(super) losses: u64,
    pub(super) owners: &'a dyn Owners,
}

#[derive(Debug)]
enum Applied {
    All,
    /// Those before the one with this number, whose message a consumer has.
    UpToInFlight(u64),
    /// Those before the one with this number, whose id another message has.
    UpToOtherKey(u64),
}

#[derive(Debug)]
pub(super) enum Answer {
    Set(Descriptor, Message, Version, Result<Pushed, Refused>, u64),
    Applied(Descriptor, Message, Version, CallId),
    End(Record),
}

impl Offered {
    pub(super) fn done(&self) -> u64 {
        self.stored + self.duplicate + self.dropped + self.passed
    }

    /// Forgets the answers for calls of which some records are left. Answers whether there are any.
    pub(super) fn forget_parts(&mut self) -> bool {
        let left: BTreeSet<(&str, u64)> = self.left.iter().filter_map(call_of).collect();
        let before = self.answers.len();
        self.answers.retain(|answer| match answer {
            Answer::Applied(.., call) => !left.contains(&(call.stream.as_str(), call.seq)),
            Answer::Set(..) | Answer::End(_) => true,
        });
        self.answers.len() < before
    }

    fn leave(&mut self, records: impl IntoIterator<Item = Record>, why: Error) {
        self.left.extend(records);
        self.is_unknown |= why.kind() == Kind::OutcomeUnknown;
        self.why = Some(why);
    }

    fn and(&mut self, other: Offered) {
        self.stored += other.stored;
        self.duplicate += other.duplicate;
        self.passed += other.passed;
        self.answers.extend(other.answers);
        if let Some(why) = other.why {
            self.leave(other.left, why);
        }
    }
}

impl<S: LogTarget> BufferedStore<S> {
    /// Offers a page of the WAL to the store. Each partition is answered for itself: one that does not take its records holds
    /// up no other.
    pub(super) async fn offer(&self, log: Log<'_>, page: Vec<Entry>) -> Offered {
        let (mut offered, mut topics) = (Offered::default(), BTreeMap::<TopicName, Vec<Entry>>::new());
        for mut entry in page {
            self.note_origin(&mut entry);
            match entry.record {
                Record::Create(promise) => match self.keep_promise(&promise, log.losses).await {
                    Ok(()) => offered.passed += 1,
                    Err(error) => offered.leave([Record::Create(promise)], error),
                },
                _ => topics.entry(entry.record.topic().clone()).or_default().push(entry),
            }
        }
        for (topic, entries) in topics {
            if offered.left.iter().any(|record| *record.topic() == topic) {
                // Nothing overtakes what was left of its topic.
                offered.left.extend(entries.into_iter().map(|entry| entry.record));
                continue;
            }
            self.offer_topic(&mut offered, log, &topic, entries).await;
        }
        offered
    }

    async fn offer_topic(&self, offered: &mut Offered, log: Log<'_>, topic: &TopicName, entries: Vec<Entry>) {
        let newest = entries.iter().filter_map(|entry| entry.record.version()).max().unwrap_or_default();
        let descriptor = match self.destination(topic, newest, log.losses).await {
            Ok(destination) => destination,
            Err(error) => return offered.leave(entries.into_iter().map(|entry| entry.record), error),
        };
        let mut partitions: BTreeMap<Partition, Vec<Entry>> = BTreeMap::new();
        for entry in entries {
            let version = entry.record.version().unwrap_or_default();
            match &descriptor {
                Some(there) if there.is_after_deletion(version) => {
                    partitions.entry(entry.record.partition_in(there)).or_default().push(entry);
                }
                _ => offered.dropped += 1,
            }
        }
        if offered.dropped > 0 && self.throttles.dropped.is_due(Clock::System.instant()) {
            tracing::warn!(%topic, records = offered.dropped, "messages dropped: their topic was deleted after they were pushed");
        }
        let Some(descriptor) = descriptor else { return };
        // Side by side: a partition that does not answer holds up no other.
        let offers = partitions.into_iter().map(|(partition, entries)| {
            let descriptor = descriptor.clone();
            async move { self.offer_partition(log, descriptor, partition, entries).await }
        });
        for partition in join_all(offers).await {
            offered.and(partition);
        }
    }

    async fn offer_partition(
        &self,
        log: Log<'_>,
        mut descriptor: Descriptor,
        partition: Partition,
        entries: Vec<Entry>,
    ) -> Offered {
        let (mut offered, mut reloads) = (Offered::default(), 0);
        let mut left: VecDeque<Entry> = entries.into();
        while !left.is_empty() {
            let taken = match self.fence_run(&mut offered, &descriptor, partition, &mut left).await {
                Ok(0) => continue,
                Ok(count) => {
                    let taken = self.offer_run(&mut offered, log, &descriptor, partition, &left, count).await;
                    taken.map(|taken| (taken, count))
                }
                Err(error) => Err(error),
            };
            let why = match taken {
                Ok((Applied::All, count)) => {
                    left.drain(..count);
                    continue;
                }
                Ok((Applied::UpToOtherKey(number), _)) => {
                    left.retain(|entry| entry.position.number() >= number);
                    rename(left.front_mut());
                    continue;
                }
                Ok((Applied::UpToInFlight(number), _)) => {
                    left.retain(|entry| entry.position.number() >= number);
                    match self.offer_held(&mut offered, log, &descriptor, partition, &left).await {
                        Ok(()) => {
                            left.pop_front();
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Err(error) if error.kind() == Kind::Stale && reloads < RELOADS_MAX => {
                    reloads += 1;
                    let newest = left.iter().filter_map(|entry| entry.record.version()).max().unwrap_or_default();
                    match self.destination(&descriptor.topic, newest, log.losses).await {
                        Ok(Some(found)) if found.settings.partitions == descriptor.settings.partitions => {
                            descriptor = found;
                            continue;
                        }
                        Ok(_) => Error::unavailable("the topic is being changed or deleted"),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            offered.leave(left.drain(..).map(|entry| entry.record), why);
        }
        offered
    }

    /// Offers the first record again, whose message was reserved, while no owner has it. Errors: `Conflict` if a consumer has it;
    /// `Unavailable` if an owner does not answer; those of the store.
    async fn offer_held(
        &self,
        offered: &mut Offered,
        log: Log<'_>,
        descriptor: &Descriptor,
        partition: Partition,
        left: &VecDeque<Entry>,
    ) -> Result<()> {
        // The store is there: pushes go on.
        let waits = || {
            Err(Error::new(
                Kind::Conflict,
                "a consumer has a message that is to be replaced or moved: it waits for that",
            ))
        };
        let Some(Record::Push { message, .. }) = left.front().map(|entry| &entry.record) else { return waits() };
        let mut applied = Ok(None);
        let again = async {
            applied = self.offer_run(offered, log, descriptor, partition, left, 1).await.map(Some);
        };
        log.owners.while_given_back(descriptor, partition, &message.id, Box::pin(again)).await?;
        match applied? {
            Some(Applied::All) => Ok(()),
            _ => waits(),
        }
    }

    /// Takes out of the first records that go together those that their calls set. Answers how many are left of them:
    /// no copy of their calls ever sets them.
    async fn fence_run(
        &self,
        offered: &mut Offered,
        descriptor: &Descriptor,
        partition: Partition,
        left: &mut VecDeque<Entry>,
    ) -> Result<usize> {
        let mut at = 0;
        for _ in 0..run(left) {
            let Some(Entry { record: Record::Push { call: call @ Some(_), message, version, .. }, .. }) =
                left.get_mut(at)
            else {
                at += 1;
                continue;
            };
            let Some(part) = call.clone() else { continue };
            if self.is_applied(&descriptor.topic, partition, &part).await? {
                offered.duplicate += 1;
                let (message, version) = (message.clone(), *version);
                self.note(offered, || Answer::Applied(descriptor.clone(), message, version, part.call));
                left.remove(at);
            } else {
                *call = None;
                at += 1;
            }
        }
        Ok(at)
    }

    async fn offer_run(
        &self,
        offered: &mut Offered,
        log: Log<'_>,
        descriptor: &Descriptor,
        partition: Partition,
        left: &VecDeque<Entry>,
        count: usize,
    ) -> Result<Applied> {
        let mut conflict = Conflict::Keep;
        let mut messages = Vec::with_capacity(count);
        for entry in left.iter().take(count) {
            match &entry.record {
                Record::Push { message, version, conflict: policy, origin, .. } => {
                    conflict = *policy;
                    let (number, message, origin) = (entry.position.number(), message.clone(), origin.clone());
                    messages.push(Replayed { number, version: *version, message, origin });
                }
                Record::Cancel { id, version, .. } => {
                    self.limited(self.store.withdraw(descriptor, partition, id, *version)).await?;
                    offered.passed += 1;
                    self.note(offered, || Answer::End(ended(&entry.record)));
                }
                // A WAL has no others, and creations were seen to.
                Record::Create(_)
                | Record::Set { .. }
                | Record::End { .. }
                | Record::Purge { .. }
                | Record::CronJob { .. }
                | Record::Delete(_) => offered.passed += 1,
            }
        }
        if messages.is_empty() {
            return Ok(Applied::All);
        }
        let pushed =
            self.limited(self.store.replay(descriptor, partition, log.name, conflict, &messages, log.losses)).await?;
        for (pushed, Replayed { number, version, message, .. }) in pushed.into_iter().zip(messages) {
            match &pushed {
                Err(Refused::InFlight) => return Ok(Applied::UpToInFlight(number)),
                Err(Refused::OtherKey) => return Ok(Applied::UpToOtherKey(number)),
                Ok(Pushed::Duplicate | Pushed::DuplicateOf(_)) => offered.duplicate += 1,
                _ => offered.stored += 1,
            }
            self.note(offered, || Answer::Set(descriptor.clone(), message, version, pushed, number));
        }
        Ok(Applied::All)
    }

    /// A record that was perhaps handed over is perhaps in another broker's log too: its place in this one tells them apart.
    pub(super) fn note_origin(&self, entry: &mut Entry) {
        if let Record::Push { origin: origin @ None, .. } = &mut entry.record {
            *origin = self.wal.handed_over_as(entry.position);
        }
    }

    fn note(&self, offered: &mut Offered, answer: impl FnOnce() -> Answer) {
        if self.journal.is_some() {
            offered.answers.push(answer());
        }
    }

    async fn is_applied(&self, topic: &TopicName, partition: Partition, part: &CallPart) -> Result<bool> {
        self.limited(self.store.fence(topic, partition, part)).await
    }

    /// Where records of a topic go, the newest of which has this version; `None` when it was deleted after that. A
    /// topic that is not there, and was not deleted since, is created as it was when it was last seen.
    pub(super) async fn destination(
        &self,
        topic: &TopicName,
        newest: Version,
        losses: u64,
    ) -> Result<Option<Descriptor>> {
        let found = self.limited(self.store.topic_or_tombstone(topic)).await?;
        let wanted = match found {
            Some(there) if !there.deleted => {
                self.topic_cache.learn(&there);
                return Ok(Some(there));
            }
            Some(tombstone) if !tombstone.is_after_deletion(newest) => {
                self.topic_cache.forget(topic);
                return Ok(None);
            }
            // It was deleted, and pushed to again: that is a new topic of the name.
            Some(tombstone) => Descriptor { generation: 0, incarnation: 0, ..self.last_seen(topic, Some(tombstone)) },
            None => self.last_seen(topic, None),
        };
        let created = self.create_after(losses, &wanted).await?;
        if created.settings != wanted.settings {
            tracing::warn!(%topic, "another broker created the topic with other settings meanwhile; they stay");
        }
        self.topic_cache.learn(&created);
        Ok(Some(created))
    }

    /// Creates a topic in a store that was suspected of so many losses: what is missing after another one may be lost.
    pub(super) async fn create_after(&self, losses: u64, wanted: &Descriptor) -> Result<Descriptor> {
        if self.topic_cache.seen(&wanted.topic).is_none() {
            self.look_for_loss().await?;
        }
        if self.losses() != losses {
            return Err(restoring());
        }
        self.stepwise(self.store.create(wanted)).await
    }

    fn last_seen(&self, topic: &TopicName, tombstone: Option<Descriptor>) -> Descriptor {
        let unseen = || Descriptor::new(topic.clone(), Settings::default());
        let seen = self.topic_cache.last(topic).or(tombstone).unwrap_or_else(unseen);
        Descriptor { deleted: false, ..seen }
    }
}

/// Gives a push another id: it was acknowledged, and the store has another message of its id in the partition.
fn rename(entry: Option<&mut Entry>) {
    if let Some(Entry { record: Record::Push { topic, message, version, .. }, .. }) = entry {
        let id = message.id.beside(version.as_us());
        tracing::warn!(%topic, id = %message.id, as_id = %id, "a buffered message has the id of another one with another key: stored under a new id");
        message.id = id;
    }
}

/// How many of the first records go together: one, or pushes of one policy that were handed over together or not.
fn run(left: &VecDeque<Entry>) -> usize {
    let kind = |entry: &Entry| match &entry.record {
        Record::Push { conflict, origin, .. } => Some((*conflict, origin.as_ref().map(origin_page))),
        _ => None,
    };
    let Some(first) = left.front().and_then(kind) else { return 1 };
    left.iter().take(POLICY_IDS_MAX).take_while(|entry| kind(entry).as_ref() == Some(&first)).count()
}

pub(super) fn is_deduped(record: &Record) -> bool {
    matches!(record, Record::Push { message, .. } if message.has_dedup_key())
}

fn ended(cancel: &Record) -> Record {
    match cancel.clone() {
        Record::Cancel { topic, partition, id, version } => {
            Record::End { topic, partition, id, version, groups: Vec::new(), is_acked: false }
        }
        record => record,
    }
}

pub(super) fn outage(offered: &Offered) -> Option<&Error> {
    offered.why.as_ref().filter(|error| offered.done() == 0 && error.is_outage())
}
