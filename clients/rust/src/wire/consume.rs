//! Reserving messages, and deliveries.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::messages::Contents;
#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

/// A request for deliveries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"max": 10, "wait": "20s"}))))]
pub struct Reserve {
    /// 1 to 1,000 deliveries. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub max: Option<usize>,
    /// How long to wait for the first delivery, 0 to 60 s. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub wait: Option<Duration>,
    /// The same in milliseconds; not together with `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 20000))]
    pub wait_ms: Option<Duration>,
    /// 100 ms to 12 h. Default: the topic's.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub visibility_timeout: Option<Duration>,
    /// The same in milliseconds; not together with `visibility_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 30000))]
    pub visibility_timeout_ms: Option<Duration>,
    /// Minimum time since a message was pushed, at most 3,650 d. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub min_age: Option<Duration>,
    /// The same in milliseconds; not together with `min_age`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 10000))]
    pub min_age_ms: Option<Duration>,
    /// Successive messages of one key in this batch, 1 to 10, in order. Above 1 only for topics with ordering. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 10))]
    pub per_key: Option<usize>,
    /// Policy for the later messages of a key in this batch when one fails: they return with it, `return_rest`, or stay with
    /// this consumer, `keep_rest`, which needs `per_key` above 1. Default `return_rest`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::OnFailure>))]
    pub on_failure: Option<Word>,
    /// Messages to wait for, 1 to `max`: with fewer, nothing is delivered before `linger` is over. Above 1 not for topics with
    /// ordering, and not together with `min_age`. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub min: Option<usize>,
    /// How long the oldest message waits for others after it became due, above 0 and at most 60 s. Needed if `min` is above 1.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub linger: Option<Duration>,
    /// The same in milliseconds; not together with `linger`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 5000))]
    pub linger_ms: Option<Duration>,
    /// Whether all messages have to be of one key; those without a key count as one key of their partition. Not for topics with
    /// ordering, which have `per_key`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_key: bool,
}

impl Reserve {
    /// At most so many deliveries, 1 to 1,000.
    pub fn up_to(max: usize) -> Reserve {
        Reserve { max: Some(max), ..Reserve::default() }
    }

    /// How long to wait for the first delivery, up to 60 s. Default 0.
    pub fn wait(self, wait: Duration) -> Reserve {
        Reserve { wait_ms: Some(wait), ..self }
    }

    /// How long the consumer has to settle each delivery. Default: the topic's.
    pub fn visibility_timeout(self, timeout: Duration) -> Reserve {
        Reserve { visibility_timeout_ms: Some(timeout), ..self }
    }

    /// At least so many messages, 1 to `max`, unless the oldest has waited for `linger` since it became due: above 0 and at most 60 s.
    pub fn at_least(self, min: usize, linger: Duration) -> Reserve {
        Reserve { min: Some(min), linger_ms: Some(linger), ..self }
    }

    /// Only messages of one key.
    pub fn same_key(self) -> Reserve {
        Reserve { same_key: true, ..self }
    }

    /// Only messages that were pushed at least so long ago.
    pub fn min_age(self, age: Duration) -> Reserve {
        Reserve { min_age_ms: Some(age), ..self }
    }
}

/// A message that was handed to a consumer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"receipt": "AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q", "id": "order-4711", "attempt": 1, "partition": 3,
    "due_at": "2026-01-02T03:04:05.678Z", "deadline": "2026-01-02T03:04:35.679Z", "lateness_ms": 1,
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}
))))]
pub struct Delivery {
    /// Identifies this delivery; settle it with this.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Receipt))]
    pub receipt: String,
    /// Message id.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageId))]
    pub id: String,
    #[serde(flatten)]
    pub contents: Contents,
    /// Number of the delivery attempt, starting at 1.
    pub attempt: u32,
    /// Partition of the topic, from 0 on.
    pub partition: u16,
    /// Due time of the producer.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub due_at: Timestamp,
    /// When the delivery counts as failed, unless it is settled or extended before.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub deadline: Timestamp,
    /// From the time at which it was due (or due again after a retry) to the hand-over, in milliseconds.
    pub lateness_ms: u64,
}

/// Reserved deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"deliveries": [{"receipt": "AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q", "id": "order-4711", "attempt": 1, "partition": 3,
    "due_at": "2026-01-02T03:04:05.678Z", "deadline": "2026-01-02T03:04:35.679Z", "lateness_ms": 1,
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}], "visibility_timeout_ms": 30000}
))))]
pub struct Deliveries {
    /// Empty when nothing was due within `wait`.
    pub deliveries: Vec<Delivery>,
    /// The visibility timeout that was used: that of the request, or of the topic.
    #[serde(with = "millis")]
    #[cfg_attr(feature = "schema", schema(value_type = u64, example = 30000))]
    pub visibility_timeout_ms: Duration,
}
