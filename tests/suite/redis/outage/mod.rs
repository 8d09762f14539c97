//! Redis is away, slow, silent, empty or another one: what was answered 201 or 202 is delivered, once, when it is due.

mod redis_down;
mod conflicts;
mod dead_letters;
mod disk;
mod barrier;
mod topics;
mod metrics;
mod clock;
mod comparison;
mod control;
mod cron_jobs;
mod debounce_max;
mod dedup;
mod first_start;
mod forwarding;
mod fsync;
mod groups;
mod store_id;
mod journal;
mod after;
mod late_settlement;
mod topic_move;
mod cluster;
mod order;
mod foreign_redis;
mod purge;
mod logging;
mod reads;
mod replay_journal;
mod replicas;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use dwell::app::engine::{Engine, StoreOptions};
use dwell::broker::{Broker, Options, PushOutcome, ReserveRequest};
use dwell::delivery::{Decision, Verdict};
use dwell::model::error::Result;
use dwell::model::message::{GroupName, MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::outage::OutageOptions;
use dwell::platform::clock::Clock;
use dwell::store::redis::{Confirmation, RedisOptions};
use dwell::wal::LIMIT_BYTES;
use tempfile::TempDir;

use crate::support::{Proxy, RedisServer, eventually, scratch};

/// Time for one call, where Redis ends or refuses connections: a busy machine must not look like an outage.
const PATIENCE: Duration = Duration::from_secs(15);

/// The same in stories with a silent Redis, and so how long the first push waits that meets an outage.
const TIMEOUT: Duration = Duration::from_millis(800);

/// A Redis, a proxy in front of it, and a directory in which pushes are buffered.
struct Outage {
    redis: RedisServer,
    proxy: Proxy,
    dir: TempDir,
    journal: Option<Duration>,
    limit_bytes: u64,
    confirmation: Confirmation,
    /// How long one call to Redis may take.
    timeout: Duration,
    /// How long a silent broker is waited for after a loss.
    silence: Duration,
}

/// A message as a consumer got it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Got {
    due_at: Timestamp,
    times: usize,
    early: bool,
}

impl Outage {
    async fn begin() -> Result<Outage> {
        Outage::with(RedisServer::durable().await?)
    }

    fn with(redis: RedisServer) -> Result<Outage> {
        let proxy = Proxy::before(&redis)?;
        Ok(Outage {
            redis,
            proxy,
            dir: scratch()?,
            journal: None,
            limit_bytes: LIMIT_BYTES,
            confirmation: Confirmation::default(),
            timeout: PATIENCE,
            silence: Duration::from_secs(1),
        })
    }

    /// For a story in which Redis does not answer.
    fn hasty(self) -> Outage {
        Outage { timeout: TIMEOUT, ..self }
    }

    /// The hash of bodies of each partition of a topic.
    fn hashes(topic: &str) -> impl Iterator<Item = String> {
        (0..8).map(move |partition| format!("{{dwell:{topic}:{partition}}}:default:h"))
    }

    /// How many messages of a topic the Redis itself holds.
    async fn stored(&self, topic: &str) -> Result<usize> {
        let mut stored = 0;
        for hash in Outage::hashes(topic) {
            stored += self.redis.ask::<usize>(&format!("HLEN {hash}")).await?;
        }
        Ok(stored)
    }

    /// A broker on that Redis and that directory.
    async fn dwell(&self) -> Result<Dwell> {
        self.dwell_on(self.proxy.url(), false).await
    }

    /// A broker on some Redis and that directory.
    async fn dwell_on(&self, url: String, adopt: bool) -> Result<Dwell> {
        self.dwell_in(self.dir.path(), url, adopt).await
    }

    /// A broker on some Redis and some directory.
    async fn dwell_in(&self, dir: &Path, url: String, adopt: bool) -> Result<Dwell> {
        let redis = RedisOptions { timeout: self.timeout, confirmation: self.confirmation, ..RedisOptions::new(url) };
        let outage = OutageOptions {
            journal_window: self.journal,
            limit_bytes: self.limit_bytes,
            adopt,
            silence: self.silence,
            ..OutageOptions::new(dir)
        };
        let second = Duration::from_secs(1);
        let options = Options { lease_ttl: second, drain_timeout: second, ..Options::default() };
        Ok(Dwell(Engine::start(StoreOptions::Redis { redis, outage }, options, Clock::System).await?))
    }
}

/// A broker.
struct Dwell(Engine);

impl Dwell {
    fn broker(&self) -> &Broker {
        self.0.broker()
    }

    /// Pushes messages with these ids, in one batch.
    async fn push(&self, topic: &str, ids: &[&str], delay: Duration) -> Result<Vec<PushOutcome>> {
        let message = |id: &&str| Ok(NewMessage::new(id.to_string()).id(MessageId::new(*id)?).after(delay));
        let messages = ids.iter().map(message).collect::<Result<_>>()?;
        self.broker().push_batch(&TopicName::new(topic)?, messages).await?.into_iter().collect()
    }

    /// Pushes one message that is due.
    async fn push_one(&self, topic: &str, id: &str) -> Result<PushOutcome> {
        Ok(self.push(topic, &[id], Duration::ZERO).await?.remove(0))
    }

    /// Pushes one message of so many bytes that is due.
    async fn push_sized(&self, topic: &str, id: &str, bytes: usize) -> Result<PushOutcome> {
        let message = NewMessage::new(vec![b'x'; bytes]).id(MessageId::new(id)?);
        self.broker().push(&TopicName::new(topic)?, message).await
    }

    /// Takes and acks until so many different messages came, and then until nothing more does for a moment.
    async fn drain(&self, topic: &str, count: usize) -> Result<BTreeMap<String, Got>> {
        let (topic, group) = (TopicName::new(topic)?, GroupName::standard());
        let mut got: BTreeMap<String, Got> = BTreeMap::new();
        let mut quiet = 0;
        while quiet < 1 {
            let wait = Duration::from_millis(if got.len() < count { 20_000 } else { 300 });
            let request = ReserveRequest { max: 1_000, wait, visibility_timeout: None };
            let deliveries = self.broker().reserve(&topic, &group, request).await?;
            let now = Clock::System.now();
            quiet += usize::from(deliveries.is_empty());
            let decisions = deliveries.iter().map(|delivery| (delivery.receipt.to_string(), Decision::Ack)).collect();
            for delivery in &deliveries {
                let message = &delivery.message;
                let entry =
                    got.entry(message.id.to_string()).or_insert(Got { due_at: message.due_at, times: 0, early: false });
                entry.times += 1;
                entry.early |= now < message.due_at;
            }
            if !deliveries.is_empty() {
                let verdicts = self.broker().settle(&topic, &group, decisions).await?;
                assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Acked), "{verdicts:?}");
            }
        }
        Ok(got)
    }

    /// Exactly these messages come, each once and none early.
    async fn delivers(&self, topic: &str, ids: &[&str]) -> Result<BTreeMap<String, Got>> {
        let got = self.drain(topic, ids.len()).await?;
        let mut expected: Vec<&str> = ids.to_vec();
        expected.sort_unstable();
        assert_eq!(got.keys().map(String::as_str).collect::<Vec<_>>(), expected);
        assert!(got.values().all(|got| got.times == 1 && !got.early), "{got:?}");
        Ok(got)
    }

    /// Waits until pushes go to Redis again, and nothing is buffered.
    async fn recovered(&self) -> Result<()> {
        eventually("nothing is degraded", async || {
            let health = self.broker().health().await;
            Ok((health.ready && health.detail.is_none()).then_some(()))
        })
        .await
    }

    /// The value of a metric.
    fn metric(&self, series: &str) -> Result<f64> {
        let text = self.broker().metrics().text()?;
        let line = text.lines().find(|line| line.starts_with(series) && line[series.len()..].starts_with(' '));
        Ok(line.and_then(|line| line.rsplit(' ').next()).and_then(|value| value.parse().ok()).unwrap_or(f64::NAN))
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}
