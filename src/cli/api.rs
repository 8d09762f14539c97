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
pub(crate) struct WithJson<T> {
    read: T,
    json: Box<RawValue>,
}

impl<T> WithJson<T> {
    /// The value alone, without its JSON.
    pub(crate) fn read(self) -> T {
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
pub(crate) struct Problem {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) title: String,
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) detail: String,
    pub(crate) missing: Option<Missing>,
    pub(crate) id: Option<String>,
    #[serde(default)]
    results: Value,
    #[serde(default)]
    pub(crate) errors: Vec<FieldError>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct FieldError {
    #[serde(default, alias = "pointer", alias = "parameter", alias = "header")]
    place: String,
    detail: String,
}

impl Problem {
    pub(crate) fn name(&self) -> &str {
        self.kind.rsplit(':').next().unwrap_or(&self.kind)
    }

    pub(crate) fn results<R: DeserializeOwned>(&self) -> Option<Vec<R>> {
        Vec::deserialize(&self.results).ok().filter(|results| !results.is_empty())
    }

    pub(crate) fn is_passing(&self) -> bool {
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
pub(crate) struct DeadLetterTo {
    pub(crate) topic: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Topic {
    pub(crate) topic: String,
    pub(crate) groups: Vec<String>,
    pub(crate) settings: Settings,
    /// Absent in the answer to a declaration.
    #[serde(default)]
    pub(crate) totals: Vec<GroupTotals>,
    #[serde(default)]
    pub(crate) partitions: Vec<PartitionState>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Groups {
    pub(crate) groups: Vec<WithJson<Group>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Pushed {
    /// Absent only with some errors.
    #[serde(default)]
    pub(crate) id: Option<String>,
    #[serde(default)]
    pub(crate) partition: Option<u16>,
    #[serde(default)]
    pub(crate) due_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) duplicate_of: Option<String>,
    /// `stored`, `journaled`, `buffered`, `duplicate`, `replaced`, `debounced` or `error`.
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) topic_created: bool,
    #[serde(default)]
    pub(crate) error: Option<Box<Problem>>,
}

impl Pushed {
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self.status.as_str(), "stored" | "journaled" | "buffered")
    }
}

/// Each item of a request is answered for itself.
#[derive(Debug, Deserialize)]
pub(crate) struct Results<T> {
    pub(crate) results: Vec<T>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Deliveries<D> {
    pub(crate) deliveries: Vec<D>,
}

#[derive(Debug, Default, Clone, Deserialize)]
pub(crate) struct Delivery {
    pub(crate) receipt: String,
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) key: Option<String>,
    #[serde(flatten)]
    pub(crate) payload: Payload,
    #[serde(default)]
    pub(crate) content_type: Option<String>,
    #[serde(default)]
    pub(crate) meta: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) traceparent: Option<String>,
    #[serde(default)]
    pub(crate) tracestate: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) partition: u16,
    pub(crate) due_at: Timestamp,
    pub(crate) pushed_at: Timestamp,
    pub(crate) lateness_ms: u64,
}

impl Delivery {
    /// `2026-01-02T03:04:05.678Z 01JH… attempt 1, 2ms late, key customer-7: close order 4711`.
    pub(crate) fn shown(&self) -> String {
        let Delivery { due_at, id, attempt, key, .. } = self;
        let late = short_span(Duration::from_millis(self.lateness_ms));
        let key = key.as_ref().map_or(String::new(), |key| format!(", key {key}"));
        format!("{due_at} {id} attempt {attempt}, {late} late{key}: {}", self.payload.shown())
    }
}

/// A payload: text, or base64 when it is not UTF-8.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Payload {
    #[serde(default, rename = "payload")]
    pub(crate) text: Option<String>,
    #[serde(default, rename = "payload_base64")]
    pub(crate) base64: Option<String>,
}

/// On one line, with a dot for each control character: a terminal must not obey it.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

impl Payload {
    pub(crate) fn bytes(&self) -> Result<Bytes, String> {
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
    pub(crate) fn shown(&self) -> String {
        match (&self.text, self.bytes()) {
            (Some(text), _) => printable(text),
            (None, Ok(bytes)) => format!("({} bytes)", bytes.len()),
            (None, Err(_)) => String::new(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Receipts<'a, R> {
    pub(crate) receipts: &'a [R],
    pub(crate) late: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Extension<'a> {
    pub(crate) receipts: &'a [String],
    #[serde(with = "span")]
    pub(crate) visibility_timeout: Duration,
    pub(crate) late: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct NackOfAll<'a> {
    pub(crate) receipts: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(crate) delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'a str>,
    pub(crate) bury: bool,
    pub(crate) late: bool,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Nack {
    pub(crate) receipt: String,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(crate) delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DeadLetterPage {
    pub(crate) dead_letters: Vec<WithJson<Dead>>,
    pub(crate) next_cursor: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
pub(crate) struct Dead {
    pub(crate) id: String,
    pub(crate) died_at: Timestamp,
    pub(crate) reason: String,
    pub(crate) attempts: u32,
    #[serde(default)]
    pub(crate) last_error: Option<String>,
    #[serde(default)]
    pub(crate) history: Vec<FailedAttempt>,
    pub(crate) unforwarded: Option<String>,
    pub(crate) unreadable: Option<String>,
    #[serde(flatten)]
    pub(crate) payload: Payload,
}

#[derive(Debug, Clone, Default, Args, Serialize)]
pub(crate) struct DeadLetterFilter {
    /// Only those with this reason: max_attempts, buried, unreadable or expired
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Only those that died at least this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(crate) older_than: Option<Duration>,
    /// Only those that died at most this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(crate) younger_than: Option<Duration>,
    /// Only those with this text in the last error or the payload
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// Dead messages that are meant: these, or those for which the rest holds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Which {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ids: Option<Vec<String>>,
    #[serde(flatten)]
    pub(crate) filter: DeadLetterFilter,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) all: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct MoveTo<'a> {
    pub(crate) to: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partitions: Option<u16>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CronPage {
    pub(crate) cron_jobs: Vec<WithJson<CronJob>>,
    pub(crate) next_cursor: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CronJob {
    pub(crate) name: String,
    pub(crate) cron: Option<String>,
    pub(crate) time_zone: Option<String>,
    #[serde(default, with = "millis::optional")]
    pub(crate) every_ms: Option<Duration>,
    #[serde(default)]
    pub(crate) from: Option<Timestamp>,
    pub(crate) missed: String,
    pub(crate) paused: bool,
    /// Why it has no next time.
    pub(crate) failure: Option<String>,
    #[serde(default)]
    pub(crate) next_at: Option<Timestamp>,
    #[serde(flatten)]
    pub(crate) payload: Payload,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MessagePage {
    pub(crate) messages: Vec<WithJson<Value>>,
    pub(crate) next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MessageInfo {
    pub(crate) id: String,
    pub(crate) partition: u16,
    pub(crate) state: String,
    pub(crate) attempts: u32,
    #[serde(default)]
    pub(crate) next_at: Option<Timestamp>,
    pub(crate) due_at: Timestamp,
    #[serde(default)]
    pub(crate) owner: Option<String>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) last_error: Option<String>,
    #[serde(flatten)]
    pub(crate) payload: Payload,
}
