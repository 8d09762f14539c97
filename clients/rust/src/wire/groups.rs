//! Groups: their state, their members, and what is wrong with what is stored of them.

use serde::{Deserialize, Serialize};

use super::Word;
#[cfg(feature = "schema")]
use super::schema;
use super::time::Timestamp;
use super::topics::{Counts, PartitionState};

/// A group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"group": "default", "state": "active"}))))]
pub struct Group {
    /// Name of the group.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupName))]
    pub group: String,
    /// `active`; `paused` or `copying`: nothing is handed out.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupState))]
    pub state: Word,
    /// When the pause ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub paused_until: Option<Timestamp>,
    /// The group that is being copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::GroupName>))]
    pub copy_of: Option<String>,
    /// Messages that are handed out in a second, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Deliveries in flight, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
}

/// A group and what is in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"group": "default", "state": "active", "totals": {"scheduled": 150, "ready": 1, "blocked": 0, "backoff": 0, "in_flight": 0, "dead": 0},
    "partitions": [{"partition": 0, "group": "default", "scheduled": 150, "ready": 1, "blocked": 0, "backoff": 0, "in_flight": 0, "dead": 0}],
    "members": [{"member": "web-1-k3v9x2", "version": "0.1.0", "demand": true, "waiting": 2, "owned": 8}]}
))))]
pub struct GroupDescription {
    #[serde(flatten)]
    pub group: Group,
    /// The messages in all partitions.
    pub totals: Counts,
    /// One for every partition.
    pub partitions: Vec<PartitionState>,
    /// The brokers that are members of the group now.
    pub members: Vec<Member>,
}

/// A broker that is a member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"member": "web-1-k3v9x2", "version": "0.1.0", "demand": true, "waiting": 2, "owned": 8}
))))]
pub struct Member {
    /// Name of the broker, as in `owner` of its partitions.
    pub member: String,
    /// Version of the broker.
    pub version: String,
    /// Whether somebody wants messages from it: consumers wait there, deliveries are in flight, or were within a second.
    pub demand: bool,
    /// Consumers that wait there.
    pub waiting: u64,
    /// Partitions that it owns.
    pub owned: u64,
}

/// Inconsistencies of stored data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"seen": 12000, "findings": [{"id": "order-4711", "partition": 3, "defect": "body_without_id"}]}
))))]
pub struct Findings {
    /// Entries that were looked at.
    pub seen: u64,
    /// Inconsistencies; with POST they are repaired.
    pub findings: Vec<Found>,
    /// Where to continue; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub next_cursor: Option<String>,
}

/// An inconsistency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Found {
    /// Message id.
    #[cfg_attr(feature = "schema", schema(value_type = schema::MessageId))]
    pub id: String,
    /// The partition.
    pub partition: u16,
    /// How: `body_without_id`, `id_without_body`, `charge_without_body`, `dead_id_without_body` or
    /// `dead_body_without_id`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Defect))]
    pub defect: Word,
}
