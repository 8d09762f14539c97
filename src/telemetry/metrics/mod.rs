//! All metrics. The only user of prometheus.
//!
//! Labels are bounded: see `labels`. Where the values of a label are known, the series
//! exist at zero before the first event, so that a rate includes that event.

mod depth;
mod deliveries;
mod labels;
mod process;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

use self::deliveries::{GroupFamilies, TopicFamilies};
pub use self::deliveries::{
    GroupMetrics, OwnershipMetrics, Quantile, RemoteDrop, RemoteMetrics, TopicMetrics, Traffic,
};
pub use self::depth::{Depth, KeyDepth, StatsMetrics, Tally, WITHIN};
use self::labels::Labelled;
pub use self::labels::{GROUP_LABELS_MAX, OTHER, TOPIC_LABELS_MAX};
pub use self::process::{HttpMetrics, ProcessMetrics, SpanMetrics, WebhookMetrics};
use self::store::LogFamilies;
pub use self::store::{MemoryUse, StoreMetrics, WalMetrics};
use crate::model::error::{Error, Result};
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::Descriptor;
use crate::platform::clock::{Clock, Instant};

type Known = Labelled<Arc<TopicMetrics>, Arc<GroupMetrics>>;

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
    known: Mutex<Known>,
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
        let (name, now) = (topic.as_str(), Clock::System.instant());
        let mut known = self.known();
        self.make_room(&mut known, name, None, now);
        known.topic(name, now, |label| self.topics.of(label)).clone()
    }

    pub fn group(&self, topic: &TopicName, group: &GroupName) -> Arc<GroupMetrics> {
        let (topic, group, now) = (topic.as_str(), group.as_str(), Clock::System.instant());
        let mut known = self.known();
        self.make_room(&mut known, topic, Some(group), now);
        let of_topic = |label: &str| self.topics.of(label);
        known.group(topic, group, now, of_topic, |topic, group| self.groups.of(topic, group)).clone()
    }

    /// A topic is there, with its groups: their series are too, so that a rate sees the first event of each.
    pub fn exists(&self, topic: &Descriptor) {
        self.topic(&topic.topic);
        for group in &topic.groups {
            self.group(&topic.topic, group);
        }
        let has_group = |name: &str| topic.groups.iter().any(|group| group.as_str() == name);
        self.known().exists(topic.topic.as_str(), has_group);
    }

    /// A topic is there no more: its series end once they are scraped, or once others need the room.
    pub fn deleted(&self, topic: &TopicName) {
        self.known().deleted(topic.as_str());
    }

    fn make_room(&self, known: &mut Known, topic: &str, group: Option<&str>, now: Instant) {
        if known.wants_place(topic, group, now) {
            self.remove(known, now, true);
        }
    }

    /// Ends series, but for those that somebody holds: their counts would be lost.
    fn remove(&self, known: &mut Known, now: Instant, idle: bool) {
        let is_free = (
            |own: &Arc<TopicMetrics>| Arc::strong_count(own) == 1,
            |own: &Arc<GroupMetrics>| Arc::strong_count(own) == 1,
        );
        for freed in known.free(now, idle, is_free) {
            for group in &freed.groups {
                self.groups.remove(&freed.topic, group);
            }
            if freed.is_whole {
                self.topics.remove(&freed.topic);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.remove(&mut self.known(), Clock::System.instant(), false);
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

/// Seconds: from a call on the same machine to the longest timeout of a call.
const CALL_BUCKETS: [f64; 15] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

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
