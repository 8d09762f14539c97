//! Metrics of store calls and write-ahead logs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::{Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{CALL_BUCKETS, Maker};
use crate::model::error::{Kind, Result};

#[derive(Debug)]
pub struct StoreMetrics {
    pub up: IntGauge,
    /// 1 while pushes go to the write-ahead log.
    info: IntGaugeVec,
    pub breaker_open: IntGauge,
    /// Local clock minus store clock, in seconds.
    pub clock_offset: Gauge,
    pub losses: IntCounter,
    pub restoring: IntGauge,
    pub restore_seconds: Histogram,
    calls: HistogramVec,
    errors: IntCounterVec,
    memory: MemoryFamilies,
}

/// The memory of one server of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse<'a> {
    pub node: &'a str,
    pub used_bytes: u64,
    /// 0 without a limit.
    pub max_bytes: u64,
    /// Since that server started.
    pub evicted_keys: u64,
    pub may_evict: bool,
}

#[derive(Debug)]
struct MemoryFamilies {
    used: IntGaugeVec,
    max: IntGaugeVec,
    may_evict: IntGaugeVec,
    evicted: IntCounterVec,
    /// The keys that each server had evicted when it was shown last.
    shown: Mutex<BTreeMap<String, u64>>,
}

impl MemoryFamilies {
    fn new(make: &Maker) -> Result<MemoryFamilies> {
        let labels = &["node"];
        Ok(MemoryFamilies {
            used: make.gauges(
                "dwell_redis_memory_used_bytes",
                labels,
                "memory that Redis uses, as it said in the last 2 s. Redis only, as all metrics with a `node`",
            )?,
            max: make.gauges("dwell_redis_memory_max_bytes", labels, "`maxmemory` of Redis; 0 without a limit")?,
            may_evict: make.gauges(
                "dwell_redis_may_evict",
                labels,
                "1 while Redis deletes messages when its memory is full, and `redis.allow_eviction` does not accept that: \
                 it is not used",
            )?,
            evicted: make.counters(
                "dwell_redis_evicted_keys_total",
                labels,
                "keys that Redis deleted to make room. Must not grow: they may have been messages",
            )?,
            shown: Mutex::default(),
        })
    }

    fn show(&self, nodes: &[MemoryUse<'_>]) {
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *shown);
        for MemoryUse { node, used_bytes, max_bytes, evicted_keys, may_evict } in nodes {
            let labels = &[*node];
            self.used.with_label_values(labels).set(whole(*used_bytes));
            self.max.with_label_values(labels).set(whole(*max_bytes));
            self.may_evict.with_label_values(labels).set(i64::from(*may_evict));
            // One that was restarted counts from 0.
            let known = before.remove(*node).filter(|known| known <= evicted_keys).unwrap_or(0);
            self.evicted.with_label_values(labels).inc_by(evicted_keys - known);
            shown.insert((*node).to_owned(), *evicted_keys);
        }
        for gone in before.keys() {
            // One that is not there is gone already.
            let _ = self.evicted.remove_label_values(&[gone.as_str()]);
            for family in [&self.used, &self.max, &self.may_evict] {
                let _ = family.remove_label_values(&[gone.as_str()]);
            }
        }
    }
}

impl StoreMetrics {
    /// Says which store it is.
    pub fn is_of(&self, kind: &str) {
        for known in ["redis", "embedded"] {
            self.info.with_label_values(&[known]).set(i64::from(known == kind));
        }
    }

    /// The servers of Redis that there are now. Others have no series any more.
    pub fn memory(&self, nodes: &[MemoryUse<'_>]) {
        self.memory.show(nodes);
    }

    pub(super) fn new(make: &Maker) -> Result<StoreMetrics> {
        Ok(StoreMetrics {
            up: make.gauge(
                "dwell_redis_up",
                "1 if the store, Redis or the embedded one, answered the last call, also with an error. Each scrape asks the store, and \
                 the next scrape shows the answer",
            )?,
            info: make.gauges("dwell_store_info", &["kind"], "1 for the `kind` of the store, `redis` or `embedded`, and 0 for the other")?,
            breaker_open: make.gauge(
                "dwell_breaker_open",
                "1 while pushes go to the write-ahead log: Redis is unavailable, or does not have all buffered pushes yet",
            )?,
            clock_offset: make.measure(
                "dwell_clock_offset_seconds",
                "how far the local clock is ahead of the store's, by the latest answers of the store; 5 s or more are logged",
            )?,
            losses: make.counter(
                "dwell_redis_losses_total",
                "how often this broker found that Redis had lost writes that it had confirmed",
            )?,
            restoring: make.gauge(
                "dwell_restoring",
                "1 while the brokers restore what Redis lost; until then no message is reserved",
            )?,
            restore_seconds: make.histogram(
                "dwell_restore_seconds",
                &CALL_BUCKETS,
                "time until all brokers had restored what Redis lost; observed at each start too",
            )?,
            calls: make.histograms(
                "dwell_redis_call_seconds",
                &["verb"],
                &CALL_BUCKETS,
                "how long calls to Redis took, by verb; `command` is a call without a script. Redis only",
            )?,
            errors: make.counters(
                "dwell_redis_errors_total",
                &["kind"],
                "calls to Redis that failed, by the kind of the error. Redis only",
            )?,
            memory: MemoryFamilies::new(make)?,
        })
    }

    pub fn expect(&self, verbs: impl IntoIterator<Item = &'static str>) {
        for verb in verbs {
            self.calls.with_label_values(&[verb]);
        }
        for kind in Kind::ALL {
            self.errors.with_label_values(&[kind.name()]);
        }
    }

    pub fn call(&self, verb: &str, took: Duration, failed: Option<Kind>) {
        self.calls.with_label_values(&[verb]).observe(took.as_secs_f64());
        if let Some(kind) = failed {
            self.errors.with_label_values(&[kind.name()]).inc();
        }
    }
}

#[derive(Debug, Clone)]
pub struct WalMetrics {
    pub records: IntGauge,
    pub bytes: IntGauge,
    pub limit: IntGauge,
    pub oldest_age: Gauge,
    pub fsync: Histogram,
    pub replayed: IntCounter,
    pub dropped: IntCounter,
    pub damaged: IntCounter,
    pub lost: IntCounter,
}

#[derive(Debug)]
pub(super) struct LogFamilies {
    records: IntGaugeVec,
    bytes: IntGaugeVec,
    limit: IntGaugeVec,
    oldest_age: GaugeVec,
    fsync: HistogramVec,
    replayed: IntCounterVec,
    dropped: IntCounterVec,
    damaged: IntCounterVec,
    lost: IntCounterVec,
}

impl LogFamilies {
    pub(super) fn new(make: &Maker) -> Result<LogFamilies> {
        let labels = &["log"];
        Ok(LogFamilies {
            records: make.gauges(
                "dwell_wal_records",
                labels,
                "records in the write-ahead log that are not in Redis yet (`wal`), or records of the journal. Redis only, as all `dwell_wal_` metrics",
            )?,
            bytes: make.gauges(
                "dwell_wal_bytes",
                labels,
                "bytes of a log on disk, also of records that are done and not deleted yet",
            )?,
            limit: make.gauges(
                "dwell_wal_limit_bytes",
                labels,
                "bytes that a log may have on disk, `wal.limit_bytes`; 0 for a journal that is not kept",
            )?,
            oldest_age: make.measures(
                "dwell_wal_oldest_age_seconds",
                labels,
                "age of the oldest record that waits in a log, or a little more",
            )?,
            fsync: make.histograms(
                "dwell_wal_fsync_seconds",
                labels,
                &CALL_BUCKETS,
                "how long it took to write a group of records and make it durable",
            )?,
            replayed: make.counters("dwell_wal_replayed_total", labels, "records of a log that went to Redis")?,
            dropped: make
                .counters("dwell_wal_dropped_total", labels, "records of a log whose topics were deleted meanwhile")?,
            damaged: make.counters(
                "dwell_wal_damaged_total",
                labels,
                "damages found in a log: unreadable records, gaps, files that are not read any more. Look at it if it is not 0",
            )?,
            lost: make.counters("dwell_wal_lost_total", labels, "records of a log that were lost to damage")?,
        })
    }

    pub(super) fn of(&self, log: &str) -> WalMetrics {
        let labels = &[log];
        WalMetrics {
            records: self.records.with_label_values(labels),
            bytes: self.bytes.with_label_values(labels),
            limit: self.limit.with_label_values(labels),
            oldest_age: self.oldest_age.with_label_values(labels),
            fsync: self.fsync.with_label_values(labels),
            replayed: self.replayed.with_label_values(labels),
            dropped: self.dropped.with_label_values(labels),
            damaged: self.damaged.with_label_values(labels),
            lost: self.lost.with_label_values(labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn evicted_keys_never_shrink_and_servers_that_left_have_no_series() -> Result<()> {
        let metrics = Metrics::new()?;
        let node = |node, evicted_keys| MemoryUse { node, used_bytes: 7, max_bytes: 9, evicted_keys, may_evict: false };
        let shown = |nodes: &[MemoryUse<'_>]| {
            metrics.store.memory(nodes);
            let text = metrics.text()?;
            let lines = text.lines().filter(|line| line.starts_with("dwell_redis_evicted_keys_total{"));
            Result::Ok(lines.map(str::to_owned).collect::<Vec<_>>().join(" "))
        };
        let is = |name: &str, count: u64| format!("dwell_redis_evicted_keys_total{{node=\"{name}\"}} {count}");
        assert_eq!(shown(&[node("a", 3), node("b", 0)])?, [is("a", 3), is("b", 0)].join(" "));
        assert_eq!(shown(&[node("a", 5)])?, is("a", 5));
        // It was restarted.
        assert_eq!(shown(&[node("a", 1)])?, is("a", 6));
        assert_eq!(shown(&[])?, "");
        Ok(())
    }
}
