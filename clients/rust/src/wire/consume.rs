//! Reserving messages.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use super::time::{millis, span};
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
}
