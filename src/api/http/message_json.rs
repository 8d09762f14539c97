//! JSON parts that several requests and replies share.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dwell_client::wire::messages::{Attribute, Contents, DeadLetterSource, FailedAttempt, LastError, Meta};
use serde_json::value::RawValue;

use crate::codec::Failure;
use crate::model::attributes::{AttributeValue, of_attachment};
use crate::model::error::{Error, Fault, Result};
use crate::model::last_error;
use crate::model::message::{self, Due, Envelope, Past};
use crate::model::time::Timestamp;
use crate::model::trace::TraceContext;

fn attribute(attribute: AttributeValue) -> Attribute {
    let AttributeValue { data_type, string_value, binary_value } = attribute;
    Attribute { data_type, value: string_value, value_base64: binary_value.map(|bytes| STANDARD.encode(bytes)) }
}

fn dead_letter_source(source: message::DeadLetterSource) -> DeadLetterSource {
    let message::DeadLetterSource { topic, group, id, reason, attempts, died_at, last_error, hops } = source;
    let (topic, group, id) = (topic.to_string(), group.to_string(), id.to_string());
    let last_error = last_error.as_ref().map(last_error_of);
    DeadLetterSource { topic, group, id, reason, attempts, died_at, last_error, hops }
}

pub(crate) fn last_error_of(error: &last_error::LastError) -> LastError {
    let part = |part: Option<&str>| part.map(str::to_owned);
    LastError { class: part(error.class()), message: error.message().to_owned(), stack: part(error.stack()) }
}

pub(crate) fn contents_of(envelope: Envelope) -> Contents {
    let (payload, payload_base64) = text_or_base64(envelope.payload);
    let attributes = of_attachment(&envelope.attachment).into_iter();
    let attachment = Some(envelope.attachment).filter(|attachment| !attachment.is_empty());
    Contents {
        key: envelope.key.map(String::from),
        dedup_key: envelope.dedup.map(|dedup| dedup.key.into()),
        pushed_at: envelope.pushed_at,
        content_type: envelope.content_type,
        priority: envelope.priority,
        meta: Meta(envelope.meta),
        traceparent: envelope.trace.as_ref().map(TraceContext::traceparent),
        tracestate: envelope.trace.as_ref().and_then(TraceContext::tracestate).map(str::to_owned),
        dead_letter_source: envelope.dead_letter_source.map(|source| dead_letter_source(*source)),
        attributes: attributes.map(|(name, value)| (name, attribute(value))).collect(),
        attachment: attachment.map(|attachment| STANDARD.encode(attachment)),
        payload,
        payload_base64,
    }
}

pub(crate) fn text_or_base64(payload: Bytes) -> (Option<String>, Option<String>) {
    match String::from_utf8(payload.into()) {
        Ok(text) => (Some(text), None),
        Err(bytes) => (None, Some(STANDARD.encode(bytes.as_bytes()))),
    }
}

pub(crate) fn failed_attempt(failure: Failure) -> FailedAttempt {
    FailedAttempt { at: failure.at, attempt: failure.attempt, reason: failure.reason }
}

/// The payload of a request, which has exactly one of three forms, and the content type that the form implies.
pub(crate) fn payload_of(
    text: Option<String>,
    base64: Option<String>,
    json: Option<Box<RawValue>>,
) -> Result<(Bytes, Option<&'static str>)> {
    match (text, base64, json) {
        (Some(text), None, None) => Ok((text.into(), None)),
        (None, Some(base64), None) => Ok((bytes_of("payload_base64", &base64)?, None)),
        (None, None, Some(json)) => Ok((Bytes::copy_from_slice(json.get().as_bytes()), Some("application/json"))),
        (None, None, None) => {
            Err(Error::wrong(Fault::Missing, "payload", "is missing, and so are `payload_base64` and `payload_json`"))
        }
        _ => {
            let why = "is given in more than one form; give one of `payload`, `payload_base64` and `payload_json`";
            Err(Error::wrong(Fault::Exclusive, "payload", why))
        }
    }
}

pub(crate) fn bytes_of(field: &str, base64: &str) -> Result<Bytes> {
    let wrong = |why| Error::wrong(Fault::Format, field, format!("is not standard base64 with padding: {why}"));
    STANDARD.decode(base64).map(Bytes::from).map_err(wrong)
}

pub(crate) fn due_of(delay: Option<std::time::Duration>, due_at: Option<Timestamp>, past: Past) -> Result<Due> {
    match (delay, due_at) {
        (Some(_), Some(_)) => Err(Error::wrong(Fault::Exclusive, "delay", "is given together with `due_at`")),
        (_, Some(at)) => Ok(past.due(at)),
        (delay, None) => Ok(Due::In(delay.unwrap_or_default())),
    }
}

pub(crate) fn trace_of(parent: Option<&str>, state: Option<&str>) -> Result<Option<TraceContext>> {
    match (parent, state) {
        (Some(parent), state) => Ok(Some(TraceContext::parse(parent, state)?)),
        (None, Some(_)) => Err(Error::wrong(Fault::Exclusive, "tracestate", "is given without `traceparent`")),
        (None, None) => Ok(None),
    }
}

/// Invalid headers are ignored: a proxy may have added them, and W3C requires it.
pub(crate) fn trace_of_headers(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all("traceparent").iter();
    let parent = parents.next().filter(|_| parents.next().is_none())?.to_str().ok()?;
    let states: Option<Vec<&str>> = headers.get_all("tracestate").iter().map(|state| state.to_str().ok()).collect();
    TraceContext::of_headers(parent, states.map(|states| states.join(",")).as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::Key;

    fn contents(payload: &'static [u8]) -> crate::model::error::Result<serde_json::Value> {
        let envelope = Envelope {
            priority: 0,
            key: Some(Key::new("customer-7")?),
            dedup: None,
            pushed_at: Timestamp::from_ms(5),
            expires_at: None,
            max_attempts: None,
            content_type: None,
            meta: vec![("trace".into(), "abc".into())],
            dead_letter_source: None,
            trace: None,
            attachment: Bytes::new(),
            payload: Bytes::from_static(payload),
        };
        Ok(serde_json::to_value(contents_of(envelope)).unwrap_or_default())
    }

    #[test]
    fn payload_is_text_when_it_is_valid_utf8() -> crate::model::error::Result<()> {
        let expected = serde_json::json!({
            "key": "customer-7", "pushed_at": "1970-01-01T00:00:00.005Z", "meta": {"trace": "abc"}, "payload": "café"
        });
        assert_eq!(contents("café".as_bytes())?, expected);
        assert_eq!(contents(b"\xff\x00")?["payload_base64"], "/wA=");
        assert_eq!(contents(b"")?["payload"], "");
        Ok(())
    }

    #[test]
    fn exactly_one_payload_field_is_accepted() {
        let some = |text: &str| Some(text.to_owned());
        let json = |text: &str| RawValue::from_string(text.to_owned()).ok();
        let read = |text, base64, json| payload_of(text, base64, json).ok();
        assert_eq!(read(some("a"), None, None), Some((Bytes::from("a"), None)));
        assert_eq!(read(None, some("/wA="), None), Some((Bytes::from_static(b"\xff\x00"), None)));
        let shipped = r#"{"order": 4711, "lines": [1.10, null]}"#;
        assert_eq!(read(None, None, json(shipped)), Some((Bytes::from(shipped), Some("application/json"))));
        assert_eq!(read(None, None, json("null")), Some((Bytes::from("null"), Some("application/json"))));
        assert_eq!(read(None, some("/wA"), None), None);
        assert_eq!(read(None, some("_wA="), None), None);
        assert_eq!(read(some("a"), some("YQ=="), None), None);
        assert_eq!(read(some("a"), None, json("1")), None);
        assert_eq!(read(None, None, None), None);
    }
}
