//! All metrics. The only user of prometheus.
//!
//! Labels are bounded: see [`TOPIC_LABELS_MAX`] and [`GROUP_LABELS_MAX`]. Where the values of a label are known, the series
//! exist at zero before the first event, so that a rate includes that event.

mod depth;
mod deliveries;
mod process;
mod store;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

use self::deliveries::{GroupFamilies, TopicFamilies};
pub use self::deliveries::{
    GroupMetrics, OwnershipMetrics, Quantile, RemoteDrop, RemoteMetrics, TopicMetrics, Traffic,
};
pub use self::depth::{Depth, StatsMetrics, Tally, WITHIN};
pub use self::process::{HttpMetrics, ProcessMetrics, SpanMetrics, WebhookMetrics};
use self::store::LogFamilies;
pub use self::store::{StoreMetrics, WalMetrics};
use crate::model::error::{Error, Result};
use crate::model::message::{GroupName, TopicName};

#[derive(Debug)]
pub struct Metrics {
    pub store: StoreMetrics,
    pub ownership: OwnershipMetrics,
    pub http: HttpMetrics,
    pub remote: RemoteMetrics,
    pub process: ProcessMetrics,
    pub stats: StatsMetrics,
    pub spans: SpanMetrics,
    topics: TopicFamilies,
    groups: GroupFamilies,
    logs: LogFamilies,
    known: Mutex<Labelled<Arc<TopicMetrics>, Arc<GroupMetrics>>>,
    registry: Registry,
    families: Vec<Family>,
}

impl Metrics {
    /// # Errors: [`crate::model::error::Kind::Bug`] when two metrics share a name.
    pub fn new() -> Result<Metrics> {
        let make = Maker::new();
        let (store, ownership) = (StoreMetrics::new(&make)?, OwnershipMetrics::new(&make)?);
        let (http, process, stats) = (HttpMetrics::new(&make)?, ProcessMetrics::new(&make)?, StatsMetrics::new(&make)?);
        let (remote, spans) = (RemoteMetrics::new(&make)?, SpanMetrics::new(&make)?);
        let (topics, groups, logs) = (TopicFamilies::new(&make)?, GroupFamilies::new(&make)?, LogFamilies::new(&make)?);
        let (registry, families) = make.made();
        let known = Mutex::default();
        Ok(Metrics {
            store,
            ownership,
            http,
            remote,
            process,
            stats,
            spans,
            topics,
            groups,
            logs,
            known,
            registry,
            families,
        })
    }

    pub fn topic(&self, topic: &TopicName) -> Arc<TopicMetrics> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.topics.get(topic.as_str()) {
            return there.own.clone();
        }
        known.topic(topic.as_str(), |label| self.topics.of(label)).clone()
    }

    pub fn group(&self, topic: &TopicName, group: &GroupName) -> Arc<GroupMetrics> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let of_topic = |label: &str| self.topics.of(label);
        known.group(topic.as_str(), group.as_str(), of_topic, |topic, group| self.groups.of(topic, group)).clone()
    }

    pub fn wal(&self, log: &'static str) -> WalMetrics {
        self.logs.of(log)
    }

    pub fn families(&self) -> &[Family] {
        &self.families
    }

    pub fn text(&self) -> Result<String> {
        let mut text = String::new();
        TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text).map_err(|error| bug(&error))?;
        Ok(text)
    }
}

/// docs/reference/metrics.md has a row for each, and a test compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    pub name: &'static str,
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

const CALL_BUCKETS: [f64; 12] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0];

struct Maker {
    registry: Registry,
    families: Mutex<Vec<Family>>,
}

type Labels = &'static [&'static str];

impl Maker {
    fn new() -> Maker {
        Maker { registry: Registry::new(), families: Mutex::default() }
    }

    fn made(self) -> (Registry, Vec<Family>) {
        let mut families = self.families.into_inner().unwrap_or_else(PoisonError::into_inner);
        families.sort_by_key(|family| family.name);
        (self.registry, families)
    }

    fn note(&self, name: &'static str, kind: &'static str, labels: Labels, help: &'static str) -> Opts {
        let family = Family { name, kind, labels, help };
        self.families.lock().unwrap_or_else(PoisonError::into_inner).push(family);
        Opts::new(name, help)
    }

    fn register<T: Collector + Clone + 'static>(&self, metric: prometheus::Result<T>) -> Result<T> {
        let metric = metric.map_err(|error| bug(&error))?;
        self.registry.register(Box::new(metric.clone())).map_err(|error| bug(&error))?;
        Ok(metric)
    }

    fn counter(&self, name: &'static str, help: &'static str) -> Result<IntCounter> {
        self.register(IntCounter::with_opts(self.note(name, "counter", &[], help)))
    }

    fn seconds(&self, name: &'static str, help: &'static str) -> Result<Counter> {
        self.register(Counter::with_opts(self.note(name, "counter", &[], help)))
    }

    fn counters(&self, name: &'static str, labels: Labels, help: &'static str) -> Result<IntCounterVec> {
        self.register(IntCounterVec::new(self.note(name, "counter", labels, help), labels))
    }

    fn gauge(&self, name: &'static str, help: &'static str) -> Result<IntGauge> {
        self.register(IntGauge::with_opts(self.note(name, "gauge", &[], help)))
    }

    fn measure(&self, name: &'static str, help: &'static str) -> Result<Gauge> {
        self.register(Gauge::with_opts(self.note(name, "gauge", &[], help)))
    }

    fn gauges(&self, name: &'static str, labels: Labels, help: &'static str) -> Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(self.note(name, "gauge", labels, help), labels))
    }

    fn measures(&self, name: &'static str, labels: Labels, help: &'static str) -> Result<GaugeVec> {
        self.register(GaugeVec::new(self.note(name, "gauge", labels, help), labels))
    }

    fn histogram(&self, name: &'static str, buckets: &[f64], help: &'static str) -> Result<Histogram> {
        let opts: HistogramOpts = self.note(name, "histogram", &[], help).into();
        self.register(Histogram::with_opts(opts.buckets(buckets.to_vec())))
    }

    fn histograms(
        &self,
        name: &'static str,
        labels: Labels,
        buckets: &[f64],
        help: &'static str,
    ) -> Result<HistogramVec> {
        let opts: HistogramOpts = self.note(name, "histogram", labels, help).into();
        self.register(HistogramVec::new(opts.buckets(buckets.to_vec()), labels))
    }
}

/// Prometheus refuses only mistakes of this module.
fn bug(error: &prometheus::Error) -> Error {
    Error::bug(error.to_string())
}

pub const TOPIC_LABELS_MAX: usize = 200;

pub const GROUP_LABELS_MAX: usize = 400;

pub const OTHER: &str = "other";

/// One value for each topic and each group, in the order of arrival; past the limits the rest share one.
#[derive(Debug)]
struct Labelled<T, G> {
    topics: HashMap<String, Topic<T, G>>,
    own_groups: usize,
}

#[derive(Debug)]
struct Topic<T, G> {
    own: T,
    groups: HashMap<String, G>,
}

impl<T, G> Topic<T, G> {
    fn new(own: T) -> Topic<T, G> {
        Topic { own, groups: HashMap::new() }
    }
}

impl<T, G> Default for Labelled<T, G> {
    fn default() -> Self {
        Labelled { topics: HashMap::new(), own_groups: 0 }
    }
}

impl<T, G> Labelled<T, G> {
    fn topic(&mut self, name: &str, make: impl FnOnce(&str) -> T) -> &mut T {
        let label = self.label(name);
        &mut self.topics.entry(label.to_owned()).or_insert_with(|| Topic::new(make(label))).own
    }

    /// Groups of topics that share a label share one too.
    fn group(
        &mut self,
        topic: &str,
        group: &str,
        make_topic: impl FnOnce(&str) -> T,
        make: impl FnOnce(&str, &str) -> G,
    ) -> &mut G {
        let (topic, full) = (self.label(topic), self.own_groups >= GROUP_LABELS_MAX);
        let groups = &mut self.topics.entry(topic.to_owned()).or_insert_with(|| Topic::new(make_topic(topic))).groups;
        let is_there = groups.contains_key(group);
        let group = if topic != OTHER && (is_there || !full) { group } else { OTHER };
        self.own_groups += usize::from(!is_there && group != OTHER);
        groups.entry(group.to_owned()).or_insert_with(|| make(topic, group))
    }

    fn groups(&self) -> impl Iterator<Item = ([&str; 2], &G)> {
        self.topics.iter().flat_map(|(topic, kept)| {
            kept.groups.iter().map(move |(group, of_group)| ([topic.as_str(), group.as_str()], of_group))
        })
    }

    fn label<'a>(&self, name: &'a str) -> &'a str {
        let own = self.topics.len() - usize::from(self.topics.contains_key(OTHER));
        if self.topics.contains_key(name) || own < TOPIC_LABELS_MAX { name } else { OTHER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_past_the_limits_share_one_series() {
        let mut labelled: Labelled<usize, usize> = Labelled::default();
        for n in 0..1_000_000 {
            *labelled.topic(&format!("t{n}"), |_| 0) += 1;
        }
        assert_eq!(labelled.topics.len(), TOPIC_LABELS_MAX + 1);
        assert_eq!(*labelled.topic("t1000000", |_| 0), 1_000_000 - TOPIC_LABELS_MAX);
    }

    #[test]
    fn total_group_series_are_limited() {
        let mut labelled: Labelled<(), usize> = Labelled::default();
        for topic in 0..TOPIC_LABELS_MAX + 50 {
            for group in 0..200 {
                *labelled.group(&format!("t{topic}"), &format!("g{group}"), |_| (), |_, _| 0) += 1;
            }
        }
        let all: Vec<_> = labelled.groups().collect();
        assert_eq!(all.len(), GROUP_LABELS_MAX + TOPIC_LABELS_MAX - 1);
        assert_eq!(all.iter().map(|(_, count)| **count).sum::<usize>(), (TOPIC_LABELS_MAX + 50) * 200);
        let of_others = all.iter().find(|([topic, _], _)| *topic == OTHER);
        assert_eq!(of_others.map(|(labels, count)| (*labels, **count)), Some(([OTHER, OTHER], 50 * 200)));
    }
}
