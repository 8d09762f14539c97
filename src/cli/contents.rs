//! Messages for people: a payload on one line, a delivery, the stack of an error.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dwell_client::wire::consume::Delivery;
use dwell_client::wire::cron::CronJob;
use dwell_client::wire::messages::{Contents, LastError};
use dwell_client::wire::push::BatchMessage;

use crate::model::time::short_span;

/// A payload as the broker writes it: text, or base64 when it is not UTF-8.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Payload<'a> {
    pub(crate) text: Option<&'a str>,
    pub(crate) base64: Option<&'a str>,
}

impl<'a> From<&'a Contents> for Payload<'a> {
    fn from(contents: &'a Contents) -> Payload<'a> {
        Payload { text: contents.payload.as_deref(), base64: contents.payload_base64.as_deref() }
    }
}

impl<'a> From<&'a BatchMessage> for Payload<'a> {
    fn from(item: &'a BatchMessage) -> Payload<'a> {
        Payload { text: item.payload.as_deref(), base64: item.payload_base64.as_deref() }
    }
}

impl<'a> From<&'a CronJob> for Payload<'a> {
    fn from(cron: &'a CronJob) -> Payload<'a> {
        Payload { text: cron.payload.as_deref(), base64: cron.payload_base64.as_deref() }
    }
}

/// On one line, with a dot for each control character: a terminal must not obey it.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

/// The stack of an error, line by line.
pub(crate) fn stack_of(error: &LastError) -> Vec<String> {
    let lines = error.stack.as_deref().unwrap_or_default().lines();
    lines.map(|line| format!("    {}", printable(&line.replace('\t', "    ")))).collect()
}

impl Payload<'_> {
    pub(crate) fn bytes(&self) -> Result<Bytes, String> {
        match (self.text, self.base64) {
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
        match (self.text, self.bytes()) {
            (Some(text), _) => printable(text),
            (None, Ok(bytes)) => format!("({} bytes)", bytes.len()),
            (None, Err(_)) => String::new(),
        }
    }
}

/// `2026-01-02T03:04:05.678Z 01JH… attempt 1, 2ms late, key customer-7: close order 4711`.
pub(crate) fn shown(delivery: &Delivery) -> String {
    let Delivery { due_at, id, attempt, contents, .. } = delivery;
    let late = short_span(Duration::from_millis(delivery.lateness_ms));
    let key = contents.key.as_ref().map_or(String::new(), |key| format!(", key {key}"));
    format!("{due_at} {id} attempt {attempt}, {late} late{key}: {}", Payload::from(contents).shown())
}
