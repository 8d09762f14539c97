//! What `redis.min_replicas` costs: `cargo run --release --example min_replicas -- redis://127.0.0.1:6379`.
//!
//! Pushes single messages and batches of 100 to a Redis that has a replica, in turns with and without waiting for it, on
//! the same machine in the same run. Prints messages a second, the middle of the rounds. It writes under a prefix of its
//! own, and deletes its topics.

use std::time::Duration;

use dwell::app::embed::Dwell;
use dwell::app::engine::{Confirmation, OutageOptions, RedisOptions, StoreOptions};
use dwell::broker::Options;
use dwell::model::error::{Error, Result};
use dwell::model::message::{NewMessage, TopicName};
use dwell::platform::clock::Clock;
use dwell::store::Pushed;

/// Rounds of each figure.
const ROUNDS: usize = 5;

/// Producers at once, and messages of one round.
const PRODUCERS: [usize; 2] = [1, 64];
const SINGLE: usize = 4_000;
const BATCHES: usize = 200;
const BATCH: usize = 100;

async fn open(url: &str, replicas: u32) -> Result<Dwell> {
    let name = format!("dwell-replicas-{}-{replicas}", std::process::id());
    let redis = RedisOptions {
        prefix: name.clone(),
        timeout: Duration::from_secs(5),
        confirmation: Confirmation { replicas, fsync: false },
        ..RedisOptions::new(url)
    };
    let outage = OutageOptions::new(std::env::temp_dir().join(name));
    Dwell::open(StoreOptions::Redis { redis, outage }, Options::default()).await
}

/// Messages a second with so many producers, each with `calls` calls of `batch` messages.
async fn rate(dwell: &Dwell, producers: usize, calls: usize, batch: usize) -> Result<f64> {
    let topic = TopicName::new("orders")?;
    let began = Clock::System.instant();
    let work = (0..producers).map(async |_| {
        for _ in 0..calls / producers {
            let messages = (0..batch).map(|_| NewMessage::new(vec![b'x'; 100]).after(Duration::from_secs(3_600)));
            for outcome in dwell.broker().push_batch(&topic, messages.collect()).await? {
                if outcome?.pushed != Pushed::Stored {
                    return Err(Error::unavailable("a push was not stored; is the replica connected?"));
                }
            }
        }
        Ok(())
    });
    futures_util::future::try_join_all(work).await?;
    let took = Clock::System.instant().since(began).as_secs_f64();
    dwell.broker().delete_topic(&topic).await?;
    Ok((calls / producers * producers * batch) as f64 / took)
}

fn middle(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or_else(|| Error::invalid("argument", "the URL of a Redis with a replica"))?;
    let (without, with) = (open(&url, 0).await?, open(&url, 1).await?);
    println!("| pushes, messages/s | without | `min_replicas = 1` | ratio |\n|---|---|---|---|");
    for (name, producers, calls, batch) in [
        ("single, 1 producer", PRODUCERS[0], SINGLE / 4, 1),
        ("single, 64 producers", PRODUCERS[1], SINGLE, 1),
        ("batches of 100, 1 producer", PRODUCERS[0], BATCHES, BATCH),
        ("batches of 100, 64 producers", PRODUCERS[1], BATCHES, BATCH),
    ] {
        let (mut alone, mut replicated) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            alone.push(rate(&without, producers, calls, batch).await?);
            replicated.push(rate(&with, producers, calls, batch).await?);
        }
        let (alone, replicated) = (middle(alone), middle(replicated));
        println!("| {name} | {alone:.0} | {replicated:.0} | {:.2} |", replicated / alone);
    }
    without.close().await?;
    with.close().await
}
