//! Where spans are sent to.

use std::fmt;

use reqwest::Url;

/// What an endpoint looks like, for errors.
pub const ACCEPTED: &str = "http(s)://HOST[:PORT][/PATH] of an OTLP/HTTP receiver, without /v1/traces";

/// The base URL of an OTLP/HTTP receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

impl Endpoint {
    /// Reads a URL; the error says why it is refused, without quoting it.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        let url = Url::parse(text).map_err(|why| format!("is not a URL: {why}"))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err("is neither an http:// nor an https:// URL".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err("has a user, a password or a query, and it is shown".to_owned());
        }
        if url.path().trim_end_matches('/').ends_with("/v1/traces") {
            return Err("has /v1/traces already, which is added".to_owned());
        }
        Ok(Endpoint(url))
    }

    /// Whether it is reached over TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Where traces are posted to.
    pub(super) fn traces(&self) -> String {
        format!("{}/v1/traces", self.0.as_str().trim_end_matches('/'))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_is_an_endpoint() {
        for (good, traces) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://collector", "https://collector/v1/traces"),
            ("http://agent/otlp", "http://agent/otlp/v1/traces"),
        ] {
            assert_eq!(Endpoint::parse(good).map(|endpoint| endpoint.traces()).as_deref(), Ok(traces));
        }
        for bad in
            ["", "127.0.0.1:4318", "grpc://a", "http://u:s3cret@a", "http://a?token=s3cret", "http://a/v1/traces"]
        {
            assert!(Endpoint::parse(bad).is_err_and(|why| !why.contains("s3cret")), "{bad}");
        }
    }
}
