//! Spans as OTLP/HTTP has them in JSON: ids in hexadecimal, 64-bit numbers as text, enumerations as numbers.

use serde_json::{Value as Json, json};

use super::{Finished, Value};
use crate::model::error::DETAIL_BYTES_MAX;
use crate::model::trace::Hex;

/// The status of a span that failed.
const FAILED: u8 = 2;

/// The body of a request that exports these spans of one broker.
pub(super) fn request(instance: &str, spans: &[Finished]) -> Json {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [("service.name", "dwell"), ("service.version", version), ("service.instance.id", instance)];
    let resource: Vec<Json> =
        resource.into_iter().map(|(name, value)| attribute(name, &Value::Text(value.to_owned()))).collect();
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
    use super::super::SpanKind;
    use super::*;
    use crate::model::trace::TraceContext;

    /// The form of the specification's own example of a trace.
    #[test]
    fn a_span_is_as_the_specification_has_it() -> crate::model::error::Result<()> {
        let context = TraceContext::new([0x5b; 16], [0xee; 8], 1, Some("a=b"))?;
        let attributes = vec![("n", Value::Number(7)), ("t", Value::Text("x".to_owned()))];
        let (name, kind, error) = ("push", SpanKind::Producer, Some("no".to_owned()));
        let (from_ns, to_ns, parent) = (1_544_712_660_000_000_000, 1_544_712_661_000_000_000, Some([0xef; 8]));
        let finished = Finished { context, parent, name, kind, from_ns, to_ns, attributes, error };
        let body = request("host-1", &[finished]);
        let resource = &body["resourceSpans"][0]["resource"]["attributes"];
        assert_eq!(resource[2], json!({"key": "service.instance.id", "value": {"stringValue": "host-1"}}));
        let expected = json!({
            "traceId": "5b".repeat(16), "spanId": "ee".repeat(8), "parentSpanId": "ef".repeat(8), "traceState": "a=b",
            "flags": 1, "name": "push", "kind": 4,
            "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
            "attributes": [{"key": "n", "value": {"intValue": "7"}}, {"key": "t", "value": {"stringValue": "x"}}],
            "status": {"code": 2, "message": "no"}
        });
        assert_eq!(body["resourceSpans"][0]["scopeSpans"][0]["spans"][0], expected);
        Ok(())
    }
}
