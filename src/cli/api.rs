//! What goes over HTTP, as docs/reference/http.md has it. Fields that are not known are passed over, so that an older client
//! can read a newer broker.

mod dead;
mod many;
mod cron;
mod settling;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(super) use self::cron::{CronJob, CronPage, NewCronJob};
pub(super) use self::dead::{Dead, DeadFilter, DeadPage, Failure, Swept, Which};
pub(super) use self::many::{BulkChange, BulkChanged, BulkCount, Forecast, MoveTo, Moved};
pub(super) use self::settling::{Extension, Nack, NackOfAll, Nacks, Receipts, Verdict, Verdicts};
use crate::model::error::Missing;
use crate::model::retry::Backoff;
use crate::model::time::{Timestamp, millis, span};
use crate::model::topic::{Expiry, Ordering, Settings};

/// An `application/problem+json` answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Problem {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) status: u16,
    #[serde(default)]
    pub(super) detail: String,
    /// The resource that does not exist.
    #[serde(default)]
    pub(super) missing: Option<Missing>,
    /// The id to repeat a push with whose outcome is unknown.
    #[serde(default)]
    pub(super) id: Option<String>,
    /// The results of a batch in which every message failed, or the verdict on a single receipt.
    #[serde(default)]
    results: serde_json::Value,
    /// Everything that is wrong with the request.
    #[serde(default)]
    pub(super) errors: Vec<FieldError>,
}

/// One of several things that are wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct FieldError {
    #[serde(default, alias = "pointer", alias = "parameter", alias = "header")]
    place: String,
    detail: String,
}

impl Problem {
    /// The name of the kind, without the common beginning.
    pub(super) fn name(&self) -> &str {
        self.kind.rsplit(':').next().unwrap_or(&self.kind)
    }

    /// The result of each item of the request, if each was answered for itself.
    pub(super) fn results<R: DeserializeOwned>(&self) -> Option<Vec<R>> {
        Vec::deserialize(&self.results).ok().filter(|results| !results.is_empty())
    }

    /// Whether the same request may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self.name(), "full" | "unavailable" | "outcome-unknown" | "timeout")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(missing) = &self.missing {
            return write!(f, "{missing}; {} ({})", remedy(missing), self.name());
        }
        match self.detail.as_str() {
            "" => write!(f, "{} ({})", self.title, self.name())?,
            detail => write!(f, "{detail} ({})", self.name())?,
        }
        // The detail has the first one.
        self.errors.iter().skip(1).try_for_each(|error| write!(f, "\n  {}: {}", error.place, error.detail))
    }
}

/// The command that creates what is missing, or shows what exists.
fn remedy(missing: &Missing) -> String {
    match missing {
        Missing { topic, group: Some(group), .. } => format!("create it with `dwell group create {topic} {group}`"),
        Missing { topic, cron: Some(_), .. } => format!("`dwell cron list {topic}` shows those that exist"),
        Missing { topic, .. } => format!("create it with `dwell topic create {topic}`"),
    }
}

/// The settings of a topic that a declaration names.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Declaration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partitions: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) visibility_timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backoff: Option<Backoff>,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) dedup_window: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ordering: Option<Ordering>,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) ttl: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) on_expiry: Option<Expiry>,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) dead_max_age: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dead_max_count: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Topics {
    pub(super) topics: Vec<String>,
}

/// A topic, described.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Topic {
    pub(super) topic: String,
    pub(super) groups: Vec<String>,
    pub(super) settings: Settings,
    /// Absent in the answer to a declaration.
    #[serde(default)]
    pub(super) totals: Vec<Counts>,
    #[serde(default)]
    pub(super) partitions: Vec<Counts>,
}

/// The messages of a group, in one partition or in all.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Counts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partition: Option<u16>,
    pub(super) group: String,
    pub(super) scheduled: u64,
    pub(super) ready: u64,
    pub(super) in_flight: u64,
    pub(super) dead: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_due_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    pub(super) oldest_ready_age_ms: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
}

/// What is asked of a group.
#[derive(Debug, Default, Serialize)]
pub(super) struct NewGroup {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) copy_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_in_flight: Option<u32>,
}

/// For how long a group is paused.
#[derive(Debug, Default, Serialize)]
pub(super) struct PauseOf {
    #[serde(rename = "for", skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) span: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
}

/// A group; counts only where it is described.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Group {
    pub(super) group: String,
    pub(super) state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) paused_until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) copy_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_in_flight: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) partitions: Vec<Counts>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) members: Vec<Member>,
}

/// A broker that is a member of a group.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Member {
    pub(super) member: String,
    pub(super) version: String,
    pub(super) demand: bool,
    pub(super) waiting: u64,
    pub(super) owned: u64,
}

/// What became of one pushed message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Pushed {
    /// Absent only with some errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) partition: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) due_at: Option<Timestamp>,
    /// `stored`, `journaled`, `buffered`, `duplicate`, `replaced`, `debounced` or `error`.
    pub(super) status: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) topic_created: bool,
    #[serde(default, skip_serializing)]
    pub(super) error: Option<Box<Problem>>,
}

impl Pushed {
    /// Whether the broker answers for it from now on, and it was not there before.
    pub(super) fn is_accepted(&self) -> bool {
        matches!(self.status.as_str(), "stored" | "journaled" | "buffered")
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct PushResults {
    pub(super) results: Vec<Pushed>,
}

/// A request for deliveries.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Reserve {
    pub(super) max: usize,
    #[serde(with = "span")]
    pub(super) wait: Duration,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) visibility_timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) min_age: Option<Duration>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Deliveries<D> {
    pub(super) deliveries: Vec<D>,
}

/// A message in the hands of a consumer.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(super) struct Delivery {
    pub(super) receipt: String,
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(flatten)]
    pub(super) payload: Payload,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<u8>,
    #[serde(default)]
    pub(super) meta: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tracestate: Option<String>,
    pub(super) attempt: u32,
    pub(super) partition: u16,
    pub(super) due_at: Timestamp,
    pub(super) pushed_at: Timestamp,
    pub(super) deadline: Timestamp,
    pub(super) lateness_ms: u64,
}

/// A payload: text, or base64 when it is not UTF-8.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub(super) struct Payload {
    #[serde(default, rename = "payload", skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(default, rename = "payload_base64", skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<String>,
}

impl Payload {
    /// The bytes; the error says why there are none.
    pub(super) fn bytes(&self) -> Result<Bytes, String> {
        match (&self.text, &self.base64) {
            (Some(text), None) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            (None, Some(base64)) => {
                STANDARD.decode(base64).map(Bytes::from).map_err(|error| format!("`payload_base64`: {error}"))
            }
            (Some(_), Some(_)) => Err("has both `payload` and `payload_base64`".to_owned()),
            (None, None) => Err("has neither `payload` nor `payload_base64` nor `payload_json`".to_owned()),
        }
    }

    /// The payload on one line: text as it is but for control characters, other bytes as their number.
    pub(super) fn shown(&self) -> String {
        match (&self.text, self.bytes()) {
            (Some(text), _) => text.chars().map(|c| if c.is_control() { '·' } else { c }).collect(),
            (None, Ok(bytes)) => format!("({} bytes)", bytes.len()),
            (None, Err(_)) => String::new(),
        }
    }
}

/// What an audit found.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Findings {
    pub(super) seen: u64,
    pub(super) findings: Vec<Found>,
    #[serde(skip_serializing)]
    pub(super) next_cursor: Option<String>,
}

/// Keys that disagree.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Found {
    pub(super) id: String,
    pub(super) partition: u16,
    pub(super) defect: String,
}
