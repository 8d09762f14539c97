//! `dwell demo`: a shop's orders, end to end through HTTP, and a verdict on every promise.
//!
//! It starts a broker in this process and speaks to it only as any other client would.

mod orders;
pub(crate) mod report;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use clap::Args;
use dwell_client::wire::consume::Delivery;
use dwell_client::wire::topics::TopicDescription;
use dwell_client::{Ack, Backoff, DeadLetterFilter, Error, Nack, Nacked, NewMessage, Reserve, Settled, TopicSettings};
use futures_util::StreamExt as _;
use futures_util::future::{self, Either};
use futures_util::stream::FuturesUnordered;
use indicatif::{MultiProgress, ProgressBar};

use crate::api::http::Listen;
use crate::app::config::{Config, LogConfig, LogFormat, LogLevel, RedisUrl, Sources};
use crate::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use crate::app::server::{Server, ServerOptions};
use crate::broker::Options;
use crate::cli::PrintArgs;
use crate::cli::failure::{CallResult, Failure};
use crate::cli::output::{note, styled};
use crate::cli::process::{Signals, start_logging};
use crate::cli::remote::{At as _, Remote};
use crate::measure::scratch_dir::ScratchDir;
use crate::model::spelling::{counted, thousands};
use crate::platform::clock::{Clock, Instant};
use orders::{
    Action, CALLBACK_RETRIES, Kind, Ledger, Offset, Order, POISON_ATTEMPTS, POISON_BACKOFF, Planned, Work, paid,
};

const CONSUMERS: usize = 4;
const BATCH: usize = 500;

const ORDERS: &str = "orders";
const PULSE: &str = "pulse";
/// Every topic has it.
const GROUP: &str = "default";

/// How long after the last due time everything has to be settled; past it, what is missing counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

const EXAMPLES: &str = "\
Examples:
  dwell demo                                 on the embedded store, in a temporary directory
  dwell demo --redis redis://127.0.0.1:6379  in Redis, under another prefix, which is deleted

3,000 orders are closed if they are unpaid after a time-out (30 minutes, here 6 seconds), some get
an SMS before, some a callback that fails twice and then succeeds, and one message is poison. Then
one idle consumer waits for 1,000 messages spread over 10 seconds. The exit code is 0 only when
every promise held.";

/// Play a shop's orders through a broker and check every promise, in 20 seconds
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Use this Redis, not the embedded store
    #[arg(long, value_name = "URL", value_parser = RedisUrl::parse)]
    redis: Option<RedisUrl>,
    #[command(flatten)]
    print: PrintArgs,
}

pub(crate) async fn run(args: &DemoArgs) -> Result<(), Failure> {
    start_logging(LogConfig { level: LogLevel::Warn, format: LogFormat::Text });
    let mut signals = Signals::listen()?;
    let broker = start(args.redis.as_ref()).await?;
    note(format_args!("dwell {}: {}", env!("CARGO_PKG_VERSION"), broker.introduction()));
    let shown = {
        let demo = Demo::new(&broker)?;
        let played = demo.play(&args.print);
        tokio::pin!(played);
        let ended = signals.or(&mut played, "the demo was not finished").await;
        let cleaned = demo.clean().await;
        ended.and_then(|held| cleaned.map(|()| held))
    };
    broker.stop().await?;
    if shown? { Ok(()) } else { Err(Failure::printed()) }
}

/// One run, and what it has seen so far. Everything runs in one future, so a cell is enough.
struct Demo {
    remote: Remote,
    ledger: RefCell<Ledger>,
    offset: RefCell<Offset>,
    clock: Clock,
    in_redis: bool,
}

impl Demo {
    fn new(broker: &DemoBroker) -> Result<Demo, Failure> {
        Ok(Demo {
            remote: Remote::started(&broker.server.url())?,
            ledger: RefCell::default(),
            offset: RefCell::default(),
            clock: Clock::System,
            in_redis: broker.redis_prefix.is_some(),
        })
    }

    async fn play(&self, print: &PrintArgs) -> Result<bool, Failure> {
        let started = self.clock.instant();
        let orders = orders::orders();
        let live = Live::new(&orders::plan(&orders), &orders::pulses(), started);
        self.declare().await?;
        self.act(ORDERS, CONSUMERS, &orders, orders::plan(&orders), &live).await?;
        self.act(PULSE, 1, &orders, orders::pulses(), &live).await?;
        live.finish();
        let facts = self.facts(started).await?;
        let ledger = self.ledger.borrow();
        let report = report::Report::new(&ledger, &facts);
        print.value(&report, |report| report.text(&ledger, &facts, &orders))?;
        Ok(report.held)
    }

    async fn declare(&self) -> Result<(), Failure> {
        let Remote { client, place } = &self.remote;
        let settings = TopicSettings::default().backoff(Backoff::ladder(orders::POISON_BACKOFF));
        client.create_topic(ORDERS, settings).await.at(place)?;
        client.create_topic(PULSE, TopicSettings::default()).await.at(place)?;
        Ok(())
    }

    async fn act(
        &self,
        topic: &str,
        consumers: usize,
        orders: &[Order],
        planned: Vec<Planned>,
        live: &Live,
    ) -> Result<(), Failure> {
        let (ledger, clock) = (&self.ledger, &self.clock);
        let longest = planned.iter().map(|message| message.delay).max().unwrap_or_default();
        let until = clock.instant().plus(longest + PATIENCE);
        let consumer = Consumer { remote: &self.remote, topic, ledger, clock, orders };
        let consuming = future::try_join_all((0..consumers).map(|_| consumer.run(until)));
        let pushing = async {
            self.push(topic, &planned).await?;
            self.settled(until, live).await;
            Ok::<_, Failure>(())
        };
        tokio::pin!(consuming, pushing);
        // The consumers return only when something failed, or at the end of patience.
        match future::select(consuming, pushing).await {
            Either::Left((consumed, pushing)) => {
                consumed?;
                pushing.await
            }
            Either::Right((pushed, _)) => pushed,
        }
    }

    async fn push(&self, topic: &str, planned: &[Planned]) -> Result<(), Failure> {
        self.ledger.borrow_mut().expect(planned);
        for batch in planned.chunks(BATCH) {
            let sent_at = self.clock.now();
            let results = match self.remote.client.push_many(topic, batch.iter().map(NewMessage::from)).await {
                Err(Error::NotAccepted(not_accepted)) => not_accepted.results,
                pushed => pushed.at(&self.remote.place)?,
            };
            let answered_at = self.clock.now();
            for (message, pushed) in batch.iter().zip(&results) {
                if let Some(due_at) = pushed.due_at.filter(|_| pushed.is_accepted()) {
                    self.offset.borrow_mut().observe(due_at, message.delay, sent_at, answered_at);
                }
            }
            self.ledger.borrow_mut().pushed(&results);
        }
        Ok(())
    }

    async fn settled(&self, until: Instant, live: &Live) {
        loop {
            live.show(&self.ledger.borrow(), self.clock.instant());
            if self.ledger.borrow().open() == 0 || self.clock.instant() >= until {
                return;
            }
            self.clock.sleep(EVERY).await;
        }
    }

    async fn facts(&self, started: Instant) -> Result<report::Facts, Failure> {
        let left = |topic: TopicDescription| topic.totals.iter().map(|total| total.counts.live()).sum::<u64>();
        let mut left_over = 0;
        let (Remote { client, place }, mut dead) = (&self.remote, Vec::new());
        for topic in [ORDERS, PULSE] {
            left_over += left(client.topic(topic).await.at(place)?);
            dead.extend(client.dead_letters(topic, GROUP, DeadLetterFilter::default()).all().await.at(place)?);
        }
        let took = self.clock.instant().since(started);
        let ahead = if self.in_redis { self.offset.borrow().ahead() } else { Duration::ZERO };
        Ok(report::Facts { left_over, dead, took, store_ahead: ahead })
    }

    async fn clean(&self) -> Result<(), Failure> {
        if self.in_redis {
            let Remote { client, place } = &self.remote;
            client.delete_topic(ORDERS).await.at(place)?;
            client.delete_topic(PULSE).await.at(place)?;
        }
        Ok(())
    }
}

const REDIS_TIMEOUT: Duration = Duration::from_secs(1);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

struct DemoBroker {
    server: Server,
    redis_prefix: Option<String>,
    _dir: ScratchDir,
}

async fn start(redis: Option<&RedisUrl>) -> Result<DemoBroker, Failure> {
    let (dir, name) = ScratchDir::new("demo")?;
    let (store, redis_prefix) = match redis {
        Some(url) => {
            let redis = RedisOptions {
                prefix: name.clone(),
                timeout: REDIS_TIMEOUT,
                allow_eviction: true,
                ..RedisOptions::new(url.secret().clone())
            };
            (StoreOptions::Redis { redis, outage: OutageOptions::new(dir.path()) }, Some(name))
        }
        None => (StoreOptions::Embedded { dir: dir.path().join("store") }, None),
    };
    // The defaults, and nothing from the environment: every demo is the same.
    let env = vec![("HOME".into(), std::env::temp_dir().into_os_string())];
    let config = Config::load(&Sources { env, ..Sources::default() })?;
    let how = Options { drain_timeout: DRAIN_TIMEOUT, ..config.broker_options() };
    let options = ServerOptions::new(Listen::ephemeral(), store, how);
    Ok(DemoBroker { server: Server::start(options).await?, redis_prefix, _dir: dir })
}

impl DemoBroker {
    fn introduction(&self) -> String {
        let store = self.server.describe();
        let under = self.redis_prefix.as_ref().map_or(String::new(), |prefix| format!(", keys under {prefix}"));
        let (kind, location, durability) = (store.kind, store.location, store.durability);
        format!("a broker at {} on the {kind} store ({location}{under})\n{durability}\n", self.server.url())
    }

    async fn stop(self) -> Result<(), Failure> {
        Ok(self.server.stop().await?)
    }
}

const EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(2);

const ROWS: [(Kind, &str); 5] = [
    (Kind::Close, "close the order if unpaid"),
    (Kind::Sms, "send an SMS"),
    (Kind::Callback, "call back, third attempt"),
    (Kind::Poison, "poison to dead letters"),
    (Kind::Pulse, "one idle consumer"),
];

struct Live {
    bars: Vec<(Kind, ProgressBar)>,
    /// Kept, since the bars draw through it.
    table: MultiProgress,
    started: Instant,
    next_line: Cell<Instant>,
}

impl Live {
    fn new(orders: &[Planned], pulses: &[Planned], started: Instant) -> Live {
        let table = MultiProgress::new();
        let bar = |(kind, name): (Kind, &'static str)| {
            let all = orders.iter().chain(pulses).filter(|message| message.kind == kind).count();
            let bar = table.add(ProgressBar::new(all as u64)).with_prefix(name);
            (kind, styled(bar, "  {prefix:<26} {bar:30} {pos:>5} of {len:>5}  {msg}"))
        };
        Live { bars: ROWS.into_iter().map(bar).collect(), table, started, next_line: Cell::new(started) }
    }

    fn show(&self, ledger: &Ledger, now: Instant) {
        let counts = ledger.counts();
        for (kind, bar) in &self.bars {
            let (over, deliveries) = counts.get(kind).copied().unwrap_or_default();
            bar.set_position(over);
            if matches!(kind, Kind::Callback | Kind::Poison) {
                bar.set_message(format!("delivered {}", counted(deliveries, "time")));
            }
        }
        if self.table.is_hidden() && now >= self.next_line.get() {
            self.next_line.set(now.plus(LINE_EVERY));
            let (over, deliveries) = counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
            let all: u64 = self.bars.iter().filter_map(|(_, bar)| bar.length()).sum();
            let at = now.since(self.started).as_secs_f64();
            let [over, all, deliveries] = [over, all, deliveries].map(thousands);
            note(format_args!("  {at:>4.1} s  {over} of {all} messages settled, delivered {deliveries} times"));
        }
    }

    fn finish(&self) {
        for (_, bar) in &self.bars {
            bar.abandon();
        }
    }
}

const RESERVE_MAX: usize = 100;

const RESERVE_WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
struct Consumer<'a> {
    remote: &'a Remote,
    topic: &'a str,
    ledger: &'a RefCell<Ledger>,
    clock: &'a Clock,
    orders: &'a [Order],
}

#[derive(Default)]
struct Decisions {
    acks: Vec<(String, String)>,
    nacks: Vec<(String, Nacked)>,
}

impl Consumer<'_> {
    /// Consumes until `until`. Everything that fails here ends the demo.
    async fn run(self, until: Instant) -> Result<(), Failure> {
        let paid = paid(self.orders);
        let Remote { client, place } = self.remote;
        let request = Reserve::up_to(RESERVE_MAX).wait(RESERVE_WAIT);
        let mut settling = FuturesUnordered::new();
        while self.clock.instant() < until {
            let reserving = client.reserve(self.topic, GROUP, request.clone());
            tokio::pin!(reserving);
            let deliveries = loop {
                tokio::select! {
                    reserved = &mut reserving => break reserved.at(place)?.deliveries,
                    Some(settled) = settling.next(), if !settling.is_empty() => settled?,
                }
            };
            let at = self.clock.now();
            let mut decisions = Decisions::default();
            for delivery in &deliveries {
                self.ledger.borrow_mut().delivered(delivery, at);
                self.decide(delivery, &mut decisions, |order| paid.get(order).copied().unwrap_or(false));
            }
            settling.push(self.settle(decisions));
        }
        while let Some(settled) = settling.next().await {
            settled?;
        }
        Ok(())
    }

    fn decide(&self, delivery: &Delivery, decisions: &mut Decisions, is_paid: impl Fn(&str) -> bool) {
        let text = delivery.contents.payload.as_deref().unwrap_or_default();
        let failed = |delay: Option<Duration>, again, reason: String| {
            self.ledger.borrow_mut().nacking(&delivery.id, self.clock.now(), again);
            let nacked = Nacked::from(&*delivery.receipt).reason(reason);
            (delivery.id.clone(), delay.into_iter().fold(nacked, Nacked::delay))
        };
        let before = usize::try_from(delivery.attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        match serde_json::from_str::<Work>(text) {
            Err(why) => {
                // The consumer leaves it to the topic's backoff, and the broker to give up.
                let again = POISON_BACKOFF.get(before).copied().filter(|_| delivery.attempt < POISON_ATTEMPTS);
                decisions.nacks.push(failed(None, again, format!("unreadable payload: {why}")));
                return;
            }
            Ok(work) if work.action == Action::Callback => {
                if let Some(delay) = CALLBACK_RETRIES.get(before).copied() {
                    let reason = format!("503 Service Unavailable from the shop, order {}", work.order);
                    decisions.nacks.push(failed(Some(delay), Some(delay), reason));
                    return;
                }
            }
            Ok(work) if work.action == Action::CloseIfUnpaid => {
                let mut ledger = self.ledger.borrow_mut();
                if is_paid(&work.order) { ledger.paid += 1 } else { ledger.closed += 1 }
            }
            Ok(_) => {}
        }
        decisions.acks.push((delivery.id.clone(), delivery.receipt.clone()));
    }

    async fn settle(self, decisions: Decisions) -> Result<(), Failure> {
        let Remote { client, place } = self.remote;
        if !decisions.acks.is_empty() {
            let (ids, receipts): (Vec<_>, Vec<_>) = decisions.acks.into_iter().unzip();
            self.note(&ids, "acked", client.ack(self.topic, GROUP, Ack::of(receipts)).await.at(place))?;
        }
        if !decisions.nacks.is_empty() {
            let (ids, nacks): (Vec<_>, Vec<Nacked>) = decisions.nacks.into_iter().unzip();
            self.note(&ids, "nacked", client.nack(self.topic, GROUP, Nack::of(nacks)).await.at(place))?;
        }
        Ok(())
    }

    fn note(&self, ids: &[String], wanted: &str, verdicts: CallResult<Vec<Settled>>) -> Result<(), Failure> {
        let verdicts = verdicts?;
        let mut ledger = self.ledger.borrow_mut();
        for (id, verdict) in ids.iter().zip(&verdicts) {
            ledger.settled(id, wanted, &verdict.status);
        }
        Ok(())
    }
}
