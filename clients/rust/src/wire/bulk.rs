//! Many messages by their due times: bulk operations and forecasts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

/// A bulk operation on the messages that are due in a range of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"from": "2026-01-02T03:00:00Z", "to": "2026-01-02T04:00:00Z", "action": "postpone", "by": "2h"}
))))]
pub struct BulkChange {
    /// Start of the window.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Time))]
    pub from: Timestamp,
    /// End of the window, which is not part of it.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Time))]
    pub to: Timestamp,
    /// `cancel`, `postpone`, `advance`, `park` or `unpark`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::BulkAction))]
    pub action: Word,
    /// By how much, with `postpone` and `advance`: at least the length of the window.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub by: Option<Duration>,
    /// The same in milliseconds; not together with `by`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 7200000))]
    pub by_ms: Option<Duration>,
    /// The `next_cursor` of the answer before.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub cursor: Option<String>,
}

/// Number of messages that wait in a range of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"waiting": 1200}))))]
pub struct BulkCount {
    /// Messages that are scheduled or ready.
    pub waiting: u64,
}

/// Progress of a bulk operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"changed": 1200, "passed_over": 2}))))]
pub struct BulkChanged {
    /// Messages that were changed.
    pub changed: u64,
    /// Messages left unchanged: a consumer has them, or they expire before the new due time.
    pub passed_over: u64,
    /// Where to continue; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub next_cursor: Option<String>,
}

/// Forecast of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"from": "2026-01-02T03:04:05.678Z", "step_ms": 3_600_000, "ready": 3, "spans": [{"until": "2026-01-02T04:04:05.678Z",
    "due": 1200}], "later": 15, "backoff": 2}
))))]
pub struct GroupForecast {
    /// Where the first span begins: now.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub from: Timestamp,
    /// How long each span is.
    #[serde(with = "millis")]
    #[cfg_attr(feature = "schema", schema(value_type = u64, example = 60000))]
    pub step_ms: Duration,
    /// Messages that are due already.
    pub ready: u64,
    /// One for each span.
    pub spans: Vec<Due>,
    /// Messages that become due after the last span.
    pub later: u64,
    /// Messages that hold their key until their next attempt: they are in no span.
    pub backoff: u64,
}

/// Messages that become due in one span.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Due {
    /// The end of the span, which belongs to it.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub until: Timestamp,
    /// Messages.
    pub due: u64,
}
