//! Spans of dwell's own: what it did for one message, and when, for a tracing system. Off unless it is configured.
//!
//! Whoever makes a span waits for nothing: it goes to a loop that exports it, or, when that has fallen behind, nowhere.

mod endpoint;
mod exporter;
mod otlp;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

pub use endpoint::{ACCEPTED as ENDPOINT_ACCEPTED, Endpoint};
pub use exporter::Exporter;

use crate::model::limits::SPANS_WAITING_MAX;
use crate::model::message::{MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::trace::TraceContext;
use crate::platform::clock::{Clock, Instant};

/// Where spans go, and which.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanOptions {
    /// An OTLP receiver.
    pub endpoint: Endpoint,
    /// What its certificate has to follow from, as PEM; without it the system's.
    pub ca_file: Option<PathBuf>,
    /// 0 to 1: the part of those messages that is recorded whose producers said nothing about a trace.
    pub ratio: f64,
}

/// Begins spans, or none. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<Recorder>>);

/// What a tracer that is on shares with its exporter.
#[derive(Debug)]
struct Recorder {
    clock: Clock,
    ratio: f64,
    finished: mpsc::Sender<Finished>,
    /// Spans that found no place, and were not counted yet.
    dropped: AtomicU64,
}

/// What a span is about, as OTLP numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A request to something else.
    Client = 3,
    /// A message was taken in.
    Producer = 4,
    /// A message was handed out.
    Consumer = 5,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

/// Something that is being done for a message. Dropped without [`Span::end`] it never was.
#[derive(Debug)]
pub struct Span {
    recorder: Arc<Recorder>,
    context: TraceContext,
    parent: Option<[u8; 8]>,
    name: &'static str,
    kind: SpanKind,
    /// On the wall clock, and on the monotonic one, which is finer.
    began: (Timestamp, Instant),
    /// How much earlier it began than it was made.
    earlier: Duration,
    attributes: Vec<(&'static str, Value)>,
}

/// A span that is over.
#[derive(Debug)]
struct Finished {
    context: TraceContext,
    parent: Option<[u8; 8]>,
    name: &'static str,
    kind: SpanKind,
    /// Nanoseconds since 1970.
    from_ns: u64,
    to_ns: u64,
    attributes: Vec<(&'static str, Value)>,
    /// What went wrong.
    error: Option<String>,
}

impl Tracer {
    /// Makes no span: it costs a look.
    pub fn off() -> Tracer {
        Tracer::default()
    }

    /// Makes spans, which [`Exporter::run`] exports.
    ///
    /// # Errors
    /// `Invalid` when certificates are needed and cannot be read.
    pub fn exporting(options: SpanOptions, clock: Clock) -> crate::model::error::Result<(Tracer, Exporter)> {
        let (finished, spans) = mpsc::channel(SPANS_WAITING_MAX);
        let recorder = Arc::new(Recorder { clock, ratio: options.ratio, finished, dropped: AtomicU64::new(0) });
        let exporter = Exporter::new(options.endpoint, options.ca_file.as_deref(), spans, recorder.clone())?;
        Ok((Tracer(Some(recorder)), exporter))
    }

    /// Begins a span under another one, if that is recorded; without another one the first of a trace, as often as the
    /// ratio says.
    pub fn begin(&self, name: &'static str, kind: SpanKind, parent: Option<&TraceContext>) -> Option<Span> {
        let recorder = self.0.as_ref()?;
        let context = match parent {
            Some(parent) if parent.is_sampled() => parent.caused_by(fresh()),
            None if fastrand::f64() < recorder.ratio => TraceContext::recorded(fresh(), fresh()),
            Some(_) | None => return None,
        };
        Some(Span {
            began: (recorder.clock.now(), recorder.clock.instant()),
            earlier: Duration::ZERO,
            recorder: recorder.clone(),
            context,
            parent: parent.map(|parent| parent.span_id),
            name,
            kind,
            attributes: Vec::new(),
        })
    }
}

impl Span {
    /// Its place in the trace, for what it causes.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// It began so much before it was made.
    pub fn earlier(mut self, by: Duration) -> Span {
        self.earlier = by;
        self
    }

    /// Adds what it is about.
    pub fn text(mut self, name: &'static str, value: impl ToString) -> Span {
        self.attributes.push((name, Value::Text(value.to_string())));
        self
    }

    /// The same, of a number.
    pub fn number(mut self, name: &'static str, value: impl Into<i64>) -> Span {
        self.attributes.push((name, Value::Number(value.into())));
        self
    }

    /// It is over, and this went wrong, if anything did.
    pub fn end(self, error: Option<String>) {
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

/// Adds what every span of a message says, in the words of OpenTelemetry.
pub fn about(span: Span, topic: &TopicName, id: &MessageId, partition: Partition) -> Span {
    let span = span.text("messaging.system", "dwell").text("messaging.destination.name", topic);
    span.text("messaging.destination.partition.id", partition).text("messaging.message.id", id)
}

/// Random bytes that are not all zero. An id of a trace is no secret.
fn fresh<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    bytes.fill_with(|| fastrand::u8(..));
    bytes[N - 1] |= 1;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    fn tracer(ratio: f64) -> Result<(Tracer, Exporter)> {
        let endpoint = Endpoint::parse("http://127.0.0.1:1").map_err(crate::model::error::Error::bug)?;
        Tracer::exporting(SpanOptions { endpoint, ca_file: None, ratio }, Clock::System)
    }

    fn parent(flags: u8) -> Result<TraceContext> {
        TraceContext::new([7; 16], [8; 8], flags, Some("a=b"))
    }

    #[test]
    fn a_span_follows_its_parent_and_roots_follow_the_ratio() -> Result<()> {
        let (all, _exporter) = tracer(1.0)?;
        let (none, _exporter) = tracer(0.0)?;
        let begin = |tracer: &Tracer, parent: Option<&TraceContext>| tracer.begin("push", SpanKind::Producer, parent);
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
    fn spans_that_nobody_exports_are_dropped_and_counted() -> Result<()> {
        let (tracer, _exporter) = tracer(1.0)?;
        for _ in 0..SPANS_WAITING_MAX + 5 {
            if let Some(span) = tracer.begin("push", SpanKind::Producer, None) {
                span.end(None);
            }
        }
        let dropped = tracer.0.as_ref().map(|recorder| recorder.dropped.load(Ordering::Relaxed));
        assert_eq!(dropped, Some(5));
        Ok(())
    }
}
