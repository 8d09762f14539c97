//! The topics of the store, with the partitions that memory holds of each, and their cron jobs.
//!
//! A cron job lies in the partition of its messages. Its value is `<revision> <done up to, ms> <definition>`. It is changed
//! under the lock of its partition, and by a firing in the batch that stores the messages.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sled::{Batch, Tree};

use super::collections::{Hash, Order};
use super::commit::broken;
use super::group_partition::GroupPartitionState;
use super::keys::{self, FIRST_GROUP, FIRST_TOPIC, KeyPrefix};
use super::{Embedded, Inner};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CRON_JOBS_MAX, TOPICS_MAX};
use crate::model::message::{CronJobName, GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::disk::ChunkedValue;
use crate::store::{
    self, Channel, CronJobChange, CronJobDeletion, CronJobRecord, Fired, Firing, PushVerdict, TOMBSTONE_KEPT,
};

/// The stored record of a topic, as JSON. A deleted one leaves its record behind, with no groups.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    descriptor: Descriptor,
    /// Number of this incarnation in every key of it.
    number: u32,
    groups: Vec<(GroupName, u16)>,
    next_group: u16,
    changed_at: Timestamp,
}

impl Record {
    fn write(&self) -> Result<Batch> {
        let json = serde_json::to_vec(self).map_err(|error| Error::bug(format!("a topic did not encode: {error}")))?;
        let mut batch = Batch::default();
        batch.insert(keys::topic(self.descriptor.topic.as_str()), json);
        Ok(batch)
    }

    fn number_groups(&mut self) -> Result<()> {
        let known = std::mem::take(&mut self.groups);
        for group in &self.descriptor.groups {
            let number = match known.iter().find(|(name, _)| name == group) {
                Some((_, number)) => *number,
                None => {
                    let number = self.next_group;
                    let full = || Error::new(Kind::Full, "this topic has had 65,000 groups: make a new topic");
                    self.next_group = number.checked_add(1).ok_or_else(full)?;
                    number
                }
            };
            self.groups.push((group.clone(), number));
        }
        Ok(())
    }
}

/// The state of a partition in memory. Every change to it, and to its entries in the tree, is made under its lock.
#[derive(Debug, Default)]
pub(super) struct PartitionState {
    pub(super) groups: HashMap<u16, GroupPartitionState>,
    pub(super) seen: u64,
    pub(super) order: Order,
    pub(super) cancelled: u64,
}

#[derive(Debug)]
pub(super) struct Topic {
    record: Record,
    partitions: Mutex<HashMap<Partition, Arc<Mutex<PartitionState>>>>,
}

impl Topic {
    pub(super) fn descriptor(&self) -> &Descriptor {
        &self.record.descriptor
    }

    pub(super) fn number(&self) -> u32 {
        self.record.number
    }

    pub(super) fn places(&self, partition: Partition) -> impl Iterator<Item = KeyPrefix> {
        let topic = self.record.number;
        self.record.groups.iter().map(move |(_, group)| KeyPrefix { topic, partition, group: *group })
    }

    pub(super) fn place(&self, partition: Partition, group: &GroupName) -> Option<KeyPrefix> {
        let (_, group) = self.record.groups.iter().find(|(name, _)| name == group)?;
        let exists = partition.0 < self.record.descriptor.settings.partitions.get();
        exists.then_some(KeyPrefix { topic: self.record.number, partition, group: *group })
    }

    pub(super) fn has_group(&self, number: u16) -> bool {
        self.record.groups.iter().any(|(_, group)| *group == number)
    }

    fn forget_groups(&self, old: &Record) -> Vec<KeyPrefix> {
        let numbers = old.groups.iter().map(|(_, number)| *number);
        let gone: Vec<u16> = numbers.filter(|number| !self.has_group(*number)).collect();
        for state in locked(&self.partitions).values() {
            locked(state).groups.retain(|group, _| !gone.contains(group));
        }
        let topic = self.number();
        let in_all = |group| self.descriptor().partitions().map(move |partition| KeyPrefix { topic, partition, group });
        gone.into_iter().flat_map(in_all).collect()
    }

    pub(super) fn partition(&self, partition: Partition) -> Arc<Mutex<PartitionState>> {
        locked(&self.partitions).entry(partition).or_default().clone()
    }
}

/// Takes a lock. A panic of another thread leaves nothing half done: memory changes after the tree did, all at once.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(super) struct Topics {
    live: BTreeMap<TopicName, Topic>,
    tombstones: BTreeMap<TopicName, Record>,
    next_number: u32,
}

impl Topics {
    pub(super) fn load(tree: &Tree) -> Result<Topics> {
        let mut topics = Topics { live: BTreeMap::new(), tombstones: BTreeMap::new(), next_number: FIRST_TOPIC };
        for entry in tree.scan_prefix(keys::topic("")) {
            let (_, json) = entry.map_err(broken)?;
            let unreadable = |error| Error::corrupt(format!("the store holds an unreadable topic: {error}"));
            let record: Record = serde_json::from_slice(&json).map_err(unreadable)?;
            topics.next_number = topics.next_number.max(record.number.saturating_add(1));
            topics.keep(record);
        }
        Ok(topics)
    }

    pub(super) fn live(&self, name: &TopicName) -> Option<&Topic> {
        self.live.get(name)
    }

    pub(super) fn group_partition(&self, group_partition: &GroupPartition) -> Option<(&Topic, KeyPrefix)> {
        let topic = self.live(&group_partition.topic)?;
        Some((topic, topic.place(group_partition.partition, &group_partition.group)?))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Topic> {
        self.live.values()
    }

    fn create(&mut self, inner: &Inner, wanted: &Descriptor, now: Timestamp) -> Result<Descriptor> {
        if let Some(topic) = self.live(&wanted.topic) {
            return Ok(topic.descriptor().clone());
        }
        if self.live.len() >= TOPICS_MAX {
            return Err(Error::new(Kind::Full, format!("there are {TOPICS_MAX} topics, which is the limit")));
        }
        let descriptor = match wanted.incarnation {
            0 => {
                let generation = self.next_generation(&wanted.topic, now);
                Descriptor { generation, incarnation: generation, deleted: false, ..wanted.clone() }
            }
            // It was there, and comes back as it was.
            _ => match self.tombstones.get(&wanted.topic) {
                Some(tombstone) if tombstone.descriptor.generation > wanted.generation => {
                    return Err(Error::not_found(format!("topic {} was deleted", wanted.topic)));
                }
                _ => wanted.clone(),
            },
        };
        let (number, next_group) = (self.next_number, FIRST_GROUP);
        let mut record = Record { descriptor, number, groups: Vec::new(), next_group, changed_at: now };
        record.number_groups()?;
        self.next_number = number.checked_add(1).ok_or_else(|| Error::new(Kind::Full, "no topic number is left"))?;
        inner.apply(record.write()?)?;
        let descriptor = record.descriptor.clone();
        self.keep(record);
        tracing::info!(topic = %descriptor.topic, partitions = descriptor.settings.partitions, "topic created");
        Ok(descriptor)
    }

    /// Replaces a descriptor, and returns the new one with the places of groups that are no more.
    pub(super) fn update(
        &mut self,
        inner: &Inner,
        wanted: &Descriptor,
        now: Timestamp,
    ) -> Result<(Descriptor, Vec<KeyPrefix>)> {
        let generation = self.next_generation(&wanted.topic, now);
        let missing = || Error::not_found(format!("topic {} does not exist", wanted.topic));
        let topic = self.live.get_mut(&wanted.topic).ok_or_else(missing)?;
        let old = &topic.record.descriptor;
        if old.generation != wanted.generation {
            return Err(Error::stale(format!("topic {} changed meanwhile: read it again", wanted.topic)));
        }
        if old.settings.partitions != wanted.settings.partitions {
            return Err(Error::invalid("partitions", "is fixed when a topic is made"));
        }
        if old.settings.ordering != wanted.settings.ordering {
            return Err(Error::invalid("ordering", "is fixed when a topic is made"));
        }
        // Keys of a deleted group have a number that no other group gets, and every start looks for them.
        let descriptor = Descriptor { leaving: Vec::new(), ..old.followed_by(wanted, generation) };
        let mut record = Record { descriptor, changed_at: now, ..topic.record.clone() };
        record.number_groups()?;
        inner.apply(record.write()?)?;
        let old = std::mem::replace(&mut topic.record, record);
        Ok((topic.descriptor().clone(), topic.forget_groups(&old)))
    }

    /// There is nothing to publish: no call sees an older descriptor than the one in place.
    fn publish_descriptor(&self, descriptor: &Descriptor) -> Result<()> {
        let there = self.live(&descriptor.topic).map(|topic| topic.descriptor().generation);
        match there == Some(descriptor.generation) {
            true => Ok(()),
            false => Err(Error::stale(format!("topic {} has changed or is deleted: read it again", descriptor.topic))),
        }
    }

    /// Replaces a topic by its tombstone and returns both; if asked to, only while its generation is `wanted`'s. `None` if there is no such
    /// topic, or another one of its name.
    fn delete(
        &mut self,
        inner: &Inner,
        wanted: &Descriptor,
        is_unchanged: bool,
        now: Timestamp,
    ) -> Result<Option<(Descriptor, u32)>> {
        self.forget_old_tombstones(inner, now)?;
        let same = |topic: &&Topic| topic.descriptor().incarnation == wanted.incarnation;
        let Some(topic) = self.live(&wanted.topic).filter(same) else { return Ok(None) };
        if is_unchanged && topic.descriptor().generation != wanted.generation {
            return Err(Error::stale(format!("topic {} changed meanwhile: read it again", wanted.topic)));
        }
        let generation = self.next_generation(&wanted.topic, now);
        let tombstone = Descriptor { generation, deleted: true, ..topic.descriptor().clone() };
        let record =
            Record { descriptor: tombstone.clone(), groups: Vec::new(), changed_at: now, ..topic.record.clone() };
        let number = topic.number();
        inner.apply(record.write()?)?;
        self.keep(record);
        Ok(Some((tombstone, number)))
    }

    /// The tombstone of this very topic.
    fn tombstone(&self, wanted: &Descriptor) -> Option<Descriptor> {
        let buried = self.tombstones.get(&wanted.topic).map(|record| &record.descriptor);
        buried.filter(|buried| buried.incarnation == wanted.incarnation).cloned()
    }

    fn keep(&mut self, record: Record) {
        let name = record.descriptor.topic.clone();
        self.live.remove(&name);
        self.tombstones.remove(&name);
        if record.descriptor.deleted {
            self.tombstones.insert(name, record);
        } else {
            self.live.insert(name, Topic { record, partitions: Mutex::default() });
        }
    }

    /// A generation that this name never had, as long as its tombstone is kept or the clock goes forward.
    fn next_generation(&self, name: &TopicName, now: Timestamp) -> u64 {
        let live = self.live.get(name).map(|topic| &topic.record);
        let last = live.or_else(|| self.tombstones.get(name)).map_or(0, |record| record.descriptor.generation);
        now.as_ms().max(last.saturating_add(1))
    }

    /// Forgets tombstones that were kept long enough, and the oldest ones past the number of topics that may live.
    fn forget_old_tombstones(&mut self, inner: &Inner, now: Timestamp) -> Result<()> {
        let mut oldest: Vec<_> =
            self.tombstones.iter().map(|(name, record)| (record.changed_at, name.clone())).collect();
        oldest.sort();
        let excess = oldest.len().saturating_sub(TOPICS_MAX);
        let mut batch = Batch::default();
        for (number, (changed_at, name)) in oldest.into_iter().enumerate() {
            if number < excess || now.since(changed_at) > TOMBSTONE_KEPT {
                batch.remove(keys::topic(name.as_str()));
                self.tombstones.remove(&name);
            }
        }
        inner.apply(batch)
    }
}

#[async_trait]
impl store::Topics for Embedded {
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        let this = self.opened()?;
        Ok(this.topics().live(topic).map(|topic| topic.descriptor().clone()))
    }

    async fn topics(&self) -> Result<Vec<TopicName>> {
        let this = self.opened()?;
        Ok(this.topics().all().map(|topic| topic.descriptor().topic.clone()).collect())
    }

    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor> {
        let this = self.opened()?;
        wanted.check()?;
        let now = this.now();
        let made = this.topics_mut().create(&this, wanted, now)?;
        this.commit().await?;
        Ok(made)
    }

    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor> {
        let this = self.opened()?;
        wanted.check()?;
        let now = this.now();
        let (updated, gone) = this.topics_mut().update(&this, wanted, now)?;
        this.commit().await?;
        this.wakes.wake(&Channel::Changed(wanted.topic.clone()));
        for place in gone {
            this.remove_all(&place.prefix()).await?;
        }
        Ok(updated)
    }

    async fn publish_descriptor(&self, descriptor: &Descriptor) -> Result<()> {
        let this = self.opened()?;
        this.topics().publish_descriptor(descriptor)
    }

    async fn delete(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>> {
        self.opened()?.delete_topic(descriptor, false).await
    }

    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>> {
        self.opened()?.delete_topic(descriptor, true).await
    }
}

impl Inner {
    /// Deletes a topic with all its messages; if asked to, only while its generation is that of `descriptor`. Answers its tombstone, also
    /// of an earlier deletion.
    async fn delete_topic(&self, descriptor: &Descriptor, is_unchanged: bool) -> Result<Option<Descriptor>> {
        let deleted = self.topics_mut().delete(self, descriptor, is_unchanged, self.now())?;
        self.commit().await?;
        self.wakes.wake(&Channel::Changed(descriptor.topic.clone()));
        let Some((tombstone, number)) = deleted else { return Ok(self.topics().tombstone(descriptor)) };
        self.remove_all(&keys::topic_data(number)).await?;
        Ok(Some(tombstone))
    }
}

#[async_trait]
impl store::CronJobs for Embedded {
    async fn cron_partitions(&self) -> Result<Vec<(TopicName, Partition)>> {
        let this = self.opened()?;
        let topics = this.topics();
        let live: HashMap<u32, &Topic> = topics.all().map(|topic| (topic.number(), topic)).collect();
        let mut places = Vec::new();
        for key in this.tree.scan_prefix(keys::cron_partitions()).keys() {
            let key = key.map_err(broken)?;
            let Some((topic, partition)) = keys::cron_partition_of(&key) else { continue };
            places.extend(live.get(&topic).map(|topic| (topic.descriptor().topic.clone(), partition)));
        }
        places.sort();
        Ok(places)
    }

    async fn list(&self, topic: &TopicName, partition: Partition) -> Result<Vec<CronJobRecord>> {
        let this = self.opened()?;
        let topics = this.topics();
        let Some(topic) = topics.live(topic) else { return Ok(Vec::new()) };
        let cron_job = |entry: Result<(Vec<u8>, Bytes)>| {
            let (name, value) = entry?;
            let name = CronJobName::new(String::from_utf8_lossy(&name))?;
            Ok(CronJobRecord::from_text(&name, &String::from_utf8_lossy(&value)))
        };
        this.cron_jobs_at(place_of(topic, partition)).entries().map(cron_job).collect()
    }

    async fn put_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &CronJobChange,
    ) -> Result<Option<Timestamp>> {
        let this = self.opened()?;
        this.check_storable()?;
        let Some(last) = this.change_cron_job(descriptor, partition, change)? else { return Ok(None) };
        this.commit().await?;
        this.wakes.wake(&Channel::CronJobs);
        Ok(Some(last))
    }

    async fn delete_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        name: &CronJobName,
    ) -> Result<CronJobDeletion> {
        let this = self.opened()?;
        let revision = this.clock.versions(1);
        let removed = {
            let topics = this.topics();
            let Some(topic) = topics.live(&descriptor.topic) else { return Ok(CronJobDeletion::default()) };
            let state = topic.partition(partition);
            let _state = locked(&state);
            let mut batch = Batch::default();
            let hash = this.cron_jobs_at(place_of(topic, partition));
            let removed = hash.remove(&mut batch, name.as_str().as_bytes())?;
            this.apply(batch)?;
            removed
        };
        this.commit().await?;
        this.wakes.wake(&Channel::CronJobs);
        Ok(CronJobDeletion { was_there: removed, revision: removed.then_some(revision) })
    }

    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired> {
        let this = self.opened()?;
        this.check_storable()?;
        let messages = &firing.messages;
        let (values, name) = (this.values(messages, firing.version)?, &firing.schedule.name);
        let mut fired = Fired::Changed;
        let mark = |batch: &mut Batch, topic: &Topic| -> Result<bool> {
            let hash = this.cron_jobs_at(place_of(topic, partition));
            let Some(value) = hash.value(name.as_str().as_bytes())? else { return Ok(false) };
            let there = read(name, &value);
            fired = match () {
                () if there.revision != firing.revision => Fired::Changed,
                () if there.last != firing.last => Fired::Before(there.last),
                () if firing.done > this.now() => Fired::Early,
                () => Fired::Done(Vec::new()),
            };
            if !matches!(fired, Fired::Done(_)) {
                return Ok(false);
            }
            let name = name.as_str().as_bytes();
            hash.remove(batch, name)?;
            hash.add(batch, name, &written(&CronJobRecord { last: firing.done, ..there })?);
            Ok(true)
        };
        let Some((verdicts, wake)) = this.insert_with((descriptor, partition), messages, &values, mark)? else {
            return Ok(fired);
        };
        if wake {
            this.wakes.wake(&Channel::Head(descriptor.topic.clone(), partition));
        }
        this.commit().await?;
        Ok(Fired::Done(verdicts.iter().map(PushVerdict::is_new).collect()))
    }
}

impl Inner {
    fn cron_jobs_at(&self, place: KeyPrefix) -> Hash<'_> {
        Hash::cron_jobs(&self.tree, place)
    }

    fn change_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &CronJobChange,
    ) -> Result<Option<Timestamp>> {
        let topics = self.topics();
        let topic = topics.live(&descriptor.topic).filter(|topic| is_current(topic, descriptor));
        let topic = topic.ok_or_else(|| changed(&descriptor.topic))?;
        let state = topic.partition(partition);
        let _state = locked(&state);
        let (hash, name) = (self.cron_jobs_at(place_of(topic, partition)), change.schedule.name.as_str());
        let there = hash.value(name.as_bytes())?.map(|value| read(&change.schedule.name, &value));
        if there.as_ref().map(|there| there.revision) != change.seen {
            return Ok(None);
        }
        if there.is_none() && hash.values().count() >= CRON_JOBS_MAX {
            let detail = format!("there are {CRON_JOBS_MAX} cron jobs in this partition, which is the limit");
            return Err(Error::new(Kind::Full, detail));
        }
        let before = there.map_or(Timestamp::ZERO, |there| there.last);
        let last = change.last.map_or(before, |last| last.max(before));
        let record = CronJobRecord { schedule: change.schedule.clone(), revision: change.revision, last };
        let mut batch = Batch::default();
        hash.remove(&mut batch, name.as_bytes())?;
        hash.add(&mut batch, name.as_bytes(), &written(&record)?);
        batch.insert(keys::cron_partition_key(topic.number(), partition), b"");
        self.apply(batch)?;
        Ok(Some(last))
    }
}

fn place_of(topic: &Topic, partition: Partition) -> KeyPrefix {
    KeyPrefix { topic: topic.number(), partition, group: keys::FIRST_GROUP }.shared()
}

fn is_current(topic: &Topic, descriptor: &Descriptor) -> bool {
    topic.descriptor().generation <= descriptor.generation
}

fn changed(topic: &TopicName) -> Error {
    Error::stale(format!("topic {topic} has changed or is deleted: read it again"))
}

fn written(record: &CronJobRecord) -> Result<ChunkedValue> {
    ChunkedValue::cut(record.to_text()?.as_bytes())
}

fn read(name: &CronJobName, value: &[u8]) -> CronJobRecord {
    CronJobRecord::from_text(name, &String::from_utf8_lossy(value))
}
