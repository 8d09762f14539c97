//! Trace spans of dwell: recorded, then exported over OTLP/HTTP in batches. Off unless configured.
//!
//! Recording never waits: when the exporter has fallen behind, the span is dropped and counted. Spans that the receiver
//! refuses are dropped and counted too.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::{Client, Url};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::model::error::{DETAIL_BYTES_MAX, Error, Result, innermost_cause};
use crate::model::limits::SPANS_WAITING_MAX;
use crate::model::message::{MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::trace::{Hex, TraceContext};
use crate::platform::clock::{Clock, Instant};
use crate::platform::https::{self, Roots};
use crate::platform::log_throttle::RepeatThrottle;
use crate::platform::secret::Secret;
use crate::telemetry::metrics::{Metrics, SpanMetrics};

#[derive(Debug, Clone, PartialEq)]
pub struct SpanOptions {
    pub endpoint: Endpoint,
    /// CA certificates used to verify the receiver; without, those of the system.
    pub ca_file: Option<PathBuf>,
    /// 0 to 1: the fraction of messages recorded whose producers sent no trace context.
    pub ratio: f64,
    /// `service.name` of the resource.
    pub service: String,
    /// More attributes of the resource.
    pub resource: Vec<(String, String)>,
    /// More headers of each request, such as an API key.
    pub headers: Vec<(String, Secret)>,
}

impl SpanOptions {
    pub fn new(endpoint: Endpoint) -> SpanOptions {
        let (resource, headers) = (Vec::new(), Vec::new());
        SpanOptions { endpoint, ca_file: None, ratio: 0.0, service: SERVICE.to_owned(), resource, headers }
    }
}

/// The default of `service.name`.
pub const SERVICE: &str = "dwell";

#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<Recorder>>);

#[derive(Debug)]
struct Recorder {
    clock: Clock,
    ratio: f64,
    finished: mpsc::Sender<Finished>,
    dropped: AtomicU64,
}

/// Numbered as in OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpanKind {
    Client = 3,
    Producer = 4,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Number(i64),
}

/// An operation of OpenTelemetry's conventions for messaging: its name, its type, and the kind of its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A push.
    Send,
    /// From the due time to the hand-over.
    Receive,
    /// The POST of a webhook.
    Process,
    /// A decision about a delivery.
    Settle,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Send => "send",
            Operation::Receive => "receive",
            Operation::Process => "process",
            Operation::Settle => "settle",
        }
    }

    fn kind(self) -> SpanKind {
        match self {
            Operation::Send => SpanKind::Producer,
            Operation::Receive | Operation::Settle | Operation::Process => SpanKind::Client,
        }
    }
}

/// Why the operation of a span failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// One of a few words, or a status code: `error.type`.
    pub kind: String,
    pub detail: String,
}

/// Dropped without [`Span::end`], it is not recorded.
#[derive(Debug)]
pub struct Span {
    recorder: Arc<Recorder>,
    context: TraceContext,
    parent: Option<[u8; 8]>,
    name: String,
    kind: SpanKind,
    began: (Timestamp, Instant),
    earlier: Duration,
    attributes: Vec<(&'static str, Value)>,
}

#[derive(Debug)]
struct Finished {
    context: TraceContext,
    parent: Option<[u8; 8]>,
    name: String,
    kind: SpanKind,
    /// Nanoseconds since 1970.
    from_ns: u64,
    to_ns: u64,
    attributes: Vec<(&'static str, Value)>,
    error: Option<String>,
}

impl Tracer {
    pub fn off() -> Tracer {
        Tracer::default()
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// # Errors: `Invalid` when CA certificates are needed and cannot be read.
    pub fn exporting(options: SpanOptions, clock: Clock) -> crate::model::error::Result<(Tracer, Exporter)> {
        let (finished, spans) = mpsc::channel(SPANS_WAITING_MAX);
        let recorder = Arc::new(Recorder { clock, ratio: options.ratio, finished, dropped: AtomicU64::new(0) });
        let exporter = Exporter::new(options, spans, recorder.clone())?;
        Ok((Tracer(Some(recorder)), exporter))
    }

    /// Begins a child of a recorded span, or without a parent a new trace, with the probability of the ratio.
    pub fn begin(&self, operation: Operation, topic: &TopicName, parent: Option<&TraceContext>) -> Option<Span> {
        let recorder = self.0.as_ref()?;
        let context = match parent {
            Some(parent) if parent.is_sampled() => parent.caused_by(fresh()),
            None if fastrand::f64() < recorder.ratio => TraceContext::recorded(fresh(), fresh()),
            Some(_) | None => return None,
        };
        let name = operation.name();
        let span = Span {
            began: (recorder.clock.now(), recorder.clock.instant()),
            earlier: Duration::ZERO,
            recorder: recorder.clone(),
            context,
            parent: parent.map(|parent| parent.span_id),
            name: format!("{name} {topic}"),
            kind: operation.kind(),
            attributes: Vec::new(),
        };
        let span = span.text("messaging.system", "dwell").text("messaging.destination.name", topic);
        // The name is that of the system, the type is one of five.
        Some(span.text("messaging.operation.name", name).text("messaging.operation.type", name))
    }
}

impl Span {
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    pub fn earlier(mut self, by: Duration) -> Span {
        self.earlier = by;
        self
    }

    pub fn text(mut self, name: &'static str, value: impl ToString) -> Span {
        self.attributes.push((name, Value::Text(value.to_string())));
        self
    }

    pub fn number(mut self, name: &'static str, value: impl Into<i64>) -> Span {
        self.attributes.push((name, Value::Number(value.into())));
        self
    }

    pub fn end(mut self, fault: Option<Fault>) {
        let error = fault.map(|Fault { kind, detail }| {
            self.attributes.push(("error.type", Value::Text(kind)));
            detail
        });
        let (wall, instant) = self.began;
        let took = self.recorder.clock.instant().since(instant);
        let began = Duration::from_millis(wall.as_ms());
        let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let Span { recorder, context, parent, name, kind, attributes, .. } = self;
        let (from_ns, to_ns) = (ns(began.saturating_sub(self.earlier)), ns(began + took));
        let finished = Finished { context, parent, name, kind, from_ns, to_ns, attributes, error };
        if recorder.finished.try_send(finished).is_err() {
            recorder.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Adds the attributes of a span about one message, as named by OpenTelemetry.
pub fn about(span: Span, id: &MessageId, partition: impl Into<Option<Partition>>) -> Span {
    let span = span.text("messaging.message.id", id);
    match partition.into() {
        Some(partition) => span.text("messaging.destination.partition.id", partition),
        None => span,
    }
}

/// Random bytes that are not all zero; trace ids are no secret.
fn fresh<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    bytes.fill_with(|| fastrand::u8(..));
    bytes[N - 1] |= 1;
    bytes
}

pub const ENDPOINT_ACCEPTED: &str = "http(s)://HOST[:PORT][/PATH] of an OTLP/HTTP receiver, without /v1/traces";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

impl Endpoint {
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

    fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    fn traces(&self) -> String {
        format!("{}/v1/traces", self.0.as_str().trim_end_matches('/'))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

const SPANS_MAX: usize = 512;

const GATHER: Duration = Duration::from_millis(500);

const TIMEOUT: Duration = Duration::from_secs(3);

/// How long a stop waits for the last batch.
const LAST: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Exporter {
    client: Client,
    options: SpanOptions,
    spans: mpsc::Receiver<Finished>,
    recorder: Arc<Recorder>,
    log_throttle: RepeatThrottle,
}

impl Exporter {
    fn new(options: SpanOptions, spans: mpsc::Receiver<Finished>, recorder: Arc<Recorder>) -> Result<Exporter> {
        let roots = Roots::choose("trace.otlp_ca_file", options.ca_file.as_deref(), options.endpoint.is_tls())?;
        let client = https::build(https::broker_client(&roots)?)?;
        Ok(Exporter { client, options, spans, recorder, log_throttle: RepeatThrottle::default() })
    }

    /// Exports until `stop`, then the rest within a short time. `instance` names this broker.
    pub async fn run(mut self, instance: String, metrics: Arc<Metrics>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(SPANS_MAX);
        while let Some(Some(first)) = stop.run_until_cancelled(self.spans.recv()).await {
            batch.push(first);
            let _ = stop.run_until_cancelled(self.gather(&mut batch)).await;
            if stop.is_cancelled() {
                break;
            }
            let sent = stop.run_until_cancelled(self.send(&instance, &batch, TIMEOUT)).await;
            // Cancelled by the stop: the batch is exported with the rest.
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
        let request = self.client.post(self.options.endpoint.traces()).json(&request(&self.options, instance, batch));
        let headers = self.options.headers.iter();
        let request = headers.fold(request, |request, (name, value)| request.header(name, value.expose()));
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
                if self.log_throttle.is_over() {
                    tracing::info!("spans are exported again");
                }
            }
            Err(error) => {
                metrics.failed.inc_by(spans as u64);
                if self.log_throttle.is_due(Clock::System.instant()) {
                    tracing::warn!(endpoint = %self.options.endpoint, %error, "spans not exported");
                }
            }
        }
    }
}

const FAILED: u8 = 2;

fn request(options: &SpanOptions, instance: &str, spans: &[Finished]) -> Json {
    let version = env!("CARGO_PKG_VERSION");
    let own = [("service.name", &*options.service), ("service.version", version), ("service.instance.id", instance)];
    let more = options.resource.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let more = more.filter(|(name, _)| own.iter().all(|(own, _)| own != name));
    let resource: Vec<Json> =
        own.into_iter().chain(more).map(|(name, value)| attribute(name, &Value::Text(value.to_owned()))).collect();
    let spans: Vec<Json> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "dwell", "version": version}, "spans": spans}],
    }]})
}

fn span(span: &Finished) -> Json {
    let attributes: Vec<Json> = span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut json = json!({
        "traceId": Hex(&span.context.trace_id).to_string(),
        "spanId": Hex(&span.context.span_id).to_string(),
        "flags": span.context.flags(),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": span.from_ns.to_string(),
        "endTimeUnixNano": span.to_ns.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = &span.parent {
        json["parentSpanId"] = Hex(parent).to_string().into();
    }
    if let Some(state) = span.context.tracestate() {
        json["traceState"] = state.into();
    }
    if let Some(error) = &span.error {
        let message: String = error.chars().take(DETAIL_BYTES_MAX).collect();
        json["status"] = json!({"code": FAILED, "message": message});
    }
    json
}

fn attribute(name: &str, value: &Value) -> Json {
    let value = match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
    };
    json!({"key": name, "value": value})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;
    use crate::model::trace::TraceContext;

    fn tracer(ratio: f64) -> Result<(Tracer, Exporter)> {
        let endpoint = Endpoint::parse("http://127.0.0.1:1").map_err(crate::model::error::Error::bug)?;
        Tracer::exporting(SpanOptions { ratio, ..SpanOptions::new(endpoint) }, Clock::System)
    }

    fn topic() -> Result<TopicName> {
        TopicName::new("orders")
    }

    fn parent(flags: u8) -> Result<TraceContext> {
        TraceContext::new([7; 16], [8; 8], flags, Some("a=b"))
    }

    #[test]
    fn sampling_follows_the_parent_and_the_root_ratio() -> Result<()> {
        let (all, _exporter) = tracer(1.0)?;
        let (none, _exporter) = tracer(0.0)?;
        let topic = topic()?;
        let begin = |tracer: &Tracer, parent: Option<&TraceContext>| tracer.begin(Operation::Send, &topic, parent);
        for tracer in [&all, &none] {
            let parent = parent(1)?;
            let span = begin(tracer, Some(&parent)).ok_or_else(|| crate::model::error::Error::bug("no span"))?;
            assert_eq!((span.context().trace_id, span.parent), ([7; 16], Some([8; 8])));
            assert_ne!(span.context().span_id, [8; 8]);
            assert_eq!(span.context().tracestate(), Some("a=b"));
        }
        assert!(begin(&all, Some(&parent(0)?)).is_none(), "who does not record says so for all");
        assert!(begin(&none, None).is_none() && begin(&Tracer::off(), Some(&parent(1)?)).is_none());
        let root = begin(&all, None).ok_or_else(|| crate::model::error::Error::bug("no span"))?;
        assert!(root.parent.is_none() && root.context().is_sampled());
        Ok(())
    }

    #[test]
    fn unexported_spans_are_dropped_and_counted() -> Result<()> {
        let (tracer, _exporter) = tracer(1.0)?;
        for _ in 0..SPANS_WAITING_MAX + 5 {
            if let Some(span) = tracer.begin(Operation::Send, &topic()?, None) {
                span.end(None);
            }
        }
        let dropped = tracer.0.as_ref().map(|recorder| recorder.dropped.load(Ordering::Relaxed));
        assert_eq!(dropped, Some(5));
        Ok(())
    }

    #[test]
    fn only_http_urls_are_endpoints() {
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

    #[test]
    fn span_matches_the_otlp_specification() -> crate::model::error::Result<()> {
        let context = TraceContext::new([0x5b; 16], [0xee; 8], 1, Some("a=b"))?;
        let attributes = vec![("n", Value::Number(7)), ("t", Value::Text("x".to_owned()))];
        let (name, kind, error) = ("send orders".to_owned(), SpanKind::Producer, Some("no".to_owned()));
        let (from_ns, to_ns, parent) = (1_544_712_660_000_000_000, 1_544_712_661_000_000_000, Some([0xef; 8]));
        let finished = Finished { context, parent, name, kind, from_ns, to_ns, attributes, error };
        let endpoint = Endpoint::parse("http://127.0.0.1:1").map_err(crate::model::error::Error::bug)?;
        let resource = vec![("deployment.environment.name".to_owned(), "shop".to_owned())];
        let body = request(&SpanOptions { resource, ..SpanOptions::new(endpoint) }, "host-1", &[finished]);
        let resource = &body["resourceSpans"][0]["resource"]["attributes"];
        assert_eq!(resource[2], json!({"key": "service.instance.id", "value": {"stringValue": "host-1"}}));
        assert_eq!(resource[3]["key"], "deployment.environment.name");
        let expected = json!({
            "traceId": "5b".repeat(16), "spanId": "ee".repeat(8), "parentSpanId": "ef".repeat(8), "traceState": "a=b",
            "flags": 1, "name": "send orders", "kind": 4,
            "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
            "attributes": [{"key": "n", "value": {"intValue": "7"}}, {"key": "t", "value": {"stringValue": "x"}}],
            "status": {"code": 2, "message": "no"}
        });
        assert_eq!(body["resourceSpans"][0]["scopeSpans"][0]["spans"][0], expected);
        Ok(())
    }
}
