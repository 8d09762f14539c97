//! Schedules: recurring messages of a topic.

use std::sync::Arc;

use super::Broker;
use crate::model::error::{Error, Kind, Missing, Result};
use crate::model::message::{ScheduleName, TopicName};
use crate::model::partition::Partition;
use crate::model::schedule::Schedule;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::store::{ScheduleChange, ScheduleRecord};

/// How often a change is made anew, when others change the same schedule at the same time.
const CHANGES_MAX: usize = 5;

/// Schedules of a page: it ends with the partition in which it has so many.
const PAGE: usize = 100;

/// A page of schedules.
#[derive(Debug, Clone)]
pub struct ScheduleList {
    /// Partition by partition, sorted by name in each.
    pub schedules: Vec<ScheduleRecord>,
    /// Opaque; `None` at the end.
    pub next: Option<String>,
}

impl Broker {
    /// Makes a schedule, or changes one; saying what is there already does nothing. Whether it is paused stays as it is.
    /// Another timing counts from now on. Answers whether it was made.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`, `NotFound` (no auto-create), `Full`, `Conflict` when others change it again and again.
    pub async fn put_schedule(&self, topic: &TopicName, wanted: Schedule) -> Result<(bool, ScheduleRecord)> {
        let now = self.store.backend.clock().now();
        wanted.check(now)?;
        let (descriptor, _) = self.topics.get_or_create(topic).await?;
        let name = wanted.name.clone();
        let mut made = false;
        let record = self.change_schedule(&descriptor, &name, |before| {
            made = before.is_none();
            let mut schedule = wanted.clone();
            let Some(before) = before else { return Ok((schedule, Some(now))) };
            schedule.paused = before.schedule.paused;
            let another = before.schedule.timing != schedule.timing;
            Ok((schedule, another.then_some(now)))
        });
        let record = record.await?;
        Ok((made, record))
    }

    /// Pauses a schedule, or lets it go on: from then on, without what has occurred meanwhile.
    ///
    /// # Errors
    /// `NotFound`, `Full`, `Conflict` when others change it again and again.
    pub async fn pause_schedule(&self, topic: &TopicName, name: &ScheduleName, paused: bool) -> Result<ScheduleRecord> {
        let descriptor = self.topics.get(topic).await?;
        let now = self.store.backend.clock().now();
        self.change_schedule(&descriptor, name, |before| {
            let before = before.ok_or_else(|| missing(topic, name))?;
            let resumes = before.schedule.paused && !paused;
            Ok((Schedule { paused, ..before.schedule.clone() }, resumes.then_some(now)))
        })
        .await
    }

    /// Removes a schedule. What it has pushed stays.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn remove_schedule(&self, topic: &TopicName, name: &ScheduleName) -> Result<()> {
        let descriptor = self.topics.get(topic).await?;
        let partition = descriptor.partition_of(name.as_str());
        match self.store.cron_jobs.remove_schedule(topic, partition, name).await? {
            true => {
                tracing::info!(%topic, cron = %name, "cron job deleted");
                Ok(())
            }
            false => Err(missing(topic, name)),
        }
    }

    /// A schedule.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn schedule(&self, topic: &TopicName, name: &ScheduleName) -> Result<ScheduleRecord> {
        let descriptor = self.topics.look(topic).await?;
        self.find(&descriptor, name).await?.ok_or_else(|| missing(topic, name))
    }

    /// Lists the schedules of a topic.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` cursor, `Full`.
    pub async fn schedules(&self, topic: &TopicName, cursor: Option<&str>) -> Result<ScheduleList> {
        let descriptor = self.topics.look(topic).await?;
        let wrong = |_| Error::invalid("cursor", "is not one that dwell gave; begin without a cursor");
        let mut partition = Partition(cursor.map_or(Ok(0), str::parse).map_err(wrong)?);
        let read = self.reads.begin().await?;
        let mut schedules = Vec::new();
        while partition.0 < descriptor.settings.partitions.get() && schedules.len() < PAGE {
            schedules.append(&mut read.call(self.store.cron_jobs.schedules(topic, partition)).await?);
            partition = Partition(partition.0 + 1);
        }
        let more = partition.0 < descriptor.settings.partitions.get();
        Ok(ScheduleList { schedules, next: more.then(|| partition.to_string()) })
    }

    async fn find(&self, descriptor: &Arc<Descriptor>, name: &ScheduleName) -> Result<Option<ScheduleRecord>> {
        let partition = descriptor.partition_of(name.as_str());
        let schedules = self.store.cron_jobs.schedules(&descriptor.topic, partition).await?;
        Ok(schedules.into_iter().find(|record| record.schedule.name == *name))
    }

    /// Changes what is there into something else, which is told with up to when occurrences are done with, if that
    /// changes. Made anew when somebody else has changed it in between.
    async fn change_schedule(
        &self,
        descriptor: &Arc<Descriptor>,
        name: &ScheduleName,
        mut into: impl FnMut(Option<&ScheduleRecord>) -> Result<(Schedule, Option<Timestamp>)>,
    ) -> Result<ScheduleRecord> {
        let mut descriptor = descriptor.clone();
        for _ in 0..CHANGES_MAX {
            let partition = descriptor.partition_of(name.as_str());
            let before = self.find(&descriptor, name).await?;
            let (schedule, last) = into(before.as_ref())?;
            if let Some(before) = before.as_ref().filter(|before| before.schedule == schedule) {
                return Ok(before.clone());
            }
            let revision = format!("{:016x}", fastrand::u64(..));
            let seen = before.as_ref().map(|before| before.revision.clone());
            let change = ScheduleChange { schedule, seen, revision, last };
            match self.store.cron_jobs.put_schedule(&descriptor, partition, &change).await {
                Ok(true) => {
                    tell(&descriptor.topic, before.as_ref().map(|before| &before.schedule), &change.schedule);
                    let last = change.last.or(before.map(|before| before.last)).unwrap_or_default();
                    return Ok(ScheduleRecord { schedule: change.schedule, revision: change.revision, last });
                }
                Ok(false) => {}
                Err(error) if error.kind() == Kind::Stale => descriptor = self.topics.load(&descriptor.topic).await?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Kind::Conflict, format!("cron job {name} is being changed by others; try again")))
    }
}

fn tell(topic: &TopicName, before: Option<&Schedule>, after: &Schedule) {
    let name = &after.name;
    match before.map(|before| before.paused) {
        None => tracing::info!(%topic, cron = %name, "cron job created"),
        Some(false) if after.paused => tracing::info!(%topic, cron = %name, "cron job paused"),
        Some(true) if !after.paused => tracing::info!(%topic, cron = %name, "cron job resumed"),
        Some(_) => tracing::info!(%topic, cron = %name, "cron job changed"),
    }
}

fn missing(topic: &TopicName, name: &ScheduleName) -> Error {
    Error::missing(Missing::cron(topic, name))
}
