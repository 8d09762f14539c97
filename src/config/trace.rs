//! Where spans go, in a configuration.

use super::reader::Reader;
use crate::spans::{ENDPOINT_ACCEPTED, Endpoint, SpanOptions};

/// The part of those messages that is traced whose producers said nothing about a trace, unless it is given.
const RATIO: f64 = 0.01;

/// The configuration of traces.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceConfig {
    /// An OTLP/HTTP receiver; without one no spans are made.
    pub endpoint: Option<Endpoint>,
    /// 0 to 1: the part of those messages that is traced whose producers said nothing about a trace.
    pub ratio: f64,
}

impl TraceConfig {
    /// Where spans go, if they are made.
    pub fn options(&self) -> Option<SpanOptions> {
        Some(SpanOptions { endpoint: self.endpoint.clone()?, ratio: self.ratio })
    }
}

impl Reader<'_> {
    /// Where spans go.
    pub(super) fn trace(&mut self) -> TraceConfig {
        let parse = |text: &str| Endpoint::parse(text).map(Some);
        let endpoint = self.parsed("trace.otlp_endpoint", ENDPOINT_ACCEPTED, None, parse);
        TraceConfig { endpoint, ratio: self.number("trace.sample_ratio", 0.0..=1.0, RATIO) }
    }
}
