//! Metrics of HTTP requests and webhooks.

use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGauge};

use super::{CALL_BUCKETS, Maker};
use crate::model::error::Result;

/// Seconds: from a local answer to the longest sensible timeout.
const POST_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0];

#[derive(Debug)]
pub struct HttpMetrics {
    pub connections: IntGauge,
    requests: IntCounterVec,
    seconds: HistogramVec,
    posts: IntCounterVec,
    post_seconds: HistogramVec,
}

impl HttpMetrics {
    pub(super) fn new(make: &Maker) -> Result<HttpMetrics> {
        Ok(HttpMetrics {
            connections: make.gauge("dwell_http_connections", "open HTTP connections")?,
            requests: make.counters(
                "dwell_http_requests_total",
                &["route", "code"],
                "HTTP requests answered; `route` is a pattern, never a path. Each route has its successes, 500, 503 and 504 from \
                 the start",
            )?,
            seconds: make.histograms(
                "dwell_http_request_seconds",
                &["route"],
                &CALL_BUCKETS,
                "how long HTTP requests took; a long poll counts its wait",
            )?,
            posts: make.counters(
                "dwell_webhook_requests_total",
                &["topic", "group", "outcome"],
                "POSTs of webhooks, by how they ended: `ok`, `gone`, `refused`, `timed_out`, `failed`. No series without a \
                 webhook",
            )?,
            post_seconds: make.histograms(
                "dwell_webhook_request_seconds",
                &["topic", "group"],
                &POST_BUCKETS,
                "how long POSTs of webhooks took, to the end of the answer. No series without a webhook",
            )?,
        })
    }

    pub fn expect<'a>(&self, route: &str, codes: impl IntoIterator<Item = &'a str>) {
        for code in codes {
            self.requests.with_label_values(&[route, code]);
        }
        self.seconds.with_label_values(&[route]);
    }

    pub fn request(&self, route: &str, code: u16, took: Duration) {
        self.requests.with_label_values(&[route, &code.to_string()]).inc();
        self.seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    pub fn webhook(&self, topic: &str, group: &str, outcomes: &[&str]) -> WebhookMetrics {
        for outcome in outcomes {
            self.posts.with_label_values(&[topic, group, outcome]);
        }
        let posts = self.posts.clone();
        let seconds = self.post_seconds.with_label_values(&[topic, group]);
        WebhookMetrics { labels: [topic.to_owned(), group.to_owned()], posts, seconds }
    }
}

#[derive(Debug)]
pub struct WebhookMetrics {
    labels: [String; 2],
    posts: IntCounterVec,
    seconds: Histogram,
}

impl WebhookMetrics {
    pub fn post(&self, outcome: &str, took: Duration) {
        self.posts.with_label_values(&[self.labels[0].as_str(), &self.labels[1], outcome]).inc();
        self.seconds.observe(took.as_secs_f64());
    }
}
