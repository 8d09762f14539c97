//! Where spans go, in a configuration.

use std::path::PathBuf;

use super::reader::Reader;
use crate::telemetry::spans::{ENDPOINT_ACCEPTED, Endpoint, SpanOptions};

/// The part of those messages that is traced whose producers said nothing about a trace, unless it is given.
const RATIO: f64 = 0.01;

/// The configuration of traces.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceConfig {
    /// An OTLP/HTTP receiver; without one no spans are made.
    pub endpoint: Option<Endpoint>,
    /// What its certificate has to follow from.
    pub ca_file: Option<PathBuf>,
    /// 0 to 1: the part of those messages that is traced whose producers said nothing about a trace.
    pub ratio: f64,
}

impl TraceConfig {
    /// Where spans go, if they are made.
    pub fn options(&self) -> Option<SpanOptions> {
        let (endpoint, ca_file) = (self.endpoint.clone()?, self.ca_file.clone());
        Some(SpanOptions { endpoint, ca_file, ratio: self.ratio })
    }
}

impl Reader<'_> {
    /// Where spans go.
    pub(super) fn trace(&mut self) -> TraceConfig {
        let parse = |text: &str| Endpoint::parse(text).map(Some);
        let endpoint = self.parsed("trace.otlp_endpoint", ENDPOINT_ACCEPTED, None, parse);
        let ca_file = self.certificates("trace.otlp_ca_file");
        TraceConfig { endpoint, ca_file, ratio: self.number("trace.sample_ratio", 0.0..=1.0, RATIO) }
    }
}
