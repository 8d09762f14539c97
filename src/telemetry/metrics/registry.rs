//! Making metrics, registering them, and remembering what each family is called and means.

use std::sync::{Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry,
};

use crate::model::error::{Error, Result};

/// One family: docs/reference/metrics.md has a row for each, and a test compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The names of its labels, in the order of the page.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

/// Buckets for calls and requests, seconds.
pub(super) const CALL_BUCKETS: [f64; 12] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0];

/// Makes metrics and registers them.
pub(super) struct Maker {
    registry: Registry,
    families: Mutex<Vec<Family>>,
}

type Labels = &'static [&'static str];

impl Maker {
    pub(super) fn new() -> Maker {
        Maker { registry: Registry::new(), families: Mutex::default() }
    }

    /// What was made: where it is read, and what it is.
    pub(super) fn made(self) -> (Registry, Vec<Family>) {
        let mut families = self.families.into_inner().unwrap_or_else(PoisonError::into_inner);
        families.sort_by_key(|family| family.name);
        (self.registry, families)
    }

    /// Notes what a family is. The text format shows the help in one line.
    pub(super) fn note(&self, name: &'static str, kind: &'static str, labels: Labels, help: &'static str) -> Opts {
        let family = Family { name, kind, labels, help };
        self.families.lock().unwrap_or_else(PoisonError::into_inner).push(family);
        Opts::new(name, help)
    }

    /// Registers what shows noted families. # Errors: [`crate::model::error::Kind::Bug`] when two metrics share a name.
    pub(super) fn register<T: Collector + Clone + 'static>(&self, metric: prometheus::Result<T>) -> Result<T> {
        let metric = metric.map_err(|error| bug(&error))?;
        self.registry.register(Box::new(metric.clone())).map_err(|error| bug(&error))?;
        Ok(metric)
    }

    pub(super) fn counter(&self, name: &'static str, help: &'static str) -> Result<IntCounter> {
        self.register(IntCounter::with_opts(self.note(name, "counter", &[], help)))
    }

    /// A counter of seconds.
    pub(super) fn seconds(&self, name: &'static str, help: &'static str) -> Result<Counter> {
        self.register(Counter::with_opts(self.note(name, "counter", &[], help)))
    }

    pub(super) fn counters(&self, name: &'static str, labels: Labels, help: &'static str) -> Result<IntCounterVec> {
        self.register(IntCounterVec::new(self.note(name, "counter", labels, help), labels))
    }

    pub(super) fn gauge(&self, name: &'static str, help: &'static str) -> Result<IntGauge> {
        self.register(IntGauge::with_opts(self.note(name, "gauge", &[], help)))
    }

    /// A gauge that is no whole number.
    pub(super) fn measure(&self, name: &'static str, help: &'static str) -> Result<Gauge> {
        self.register(Gauge::with_opts(self.note(name, "gauge", &[], help)))
    }

    pub(super) fn gauges(&self, name: &'static str, labels: Labels, help: &'static str) -> Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(self.note(name, "gauge", labels, help), labels))
    }

    /// Gauges that are no whole numbers.
    pub(super) fn measures(&self, name: &'static str, labels: Labels, help: &'static str) -> Result<GaugeVec> {
        self.register(GaugeVec::new(self.note(name, "gauge", labels, help), labels))
    }

    pub(super) fn histogram(&self, name: &'static str, buckets: &[f64], help: &'static str) -> Result<Histogram> {
        let opts: HistogramOpts = self.note(name, "histogram", &[], help).into();
        self.register(Histogram::with_opts(opts.buckets(buckets.to_vec())))
    }

    pub(super) fn histograms(
        &self,
        name: &'static str,
        labels: Labels,
        buckets: &[f64],
        help: &'static str,
    ) -> Result<HistogramVec> {
        let opts: HistogramOpts = self.note(name, "histogram", labels, help).into();
        self.register(HistogramVec::new(opts.buckets(buckets.to_vec()), labels))
    }
}

/// Prometheus refuses only what is wrong in this module.
pub(super) fn bug(error: &prometheus::Error) -> Error {
    Error::bug(error.to_string())
}
