//! `dwell bench`: how fast dwell is on this machine and this store, beside what the machine does without it.
//!
//! Every round measures everything once, the ceilings too, so that a machine that is busy for a while is busy for both.

mod results;
mod target;
mod store;
mod latency;
mod scale;
mod speed;
mod fair;

use std::cell::{Cell, RefCell};
use std::num::NonZeroU16;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;

use crate::app::config::{LogConfig, LogFormat, LogLevel, RedisUrl};
use crate::app::embed::Dwell;
use crate::cli::failure::Failure;
use crate::cli::output::{note, styled};
use crate::cli::process::{Signals, start_logging};
use crate::cli::{PrintArgs, parse};
use crate::model::limits::PARTITIONS_MAX;
use crate::model::message::TopicName;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;
use latency::{RATE, levels};
use results::{Name, Results};
use store::{BenchStore, Sidecar, Stores};
use target::Target;

const BATCH: usize = 100;
const LANES: usize = 8;

pub(crate) async fn run(args: &BenchArgs) -> Result<(), Failure> {
    start_logging(LogConfig { level: LogLevel::Warn, format: LogFormat::Text });
    let mut signals = Signals::listen()?;
    let plan = Plan::new(args)?;
    let stores = Stores::open(args.redis.as_ref(), args.prefix.as_ref().map(TopicName::as_str)).await?;
    let bench = Bench::start(plan, stores).await?;
    let ended = signals.or(bench.measure(), "the bench was not finished").await;
    bench.progress.finish();
    let published = match &ended {
        Ok(()) => results::publish(&bench, &bench.store_name().await?, &args.print),
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
    results: RefCell<Results>,
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
            results: RefCell::default(),
            progress,
            topics: Cell::new(0),
            store_ahead_us,
        })
    }

    async fn measure(&self) -> Result<(), Failure> {
        let targets =
            [Target::Library(Box::new(self.library.broker().clone())), Target::Http(self.sidecar.remote.clone())];
        self.binary()?;
        for round in 1..=self.plan.rounds {
            self.progress.round(round, self.plan.rounds);
            if ["push", "drain", "life"].iter().any(|name| self.plan.wants(name)) {
                self.progress.step("ceiling");
                speed::ceilings(self).await?;
                self.progress.step("push, drain, life");
                speed::throughput(self).await?;
            }
            if let Some(bare) = self.stores.bare.as_ref().filter(|_| self.plan.wants("cost")) {
                self.progress.step("cost");
                speed::cost(self, bare).await?;
            }
            if self.plan.wants("lateness") {
                latency::ceiling(self).await?;
            }
            for target in &targets {
                if self.plan.wants("lateness") {
                    self.progress.step("lateness");
                    latency::lateness(self, target, target.name()).await?;
                }
                if self.plan.wants("burst") {
                    self.progress.step("burst");
                    latency::burst(self, target).await?;
                }
            }
            if self.plan.wants("scale") {
                scale::scale(self).await?;
            }
            if self.plan.wants("fleet") {
                self.progress.step("fleet");
                scale::fleet(self).await?;
            }
            if self.plan.wants("fair") {
                fair::fair(self).await?;
            }
            if self.plan.wants("keys") {
                fair::keys(self).await?;
            }
            if self.plan.wants("weights") {
                fair::weights(self).await?;
            }
        }
        if self.plan.wants("pending") {
            latency::pending(self).await?;
        }
        Ok(())
    }

    fn binary(&self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot look at this binary: {error}"));
        let path = std::env::current_exe().map_err(failed)?;
        let bytes = std::fs::metadata(path).map_err(failed)?.len();
        self.note(("binary", "dwell".to_owned()), "MB", latency::ratio(bytes, 1_000_000), None);
        let ready = self.sidecar.ready_after.as_secs_f64() * 1e3;
        self.note(("start to ready", "sidecar, empty".to_owned()), "ms", ready, None);
        Ok(())
    }

    fn note(&self, name: Name, unit: &'static str, value: f64, ceiling: Option<Name>) {
        self.results.borrow_mut().note(name, unit, value, ceiling);
    }

    fn processor(&self) -> Result<Duration, Failure> {
        store::cpu(self.sidecar.pid)
    }

    fn note_processor(&self, way: String, spent: Duration, messages: usize, ceiling: Option<Name>) {
        let micros = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
        self.note(("processor", way), "µs/message", latency::ratio(micros, messages), ceiling);
    }

    async fn topic(&self, target: &Target, name: &str) -> Result<TopicName, Failure> {
        self.topic_of(target, name, self.plan.partitions).await
    }

    /// A new topic: nothing that an earlier measure left behind is in it.
    async fn topic_of(&self, target: &Target, name: &str, partitions: NonZeroU16) -> Result<TopicName, Failure> {
        self.topics.set(self.topics.get() + 1);
        let topic = TopicName::new(format!("{name}-{}", self.topics.get()))?;
        target.declare(&topic, partitions).await?;
        Ok(topic)
    }

    fn local(&self, at: Timestamp) -> Timestamp {
        let ahead_ms = self.store_ahead_us / 1_000;
        Timestamp::from_ms(at.as_ms().saturating_add_signed(-ahead_ms))
    }

    fn bare_prefix(&self) -> String {
        match self.stores.place("bare") {
            BenchStore::Redis { prefix, .. } => prefix,
            BenchStore::Embedded => String::new(),
        }
    }

    async fn store_name(&self) -> Result<String, Failure> {
        match &self.stores.bare {
            Some(bare) => Ok(bare.version().await?),
            None => Ok("the embedded store".to_owned()),
        }
    }

    async fn stop(self) -> Result<(), Failure> {
        let stopped = self.sidecar.stop().await;
        let closed = self.library.close().await;
        self.stores.clear().await?;
        stopped.and(closed.map_err(Failure::from))
    }
}

const EXAMPLES: &str = "\
Examples:
  dwell bench                                  the embedded store, in a temporary directory
  dwell bench --redis redis://127.0.0.1:6379   Redis, under another prefix, which is deleted
  dwell bench --quick --only life --only push  one run of some measures
  dwell bench --only scale --redis redis://127.0.0.1:6379
  dwell bench --json > result.json

Measures:
  push, drain, life   messages a second stored, reserved and acked, both; library and HTTP
  cost                Redis' processor time for the life of a message, beside bare commands
  lateness            2,000 messages a second: from the due time to the receipt
  burst               50,000 messages due at the same instant: to the last ack
  pending             memory, idle cost and start with many messages that are not due
  scale               messages a second with more partitions, groups, consumers, members, topics and
                      larger payloads; only when it is named
  fleet               two brokers share --pending messages that are due at the same instant: to the
                      first delivery and to the last ack, memory; with --redis, only when named
  fair                --pending messages of one key beside 1,000 keys with one each: when these are
                      delivered, in a group that is fair and in one that is not; only when named
  keys                --pending messages of 1, 100, 10,000 and 1,000,000 keys, due at the same
                      instant, in the two kinds of groups: messages a second, and the time and
                      memory of Redis; only when named
  weights             --pending messages of ten keys of weight 1 to 10: by how many percent a share
                      is off while each key has messages; only when named

A ratio compares with bare commands to the same Redis without scripts, a file that is fsynced, or
GET /livez of the same broker, measured in the same round. Run it on a machine, and a Redis, that
does nothing else.";

const MEASURES: [&str; 7] = ["push", "drain", "life", "cost", "lateness", "burst", "pending"];

/// Measure how fast dwell is on this machine, and how fast the machine is without it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Use this Redis, not the embedded store
    #[arg(long, value_name = "URL", value_parser = RedisUrl::parse)]
    redis: Option<RedisUrl>,
    /// Prefix of all Redis keys; no such key may exist
    #[arg(long, value_name = "NAME", value_parser = parse::topic, requires = "redis")]
    prefix: Option<TopicName>,
    /// One run instead of five
    #[arg(long)]
    quick: bool,
    /// Messages of a throughput run, 100 to 1,000,000
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    messages: u32,
    /// Messages of `pending`, `fleet`, `fair`, `keys` and `weights`, 1,000 to 10,000,000; 50 times `--messages` if it is not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    pending: Option<u32>,
    /// Bytes of a payload, 1 to 65,536
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bytes: u32,
    /// Partitions of the topics
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=i64::from(PARTITIONS_MAX)))]
    partitions: u16,
    /// Only this measure; may be repeated
    #[arg(long, value_name = "MEASURE")]
    #[arg(value_parser = ["push", "drain", "life", "cost", "lateness", "burst", "pending", "scale", "fleet", "fair", "keys", "weights"])]
    only: Vec<String>,
    #[command(flatten)]
    print: PrintArgs,
}

#[derive(Debug)]
struct Plan {
    rounds: usize,
    messages: usize,
    pending: usize,
    lateness_messages: usize,
    burst_messages: usize,
    bytes: usize,
    partitions: NonZeroU16,
    idle: Duration,
    /// Until the partitions of a new topic are leased.
    joining: Duration,
    only: Vec<String>,
    in_redis: bool,
}

impl Plan {
    fn new(args: &BenchArgs) -> Result<Plan, Failure> {
        let count = |number: u32| usize::try_from(number).map_err(|_| Failure::usage("a number is too large"));
        let messages = count(args.messages)?;
        let partitions = NonZeroU16::new(args.partitions).ok_or_else(|| Failure::usage("no partitions"))?;
        if args.redis.is_none() && args.only.iter().any(|only| only == "fleet") {
            return Err(Failure::usage("--only fleet: brokers share a Redis, so it needs --redis"));
        }
        // With fewer messages everything is shorter; the usual number gives what the measures are named after.
        Ok(Plan {
            rounds: if args.quick { 1 } else { 5 },
            messages,
            pending: args.pending.map_or(Ok((messages * 50).max(1_000)), count)?,
            lateness_messages: messages.min(RATE * 5),
            burst_messages: (messages * 5 / 2).min(50_000),
            bytes: count(args.bytes)?,
            partitions,
            idle: if messages < 10_000 { Duration::from_secs(1) } else { Duration::from_secs(20) },
            joining: if messages < 10_000 { Duration::from_millis(300) } else { Duration::from_millis(1_500) },
            only: args.only.clone(),
            in_redis: args.redis.is_some(),
        })
    }

    fn wants(&self, measure: &str) -> bool {
        if self.only.is_empty() { MEASURES.contains(&measure) } else { self.only.iter().any(|only| only == measure) }
    }

    /// Messages of a load of single ones: a lone connection waits for each, so it gets a tenth.
    fn single_messages(&self, connections: usize) -> usize {
        if connections == 1 { (self.messages / 10).max(1) } else { self.messages }
    }

    fn steps(&self) -> usize {
        let of = |measure: &str, steps: usize| if self.wants(measure) { steps } else { 0 };
        let speed = if ["push", "drain", "life"].iter().any(|name| self.wants(name)) { 2 } else { 0 };
        let cost = if self.in_redis { of("cost", 1) } else { 0 };
        let round = speed
            + cost
            + of("lateness", 2)
            + of("burst", 2)
            + of("scale", scale::AXES)
            + of("fleet", 1)
            + of("fair", 2)
            + of("keys", fair::spreads(self.pending).count())
            + of("weights", 1);
        round * self.rounds + of("pending", levels(self.pending))
    }
}

struct Progress(ProgressBar);

impl Progress {
    fn new(steps: usize) -> Progress {
        let bar = ProgressBar::new(u64::try_from(steps).unwrap_or(u64::MAX));
        Progress(styled(bar, "  {elapsed_precise} {bar:30} {pos:>4} of {len}  {msg}"))
    }

    fn step(&self, what: &str) {
        self.0.inc(1);
        self.0.set_message(what.to_owned());
    }

    fn round(&self, round: usize, rounds: usize) {
        if self.0.is_hidden() {
            note(format_args!("  round {round} of {rounds}"));
        }
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}
