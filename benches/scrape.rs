//! What a look at the metrics costs: the page that `GET /metrics` answers, store stats included, of a broker with many topics.
//!
//! `cargo bench --bench scrape`. It prints how large each page is, and then how long it takes.

use std::fmt;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use divan::Bencher;
use dwell::app::engine::{Engine, StoreOptions};
use dwell::broker::{Broker, GroupRequest, Options};
use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::platform::clock::Clock;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How many topics, of how many partitions and groups each.
struct Shape {
    topics: usize,
    partitions: u16,
    groups: usize,
}

const SHAPES: [Shape; 4] = [
    Shape { topics: 1, partitions: 16, groups: 1 },
    Shape { topics: 100, partitions: 16, groups: 1 },
    Shape { topics: 100, partitions: 16, groups: 4 },
    // As many series as there can be, but for webhooks.
    Shape { topics: 300, partitions: 16, groups: 4 },
];

fn main() -> Result<()> {
    // A bench cannot fail, so what it works on is tried before.
    for shape in &SHAPES {
        let page = Fleet::of(shape)?.broker().scrape()?;
        let series = page.lines().filter(|line| !line.starts_with('#')).count();
        println!("{shape}: {series} series, {} bytes", page.len());
    }
    divan::main();
    Ok(())
}

#[divan::bench(args = SHAPES)]
fn scrape(bencher: Bencher<'_, '_>, shape: &Shape) {
    let Ok(fleet) = Fleet::of(shape) else { return };
    bencher.bench(|| fleet.broker().scrape());
}

/// A broker of one process, on a disk of its own.
struct Fleet {
    runtime: Runtime,
    engine: Option<Engine>,
    _dir: TempDir,
}

impl Fleet {
    /// A broker whose page has everything of the topics, with one message in each partition or so.
    fn of(shape: &Shape) -> Result<Fleet> {
        let failed = |error: std::io::Error| Error::bug(error.to_string());
        let (dir, runtime) = (tempfile::tempdir().map_err(failed)?, Runtime::new().map_err(failed)?);
        let store = StoreOptions::Embedded { dir: dir.path().join("store") };
        let engine = runtime.block_on(async {
            let engine = Engine::start(store, Options::default(), Clock::System).await?;
            shape.make(engine.broker()).await?;
            Ok::<_, Error>(engine)
        })?;
        Ok(Fleet { runtime, engine: Some(engine), _dir: dir })
    }

    fn broker(&self) -> &Broker {
        // It is taken only when this is dropped.
        self.engine.as_ref().map_or_else(|| unreachable!("the engine is gone"), Engine::broker)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            let _ = self.runtime.block_on(engine.close());
        }
    }
}

impl Shape {
    async fn make(&self, broker: &Broker) -> Result<()> {
        let partitions = NonZeroU16::new(self.partitions).unwrap_or(NonZeroU16::MIN);
        let settings = Settings { partitions, ..Settings::default() };
        for n in 0..self.topics {
            let topic = TopicName::new(format!("topic-{n}"))?;
            broker.declare(topic.clone(), settings.clone()).await?;
            for group in 1..self.groups {
                broker
                    .create_group(&topic, &GroupName::new(format!("group-{group}"))?, GroupRequest::default())
                    .await?;
            }
            let message = |_| NewMessage::new("x").after(Duration::from_secs(600));
            broker.push_batch(&topic, (0..self.partitions).map(message).collect()).await?;
        }
        let began = Instant::now();
        while !broker.scrape()?.contains("dwell_stats_collector 1") {
            if began.elapsed() > Duration::from_secs(60) {
                return Err(Error::unavailable("there is no stats collector"));
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topics={} partitions={} groups={}", self.topics, self.partitions, self.groups)
    }
}
