//! Metrics of topics, groups, partition ownership, and decisions on deliveries of other brokers.

use std::sync::Arc;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::Maker;
use crate::model::error::Result;

/// Seconds: a millisecond matters, an hour hardly.
pub(super) const LATENESS_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3_600.0];

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
    pub dead_forwarded: IntCounter,
    pub purged: IntCounter,
    pub purged_dead: IntCounter,
    pub lateness: Histogram,
    pub handling: Histogram,
    pub leases_owned: IntGauge,
    pub waiting: IntGauge,
    pub demand: IntGauge,
}

#[derive(Debug)]
pub struct OwnershipMetrics {
    pub rebalances: IntCounter,
    pub takeovers: IntCounter,
    /// The partition had another epoch, or the store lost data.
    pub leases_lost: IntCounter,
    /// Ids without a body or bodies without an id. Must stay 0.
    pub repairs: IntCounter,
}

#[derive(Debug)]
pub(super) struct GroupFamilies {
    deliveries: IntCounterVec,
    settled: IntCounterVec,
    dead_dropped: IntCounterVec,
    dead_forwarded: IntCounterVec,
    purged: IntCounterVec,
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
                "deliveries settled: `acked`, `nacked`, `buried`, `timed_out` (nacked at the deadline), `expired` (their `ttl` \
                 was over: dropped, or dead if the topic says so), `stale` (refused, nothing changed), `unknown_outcome` \
                 (the partition was lost before the store answered). The owner of the partition counts a decision once, \
                 also if it is repeated; a refusal counts at the broker that answers it",
            )?,
            dead_dropped: make.counters(
                "dwell_dead_dropped_total",
                &["topic", "group", "bound"],
                "dead letters dropped by their owner past the topic's `dead_max_age` (`age`) or `dead_max_count` (`count`)",
            )?,
            dead_forwarded: make.counters(
                "dwell_dead_forwarded_total",
                labels,
                "dead letters that their owner moved to the topic in the topic's `dead_letter`",
            )?,
            purged: make.counters(
                "dwell_purged_total",
                &["topic", "group", "kind"],
                "messages that purges of this broker deleted: `message` (scheduled, ready or in flight) or `dead_letter`",
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

    pub(super) fn of(&self, topic: &str, group: &str) -> Arc<GroupMetrics> {
        let labels = &[topic, group];
        let handed_out = |kind| self.deliveries.with_label_values(&[topic, group, kind]);
        let settled = |outcome| self.settled.with_label_values(&[topic, group, outcome]);
        let purged = |kind| self.purged.with_label_values(&[topic, group, kind]);
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
            dead_forwarded: self.dead_forwarded.with_label_values(labels),
            purged: purged("message"),
            purged_dead: purged("dead_letter"),
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
                "leases lost: another broker acquired the partition, or the store lost data",
            )?,
            repairs: make.counter(
                "dwell_repairs_total",
                "ids without a body and bodies without a place that were repaired. Must stay 0",
            )?,
        })
    }
}

#[derive(Debug)]
#[allow(missing_docs)] // The names are the label values.
pub struct TopicMetrics {
    pub stored: IntCounter,
    pub journaled: IntCounter,
    pub buffered: IntCounter,
    pub duplicate: IntCounter,
    pub replaced: IntCounter,
    pub debounced: IntCounter,
    pub failed: IntCounter,
    pub fired: IntCounter,
    pub missed: IntCounter,
    pub occurrence_duplicate: IntCounter,
}

#[derive(Debug)]
pub(super) struct TopicFamilies {
    pushes: IntCounterVec,
    occurrences: IntCounterVec,
}

impl TopicFamilies {
    pub(super) fn new(make: &Maker) -> Result<TopicFamilies> {
        Ok(TopicFamilies {
            pushes: make.counters(
                "dwell_pushes_total",
                &["topic", "outcome"],
                "messages pushed: `stored`, `journaled`, `buffered` (on the local disk, because Redis is unavailable), \
                 `duplicate`, `replaced`, `debounced`, `failed` (answered 5xx)",
            )?,
            occurrences: make.counters(
                "dwell_cron_occurrences_total",
                &["topic", "outcome"],
                "occurrences of cron jobs: `fired` by this broker, `duplicate` of a message with the same id and not \
                 pushed, or `missed` and passed over (of more than 100 at a time not all are counted)",
            )?,
        })
    }

    pub(super) fn of(&self, topic: &str) -> Arc<TopicMetrics> {
        let pushed = |outcome| self.pushes.with_label_values(&[topic, outcome]);
        let occurred = |outcome| self.occurrences.with_label_values(&[topic, outcome]);
        Arc::new(TopicMetrics {
            stored: pushed("stored"),
            journaled: pushed("journaled"),
            buffered: pushed("buffered"),
            duplicate: pushed("duplicate"),
            replaced: pushed("replaced"),
            debounced: pushed("debounced"),
            failed: pushed("failed"),
            fired: occurred("fired"),
            missed: occurred("missed"),
            occurrence_duplicate: occurred("duplicate"),
        })
    }
}

#[derive(Debug)]
pub struct RemoteMetrics {
    answered: IntCounter,
    unanswered: IntCounter,
    dropped: IntCounterVec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteDrop {
    Invalid,
    Expired,
    Full,
}

impl RemoteDrop {
    const ALL: [RemoteDrop; 3] = [RemoteDrop::Invalid, RemoteDrop::Expired, RemoteDrop::Full];

    fn name(self) -> &'static str {
        match self {
            RemoteDrop::Invalid => "invalid",
            RemoteDrop::Expired => "expired",
            RemoteDrop::Full => "full",
        }
    }
}

impl RemoteMetrics {
    pub(super) fn new(make: &Maker) -> Result<RemoteMetrics> {
        let requests = make.counters(
            "dwell_remote_requests_total",
            &["outcome"],
            "requests to the brokers that own the partitions of receipts, sent through the store: `answered`, or `failed` (the \
             consumer was told `unreachable` or `unknown_outcome`)",
        )?;
        let dropped = make.counters(
            "dwell_remote_dropped_total",
            &["reason"],
            "datagrams for this broker that were dropped: `invalid` (dwell did not write it), `expired`, or `full` (too many \
             at once)",
        )?;
        for reason in RemoteDrop::ALL {
            dropped.with_label_values(&[reason.name()]);
        }
        Ok(RemoteMetrics {
            answered: requests.with_label_values(&["answered"]),
            unanswered: requests.with_label_values(&["failed"]),
            dropped,
        })
    }

    pub fn request(&self, answered: bool) {
        if answered { &self.answered } else { &self.unanswered }.inc();
    }

    pub fn dropped(&self, reason: RemoteDrop) {
        self.dropped.with_label_values(&[reason.name()]).inc();
    }
}
