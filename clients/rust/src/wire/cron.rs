//! Cron jobs: messages that recur.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::messages::Meta;
#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

/// A recurring message: when it occurs, and what is pushed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin", "payload": "close the books"}))))]
pub struct NewCronJob {
    /// A cron expression: minute, hour, day of month, month, day of week; or `@hourly`, `@daily`, `@weekly`, `@monthly`,
    /// `@yearly`. Either this or `every`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::CronExpression>))]
    pub cron: Option<String>,
    /// The IANA name of the time zone of `cron`. Default `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TimeZone>))]
    pub time_zone: Option<String>,
    /// The span from one occurrence to the next, 1 s to 3,650 d.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub every: Option<Duration>,
    /// The same in milliseconds; not together with `every`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 900000))]
    pub every_ms: Option<Duration>,
    /// Occurrences are whole spans of `every` after this. Default 1970-01-01T00:00:00Z.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Time>))]
    pub from: Option<Timestamp>,
    /// Which missed occurrences are pushed later: `skip` (none), `last` or `all`. Default `last`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Missed>))]
    pub missed: Option<String>,
    /// How long after its occurrence a message is still worth delivering.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub ttl: Option<Duration>,
    /// The same in milliseconds; not together with `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 3600000))]
    pub ttl_ms: Option<Duration>,
    /// Overrides the topic's number of attempts; 0 is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 1000))]
    pub max_attempts: Option<u32>,
    /// The payload as text.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub payload: Option<String>,
    /// The payload in base64. Exactly one of the three.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Base64>))]
    pub payload_base64: Option<String>,
    /// The payload as any JSON value; its content type is `application/json` unless `content_type` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub payload_json: Option<Box<RawValue>>,
    /// Travels with the payload.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::ContentType>))]
    pub content_type: Option<String>,
    /// Names and values that travel with the payload.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Meta>))]
    pub meta: Option<Meta>,
}

/// A recurring message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "last", "paused": false,
    "state": "active", "next_at": "2026-01-03T02:00:00.000Z", "meta": {}, "payload": "close the books"}
))))]
pub struct CronJob {
    /// Its name, which is the key of its messages.
    pub name: String,
    /// Cron expression; absent with `every`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::CronExpression>))]
    pub cron: Option<String>,
    /// Time zone of `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TimeZone>))]
    pub time_zone: Option<String>,
    /// Span from one occurrence to the next; absent with `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub every_ms: Option<Duration>,
    /// Occurrences are whole spans of `every` after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub from: Option<Timestamp>,
    /// Policy for missed occurrences.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Missed))]
    pub missed: Word,
    /// Whether nothing is pushed.
    pub paused: bool,
    /// `active`, `paused`, or `failed` when this broker cannot compute its next time.
    #[cfg_attr(feature = "schema", schema(value_type = schema::CronState))]
    pub state: Word,
    /// Why it has failed, and what to write; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// When it occurs next; absent while it is paused, and when it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub next_at: Option<Timestamp>,
    /// How long after its occurrence a message is still delivered.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub ttl_ms: Option<Duration>,
    /// Overrides `max_attempts` of the topic; 0 is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Media type of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::ContentType>))]
    pub content_type: Option<String>,
    /// Names and values that travel with the payload.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Meta))]
    pub meta: Meta,
    /// Payload, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Payload in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Base64>))]
    pub payload_base64: Option<String>,
}

/// A page of cron jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"cron_jobs": [{"name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "last",
    "paused": false, "state": "active", "next_at": "2026-01-03T02:00:00.000Z", "meta": {}, "payload": "close the books"}]}
))))]
pub struct CronJobs {
    /// Partition by partition, sorted by name.
    pub cron_jobs: Vec<CronJob>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub next_cursor: Option<String>,
}
