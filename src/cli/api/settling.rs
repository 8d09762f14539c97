//! Settling, as it goes over HTTP.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::time::{Timestamp, span};

#[derive(Debug, Serialize)]
pub(in crate::cli) struct Receipts<'a> {
    pub(in crate::cli) receipts: &'a [String],
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct Extension<'a> {
    pub(in crate::cli) receipts: &'a [String],
    #[serde(with = "span")]
    pub(in crate::cli) visibility_timeout: Duration,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct Nacks<'a> {
    pub(in crate::cli) receipts: &'a [Nack],
}

/// Deliveries that all failed in the same way.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct NackOfAll<'a> {
    pub(in crate::cli) receipts: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(in crate::cli) delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) reason: Option<&'a str>,
    pub(in crate::cli) bury: bool,
}

/// A delivery that failed.
#[derive(Debug, Clone, Serialize)]
pub(in crate::cli) struct Nack {
    pub(in crate::cli) receipt: String,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(in crate::cli) delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Verdicts {
    pub(in crate::cli) results: Vec<Verdict>,
}

/// Outcome of one receipt.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(in crate::cli) struct Verdict {
    pub(in crate::cli) receipt: String,
    pub(in crate::cli) status: String,
    /// Why it does not count, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) owner: Option<String>,
}
