//! Metrics of topics, groups, partition ownership, and decisions on deliveries of other brokers; and the traffic of each
//! topic, which is the sum of them over all its groups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Metric;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{Maker, Metrics};
use crate::model::error::Result;

/// Seconds: a millisecond matters, an hour hardly.
pub(super) const LATENESS_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 300.0, 3_600.0];

/// Seconds: around 10 ms, the target, and 100 ms, the promise; a minute is a reason to look.
const ASKED_BUCKETS: [f64; 11] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 10.0, 60.0];

/// Seconds: the usual pauses between polls, and a minute.
const UNASKED_BUCKETS: [f64; 9] = [0.1, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0];

/// Seconds: usual visibility timeouts have bounds on both sides, from 5 s to an hour.
const HANDLING_BUCKETS: [f64; 14] =
    [0.01, 0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0];

#[derive(Debug)]
#[allow(missing_docs)] // The names are the label values.
pub struct GroupMetrics {
    pub first: IntCounter,
    pub retry: IntCounter,
    pub acked: IntCounter,
    pub nacked: IntCounter,
    pub released: IntCounter,
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
    pub lateness_asked: Histogram,
    pub lateness_unasked: Histogram,
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

const OUTCOMES: [&str; 8] =
    ["acked", "nacked", "released", "timed_out", "expired", "buried", "stale", "unknown_outcome"];

const PUSHES: [&str; 7] = ["stored", "journaled", "buffered", "duplicate", "replaced", "debounced", "failed"];

const OCCURRENCES: [&str; 3] = ["fired", "missed", "duplicate"];

#[derive(Debug)]
pub(super) struct GroupFamilies {
    deliveries: IntCounterVec,
    settled: IntCounterVec,
    dead_dropped: IntCounterVec,
    dead_forwarded: IntCounterVec,
    purged: IntCounterVec,
    lateness: HistogramVec,
    lateness_asked: HistogramVec,
    lateness_unasked: HistogramVec,
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
                "messages delivered: `first` or `retry` attempts",
            )?,
            settled: make.counters(
                "dwell_settled_total",
                &["topic", "group", "outcome"],
                "deliveries settled: `acked`, `nacked`, `released` (given back unhandled), `buried`, `timed_out` (the deadline \
                 passed), `expired` (their `ttl` was over: dropped, or dead if the topic says so), `stale` (refused, nothing changed), `unknown_outcome` \
                 (the partition was lost before the store answered). The owner of the partition counts a decision once, \
                 even if it gets it twice; the broker that answers counts a refusal",
            )?,
            dead_dropped: make.counters(
                "dwell_dead_dropped_total",
                &["topic", "group", "bound"],
                "dead letters that their owner deleted, because of the topic's `dead_max_age` (`age`) or `dead_max_count` (`count`)",
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
                "time from due, or due again, to the delivery; the sum of the next two, unless the message waited for an earlier one of its key",
            )?,
            lateness_asked: make.histograms(
                "dwell_lateness_asked_seconds",
                labels,
                &ASKED_BUCKETS,
                "the part of the lateness in which a consumer waited at the broker, and no pause or limit held the message back: dwell's \
                 part. Watch this one: 99 of 100 should be below 10 ms",
            )?,
            lateness_unasked: make.histograms(
                "dwell_lateness_unasked_seconds",
                labels,
                &UNASKED_BUCKETS,
                "the rest of the lateness, in which no consumer asked, or a pause or a limit held the message back: the consumers' part",
            )?,
            handling: make.histograms(
                "dwell_handling_seconds",
                labels,
                &HANDLING_BUCKETS,
                "time from the delivery to the ack: compare it with the visibility timeout",
            )?,
            leases_owned: make.gauges("dwell_leases_owned", labels, "partitions that this broker owns")?,
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

    /// All series of a group; what [`GroupFamilies::of`] makes.
    pub(super) fn remove(&self, topic: &str, group: &str) {
        let kinds = [
            (&self.deliveries, &["first", "retry"][..]),
            (&self.settled, &OUTCOMES),
            (&self.dead_dropped, &["age", "count"]),
            (&self.purged, &["message", "dead_letter"]),
        ];
        for (family, kinds) in kinds {
            // One that is not there is gone already.
            kinds.iter().for_each(|kind| drop(family.remove_label_values(&[topic, group, kind])));
        }
        let labels = &[topic, group];
        let _ = self.dead_forwarded.remove_label_values(labels);
        for family in [&self.lateness, &self.lateness_asked, &self.lateness_unasked, &self.handling] {
            let _ = family.remove_label_values(labels);
        }
        for family in [&self.leases_owned, &self.members_waiting, &self.demand] {
            let _ = family.remove_label_values(labels);
        }
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
            released: settled("released"),
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
            lateness_asked: self.lateness_asked.with_label_values(labels),
            lateness_unasked: self.lateness_unasked.with_label_values(labels),
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
                "times of cron jobs: `fired` (this broker pushed the message), `duplicate` (not pushed, since a message has its id), or \
                 `missed` (not pushed in time and not later; of more than 100 at once not all are counted)",
            )?,
        })
    }

    /// All series of a topic; what [`TopicFamilies::of`] makes.
    pub(super) fn remove(&self, topic: &str) {
        for (family, outcomes) in [(&self.pushes, &PUSHES[..]), (&self.occurrences, &OCCURRENCES)] {
            // One that is not there is gone already.
            outcomes.iter().for_each(|outcome| drop(family.remove_label_values(&[topic, outcome])));
        }
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
            "questions to brokers that own the partitions of receipts, sent through the store: `answered`, or `failed` (the \
             consumer got the verdict `unreachable` or `unknown_outcome`)",
        )?;
        let dropped = make.counters(
            "dwell_remote_dropped_total",
            &["reason"],
            "messages of other brokers to this one that it dropped: `invalid` (dwell did not write it), `expired`, or `full` (too \
             many at once)",
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

const BOUNDS: usize = LATENESS_BUCKETS.len();

/// The events of a topic since the process started, or between two moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Pushes that were answered 2xx.
    pub pushed: u64,
    pub delivered: u64,
    /// Of the deliveries, those that were not the first of their message.
    pub retried: u64,
    /// Deliveries that were given back unhandled.
    pub released: u64,
    /// Deliveries that ended, in whatever way.
    pub settled: u64,
    pub expired: u64,
    /// Deliveries that were at most as late as each bound, and all.
    late: [u64; BOUNDS + 1],
}

impl Traffic {
    pub fn add(&mut self, other: &Traffic) {
        self.pushed += other.pushed;
        self.delivered += other.delivered;
        self.retried += other.retried;
        self.released += other.released;
        self.settled += other.settled;
        self.expired += other.expired;
        self.late.iter_mut().zip(other.late).for_each(|(sum, late)| *sum += late);
    }

    pub fn since(&self, before: &Traffic) -> Traffic {
        let mut late = self.late;
        late.iter_mut().zip(before.late).for_each(|(now, then)| *now = now.saturating_sub(then));
        Traffic {
            pushed: self.pushed.saturating_sub(before.pushed),
            delivered: self.delivered.saturating_sub(before.delivered),
            retried: self.retried.saturating_sub(before.retried),
            released: self.released.saturating_sub(before.released),
            settled: self.settled.saturating_sub(before.settled),
            expired: self.expired.saturating_sub(before.expired),
            late,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.pushed + self.delivered + self.settled == 0
    }

    /// How late this part of the deliveries was at most, 0 to 1; the greatest bound stands for all above it. `None`
    /// without deliveries.
    pub fn lateness(&self, part: f64) -> Option<Duration> {
        let bounds = LATENESS_BUCKETS.into_iter().chain([f64::INFINITY]);
        let counts = bounds.zip(self.late).map(|(bound, count)| (bound, count as f64));
        Quantile::of(counts, part).map(|late| Duration::from_secs_f64(late.at_least()))
    }

    fn count_topic(&mut self, topic: &TopicMetrics) {
        let TopicMetrics { stored, journaled, buffered, duplicate, replaced, debounced, .. } = topic;
        let accepted = [stored, journaled, buffered, duplicate, replaced, debounced];
        self.pushed += accepted.into_iter().map(|counter| counter.get()).sum::<u64>();
    }

    fn count_group(&mut self, group: &GroupMetrics) {
        let GroupMetrics { first, retry, acked, nacked, released, timed_out, expired, buried, lateness, .. } = group;
        self.delivered += first.get() + retry.get();
        self.retried += retry.get();
        self.released += released.get();
        let ended = [acked, nacked, released, timed_out, expired, buried];
        self.settled += ended.into_iter().map(|counter| counter.get()).sum::<u64>();
        self.expired += expired.get();
        self.late.iter_mut().zip(counts(lateness)).for_each(|(sum, late)| *sum += late);
    }
}

fn counts(histogram: &Histogram) -> impl Iterator<Item = u64> {
    let metric = histogram.metric();
    let histogram = metric.get_histogram();
    let buckets: Vec<u64> = histogram.get_bucket().iter().map(|bucket| bucket.cumulative_count()).collect();
    buckets.into_iter().chain([histogram.get_sample_count()])
}

impl Metrics {
    /// The traffic of each topic since the process started, by its label.
    pub fn traffic(&self) -> BTreeMap<String, Traffic> {
        let known = self.known();
        let traffic = known.topics().map(|(label, topic)| {
            let mut traffic = Traffic::default();
            traffic.count_topic(&topic.own);
            topic.groups.values().for_each(|group| traffic.count_group(&group.own));
            (label.clone(), traffic)
        });
        traffic.collect()
    }
}

/// A value, such as a span in seconds, that a part of all reached at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantile {
    About(f64),
    /// More than the greatest bound that is finite.
    Beyond(f64),
}

impl Quantile {
    /// The value below which this part is, 0 to 1, from how many were at most each bound: between two bounds in proportion.
    /// The bounds rise, and all are below the last one. `None` of nothing.
    pub fn of(counts: impl Iterator<Item = (f64, f64)> + Clone, part: f64) -> Option<Quantile> {
        let (_, total) = counts.clone().last()?;
        let wanted = total * part;
        let (mut below, mut under) = (0.0, 0.0);
        for (bound, count) in counts {
            if count >= wanted && total > 0.0 {
                let within = if count > under { (wanted - under) / (count - under) } else { 1.0 };
                let about = Quantile::About(below + (bound - below) * within);
                return Some(if bound.is_infinite() { Quantile::Beyond(below) } else { about });
            }
            (below, under) = (bound, count);
        }
        None
    }

    /// The value, or the bound that is known to be less.
    pub fn at_least(self) -> f64 {
        match self {
            Quantile::About(value) | Quantile::Beyond(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;
    use crate::model::message::{GroupName, TopicName};

    #[test]
    fn traffic_is_summed_over_groups_between_two_samples() -> Result<()> {
        let (metrics, topic) = (Metrics::new()?, TopicName::new("orders")?);
        metrics.topic(&topic).stored.inc_by(3);
        metrics.topic(&topic).failed.inc();
        let before = metrics.traffic();
        assert_eq!((before["orders"].pushed, before["orders"].is_idle()), (3, false));
        for group in ["default", "audit"] {
            let group = metrics.group(&topic, &GroupName::new(group)?);
            group.first.inc();
            group.retry.inc();
            group.acked.inc();
            group.lateness.observe(0.002);
            group.lateness.observe(7_200.0);
        }
        let now = metrics.traffic()["orders"].since(&before["orders"]);
        assert_eq!((now.pushed, now.delivered, now.retried, now.settled), (0, 4, 2, 2));
        assert_eq!(now.lateness(0.5), Some(Duration::from_millis(2)));
        assert_eq!(now.lateness(0.99), Some(Duration::from_secs(3_600)));
        assert_eq!(before["orders"].lateness(0.5), None);
        Ok(())
    }

    #[test]
    fn deleted_topic_leaves_no_series_once_it_was_scraped() -> Result<()> {
        let (metrics, topic, group) = (Metrics::new()?, TopicName::new("orders")?, GroupName::new("default")?);
        let none = metrics.text()?;
        metrics.topic(&topic).stored.inc();
        let held = metrics.group(&topic, &group);
        metrics.deleted(&topic);
        assert!(metrics.text()?.contains("topic=\"orders\""));
        assert!(metrics.text()?.contains("topic=\"orders\""), "its last deliveries are still counted");
        drop(held);
        metrics.text()?;
        let families = |text: &str| text.lines().filter(|line| line.contains("topic=")).count();
        assert_eq!((families(&metrics.text()?), families(&none)), (0, 0));
        // It comes back.
        metrics.topic(&topic).stored.inc();
        assert!(metrics.text()?.contains("dwell_pushes_total{outcome=\"stored\",topic=\"orders\"} 1"));
        Ok(())
    }

    #[test]
    fn deleted_topics_leave_room_for_new_ones_without_a_scrape() -> Result<()> {
        let metrics = Metrics::new()?;
        let name = |n: usize| TopicName::new(format!("ci-{n}"));
        for n in 0..5 * super::super::TOPIC_LABELS_MAX {
            metrics.topic(&name(n)?).stored.inc();
            metrics.group(&name(n)?, &GroupName::standard()).acked.inc();
            metrics.deleted(&name(n)?);
        }
        let orders = TopicName::new("orders")?;
        metrics.topic(&orders).stored.inc();
        metrics.group(&orders, &GroupName::standard()).acked.inc();
        let text = metrics.text()?;
        for series in [
            "dwell_pushes_total{outcome=\"stored\",topic=\"orders\"} 1",
            "dwell_settled_total{group=\"default\",outcome=\"acked\",topic=\"orders\"} 1",
        ] {
            assert!(text.contains(series), "{text}");
        }
        assert!(!text.contains("topic=\"other\""), "none had to share a label");
        Ok(())
    }
}
