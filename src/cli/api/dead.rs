//! Dead messages.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Payload;
use crate::model::time::{Timestamp, span};

/// A page of dead messages.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct DeadPage {
    pub(in crate::cli) dead_letters: Vec<Dead>,
    #[serde(default)]
    pub(in crate::cli) next_cursor: Option<String>,
}

/// An attempt that failed.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(in crate::cli) struct Failure {
    pub(in crate::cli) at: Timestamp,
    pub(in crate::cli) attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) reason: Option<String>,
}

/// A dead message.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(in crate::cli) struct Dead {
    pub(in crate::cli) id: String,
    pub(in crate::cli) partition: u16,
    pub(in crate::cli) died_at: Timestamp,
    pub(in crate::cli) reason: String,
    pub(in crate::cli) attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::cli) history: Vec<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) due_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) unreadable: Option<String>,
    #[serde(flatten)]
    pub(in crate::cli) payload: Payload,
}

/// Dead messages that are meant: these, or those for which the rest holds.
#[derive(Debug, Clone, Default, Serialize)]
pub(in crate::cli) struct Which {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) ids: Option<Vec<String>>,
    #[serde(flatten)]
    pub(in crate::cli) filter: DeadFilter,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) rate: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) cursor: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::cli) all: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::cli) dry_run: bool,
}

/// What has to hold for a dead message.
#[derive(Debug, Clone, Default, Serialize)]
pub(in crate::cli) struct DeadFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(in crate::cli) older_than: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(in crate::cli) younger_than: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) text: Option<String>,
}

/// With how many dead messages a request was done.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Swept {
    #[serde(alias = "redriven", alias = "purged")]
    pub(in crate::cli) count: u64,
    /// How many would be; only of a dry run.
    #[serde(default)]
    pub(in crate::cli) matching: u64,
    #[serde(default)]
    pub(in crate::cli) next_cursor: Option<String>,
}
