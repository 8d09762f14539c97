//! Metrics and traces.

pub mod metrics;
pub mod spans;
