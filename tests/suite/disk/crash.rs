//! The real binary, and Redis, are killed at random moments: what was answered over HTTP holds.
//!
//! The moments on Redis are searched in `tests/sim`, and those on the embedded store only here: `DWELL_ROUNDS` makes it longer
//! than [`ROUNDS`]; `DWELL_SEED` repeats the choices of a run, if not its timing.

use std::path::Path;
use std::sync::Arc;

use dwell::model::error::Result;
use fastrand::Rng;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{Bounds, Ledger, Process, RedisServer, eventually, from_environment, scratch};

const ROUNDS: usize = 8;
const PRODUCERS: usize = 3;
const CONSUMERS: usize = 2;

/// A lease of a killed owner lapses soon, and what nobody settled comes back soon. An id is a duplicate for longer than
/// the story lasts, so that a push without an answer can be made again.
const SETTINGS: [(&str, &str); 8] = [
    ("LEASE_TTL", "1s"),
    ("GROUP_HEARTBEAT", "200ms"),
    ("REDIS_TIMEOUT", "500ms"),
    ("TOPIC_PARTITIONS", "4"),
    ("TOPIC_VISIBILITY_TIMEOUT", "1s"),
    ("TOPIC_DEDUP_WINDOW", "1h"),
    ("TOPIC_BACKOFF_INITIAL", "50ms"),
    ("TOPIC_BACKOFF_MAX", "200ms"),
];

/// What is killed in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Dwell,
    Redis,
    Both,
}

/// Producers and consumers at work on one process.
struct Work {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Work {
    fn begin(process: &Process, ledger: &Arc<Ledger>, rng: &mut Rng, round: usize) -> Work {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        for n in 0..PRODUCERS {
            let (client, ledger, stop, rng) = (process.client.clone(), ledger.clone(), stop.clone(), rng.fork());
            tasks.spawn(async move { ledger.produce(&client, &format!("{round}-{n}"), rng, &stop).await });
        }
        for _ in 0..CONSUMERS {
            let (client, ledger, stop, rng) = (process.client.clone(), ledger.clone(), stop.clone(), rng.fork());
            tasks.spawn(async move { ledger.consume(&client, rng, &stop).await });
        }
        tasks.close();
        Work { stop, tasks }
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// The same for one process after the other, each killed at a random moment.
struct Story {
    dir: tempfile::TempDir,
    redis: Option<RedisServer>,
    ledger: Arc<Ledger>,
    rng: Rng,
}

impl Story {
    fn new(redis: Option<RedisServer>) -> Result<Story> {
        let seed = from_environment("DWELL_SEED")?.unwrap_or_else(|| fastrand::u64(..));
        println!("DWELL_SEED={seed}");
        Ok(Story { dir: scratch()?, redis, ledger: Arc::default(), rng: Rng::with_seed(seed) })
    }

    async fn serve(&self) -> Result<Process> {
        let mut settings = SETTINGS.to_vec();
        let url = self.redis.as_ref().map(RedisServer::url);
        settings.extend(url.as_deref().map(|url| ("REDIS_URL", url)));
        Process::serve(self.dir.path(), &settings).await
    }

    /// Waits for a random number of answers to pushes, or to acks: those do not come before a takeover.
    async fn random_moment(&mut self) -> Result<()> {
        match self.rng.u8(0..3) {
            0 => self.ledger.until(0, self.rng.u64(1..20)).await,
            _ => self.ledger.until(self.rng.u64(1..150), 0).await,
        }
    }

    async fn round(&mut self, round: usize, victim: Victim) -> Result<()> {
        let mut process = self.serve().await?;
        let work = Work::begin(&process, &self.ledger, &mut self.rng, round);
        self.random_moment().await?;
        if victim == Victim::Both && self.rng.bool() {
            process.kill()?;
        }
        if let Some(redis) = self.redis.as_mut().filter(|_| victim != Victim::Dwell) {
            redis.kill()?;
            if victim == Victim::Both {
                process.kill()?;
            }
            redis.restart().await?;
        }
        if victim == Victim::Redis {
            // The process goes on by itself.
            self.ledger.until(40, 5).await?;
            self.random_moment().await?;
        }
        process.kill()?;
        work.end().await;
        Ok(())
    }

    /// A last process hands out everything that is left; then the ledger is held to what was answered.
    async fn end(self) -> Result<()> {
        let process = self.serve().await?;
        eventually("everything is drained", async || self.ledger.drain(&process.client).await).await?;
        drop(process);
        // The embedded store writes reservations down and does not wait for the disk: they may die with the process.
        let tally = self.ledger.tally();
        println!("{tally}");
        tally.holds(Bounds { uncharged: self.redis.is_none(), ..Bounds::default() });
        let log = Path::join(self.dir.path(), "dwell.log");
        let said = std::fs::read_to_string(log).map_err(crate::support::failed("what dwell logged"))?;
        assert_eq!(said, "", "errors of dwell");
        Ok(())
    }
}

#[tokio::test]
async fn embedded() -> Result<()> {
    let mut story = Story::new(None)?;
    for round in 0..from_environment("DWELL_ROUNDS")?.unwrap_or(ROUNDS) {
        story.round(round, Victim::Dwell).await?;
    }
    story.end().await
}

#[tokio::test]
async fn redis() -> Result<()> {
    let mut story = Story::new(Some(RedisServer::durable().await?))?;
    for (round, victim) in [Victim::Dwell, Victim::Both, Victim::Redis].into_iter().enumerate() {
        story.round(round, victim).await?;
    }
    story.end().await
}
