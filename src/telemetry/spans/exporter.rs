//! The loop that exports spans, many in one request. What the receiver does not take is gone, and counted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use super::{Finished, Recorder, otlp};
use crate::model::error::{Error, Result, innermost_cause};
use crate::platform::clock::Clock;
use crate::platform::https::{self, Roots};
use crate::platform::log_throttle::RepeatThrottle;
use crate::telemetry::metrics::{Metrics, SpanMetrics};

/// Spans of one request.
const SPANS_MAX: usize = 512;

/// How long spans gather for one request.
const GATHER: Duration = Duration::from_millis(500);

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// How long a stop waits for what is left.
const LAST: Duration = Duration::from_secs(2);

/// Exports spans.
#[derive(Debug)]
pub struct Exporter {
    client: Client,
    endpoint: Endpoint,
    spans: mpsc::Receiver<Finished>,
    recorder: Arc<Recorder>,
    unsaid: RepeatThrottle,
}

impl Exporter {
    pub(super) fn new(
        endpoint: Endpoint,
        ca_file: Option<&Path>,
        spans: mpsc::Receiver<Finished>,
        recorder: Arc<Recorder>,
    ) -> Result<Exporter> {
        let roots = Roots::choose("trace.otlp_ca_file", ca_file, endpoint.is_tls())?;
        let client = https::build(https::broker_client(&roots)?)?;
        Ok(Exporter { client, endpoint, spans, recorder, unsaid: RepeatThrottle::default() })
    }

    /// Exports what comes until `stop`, and then what is left, if that takes no more than a moment. `instance` names this
    /// broker among others.
    pub async fn run(mut self, instance: String, metrics: Arc<Metrics>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(SPANS_MAX);
        while let Some(Some(first)) = stop.run_until_cancelled(self.spans.recv()).await {
            batch.push(first);
            let _ = stop.run_until_cancelled(self.gather(&mut batch)).await;
            if stop.is_cancelled() {
                break;
            }
            let sent = stop.run_until_cancelled(self.send(&instance, &batch, TIMEOUT)).await;
            // Broken off by the stop: they are among what is left.
            let Some(sent) = sent else { break };
            self.note(&metrics.spans, batch.len(), sent);
            batch.clear();
        }
        while let Ok(span) = self.spans.try_recv() {
            batch.push(span);
        }
        if !batch.is_empty() {
            let sent = self.send(&instance, &batch, LAST).await;
            self.note(&metrics.spans, batch.len(), sent);
        }
    }

    /// Waits for more, for a moment.
    async fn gather(&mut self, batch: &mut Vec<Finished>) {
        let until = Clock::System.instant().plus(GATHER);
        while batch.len() < SPANS_MAX {
            let room = SPANS_MAX - batch.len();
            tokio::select! {
                taken = self.spans.recv_many(batch, room) => if taken == 0 { return },
                () = Clock::System.sleep_until(until) => return,
            }
        }
    }

    async fn send(&self, instance: &str, batch: &[Finished], limit: Duration) -> Result<()> {
        let request = self.client.post(self.endpoint.traces()).json(&otlp::request(instance, batch));
        let response = tokio::select! {
            response = request.send() => response.map_err(|error| Error::unavailable(innermost_cause(&error.without_url())))?,
            () = Clock::System.sleep(limit) => return Err(Error::unavailable("no answer in time")),
        };
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(Error::unavailable(format!("status {}", status.as_u16()))),
        }
    }

    fn note(&self, metrics: &SpanMetrics, spans: usize, sent: Result<()>) {
        metrics.dropped.inc_by(self.recorder.dropped.swap(0, Ordering::Relaxed));
        match sent {
            Ok(()) => {
                metrics.exported.inc_by(spans as u64);
                if self.unsaid.is_over() {
                    tracing::info!("spans are exported again");
                }
            }
            Err(error) => {
                metrics.failed.inc_by(spans as u64);
                if self.unsaid.is_due(Clock::System.instant()) {
                    tracing::warn!(endpoint = %self.endpoint, %error, "spans not exported");
                }
            }
        }
    }
}
