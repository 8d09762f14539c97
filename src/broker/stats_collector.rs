//! Counts the messages of the whole store for the metrics: one process of the fleet does it for all.
//!
//! Nothing is asked of the store, and no key is held in it, while nobody scrapes the metrics of this process. A count
//! of all topics is shown, or none when the store fails meanwhile. A scrape starts a slow count, and the next
//! scrape shows it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Broker;
use crate::delivery::HeldKeys;
use crate::gate::PARTITIONS_AT_ONCE;
use crate::model::error::Result;
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::Rest;
use crate::platform::clock::Instant;
use crate::platform::log_throttle::RepeatThrottle;
use crate::store::{MemberId, PartitionStats, StatsClaim};
use crate::telemetry::metrics::{Depth, KeyDepth, MemoryUse, Tally, WITHIN};

/// The stats are collected until this time after the last scrape.
pub(super) const SCRAPED_LATELY: Duration = Duration::from_secs(120);
/// Longest time for which a process that died keeps others from counting; a shorter `lease.ttl` shortens it.
const TTL_MAX: Duration = Duration::from_secs(10);
/// How long calls may take together before others get as long a turn.
const TURN: Duration = Duration::from_millis(5);
/// Counting takes at most one part of so many of the store's time.
const SHARE: u32 = 20;
const ASK_AGAIN: Duration = Duration::from_secs(1);

pub(super) struct StatsCollector {
    broker: Broker,
    scrapes: watch::Receiver<Option<Instant>>,
    ttl: Duration,
    may_hold: bool,
    renew_at: Instant,
    count_at: Instant,
    /// How long calls have taken in this count, and since the last pause.
    busy: (Duration, Duration),
    not_counted: RepeatThrottle,
    /// Owners that did not say what they hold, in this count: none is waited for twice.
    unheard: BTreeSet<MemberId>,
}

enum Turn {
    Until(Instant),
    Held(Duration),
}

impl StatsCollector {
    pub(super) fn new(broker: Broker) -> StatsCollector {
        StatsCollector {
            scrapes: broker.scrapes.subscribe(),
            ttl: broker.options.lease_ttl.min(TTL_MAX),
            broker,
            may_hold: false,
            renew_at: Instant::START,
            count_at: Instant::START,
            busy: Default::default(),
            not_counted: RepeatThrottle::default(),
            unheard: BTreeSet::new(),
        }
    }

    /// Counts repeatedly while somebody scrapes, until `stop`; then another process may.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let until = tokio::select! {
                () = stop.cancelled() => break,
                until = self.step() => until,
            };
            let wait = async {
                match until {
                    Some(until) => self.broker.clock().sleep_until(until).await,
                    // The broker holds the sender, so waiting cannot fail.
                    None => drop(self.scrapes.changed().await),
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = wait => {}
            }
        }
        self.give_up().await;
    }

    /// Takes the next step, and answers when the following one is due; `None` waits for a scrape.
    async fn step(&mut self) -> Option<Instant> {
        let scraped = *self.scrapes.borrow_and_update();
        if scraped.is_none_or(|at| self.now().since(at) >= SCRAPED_LATELY) {
            self.give_up().await;
            return None;
        }
        let again_in = match self.turn().await {
            Ok(Turn::Until(until)) => return Some(until),
            Ok(Turn::Held(expires_in)) => expires_in.clamp(self.ttl / 10, self.ttl),
            Err(error) => {
                tracing::debug!(%error, "the messages of all topics were not counted");
                self.ttl / 3
            }
        };
        self.count_at = Instant::START;
        self.broker.metrics.stats.end();
        Some(self.now().plus(again_in))
    }

    async fn turn(&mut self) -> Result<Turn> {
        if let Some(expires_in) = self.claim().await? {
            return Ok(Turn::Held(expires_in));
        }
        if self.now() >= self.count_at
            && let Some(expires_in) = self.count().await?
        {
            return Ok(Turn::Held(expires_in));
        }
        Ok(Turn::Until(self.renew_at.min(self.count_at)))
    }

    /// Claims the count; answers how much longer another process holds it.
    async fn claim(&mut self) -> Result<Option<Duration>> {
        let sent = self.now();
        self.may_hold = true;
        let claim = self.broker.store.maintenance.claim_stats_collection(self.broker.member(), self.ttl).await?;
        let stats = &self.broker.metrics.stats;
        // The last third is for an answer to a scrape that is under way when this process stands still.
        let (renew_at, until) = (sent.plus(self.ttl / 3), sent.plus(self.ttl * 2 / 3));
        match claim {
            StatsClaim::Held { expires_in } => {
                self.may_hold = false;
                return Ok(Some(expires_in));
            }
            StatsClaim::Alone => stats.hold(Instant::START, Instant::FAR),
            StatsClaim::Kept => stats.hold(Instant::START, until),
            StatsClaim::Taken => {
                stats.end();
                stats.hold(self.now(), until);
            }
        }
        self.renew_at = if claim == StatsClaim::Alone { Instant::FAR } else { renew_at };
        Ok(None)
    }

    /// Counts everything and shows it; answers for how long another process counts by now.
    async fn count(&mut self) -> Result<Option<Duration>> {
        let (began, mut counted) = (self.now(), Vec::new());
        self.busy = Default::default();
        self.unheard.clear();
        for topic in self.broker.store.topics.topics().await? {
            if self.now() >= self.renew_at
                && let Some(expires_in) = self.claim().await?
            {
                return Ok(Some(expires_in));
            }
            match self.count_topic(&topic).await {
                Ok(groups) => counted.push((topic, groups)),
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => {
                    if self.not_counted.is_due(self.now()) {
                        tracing::warn!(%topic, %error, "the messages of a topic were not counted");
                    }
                }
            }
        }
        // The largest have their own labels: small ones with early names must not hide them.
        counted.sort_by_key(|(_, groups)| Reverse(groups.values().map(Depth::messages).max()));
        let mut tally = Tally::default();
        for (topic, groups) in &counted {
            groups.iter().for_each(|(group, depth)| tally.add(topic.as_str(), group.as_str(), depth));
        }
        let now = self.now();
        self.broker.metrics.stats.show(now, now.since(began), &tally)?;
        self.count_at = began.plus(self.ttl).max(now.plus(self.busy.0 * (SHARE - 1)));
        Ok(None)
    }

    async fn count_topic(&mut self, topic: &TopicName) -> Result<BTreeMap<GroupName, Depth>> {
        let store = self.broker.store.clone();
        let asked = self.now();
        let descriptor = store.topics.topic_uncached(topic).await?;
        self.rest(asked).await;
        let (mut groups, mut fair) = (BTreeMap::<GroupName, Depth>::new(), BTreeMap::<GroupName, Vec<_>>::new());
        let Some(descriptor) = descriptor else { return Ok(groups) };
        for group in descriptor.groups.iter() {
            let rest = descriptor.subscription(group).rest(self.broker.now());
            let (paused, closed) = (matches!(rest, Some(Rest::Paused(_))), rest.is_some_and(Rest::is_closed));
            groups.insert(group.clone(), Depth { paused, closed, ..Depth::default() });
        }
        for partitions in descriptor.group_partitions(&descriptor.groups).collect::<Vec<_>>().chunks(PARTITIONS_AT_ONCE)
        {
            let asked = self.now();
            let depths = store.reads.depth(partitions, &WITHIN.map(|(_, span)| span)).await?;
            let (stats, due): (Vec<_>, Vec<_>) = depths.into_iter().map(|depth| (depth.stats, depth.due)).unzip();
            let mut stats: Vec<_> = partitions.iter().cloned().zip(stats).collect();
            self.broker.count_held(&descriptor, &mut stats, &mut self.unheard).await?;
            for ((partition, stats), due) in stats.into_iter().zip(due) {
                groups.entry(partition.group.clone()).or_default().add(&depth_of(&stats, due));
                if descriptor.is_fair(&partition.group) {
                    fair.entry(partition.group.clone()).or_default().push((partition, stats));
                }
            }
            self.rest(asked).await;
        }
        // An owner answers for all of its partitions together.
        for (group, stats) in fair {
            let asked = self.now();
            let keys = self.broker.count_keys(&descriptor, &group, &stats, &mut self.unheard).await?;
            let paused = self.broker.paused_keys(&descriptor, &group).await?.count;
            groups.entry(group).or_default().keys = keys.map(|known| key_depth_of(&known.keys, paused));
            self.rest(asked).await;
        }
        Ok(groups)
    }

    /// Leaves the store to others for as long as the last calls took together.
    async fn rest(&mut self, asked: Instant) {
        let took = self.now().since(asked);
        self.busy = (self.busy.0 + took, self.busy.1 + took);
        if self.busy.1 >= TURN {
            let pause = std::mem::take(&mut self.busy.1);
            self.broker.clock().sleep(pause).await;
        }
    }

    async fn give_up(&mut self) {
        self.broker.metrics.stats.end();
        self.count_at = Instant::START;
        if std::mem::take(&mut self.may_hold)
            && let Err(error) = self.broker.store.maintenance.yield_stats_collection(self.broker.member()).await
        {
            tracing::debug!(%error, "another process counts only once the time of this one is over");
        }
    }

    fn now(&self) -> Instant {
        self.broker.clock().instant()
    }
}

fn depth_of(stats: &PartitionStats, due: Vec<u64>) -> Depth {
    let mut depth = Depth {
        scheduled: stats.scheduled,
        ready: stats.ready,
        blocked: stats.blocked,
        backoff: stats.backoff,
        in_flight: stats.in_flight,
        dead: stats.dead,
        oldest_ready_age: stats.oldest_ready_age.unwrap_or_default(),
        ..Depth::default()
    };
    depth.due.iter_mut().zip(due).for_each(|(sum, due)| *sum = due);
    depth
}

fn key_depth_of(keys: &HeldKeys, paused: u64) -> KeyDepth {
    let busiest = keys.busiest.first().map_or(0, |key| key.ready + key.in_flight);
    KeyDepth { count: keys.count, busiest, paused }
}

#[derive(Debug)]
pub(super) struct Scrapes(watch::Sender<Option<Instant>>);

impl Default for Scrapes {
    fn default() -> Scrapes {
        Scrapes(watch::Sender::new(None))
    }
}

impl Scrapes {
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Instant>> {
        self.0.subscribe()
    }

    /// Answers when the previous scrape was.
    fn note(&self, now: Instant) -> Option<Instant> {
        self.0.send_replace(Some(now))
    }
}

impl Broker {
    /// The metrics in the text format of Prometheus. Asks nobody. Errors: `Bug`.
    pub fn scrape(&self) -> Result<String> {
        let (metrics, now) = (&self.metrics, self.clock().instant());
        let before = self.scrapes.note(now);
        let health = self.store.backend.health_snapshot();
        metrics.store.breaker_open.set(i64::from(health.is_away));
        metrics.store.clock_offset.set(self.store.backend.clock().local_ahead_seconds());
        metrics.process.data_dir_free.set(health.free_bytes.map_or(f64::NAN, |bytes| bytes as f64));
        self.show_memory();
        metrics.process.observe();
        let with_stats = metrics.stats.look(now, before);
        let text = metrics.text()?;
        // The process may have stood still just now, and another one counts.
        if with_stats && !metrics.stats.look(self.clock().instant(), before) {
            return metrics.text();
        }
        Ok(text)
    }

    fn show_memory(&self) {
        let nodes = self.store.backend.memory();
        let shown = nodes.iter().map(|node| MemoryUse {
            node: &node.location,
            used_bytes: node.used_bytes,
            max_bytes: node.max_bytes,
            evicted_keys: node.evicted_keys,
            may_evict: node.is_unfit(),
        });
        self.metrics.store.memory(&shown.collect::<Vec<_>>());
    }

    pub(super) async fn watch_store(&self, stop: CancellationToken) {
        let mut scrapes = self.scrapes.subscribe();
        loop {
            let ask = async {
                let answer = self.store.backend.ping().await;
                self.metrics.store.up.set(i64::from(answer.is_ok()));
                self.clock().sleep(ASK_AGAIN).await;
                let _ = scrapes.changed().await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = ask => {}
            }
        }
    }
}
