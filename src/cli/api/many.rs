//! Many messages at once: counted ahead, changed in a window, moved to another topic.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::time::{Timestamp, span};

/// How many messages become due.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::cli) struct Forecast {
    pub(in crate::cli) from: Timestamp,
    pub(in crate::cli) step_ms: u64,
    pub(in crate::cli) ready: u64,
    pub(in crate::cli) spans: Vec<Due>,
    pub(in crate::cli) later: u64,
}

/// How many become due up to then.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::cli) struct Due {
    pub(in crate::cli) until: Timestamp,
    pub(in crate::cli) due: u64,
}

/// A change of the messages of a window.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct BulkChange<'a> {
    pub(in crate::cli) from: Timestamp,
    pub(in crate::cli) to: Timestamp,
    pub(in crate::cli) action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(in crate::cli) by: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) cursor: Option<String>,
}

/// How far such a change came.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct BulkChanged {
    pub(in crate::cli) changed: u64,
    pub(in crate::cli) passed_over: u64,
    #[serde(default)]
    pub(in crate::cli) next_cursor: Option<String>,
}

/// How many messages wait in a window.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct BulkCount {
    pub(in crate::cli) waiting: u64,
}

/// Where messages are moved to.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct MoveTo<'a> {
    pub(in crate::cli) to: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) partitions: Option<u16>,
}

/// How far a move came.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Moved {
    pub(in crate::cli) moved: u64,
    pub(in crate::cli) dead: u64,
    pub(in crate::cli) duplicates: u64,
    pub(in crate::cli) in_flight: u64,
    pub(in crate::cli) done: bool,
}
