//! Dead letters that are made ready again or deleted, and messages that a purge deletes.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;

/// Result of a redrive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"redriven": 2}))))]
pub struct Redriven {
    /// Number of messages that are ready again.
    pub redriven: u64,
    /// How many would be; only with `dry_run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<u64>,
    /// Where to continue; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub next_cursor: Option<String>,
}

/// Result of a purge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"purged": 2}))))]
pub struct Purged {
    /// Number of messages that were deleted.
    pub purged: u64,
    /// How many would be; only with `dry_run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<u64>,
    /// Where to continue; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Cursor>))]
    pub next_cursor: Option<String>,
}
