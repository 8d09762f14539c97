//! Messages that wait, and what is done to them, as they go over HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::api::Payload;
use crate::model::time::{Timestamp, span};

/// A new due time.
#[derive(Debug, Serialize)]
pub(super) struct NewDue {
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(super) delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) due_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) past: Option<&'static str>,
}

/// What became of a message that was cancelled or rescheduled.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Control {
    pub(super) id: String,
    pub(super) partition: u16,
    pub(super) status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) due_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) buffered: bool,
    pub(super) groups: Vec<GroupFate>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct GroupFate {
    pub(super) group: String,
    pub(super) status: String,
}

/// Why a message is not delivered yet.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Explained {
    pub(super) id: String,
    pub(super) partition: u16,
    pub(super) buffered: bool,
    pub(super) groups: Vec<GroupReason>,
}

/// Why one group has not delivered it.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct GroupReason {
    pub(super) group: String,
    pub(super) reason: String,
    pub(super) detail: String,
}

/// A page of messages.
#[derive(Debug, Deserialize)]
pub(super) struct MessagePage {
    pub(super) messages: Vec<serde_json::Value>,
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

/// A message, looked at.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Looked {
    pub(super) id: String,
    pub(super) partition: u16,
    pub(super) state: String,
    pub(super) attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_at: Option<Timestamp>,
    pub(super) due_at: Timestamp,
    pub(super) pushed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<Timestamp>,
    pub(super) etag: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) died_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content_type: Option<String>,
    #[serde(default)]
    pub(super) meta: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(super) payload: Payload,
}
