//! Cron jobs: their definitions and marks, in the partition of their messages.

use async_trait::async_trait;
use redis::Value;

use super::failure::full;
use super::scripts::{Reply, SCRIPTS, ScriptCall};
use super::{Redis, Shared};
use crate::codec::encode_body;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CRON_JOBS_MAX, GROUP_PARTITION_MESSAGES_MAX, SCHEDULE_PLACES_MAX};
use crate::model::message::{CronJobName, TopicName};
use crate::model::partition::Partition;
use crate::model::schedule::Schedule;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::store::{self, CronJobChange, CronJobDeletion, CronJobRecord, Fired, Firing, KeptCronJob};

#[async_trait]
impl store::CronJobs for Redis {
    /// The partitions that ever had a cron job. The list is never cut, so no broker removes a name just added by
    /// another.
    async fn cron_partitions(&self) -> Result<Vec<(TopicName, Partition)>> {
        let answer = self.connection.call(redis::cmd("SMEMBERS").arg(self.keys.cron_partitions())).await?;
        let mut places = Reply::of(answer)?.each(|names| {
            let name = names.text()?;
            let corrupt = || Error::corrupt(format!("the list of cron jobs has an entry {name:?}"));
            let (topic, partition) = name.rsplit_once(':').ok_or_else(corrupt)?;
            Ok((TopicName::new(topic)?, Partition(partition.parse().map_err(|_| corrupt())?)))
        })?;
        places.sort();
        Ok(places)
    }

    async fn list(&self, topic: &TopicName, partition: Partition) -> Result<Vec<CronJobRecord>> {
        let keys = self.keys.partition(topic, partition);
        // A journal that keeps what is listed has to find that it was lost.
        if self.histories.of(topic, partition).is_none() {
            self.compare(topic, partition, None).await?;
        }
        let reply = self.reply(&ScriptCall::new(&SCRIPTS.cron_jobs, &[&keys.cron_jobs])).await?;
        let mut records = reply.each(|reply| {
            let (name, value) = (CronJobName::new(reply.text()?)?, reply.bytes()?);
            Ok(CronJobRecord::from_text(&name, &String::from_utf8_lossy(&value)))
        })?;
        records.sort_by(|a, b| a.schedule.name.cmp(&b.schedule.name));
        Ok(records)
    }

    async fn put_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &CronJobChange,
    ) -> Result<Option<Timestamp>> {
        let name = self.keys.cron_partitions();
        let count = self.connection.call(redis::cmd("SCARD").arg(&name)).await?;
        if matches!(count, Value::Int(count) if usize::try_from(count).is_ok_and(|count| count >= SCHEDULE_PLACES_MAX))
        {
            let detail = format!("cron jobs are in {SCHEDULE_PLACES_MAX} partitions, which is the limit");
            return Err(Error::new(Kind::Full, detail));
        }
        self.add_to_cron_list(&descriptor.topic, partition).await?;
        let keys = self.keys.partition(&descriptor.topic, partition);
        let make = |known: &str| {
            Ok(ScriptCall::new(&SCRIPTS.put_cron_job, &[&keys.generation, &keys.cron_jobs, &keys.gone])
                .arg(known)
                .arg(change.schedule.name.as_str())
                .arg(change.seen.map_or(String::new(), |seen| seen.as_us().to_string()))
                .arg(change.revision.as_us())
                .arg(change.last.map_or(String::new(), |last| last.as_ms().to_string()))
                .arg(change.schedule.to_json()?)
                .arg(CRON_JOBS_MAX))
        };
        let mut reply = Reply::of(self.eval_known(&descriptor.topic, partition, descriptor.generation, make).await?)?;
        match reply.text()?.as_str() {
            "OK" => {
                self.announce_cron_jobs().await?;
                Ok(Some(reply.time()?.unwrap_or_default()))
            }
            "CHANGED" => Ok(None),
            "OUTDATED" => {
                self.clock.witness(Version::from_us(reply.text()?.parse().unwrap_or_default()));
                Err(Error::stale("another broker changed the cron job just now; make another call"))
            }
            "FULL" => {
                let detail = format!("there are {CRON_JOBS_MAX} cron jobs in this partition, which is the limit");
                Err(Error::new(Kind::Full, detail))
            }
            _ => Err(self.overtaken(&descriptor.topic, partition).await),
        }
    }

    async fn delete_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        name: &CronJobName,
    ) -> Result<CronJobDeletion> {
        let keys = self.keys.partition(&descriptor.topic, partition);
        let revision = self.clock.versions(1);
        let make = |known: &str| {
            Ok(ScriptCall::new(&SCRIPTS.delete_cron_job, &[&keys.generation, &keys.cron_jobs, &keys.gone])
                .arg(known)
                .arg(name.as_str())
                .arg(revision.as_us())
                .arg(self.time_override()))
        };
        let (status, mut reply) = self.ask_known(&descriptor.topic, partition, descriptor.generation, make).await?;
        if status != "OK" {
            return Err(self.overtaken(&descriptor.topic, partition).await);
        }
        self.announce_cron_jobs().await?;
        let was_there = reply.number()? == 1;
        let revision = reply.text()?.parse().ok().map(Version::from_us);
        revision.into_iter().for_each(|revision| self.clock.witness(revision));
        Ok(CronJobDeletion { was_there, revision })
    }

    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups = self.group_keys(descriptor, partition);
        let call = self.keys.call(&descriptor.topic, partition, &firing.call().stream);
        let mut keys = vec![shared.generation.as_str(), &shared.cron_jobs, &shared.seen, &shared.wake, &call];
        for group in &groups {
            keys.extend([group.zset.as_str(), &group.hash, &group.dead_hash]);
        }
        let make = |known: &str| {
            let call = ScriptCall::new(&SCRIPTS.fire_cron_job, &keys)
                .arg(known)
                .arg(firing.schedule.name.as_str())
                .arg(firing.revision.as_us())
                .arg(firing.last.as_ms())
                .arg(firing.done.as_ms())
                .arg(GROUP_PARTITION_MESSAGES_MAX)
                .arg(self.time_override());
            firing.messages.iter().enumerate().try_fold(call, |call, (n, message)| {
                let body = encode_body(message, firing.version.plus(n))?;
                Ok(call.arg(message.due_at.as_ms()).arg(message.id.as_str()).arg(body))
            })
        };
        let (status, mut reply) = self.ask_known(&descriptor.topic, partition, descriptor.generation, make).await?;
        match status.as_str() {
            "OK" => Ok(Fired::Done(reply.each(|new| Ok(new.number()? == 1))?)),
            "EARLY" => Ok(Fired::Early),
            "BEFORE" => Ok(Fired::Before(reply.time()?.unwrap_or_default())),
            "CHANGED" => Ok(Fired::Changed),
            "FULL" => Err(full()),
            _ => Err(self.overtaken(&descriptor.topic, partition).await),
        }
    }
}

impl Shared {
    /// Brings a cron job, or its deletion, back; answers whether that changed something.
    pub(super) fn restore_cron_job_call(
        &self,
        topic: &TopicName,
        partition: Partition,
        cron: &KeptCronJob,
        known: &str,
    ) -> Result<ScriptCall> {
        let keys = self.keys.partition(topic, partition);
        let definition = cron.schedule.as_ref().map(Schedule::to_json).transpose()?.unwrap_or_default();
        Ok(ScriptCall::new(&SCRIPTS.restore_cron_job, &[&keys.generation, &keys.cron_jobs, &keys.gone])
            .arg(known)
            .arg(cron.name.as_str())
            .arg(cron.revision.as_us())
            .arg(cron.last.as_ms())
            .arg(definition)
            .arg(self.time_override()))
    }

    /// Adds a partition to the list of those that have cron jobs, before it has any: a partition without cron jobs in it is harmless,
    /// a cron job that nobody finds is not.
    pub(super) async fn add_to_cron_list(&self, topic: &TopicName, partition: Partition) -> Result<()> {
        let list = self.keys.cron_partitions();
        self.connection.call(redis::cmd("SADD").arg(list).arg(place(topic, partition))).await.map(drop)
    }

    /// Adds each partition of a topic that has cron jobs to the list of those: the list may be lost, and they not.
    pub(super) async fn add_all_to_cron_list(&self, descriptor: &Descriptor) -> Result<()> {
        let partitions: Vec<Partition> = descriptor.partitions().collect();
        let keys = partitions.iter().map(|partition| self.keys.partition(&descriptor.topic, *partition).cron_jobs);
        let calls: Vec<ScriptCall> = keys.map(|key| ScriptCall::new(&SCRIPTS.cron_jobs, &[&key])).collect();
        let mut places = Vec::new();
        for (partition, found) in partitions.into_iter().zip(self.connection.eval_all(&SCRIPTS.cron_jobs, calls).await)
        {
            let mut found = Reply::of(found?)?;
            found.text()?;
            if found.left() > 0 {
                places.push(place(&descriptor.topic, partition));
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        self.connection.call(redis::cmd("SADD").arg(self.keys.cron_partitions()).arg(places)).await?;
        self.announce_cron_jobs().await
    }

    /// Tells the other brokers to look. One that misses it looks after a while.
    pub(super) async fn announce_cron_jobs(&self) -> Result<()> {
        let published =
            self.connection.call(redis::cmd("SPUBLISH").arg(self.keys.cron_partitions()).arg("changed")).await;
        if let Err(error) = published {
            tracing::debug!(%error, "a changed cron job was not announced");
        }
        Ok(())
    }
}

/// A partition in the list of those that have cron jobs.
fn place(topic: &TopicName, partition: Partition) -> String {
    format!("{topic}:{partition}")
}
