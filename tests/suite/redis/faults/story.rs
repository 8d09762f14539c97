//! One fault, under load.

use std::sync::Arc;

use dwell::model::error::{Error, Result};
use fastrand::Rng;
use rustix::process::Signal;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{Bounds, Ledger, Process, Proxy, RedisServer, Strike, Tally, eventually, scratch, signal_to};

/// Pushes that are answered before a fault, and during it.
const PUSHES: u64 = 40;

const PRODUCERS: usize = 2;
const CONSUMERS: usize = 2;

/// A lease of a killed owner lapses soon, and what nobody settled comes back soon. An id is a duplicate for longer than
/// the story lasts, so that a push without an answer can be made again.
const SETTINGS: [(&str, &str); 7] = [
    ("LEASE_TTL", "1s"),
    ("REDIS_TIMEOUT", "300ms"),
    ("TOPIC_PARTITIONS", "4"),
    ("TOPIC_VISIBILITY_TIMEOUT", "3s"),
    ("TOPIC_DEDUP_WINDOW", "1h"),
    ("TOPIC_BACKOFF_INITIAL", "50ms"),
    ("TOPIC_BACKOFF_MAX", "200ms"),
];

/// A Redis, a proxy, a process, and those who work with it.
pub(super) struct Story {
    pub(super) redis: RedisServer,
    pub(super) proxy: Proxy,
    dir: tempfile::TempDir,
    settings: Vec<(&'static str, &'static str)>,
    process: Option<Process>,
    ledger: Arc<Ledger>,
    rng: Rng,
    work: Option<(CancellationToken, TaskTracker)>,
    generation: usize,
}

impl Story {
    /// On a Redis that answers when it is on disk.
    pub(super) async fn durable() -> Result<Story> {
        Story::with(RedisServer::durable().await?, &[]).await
    }

    /// On some Redis, with more settings.
    pub(super) async fn with(redis: RedisServer, more: &[(&'static str, &'static str)]) -> Result<Story> {
        let proxy = Proxy::before(&redis)?;
        let settings = SETTINGS.iter().chain(more).copied().collect();
        let (ledger, rng) = (Arc::default(), Rng::with_seed(7));
        let dir = scratch()?;
        let mut story = Story { redis, proxy, dir, settings, process: None, ledger, rng, work: None, generation: 0 };
        story.serve().await?;
        Ok(story)
    }

    /// Starts a process, and those who work with it.
    async fn serve(&mut self) -> Result<()> {
        let url = self.proxy.url();
        let mut settings = self.settings.clone();
        settings.push(("REDIS_URL", &url));
        let process = Process::serve(self.dir.path(), &settings).await?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        self.generation += 1;
        for n in 0..PRODUCERS {
            let (client, ledger, stop) = (process.client.clone(), self.ledger.clone(), stop.clone());
            let (rng, prefix) = (self.rng.fork(), format!("{}-{n}", self.generation));
            tasks.spawn(async move { ledger.produce(&client, &prefix, rng, &stop).await });
        }
        for _ in 0..CONSUMERS {
            let (client, ledger, stop, rng) =
                (process.client.clone(), self.ledger.clone(), stop.clone(), self.rng.fork());
            tasks.spawn(async move { ledger.consume(&client, rng, &stop).await });
        }
        tasks.close();
        (self.process, self.work) = (Some(process), Some((stop, tasks)));
        Ok(())
    }

    async fn rest(&mut self) {
        if let Some((stop, tasks)) = self.work.take() {
            stop.cancel();
            tasks.wait().await;
        }
    }

    /// Waits until some pushes were answered during the fault.
    pub(super) async fn outage(&self) -> Result<()> {
        self.ledger.until(PUSHES, 0).await
    }

    /// Kills the process and starts another one in its place.
    pub(super) async fn dwell_killed(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
        }
        self.rest().await;
        self.serve().await
    }

    /// Does something to one call after the other.
    pub(super) async fn strikes(&self, strike: Strike) -> Result<()> {
        for _ in 0..20 {
            self.proxy.next(strike);
            self.ledger.until(2, 0).await?;
        }
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        signal_to(self.redis.pid(), signal)
    }

    /// Waits until pushes go to Redis again, and nothing is buffered.
    async fn recovered(&self) -> Result<()> {
        let process = self.process.as_ref().ok_or_else(|| Error::bug("no process"))?;
        let ready = async || {
            let ready = process.client.get("/readyz").await;
            Ok(ready.filter(|(status, body)| *status == 200 && body["status"] == "ready").map(drop))
        };
        // Producers go on: what is being pushed is never buffered for long.
        eventually("Redis is there again", ready).await?;
        let stored = async || {
            let message = json!({"messages": [{"payload": "x", "delay": "1h"}]});
            let answer = process.client.post("/v1/topics/probe/messages/batch", &message).await;
            Ok(answer.filter(|(_, body)| body["results"][0]["status"] != "buffered").map(drop))
        };
        eventually("a push goes to Redis", stored).await
    }

    /// Everything that is left is handed out, and the ledger is closed.
    async fn end(mut self) -> Result<Tally> {
        self.rest().await;
        let process = self.process.take().ok_or_else(|| Error::bug("no process"))?;
        eventually("everything is drained", async || self.ledger.drain(&process.client).await).await?;
        Ok(self.ledger.tally())
    }
}

/// Brings a fault about and heals it, and holds the ledger.
pub(super) async fn told(
    mut story: Story,
    bounds: Bounds,
    fault: impl AsyncFnOnce(&mut Story) -> Result<()>,
) -> Result<()> {
    story.ledger.until(PUSHES, 5).await?;
    fault(&mut story).await?;
    story.recovered().await?;
    story.end().await?.holds(bounds);
    Ok(())
}
