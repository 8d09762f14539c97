//! Cron jobs, recurring messages of a topic: changing them, and firing them when they occur. Every broker
//! fires, and the store lets one succeed for each occurrence.
//!
//! Nothing polls: cron jobs are read at the start, when one was changed anywhere, and every few minutes, in case an
//! announcement was lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::Broker;
use crate::model::error::{Error, Kind, Missing, Result};
use crate::model::limits::CRON_JOB_FIRES_MAX;
use crate::model::message::{CronJobName, Message, TopicName};
use crate::model::partition::Partition;
use crate::model::schedule::{Missed, Occurrences, Schedule, Timing};
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::platform::clock::Instant;
use crate::store::{Channel, CronJobChange, CronJobRecord, Fired, Firing};

const CHANGES_MAX: usize = 5;
const PAGE_CRON_JOBS: usize = 100;
const READ_AGAIN_AFTER: Duration = Duration::from_secs(300);
/// The pause after the store could not be asked, or did not take a firing.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The pause when the store's clock turned out to be behind.
const CLOCK_BEHIND_PAUSE: Duration = Duration::from_millis(2);
/// How many times occurrences are tried when a test clock is moved.
const FIRE_TRIES_MAX: usize = 1_000;
/// Calls to the store at the same time: at midnight many cron jobs fire at once.
const AT_ONCE: usize = 32;

#[derive(Debug, Clone)]
pub struct CronJobList {
    pub cron_jobs: Vec<CronJobRecord>,
    pub next: Option<String>,
}

impl Broker {
    /// Whether it is paused stays as it is; another timing counts from now on. Answers whether it was created. Errors:
    /// `Invalid`, `TooLarge`, `NotFound` (no auto-create), `Full`, `Conflict` when others change it repeatedly.
    pub async fn put_cron_job(&self, topic: &TopicName, wanted: Schedule) -> Result<(bool, CronJobRecord)> {
        let now = self.store.backend.clock().now();
        wanted.check(now)?;
        let (descriptor, _) = self.topics.get_or_create(topic).await?;
        let name = wanted.name.clone();
        let mut made = false;
        let record = self.change_cron_job(&descriptor, &name, |before| {
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

    /// A resumed one does not make up for the pause. Errors: `NotFound`, `Full`, `Conflict` when others change it
    /// repeatedly, or this version cannot read it.
    pub async fn pause_cron_job(&self, topic: &TopicName, name: &CronJobName, paused: bool) -> Result<CronJobRecord> {
        let descriptor = self.topics.get(topic).await?;
        let now = self.store.backend.clock().now();
        self.change_cron_job(&descriptor, name, |before| {
            let before = before.ok_or_else(|| missing(topic, name))?;
            if let Timing::Unreadable { why, .. } = &before.schedule.timing {
                return Err(Error::new(Kind::Conflict, format!("{why}: create cron job {name} again, or delete it")));
            }
            let resumes = before.schedule.paused && !paused;
            Ok((Schedule { paused, ..before.schedule.clone() }, resumes.then_some(now)))
        })
        .await
    }

    /// Removes a cron job. Messages that it has pushed stay. Errors: `NotFound`.
    pub async fn delete_cron_job(&self, topic: &TopicName, name: &CronJobName) -> Result<()> {
        let descriptor = self.topics.get(topic).await?;
        let partition = descriptor.partition_of(name.as_str());
        match self.store.cron_jobs.delete_cron_job(&descriptor, partition, name).await?.was_there {
            true => {
                tracing::info!(%topic, cron = %name, "cron job deleted");
                Ok(())
            }
            false => Err(missing(topic, name)),
        }
    }

    pub async fn cron_job(&self, topic: &TopicName, name: &CronJobName) -> Result<CronJobRecord> {
        let descriptor = self.topics.peek(topic).await?;
        self.find(&descriptor, name).await?.ok_or_else(|| missing(topic, name))
    }

    /// Lists the cron jobs of a topic. Errors: `NotFound`, `Invalid` cursor, `Full`.
    pub async fn cron_jobs(&self, topic: &TopicName, cursor: Option<&str>) -> Result<CronJobList> {
        let descriptor = self.topics.peek(topic).await?;
        let mut partition = Partition(cursor.map_or(Ok(0), str::parse).map_err(|_| super::wrong_cursor())?);
        let read = self.reads.begin().await?;
        let mut cron_jobs = Vec::new();
        while partition.0 < descriptor.settings.partitions.get() && cron_jobs.len() < PAGE_CRON_JOBS {
            cron_jobs.append(&mut read.call(self.listed_cron_jobs(&descriptor, partition)).await?);
            partition = Partition(partition.0 + 1);
        }
        let more = partition.0 < descriptor.settings.partitions.get();
        Ok(CronJobList { cron_jobs, next: more.then(|| partition.to_string()) })
    }

    async fn find(&self, descriptor: &Arc<Descriptor>, name: &CronJobName) -> Result<Option<CronJobRecord>> {
        let partition = descriptor.partition_of(name.as_str());
        let cron_jobs = self.listed_cron_jobs(descriptor, partition).await?;
        Ok(cron_jobs.into_iter().find(|record| record.schedule.name == *name))
    }

    /// The cron jobs that a partition has. A node of Redis that lost the deletion of an earlier topic of the name still has those of
    /// that topic, perhaps in other partitions than their names belong to now: they are passed over, as records of a log are.
    async fn listed_cron_jobs(&self, descriptor: &Descriptor, partition: Partition) -> Result<Vec<CronJobRecord>> {
        let mut listed = self.store.cron_jobs.list(&descriptor.topic, partition).await?;
        listed.retain(|record| descriptor.is_after_deletion(record.revision));
        Ok(listed)
    }

    /// As [`Broker::listed_cron_jobs`]; none of a topic that was deleted.
    async fn tracked_cron_jobs(&self, topic: &TopicName, partition: Partition) -> Result<Vec<CronJobRecord>> {
        match self.topics.get(topic).await {
            Ok(descriptor) => self.listed_cron_jobs(&descriptor, partition).await,
            Err(error) if error.kind() == Kind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// `into` answers the new schedule, and up to when occurrences are done with if that changes. Tried again when
    /// another broker has changed it meanwhile.
    async fn change_cron_job(
        &self,
        descriptor: &Arc<Descriptor>,
        name: &CronJobName,
        mut into: impl FnMut(Option<&CronJobRecord>) -> Result<(Schedule, Option<Timestamp>)>,
    ) -> Result<CronJobRecord> {
        let mut descriptor = descriptor.clone();
        for _ in 0..CHANGES_MAX {
            let partition = descriptor.partition_of(name.as_str());
            let before = self.find(&descriptor, name).await?;
            let (schedule, last) = into(before.as_ref())?;
            if let Some(before) = before.as_ref().filter(|before| before.schedule == schedule) {
                return Ok(before.clone());
            }
            let revision = self.store.backend.clock().versions(1);
            let seen = before.as_ref().map(|before| before.revision);
            let change = CronJobChange { schedule, seen, revision, last };
            match self.store.cron_jobs.put_cron_job(&descriptor, partition, &change).await {
                Ok(Some(last)) => {
                    log_change(&descriptor.topic, before.as_ref().map(|before| &before.schedule), &change.schedule);
                    return Ok(CronJobRecord { schedule: change.schedule, revision, last });
                }
                Ok(None) => {}
                Err(error) if error.kind() == Kind::Stale => descriptor = self.topics.load(&descriptor.topic).await?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(Kind::Conflict, format!("cron job {name} is being changed by others; try again")))
    }
}

fn log_change(topic: &TopicName, before: Option<&Schedule>, after: &Schedule) {
    let name = &after.name;
    match before.map(|before| before.paused) {
        None => tracing::info!(%topic, cron = %name, "cron job created"),
        Some(false) if after.paused => tracing::info!(%topic, cron = %name, "cron job paused"),
        Some(true) if !after.paused => tracing::info!(%topic, cron = %name, "cron job resumed"),
        Some(_) => tracing::info!(%topic, cron = %name, "cron job changed"),
    }
}

fn missing(topic: &TopicName, name: &CronJobName) -> Error {
    Error::missing(Missing::cron(topic, name))
}

/// Within a broker, the scheduler and a move of a test clock fire one after the other.
pub(super) type Turns = Arc<Mutex<()>>;

pub(super) struct CronScheduler {
    broker: Broker,
    known: BTreeMap<(TopicName, CronJobName), TrackedCronJob>,
    look_at: Instant,
}

#[derive(Clone)]
struct TrackedCronJob {
    topic: TopicName,
    partition: Partition,
    record: CronJobRecord,
    /// `None` while it is paused, and when it has failed.
    times: Option<Occurrences>,
    next: Option<Timestamp>,
    failed: bool,
    wait: Instant,
}

impl TrackedCronJob {
    /// Takes what was computed from `before`, if that is the same version of the cron job with the same mark.
    fn new(topic: &TopicName, partition: Partition, record: CronJobRecord, before: Option<&TrackedCronJob>) -> Self {
        let unchanged = |before: &&Self| before.record.revision == record.revision && before.record.last == record.last;
        if let Some(before) = before.filter(unchanged) {
            return TrackedCronJob { wait: Instant::default(), ..before.clone() };
        }
        let (schedule, name) = (&record.schedule, &record.schedule.name);
        let (times, next, failed) = match schedule.expect(record.last) {
            Ok(Some(next)) => (schedule.timing.occurrences().ok(), Some(next), false),
            Ok(None) => (None, None, false),
            Err(error) => {
                if before.is_none_or(|before| !before.failed) {
                    tracing::warn!(%topic, cron = %name, %error, "cron job failed: it has no next time");
                }
                (None, None, true)
            }
        };
        TrackedCronJob { topic: topic.clone(), partition, record, times, next, failed, wait: Instant::default() }
    }

    /// The next occurrences, none after `to`.
    fn until(&self, to: Timestamp) -> impl Iterator<Item = Timestamp> {
        self.times.iter().flat_map(move |times| times.within(self.record.last, to))
    }
}

enum Outcome {
    Done(Timestamp),
    Wait(Duration),
    Changed,
}

impl CronScheduler {
    pub(super) fn new(broker: Broker) -> CronScheduler {
        CronScheduler { broker, known: BTreeMap::new(), look_at: Instant::default() }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let _wake = self.broker.store.backend.wakes().subscribe(Channel::CronJobs, changed.clone());
        loop {
            let until = tokio::select! {
                until = self.step() => until,
                () = stop.cancelled() => return,
            };
            tokio::select! {
                () = self.broker.clock().sleep_until(until) => {}
                () = changed.notified() => self.look_at = Instant::default(),
                () = stop.cancelled() => return,
            }
        }
    }

    /// Fires what has occurred, and says until when there is nothing to do.
    async fn step(&mut self) -> Instant {
        let turns = self.broker.firing.clone();
        let _turn = turns.lock().await;
        let now = self.broker.clock().instant();
        if now >= self.look_at {
            self.look_at = match self.read().await {
                Ok(()) => now.plus(READ_AGAIN_AFTER),
                Err(error) => {
                    tracing::debug!(%error, "cron jobs not read");
                    now.plus(RETRY_AFTER)
                }
            };
        }
        let (store_now, now) = (self.broker.store.backend.clock().now(), self.broker.clock().instant());
        let due = |known: &&TrackedCronJob| known.wait <= now && known.next.is_some_and(|next| next <= store_now);
        let due: Vec<TrackedCronJob> = self.known.values().filter(due).cloned().collect();
        for some in due.chunks(AT_ONCE) {
            let fired = join_all(some.iter().map(|known| fire(&self.broker, known, self.broker.now()))).await;
            for (known, outcome) in some.iter().zip(fired) {
                self.take_in(known, outcome);
            }
        }
        let clock = self.broker.store.backend.clock();
        let occurs = |known: &TrackedCronJob| known.next.map(|next| clock.reaches(next).max(known.wait));
        self.known.values().filter_map(occurs).min().unwrap_or(Instant::FAR).min(self.look_at)
    }

    fn take_in(&mut self, known: &TrackedCronJob, outcome: Outcome) {
        let place = (known.topic.clone(), known.record.schedule.name.clone());
        let Some(known) = self.known.get_mut(&place) else { return };
        match outcome {
            Outcome::Done(last) => {
                known.record.last = last;
                known.next = known.times.as_ref().and_then(|times| times.next(last));
            }
            Outcome::Wait(pause) => known.wait = self.broker.clock().instant().plus(pause),
            Outcome::Changed => {
                self.known.remove(&place);
                self.look_at = Instant::default();
            }
        }
    }

    /// How many occurrences there are until `to`, counted no further than to `most`.
    pub(super) fn occurrences(&self, to: Timestamp, most: usize) -> usize {
        self.known.values().fold(0, |count, known| count + known.until(to).take(most.saturating_sub(count)).count())
    }

    /// Fires some occurrences of one cron job that are not after `to`, whatever it does about missed ones; tells of which and
    /// how many. `None` when all have fired. Errors: `Unavailable` when the store does not take them.
    pub(super) async fn fire_some(&mut self, to: Timestamp) -> Result<Option<(TopicName, CronJobName, u64)>> {
        for _ in 0..FIRE_TRIES_MAX {
            let Some(mut known) = self.known.values().find(|known| known.until(to).next().is_some()).cloned() else {
                return Ok(None);
            };
            let some: Vec<Timestamp> = known.until(to).take(CRON_JOB_FIRES_MAX).collect();
            known.record.schedule.missed = Missed::All;
            match fire(&self.broker, &known, some.last().copied().unwrap_or(to)).await {
                Outcome::Changed => self.read().await?,
                Outcome::Wait(_) => self.broker.clock().sleep(CLOCK_BEHIND_PAUSE).await,
                done @ Outcome::Done(_) => {
                    self.take_in(&known, done);
                    return Ok(Some((known.topic, known.record.schedule.name, some.len() as u64)));
                }
            }
        }
        Err(Error::unavailable("the store does not take the occurrences of cron jobs"))
    }

    /// A partition that cannot be read keeps what was known of it, and stops no other. Errors: the last of those.
    pub(super) async fn read(&mut self) -> Result<()> {
        let (mut all, mut read_all) = (BTreeMap::new(), Ok(()));
        for places in self.broker.store.cron_jobs.cron_partitions().await?.chunks(AT_ONCE) {
            let read = places.iter().map(|(topic, partition)| self.broker.tracked_cron_jobs(topic, *partition));
            for ((topic, partition), records) in places.iter().zip(join_all(read).await) {
                match records {
                    Ok(records) => {
                        for record in records {
                            let place = (topic.clone(), record.schedule.name.clone());
                            let known = TrackedCronJob::new(topic, *partition, record, self.known.get(&place));
                            all.insert(place, known);
                        }
                    }
                    Err(error) => {
                        let there = |known: &&TrackedCronJob| known.topic == *topic && known.partition == *partition;
                        let kept = self.known.iter().filter(|(_, known)| there(known));
                        all.extend(kept.map(|(place, known)| (place.clone(), known.clone())));
                        read_all = Err(error);
                    }
                }
                // Each is computed within a fraction of a millisecond, and there may be a hundred in a partition.
                tokio::task::yield_now().await;
            }
        }
        self.known = all;
        let failed = self.known.values().filter(|known| known.failed).count();
        self.broker.metrics.process.cron_jobs_failed.set(i64::try_from(failed).unwrap_or(i64::MAX));
        read_all
    }
}

async fn fire(broker: &Broker, known: &TrackedCronJob, now: Timestamp) -> Outcome {
    match try_to_fire(broker, known, now).await {
        Ok(outcome) => outcome,
        Err(error) if error.kind() == Kind::NotFound => Outcome::Changed,
        Err(error) => {
            let (topic, name) = (&known.topic, &known.record.schedule.name);
            match error.kind() {
                // The store says so itself.
                Kind::Unavailable | Kind::OutcomeUnknown | Kind::Stale => {
                    tracing::debug!(%topic, cron = %name, %error, "cron job not fired: tried again");
                }
                _ => tracing::warn!(%topic, cron = %name, %error, "cron job not fired: tried again"),
            }
            if error.kind() == Kind::Stale {
                broker.topics.evict(topic);
            }
            Outcome::Wait(RETRY_AFTER)
        }
    }
}

async fn try_to_fire(broker: &Broker, known: &TrackedCronJob, now: Timestamp) -> Result<Outcome> {
    let TrackedCronJob { topic, partition, record, .. } = known;
    let Some(fires) = record.schedule.fires(record.last, now) else { return Ok(Outcome::Wait(CLOCK_BEHIND_PAUSE)) };
    let descriptor = broker.topics.get(topic).await?;
    let messages: Vec<Message> =
        fires.occurrences.iter().map(|at| record.schedule.message(*at, now)).collect::<Result<_>>()?;
    let firing = Firing {
        schedule: record.schedule.clone(),
        revision: record.revision,
        last: record.last,
        done: fires.done,
        version: broker.store.backend.clock().versions(messages.len()),
        messages,
    };
    match broker.store.cron_jobs.fire(&descriptor, *partition, &firing).await? {
        Fired::Done(new) => {
            let new = new.into_iter().filter(|is_new| *is_new).count();
            let metrics = broker.topic_metrics(topic);
            metrics.stored.inc_by(new as u64);
            metrics.fired.inc_by(new as u64);
            metrics.missed.inc_by(fires.passed_over);
            let duplicates = firing.messages.len().saturating_sub(new);
            if duplicates > 0 {
                metrics.occurrence_duplicate.inc_by(duplicates as u64);
                let name = &record.schedule.name;
                tracing::warn!(%topic, cron = %name, messages = duplicates, "occurrences not pushed: their ids were there");
            }
            Ok(Outcome::Done(fires.done))
        }
        Fired::Early => Ok(Outcome::Wait(CLOCK_BEHIND_PAUSE)),
        Fired::Before(last) => Ok(Outcome::Done(last)),
        Fired::Changed => Ok(Outcome::Changed),
    }
}
