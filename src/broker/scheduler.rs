//! Firing schedules when they occur. Every broker does, and for each occurrence the store lets one of them succeed.
//!
//! Nothing polls: the schedules are read at the start, when one was changed anywhere, and every few minutes, in case an
//! announcement was lost. In between this sleeps until the next one occurs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Broker;
use crate::model::error::{Kind, Result};
use crate::model::message::{ScheduleName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;
use crate::store::{Channel, Fired, Firing, ScheduleRecord};

/// How long the schedules that were read are believed.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// The pause after the store could not be asked, or did not take a firing.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause when the store's clock turned out to be behind.
const EARLY: Duration = Duration::from_millis(2);

/// Calls to the store at the same time: at midnight many schedules occur at once.
const AT_ONCE: usize = 32;

/// Fires schedules.
pub(super) struct Schedules {
    broker: Broker,
    known: BTreeMap<(TopicName, ScheduleName), Known>,
    /// When to read them again.
    look_at: Instant,
}

/// A schedule, as it was read or as the last firing left it.
#[derive(Clone)]
struct Known {
    topic: TopicName,
    partition: Partition,
    record: ScheduleRecord,
    /// When it occurs next.
    next: Option<Timestamp>,
    /// Not before then.
    wait: Instant,
}

/// What a firing says about the schedule.
enum Outcome {
    /// It is done up to there.
    Done(Timestamp),
    /// Later again.
    Wait(Duration),
    /// It is another one, or gone.
    Changed,
}

impl Schedules {
    pub(super) fn new(broker: Broker) -> Schedules {
        Schedules { broker, known: BTreeMap::new(), look_at: Instant::default() }
    }

    /// Fires what occurs, until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let _wake = self.broker.store.backend.wakes().subscribe(Channel::Schedules, changed.clone());
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
        let now = self.broker.clock().instant();
        if now >= self.look_at {
            self.look_at = match self.read().await {
                Ok(()) => now.plus(LOOK_AGAIN),
                Err(error) => {
                    tracing::debug!(%error, "cron jobs not read");
                    now.plus(PAUSE)
                }
            };
        }
        let (store_now, now) = (self.broker.store.backend.clock().now(), self.broker.clock().instant());
        let due = |known: &&Known| known.wait <= now && known.next.is_some_and(|next| next <= store_now);
        let due: Vec<Known> = self.known.values().filter(due).cloned().collect();
        for some in due.chunks(AT_ONCE) {
            let fired = join_all(some.iter().map(|known| fire(&self.broker, known))).await;
            for (known, outcome) in some.iter().zip(fired) {
                self.take_in(known, outcome);
            }
        }
        let clock = self.broker.store.backend.clock();
        let occurs = |known: &Known| known.next.map(|next| clock.reaches(next).max(known.wait));
        self.known.values().filter_map(occurs).min().unwrap_or(Instant::FAR).min(self.look_at)
    }

    fn take_in(&mut self, known: &Known, outcome: Outcome) {
        let place = (known.topic.clone(), known.record.schedule.name.clone());
        let Some(known) = self.known.get_mut(&place) else { return };
        match outcome {
            Outcome::Done(last) => {
                known.record.last = last;
                known.next = known.record.schedule.next(last);
            }
            Outcome::Wait(pause) => known.wait = self.broker.clock().instant().plus(pause),
            Outcome::Changed => {
                self.known.remove(&place);
                self.look_at = Instant::default();
            }
        }
    }

    async fn read(&mut self) -> Result<()> {
        let store = &self.broker.store;
        let mut all = BTreeMap::new();
        for places in store.cron_jobs.schedule_places().await?.chunks(AT_ONCE) {
            let read = places.iter().map(|(topic, partition)| store.cron_jobs.schedules(topic, *partition));
            for ((topic, partition), records) in places.iter().zip(join_all(read).await) {
                for record in records? {
                    let next = record.schedule.next(record.last);
                    let place = (topic.clone(), record.schedule.name.clone());
                    let wait = Instant::default();
                    all.insert(place, Known { topic: topic.clone(), partition: *partition, record, next, wait });
                }
            }
        }
        self.known = all;
        Ok(())
    }
}

/// Fires what has occurred of a schedule.
async fn fire(broker: &Broker, known: &Known) -> Outcome {
    match try_to_fire(broker, known).await {
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
                broker.topics.forget(topic);
            }
            Outcome::Wait(PAUSE)
        }
    }
}

async fn try_to_fire(broker: &Broker, known: &Known) -> Result<Outcome> {
    let Known { topic, partition, record, .. } = known;
    let now = broker.store.backend.clock().now();
    let Some(fires) = record.schedule.fires(record.last, now) else { return Ok(Outcome::Wait(EARLY)) };
    let descriptor = broker.topics.get(topic).await?;
    let messages = fires.occurrences.iter().map(|at| record.schedule.message(*at, now)).collect::<Result<_>>()?;
    let firing = Firing {
        name: record.schedule.name.clone(),
        revision: record.revision.clone(),
        last: record.last,
        done: fires.done,
        messages,
    };
    match broker.store.cron_jobs.fire(&descriptor, *partition, &firing).await? {
        Fired::Done(new) => {
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
        Fired::Early => Ok(Outcome::Wait(EARLY)),
        Fired::Before(last) => Ok(Outcome::Done(last)),
        Fired::Changed => Ok(Outcome::Changed),
    }
}
