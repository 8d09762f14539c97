//! Operations: readiness, what needs attention, the brokers of a store, the clock of a test.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

/// The process answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"status": "ok"}))))]
pub struct Alive {
    /// `ok`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub status: Word,
}

/// Pushes are accepted durably.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"status": "ready", "store": {"kind": "redis", "location": "redis://localhost:6379",
    "durability": "a 201 survives …"}}
))))]
pub struct Ready {
    /// `ready` or `degraded`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub status: Word,
    /// The reason why it is degraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The store.
    pub store: StoreDescription,
    /// Time of the test clock; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub test_clock: Option<Timestamp>,
}

/// The store, and what it survives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StoreDescription {
    /// `embedded` or `redis`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub kind: Word,
    /// Where it is, without secrets.
    pub location: String,
    /// The failures that a 201 survives, and those that it does not.
    pub durability: String,
}

/// The reasons to act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"attention": [{"kind": "no_consumer", "topic": "orders", "group": "default",
    "cause": "3 ready messages, the oldest for 2m5s: due, and no broker owns its partition: nobody consumes this group"}],
    "topics_seen": 12, "topics": 12}
))))]
pub struct AttentionList {
    /// The most urgent first, at most 200. Empty: all is well.
    pub attention: Vec<AttentionItem>,
    /// Topics that were looked at: at most 500, those with recent traffic first; fewer when the store became unavailable.
    pub topics_seen: usize,
    /// All topics.
    pub topics: usize,
}

/// A reason to act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AttentionItem {
    /// `not_ready`, `evicting`, `unreadable`, `restoring`, `memory_filling`, `wal_filling`, `degraded`, `disk_low`,
    /// `broker_gone`, `no_consumer`, `late`, `blocked`, `retry_storm`, `dead_letters`, `expired`, `cron_failed`, `paused`,
    /// `open_files` or `clock_offset`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub kind: Word,
    /// The topic; absent if it is about the broker or its store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TopicName>))]
    pub topic: Option<String>,
    /// The group, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::GroupName>))]
    pub group: Option<String>,
    /// The cause, for people. It may change.
    pub cause: String,
    /// The alert of Prometheus for it, which is also the heading of its runbook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<String>,
}

/// The brokers that share the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"brokers": [{"member": "web-1-k3v9x2", "version": "0.1.0", "here": true, "groups": 3, "demanded": 2, "waiting": 4, "owned": 16,
    "wal_records": 0, "wal_bytes": 65536, "wal_limit_bytes": 1073741824, "started_at": "2026-01-02T03:04:05.678Z", "doing": "serving",
    "journal_records": 0, "journal_bytes": 0, "clock_ahead_ms": 3}]}
))))]
pub struct BrokerList {
    /// Sorted by name.
    pub brokers: Vec<ListedBroker>,
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ListedBroker {
    /// Name of the broker, as in `owner` of its partitions.
    pub member: String,
    /// Version of the broker.
    pub version: String,
    /// Whether it is the one that answers.
    pub here: bool,
    /// Groups that it is a member of.
    pub groups: usize,
    /// Of these, those in which consumers want messages from it.
    pub demanded: usize,
    /// Consumers that wait there.
    pub waiting: usize,
    /// Partitions that it owns, in all groups.
    pub owned: usize,
    /// Records that wait in its write-ahead log.
    pub wal_records: u64,
    /// Bytes of its write-ahead log on disk.
    pub wal_bytes: u64,
    /// Bytes that its write-ahead log may have; 0 without one.
    pub wal_limit_bytes: u64,
    /// When it started, by its clock; absent if it has not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub started_at: Option<Timestamp>,
    /// `serving`, `buffering` (the store is unavailable), `replaying` (the store gets from its disk what it did not take), `restoring`
    /// (the store gets back what it lost), `draining` (it ends), or `unknown`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub doing: Word,
    /// Records of its journal; 0 without one.
    #[serde(default)]
    pub journal_records: u64,
    /// Bytes of its journal on disk.
    #[serde(default)]
    pub journal_bytes: u64,
    /// How far its clock is ahead of that of the store; absent if it has not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// When its latest heartbeat was sent, by the clock of the store: it sends one every 15 seconds. Of the broker that answers, now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub heard_at: Option<Timestamp>,
}

/// A broker that drains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"member": "web-1-k3v9x2"}))))]
pub struct Draining {
    /// Name of the broker.
    pub member: String,
}

/// Changes by reading the configuration again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"changed": ["log.level", "auth.token"], "needs_restart": ["lease.ttl"]}
))))]
pub struct Reloaded {
    /// Keys that are in force with other values now, `auth.token` and `webhook` among them.
    pub changed: Vec<String>,
    /// Keys that have other values than those in force, which need a restart.
    pub needs_restart: Vec<String>,
}

/// Where to move the clock: exactly one field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"advance": "30d"}))))]
pub struct ClockMove {
    /// By how much: 0 to 3,650 days.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub advance: Option<Duration>,
    /// The same in milliseconds; not together with `advance`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 2_592_000_000u64))]
    pub advance_ms: Option<Duration>,
    /// To which time: not in the past, and at most 3,650 days ahead.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Time>))]
    pub to: Option<Timestamp>,
}

/// The time of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"now": "2026-02-01T03:04:05.678Z"}))))]
pub struct ClockTime {
    /// Time of the clock.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub now: Timestamp,
}

/// The outcome of a move of the clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({
    "now": "2026-02-01T03:04:05.678Z", "due": [{"topic": "orders", "group": "default", "messages": 3}],
    "fired": [{"topic": "reports", "name": "nightly", "times": 30}], "timed_out": 1
}))))]
pub struct ClockMoved {
    /// Time of the clock after the move.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub now: Timestamp,
    /// The groups in which messages became due, and how many.
    pub due: Vec<DueMessages>,
    /// The cron jobs that fired, and how many times.
    pub fired: Vec<FiredCronJob>,
    /// Deliveries whose visibility timeout passed.
    pub timed_out: u64,
}

/// Messages of a group that became due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"topic": "orders", "group": "default", "messages": 3}))))]
pub struct DueMessages {
    /// The topic.
    #[cfg_attr(feature = "schema", schema(value_type = schema::TopicName))]
    pub topic: String,
    /// The group.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupName))]
    pub group: String,
    /// How many, with those of cron jobs.
    pub messages: u64,
}

/// A cron job that fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"topic": "reports", "name": "nightly", "times": 30}))))]
pub struct FiredCronJob {
    /// The topic.
    #[cfg_attr(feature = "schema", schema(value_type = schema::TopicName))]
    pub topic: String,
    /// Name of the cron job.
    #[cfg_attr(feature = "schema", schema(value_type = schema::CronName))]
    pub name: String,
    /// Its occurrences, each of which fired.
    pub times: u64,
}
