//! Topics: their names, how many messages they hold, and moves.

use std::num::NonZeroU16;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis};
use super::{Word, present};

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
    /// How long the oldest message that is ready or blocked has been due.
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
    /// `active`; `paused` or `copying`: nothing is delivered.
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
