//! Recurring messages.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Payload;
use crate::model::time::{Timestamp, millis, span};

/// A cron job to be created.
#[derive(Debug, Default, Serialize)]
pub(in crate::cli) struct NewCronJob<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) cron: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) time_zone: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(in crate::cli) every: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) missed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", with = "span::optional")]
    pub(in crate::cli) ttl: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::cli) meta: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) payload: Option<&'a str>,
}

/// A page of cron jobs.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct CronPage {
    pub(in crate::cli) cron_jobs: Vec<CronJob>,
    #[serde(default)]
    pub(in crate::cli) next_cursor: Option<String>,
}

/// A recurring message.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(in crate::cli) struct CronJob {
    pub(in crate::cli) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) time_zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    pub(in crate::cli) every_ms: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) from: Option<Timestamp>,
    pub(in crate::cli) missed: String,
    pub(in crate::cli) paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) next_at: Option<Timestamp>,
    #[serde(flatten)]
    pub(in crate::cli) payload: Payload,
}
