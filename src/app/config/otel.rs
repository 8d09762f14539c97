//! The environment variables of OpenTelemetry: they count where dwell's own keys are not given.

use std::ffi::OsString;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use super::TraceConfig;
use crate::platform::secret::Secret;
use crate::telemetry::spans::{Endpoint, SERVICE};

/// The path that a receiver has for spans.
const TRACES: &str = "/v1/traces";

/// The environment of a process. Errors: a variable and what is wrong with it.
pub(super) struct Variables<'a>(pub(super) &'a [(OsString, OsString)]);

impl Variables<'_> {
    /// The value of the first of these variables that is set and not empty.
    fn get(&self, names: &[&'static str]) -> Option<(&'static str, &str)> {
        let one = |wanted: &&'static str| {
            let value = self.0.iter().find(|(name, _)| name == *wanted).and_then(|(_, value)| value.to_str());
            value.map(str::trim).filter(|value| !value.is_empty()).map(|value| (*wanted, value))
        };
        names.iter().find_map(one)
    }

    /// Whether nothing is to be exported.
    pub(super) fn are_off(&self) -> bool {
        let is = |names: &[&'static str], wanted: &str| {
            self.get(names).is_some_and(|(_, value)| value.eq_ignore_ascii_case(wanted))
        };
        is(&["OTEL_SDK_DISABLED"], "true") || is(&["OTEL_TRACES_EXPORTER"], "none")
    }

    /// Errors: as [`Variables`]. A protocol that dwell does not speak is none: whoever sets it for a whole machine does not mean dwell.
    pub(super) fn endpoint(&self) -> Result<Option<Endpoint>, (&'static str, String)> {
        let protocol = self.get(&["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]);
        if protocol.is_some_and(|(_, protocol)| protocol != "http/json") {
            return Ok(None);
        }
        let name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        if let Some((name, whole)) = self.get(&[name]) {
            let base = whole.strip_suffix(TRACES).ok_or_else(|| (name, format!("does not end with {TRACES}")))?;
            return Endpoint::parse(base).map(Some).map_err(|why| (name, why));
        }
        let parse = |(name, url): (_, &str)| Endpoint::parse(url).map_err(|why| (name, why));
        self.get(&["OTEL_EXPORTER_OTLP_ENDPOINT"]).map(parse).transpose()
    }

    pub(super) fn ca_file(&self) -> Option<PathBuf> {
        let names = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
        self.get(&names).map(|(_, path)| PathBuf::from(path))
    }

    /// The fraction of messages that are sampled without a trace of their producer.
    pub(super) fn ratio(&self) -> Option<f64> {
        let (_, sampler) = self.get(&["OTEL_TRACES_SAMPLER"])?;
        match sampler.trim_start_matches("parentbased_") {
            "always_on" => Some(1.0),
            "always_off" => Some(0.0),
            "traceidratio" => {
                let ratio = self.get(&["OTEL_TRACES_SAMPLER_ARG"]).map_or(Ok(1.0), |(_, arg)| arg.parse::<f64>());
                ratio.ok().filter(|ratio| (0.0..=1.0).contains(ratio))
            }
            _ => None,
        }
    }

    /// Completes a configuration with what has no key of dwell.
    pub(super) fn complete(&self, trace: TraceConfig) -> TraceConfig {
        let pairs = |names: &[&'static str]| self.get(names).map(|(_, text)| pairs(text)).unwrap_or_default();
        let mut resource = pairs(&["OTEL_RESOURCE_ATTRIBUTES"]);
        let of_resource = resource.iter().position(|(name, _)| name == "service.name");
        let of_resource = of_resource.map(|at| resource.remove(at).1);
        let service = self.get(&["OTEL_SERVICE_NAME"]).map(|(_, name)| name.to_owned()).or(of_resource);
        let headers = pairs(&["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"]);
        let headers = headers.into_iter().map(|(name, value)| (name, Secret::from(value))).collect();
        TraceConfig { service: service.unwrap_or_else(|| SERVICE.to_owned()), resource, headers, ..trace }
    }
}

/// `a=b,c=d`, with values in percent-encoding; what has no `=` is left out.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_owned(), percent_decode_str(value.trim()).decode_utf8_lossy().into_owned()))
            .filter(|(name, _)| !name.is_empty())
    };
    text.split(',').filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(given: &[(&str, &str)], read: impl FnOnce(&Variables<'_>) -> T) -> T {
        let env: Vec<_> = given.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        read(&Variables(&env))
    }

    #[test]
    fn endpoints_are_those_of_open_telemetry() {
        let endpoint = |given: &[(&str, &str)]| {
            with(given, |variables| variables.endpoint().map(|found| found.map(|endpoint| endpoint.to_string())))
        };
        let (base, traces) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        assert_eq!(endpoint(&[]), Ok(None));
        assert_eq!(endpoint(&[(base, "http://a:4318")]), Ok(Some("http://a:4318".to_owned())));
        let both = [(base, "http://a:4318"), (traces, "http://b:4318/v1/traces")];
        assert_eq!(endpoint(&both), Ok(Some("http://b:4318".to_owned())));
        assert_eq!(endpoint(&[(base, "http://a:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]), Ok(None));
        assert_eq!(endpoint(&[(traces, "http://b")]).err().map(|(name, _)| name), Some(traces));
        assert!(endpoint(&[(base, "grpc://a")]).is_err());
        for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert!(with(&[off], |variables| variables.are_off()));
        }
        assert!(!with(&[("OTEL_SDK_DISABLED", "false")], |variables| variables.are_off()));
    }

    #[test]
    fn samplers_are_fractions() {
        let ratio = |sampler, arg| {
            with(&[("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", arg)], |variables| variables.ratio())
        };
        assert_eq!(ratio("parentbased_traceidratio", "0.25"), Some(0.25));
        assert_eq!(ratio("traceidratio", ""), Some(1.0));
        assert_eq!((ratio("always_on", ""), ratio("parentbased_always_off", "")), (Some(1.0), Some(0.0)));
        assert_eq!((ratio("traceidratio", "7"), ratio("jaeger_remote", ""), ratio("", "")), (None, None, None));
    }

    #[test]
    fn pairs_are_percent_encoded() {
        let expected = [("a", "b c"), ("d", "e=f"), ("g", "%zz")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs("a=b%20c, d=e=f,nothing,=x,g=%zz"), expected);
    }
}
