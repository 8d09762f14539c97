//! The recent traffic of this broker, a sample for each step of the last 30 minutes.
//!
//! Counters are in memory, so a sample of an idle broker asks nobody. The backlog is counted in the store: of a topic
//! with traffic in the sample, and while somebody watches of all topics with traffic in the samples that are kept.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Broker;
use super::stats_collector::SCRAPED_LATELY;
use crate::model::error::Result;
use crate::model::message::TopicName;
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;
use crate::telemetry::metrics::Traffic;

const SAMPLES: usize = 180;
/// Topics of a sample, the busiest: all samples together take less than half a megabyte.
const TOPICS: usize = 40;

/// The events of a step, and the backlog at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Point {
    pub pushed: u32,
    pub delivered: u32,
    /// Of the deliveries, those that were not the first of their message.
    pub retried: u32,
    /// Deliveries that were given back unhandled.
    pub released: u32,
    pub expired: u32,
    /// Milliseconds that half of the deliveries, and 99 of 100, were late at most.
    pub lateness_ms: Option<[f32; 2]>,
    /// Messages that are due and not settled in the group that has most; `None` if the store did not answer.
    pub backlog: Option<u32>,
}

#[derive(Debug, Clone)]
pub struct Sample {
    /// Its end.
    pub at: Timestamp,
    pub total: Point,
    /// Partitions acquired with messages in flight: their owner ended without a stop.
    pub takeovers: u32,
    /// Topics with traffic or a backlog.
    pub topics: Vec<(Arc<str>, Point)>,
}

#[derive(Default)]
pub(super) struct TrafficLog(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    samples: VecDeque<Arc<Sample>>,
    watched: Option<Instant>,
}

impl TrafficLog {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, sample: Sample) {
        let samples = &mut self.kept().samples;
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(Arc::new(sample));
    }
}

impl Broker {
    /// The samples that ended after a time, oldest first. Asks nobody.
    pub fn traffic(&self, after: Option<Timestamp>) -> Vec<Arc<Sample>> {
        let mut kept = self.traffic.kept();
        kept.watched = Some(self.clock().instant());
        kept.samples.iter().filter(|sample| after.is_none_or(|after| sample.at > after)).cloned().collect()
    }

    /// The samples of the last `span`, oldest first.
    pub(super) fn recent(&self, span: Duration) -> Vec<Arc<Sample>> {
        let since = self.now().minus(span);
        self.traffic.kept().samples.iter().filter(|sample| sample.at > since).cloned().collect()
    }

    pub fn traffic_step(&self) -> Duration {
        self.options.traffic_step
    }

    fn is_watched(&self) -> bool {
        let seen = [*self.scrapes.subscribe().borrow(), self.traffic.kept().watched];
        seen.into_iter().flatten().any(|at| self.clock().instant().since(at) < SCRAPED_LATELY)
    }

    /// Messages that are due and not settled in the group that has most of them.
    async fn backlog(&self, topic: &str) -> Result<u64> {
        // It was deleted, or it is the label that others share.
        let Some(descriptor) = self.existing(&TopicName::new(topic)?).await? else { return Ok(0) };
        let read = self.reads.begin().await?;
        let stats = self.stats_in_store(&read, &descriptor, &descriptor.groups).await?;
        let mut groups = BTreeMap::<_, u64>::new();
        for (partition, stats) in &stats {
            *groups.entry(&partition.group).or_default() += stats.backlog();
        }
        Ok(groups.into_values().max().unwrap_or(0))
    }
}

pub(super) struct Sampler {
    broker: Broker,
    before: BTreeMap<String, Traffic>,
    takeovers: u64,
    topics: BTreeMap<Arc<str>, Topic>,
}

/// A topic with traffic in the samples that are kept.
#[derive(Default)]
struct Topic {
    idle_steps: usize,
    backlog: Option<u64>,
}

impl Sampler {
    pub(super) fn new(broker: Broker) -> Sampler {
        Sampler { broker, before: BTreeMap::new(), takeovers: 0, topics: BTreeMap::new() }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let step = self.broker.options.traffic_step;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = async { self.broker.clock().clone().sleep(step).await; self.step().await } => {}
            }
        }
    }

    async fn step(&mut self) {
        let grown = self.grown();
        let watched = self.broker.is_watched();
        for (name, topic) in &mut self.topics {
            if topic.idle_steps == 0 || watched {
                topic.backlog = self.broker.backlog(name).await.ok();
            }
        }
        let mut total = Traffic::default();
        grown.values().for_each(|traffic| total.add(traffic));
        let backlogs: Option<Vec<u64>> = self.topics.values().map(|topic| topic.backlog).collect();
        let at = self.broker.now();
        let total = point(&total, backlogs.map(|backlogs| backlogs.into_iter().sum()));
        let before = std::mem::replace(&mut self.takeovers, self.broker.metrics.ownership.takeovers.get());
        let takeovers = u32::try_from(self.takeovers - before).unwrap_or(u32::MAX);
        self.broker.traffic.add(Sample { at, total, takeovers, topics: self.points(&grown) });
    }

    /// The traffic of each topic since the step before.
    fn grown(&mut self) -> BTreeMap<String, Traffic> {
        let (now, none) = (self.broker.metrics.traffic(), Traffic::default());
        let since = |(name, traffic): (&String, &Traffic)| {
            (name.clone(), traffic.since(self.before.get(name).unwrap_or(&none)))
        };
        let grown: BTreeMap<String, Traffic> =
            now.iter().map(since).filter(|(_, traffic)| !traffic.is_idle()).collect();
        self.before = now;
        self.topics.values_mut().for_each(|topic| topic.idle_steps += 1);
        self.topics.retain(|_, topic| topic.idle_steps < SAMPLES);
        for name in grown.keys() {
            self.topics.entry(Arc::from(name.as_str())).or_default().idle_steps = 0;
        }
        grown
    }

    fn points(&self, grown: &BTreeMap<String, Traffic>) -> Vec<(Arc<str>, Point)> {
        let none = Traffic::default();
        let of = |(name, topic): (&Arc<str>, &Topic)| {
            let traffic = grown.get(name.as_ref()).unwrap_or(&none);
            (name.clone(), point(traffic, topic.backlog))
        };
        let mut points: Vec<_> = self.topics.iter().map(of).filter(|(_, point)| *point != QUIET).collect();
        points.sort_by_key(|(_, point)| Reverse((point.pushed.saturating_add(point.delivered), point.backlog)));
        points.truncate(TOPICS);
        points.shrink_to_fit();
        points
    }
}

const QUIET: Point =
    Point { pushed: 0, delivered: 0, retried: 0, released: 0, expired: 0, lateness_ms: None, backlog: Some(0) };

fn point(traffic: &Traffic, backlog: Option<u64>) -> Point {
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let late = |part| traffic.lateness(part).map(|late| late.as_secs_f32() * 1_000.0);
    Point {
        pushed: count(traffic.pushed),
        delivered: count(traffic.delivered),
        retried: count(traffic.retried),
        released: count(traffic.released),
        expired: count(traffic.expired),
        lateness_ms: late(0.5).zip(late(0.99)).map(|(p50, p99)| [p50, p99]),
        backlog: backlog.map(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_many_topics_take_less_than_half_a_megabyte() {
        let log = TrafficLog::default();
        for at in 0..SAMPLES as u64 + 5 {
            let topics = vec![(Arc::from("t"), QUIET); TOPICS];
            log.add(Sample { at: Timestamp::from_ms(at), total: QUIET, takeovers: 0, topics });
        }
        let kept = log.kept();
        assert_eq!((kept.samples.len(), kept.samples[0].at), (SAMPLES, Timestamp::from_ms(5)));
        assert!(SAMPLES * (size_of::<Sample>() + TOPICS * size_of::<(Arc<str>, Point)>()) < 450_000);
    }
}
