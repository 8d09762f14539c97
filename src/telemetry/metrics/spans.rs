//! What becomes of spans.

use prometheus::IntCounter;

use super::registry::Maker;
use crate::model::error::Result;

/// What becomes of spans.
#[derive(Debug)]
pub struct SpanMetrics {
    /// Taken by the receiver.
    pub exported: IntCounter,
    /// Not taken by the receiver.
    pub failed: IntCounter,
    /// Made while too many waited.
    pub dropped: IntCounter,
}

impl SpanMetrics {
    pub(super) fn new(make: &Maker) -> Result<SpanMetrics> {
        let spans = make.counters(
            "dwell_spans_total",
            &["outcome"],
            "spans of traces: `exported`, `failed` (the receiver did not take them), `dropped` (too many waited)",
        )?;
        let outcome = |name| spans.with_label_values(&[name]);
        Ok(SpanMetrics { exported: outcome("exported"), failed: outcome("failed"), dropped: outcome("dropped") })
    }
}
