//! Groups: their state, their members, and what is wrong with what is stored of them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

use super::items::{Named, Object};
#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::topics::{Counts, PartitionState};
use super::{Word, present};

/// Settings of a group. A field that is absent stays unchanged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"rate": 10.0, "max_in_flight": 100}))))]
pub struct NewGroup {
    /// The group whose messages, scheduled, ready or in flight, the new one gets a copy of. Default: none, it gets what is
    /// pushed from now on. Means nothing for a group that exists.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::GroupName>))]
    pub copy_of: Option<String>,
    /// Messages that are handed out in a second by all brokers together, at most: 0.001 to 100,000; 0 is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "rate")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Rate>))]
    pub rate: Option<f64>,
    /// Deliveries in flight in all partitions together, at most: not fewer than there are partitions; 0 is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 4_294_967_295u32, format = Int64))]
    pub max_in_flight: Option<u32>,
    /// When messages are handed out; outside of it the group is closed. `{}` is always.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<DeliveryWindow>))]
    pub window: Option<Object<DeliveryWindow>>,
    /// Whether the keys take turns. `key`: each key that has due messages has its share of the deliveries, however many another one has. `none`:
    /// messages are delivered in the order of their due times.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Fairness>))]
    pub fair: Option<Word>,
    /// Deliveries of one key in flight, at most; 0 is without a limit. Only with `fair` = `key`. Messages without a key have no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 4_294_967_295u32, format = Int64))]
    pub key_max_in_flight: Option<u32>,
    /// Deliveries of one key in a second, at most, 0.001 to 100,000; 0 is without a limit. Only with `fair` = `key`. Messages without a
    /// key have no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "rate")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Rate>))]
    pub key_rate: Option<f64>,
    /// Deliveries of one key that may be made at once, where keys have a rate, 1 to 10,000: in any time `t` there are no more than
    /// `key_burst` + `key_rate` × `t`. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 10_000, format = Int64))]
    pub key_burst: Option<u32>,
    /// How large the shares of keys are, 1 to 100, where others have 1: at most 100 names of keys, or beginnings of names with a `*` behind them.
    /// The name of a key counts before a beginning, and the longest beginning before others. Replaces all weights; `{}` removes them. Only
    /// with `fair` = `key`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Weights>))]
    pub weights: Option<Named<u32>>,
    /// Other limits for some keys, by names and beginnings as in `weights`, at most 100. Replaces all of them; `{}` removes them. Only with
    /// `fair` = `key`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<BTreeMap<String, NewKeyLimit>>, example = json!({"gold-*": {"max_in_flight": 20, "rate": 50.0}})))]
    pub key_limits: Option<Named<Object<NewKeyLimit>>>,
}

/// Limits of some keys. One that is absent is that of the group; a burst belongs to its rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"max_in_flight": 20, "rate": 50.0, "burst": 5}))))]
pub struct NewKeyLimit {
    /// Deliveries in flight of each such key, at most; 0 is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 4_294_967_295u32, format = Int64))]
    pub max_in_flight: Option<u32>,
    /// Deliveries of each such key in a second, at most, 0.001 to 100,000; 0 is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "rate")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Rate>))]
    pub rate: Option<f64>,
    /// Deliveries of each such key that may be made at once, 1 to 10,000; only with `rate`. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 10_000, format = Int64))]
    pub burst: Option<u32>,
}

/// Days and a time of day. `{}` is always.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"days": ["mon", "tue", "wed", "thu", "fri"], "from": "09:00", "to": "17:30", "time_zone": "Europe/Berlin"}
))))]
pub struct DeliveryWindow {
    /// The days on which it opens, each once. Default: every day.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<schema::Weekday>>, min_items = 1, max_items = 7))]
    pub days: Option<Vec<Word>>,
    /// When it opens.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TimeOfDay>))]
    pub from: Option<String>,
    /// When it closes: on the next day, unless this is later than `from`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TimeOfDay>))]
    pub to: Option<String>,
    /// The time zone of both. Default: `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::TimeZone>))]
    pub time_zone: Option<String>,
}

/// Reads the limit as it is written: a number that is too small must not be read as 0, which means no limit.
fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let text: Box<RawValue> = Box::deserialize(deserializer)?;
    let rate: f64 = serde_json::from_str(text.get()).map_err(de::Error::custom)?;
    let mantissa = text.get().split(['e', 'E']).next().unwrap_or_default();
    match rate == 0.0 && mantissa.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        true => Err(de::Error::custom(format_args!("{text} is too small; 0 is without a limit"))),
        false => Ok(Some(rate)),
    }
}

/// The groups of a topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"groups": [{"group": "default", "state": "active"}]}))))]
pub struct GroupList {
    /// All groups of the topic.
    pub groups: Vec<Group>,
}

/// How long to pause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"for": "10m"}))))]
pub struct PauseOf {
    /// From now on. Not together with `until`. Default: until it is resumed.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub span: Option<Duration>,
    /// The same in milliseconds; not together with `for`.
    #[serde(default, rename = "for_ms", skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 600000))]
    pub span_ms: Option<Duration>,
    /// Until this time.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Time>))]
    pub until: Option<Timestamp>,
}

/// The messages of a group to delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"all": true}))))]
pub struct PurgeOf {
    /// Has to be true: all messages of the group, scheduled, ready and in flight.
    #[serde(default)]
    pub all: bool,
    /// Its dead letters too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead_letters: bool,
    /// Only count them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"group": "default", "state": "active"}))))]
pub struct Group {
    /// Name of the group.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupName))]
    pub group: String,
    /// `active`; `paused`, `closed` (outside of its window) or `copying`: nothing is handed out.
    #[cfg_attr(feature = "schema", schema(value_type = schema::GroupState))]
    pub state: Word,
    /// When the pause ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub paused_until: Option<Timestamp>,
    /// When the window opens, while it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub opens_at: Option<Timestamp>,
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
    /// When messages are handed out; absent if always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<DeliveryWindow>,
    /// `key` if the keys take turns; absent if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Fairness>))]
    pub fair: Option<Word>,
    /// Deliveries of one key in flight, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_max_in_flight: Option<u32>,
    /// Deliveries of one key in a second, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_rate: Option<f64>,
    /// Deliveries of one key that may be made at once; absent is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_burst: Option<u32>,
    /// How large the shares of keys are, where others have 1, by names and beginnings with a `*`; absent if all have 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = schema::Weights, required = false))]
    pub weights: BTreeMap<String, u32>,
    /// Other limits for some keys, by names and beginnings with a `*`; absent if there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(required = false))]
    pub key_limits: BTreeMap<String, KeyLimit>,
}

/// Limits of some keys. One that is absent is that of the group; a burst belongs to its rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"max_in_flight": 20, "rate": 50.0, "burst": 5}))))]
pub struct KeyLimit {
    /// Deliveries in flight of each such key, at most; 0 is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Deliveries of each such key in a second, at most; 0 is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Deliveries of each such key that may be made at once; absent is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
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
    /// The keys that have messages due or in flight; only of a fair group, and for a token that consumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<GroupKeys>,
}

/// The keys of a fair group that have messages due or in flight, as the owners of its partitions know them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"count": 1001, "complete": true, "busiest": [{"key": "customer-7", "ready": 12000, "in_flight": 5, "reason": "key_at_max_in_flight"}]}
))))]
pub struct GroupKeys {
    /// How many keys there are. Messages without a key are one.
    pub count: u64,
    /// Whether all partitions that have messages due or in flight are in it: each has an owner, which answered in time.
    pub complete: bool,
    /// Those with the most messages, 100 at most, the most first.
    pub busiest: Vec<KeyState>,
    /// How many keys are paused, whether they have messages or not; absent is 0.
    #[serde(default, skip_serializing_if = "is_none")]
    pub paused_count: u64,
    /// The paused keys, 100 at most, those that are free first; absent if none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<KeyPause>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A key of a fair group, and how long it is paused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"key": "customer-7", "paused_until": "2026-01-02T03:04:05.678Z"}
))))]
pub struct KeyPause {
    /// The key.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Key))]
    pub key: String,
    /// When the pause ends; absent if the key is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub paused_until: Option<Timestamp>,
}

/// A key of a fair group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeyState {
    /// The key; absent for the messages without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Key>))]
    pub key: Option<String>,
    /// Messages that are due and that the owner has looked at.
    pub ready: u64,
    /// Messages that are with consumers.
    pub in_flight: u64,
    /// The reason why its next message waits, if the key holds it up: `key_paused`, `key_at_max_in_flight` or `key_rate_limited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::ExplainReason>))]
    pub reason: Option<Word>,
    /// When the key may have its next delivery, if it waits for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub until: Option<Timestamp>,
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
    /// Whether consumers wait there, or deliveries are in flight, or were within the last second.
    pub demand: bool,
    /// Consumers that wait there.
    pub waiting: u64,
    /// Partitions that it owns.
    pub owned: u64,
    /// When its latest heartbeat for the group was sent, by the clock of the store; what is said here is from then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub heard_at: Option<Timestamp>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_that_is_too_small_is_not_read_as_no_limit() {
        let read = |rate: &str| serde_json::from_str(&format!(r#"{{"rate": {rate}}}"#)).map(|new: NewGroup| new.rate);
        assert_eq!(read("0.0e5").ok(), Some(Some(0.0)));
        assert_eq!(read("2.5").ok(), Some(Some(2.5)));
        assert!(read("1e-400").is_err());
        assert!(read("\"1\"").is_err());
        assert!(read("null").is_err());
    }
}
