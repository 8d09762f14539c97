//! Power cuts while a broker is at work, at any call to its disk.

use dwell::model::error::Result;
use fastrand::Rng;

use super::recorded::Recorded;
use super::work::{Answers, Place, Work, holds};
use crate::support::{RedisServer, from_environment};

/// How often the power is cut, unless `DWELL_ROUNDS` says otherwise.
const CUTS: usize = 20;
/// Calls of each producer.
const CALLS: usize = 25;

/// Segments of a log are as small as they can be, so that the story has several.
const SETTINGS: [(&str, &str); 3] =
    [("WAL_LIMIT_BYTES", "16777216"), ("TOPIC_PARTITIONS", "2"), ("REDIS_TIMEOUT", "1s")];

/// Pushes, and holds the disk of many a moment to what was answered by then.
async fn told(place: Place, settings: &[(&str, &str)]) -> Result<()> {
    let seed = from_environment("DWELL_SEED")?.unwrap_or_else(|| fastrand::u64(..));
    println!("DWELL_SEED={seed}");
    let cuts = from_environment("DWELL_ROUNDS")?.unwrap_or(CUTS);
    let (mut rng, recorded, answers) = (Rng::with_seed(seed), Recorded::new()?, Answers::default());
    let settings: Vec<_> = SETTINGS.iter().chain(settings).copied().collect();
    let process = recorded.serve(&settings).await?;
    let work = Work { answers: &answers, recorded: &recorded, client: &process.client, place };
    work.pushes(CALLS, "m").await?;
    let promised = answers.with(place.promise(), recorded.moment()?);
    assert!(promised.len() > CALLS, "too little happened to prove anything: {:?}", answers.tally());
    holds(&recorded.trace()?, &answers, place, cuts, &mut rng).await
}

#[tokio::test]
async fn buffered_messages_survive_a_power_cut() -> Result<()> {
    told(Place::Wal, &[("REDIS_URL", "redis+unix:///nowhere/redis.sock")]).await
}

#[tokio::test]
async fn journaled_records_survive_a_power_cut() -> Result<()> {
    let redis = RedisServer::start().await?;
    let url = redis.url();
    told(Place::Journal, &[("REDIS_URL", &url), ("DURABILITY", "journal"), ("JOURNAL_WINDOW", "1h")]).await
}

#[tokio::test]
async fn embedded_store_survives_a_power_cut() -> Result<()> {
    told(Place::Store, &[]).await
}
