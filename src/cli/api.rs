//! Requests and answers over HTTP, as in docs/reference/http.md. Fields that are not known are passed over, so that an older client
//! can read a newer broker.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use dwell_client::wire::groups::Group;
use dwell_client::wire::messages::FailedAttempt;
use dwell_client::wire::topics::{GroupTotals, PartitionState};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::error::Missing;
use crate::model::time::{Timestamp, millis, parse_span, short_span, span};
use crate::model::topic::Settings;

/// An answer together with its JSON, which is what is printed: it has also the fields that are not read here.
#[derive(Debug, Clone)]
pub(super) struct WithJson<T> {
    read: T,
    json: Box<RawValue>,
}

impl<T> WithJson<T> {
    /// The value alone, without its JSON.
    pub(super) fn read(self) -> T {
        self.read
    }
}

impl<T> Deref for WithJson<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.read
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for WithJson<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WithJson<T>, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let read = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        Ok(WithJson { read, json })
    }
}

impl<T> Serialize for WithJson<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Problem {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) status: u16,
    #[serde(default)]
    pub(super) detail: String,
    pub(super) missing: Option<Missing>,
    pub(super) id: Option<String>,
    #[serde(default)]
    results: Value,
    #[serde(default)]
    pub(super) errors: Vec<FieldError>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct FieldError {
    #[serde(default, alias = "pointer", alias = "parameter", alias = "header")]
    place: String,
    detail: String,
}

impl Problem {
    pub(super) fn name(&self) -> &str {
        self.kind.rsplit(':').next().unwrap_or(&self.kind)
    }

    pub(super) fn results<R: DeserializeOwned>(&self) -> Option<Vec<R>> {
        Vec::deserialize(&self.results).ok().filter(|results| !results.is_empty())
    }

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

fn remedy(missing: &Missing) -> String {
    match missing {
        Missing { topic, group: Some(group), .. } => format!("create it with `dwell group create {topic} {group}`"),
        Missing { topic, cron: Some(_), .. } => format!("`dwell cron list {topic}` shows those that exist"),
        Missing { topic, .. } => format!("create it with `dwell topic create {topic}`"),
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DeadLetterTo {
    pub(super) topic: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Topic {
    pub(super) topic: String,
    pub(super) groups: Vec<String>,
    pub(super) settings: Settings,
    /// Absent in the answer to a declaration.
    #[serde(default)]
    pub(super) totals: Vec<GroupTotals>,
    #[serde(default)]
    pub(super) partitions: Vec<PartitionState>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Groups {
    pub(super) groups: Vec<WithJson<Group>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Pushed {
    /// Absent only with some errors.
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) partition: Option<u16>,
    #[serde(default)]
    pub(super) due_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) duplicate_of: Option<String>,
    /// `stored`, `journaled`, `buffered`, `duplicate`, `replaced`, `debounced` or `error`.
    pub(super) status: String,
    #[serde(default)]
    pub(super) topic_created: bool,
    #[serde(default)]
    pub(super) error: Option<Box<Problem>>,
}

impl Pushed {
    pub(super) fn is_accepted(&self) -> bool {
        matches!(self.status.as_str(), "stored" | "journaled" | "buffered")
    }
}

/// Each item of a request is answered for itself.
#[derive(Debug, Deserialize)]
pub(super) struct Results<T> {
    pub(super) results: Vec<T>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Deliveries<D> {
    pub(super) deliveries: Vec<D>,
}

#[derive(Debug, Default, Clone, Deserialize)]
pub(super) struct Delivery {
    pub(super) receipt: String,
    pub(super) id: String,
    #[serde(default)]
    pub(super) key: Option<String>,
    #[serde(flatten)]
    pub(super) payload: Payload,
    #[serde(default)]
    pub(super) content_type: Option<String>,
    #[serde(default)]
    pub(super) meta: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) traceparent: Option<String>,
    #[serde(default)]
    pub(super) tracestate: Option<String>,
    pub(super) attempt: u32,
    pub(super) partition: u16,
    pub(super) due_at: Timestamp,
    pub(super) pushed_at: Timestamp,
    pub(super) lateness_ms: u64,
}

impl Delivery {
    /// `2026-01-02T03:04:05.678Z 01JH… attempt 1, 2ms late, key customer-7: close order 4711`.
    pub(super) fn shown(&self) -> String {
        let Delivery { due_at, id, attempt, key, .. } = self;
        let late = short_span(Duration::from_millis(self.lateness_ms));
        let key = key.as_ref().map_or(String::new(), |key| format!(", key {key}"));
        format!("{due_at} {id} attempt {attempt}, {late} late{key}: {}", self.payload.shown())
    }
}

/// A payload: text, or base64 when it is not UTF-8.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Payload {
    #[serde(default, rename = "payload")]
    pub(super) text: Option<String>,
    #[serde(default, rename = "payload_base64")]
    pub(super) base64: Option<String>,
}

/// On one line, with a dot for each control character: a terminal must not obey it.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

impl Payload {
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
            (Some(text), _) => printable(text),
            (None, Ok(bytes)) => format!("({} bytes)", bytes.len()),
            (None, Err(_)) => String::new(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Receipts<'a, R> {
    pub(super) receipts: &'a [R],
    pub(super) late: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Extension<'a> {
    pub(super) receipts: &'a [String],
    #[serde(with = "span")]
    pub(super) visibility_timeout: Duration,
    pub(super) late: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct NackOfAll<'a> {
    pub(super) receipts: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    pub(super) bury: bool,
    pub(super) late: bool,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Nack {
    pub(super) receipt: String,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct DeadLetterPage {
    pub(super) dead_letters: Vec<WithJson<Dead>>,
    pub(super) next_cursor: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
pub(super) struct Dead {
    pub(super) id: String,
    pub(super) died_at: Timestamp,
    pub(super) reason: String,
    pub(super) attempts: u32,
    #[serde(default)]
    pub(super) last_error: Option<String>,
    #[serde(default)]
    pub(super) history: Vec<FailedAttempt>,
    pub(super) unforwarded: Option<String>,
    pub(super) unreadable: Option<String>,
    #[serde(flatten)]
    pub(super) payload: Payload,
}

#[derive(Debug, Clone, Default, Args, Serialize)]
pub(super) struct DeadLetterFilter {
    /// Only those with this reason: max_attempts, buried, unreadable or expired
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Only those that died at least this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) older_than: Option<Duration>,
    /// Only those that died at most this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) younger_than: Option<Duration>,
    /// Only those with this text in the last error or the payload
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
}

/// Dead messages that are meant: these, or those for which the rest holds.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Which {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ids: Option<Vec<String>>,
    #[serde(flatten)]
    pub(super) filter: DeadLetterFilter,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) all: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) dry_run: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct MoveTo<'a> {
    pub(super) to: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partitions: Option<u16>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CronPage {
    pub(super) cron_jobs: Vec<WithJson<CronJob>>,
    pub(super) next_cursor: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CronJob {
    pub(super) name: String,
    pub(super) cron: Option<String>,
    pub(super) time_zone: Option<String>,
    #[serde(default, with = "millis::optional")]
    pub(super) every_ms: Option<Duration>,
    #[serde(default)]
    pub(super) from: Option<Timestamp>,
    pub(super) missed: String,
    pub(super) paused: bool,
    /// Why it has no next time.
    pub(super) failure: Option<String>,
    #[serde(default)]
    pub(super) next_at: Option<Timestamp>,
    #[serde(flatten)]
    pub(super) payload: Payload,
}

#[derive(Debug, Deserialize)]
pub(super) struct MessagePage {
    pub(super) messages: Vec<WithJson<Value>>,
    pub(super) next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct MessageInfo {
    pub(super) id: String,
    pub(super) partition: u16,
    pub(super) state: String,
    pub(super) attempts: u32,
    #[serde(default)]
    pub(super) next_at: Option<Timestamp>,
    pub(super) due_at: Timestamp,
    #[serde(default)]
    pub(super) owner: Option<String>,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) last_error: Option<String>,
    #[serde(flatten)]
    pub(super) payload: Payload,
}
