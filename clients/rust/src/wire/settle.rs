//! Settling deliveries: the verdict on each receipt.

use serde::{Deserialize, Serialize};

use super::Word;
#[cfg(feature = "schema")]
use super::schema;
use super::time::Timestamp;

/// Outcome of one receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Settled {
    /// Receipt, as sent.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Receipt))]
    pub receipt: String,
    /// `acked`, `nacked`, `buried`, `extended`, `stale`, `unknown_outcome`, `unknown`, `pending` or `unreachable`.
    #[cfg_attr(feature = "schema", schema(value_type = schema::VerdictStatus))]
    pub status: Word,
    /// Why the decision does not count; only if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::VerdictReason>))]
    pub reason: Option<Word>,
    /// When the delivery is nacked; only if extended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub deadline: Option<Timestamp>,
    /// The broker that owns the partition; only with `lost_partition` and `unreachable`, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// Verdicts on a request with receipts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"failed": 0, "results": [{"receipt": "AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q", "status": "acked"}]}
))))]
pub struct Verdicts {
    /// Number of decisions that do not count: all but `acked`, `nacked`, `buried`, `extended` and `pending`.
    pub failed: usize,
    /// One for each receipt, in the order sent.
    pub results: Vec<Settled>,
}
