//! Counting what the whole store holds, for the metrics: one process of the fleet does it for all.
//!
//! Nothing is asked of the store, and no key is held in it, while nobody looks at the metrics of this process. What is
//! shown is a count of all topics or nothing: when the store is away in the middle of it, nothing is.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Broker;
use crate::model::error::Result;
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::{Descriptor, GroupPartition, Rest};
use crate::platform::clock::Instant;
use crate::platform::log_throttle::RepeatThrottle;
use crate::store::{CensusClaim, PartitionDepth};
use crate::telemetry::metrics::{Depth, Tally, WITHIN};

/// How long after a look nobody is taken to look any more.
const LOOKED_LATELY: Duration = Duration::from_secs(120);

/// The longest time for which a process that died keeps others from counting; a shorter `lease.ttl` shortens it.
const TTL_MAX: Duration = Duration::from_secs(10);

/// Pairs that are counted in one call: the store does nothing else meanwhile, about a millisecond.
pub(super) const PAIRS_AT_ONCE: usize = 64;

/// How long calls may take together before others get as long a turn.
const TURN: Duration = Duration::from_millis(5);

/// Counting takes at most one part of so many of the store's time.
const SHARE: u32 = 20;

/// The one that counts, if this process is it.
pub(super) struct Census {
    broker: Broker,
    looks: watch::Receiver<Option<Instant>>,
    ttl: Duration,
    /// Whether the store may say that this process counts.
    may_hold: bool,
    renew_at: Instant,
    count_at: Instant,
    /// How long calls have taken in this count, and since the last pause.
    busy: (Duration, Duration),
    not_counted: RepeatThrottle,
}

/// What became of a turn.
enum Turn {
    /// Again then.
    Until(Instant),
    /// Another process counts, for so long if it does not say so again.
    Held(Duration),
}

impl Census {
    pub(super) fn new(broker: Broker) -> Census {
        Census {
            looks: broker.looks.subscribe(),
            ttl: broker.options.lease_ttl.min(TTL_MAX),
            broker,
            may_hold: false,
            renew_at: Instant::START,
            count_at: Instant::START,
            busy: Default::default(),
            not_counted: RepeatThrottle::default(),
        }
    }

    /// Counts again and again while somebody looks, until `stop`; then another process may.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let until = tokio::select! {
                () = stop.cancelled() => break,
                until = self.step() => until,
            };
            let wait = async {
                match until {
                    Some(until) => self.broker.clock().sleep_until(until).await,
                    // The sender lives as long as the broker, so waiting cannot fail.
                    None => drop(self.looks.changed().await),
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = wait => {}
            }
        }
        self.give_up().await;
    }

    /// Does what there is to do, and says until when there is nothing more; `None` is until somebody looks.
    async fn step(&mut self) -> Option<Instant> {
        let looked = *self.looks.borrow_and_update();
        if looked.is_none_or(|at| self.now().since(at) >= LOOKED_LATELY) {
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
        self.broker.metrics.census.end();
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

    /// Says that this process counts; if another one does, for how long.
    async fn claim(&mut self) -> Result<Option<Duration>> {
        let sent = self.now();
        self.may_hold = true;
        let claim = self.broker.store.maintenance.claim_stats_collection(self.broker.member(), self.ttl).await?;
        let census = &self.broker.metrics.census;
        // The last third is for an answer to a look that is on its way when this process stands still.
        let (renew_at, until) = (sent.plus(self.ttl / 3), sent.plus(self.ttl * 2 / 3));
        match claim {
            CensusClaim::Held { expires_in } => {
                self.may_hold = false;
                return Ok(Some(expires_in));
            }
            CensusClaim::Alone => census.hold(Instant::START, Instant::FAR),
            CensusClaim::Kept => census.hold(Instant::START, until),
            CensusClaim::Taken => {
                census.end();
                census.hold(self.now(), until);
            }
        }
        self.renew_at = if claim == CensusClaim::Alone { Instant::FAR } else { renew_at };
        Ok(None)
    }

    /// Counts everything, and shows it; if another process counts by now, for how long.
    async fn count(&mut self) -> Result<Option<Duration>> {
        let (began, mut counted) = (self.now(), Vec::new());
        self.busy = Default::default();
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
        // The largest have labels of their own: small ones with early names must not hide them.
        counted.sort_by_key(|(_, groups)| Reverse(groups.values().map(Depth::messages).max()));
        let mut tally = Tally::default();
        for (topic, groups) in &counted {
            groups.iter().for_each(|(group, depth)| tally.add(topic.as_str(), group.as_str(), depth));
        }
        let now = self.now();
        self.broker.metrics.census.show(now, now.since(began), &tally)?;
        self.count_at = began.plus(self.ttl).max(now.plus(self.busy.0 * (SHARE - 1)));
        Ok(None)
    }

    /// Counts what each group of a topic holds; nothing if the topic is gone by now.
    async fn count_topic(&mut self, topic: &TopicName) -> Result<BTreeMap<GroupName, Depth>> {
        let store = self.broker.store.clone();
        let asked = self.now();
        let descriptor = store.topics.topic_uncached(topic).await?;
        self.rest(asked).await;
        let mut groups = BTreeMap::<GroupName, Depth>::new();
        let Some(descriptor) = descriptor else { return Ok(groups) };
        for group in descriptor.groups.iter() {
            let rest = descriptor.subscription(group).rest(self.broker.now());
            let paused = matches!(rest, Some(Rest::Paused(_)));
            groups.insert(group.clone(), Depth { paused, ..Depth::default() });
        }
        for pairs in pairs_of(&descriptor).chunks(PAIRS_AT_ONCE) {
            let asked = self.now();
            let depths = store.reads.depth(pairs, &WITHIN.map(|(_, span)| span)).await?;
            for (pair, part) in pairs.iter().zip(depths) {
                groups.entry(pair.group.clone()).or_default().add(&self.depth_of(pair, part));
            }
            self.rest(asked).await;
        }
        Ok(groups)
    }

    /// What a pair holds. What this process holds prefetched counts as ready, as in the description of a topic.
    fn depth_of(&self, pair: &GroupPartition, PartitionDepth { stats, due }: PartitionDepth) -> Depth {
        let held = self.broker.groups.held(pair).min(stats.in_flight);
        let mut depth = Depth {
            scheduled: stats.scheduled,
            ready: stats.ready + held,
            in_flight: stats.in_flight - held,
            dead: stats.dead,
            oldest_ready_age: stats.oldest_ready_age.unwrap_or_default(),
            ..Depth::default()
        };
        depth.due.iter_mut().zip(due).for_each(|(sum, due)| *sum = due);
        depth
    }

    /// Lets others have the store for as long as a call took, when that has come together to something.
    async fn rest(&mut self, asked: Instant) {
        let took = self.now().since(asked);
        self.busy = (self.busy.0 + took, self.busy.1 + took);
        if self.busy.1 >= TURN {
            let pause = std::mem::take(&mut self.busy.1);
            self.broker.clock().sleep(pause).await;
        }
    }

    /// Shows nothing, and lets another process count.
    async fn give_up(&mut self) {
        self.broker.metrics.census.end();
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

fn pairs_of(descriptor: &Descriptor) -> Vec<GroupPartition> {
    let groups = &descriptor.groups;
    descriptor.partitions().flat_map(|p| groups.iter().map(move |group| descriptor.pair(p, group))).collect()
}
