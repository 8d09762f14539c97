//! What a group counts, and what happens to the partitions that its members share.

use std::sync::Arc;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::registry::Maker;
use crate::model::error::Result;

/// Buckets for lateness, seconds: a millisecond matters, an hour is all the same.
const LATENESS_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3_600.0];

/// What a group counts.
#[derive(Debug)]
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
    pub unknown_outcome: IntCounter,
    pub dead_aged: IntCounter,
    pub dead_surplus: IntCounter,
    pub lateness: Histogram,
    pub handling: Histogram,
    pub leases_owned: IntGauge,
    pub waiting: IntGauge,
    pub demand: IntGauge,
}

/// What happens to partitions.
#[derive(Debug)]
pub struct OwnershipMetrics {
    /// Times that the members of a group changed.
    pub rebalances: IntCounter,
    /// Pairs taken over from an owner that left reservations behind.
    pub takeovers: IntCounter,
    /// Times that an owner found its pair under another epoch, or the store rewound.
    pub leases_lost: IntCounter,
    /// Ids found without a body, or bodies found nowhere: repaired, and a reason to look.
    pub repairs: IntCounter,
}

/// The families of groups.
#[derive(Debug)]
pub(super) struct GroupFamilies {
    deliveries: IntCounterVec,
    settled: IntCounterVec,
    dead_dropped: IntCounterVec,
    lateness: HistogramVec,
    handling: HistogramVec,
    leases_owned: IntGaugeVec,
    members_waiting: IntGaugeVec,
    demand: IntGaugeVec,
}

impl GroupFamilies {
    pub(super) fn new(make: &Maker) -> Result<GroupFamilies> {
        let labels = &["topic", "group"];
        Ok(GroupFamilies {
            deliveries: make.counters(
                "dwell_deliveries_total",
                &["topic", "group", "kind"],
                "messages handed out: `first` or `retry`",
            )?,
            settled: make.counters(
                "dwell_settled_total",
                &["topic", "group", "outcome"],
                "deliveries settled: `acked`, `nacked`, `buried`, `stale` (refused, nothing changed), `unknown_outcome` (the \
                 store did not answer before the partition was lost), each where its owner is and once, however often it \
                 is said, or where it was refused if the owner was not asked; `timed_out` (nacked at the deadline), \
                 `expired` (their `ttl` was over: dropped, or dead if the topic says so)",
            )?,
            dead_dropped: make.counters(
                "dwell_dead_dropped_total",
                &["topic", "group", "bound"],
                "dead messages dropped by their owner past the topic's `dead_max_age` (`age`) or `dead_max_count` (`count`)",
            )?,
            lateness: make.histograms(
                "dwell_lateness_seconds",
                labels,
                &LATENESS_BUCKETS,
                "from due, or due again, to hand-over. The promise to watch",
            )?,
            handling: make.histograms(
                "dwell_handling_seconds",
                labels,
                &LATENESS_BUCKETS,
                "from hand-over to ack: compare it with the visibility timeout",
            )?,
            leases_owned: make.gauges("dwell_leases_owned", labels, "partitions that this process owns")?,
            members_waiting: make.gauges(
                "dwell_members_waiting",
                labels,
                "1 while this broker has no partition because the group has more members than partitions",
            )?,
            demand: make.gauges(
                "dwell_group_demand",
                labels,
                "consumers of the group that wait at this broker: long polls, streams and webhooks",
            )?,
        })
    }

    /// All series of a group, at zero if it is new.
    pub(super) fn of(&self, topic: &str, group: &str) -> Arc<GroupMetrics> {
        let labels = &[topic, group];
        let handed_out = |kind| self.deliveries.with_label_values(&[topic, group, kind]);
        let settled = |outcome| self.settled.with_label_values(&[topic, group, outcome]);
        let dropped = |bound| self.dead_dropped.with_label_values(&[topic, group, bound]);
        Arc::new(GroupMetrics {
            first: handed_out("first"),
            retry: handed_out("retry"),
            acked: settled("acked"),
            nacked: settled("nacked"),
            timed_out: settled("timed_out"),
            expired: settled("expired"),
            buried: settled("buried"),
            stale: settled("stale"),
            unknown_outcome: settled("unknown_outcome"),
            dead_aged: dropped("age"),
            dead_surplus: dropped("count"),
            lateness: self.lateness.with_label_values(labels),
            handling: self.handling.with_label_values(labels),
            leases_owned: self.leases_owned.with_label_values(labels),
            waiting: self.members_waiting.with_label_values(labels),
            demand: self.demand.with_label_values(labels),
        })
    }
}

impl OwnershipMetrics {
    pub(super) fn new(make: &Maker) -> Result<OwnershipMetrics> {
        Ok(OwnershipMetrics {
            rebalances: make
                .counter("dwell_rebalances_total", "changes of the members of a group, as this broker saw them")?,
            takeovers: make.counter(
                "dwell_takeovers_total",
                "partitions acquired with messages that an older epoch had reserved: after a crash, not after a stop in \
                 order",
            )?,
            leases_lost: make.counter(
                "dwell_leases_lost_total",
                "epochs that ended because another one has the partition, or the store lost data",
            )?,
            repairs: make.counter(
                "dwell_repairs_total",
                "ids without a body and bodies without a place that were repaired. Must stay 0",
            )?,
        })
    }
}
