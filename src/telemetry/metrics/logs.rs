//! What a write-ahead log counts.

use prometheus::{Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::registry::{CALL_BUCKETS, Maker};
use crate::model::error::Result;

/// What a write-ahead log counts.
#[derive(Debug, Clone)]
pub struct WalMetrics {
    /// Records that wait.
    pub records: IntGauge,
    /// Bytes on disk.
    pub bytes: IntGauge,
    /// Bytes that it may have on disk.
    pub limit: IntGauge,
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

/// The families of all write-ahead logs.
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
                "records that wait in a write-ahead log, `wal` or `journal`. Redis only, as for all that begins with `dwell_wal_`",
            )?,
            bytes: make.gauges(
                "dwell_wal_bytes",
                labels,
                "bytes of the segments of a log on disk, records that are done but not yet deleted included",
            )?,
            limit: make.gauges(
                "dwell_wal_limit_bytes",
                labels,
                "bytes that a log may have on disk, `wal.limit_bytes`; 0 for a journal that is not kept",
            )?,
            oldest_age: make.measures(
                "dwell_wal_oldest_age_seconds",
                labels,
                "how long the oldest record of a log waits, or a little more",
            )?,
            fsync: make.histograms(
                "dwell_wal_fsync_seconds",
                labels,
                &CALL_BUCKETS,
                "how long it took to write a group of records and make it durable",
            )?,
            replayed: make.counters("dwell_wal_replayed_total", labels, "records of a log that Redis took")?,
            dropped: make
                .counters("dwell_wal_dropped_total", labels, "records of a log whose topics were deleted meanwhile")?,
            damaged: make.counters(
                "dwell_wal_damaged_total",
                labels,
                "damages found in a log: unreadable records, gaps, segments set aside; anything but 0 is a reason to look",
            )?,
            lost: make.counters("dwell_wal_lost_total", labels, "records of a log that damage took")?,
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
