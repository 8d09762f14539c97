//! Every metric. The only user of prometheus.
//!
//! Labels are bounded: topics past [`TOPIC_LABELS_MAX`] share the label `other`.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

use crate::error::{Error, Kind, Result};
use crate::message::{GroupName, TopicName};

/// Topics (and groups) with series of their own.
pub const TOPIC_LABELS_MAX: usize = 200;

/// Buckets for lateness: a millisecond matters, an hour is all the same.
const LATENESS_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3_600.0];

/// Buckets for calls and requests.
const CALL_BUCKETS: [f64; 12] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0];

/// Buckets for POSTs to applications: from a local answer to the longest timeout anyone should set.
const POST_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0];

/// The metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    labels: Mutex<HashSet<String>>,
    pushes: IntCounterVec,
    deliveries: IntCounterVec,
    settled: IntCounterVec,
    dead_dropped: IntCounterVec,
    occurrences: IntCounterVec,
    lateness: HistogramVec,
    handling: HistogramVec,
    messages: IntGaugeVec,
    oldest_ready_age: GaugeVec,
    leases_owned: IntGaugeVec,
    members_waiting: IntGaugeVec,
    /// Times that the members of a group changed.
    pub rebalances: IntCounter,
    /// Pairs taken over from an owner that left reservations behind.
    pub takeovers: IntCounter,
    /// Times that an owner found its pair under another epoch, or the store rewound.
    pub leases_lost: IntCounter,
    /// Ids found without a body, or bodies found nowhere: repaired, and a reason to look.
    pub repairs: IntCounter,
    /// Times that the store was another run or replica than before, and may have lost what it had answered.
    pub losses: IntCounter,
    /// 1 while the store answers.
    pub store_up: IntGauge,
    /// Local clock minus store clock, in seconds.
    pub clock_offset: Gauge,
    store_calls: HistogramVec,
    store_errors: IntCounterVec,
    http_requests: IntCounterVec,
    http_seconds: HistogramVec,
    forwards: IntCounterVec,
    spans: IntCounterVec,
    webhook_requests: IntCounterVec,
    webhook_seconds: HistogramVec,
    /// Open HTTP connections.
    pub http_connections: IntGauge,
    logs: LogFamilies,
}

/// The metrics of all write-ahead logs.
#[derive(Debug)]
struct LogFamilies {
    records: IntGaugeVec,
    bytes: IntGaugeVec,
    oldest_age: GaugeVec,
    fsync: HistogramVec,
    replayed: IntCounterVec,
    dropped: IntCounterVec,
    damaged: IntCounterVec,
    lost: IntCounterVec,
}

impl Metrics {
    /// All metrics at zero. # Errors: [`Kind::Bug`] when two metrics share a name.
    pub fn new() -> Result<Metrics> {
        let make = Maker(Registry::new());
        let spans = |name, help| make.histograms(name, help, &["topic", "group"], &LATENESS_BUCKETS);
        let metrics = Metrics {
            pushes: make.counters("dwell_pushes_total", "Messages pushed, by outcome.", &["topic", "outcome"])?,
            deliveries: make.counters("dwell_deliveries_total", "Messages handed out.", &["topic", "group", "kind"])?,
            settled: make.counters("dwell_settled_total", "Deliveries settled.", &["topic", "group", "outcome"])?,
            occurrences: make.counters("dwell_schedule_occurrences_total", "By outcome.", &["topic", "outcome"])?,
            dead_dropped: make.counters(
                "dwell_dead_dropped_total",
                "Dead past a bound.",
                &["topic", "group", "bound"],
            )?,
            lateness: spans("dwell_lateness_seconds", "From due to hand-over.")?,
            handling: spans("dwell_handling_seconds", "From hand-over to ack.")?,
            messages: make.gauges("dwell_messages", "Messages by state.", &["topic", "group", "state"])?,
            oldest_ready_age: make.register(GaugeVec::new(
                Opts::new("dwell_oldest_ready_age_seconds", "Age of the oldest ready message."),
                &["topic", "group"],
            ))?,
            leases_owned: make.gauges("dwell_leases_owned", "Partitions owned.", &["topic", "group"])?,
            members_waiting: make.gauges(
                "dwell_members_waiting",
                "1 while this member has no partition because there are more members than partitions.",
                &["topic", "group"],
            )?,
            rebalances: make.counter("dwell_rebalances_total", "Changes of the members of a group.")?,
            takeovers: make.counter("dwell_takeovers_total", "Pairs taken over with reservations of another epoch.")?,
            leases_lost: make.counter("dwell_leases_lost_total", "Epochs lost to another owner or a data loss.")?,
            repairs: make
                .counter("dwell_repairs_total", "Ids without body or bodies without place that were repaired.")?,
            losses: make.counter("dwell_redis_losses_total", "Times that the store may have lost data.")?,
            store_up: make.gauge("dwell_redis_up", "1 while the store answers.")?,
            clock_offset: make.register(Gauge::new(
                "dwell_clock_offset_seconds",
                "How far the local clock is ahead of the store's.",
            ))?,
            store_calls: make.histograms("dwell_redis_call_seconds", "Store calls.", &["verb"], &CALL_BUCKETS)?,
            store_errors: make.counters("dwell_redis_errors_total", "Failed calls to the store.", &["kind"])?,
            http_requests: make.counters("dwell_http_requests_total", "HTTP requests answered.", &["route", "code"])?,
            http_seconds: make.histograms("dwell_http_request_seconds", "HTTP requests.", &["route"], &CALL_BUCKETS)?,
            forwards: make.counters("dwell_forwards_total", "Receipts forwarded, by outcome.", &["outcome"])?,
            spans: make.counters("dwell_spans_total", "Spans of traces, by what became of them.", &["outcome"])?,
            webhook_requests: make.counters(
                "dwell_webhook_requests_total",
                "POSTs of webhooks, by outcome: ok, gone, refused, timed_out, failed.",
                &["topic", "group", "outcome"],
            )?,
            webhook_seconds: make.histograms(
                "dwell_webhook_request_seconds",
                "POSTs of webhooks, to the end of the answer.",
                &["topic", "group"],
                &POST_BUCKETS,
            )?,
            http_connections: make.gauge("dwell_http_connections", "Open HTTP connections.")?,
            logs: LogFamilies::new(&make)?,
            labels: Mutex::default(),
            registry: make.0.clone(),
        };
        make.info()?;
        for kind in Kind::ALL {
            metrics.store_errors.with_label_values(&[kind.name()]);
        }
        Ok(metrics)
    }

    /// Counts a request to another broker.
    pub fn forward(&self, answered: bool) {
        self.forwards.with_label_values(&[if answered { "answered" } else { "failed" }]).inc();
    }

    /// What becomes of spans.
    pub fn spans(&self) -> SpanMetrics {
        let outcome = |name| self.spans.with_label_values(&[name]);
        SpanMetrics { exported: outcome("exported"), failed: outcome("failed"), dropped: outcome("dropped") }
    }

    /// The series of one topic.
    pub fn topic(&self, topic: &TopicName) -> TopicMetrics {
        let topic = self.label(topic.as_str());
        let outcome = |name| self.pushes.with_label_values(&[topic.as_str(), name]);
        TopicMetrics {
            stored: outcome("stored"),
            duplicate: outcome("duplicate"),
            replaced: outcome("replaced"),
            debounced: outcome("debounced"),
            journaled: outcome("journaled"),
            buffered: outcome("buffered"),
            failed: outcome("failed"),
        }
    }

    /// The series of one group of a topic.
    pub fn group(&self, topic: &TopicName, group: &GroupName) -> GroupMetrics {
        let topic = self.label(topic.as_str());
        let group = self.label(group.as_str());
        let labels = [topic.as_str(), group.as_str()];
        let settled = |name| self.settled.with_label_values(&[labels[0], labels[1], name]);
        GroupMetrics {
            first: self.deliveries.with_label_values(&[labels[0], labels[1], "first"]),
            retry: self.deliveries.with_label_values(&[labels[0], labels[1], "retry"]),
            acked: settled("acked"),
            nacked: settled("nacked"),
            timed_out: settled("timed_out"),
            expired: settled("expired"),
            buried: settled("buried"),
            stale: settled("stale"),
            dead_aged: self.dead_dropped.with_label_values(&[labels[0], labels[1], "age"]),
            dead_surplus: self.dead_dropped.with_label_values(&[labels[0], labels[1], "count"]),
            lateness: self.lateness.with_label_values(&labels),
            handling: self.handling.with_label_values(&labels),
            leases_owned: self.leases_owned.with_label_values(&labels),
            waiting: self.members_waiting.with_label_values(&labels),
        }
    }

    /// Sets how many messages of a group are in each state, and how old the oldest ready one is.
    pub fn set_depth(&self, topic: &TopicName, group: &GroupName, states: &[(&str, u64)], oldest_ready_age: Duration) {
        let topic = self.label(topic.as_str());
        let group = self.label(group.as_str());
        for (state, count) in states {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            self.messages.with_label_values(&[topic.as_str(), group.as_str(), state]).set(count);
        }
        self.oldest_ready_age.with_label_values(&[&topic, &group]).set(oldest_ready_age.as_secs_f64());
    }

    /// Counts occurrences of schedules: messages that this process pushed, and occurrences that were passed over.
    pub fn fired(&self, topic: &TopicName, messages: u64, passed_over: u64) {
        let topic = self.label(topic.as_str());
        self.occurrences.with_label_values(&[topic.as_str(), "fired"]).inc_by(messages);
        self.occurrences.with_label_values(&[topic.as_str(), "missed"]).inc_by(passed_over);
    }

    /// Counts a call to the store.
    pub fn store_call(&self, verb: &str, took: Duration, failed: Option<Kind>) {
        self.store_calls.with_label_values(&[verb]).observe(took.as_secs_f64());
        if let Some(kind) = failed {
            self.store_errors.with_label_values(&[kind.name()]).inc();
        }
    }

    /// Counts an answered HTTP request. `route` is a pattern, never a path.
    pub fn http_request(&self, route: &str, code: u16, took: Duration) {
        self.http_requests.with_label_values(&[route, &code.to_string()]).inc();
        self.http_seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    /// Counts a POST of a webhook.
    pub fn webhook_request(&self, topic: &TopicName, group: &GroupName, outcome: &str, took: Duration) {
        let (topic, group) = (self.label(topic.as_str()), self.label(group.as_str()));
        self.webhook_requests.with_label_values(&[topic.as_str(), group.as_str(), outcome]).inc();
        self.webhook_seconds.with_label_values(&[&topic, &group]).observe(took.as_secs_f64());
    }

    /// The series of one write-ahead log, `wal` or `journal`.
    pub fn wal(&self, log: &'static str) -> WalMetrics {
        WalMetrics {
            records: self.logs.records.with_label_values(&[log]),
            bytes: self.logs.bytes.with_label_values(&[log]),
            oldest_age: self.logs.oldest_age.with_label_values(&[log]),
            fsync: self.logs.fsync.with_label_values(&[log]),
            replayed: self.logs.replayed.with_label_values(&[log]),
            dropped: self.logs.dropped.with_label_values(&[log]),
            damaged: self.logs.damaged.with_label_values(&[log]),
            lost: self.logs.lost.with_label_values(&[log]),
        }
    }

    /// The Prometheus text format.
    pub fn text(&self) -> Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).map_err(|error| Error::bug(error.to_string()))?;
        String::from_utf8(text).map_err(|error| Error::bug(error.to_string()))
    }

    fn label(&self, name: &str) -> String {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if labels.contains(name) || (labels.len() < TOPIC_LABELS_MAX && labels.insert(name.to_owned())) {
            name.to_owned()
        } else {
            "other".to_owned()
        }
    }
}

impl LogFamilies {
    fn new(make: &Maker) -> Result<LogFamilies> {
        Ok(LogFamilies {
            records: make.gauges("dwell_wal_records", "Records that wait to be replayed.", &["log"])?,
            bytes: make.gauges("dwell_wal_bytes", "Bytes of all segments on disk.", &["log"])?,
            oldest_age: make.register(GaugeVec::new(
                Opts::new("dwell_wal_oldest_age_seconds", "Age of the oldest record that waits."),
                &["log"],
            ))?,
            fsync: make.histograms(
                "dwell_wal_fsync_seconds",
                "Writing a group of records and making it durable.",
                &["log"],
                &CALL_BUCKETS,
            )?,
            replayed: make.counters("dwell_wal_replayed_total", "Records given to the store.", &["log"])?,
            dropped: make.counters("dwell_wal_dropped_total", "Records of topics that were deleted.", &["log"])?,
            damaged: make.counters("dwell_wal_damaged_total", "Damages found.", &["log"])?,
            lost: make.counters("dwell_wal_lost_total", "Records that damage took.", &["log"])?,
        })
    }
}

/// What a topic counts.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // The names are the label values.
pub struct TopicMetrics {
    pub stored: IntCounter,
    pub journaled: IntCounter,
    pub duplicate: IntCounter,
    pub replaced: IntCounter,
    pub debounced: IntCounter,
    pub buffered: IntCounter,
    pub failed: IntCounter,
}

/// What a group counts.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // The names are the label values.
pub struct GroupMetrics {
    pub first: IntCounter,
    pub retry: IntCounter,
    pub acked: IntCounter,
    pub nacked: IntCounter,
    pub timed_out: IntCounter,
    pub expired: IntCounter,
    pub buried: IntCounter,
    pub stale: IntCounter,
    pub dead_aged: IntCounter,
    pub dead_surplus: IntCounter,
    pub lateness: Histogram,
    pub handling: Histogram,
    pub leases_owned: IntGauge,
    pub waiting: IntGauge,
}

/// What becomes of spans.
#[derive(Debug, Clone)]
pub struct SpanMetrics {
    /// Taken by the receiver.
    pub exported: IntCounter,
    /// Not taken by the receiver.
    pub failed: IntCounter,
    /// Made while too many waited.
    pub dropped: IntCounter,
}

/// What a write-ahead log counts.
#[derive(Debug, Clone)]
pub struct WalMetrics {
    /// Records that wait.
    pub records: IntGauge,
    /// Bytes on disk.
    pub bytes: IntGauge,
    /// Age of the oldest record, seconds.
    pub oldest_age: Gauge,
    /// How long it took to make a group durable, seconds.
    pub fsync: Histogram,
    /// Records that the store took.
    pub replayed: IntCounter,
    /// Records of topics that were deleted meanwhile.
    pub dropped: IntCounter,
    /// Damages found.
    pub damaged: IntCounter,
    /// Records that damage took.
    pub lost: IntCounter,
}

/// Makes metrics and registers them.
struct Maker(Registry);

impl Maker {
    fn register<T: prometheus::core::Collector + Clone + 'static>(&self, metric: prometheus::Result<T>) -> Result<T> {
        let bug = |error: prometheus::Error| Error::bug(error.to_string());
        let metric = metric.map_err(bug)?;
        self.0.register(Box::new(metric.clone())).map_err(bug)?;
        Ok(metric)
    }

    fn info(&self) -> Result<()> {
        let info = self.gauges("dwell_build_info", "1; the version is the label.", &["version"])?;
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(())
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter> {
        self.register(IntCounter::new(name, help))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge> {
        self.register(IntGauge::new(name, help))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Result<HistogramVec> {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_past_the_limit_share_a_label() -> Result<()> {
        let metrics = Metrics::new()?;
        for n in 0..TOPIC_LABELS_MAX + 50 {
            metrics.topic(&TopicName::new(format!("t{n}"))?).stored.inc();
        }
        let text = metrics.text()?;
        let series = text.lines().filter(|l| l.starts_with("dwell_pushes_total") && l.contains("stored")).count();
        assert_eq!(series, TOPIC_LABELS_MAX + 1);
        assert!(text.contains(r#"dwell_pushes_total{outcome="stored",topic="other"} 50"#), "{text}");
        Ok(())
    }
}
