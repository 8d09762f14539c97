//! `dwell bench`: how fast dwell is on this machine and this store, beside what the machine does without it.
//!
//! Every round measures everything once, the ceilings too, so that a machine that is busy for a while is busy for both.

mod results;
mod ceiling;
mod cost;
mod target;
mod workload;
mod pending;
mod plan;
mod process;
mod progress;
mod report;
mod scale;
mod sidecar;
mod speed;
mod store;
mod latency;

use std::cell::{Cell, RefCell};
use std::num::NonZeroU16;
use std::time::Duration;

use futures_util::future::{self, Either};

use super::failure::Failure;
use super::logging;
use super::signals::Signals;
use crate::app::config::{LogConfig, LogFormat, LogLevel};
use crate::app::embed::Dwell;
use crate::model::message::TopicName;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;
pub(super) use plan::BenchArgs;
use plan::Plan;
use progress::Progress;
use results::{Name, Results};
use sidecar::Sidecar;
use store::{Place, Stores};
use target::Target;

/// Messages of a batch.
const BATCH: usize = 100;

/// Requests of batches that are out at the same time.
const LANES: usize = 8;

pub(super) async fn run(args: &BenchArgs) -> Result<(), Failure> {
    logging::start(LogConfig { level: LogLevel::Warn, format: LogFormat::Text });
    let mut signals = Signals::listen()?;
    let plan = Plan::new(args)?;
    let stores = Stores::open(args.redis.as_ref(), args.prefix()).await?;
    let bench = Bench::start(plan, stores).await?;
    let ended = {
        let measured = bench.measure();
        let signal = signals.next();
        tokio::pin!(measured, signal);
        match future::select(measured, signal).await {
            Either::Left((result, _)) => result,
            Either::Right((signal, _)) => Err(Failure::interrupted(format!("{signal}: the bench was not finished"))),
        }
    };
    bench.progress.finish();
    let published = match &ended {
        Ok(()) => report::publish(&bench, &bench.store_name().await?, args.json.as_deref()),
        Err(_) => Ok(()),
    };
    let cleaned = bench.stop().await;
    ended.and(published).and(cleaned)
}

/// One run. Everything that loads runs in one future, so cells are enough.
struct Bench {
    plan: Plan,
    stores: Stores,
    library: Dwell,
    sidecar: Sidecar,
    payload: String,
    book: RefCell<Results>,
    progress: Progress,
    topics: Cell<usize>,
    /// How far the store's clock is ahead of ours, microseconds.
    store_ahead_us: i64,
}

impl Bench {
    async fn start(plan: Plan, stores: Stores) -> Result<Bench, Failure> {
        let library = stores.library("library", "library").await?;
        let sidecar = Sidecar::start(&stores.scratch.path().join("http"), &stores.place("http")).await?;
        let now_us = || i64::try_from(Clock::System.now().as_ms() * 1_000).unwrap_or(i64::MAX);
        let store_ahead_us = match &stores.bare {
            Some(bare) => bare.ahead_us(now_us).await?,
            None => 0,
        };
        let progress = Progress::new(plan.steps());
        Ok(Bench {
            payload: "x".repeat(plan.bytes),
            plan,
            stores,
            library,
            sidecar,
            book: RefCell::default(),
            progress,
            topics: Cell::new(0),
            store_ahead_us,
        })
    }

    async fn measure(&self) -> Result<(), Failure> {
        let doors = [Target::Library(self.library.broker().clone()), Target::Http(self.sidecar.client.clone())];
        self.binary()?;
        for round in 1..=self.plan.rounds {
            self.progress.round(round, self.plan.rounds);
            if ["push", "drain", "life", "scale"].iter().any(|name| self.plan.wants(name)) {
                self.progress.step("ceiling");
                ceiling::run(self).await?;
                self.progress.step("push, drain, life");
                speed::run(self).await?;
            }
            if let Some(bare) = self.stores.bare.as_ref().filter(|_| self.plan.wants("cost")) {
                self.progress.step("cost");
                cost::run(self, bare).await?;
            }
            if self.plan.wants("lateness") {
                latency::ceiling(self).await?;
            }
            for door in &doors {
                if self.plan.wants("lateness") {
                    self.progress.step("lateness");
                    latency::lateness(self, door, door.name()).await?;
                }
                if self.plan.wants("burst") {
                    self.progress.step("burst");
                    latency::burst(self, door).await?;
                }
            }
            if self.plan.wants("scale") {
                self.progress.step("scale");
                scale::run(self).await?;
            }
        }
        if self.plan.wants("pending") {
            pending::run(self).await?;
        }
        Ok(())
    }

    /// What starting it costs.
    fn binary(&self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot look at this binary: {error}"));
        let path = std::env::current_exe().map_err(failed)?;
        let bytes = std::fs::metadata(path).map_err(failed)?.len();
        self.note(("binary", "dwell".to_owned()), "MB", pending::ratio(bytes, 1_000_000), None);
        let ready = self.sidecar.ready_after.as_secs_f64() * 1e3;
        self.note(("start to ready", "sidecar, empty".to_owned()), "ms", ready, None);
        Ok(())
    }

    fn note(&self, name: Name, unit: &'static str, value: f64, ceiling: Option<Name>) {
        self.book.borrow_mut().note(name, unit, value, ceiling);
    }

    /// Processor time of the sidecar so far.
    fn processor(&self) -> Result<Duration, Failure> {
        process::cpu(self.sidecar.pid)
    }

    /// Notes processor time of the sidecar, for each of so many messages.
    fn note_processor(&self, way: String, spent: Duration, messages: usize, ceiling: Option<Name>) {
        let micros = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
        self.note(("processor", way), "µs/message", pending::ratio(micros, messages), ceiling);
    }

    /// A new topic with the partitions of the plan.
    async fn topic(&self, door: &Target, name: &str) -> Result<TopicName, Failure> {
        self.topic_of(door, name, self.plan.partitions).await
    }

    /// A new topic: nothing that an earlier measure left behind is in it.
    async fn topic_of(&self, door: &Target, name: &str, partitions: NonZeroU16) -> Result<TopicName, Failure> {
        self.topics.set(self.topics.get() + 1);
        let topic = TopicName::new(format!("{name}-{}", self.topics.get()))?;
        door.declare(&topic, partitions).await?;
        Ok(topic)
    }

    /// A time of the store's clock on ours.
    fn local(&self, at: Timestamp) -> Timestamp {
        let ahead_ms = self.store_ahead_us / 1_000;
        Timestamp::from_ms(at.as_ms().saturating_add_signed(-ahead_ms))
    }

    /// What bare keys begin with.
    fn bare_prefix(&self) -> String {
        match self.stores.place("bare") {
            Place::Redis { prefix, .. } => prefix,
            Place::Embedded => String::new(),
        }
    }

    async fn store_name(&self) -> Result<String, Failure> {
        match &self.stores.bare {
            Some(bare) => Ok(bare.version().await?),
            None => Ok("the embedded store".to_owned()),
        }
    }

    /// Stops the brokers, then deletes what they wrote.
    async fn stop(self) -> Result<(), Failure> {
        let stopped = self.sidecar.stop().await;
        let closed = self.library.close().await;
        self.stores.clear().await?;
        stopped.and(closed.map_err(Failure::from))
    }
}
