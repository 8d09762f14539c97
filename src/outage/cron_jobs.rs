//! Cron jobs around an outage: the journal keeps how they are, what they fired, and up to when that is done. Nothing is buffered.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::BufferedStore;
use crate::model::error::{Kind, Result};
use crate::model::message::{CronJobName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::store::{self, CronJobChange, CronJobRecord, Fired, Firing, KeptCronJob, LogTarget, Pushed, Put, restoring};
use crate::wal::Record;

/// Cron jobs that fired without an answer, until it is known what became of that.
#[derive(Debug, Default)]
pub(super) struct UnansweredFirings(Mutex<BTreeSet<(TopicName, CronJobName)>>);

impl UnansweredFirings {
    fn note(&self, topic: &TopicName, name: &CronJobName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((topic.clone(), name.clone()));
    }

    fn take(&self, topic: &TopicName, name: &CronJobName) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(topic.clone(), name.clone()))
    }
}

#[async_trait]
impl<S: LogTarget> store::CronJobs for BufferedStore<S> {
    async fn cron_partitions(&self) -> Result<Vec<(TopicName, Partition)>> {
        self.store.cron_partitions().await
    }

    async fn list(&self, topic: &TopicName, partition: Partition) -> Result<Vec<CronJobRecord>> {
        self.store.list(topic, partition).await
    }

    /// While a loss is restored nothing is changed: what is there may be older than what is about to come back.
    async fn put_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &CronJobChange,
    ) -> Result<Option<Timestamp>> {
        let losses = self.losses();
        let last = self.unless_lost(self.store.put_cron_job(descriptor, partition, change)).await?;
        if let Some(last) = last {
            let (name, schedule) = (change.schedule.name.clone(), Some(change.schedule.clone()));
            let job = KeptCronJob { name, revision: change.revision, last, schedule };
            self.keep_cron_job(descriptor, partition, job, losses).await?;
        }
        Ok(last)
    }

    async fn delete_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        name: &CronJobName,
    ) -> Result<Option<Version>> {
        let losses = self.losses();
        let deleted = self.unless_lost(self.store.delete_cron_job(descriptor, partition, name)).await?;
        if let Some(revision) = deleted {
            let job = KeptCronJob { name: name.clone(), revision, last: Timestamp::ZERO, schedule: None };
            self.keep_cron_job(descriptor, partition, job, losses).await?;
        }
        Ok(deleted)
    }

    /// Nothing fires while a loss is restored: the mark that is there may be older than what was answered.
    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired> {
        if self.is_restoring() {
            return Err(restoring());
        }
        let (topic, name) = (&descriptor.topic, &firing.schedule.name);
        let losses = self.losses();
        match self.store.fire(descriptor, partition, firing).await {
            Ok(Fired::Done(new)) => {
                self.unanswered_firings.take(topic, name);
                let puts: Vec<Put> = new.iter().map(|is_new| Put::Pushed(stored_or_there(*is_new))).collect();
                self.keep_firing(descriptor, partition, firing, &puts, losses).await?;
                Ok(Fired::Done(new))
            }
            // Perhaps by the call that was not answered: the journal keeps what is there of it.
            Ok(Fired::Before(last)) if self.unanswered_firings.take(topic, name) && last >= firing.done => {
                let puts = vec![Put::Pushed(Pushed::Duplicate); firing.messages.len()];
                self.keep_firing(descriptor, partition, firing, &puts, losses).await?;
                Ok(Fired::Before(last))
            }
            Err(error) if error.kind() == Kind::OutcomeUnknown => {
                self.unanswered_firings.note(topic, name);
                Err(error)
            }
            fired => fired,
        }
    }
}

impl<S: LogTarget> BufferedStore<S> {
    async fn keep_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        job: KeptCronJob,
        losses: u64,
    ) -> Result<()> {
        self.keep_records(vec![record_of(descriptor, partition, job)], losses).await
    }

    /// Keeps the messages that a cron job fired, and up to when its occurrences are done.
    async fn keep_firing(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        firing: &Firing,
        puts: &[Put],
        losses: u64,
    ) -> Result<()> {
        if self.journal.is_none() {
            return Ok(());
        }
        // The mark is kept behind the messages: with the mark alone they would not be fired again.
        let call = store::Call { id: firing.call(), version: firing.version, is_fresh: false };
        self.keep_sets(descriptor, partition, &call, &firing.messages, puts, losses).await?;
        let (name, schedule) = (firing.schedule.name.clone(), Some(firing.schedule.clone()));
        let job = KeptCronJob { name, revision: firing.revision, last: firing.done, schedule };
        self.keep_cron_job(descriptor, partition, job, losses).await
    }
}

fn stored_or_there(is_new: bool) -> Pushed {
    if is_new { Pushed::Stored } else { Pushed::Duplicate }
}

fn record_of(descriptor: &Descriptor, partition: Partition, job: KeptCronJob) -> Record {
    let KeptCronJob { name, revision, last, schedule } = job;
    Record::CronJob { topic: descriptor.topic.clone(), partition, name, revision, last, schedule }
}

/// A cron job as a record of the journal says that it is.
pub(super) fn kept_cron_job(record: &Record) -> Option<KeptCronJob> {
    let Record::CronJob { name, revision, last, schedule, .. } = record else { return None };
    Some(KeptCronJob { name: name.clone(), revision: *revision, last: *last, schedule: schedule.clone() })
}
