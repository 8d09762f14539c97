//! Messages: what is in one, where it is, lists; cancelled, rescheduled, explained.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

/// Entries of a message, at most.
pub const META_COUNT_MAX: usize = 32;

/// Names and values that travel with a payload, in the order given; each name once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta(pub Vec<(String, String)>);

impl Meta {
    /// # Errors: a name that is given twice.
    pub fn check(&self) -> Result<(), String> {
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

/// Result of a cancel or reschedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"id": "order-4711", "partition": 3, "status": "cancelled", "groups": [{"group": "default",
    "status": "cancelled"}]}
))))]
pub struct Control {
    /// Message id.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageId))]
    pub id: String,
    /// Partition of the topic, from 0 on.
    pub partition: u16,
    /// `cancelled` or `rescheduled`; `partly` when a group had it in flight.
    #[cfg_attr(feature = "schema", schema(value_type = schema::ControlStatus))]
    pub status: Word,
    /// When it is due now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub due_at: Option<Timestamp>,
    /// `true` if it was buffered on the local disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub buffered: bool,
    /// One for each group of the topic.
    pub groups: Vec<GroupFate>,
}

/// Result in one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupFate {
    /// Name of the group.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupName))]
    pub group: String,
    /// `cancelled` or `rescheduled`, `in_flight`, `dead` or `absent`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupControlStatus))]
    pub status: Word,
}

/// A new due time: exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"delay": "30m"}))))]
pub struct NewDue {
    /// A duration from now, at most 3,650 d; 0 is now.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub delay: Option<Duration>,
    /// The same in milliseconds; not together with `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 1800000))]
    pub delay_ms: Option<Duration>,
    /// The due time; not together with `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Time>))]
    pub due_at: Option<Timestamp>,
    /// Policy if `due_at` is in the past: `now` (it is due at once) or `reject`. Default `reject`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Past>))]
    pub past: Option<Word>,
}

/// Why a message is not delivered yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"id": "order-4711", "partition": 3, "buffered": false, "groups": [{"group": "default", "reason": "scheduled",
    "detail": "due at 2026-01-02T03:04:05.678Z"}]}
))))]
pub struct Explained {
    /// Message id.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageId))]
    pub id: String,
    /// Partition of the topic, from 0 on.
    pub partition: u16,
    /// Whether it is buffered on the disk of this broker.
    pub buffered: bool,
    /// One for each group of the topic.
    pub groups: Vec<GroupReason>,
}

/// The reason of one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupReason {
    /// Name of the group.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupName))]
    pub group: String,
    /// A stable name: see docs/reference/statuses.md.
    #[cfg_attr(feature = "schema", schema(value_type = schema::ExplainReason))]
    pub reason: Word,
    /// The same in a sentence. The reason of a nack is in it only for a token that sees payloads.
    pub detail: String,
    /// The message that it is behind, the first of its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::MessageId>))]
    pub blocker: Option<String>,
    /// The latest time at which it no longer waits for this, if that is known: its due time, the deadline of a consumer, a next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub until: Option<Timestamp>,
    /// The broker that owns its partition, once it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Why its last attempt failed; only for a token that sees payloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FailedAttempt {
    /// When.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// Which attempt, from 1 on.
    pub attempt: u32,
    /// Reason of the nack, or why there was none; cut at 200 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Contents of a message in replies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Contents {
    /// The key, if it was pushed with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Key>))]
    pub key: Option<String>,
    /// The dedup key, if it was pushed with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::DedupKey>))]
    pub dedup_key: Option<String>,
    /// When it was accepted; absent if the stored message is unreadable.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime, required = false))]
    pub pushed_at: Timestamp,
    /// The media type that it was pushed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::ContentType>))]
    pub content_type: Option<String>,
    /// 1 to 9: it goes before those of a lower one.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u8>, minimum = 1, maximum = 9))]
    pub priority: u8,
    /// Names and values that travel with it; absent if the stored message is unreadable.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Meta, required = false))]
    #[serde(default)]
    pub meta: Meta,
    /// Where its push stands in a trace, as in W3C Trace Context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TraceParent>))]
    pub traceparent: Option<String>,
    /// Vendor-specific part of the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TraceState>))]
    pub tracestate: Option<String>,
    /// Where it was a dead letter, if it was forwarded from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter_source: Option<DeadLetterSource>,
    /// Attributes with which an SQS client sent it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(required = false))]
    pub attributes: BTreeMap<String, Attribute>,
    /// Data of a gateway beside the payload, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Base64>))]
    pub attachment: Option<String>,
    /// The payload, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The payload in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Base64>))]
    pub payload_base64: Option<String>,
}

/// An attribute with which an SQS client sent a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attribute {
    /// `String`, `Number` or `Binary`, perhaps with a dot and a label of the client.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its bytes in base64, if its type is `Binary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Base64>))]
    pub value_base64: Option<String>,
}

/// Why an attempt failed: the reason of its nack, or why there was none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"class": "KeyError", "message": "'order'", "stack": "Traceback (most recent call last):\n  …"}
))))]
pub struct LastError {
    /// Type of the error, up to 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Its text, up to 1 KiB.
    pub message: String,
    /// Where it arose, up to 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
}

/// `KeyError: 'order'`, without the stack.
impl std::fmt::Display for LastError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.class {
            Some(class) if self.message.is_empty() => f.write_str(class),
            Some(class) => write!(f, "{class}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The dead letter that a message was in another topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeadLetterSource {
    /// The topic in which it died.
    #[cfg_attr(feature = "schema", schema(value_type = schema::TopicName))]
    pub topic: String,
    /// The group in which it died.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupName))]
    pub group: String,
    /// Its id there.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageId))]
    pub id: String,
    /// Why it died: `max_attempts` or `buried`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::DeathReason))]
    pub reason: String,
    /// How often it was delivered there.
    pub attempts: u32,
    /// When it died.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub died_at: Timestamp,
    /// Reason of the last nack, or why there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// Topics that have forwarded the message, from 1.
    pub hops: u32,
}

fn is_zero(priority: &u8) -> bool {
    *priority == 0
}

/// A message and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"id": "order-4711", "partition": 3, "state": "scheduled", "attempts": 0, "next_at": "2026-01-02T03:04:05.678Z",
    "due_at": "2026-01-02T03:04:05.678Z", "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {},
    "payload": "close order 4711", "etag": "\"1767323045678.0\""}
))))]
pub struct Message {
    /// Message id.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageId))]
    pub id: String,
    /// Partition of the topic, from 0 on.
    pub partition: u16,
    /// `scheduled`, `ready`, `blocked`, `backoff`, `in_flight` or `dead`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageState))]
    pub state: Word,
    /// Attempts that were charged.
    pub attempts: u32,
    /// When it is tried next; only while scheduled, ready or in backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub next_at: Option<Timestamp>,
    /// Due time of the producer; a retry does not change it.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub due_at: Timestamp,
    /// Time after which it is not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub expires_at: Option<Timestamp>,
    /// Overrides the topic's number of attempts; 0 is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The broker that owns its partition, while it is blocked, in backoff or in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When the message that follows it is due, which was pushed with `conflict` `after`: it is delivered once this one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub successor_due_at: Option<Timestamp>,
    /// Names its due time and its attempts, for `If-Match`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Etag))]
    pub etag: String,
    #[serde(flatten)]
    pub contents: Contents,
    /// When it died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub died_at: Option<Timestamp>,
    /// Why it is dead: `max_attempts`, `buried`, `unreadable` or `expired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::DeathReason>))]
    pub reason: Option<Word>,
    /// Why its last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// How the last 16 attempts failed, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<FailedAttempt>,
}

/// A message of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ListedMessage {
    /// Message id.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageId))]
    pub id: String,
    /// Partition of the topic, from 0 on.
    pub partition: u16,
    /// `scheduled`, `ready`, `blocked`, `backoff`, `in_flight` or `dead`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageState))]
    pub state: Word,
    /// Attempts that were charged.
    pub attempts: u32,
    /// When it is tried next; only while scheduled, ready or in backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub next_at: Option<Timestamp>,
    /// When it died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub died_at: Option<Timestamp>,
    /// Due time of the producer, or of a reschedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub due_at: Option<Timestamp>,
    /// Time after which it is not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub expires_at: Option<Timestamp>,
    /// How the last attempts failed, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<FailedAttempt>,
    #[serde(flatten)]
    pub contents: Option<Contents>,
    /// Why the stored message cannot be read; then `due_at` and what travelled with it are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A page of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"messages": [{"id": "order-4711", "partition": 3, "state": "scheduled", "attempts": 0,
    "next_at": "2026-01-02T03:04:05.678Z", "due_at": "2026-01-02T03:04:05.678Z",
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}]}
))))]
pub struct ListedMessages {
    /// In the order asked.
    pub messages: Vec<ListedMessage>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub next_cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
