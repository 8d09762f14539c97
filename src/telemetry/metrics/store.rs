//! Calls to the store, and whether it is there.

use std::time::Duration;

use prometheus::{Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge};

use super::registry::{CALL_BUCKETS, Maker};
use crate::model::error::{Kind, Result};

/// The metrics of a store.
#[derive(Debug)]
pub struct StoreMetrics {
    /// 1 while the store answers.
    pub up: IntGauge,
    /// 1 while pushes go to the write-ahead log because the store is away.
    pub breaker_open: IntGauge,
    /// Local clock minus store clock, in seconds.
    pub clock_offset: Gauge,
    /// Times that the store was another run or replica than before, and may have lost what it had answered.
    pub losses: IntCounter,
    /// 1 while what the store lost is being given back.
    pub restoring: IntGauge,
    /// How long it took until everything was given back.
    pub restore_seconds: Histogram,
    calls: HistogramVec,
    errors: IntCounterVec,
}

impl StoreMetrics {
    pub(super) fn new(make: &Maker) -> Result<StoreMetrics> {
        Ok(StoreMetrics {
            up: make.gauge(
                "dwell_redis_up",
                "1 while the store answered last, whichever store it is; a look at the metrics asks it, for the next look",
            )?,
            breaker_open: make.gauge(
                "dwell_breaker_open",
                "1 while pushes go to the write-ahead log because Redis is away, or has not yet taken what waits there",
            )?,
            clock_offset: make.measure(
                "dwell_clock_offset_seconds",
                "how far the local clock is ahead of the store's, as the store's last answers said; 5 s are logged",
            )?,
            losses: make.counter(
                "dwell_redis_losses_total",
                "times that Redis came back as another run or replica, or with a smaller offset: it may have lost its last \
                 writes",
            )?,
            restoring: make.gauge(
                "dwell_restoring",
                "1 while the brokers give back what Redis lost; no message is reserved meanwhile",
            )?,
            restore_seconds: make.histogram(
                "dwell_restore_seconds",
                &CALL_BUCKETS,
                "how long it took until all brokers had given back what Redis lost; one at each start, too",
            )?,
            calls: make.histograms(
                "dwell_redis_call_seconds",
                &["verb"],
                &CALL_BUCKETS,
                "how long calls to Redis took, by verb; `command` is what is no script. Redis only",
            )?,
            errors: make.counters(
                "dwell_redis_errors_total",
                &["kind"],
                "calls to Redis that failed, by the kind of the error. Redis only",
            )?,
        })
    }

    /// Gives every verb and every kind of error its series: a store that counts its calls has them from the start.
    pub fn expect(&self, verbs: impl IntoIterator<Item = &'static str>) {
        for verb in verbs {
            self.calls.with_label_values(&[verb]);
        }
        for kind in Kind::ALL {
            self.errors.with_label_values(&[kind.name()]);
        }
    }

    /// Counts a call.
    pub fn call(&self, verb: &str, took: Duration, failed: Option<Kind>) {
        self.calls.with_label_values(&[verb]).observe(took.as_secs_f64());
        if let Some(kind) = failed {
            self.errors.with_label_values(&[kind.name()]).inc();
        }
    }
}
