//! `dwell demo`: a shop's orders, end to end through HTTP, and a verdict on every promise.
//!
//! It starts a broker in this process and speaks to it only as any other client would.

mod broker;
mod consumer;
mod ledger;
mod live;
mod offset;
mod orders;
mod promises;
mod report;

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use futures_util::future::{self, Either};

use super::address::ServerAddress;
use super::api::{DeadFilter, Declaration, Topic};
use super::client::{Client, GroupOf};
use super::failure::Failure;
use super::signals::Signals;
use super::{logging, output};
use crate::app::config::{LogConfig, LogFormat, LogLevel, RedisUrl};
use crate::model::message::{GroupName, TopicName};
use crate::model::retry::{Backoff, Step};
use crate::platform::clock::{Clock, Instant};
use consumer::Consumer;
use ledger::Ledger;
use live::Live;
use offset::Offset;
use orders::{Order, Planned};

/// Consumers that share the orders.
const CONSUMERS: usize = 4;

/// Messages of one request to the broker.
const BATCH: usize = 500;

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
pub(super) struct DemoArgs {
    /// Use this Redis, not the embedded store
    #[arg(long, value_name = "URL", value_parser = RedisUrl::parse)]
    redis: Option<RedisUrl>,
}

pub(super) async fn run(args: &DemoArgs) -> Result<(), Failure> {
    logging::start(LogConfig { level: LogLevel::Warn, format: LogFormat::Text });
    let mut signals = Signals::listen()?;
    let broker = broker::start(args.redis.as_ref()).await?;
    output::line(format_args!("dwell {}: {}", env!("CARGO_PKG_VERSION"), broker.introduction()))?;
    let shown = {
        let demo = Demo::new(&broker)?;
        let played = demo.play();
        tokio::pin!(played);
        let ended = {
            let signal = signals.next();
            tokio::pin!(signal);
            match future::select(&mut played, signal).await {
                Either::Left((result, _)) => result,
                Either::Right((signal, _)) => Err(Failure::interrupted(format!("{signal}: the demo was not finished"))),
            }
        };
        let cleaned = demo.clean().await;
        ended.and_then(|held| cleaned.map(|()| held))
    };
    broker.stop().await?;
    match shown? {
        true => Ok(()),
        false => Err(Failure::said()),
    }
}

/// One run, and what it has seen so far. Everything runs in one future, so a cell is enough.
struct Demo {
    client: Client,
    orders: GroupOf,
    pulse: GroupOf,
    ledger: RefCell<Ledger>,
    offset: RefCell<Offset>,
    clock: Clock,
    in_redis: bool,
}

impl Demo {
    fn new(broker: &broker::DemoBroker) -> Result<Demo, Failure> {
        let address = ServerAddress::parse(&broker.url()).map_err(Failure::new)?;
        let of =
            |topic: &str| Ok::<_, Failure>(GroupOf { topic: TopicName::new(topic)?, group: GroupName::standard() });
        Ok(Demo {
            client: Client::new(&address)?,
            orders: of("orders")?,
            pulse: of("pulse")?,
            ledger: RefCell::default(),
            offset: RefCell::default(),
            clock: Clock::System,
            in_redis: broker.is_redis(),
        })
    }

    /// Plays both acts and prints the report; says whether every promise held.
    async fn play(&self) -> Result<bool, Failure> {
        let started = self.clock.instant();
        let orders = orders::orders();
        let live = Live::new(&orders::plan(&orders), &orders::pulses(), started);
        self.declare().await?;
        self.act(&self.orders, CONSUMERS, &orders, orders::plan(&orders), &live).await?;
        self.act(&self.pulse, 1, &orders, orders::pulses(), &live).await?;
        live.finish();
        let facts = self.facts(started).await?;
        let promises = promises::judge(&self.ledger.borrow(), &facts);
        report::print(&self.ledger.borrow(), &facts, &promises, &orders)?;
        Ok(promises.iter().all(|promise| promise.held))
    }

    async fn declare(&self) -> Result<(), Failure> {
        let steps = orders::POISON_BACKOFF.map(Step).to_vec();
        let settings = Declaration { backoff: Some(Backoff::Ladder { steps }), ..Declaration::default() };
        self.client.declare(&self.orders.topic, &settings).await?;
        self.client.declare(&self.pulse.topic, &Declaration::default()).await?;
        Ok(())
    }

    /// Consumers wait, messages are pushed, and all of them are settled, or patience ends.
    async fn act(
        &self,
        of: &GroupOf,
        consumers: usize,
        orders: &[Order],
        planned: Vec<Planned>,
        live: &Live,
    ) -> Result<(), Failure> {
        let (ledger, clock) = (&self.ledger, &self.clock);
        let longest = planned.iter().map(|message| message.delay).max().unwrap_or_default();
        let until = clock.instant().plus(longest + PATIENCE);
        let consumer = Consumer { client: &self.client, of, ledger, clock, orders };
        let consuming = future::try_join_all((0..consumers).map(|_| consumer.run(until)));
        let pushing = async {
            self.push(of, &planned).await?;
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

    async fn push(&self, of: &GroupOf, planned: &[Planned]) -> Result<(), Failure> {
        self.ledger.borrow_mut().expect(planned);
        for batch in planned.chunks(BATCH) {
            let sent_at = self.clock.now();
            let results = self.client.push_batch(&of.topic, batch).await?;
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

    /// Returns when nothing is open any more, or patience ends; shows meanwhile how far it is.
    async fn settled(&self, until: Instant, live: &Live) {
        loop {
            live.show(&self.ledger.borrow(), self.clock.instant());
            if self.ledger.borrow().open() == 0 || self.clock.instant() >= until {
                return;
            }
            self.clock.sleep(live::EVERY).await;
        }
    }

    /// What the broker says at the end.
    async fn facts(&self, started: Instant) -> Result<promises::Facts, Failure> {
        let left = |topic: Topic| topic.totals.iter().map(|of| of.scheduled + of.ready + of.in_flight).sum::<u64>();
        let mut left_over = 0;
        for of in [&self.orders, &self.pulse] {
            left_over += left(self.client.topic(&of.topic).await?);
        }
        let mut dead = self.client.dead(&self.orders, &DeadFilter::default(), BATCH, None).await?.dead_letters;
        dead.extend(self.client.dead(&self.pulse, &DeadFilter::default(), BATCH, None).await?.dead_letters);
        let took = self.clock.instant().since(started);
        let ahead = if self.in_redis { self.offset.borrow().ahead() } else { Duration::ZERO };
        Ok(promises::Facts { left_over, dead, took, store_ahead: ahead })
    }

    /// Deletes what was made in a Redis that belongs to somebody.
    async fn clean(&self) -> Result<(), Failure> {
        if self.in_redis {
            self.client.delete_topic(&self.orders.topic).await?;
            self.client.delete_topic(&self.pulse.topic).await?;
        }
        Ok(())
    }
}
