//! Cron jobs: their definitions and marks, in the partition of their messages.
//!
//! A value is `<revision> <done up to, ms> <definition>`. It is changed under the lock of its partition, and by a firing in
//! the batch that stores the messages.

use std::collections::HashMap;

use async_trait::async_trait;
use sled::Batch;

use super::collections::Hash;
use super::commit::broken;
use super::keys::{self, Place};
use super::topics::{Topic, locked};
use super::{Embedded, Inner};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::SCHEDULES_MAX;
use crate::model::message::{CronJobName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::platform::disk::ChunkedValue;
use crate::store::{self, Channel, CronJobChange, CronJobRecord, Fired, Firing, Pushed};

#[async_trait]
impl store::CronJobs for Embedded {
    async fn cron_partitions(&self) -> Result<Vec<(TopicName, Partition)>> {
        let topics = self.topics();
        let live: HashMap<u32, &Topic> = topics.all().map(|topic| (topic.number(), topic)).collect();
        let mut places = Vec::new();
        for key in self.tree.scan_prefix(keys::cron_partitions()).keys() {
            let key = key.map_err(broken)?;
            let Some((topic, partition)) = keys::cron_partition_of(&key) else { continue };
            places.extend(live.get(&topic).map(|topic| (topic.descriptor().topic.clone(), partition)));
        }
        places.sort();
        Ok(places)
    }

    async fn list(&self, topic: &TopicName, partition: Partition) -> Result<Vec<CronJobRecord>> {
        let topics = self.topics();
        let Some(topic) = topics.live(topic) else { return Ok(Vec::new()) };
        self.cron_jobs_at(place_of(topic, partition)).values().map(|value| read(&value?)).collect()
    }

    async fn put_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &CronJobChange,
    ) -> Result<bool> {
        self.check_storable()?;
        if !self.change_cron_job(descriptor, partition, change)? {
            return Ok(false);
        }
        self.commit().await?;
        self.wakes.wake(&Channel::CronJobs);
        Ok(true)
    }

    async fn delete_cron_job(&self, topic: &TopicName, partition: Partition, name: &CronJobName) -> Result<bool> {
        let removed = {
            let topics = self.topics();
            let Some(topic) = topics.live(topic) else { return Ok(false) };
            let state = topic.partition(partition);
            let _state = locked(&state);
            let mut batch = Batch::default();
            let hash = self.cron_jobs_at(place_of(topic, partition));
            let removed = hash.remove(&mut batch, name.as_str().as_bytes())?;
            self.apply(batch)?;
            removed
        };
        self.commit().await?;
        self.wakes.wake(&Channel::CronJobs);
        Ok(removed)
    }

    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired> {
        self.check_storable()?;
        let messages = &firing.messages;
        let values = self.values(messages, self.clock.versions(messages.len()))?;
        let mut fired = Fired::Changed;
        let mark = |batch: &mut Batch, topic: &Topic| -> Result<bool> {
            let hash = self.cron_jobs_at(place_of(topic, partition));
            let Some(value) = hash.value(firing.name.as_str().as_bytes())? else { return Ok(false) };
            let there = read(&value)?;
            fired = match () {
                () if there.revision != firing.revision => Fired::Changed,
                () if there.last != firing.last => Fired::Before(there.last),
                () if firing.done > self.now() => Fired::Early,
                () => Fired::Done(0),
            };
            if !matches!(fired, Fired::Done(_)) {
                return Ok(false);
            }
            let name = firing.name.as_str().as_bytes();
            hash.remove(batch, name)?;
            hash.add(batch, name, &written(&CronJobRecord { last: firing.done, ..there })?);
            Ok(true)
        };
        let Some((answers, wake)) = self.insert_with((descriptor, partition), messages, &values, mark)? else {
            return Ok(fired);
        };
        if wake {
            self.wakes.wake(&Channel::Head(descriptor.topic.clone(), partition));
        }
        self.commit().await?;
        Ok(Fired::Done(answers.iter().filter(|answer| **answer == Pushed::Stored).count()))
    }
}

impl Inner {
    fn cron_jobs_at(&self, place: Place) -> Hash<'_> {
        Hash::schedules(&self.tree, place)
    }

    fn change_cron_job(&self, descriptor: &Descriptor, partition: Partition, change: &CronJobChange) -> Result<bool> {
        let topics = self.topics();
        let topic = topics.live(&descriptor.topic).filter(|topic| is_current(topic, descriptor));
        let topic = topic.ok_or_else(|| changed(&descriptor.topic))?;
        let state = topic.partition(partition);
        let _state = locked(&state);
        let (hash, name) = (self.cron_jobs_at(place_of(topic, partition)), change.schedule.name.as_str());
        let there = hash.value(name.as_bytes())?.map(|value| read(&value)).transpose()?;
        if there.as_ref().map(|there| &there.revision) != change.seen.as_ref() {
            return Ok(false);
        }
        if there.is_none() && hash.values().count() >= SCHEDULES_MAX {
            let detail = format!("there are {SCHEDULES_MAX} cron jobs in this partition, which is the limit");
            return Err(Error::new(Kind::Full, detail));
        }
        let before = there.map_or(Timestamp::ZERO, |there| there.last);
        let last = change.last.map_or(before, |last| last.max(before));
        let record = CronJobRecord { schedule: change.schedule.clone(), revision: change.revision.clone(), last };
        let mut batch = Batch::default();
        hash.remove(&mut batch, name.as_bytes())?;
        hash.add(&mut batch, name.as_bytes(), &written(&record)?);
        batch.insert(keys::cron_partition_key(topic.number(), partition), b"");
        self.apply(batch)?;
        Ok(true)
    }
}

fn place_of(topic: &Topic, partition: Partition) -> Place {
    Place { topic: topic.number(), partition, group: keys::FIRST_GROUP }.shared()
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

fn read(value: &[u8]) -> Result<CronJobRecord> {
    let text = std::str::from_utf8(value).map_err(|_| Error::corrupt("a cron job is no text"))?;
    CronJobRecord::from_text(text)
}
