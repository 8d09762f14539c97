//! Reads over large topics, which leave the store to pushes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell::app::engine::{Engine, StoreOptions};
use dwell::broker::{Broker, GroupRequest, Options};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::{FORECAST_COUNTS_MAX, FORECAST_SPANS_MAX, GROUPS_MAX, PARTITIONS_MAX};
use dwell::model::message::{GroupName, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::outage::OutageOptions;
use dwell::platform::clock::Clock;
use dwell::store::redis::RedisOptions;
use dwell::store::{Pushed, Window};
use futures_util::future::join;

use crate::support::{RedisServer, kind_of, scratch};

const MINUTE: Duration = Duration::from_secs(60);

/// Clients that read the largest topic at the same time.
const READERS: usize = 6;

/// Messages that are pushed at least meanwhile.
const PUSHES: usize = 60;

/// The largest topic.
async fn large(broker: &Broker) -> Result<TopicName> {
    let topic = TopicName::new("large")?;
    let partitions = PARTITIONS_MAX.try_into().map_err(|_| Error::bug("no partitions"))?;
    broker.declare(topic.clone(), Settings { partitions, ..Settings::default() }).await?;
    for n in 1..GROUPS_MAX {
        let wish = GroupRequest::default();
        broker.create_group(&topic, &GroupName::new(format!("g{n}"))?, wish).await?;
    }
    Ok(topic)
}

/// One of the reads over a topic.
async fn read(broker: &Broker, topic: &TopicName, which: usize) -> Result<()> {
    let group = GroupName::standard();
    let spans = FORECAST_COUNTS_MAX / usize::from(PARTITIONS_MAX);
    match which % 4 {
        0 => broker.forecast(topic, &group, MINUTE, spans).await.map(drop),
        1 => broker.stats(topic).await.map(drop),
        2 => broker.count_window(topic, &group, Window::ALL).await.map(drop),
        _ => broker.audit(topic, &group, None, false).await.map(drop),
    }
}

#[tokio::test]
async fn heavy_reads_do_not_delay_pushes() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let store = StoreOptions::Redis { redis: RedisOptions::new(redis.url()), outage: OutageOptions::new(dir.path()) };
    let engine = Engine::start(store, Options::default(), Clock::System).await?;
    let broker = engine.broker();
    let topic = large(broker).await?;
    let over = broker.forecast(&topic, &GroupName::standard(), MINUTE, FORECAST_SPANS_MAX).await;
    assert_eq!(kind_of(over), Some(Kind::Invalid));
    let (small, read_all) = (TopicName::new("small")?, AtomicBool::new(false));
    let reads = async {
        let read = async |which| match read(broker, &topic, which).await {
            // It was told to try again.
            Err(error) if error.kind() == Kind::Full => Ok(()),
            outcome => outcome,
        };
        let outcomes = futures_util::future::join_all((0..READERS).map(read)).await;
        read_all.store(true, Ordering::Relaxed);
        outcomes.into_iter().collect::<Result<Vec<()>>>()
    };
    let pushes = async {
        let mut pushed = Vec::new();
        while pushed.len() < PUSHES || !read_all.load(Ordering::Relaxed) {
            pushed.push(broker.push(&small, NewMessage::new("x").after(MINUTE)).await?.pushed);
        }
        Result::Ok(pushed)
    };
    let (reads, pushed) = join(reads, pushes).await;
    reads?;
    assert!(pushed?.into_iter().all(|pushed| pushed == Pushed::Stored));
    engine.close().await
}
