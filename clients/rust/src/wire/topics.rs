//! Topics: their settings, their names, how many messages they hold, and moves.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::items::{Named, Object};
#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

/// Settings of a topic. A field that is absent stays unchanged, or has its default in a new topic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"partitions": 8, "visibility_timeout": "30s", "max_attempts": 16}))))]
pub struct TopicSettings {
    /// 1 to 1,024; cannot be changed later. Default 8.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u16>, minimum = 1, maximum = 1024))]
    pub partitions: Option<NonZeroU16>,
    /// How long a consumer has to settle a delivery, 100 ms to 12 h. Default 30 s.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub visibility_timeout: Option<Duration>,
    /// The same in milliseconds; not together with `visibility_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 30000))]
    pub visibility_timeout_ms: Option<Duration>,
    /// Attempts before a message is dead, up to 1,000; 0 is without a limit. Default 16.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 1000))]
    pub max_attempts: Option<u32>,
    /// The delay between attempts: `{kind: "exponential", initial, max, factor, jitter}` or `{kind: "ladder", steps}`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Backoff>))]
    pub backoff: Option<Backoff>,
    /// How long after a message was acked a push with its id is still a duplicate, at most 7 d. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub dedup_window: Option<Duration>,
    /// The same in milliseconds; not together with `dedup_window`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 600000))]
    pub dedup_window_ms: Option<Duration>,
    /// `key`: the messages of a key one after the other; cannot be changed later. Default `none`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Ordering>))]
    pub ordering: Option<Word>,
    /// How long after its due time a message without its own `ttl` is worth delivering, at most 3,650 d; 0 is
    /// indefinitely. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub ttl: Option<Duration>,
    /// The same in milliseconds; not together with `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 3600000))]
    pub ttl_ms: Option<Duration>,
    /// Policy for an expired message: `drop` or `bury`. Default `drop`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Expiry>))]
    pub on_expiry: Option<Word>,
    /// How long dead letters are kept, at most 3,650 d; 0 is indefinitely. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub dead_max_age: Option<Duration>,
    /// The same in milliseconds; not together with `dead_max_age`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 1209600000))]
    pub dead_max_age_ms: Option<Duration>,
    /// How many dead letters a group keeps in each partition; 0 is all. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 10_000_000))]
    pub dead_max_count: Option<u64>,
    /// Texts about the topic, which dwell does not read. Those that are absent stay; an empty text removes one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Annotations>))]
    pub annotations: Option<Annotations>,
    /// The topic to which messages move that used all attempts or were buried. Default: they stay dead letters.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<DeadLetter>))]
    pub dead_letter: Option<Object<DeadLetter>>,
}

/// A topic for dead letters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"topic": "orders-dead"}))))]
pub struct DeadLetter {
    /// Name of the topic, another one; empty for none. It should exist: until it does, dead letters stay in their group.
    #[cfg_attr(feature = "schema", schema(value_type = schema::TopicNameOrNone))]
    pub topic: String,
}

/// The delay between attempts. Each duration is text or in milliseconds, as answers have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Backoff {
    /// Delays that grow by a factor, up to the longest.
    Exponential {
        #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
        initial: Option<Duration>,
        #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
        initial_ms: Option<Duration>,
        #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
        max: Option<Duration>,
        #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
        max_ms: Option<Duration>,
        factor: f64,
        jitter: f64,
    },
    /// Listed delays, of which the last one repeats.
    Ladder {
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        steps: Option<Vec<LadderStep>>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        steps_ms: Option<Vec<u64>>,
    },
}

/// A listed delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LadderStep(#[serde(with = "span")] pub Duration);

/// Texts about a topic by their names, each name once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Annotations(pub BTreeMap<String, String>);

/// A name that comes twice is an error.
impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Annotations, D::Error> {
        Named::deserialize(deserializer).map(|Named(annotations)| Annotations(annotations))
    }
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"topic": "orders", "groups": ["default"], "settings": {"partitions": 8, "visibility_timeout_ms": 30000,
    "max_attempts": 16, "backoff": {"kind": "exponential", "initial_ms": 1000, "max_ms": 600_000, "factor": 2.0, "jitter": 0.2},
    "dedup_window_ms": 0, "ordering": "none", "ttl_ms": 0, "on_expiry": "drop", "dead_max_age_ms": 0, "dead_max_count": 0}}))))]
pub struct Topic {
    /// Its name.
    #[cfg_attr(feature = "schema", schema(value_type = schema::TopicName))]
    pub topic: String,
    /// Its groups, each of which gets every message.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<schema::GroupName>))]
    pub groups: Vec<String>,
    /// All its settings.
    pub settings: TopicSettings,
}

/// The names of all topics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"topics": ["orders", "payments"]}))))]
pub struct TopicList {
    /// Sorted.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<schema::TopicName>))]
    pub topics: Vec<String>,
}

/// Messages of a group by state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counts {
    /// Messages that are not due.
    pub scheduled: u64,
    /// Messages that are due, and that the next consumer may have.
    pub ready: u64,
    /// Messages that are due, behind an earlier message of their key.
    pub blocked: u64,
    /// Messages that hold their key until their next attempt.
    pub backoff: u64,
    /// Messages that consumers have, or whose owner does not answer.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// How long the oldest message that is ready or blocked has been due, without the time in which the group was closed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 12))]
    pub oldest_ready_age_ms: Option<Duration>,
}

impl Counts {
    /// Messages that wait for an earlier message of their key, or hold it until their next attempt.
    pub fn held(&self) -> u64 {
        self.blocked + self.backoff
    }

    /// Messages in any state but dead.
    pub fn live(&self) -> u64 {
        self.scheduled + self.ready + self.held() + self.in_flight
    }
}

/// The messages of a group in all partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupTotals {
    /// Name of the group.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupName))]
    pub group: String,
    /// `active`; `paused`, `closed` or `copying`: nothing is delivered.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupState))]
    pub state: Word,
    #[serde(flatten)]
    pub counts: Counts,
}

/// The messages of a group in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PartitionState {
    /// Partition of the topic, from 0 on.
    pub partition: u16,
    /// Name of the group.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupName))]
    pub group: String,
    #[serde(flatten)]
    pub counts: Counts,
    /// The earliest due time of what is scheduled or ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub next_due_at: Option<Timestamp>,
    /// The broker that owns the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A topic and what is in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"topic": "orders", "groups": ["default"], "settings": {"partitions": 8, "visibility_timeout_ms": 30000,
    "max_attempts": 16, "backoff": {"kind": "exponential", "initial_ms": 1000, "max_ms": 600_000, "factor": 2.0, "jitter": 0.2},
    "dedup_window_ms": 0, "ordering": "none", "ttl_ms": 0, "on_expiry": "drop", "dead_max_age_ms": 0, "dead_max_count": 0}, "totals": [{"group": "default", "state": "active", "scheduled": 150, "ready": 1, "blocked": 0, "backoff": 0, "in_flight": 0, "dead": 0}],
    "partitions": [{"partition": 0, "group": "default", "scheduled": 150, "ready": 1, "blocked": 0, "backoff": 0, "in_flight": 0, "dead": 0}]}
))))]
pub struct TopicDescription {
    #[serde(flatten)]
    pub topic: Topic,
    /// One for every group.
    pub totals: Vec<GroupTotals>,
    /// One for every partition and group.
    pub partitions: Vec<PartitionState>,
}

/// Destination of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"to": "orders-16", "partitions": 16}))))]
pub struct MoveTo {
    /// The topic to move to; created if it does not exist.
    #[cfg_attr(feature = "schema", schema(value_type = schema::TopicName))]
    pub to: String,
    /// Its number of partitions, 1 to 1,024. Default: that of this topic, or of the other one if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u16>, minimum = 1, maximum = 1024))]
    pub partitions: Option<NonZeroU16>,
}

/// Progress of a move.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"moved": 1200, "dead": 3, "duplicates": 0, "in_flight": 2, "done": false}
))))]
pub struct Moved {
    /// Messages that this request moved, in each group.
    pub moved: u64,
    /// Dead letters that this request moved.
    pub dead: u64,
    /// Messages whose id the other topic has: dropped as duplicates.
    pub duplicates: u64,
    /// Messages that consumers of this topic have in flight.
    pub in_flight: u64,
    /// Whether nothing is left; if something is, repeat the request.
    pub done: bool,
}
