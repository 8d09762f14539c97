//! Moving a test clock: deliveries time out and cron jobs fire as if the time had passed, in order, and then it has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Broker;
use super::cron::CronScheduler;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CLOCK_MOVE_FIRES_MAX, CLOCK_MOVE_MAX};
use crate::model::message::{CronJobName, GroupName, TopicName};
use crate::model::time::{Timestamp, show_span};
use crate::platform::test_clock::TestClock;
use crate::store::{Channel, Window};

/// How long the store has for taking back the deliveries that time out.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockTarget {
    /// 0 to [`CLOCK_MOVE_MAX`].
    Advance(Duration),
    /// Not in the past.
    To(Timestamp),
}

/// The outcome of a move of the clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moved {
    /// The time of messages now.
    pub now: Timestamp,
    /// The groups in which messages became due.
    pub due: Vec<Due>,
    /// The cron jobs that fired.
    pub fired: Vec<FiredCron>,
    /// Deliveries whose visibility timeout passed.
    pub timed_out: u64,
}

/// Messages of a group that became due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub topic: TopicName,
    pub group: GroupName,
    pub messages: u64,
}

/// A cron job that fired, once for each of its occurrences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredCron {
    pub topic: TopicName,
    pub name: CronJobName,
    pub times: u64,
}

impl ClockTarget {
    fn field(self) -> &'static str {
        match self {
            ClockTarget::Advance(_) => "advance",
            ClockTarget::To(_) => "to",
        }
    }

    fn span(self, now: Timestamp) -> Result<Duration> {
        let span = match self {
            ClockTarget::Advance(span) => span,
            ClockTarget::To(at) if at < now => {
                return Err(Error::range("to", format!("{at} is past: the clock says {now}, and only moves forward")));
            }
            ClockTarget::To(at) => at.since(now),
        };
        match span <= CLOCK_MOVE_MAX && now.plus(span).since(now) >= span {
            true => Ok(span),
            false => Err(Error::range(self.field(), format!("is more than {} ahead", show_span(CLOCK_MOVE_MAX)))),
        }
    }
}

impl Broker {
    /// Moves the clock of this broker. Once it returns everything that became due can be received. Deliveries in flight time out at
    /// their own time and are due again after the backoff; each cron job fires for each of its occurrences; what consumers get, they
    /// get at the new time.
    ///
    /// # Errors
    /// `Invalid` target, also one before which cron jobs occur more than [`CLOCK_MOVE_FIRES_MAX`] times, and the store's.
    pub async fn move_clock(&self, clock: &Arc<TestClock>, target: ClockTarget) -> Result<Moved> {
        let ((broker, clock), (done, moved)) = ((self.clone(), clock.clone()), oneshot::channel());
        // A caller that goes away must not leave the clock moved and cron jobs not fired.
        self.tasks.start(async move {
            let _ = done.send(broker.jump(&clock, target).await);
        });
        moved.await.unwrap_or_else(|_| Err(Error::unavailable("the broker has stopped")))
    }

    async fn jump(&self, clock: &TestClock, target: ClockTarget) -> Result<Moved> {
        let turn = clock.turn().await;
        let _no_other_fires = self.firing.lock().await;
        let span = target.span(self.now())?;
        let mut cron_jobs = CronScheduler::new(self.clone());
        cron_jobs.read().await?;
        if cron_jobs.occurrences(self.now().plus(span), CLOCK_MOVE_FIRES_MAX + 1) > CLOCK_MOVE_FIRES_MAX {
            let why =
                format!("cron jobs occur more than {CLOCK_MOVE_FIRES_MAX} times until then: move in smaller steps");
            return Err(Error::range(target.field(), why));
        }
        let mut timed_out = 0;
        for delivery in self.groups.all() {
            timed_out += delivery.time_out_within(span, PATIENCE).await?;
        }
        let before = self.now();
        let mut due = self.due_within(before, before.plus(span)).await?;
        turn.advance(span)?;
        let now = self.now();
        let fired = self.fire_until(&mut cron_jobs, now, &mut due).await;
        self.groups.all().iter().for_each(|delivery| delivery.time_jumped());
        self.store.backend.wakes().wake(&Channel::CronJobs);
        tracing::info!(by = show_span(span), %now, "test clock moved");
        let due = due.into_iter().filter(|(_, messages)| *messages > 0);
        let due = due.map(|((topic, group), messages)| Due { topic, group, messages }).collect();
        Ok(Moved { now, due, fired: fired?, timed_out })
    }

    /// How many messages of each group are due after `from`, until `to`.
    async fn due_within(&self, from: Timestamp, to: Timestamp) -> Result<BTreeMap<(TopicName, GroupName), u64>> {
        let after = |at: Timestamp| at.plus(Duration::from_millis(1));
        let window = Window { from: after(from), to: after(to) };
        let mut due = BTreeMap::new();
        for topic in self.topics().await? {
            let descriptor = match self.topic(&topic).await {
                Err(error) if error.kind() == Kind::NotFound => continue,
                descriptor => descriptor?,
            };
            for partition in descriptor.group_partitions(&descriptor.groups) {
                let count = self.store.reads.window(&partition, window, None, 0).await?.count;
                *due.entry((topic.clone(), partition.group)).or_default() += count;
            }
        }
        Ok(due)
    }

    async fn fire_until(
        &self,
        cron_jobs: &mut CronScheduler,
        now: Timestamp,
        due: &mut BTreeMap<(TopicName, GroupName), u64>,
    ) -> Result<Vec<FiredCron>> {
        let mut fired: BTreeMap<(TopicName, CronJobName), u64> = BTreeMap::new();
        while let Some((topic, name, times)) = cron_jobs.fire_some(now).await? {
            due.iter_mut().filter(|((of, _), _)| *of == topic).for_each(|(_, messages)| *messages += times);
            *fired.entry((topic, name)).or_default() += times;
        }
        Ok(fired.into_iter().map(|((topic, name), times)| FiredCron { topic, name, times }).collect())
    }
}
