//! One message: cancelled, rescheduled, explained.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

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
    /// Policy if `due_at` is in the past: `now` (it is due at once) or `reject`. Default `now`.
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
    /// When what it waits for is over at the latest, if that is known: its due time, the deadline of a consumer, a next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub until: Option<Timestamp>,
    /// The broker that owns its partition, once it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
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
