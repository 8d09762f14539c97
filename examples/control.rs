//! How long it takes to look at, list, reschedule and cancel messages among a million that are scheduled, one call after
//! the other:
//!
//! ```sh
//! redis-server --save '' --port 6390 &
//! REDIS_URL=redis://127.0.0.1:6390 cargo run --release --example control
//! ```
//!
//! `MESSAGES` makes it another number. At the end Redis says how many of its commands took longer than 10 ms: none should.
//! What was pushed is deleted again.

use std::time::{Duration, Instant};

use dwell::app::embed::Dwell;
use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use dwell::broker::{Broker, ListedState, Options};
use dwell::model::error::{Error, Result};
use dwell::model::message::{Due, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::store::{Expected, Fate, Rescheduled, Window};

/// Calls of each kind.
const CALLS: usize = 5_000;

/// Messages are due within so long.
const SPREAD: Duration = Duration::from_secs(30 * 86_400);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").map_err(|_| Error::invalid("REDIS_URL", "is not set"))?;
    let messages = std::env::var("MESSAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let name = format!("dwell-control-{}", std::process::id());
    let dir = std::env::temp_dir().join(&name);
    let redis = RedisOptions { prefix: name, ..RedisOptions::new(&url) };
    let store = StoreOptions::Redis { redis, outage: OutageOptions::new(&dir) };
    let dwell = Dwell::open(store, Options::default()).await?;
    let (broker, topic) = (dwell.broker(), TopicName::new("orders")?);

    let began = Instant::now();
    for from in (0..messages).step_by(1_000) {
        let page = (from..messages.min(from + 1_000)).map(message).collect::<Result<Vec<_>>>()?;
        broker.push_batch(&topic, page).await?.into_iter().collect::<Result<Vec<_>>>()?;
    }
    println!("{messages} messages scheduled in {:.1} s", began.elapsed().as_secs_f64());
    let watch = Watch::begin(&url).await?;
    println!("| call | p50, ms | p99, ms | longest, ms |");
    println!("|---|---|---|---|");
    let started = broker.clock().now();
    measure("look at one message", async || look(broker, &topic, messages).await).await?;
    measure("list 100 by due time", async || list(broker, &topic, started).await).await?;
    measure("reschedule", async || reschedule(broker, &topic, messages).await).await?;
    // Each id once, so that each is there.
    let mut next = 0;
    measure("cancel", async || {
        next += 1;
        cancel(broker, &topic, next * (messages / (CALLS + 1))).await
    })
    .await?;
    println!("Redis took longer than 10 ms for {} commands", watch.slow().await?);

    broker.delete_topic(&topic).await?;
    dwell.close().await?;
    // It leaves nothing behind.
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

fn id(number: usize) -> Result<MessageId> {
    MessageId::new(format!("close-{number}"))
}

fn message(number: usize) -> Result<NewMessage> {
    let delay = Duration::from_millis(fastrand::u64(3_600_000..SPREAD.as_millis() as u64));
    Ok(NewMessage::new(format!("close order {number}, which nobody has paid, and say so to the customer"))
        .id(id(number)?)
        .after(delay))
}

async fn look(broker: &Broker, topic: &TopicName, messages: usize) -> Result<()> {
    let id = id(fastrand::usize(..messages))?;
    broker.peek(topic, &GroupName::standard(), &id, None).await.map(drop)
}

async fn list(broker: &Broker, topic: &TopicName, started: Timestamp) -> Result<()> {
    let from = started.plus(Duration::from_millis(fastrand::u64(..SPREAD.as_millis() as u64 / 2)));
    let window = Window { from, ..Window::ALL };
    let page = broker.list(topic, &GroupName::standard(), ListedState::Scheduled, window, None, 100).await?;
    if page.messages.len() < 100 { Err(Error::bug("a page is not full")) } else { Ok(()) }
}

async fn reschedule(broker: &Broker, topic: &TopicName, messages: usize) -> Result<()> {
    let (id, due) = (id(fastrand::usize(..messages))?, Due::In(SPREAD));
    match broker.reschedule(topic, &id, None, due, Expected::default()).await?.rescheduled {
        Rescheduled::Done(fates) if fates.has(Fate::Done) => Ok(()),
        other => Err(Error::bug(format!("{id} was not rescheduled: {other:?}"))),
    }
}

async fn cancel(broker: &Broker, topic: &TopicName, number: usize) -> Result<()> {
    let cancelled = broker.cancel(topic, &id(number)?, None).await?.1;
    if cancelled.fates.has(Fate::Done) { Ok(()) } else { Err(Error::bug(format!("not cancelled: {cancelled:?}"))) }
}

async fn measure(what: &str, mut call: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    let mut took = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let began = Instant::now();
        call().await?;
        took.push(began.elapsed().as_secs_f64() * 1_000.0);
    }
    took.sort_by(f64::total_cmp);
    println!("| {what} | {:.2} | {:.2} | {:.2} |", took[CALLS / 2], took[CALLS * 99 / 100], took[CALLS - 1]);
    Ok(())
}

/// Redis' own log of slow commands.
struct Watch(redis::aio::MultiplexedConnection);

impl Watch {
    async fn begin(url: &str) -> Result<Watch> {
        let client = redis::Client::open(url).map_err(refused)?;
        let mut redis = client.get_multiplexed_async_connection().await.map_err(refused)?;
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("slowlog-log-slower-than").arg(10_000);
        set.exec_async(&mut redis).await.map_err(refused)?;
        redis::cmd("SLOWLOG").arg("RESET").exec_async(&mut redis).await.map_err(refused)?;
        Ok(Watch(redis))
    }

    async fn slow(mut self) -> Result<u64> {
        redis::cmd("SLOWLOG").arg("LEN").query_async(&mut self.0).await.map_err(refused)
    }
}

fn refused(error: redis::RedisError) -> Error {
    Error::unavailable(error.to_string())
}
