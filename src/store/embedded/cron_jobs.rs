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
use crate::model::message::{ScheduleName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::platform::disk::ChunkedValue;
use crate::store::{self, Channel, Fired, Firing, Pushed, ScheduleChange, ScheduleRecord};

#[async_trait]
impl store::CronJobs for Embedded {
    async fn schedule_places(&self) -> Result<Vec<(TopicName, Partition)>> {
        let topics = self.topics();
        let live: HashMap<u32, &Topic> = topics.all().map(|topic| (topic.number(), topic)).collect();
        let mut places = Vec::new();
        for key in self.tree.scan_prefix(keys::schedules()).keys() {
            let key = key.map_err(broken)?;
            let Some((topic, partition)) = keys::schedule_place_of(&key) else { continue };
            places.extend(live.get(&topic).map(|topic| (topic.descriptor().topic.clone(), partition)));
        }
        places.sort();
        Ok(places)
    }

    async fn schedules(&self, topic: &TopicName, partition: Partition) -> Result<Vec<ScheduleRecord>> {
        let topics = self.topics();
        let Some(topic) = topics.live(topic) else { return Ok(Vec::new()) };
        self.schedules_at(place_of(topic, partition)).values().map(|value| read(&value?)).collect()
    }

    async fn put_schedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &ScheduleChange,
    ) -> Result<bool> {
        self.check_storable()?;
        if !self.change_schedule(descriptor, partition, change)? {
            return Ok(false);
        }
        self.commit().await?;
        self.wakes.wake(&Channel::Schedules);
        Ok(true)
    }

    async fn remove_schedule(&self, topic: &TopicName, partition: Partition, name: &ScheduleName) -> Result<bool> {
        let removed = {
            let topics = self.topics();
            let Some(topic) = topics.live(topic) else { return Ok(false) };
            let state = topic.partition(partition);
            let _state = locked(&state);
            let mut batch = Batch::default();
            let hash = self.schedules_at(place_of(topic, partition));
            let removed = hash.remove(&mut batch, name.as_str().as_bytes())?;
            self.apply(batch)?;
            removed
        };
        self.commit().await?;
        self.wakes.wake(&Channel::Schedules);
        Ok(removed)
    }

    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired> {
        self.check_storable()?;
        let messages = &firing.messages;
        let values = self.values(messages, self.clock.versions(messages.len()))?;
        let mut fired = Fired::Changed;
        let mark = |batch: &mut Batch, topic: &Topic| -> Result<bool> {
            let hash = self.schedules_at(place_of(topic, partition));
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
            hash.add(batch, name, &written(&ScheduleRecord { last: firing.done, ..there })?);
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
    fn schedules_at(&self, place: Place) -> Hash<'_> {
        Hash::schedules(&self.tree, place)
    }

    fn change_schedule(&self, descriptor: &Descriptor, partition: Partition, change: &ScheduleChange) -> Result<bool> {
        let topics = self.topics();
        let topic = topics.live(&descriptor.topic).filter(|topic| is_current(topic, descriptor));
        let topic = topic.ok_or_else(|| changed(&descriptor.topic))?;
        let state = topic.partition(partition);
        let _state = locked(&state);
        let (hash, name) = (self.schedules_at(place_of(topic, partition)), change.schedule.name.as_str());
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
        let record = ScheduleRecord { schedule: change.schedule.clone(), revision: change.revision.clone(), last };
        let mut batch = Batch::default();
        hash.remove(&mut batch, name.as_bytes())?;
        hash.add(&mut batch, name.as_bytes(), &written(&record)?);
        batch.insert(keys::schedule_place(topic.number(), partition), b"");
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

fn written(record: &ScheduleRecord) -> Result<ChunkedValue> {
    ChunkedValue::cut(record.to_text()?.as_bytes())
}

fn read(value: &[u8]) -> Result<ScheduleRecord> {
    let text = std::str::from_utf8(value).map_err(|_| Error::corrupt("a cron job is no text"))?;
    ScheduleRecord::from_text(text)
}
