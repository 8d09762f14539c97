//! What a topic counts.

use std::sync::Arc;

use prometheus::{IntCounter, IntCounterVec};

use super::registry::Maker;
use crate::model::error::Result;

/// What a topic counts.
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

/// The families of topics.
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
                "messages pushed: `stored`, `journaled`, `buffered` (on the local disk, because Redis is away), \
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

    /// All series of a topic, at zero if it is new.
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
