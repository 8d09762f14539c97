//! Cron jobs around an outage: the journal keeps how they are, what they fired, and up to when that is done. Nothing is buffered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::BufferedStore;
use crate::model::error::{Kind, Result};
use crate::model::limits::SCHEDULE_PLACES_MAX;
use crate::model::message::{CronJobName, TopicName};
use crate::model::partition::Partition;
use crate::model::schedule::Timing;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::clock::Instant;
use crate::store::{
    self, CronJobChange, CronJobDeletion, CronJobRecord, Fired, Firing, KeptCronJob, LogTarget, PushVerdict, Pushed,
    restoring,
};
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

/// How often in its window the journal keeps a cron job that does not change.
const KEPT_AGAIN: u32 = 4;

/// Which revisions of cron jobs the journal has, and since when.
#[derive(Debug, Default)]
pub(super) struct KeptCronJobs(Mutex<BTreeMap<(TopicName, CronJobName), (Version, Instant)>>);

impl KeptCronJobs {
    fn has(&self, topic: &TopicName, cron: &CronJobRecord, since: Instant) -> bool {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get(&(topic.clone(), cron.schedule.name.clone()));
        kept.is_some_and(|(revision, at)| *revision == cron.revision && *at >= since)
    }

    /// Cron jobs that are gone are forgotten with the others when there are too many.
    fn note(&self, topic: &TopicName, cron: &CronJobRecord, now: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_CRON_JOBS_MAX {
            kept.clear();
        }
        kept.insert((topic.clone(), cron.schedule.name.clone()), (cron.revision, now));
    }
}

const KEPT_CRON_JOBS_MAX: usize = SCHEDULE_PLACES_MAX;

#[async_trait]
impl<S: LogTarget> store::CronJobs for BufferedStore<S> {
    async fn cron_partitions(&self) -> Result<Vec<(TopicName, Partition)>> {
        self.store.cron_partitions().await
    }

    /// The journal keeps what was listed, so that it also has cron jobs that rarely change, and those of other brokers.
    async fn list(&self, topic: &TopicName, partition: Partition) -> Result<Vec<CronJobRecord>> {
        let losses = self.losses();
        let listed = self.store.list(topic, partition).await?;
        if let Some(journal) = &self.journal {
            let since = self.clock.instant().minus(journal.window() / KEPT_AGAIN);
            let is_old = |cron: &&CronJobRecord| is_readable(cron) && !self.kept_cron_jobs.has(topic, cron, since);
            let old: Vec<_> = listed.iter().filter(is_old).collect();
            let records = old.iter().map(|cron| record_of(topic, kept_as_listed(cron))).collect();
            if self.keep_records(records, losses).await == Ok(true) {
                old.into_iter().for_each(|cron| self.kept_cron_jobs.note(topic, cron, self.clock.instant()));
            }
        }
        Ok(listed)
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
            let cron = KeptCronJob { name, revision: change.revision, last, schedule };
            self.keep_cron_job(descriptor, cron, losses).await?;
        }
        Ok(last)
    }

    /// The journal also keeps a deletion that another call made: perhaps an earlier one of this broker, which was not answered.
    async fn delete_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        name: &CronJobName,
    ) -> Result<CronJobDeletion> {
        let losses = self.losses();
        let deleted = self.unless_lost(self.store.delete_cron_job(descriptor, partition, name)).await?;
        if let Some(revision) = deleted.revision {
            let cron = KeptCronJob { name: name.clone(), revision, last: Timestamp::ZERO, schedule: None };
            self.keep_cron_job(descriptor, cron, losses).await?;
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
                let verdicts: Vec<_> = new.iter().map(|is_new| PushVerdict::from(stored_or_there(*is_new))).collect();
                self.keep_firing(descriptor, partition, firing, &verdicts, losses).await?;
                Ok(Fired::Done(new))
            }
            // Perhaps by the call that was not answered: the journal keeps what is there of it.
            Ok(Fired::Before(last)) if self.unanswered_firings.take(topic, name) && last >= firing.done => {
                let verdicts = vec![PushVerdict::from(Pushed::Duplicate); firing.messages.len()];
                self.keep_firing(descriptor, partition, firing, &verdicts, losses).await?;
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
    async fn keep_cron_job(&self, descriptor: &Descriptor, cron: KeptCronJob, losses: u64) -> Result<()> {
        self.keep_records(vec![record_of(&descriptor.topic, cron)], losses).await.map(drop)
    }

    /// Keeps the messages that a cron job fired, and up to when its occurrences are done.
    async fn keep_firing(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        firing: &Firing,
        verdicts: &[PushVerdict],
        losses: u64,
    ) -> Result<()> {
        if self.journal.is_none() {
            return Ok(());
        }
        // The mark is kept behind the messages: with the mark alone they would not be fired again.
        let call = store::Call { id: firing.call(), version: firing.version, is_fresh: false };
        self.keep_sets(descriptor, partition, &call, &firing.messages, verdicts, losses).await?;
        let (name, schedule) = (firing.schedule.name.clone(), Some(firing.schedule.clone()));
        let cron = KeptCronJob { name, revision: firing.revision, last: firing.done, schedule };
        self.keep_cron_job(descriptor, cron, losses).await
    }
}

fn stored_or_there(is_new: bool) -> Pushed {
    if is_new { Pushed::Stored } else { Pushed::Duplicate }
}

fn record_of(topic: &TopicName, cron: KeptCronJob) -> Record {
    let KeptCronJob { name, revision, last, schedule } = cron;
    Record::CronJob { topic: topic.clone(), name, revision, last, schedule }
}

fn kept_as_listed(cron: &CronJobRecord) -> KeptCronJob {
    let CronJobRecord { schedule, revision, last } = cron.clone();
    KeptCronJob { name: schedule.name.clone(), revision, last, schedule: Some(schedule) }
}

/// One that this version cannot read is not kept: the journal could not be read either.
fn is_readable(cron: &CronJobRecord) -> bool {
    !matches!(cron.schedule.timing, Timing::Unreadable { .. })
}

/// A cron job as a record of the journal says that it is.
pub(super) fn kept_cron_job(record: &Record) -> Option<KeptCronJob> {
    let Record::CronJob { name, revision, last, schedule, .. } = record else { return None };
    Some(KeptCronJob { name: name.clone(), revision: *revision, last: *last, schedule: schedule.clone() })
}
