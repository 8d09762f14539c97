//! JSON parts that several requests and replies share.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dwell_client::wire::messages::FailedAttempt;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::schema;
use crate::codec::Failure;
use crate::model::attributes::{AttributeValue, of_attachment};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::META_COUNT_MAX;
use crate::model::message::{self, Due, Envelope, Past};
use crate::model::time::Timestamp;
use crate::model::trace::TraceContext;

/// Contents of a message in replies.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Contents {
    /// The key, if it was pushed with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Key>)]
    key: Option<String>,
    /// The dedup key, if it was pushed with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::DedupKey>)]
    dedup_key: Option<String>,
    /// When it was accepted; absent if the stored message is unreadable.
    #[schema(value_type = String, format = DateTime, required = false)]
    pushed_at: Timestamp,
    /// The media type that it was pushed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ContentType>)]
    content_type: Option<String>,
    /// 1 to 9: it goes before those of a lower one.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(value_type = Option<u8>, minimum = 1, maximum = 9)]
    priority: u8,
    /// Names and values that travel with it; absent if the stored message is unreadable.
    #[schema(value_type = schema::Meta, required = false)]
    meta: Meta,
    /// Where its push stands in a trace, as in W3C Trace Context.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TraceParent>)]
    traceparent: Option<String>,
    /// Vendor-specific part of the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TraceState>)]
    tracestate: Option<String>,
    /// Where it was a dead letter, if it was forwarded from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_source: Option<DeadLetterSource>,
    /// Attributes with which an SQS client sent it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    attributes: BTreeMap<String, Attribute>,
    /// Data of a gateway beside the payload, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Base64>)]
    attachment: Option<String>,
    /// The payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// The payload in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Base64>)]
    payload_base64: Option<String>,
}

/// An attribute with which an SQS client sent a message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Attribute {
    /// `String`, `Number` or `Binary`, perhaps with a dot and a label of the client.
    #[serde(rename = "type")]
    data_type: String,
    /// Its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// Its bytes in base64, if its type is `Binary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Base64>)]
    value_base64: Option<String>,
}

impl From<AttributeValue> for Attribute {
    fn from(attribute: AttributeValue) -> Attribute {
        let AttributeValue { data_type, string_value, binary_value } = attribute;
        Attribute { data_type, value: string_value, value_base64: binary_value.map(|bytes| STANDARD.encode(bytes)) }
    }
}

/// The dead letter that a message was in another topic.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterSource {
    /// The topic in which it died.
    #[schema(value_type = schema::TopicName)]
    topic: String,
    /// The group in which it died.
    #[schema(value_type = schema::GroupName)]
    group: String,
    /// Its id there.
    #[schema(value_type = schema::MessageId)]
    id: String,
    /// Why it died: `max_attempts` or `buried`.
    #[schema(value_type = schema::DeathReason)]
    reason: String,
    /// How often it was delivered there.
    attempts: u32,
    /// When it died.
    #[schema(value_type = String, format = DateTime)]
    died_at: Timestamp,
    /// Reason of the last nack, or why there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Topics that have forwarded the message, from 1.
    hops: u32,
}

impl From<message::DeadLetterSource> for DeadLetterSource {
    fn from(source: message::DeadLetterSource) -> DeadLetterSource {
        let message::DeadLetterSource { topic, group, id, reason, attempts, died_at, last_error, hops } = source;
        let (topic, group, id) = (topic.to_string(), group.to_string(), id.to_string());
        DeadLetterSource { topic, group, id, reason, attempts, died_at, last_error, hops }
    }
}

fn is_zero(priority: &u8) -> bool {
    *priority == 0
}

impl From<Envelope> for Contents {
    fn from(envelope: Envelope) -> Contents {
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
            dead_letter_source: envelope.dead_letter_source.map(|source| DeadLetterSource::from(*source)),
            attributes: attributes.map(|(name, attribute)| (name, Attribute::from(attribute))).collect(),
            attachment: attachment.map(|attachment| STANDARD.encode(attachment)),
            payload,
            payload_base64,
        }
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

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Meta(pub(crate) Vec<(String, String)>);

impl Meta {
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut seen = HashSet::new();
        match self.0.iter().find(|(name, _)| !seen.insert(name)) {
            Some((name, _)) => Err(format!("{name:?} is given twice")),
            None => Ok(()),
        }
    }
}

impl Serialize for Meta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Meta, D::Error> {
        deserializer.deserialize_map(MetaVisitor)
    }
}

struct MetaVisitor;

impl<'de> Visitor<'de> for MetaVisitor {
    type Value = Meta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Meta, A::Error> {
        let mut meta = Meta::default();
        while let Some(entry) = fields.next_entry()? {
            if meta.0.len() == META_COUNT_MAX {
                return Err(de::Error::custom(format_args!("there are more than {META_COUNT_MAX} entries")));
            }
            meta.0.push(entry);
        }
        meta.check().map_err(de::Error::custom)?;
        Ok(meta)
    }
}

/// An object with named fields: serde would also fill a struct from a list, by position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(std::marker::PhantomData)).map(Object)
    }
}

struct ObjectVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(de::value::MapAccessDeserializer::new(fields))
    }
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
        Ok(serde_json::to_value(Contents::from(envelope)).unwrap_or_default())
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

    #[test]
    fn duplicate_meta_names_are_refused() {
        let read = |text: &str| serde_json::from_str::<Meta>(text);
        assert!(read(r#"{"b": "1", "a": "2"}"#).is_ok_and(|meta| meta.0[0].0 == "b"));
        assert!(read(r#"{"a": "1", "a": "2"}"#).is_err());
        assert!(read(r#"{"a": 1}"#).is_err());
        let many = |n: usize| {
            serde_json::json!((0..n).map(|i| (i.to_string(), "")).collect::<std::collections::BTreeMap<_, _>>())
        };
        assert!(read(&many(META_COUNT_MAX).to_string()).is_ok());
        assert!(read(&many(META_COUNT_MAX + 1).to_string()).is_err());
    }
}
