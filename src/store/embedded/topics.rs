//! The topics of the store: their records, and the partitions that memory holds of each.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sled::{Batch, Tree};

use super::keys::{self, FIRST_GROUP, FIRST_TOPIC, Place};
use super::open::broken;
use super::pair::PairState;
use crate::error::{Error, Kind, Result};
use crate::limits::TOPICS_MAX;
use crate::message::{GroupName, TopicName};
use crate::partition::Partition;
use crate::time::Timestamp;
use crate::topic::{Descriptor, Pair};

/// How long the record of a deleted topic is kept, so that its generation does not come again.
const TOMBSTONE_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// What the store keeps of a topic, as JSON. A deleted one leaves its record behind, with no groups.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    descriptor: Descriptor,
    /// Number of this incarnation in every key of it.
    number: u32,
    /// Number of each group in every key of it.
    groups: Vec<(GroupName, u16)>,
    next_group: u16,
    changed_at: Timestamp,
}

impl Record {
    /// Gives every group of the descriptor its number, and forgets the numbers of groups that left.
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

/// What memory holds of a partition. Every change to it, and to its entries in the tree, is made under its lock.
#[derive(Debug, Default)]
pub(super) struct PartitionState {
    /// By number of the group.
    pub(super) pairs: HashMap<u16, PairState>,
    /// Settled ids that are remembered.
    pub(super) seen: u64,
}

/// A topic, or the tombstone of one.
#[derive(Debug)]
pub(super) struct Topic {
    record: Record,
    partitions: Mutex<HashMap<Partition, Arc<Mutex<PartitionState>>>>,
}

impl Topic {
    fn new(record: Record) -> Topic {
        Topic { record, partitions: Mutex::default() }
    }

    /// Its descriptor.
    pub(super) fn descriptor(&self) -> &Descriptor {
        &self.record.descriptor
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        self.record.number
    }

    /// The places of all its groups in a partition.
    pub(super) fn places(&self, partition: Partition) -> impl Iterator<Item = Place> {
        let topic = self.record.number;
        self.record.groups.iter().map(move |(_, group)| Place { topic, partition, group: *group })
    }

    /// The place of a group in a partition, if both exist.
    pub(super) fn place(&self, partition: Partition, group: &GroupName) -> Option<Place> {
        let (_, group) = self.record.groups.iter().find(|(name, _)| name == group)?;
        let exists = partition.0 < self.record.descriptor.settings.partitions.get();
        exists.then_some(Place { topic: self.record.number, partition, group: *group })
    }

    /// Whether a group has this number.
    pub(super) fn has_group(&self, number: u16) -> bool {
        self.record.groups.iter().any(|(_, group)| *group == number)
    }

    /// What memory holds of a partition.
    pub(super) fn partition(&self, partition: Partition) -> Arc<Mutex<PartitionState>> {
        locked(&self.partitions).entry(partition).or_default().clone()
    }
}

/// Takes a lock. A panic of another thread leaves nothing half done: memory changes after the tree did, all at once.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All topics and tombstones.
#[derive(Debug)]
pub(super) struct Topics {
    by_name: BTreeMap<TopicName, Topic>,
    next_number: u32,
}

impl Topics {
    /// Reads all records.
    pub(super) fn load(tree: &Tree) -> Result<Topics> {
        let mut topics = Topics { by_name: BTreeMap::new(), next_number: FIRST_TOPIC };
        for entry in tree.scan_prefix(keys::topic("")) {
            let (_, json) = entry.map_err(broken)?;
            let unreadable = |error| Error::corrupt(format!("the store holds an unreadable topic: {error}"));
            let record: Record = serde_json::from_slice(&json).map_err(unreadable)?;
            topics.next_number = topics.next_number.max(record.number.saturating_add(1));
            topics.by_name.insert(record.descriptor.topic.clone(), Topic::new(record));
        }
        Ok(topics)
    }

    /// A topic that was not deleted.
    pub(super) fn live(&self, name: &TopicName) -> Option<&Topic> {
        self.by_name.get(name).filter(|topic| !topic.descriptor().deleted)
    }

    /// The topic of a pair, and the pair's place in it, if both exist.
    pub(super) fn pair(&self, pair: &Pair) -> Option<(&Topic, Place)> {
        let topic = self.live(&pair.topic)?;
        Some((topic, topic.place(pair.partition, &pair.group)?))
    }

    /// The topics that were not deleted, sorted by name.
    pub(super) fn all(&self) -> impl Iterator<Item = &Topic> {
        self.by_name.values().filter(|topic| !topic.descriptor().deleted)
    }

    /// Makes a topic, or returns the one that exists.
    pub(super) fn create(&mut self, tree: &Tree, wanted: &Descriptor, now: Timestamp) -> Result<Descriptor> {
        if let Some(topic) = self.live(&wanted.topic) {
            return Ok(topic.descriptor().clone());
        }
        if self.all().count() >= TOPICS_MAX {
            return Err(Error::new(Kind::Full, format!("there are {TOPICS_MAX} topics, which is the limit")));
        }
        let generation = self.next_generation(&wanted.topic, now);
        let descriptor = Descriptor { generation, incarnation: generation, deleted: false, ..wanted.clone() };
        let (number, next_group) = (self.next_number, FIRST_GROUP);
        let mut record = Record { descriptor, number, groups: Vec::new(), next_group, changed_at: now };
        record.number_groups()?;
        self.next_number = number.checked_add(1).ok_or_else(|| Error::new(Kind::Full, "no topic number is left"))?;
        write(tree, &record)?;
        let descriptor = record.descriptor.clone();
        self.by_name.insert(descriptor.topic.clone(), Topic::new(record));
        Ok(descriptor)
    }

    /// Replaces a descriptor, and returns the new one with the places of groups that are no more.
    pub(super) fn update(
        &mut self,
        tree: &Tree,
        wanted: &Descriptor,
        now: Timestamp,
    ) -> Result<(Descriptor, Vec<Place>)> {
        let generation = self.next_generation(&wanted.topic, now);
        let topic = self.by_name.get_mut(&wanted.topic).filter(|topic| !topic.descriptor().deleted);
        let topic = topic.ok_or_else(|| Error::not_found(format!("topic {} does not exist", wanted.topic)))?;
        let old = &topic.record.descriptor;
        if old.generation != wanted.generation {
            let detail = format!("topic {} changed meanwhile: read it again", wanted.topic);
            return Err(Error::stale(detail));
        }
        if old.settings.partitions != wanted.settings.partitions {
            return Err(Error::invalid("partitions", "is fixed when a topic is made"));
        }
        let descriptor = Descriptor { generation, incarnation: old.incarnation, deleted: false, ..wanted.clone() };
        let mut record = Record { descriptor, changed_at: now, ..topic.record.clone() };
        record.number_groups()?;
        write(tree, &record)?;
        let before: Vec<u16> = topic.record.groups.iter().map(|(_, group)| *group).collect();
        topic.record = record;
        let gone: Vec<u16> = before.into_iter().filter(|group| !topic.has_group(*group)).collect();
        for partition in locked(&topic.partitions).values() {
            locked(partition).pairs.retain(|group, _| !gone.contains(group));
        }
        let number = topic.number();
        let place = |partition, group: &u16| Place { topic: number, partition, group: *group };
        let places = topic.descriptor().partitions().flat_map(|p| gone.iter().map(move |group| place(p, group)));
        Ok((topic.descriptor().clone(), places.collect()))
    }

    /// Replaces a topic by its tombstone, and returns its number, unless it is gone already.
    pub(super) fn delete(&mut self, tree: &Tree, wanted: &Descriptor, now: Timestamp) -> Result<Option<u32>> {
        self.forget_old_tombstones(tree, now)?;
        let same = |topic: &&Topic| topic.descriptor().incarnation == wanted.incarnation;
        let Some(topic) = self.live(&wanted.topic).filter(same) else { return Ok(None) };
        let generation = self.next_generation(&wanted.topic, now);
        let descriptor = Descriptor { generation, deleted: true, ..topic.descriptor().clone() };
        let record = Record { descriptor, groups: Vec::new(), changed_at: now, ..topic.record.clone() };
        let number = topic.number();
        write(tree, &record)?;
        self.by_name.insert(wanted.topic.clone(), Topic::new(record));
        Ok(Some(number))
    }

    /// A generation that this name never had, as long as its tombstone is kept or the clock goes forward.
    fn next_generation(&self, name: &TopicName, now: Timestamp) -> u64 {
        let last = self.by_name.get(name).map_or(0, |topic| topic.descriptor().generation);
        now.as_ms().max(last.saturating_add(1))
    }

    /// Forgets tombstones that were kept long enough, and the oldest ones past the number of topics that may live.
    fn forget_old_tombstones(&mut self, tree: &Tree, now: Timestamp) -> Result<()> {
        let dead = self.by_name.values().filter(|topic| topic.descriptor().deleted);
        let mut dead: Vec<_> = dead.map(|topic| (topic.record.changed_at, topic.descriptor().topic.clone())).collect();
        dead.sort();
        let excess = dead.len().saturating_sub(TOPICS_MAX);
        let mut batch = Batch::default();
        for (number, (changed_at, name)) in dead.into_iter().enumerate() {
            if number < excess || now.since(changed_at) > TOMBSTONE_KEPT {
                batch.remove(keys::topic(name.as_str()));
                self.by_name.remove(&name);
            }
        }
        tree.apply_batch(batch).map_err(broken)
    }
}

fn write(tree: &Tree, record: &Record) -> Result<()> {
    let json = serde_json::to_vec(record).map_err(|error| Error::bug(format!("a topic did not encode: {error}")))?;
    tree.insert(keys::topic(record.descriptor.topic.as_str()), json).map_err(broken).map(|_| ())
}
