//! Pushing messages: one, or a batch.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::items::{Items, Object};
use super::messages::Meta;
use super::problem::Problem;
#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

/// Result of one pushed message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"id": "order-4711", "partition": 3, "due_at": "2026-01-02T03:04:05.678Z", "status": "stored"}
))))]
pub struct PushResult {
    /// Its id: the one of the request, or a new one.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageId))]
    pub id: String,
    /// The partition that stores the message. Missing if the message is buffered for a topic that this broker has not yet seen in
    /// Redis: the topic may have another number of partitions there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u16>,
    /// When it is due. For a duplicate: when the existing message is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub due_at: Option<Timestamp>,
    /// For a duplicate by its dedup key: the id of the first message, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::MessageId>))]
    pub duplicate_of: Option<String>,
    /// `true` for a duplicate of a message with another payload, attachment or due time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differs: bool,
    /// `stored`, `journaled`, `buffered`, `duplicate`, `replaced`, `debounced`, or in a batch `error`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::PushStatus))]
    pub status: Word,
    /// `true` when the topic did not exist and was created for this push.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topic_created: bool,
    /// How many replicas of Redis have it, where `redis.min_replicas` asks for any; absent while it is buffered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Why it was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Problem>))]
    pub error: Option<Box<Problem>>,
}

impl PushResult {
    /// Whether this push stored the message, or has it on a disk; `false` for a duplicate, a replaced or debounced one, and an error.
    pub fn is_accepted(&self) -> bool {
        matches!(&*self.status, "stored" | "journaled" | "buffered")
    }
}

/// One message: an item of a batch, or the body of a push as `application/json`. Exactly one of `payload`,
/// `payload_base64` and `payload_json` is there.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"payload": "close order 4711", "id": "order-4711", "key": "customer-7", "delay": "30m"}))))]
pub struct BatchMessage {
    /// The payload, as text.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub payload: Option<String>,
    /// The payload, in standard base64 with padding.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Base64>))]
    pub payload_base64: Option<String>,
    /// The payload, as any JSON value; its content type is `application/json` unless `content_type` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub payload_json: Option<Box<RawValue>>,
    /// Decides the partition; without a key the dedup key does, and without both the id.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Key>))]
    pub key: Option<String>,
    /// Makes the push repeatable. Default: a new ULID.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::MessageId>))]
    pub id: Option<String>,
    /// Policy if the id exists: `keep`, `reject`, `replace`, `debounce` or `after`. Default `keep`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::ConflictPolicy>))]
    pub conflict: Option<String>,
    /// How long after its first push the message may be due at the latest. Only with `conflict` `debounce`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub debounce_max: Option<Duration>,
    /// The same in milliseconds; not together with `debounce_max`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub debounce_max_ms: Option<Duration>,
    /// A duration from now, at most 3,650 d. Default 0.
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
    /// Policy if `due_at` is in the past: `now` (it is due at once) or `reject`. Default `now`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Past>))]
    pub past: Option<String>,
    /// The due time moves by up to this, by a value that the id decides: a repeat gets the same.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub spread: Option<Duration>,
    /// The same in milliseconds; not together with `spread`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub spread_ms: Option<Duration>,
    /// A duration from the due time, after which it is not delivered. Default: the topic's.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub ttl: Option<Duration>,
    /// The same in milliseconds; not together with `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub ttl_ms: Option<Duration>,
    /// Attempts before it is dead, up to 1,000; 0 is without a limit. Default: the topic's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 1000))]
    pub max_attempts: Option<u32>,
    /// 0 to 9: among the ready messages of a partition higher ones are handed out first. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 9))]
    pub priority: Option<u8>,
    /// Within `dedup_for`, another push with this dedup key to the partition is a duplicate. Only with `conflict` `keep`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::DedupKey>))]
    pub dedup_key: Option<String>,
    /// How long that lasts, counted from this push: 1 s to 7 d. Required with `dedup_key`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub dedup_for: Option<Duration>,
    /// The same in milliseconds; not together with `dedup_for`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub dedup_for_ms: Option<Duration>,
    /// The media type of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::ContentType>))]
    pub content_type: Option<String>,
    /// Names and values that travel with the payload.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Meta>))]
    pub meta: Option<Meta>,
    /// Where the push stands in a trace, as in W3C Trace Context. Default: the header of the request.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TraceParent>))]
    pub traceparent: Option<String>,
    /// Vendor-specific part of the trace; not without `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TraceState>))]
    pub tracestate: Option<String>,
    /// Data of a gateway that travels beside the payload, in standard base64 with padding; it counts to the payload's limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Base64>))]
    pub attachment: Option<String>,
}

/// A batch of 1 to 1,000 messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = "", examples(json!(
    {"messages": [{"payload": "close order 4711", "id": "order-4711", "key": "customer-7", "delay": "30m"}]}
))))]
pub struct Batch<M = Items<Object<BatchMessage>>> {
    /// 1 to 1,000 messages.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<BatchMessage>, min_items = 1, max_items = 1000))]
    pub messages: M,
}

/// Results of a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"results": [{"id": "order-4711", "partition": 3, "due_at": "2026-01-02T03:04:05.678Z", "status": "stored"}]}
))))]
pub struct BatchResults {
    /// One for each message, in the order sent.
    pub results: Vec<PushResult>,
    /// `true` when the topic did not exist and was created for this batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topic_created: bool,
}
