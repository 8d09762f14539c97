//! Settling deliveries: which, how, and the verdict on each receipt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::items::{Items, TextOr};
#[cfg(feature = "schema")]
use super::schema;
use super::time::{Timestamp, millis, span};
use super::{Word, present};

/// Deliveries that are done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"receipts": ["AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q"]}
))))]
pub struct Ack {
    /// 1 to 1,000 receipts.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<schema::ReceiptOrObject>, min_items = 1, max_items = 1000))]
    pub receipts: Items<Receipt>,
    /// Also deliveries that have ended, if their messages wait and no consumer has had them since. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

impl Ack {
    /// Deliveries that have not ended.
    pub fn of(receipts: impl IntoIterator<Item = impl Into<String>>) -> Ack {
        Ack { receipts: all(receipts), late: false }
    }

    /// Also deliveries that have ended, if no consumer has had their messages since.
    pub fn late(self) -> Ack {
        Ack { late: true, ..self }
    }
}

/// Deliveries that nobody has begun to handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"receipts": ["AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q"]}
))))]
pub struct Release {
    /// 1 to 1,000 receipts.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<schema::ReceiptOrObject>, min_items = 1, max_items = 1000))]
    pub receipts: Items<Receipt>,
}

impl Release {
    /// These deliveries.
    pub fn of(receipts: impl IntoIterator<Item = impl Into<String>>) -> Release {
        Release { receipts: all(receipts) }
    }
}

/// A receipt, read alone or as `{"receipt": "…"}`, and written alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "TextOr<InObject>", into = "String")]
pub struct Receipt(pub String);

fn all(receipts: impl IntoIterator<Item = impl Into<String>>) -> Items<Receipt> {
    Items(receipts.into_iter().map(|receipt| Receipt(receipt.into())).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InObject {
    receipt: String,
}

impl From<String> for InObject {
    fn from(receipt: String) -> InObject {
        InObject { receipt }
    }
}

impl From<TextOr<InObject>> for Receipt {
    fn from(TextOr(given): TextOr<InObject>) -> Receipt {
        Receipt(given.receipt)
    }
}

impl From<Receipt> for String {
    fn from(Receipt(receipt): Receipt) -> String {
        receipt
    }
}

/// Deliveries that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"receipts": [{"receipt": "AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q", "delay": "10s", "reason": "smtp: 451"}]}
))))]
pub struct Nack {
    /// 1 to 1,000 deliveries: receipts as texts, or objects that say more.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<NackedOrReceipt>, min_items = 1, max_items = 1000))]
    pub receipts: Items<TextOr<Nacked>>,
    /// Time until the next attempt, for receipts with neither `delay` nor `bury`; at most 3,650 d. Default: the topic's backoff.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub delay: Option<Duration>,
    /// The same in milliseconds; not together with `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 10000))]
    pub delay_ms: Option<Duration>,
    /// Why it failed, for receipts without `reason`; kept as the last error. A text is its message.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ReasonOrText>))]
    pub reason: Option<TextOr<Reason>>,
    /// Receipts with neither `delay` nor `bury` can never succeed: make them dead letters. Not together with `delay`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bury: bool,
    /// Receipts with neither `delay` nor `bury`: all messages of their keys wait as long as they do, and no attempt of those is counted, as for
    /// a 429 with `Retry-After` of a customer's endpoint. Only in a fair group; not together with `bury`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pause_key: bool,
    /// Also deliveries that have ended, if their messages wait and no consumer has had them since. Default false. A late
    /// `bury` does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

impl Nack {
    /// These deliveries: their receipts, or [`Nacked`] that say more.
    pub fn of(nacked: impl IntoIterator<Item = impl Into<Nacked>>) -> Nack {
        let receipts = Items(nacked.into_iter().map(|nacked| TextOr(nacked.into())).collect());
        Nack { receipts, delay: None, delay_ms: None, reason: None, bury: false, pause_key: false, late: false }
    }

    /// The time until the next attempt. Default: the topic's backoff.
    pub fn delay(self, delay: Duration) -> Nack {
        Nack { delay_ms: Some(delay), ..self }
    }

    /// Why they failed; kept as the last error.
    pub fn reason(self, reason: impl Into<Reason>) -> Nack {
        Nack { reason: Some(TextOr(reason.into())), ..self }
    }

    /// They can never succeed: their messages become dead letters.
    pub fn bury(self) -> Nack {
        Nack { bury: true, ..self }
    }

    /// All messages of their keys wait as long as they do. Only in a fair group.
    pub fn pause_key(self) -> Nack {
        Nack { pause_key: true, ..self }
    }

    /// Also deliveries that have ended, if no consumer has had their messages since.
    pub fn late(self) -> Nack {
        Nack { late: true, ..self }
    }
}

/// Why a delivery failed. Longer parts are cut at a character.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"class": "KeyError", "message": "'order'", "stack": "Traceback (most recent call last):\n  …"}
))))]
pub struct Reason {
    /// Type of the error, up to 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub class: Option<String>,
    /// Its text, up to 1 KiB.
    pub message: String,
    /// Where it arose, up to 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub stack: Option<String>,
}

impl From<String> for Reason {
    fn from(message: String) -> Reason {
        Reason { message, ..Reason::default() }
    }
}

impl From<&str> for Reason {
    fn from(message: &str) -> Reason {
        Reason::from(message.to_owned())
    }
}

/// Why a delivery failed, or its message alone.
#[cfg(feature = "schema")]
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum ReasonOrText {
    /// The message alone.
    Text(String),
    /// The error in parts.
    Reason(Reason),
}

/// A delivery that failed, or its receipt alone.
#[cfg(feature = "schema")]
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum NackedOrReceipt {
    /// The receipt alone.
    #[schema(value_type = schema::Receipt)]
    Receipt(String),
    /// The receipt, and how the delivery failed.
    Nacked(Nacked),
}

/// One delivery that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Nacked {
    /// Receipt of the delivery.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Receipt))]
    pub receipt: String,
    /// Until the next attempt, at most 3,650 d. Default: the topic's backoff. Not together with `bury`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub delay: Option<Duration>,
    /// The same in milliseconds; not together with `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 10000))]
    pub delay_ms: Option<Duration>,
    /// Why it failed; kept as the last error. A text is its message.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ReasonOrText>))]
    pub reason: Option<TextOr<Reason>>,
    /// It can never succeed: make it dead at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub bury: Option<bool>,
    /// All messages of its key wait as long as it does, and no attempt of those is counted. Only in a fair group; not together with `bury`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub pause_key: Option<bool>,
}

impl From<String> for Nacked {
    fn from(receipt: String) -> Nacked {
        Nacked { receipt, delay: None, delay_ms: None, reason: None, bury: None, pause_key: None }
    }
}

impl From<&str> for Nacked {
    fn from(receipt: &str) -> Nacked {
        Nacked::from(receipt.to_owned())
    }
}

impl Nacked {
    /// The time until the next attempt.
    pub fn delay(self, delay: Duration) -> Nacked {
        Nacked { delay_ms: Some(delay), ..self }
    }

    /// Why it failed; kept as the last error.
    pub fn reason(self, reason: impl Into<Reason>) -> Nacked {
        Nacked { reason: Some(TextOr(reason.into())), ..self }
    }

    /// All messages of its key wait as long as it does. Only in a fair group.
    pub fn pause_key(self) -> Nacked {
        Nacked { pause_key: Some(true), ..self }
    }

    /// It can never succeed: its message becomes a dead letter.
    pub fn bury(self) -> Nacked {
        Nacked { bury: Some(true), ..self }
    }
}

/// Deliveries whose deadlines move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"receipts": ["AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q"], "visibility_timeout": "5m"}
))))]
pub struct Extend {
    /// 1 to 1,000 receipts.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<schema::ReceiptOrObject>, min_items = 1, max_items = 1000))]
    pub receipts: Items<Receipt>,
    /// From now on, 100 ms to 12 h.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::Duration>))]
    pub visibility_timeout: Option<Duration>,
    /// The same in milliseconds; exactly one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, example = 300000))]
    pub visibility_timeout_ms: Option<Duration>,
    /// Also deliveries that have ended, if their messages wait and no consumer has had them since: these wait until the
    /// new deadline, and then are delivered again. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

impl Extend {
    /// Deliveries that have not ended, by this time from now on.
    pub fn of(receipts: impl IntoIterator<Item = impl Into<String>>, visibility_timeout: Duration) -> Extend {
        let visibility_timeout_ms = Some(visibility_timeout);
        Extend { receipts: all(receipts), visibility_timeout: None, visibility_timeout_ms, late: false }
    }

    /// Also deliveries that have ended, if no consumer has had their messages since.
    pub fn late(self) -> Extend {
        Extend { late: true, ..self }
    }
}

/// Outcome of one receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Settled {
    /// Receipt, as sent.
    #[cfg_attr(feature = "schema", schema(value_type = schema::Receipt))]
    pub receipt: String,
    /// `acked`, `nacked`, `released`, `buried`, `extended`, `stale`, `unknown_outcome`, `unknown`, `pending` or `unreachable`.
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

impl Settled {
    /// Whether the decision counts.
    pub fn is_applied(&self) -> bool {
        self.reason.is_none()
    }
}

/// Verdicts on a request with receipts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!(
    {"failed": 0, "results": [{"receipt": "AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q", "status": "acked"}]}
))))]
pub struct Verdicts {
    /// Number of decisions that do not count: all but `acked`, `nacked`, `released`, `buried`, `extended` and `pending`.
    pub failed: usize,
    /// One for each receipt, in the order sent.
    pub results: Vec<Settled>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_are_read_alone_or_in_objects_and_written_alone() -> serde_json::Result<()> {
        let ack: Ack = serde_json::from_str(r#"{"receipts": ["a", {"receipt": "b"}]}"#)?;
        assert_eq!(serde_json::to_string(&ack)?, r#"{"receipts":["a","b"]}"#);
        assert!(serde_json::from_str::<Ack>(r#"{"receipts": [{"receipt": "a", "delay": "1s"}]}"#).is_err());
        let nack: Nack = serde_json::from_str(r#"{"receipts": ["a", {"receipt": "b", "delay": "1s"}]}"#)?;
        assert_eq!(serde_json::to_string(&nack)?, r#"{"receipts":[{"receipt":"a"},{"receipt":"b","delay":"1s"}]}"#);
        Ok(())
    }
}
