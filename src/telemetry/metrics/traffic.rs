//! The traffic of each topic, over all its groups, as the counters have it.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use prometheus::Histogram;
use prometheus::core::Metric;

use super::Metrics;
use super::deliveries::{GroupMetrics, LATENESS_BUCKETS, TopicMetrics};
use crate::model::quantile::Quantile;

const BOUNDS: usize = LATENESS_BUCKETS.len();

/// The events of a topic since the process started, or between two moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Pushes that were answered 2xx.
    pub pushed: u64,
    pub delivered: u64,
    /// Of the deliveries, those that were not the first of their message.
    pub retried: u64,
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
        let GroupMetrics { first, retry, acked, nacked, timed_out, expired, buried, lateness, .. } = group;
        self.delivered += first.get() + retry.get();
        self.retried += retry.get();
        self.settled +=
            [acked, nacked, timed_out, expired, buried].into_iter().map(|counter| counter.get()).sum::<u64>();
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
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let traffic = known.topics.iter().map(|(label, topic)| {
            let mut traffic = Traffic::default();
            traffic.count_topic(&topic.own);
            topic.groups.values().for_each(|group| traffic.count_group(group));
            (label.clone(), traffic)
        });
        traffic.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;
    use crate::model::message::{GroupName, TopicName};

    #[test]
    fn traffic_is_summed_over_groups_and_is_the_difference_of_two_moments() -> Result<()> {
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
}
