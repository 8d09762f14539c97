//! Every metric. The only user of prometheus.
//!
//! Labels are bounded: see [`TOPIC_LABELS_MAX`] and [`GROUP_LABELS_MAX`]. Where the values of a label are known the series
//! are there, at zero, before the first event: a rate that is looked at sees that one too.

mod depth;
mod groups;
mod http;
mod labels;
mod logs;
mod registry;
mod process;
mod remote;
mod spans;
mod store;
mod topics;

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{Registry, TextEncoder};

pub use self::depth::{CensusMetrics, Depth, Tally, WITHIN};
use self::groups::GroupFamilies;
pub use self::groups::{GroupMetrics, OwnershipMetrics};
pub use self::http::{HttpMetrics, WebhookMetrics};
use self::labels::Labelled;
pub use self::labels::{GROUP_LABELS_MAX, OTHER, TOPIC_LABELS_MAX};
use self::logs::LogFamilies;
pub use self::logs::WalMetrics;
pub use self::process::ProcessMetrics;
pub use self::registry::Family;
use self::registry::Maker;
pub use self::remote::{RemoteDrop, RemoteMetrics};
pub use self::spans::SpanMetrics;
pub use self::store::StoreMetrics;
use self::topics::TopicFamilies;
pub use self::topics::TopicMetrics;
use crate::model::error::Result;
use crate::model::message::{GroupName, TopicName};

/// The metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    /// The store.
    pub store: StoreMetrics,
    /// What happens to partitions.
    pub ownership: OwnershipMetrics,
    /// Requests.
    pub http: HttpMetrics,
    /// Decisions about deliveries of other brokers.
    pub remote: RemoteMetrics,
    /// The process itself.
    pub process: ProcessMetrics,
    /// What the store holds.
    pub census: CensusMetrics,
    /// What becomes of spans.
    pub spans: SpanMetrics,
    topics: TopicFamilies,
    groups: GroupFamilies,
    logs: LogFamilies,
    /// The series of what has series of its own, and of the rest.
    known: Mutex<Labelled<Arc<TopicMetrics>, Arc<GroupMetrics>>>,
    registry: Registry,
    families: Vec<Family>,
}

impl Metrics {
    /// All metrics at zero. # Errors: [`crate::model::error::Kind::Bug`] when two metrics share a name.
    pub fn new() -> Result<Metrics> {
        let make = Maker::new();
        let (store, ownership) = (StoreMetrics::new(&make)?, OwnershipMetrics::new(&make)?);
        let (http, process, census) =
            (HttpMetrics::new(&make)?, ProcessMetrics::new(&make)?, CensusMetrics::new(&make)?);
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
            census,
            spans,
            topics,
            groups,
            logs,
            known,
            registry,
            families,
        })
    }

    /// The series of a topic. Asking makes them.
    pub fn topic(&self, topic: &TopicName) -> Arc<TopicMetrics> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.topic(topic.as_str(), |label| self.topics.of(label)).clone()
    }

    /// The series of a group of a topic. Asking makes them.
    pub fn group(&self, topic: &TopicName, group: &GroupName) -> Arc<GroupMetrics> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let of_topic = |label: &str| self.topics.of(label);
        known.group(topic.as_str(), group.as_str(), of_topic, |topic, group| self.groups.of(topic, group)).clone()
    }

    /// The series of a write-ahead log, `wal` or `journal`.
    pub fn wal(&self, log: &'static str) -> WalMetrics {
        self.logs.of(log)
    }

    /// Every family, by name.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// The Prometheus text format.
    pub fn text(&self) -> Result<String> {
        let mut text = String::new();
        TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text).map_err(|error| registry::bug(&error))?;
        Ok(text)
    }
}
