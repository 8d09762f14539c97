//! Dead letters: pages, which are made ready again or deleted, and messages that a purge deletes.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::items::Items;
use super::messages::{Contents, FailedAttempt, LastError};
#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

/// A dead letter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeadLetterMessage {
    /// Message id.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageId))]
    pub id: String,
    /// Partition of the topic, from 0 on.
    pub partition: u16,
    /// When it died.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub died_at: Timestamp,
    /// `max_attempts`, `buried`, `unreadable` or `expired`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::DeathReason))]
    pub reason: Word,
    /// Attempts that were made.
    pub attempts: u32,
    /// Why its last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// How the last 16 attempts failed, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<FailedAttempt>,
    /// Due time of the producer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub due_at: Option<Timestamp>,
    #[serde(flatten)]
    pub contents: Option<Contents>,
    /// `hop_limit`: eight topics have forwarded it, so it stays here even if this topic forwards its dead letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub unforwarded: Option<Word>,
    /// Why the stored message cannot be read; then `due_at` and what travelled with it are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"dead_letters": [{"id": "order-4711", "partition": 3, "died_at": "2026-01-02T03:04:05.678Z", "reason": "max_attempts",
    "attempts": 16, "last_error": {"message": "smtp: 550"}, "due_at": "2026-01-02T03:04:05.678Z",
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}]}
))))]
pub struct DeadLetterMessages {
    /// Partition by partition, the oldest death first.
    pub dead_letters: Vec<DeadLetterMessage>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub next_cursor: Option<String>,
}

/// A selection of dead letters: `ids`, or the other fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"reason": "max_attempts", "older_than": "1h"}))))]
pub struct DeadLetterSelector {
    /// Not together with another field.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<schema::MessageId>>, min_items = 1, max_items = 1000))]
    pub ids: Option<Items<String>>,
    /// Only those with this reason.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::DeathReason>))]
    pub reason: Option<String>,
    /// Minimum age of a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub older_than: Option<Duration>,
    /// The same in milliseconds; not together with `older_than`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 3600000))]
    pub older_than_ms: Option<Duration>,
    /// Maximum age of a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub younger_than: Option<Duration>,
    /// The same in milliseconds; not together with `younger_than`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 86400000))]
    pub younger_than_ms: Option<Duration>,
    /// Only those with this text in the last error or in the payload, 1 to 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::SearchText>))]
    pub text: Option<String>,
    /// The largest number of dead letters to change.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 1))]
    pub limit: Option<NonZeroU64>,
    /// Dead letters a second, at most.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 100_000))]
    pub rate: Option<u32>,
    /// The `next_cursor` of the answer before.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub cursor: Option<String>,
    /// All that are dead now. Not together with a narrower selection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Only count them. Not together with `ids`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Result of a redrive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"redriven": 2}))))]
pub struct Redriven {
    /// Number of messages that are ready again.
    pub redriven: u64,
    /// How many would be; only with `dry_run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<u64>,
    /// Where to continue; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub next_cursor: Option<String>,
}

/// Result of a purge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"purged": 2}))))]
pub struct Purged {
    /// Number of messages that were deleted.
    pub purged: u64,
    /// How many would be; only with `dry_run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<u64>,
    /// Where to continue; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub next_cursor: Option<String>,
}
