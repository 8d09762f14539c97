//! The lines of an NDJSON file, each checked as the broker would: it refuses a whole batch for one bad message.

use std::io::{BufRead, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dwell_client::wire::push::BatchMessage;
use serde_json::value::RawValue;

use crate::cli::contents::Payload;
use crate::model::error::Error;
use crate::model::limits::BATCH_BODY_BYTES_MAX;
use crate::model::message::{Conflict, Dedup, DedupKey, Due, Key, MessageId, NewMessage, Past};
use crate::model::time::{Timestamp, one_span};
use crate::model::trace::TraceContext;

/// Bytes of one line. A message of the largest payload fits, also in base64.
const LINE_BYTES_MAX: usize = BATCH_BODY_BYTES_MAX / 2;

#[derive(Debug)]
pub(super) struct Line {
    /// Counted from 1 on, blank lines too.
    pub(super) number: u64,
    pub(super) item: BatchMessage,
    /// Whether the id was made here. Then a duplicate is this very message, from a push that was repeated.
    pub(super) id_is_ours: bool,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) enum Next {
    Line(Box<Line>),
    Blank,
    Bad { number: u64, why: String },
    End,
}

pub(super) struct Lines<R> {
    reader: R,
    number: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R) -> Lines<R> {
        Lines { reader, number: 0, buffer: Vec::new() }
    }

    pub(super) fn next(&mut self, now: Timestamp) -> std::io::Result<Next> {
        self.buffer.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        if self.reader.by_ref().take(limit).read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(Next::End);
        }
        self.number += 1;
        let number = self.number;
        if self.buffer.len() > LINE_BYTES_MAX && !self.buffer.ends_with(b"\n") {
            self.skip_rest()?;
            return Ok(Next::Bad { number, why: format!("is longer than {LINE_BYTES_MAX} bytes") });
        }
        if self.buffer.trim_ascii().is_empty() {
            return Ok(Next::Blank);
        }
        Ok(match read(&self.buffer, now) {
            Ok((item, id_is_ours)) => Next::Line(Box::new(Line { number, item, id_is_ours, bytes: self.buffer.len() })),
            Err(why) => Next::Bad { number, why },
        })
    }

    fn skip_rest(&mut self) -> std::io::Result<()> {
        loop {
            let chunk = self.reader.fill_buf()?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let (used, done) = (end.map_or(chunk.len(), |end| end + 1), end.is_some() || chunk.is_empty());
            self.reader.consume(used);
            if done {
                return Ok(());
            }
        }
    }
}

fn read(line: &[u8], now: Timestamp) -> Result<(BatchMessage, bool), String> {
    // Without this an array would be read as the fields in their order.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("is not a JSON object".to_owned());
    }
    let mut item: BatchMessage =
        serde_json::from_slice(line).map_err(|error| error.to_string().replace("at line 1 column", "at column"))?;
    check(&item, now)?;
    let id_is_ours = item.id.is_none();
    item.id.get_or_insert_with(|| MessageId::fresh().into());
    Ok((item, id_is_ours))
}

/// Refuses what the broker would refuse, before it is sent. # Errors: why, and which field.
pub(super) fn check(item: &BatchMessage, now: Timestamp) -> Result<(), String> {
    let detail_of = |error: Error| error.detail().to_owned();
    let payload = Payload::from(item);
    // The broker, which knows the time of the store, decides what is in the past.
    item.past.as_deref().map_or(Ok(Past::Now), str::parse).map_err(detail_of)?;
    let ttl = one_span("ttl", item.ttl, item.ttl_ms).map_err(detail_of)?;
    let message = NewMessage {
        id: item.id.as_deref().map(MessageId::new).transpose().map_err(detail_of)?,
        conflict: match &item.conflict {
            Some(conflict) => conflict.parse().map_err(detail_of)?,
            None => Conflict::Keep,
        },
        debounce_max: one_span("debounce_max", item.debounce_max, item.debounce_max_ms).map_err(detail_of)?,
        key: item.key.as_deref().map(Key::new).transpose().map_err(detail_of)?,
        dedup: Dedup::of(
            item.dedup_key.as_deref().map(DedupKey::of_producer).transpose().map_err(detail_of)?,
            one_span("dedup_for", item.dedup_for, item.dedup_for_ms).map_err(detail_of)?,
        )
        .map_err(detail_of)?,
        due: match (one_span("delay", item.delay, item.delay_ms).map_err(detail_of)?, item.due_at) {
            (Some(_), Some(_)) => return Err("`delay` is given together with `due_at`".to_owned()),
            (_, Some(at)) => Due::At(at),
            (delay, None) => Due::In(delay.unwrap_or_default()),
        },
        spread: one_span("spread", item.spread, item.spread_ms).map_err(detail_of)?,
        ttl,
        max_attempts: item.max_attempts,
        priority: item.priority.unwrap_or(0),
        content_type: item.content_type.clone(),
        meta: item.meta.clone().unwrap_or_default().0,
        trace: match (&item.traceparent, &item.tracestate) {
            (Some(parent), state) => Some(TraceContext::parse(parent, state.as_deref()).map_err(detail_of)?),
            (None, Some(_)) => return Err("`tracestate` is given without `traceparent`".to_owned()),
            (None, None) => None,
        },
        attachment: match &item.attachment {
            Some(base64) => STANDARD.decode(base64).map_err(|why| format!("`attachment`: {why}"))?.into(),
            None => Bytes::new(),
        },
        payload: payload_of(payload, item.payload_json.as_deref())?,
    };
    if ttl.is_some_and(|ttl| ttl.is_zero()) {
        return Err("`ttl`: a message with a ttl of 0s would never be delivered".to_owned());
    }
    message.accept(now).map(drop).map_err(detail_of)
}

fn payload_of(payload: Payload<'_>, json: Option<&RawValue>) -> Result<Bytes, String> {
    match json {
        None => payload.bytes(),
        Some(json) if payload.text.is_none() && payload.base64.is_none() => {
            Ok(Bytes::copy_from_slice(json.get().as_bytes()))
        }
        Some(_) => Err("has `payload_json` and another payload".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::limits::PAYLOAD_BYTES_MAX;

    fn all(text: &str) -> std::io::Result<Vec<String>> {
        let mut lines = Lines::new(text.as_bytes());
        let mut seen = Vec::new();
        loop {
            seen.push(match lines.next(Timestamp::from_ms(1))? {
                Next::Line(line) => format!("{} {:?} {}", line.number, line.item.payload, line.id_is_ours),
                Next::Blank => "blank".to_owned(),
                Next::Bad { number, why } => format!("{number} bad: {why}"),
                Next::End => return Ok(seen),
            });
        }
    }

    #[test]
    fn every_line_is_a_message_or_an_error_with_a_reason() -> std::io::Result<()> {
        let text =
            "{\"payload\": \"a\"}\r\n\n  \n{\"payload\": \"b\", \"id\": \"b-1\"}\nnonsense\n{\"payload\": \"c\"}";
        let seen = all(text)?;
        assert_eq!(seen[..4], ["1 Some(\"a\") true", "blank", "blank", "4 Some(\"b\") false"]);
        assert!(seen[4].starts_with("5 bad: is not"), "{}", seen[4]);
        assert_eq!(seen[5..], ["6 Some(\"c\") true"]);
        Ok(())
    }

    #[test]
    fn messages_that_the_broker_would_refuse_are_refused_locally() -> std::io::Result<()> {
        let cases = [
            (r#"{}"#, "has neither `payload` nor `payload_base64` nor `payload_json`"),
            (r#"{"payload": "a", "payload_json": 1}"#, "has `payload_json` and another payload"),
            (r#"{"payload": "a", "payload_base64": "YQ=="}"#, "has both"),
            (r#"{"payload_base64": "a"}"#, "`payload_base64`"),
            (r#"{"payload": null}"#, "invalid type: null"),
            (r#"{"payload": "a", "dealy": "1s"}"#, "unknown field `dealy`"),
            (r#"{"payload": "a", "delay": "1s", "delay": "2s"}"#, "duplicate field `delay`"),
            (r#"{"payload": "a", "delay": "-1s"}"#, "is negative"),
            (r#"{"payload": "a", "delay": "1s", "due_at": "2026-01-02T03:04:05Z"}"#, "together with"),
            (r#"{"payload": "a", "delay": "3651d"}"#, "at most 3650 days"),
            (r#"{"payload": "a", "ttl": "0s"}"#, "`ttl`"),
            (r#"{"payload": "a", "spread": "0s"}"#, "`spread`: is not in 1 ms to 3650 days"),
            (
                r#"{"payload": "a", "debounce_max": "1m"}"#,
                "`debounce_max`: is given without `conflict` as \"debounce\"",
            ),
            (r#"{"payload": "a", "ttl": 30}"#, "30 has no unit"),
            (r#"{"payload": "a", "delay": "1s", "delay_ms": 1000}"#, "`delay`: is given together with `delay_ms`"),
            (r#"{"payload": "a", "due_at": 1800000000}"#, "1800000000 looks like seconds"),
            (r#"{"payload": "a", "past": "never"}"#, "`past`"),
            (r#"{"payload": "a", "key": ""}"#, "`key`"),
            (r#"{"payload": "a", "id": "a b"}"#, "`id`"),
            (r#"{"payload": "a", "max_attempts": 1001}"#, "`max_attempts`"),
            (r#"{"payload": "a", "meta": {"a": "1", "a": "2"}}"#, "\"a\" is given twice"),
            (r#"{"payload": "a", "meta": {"A": "1"}}"#, "`meta`"),
            (r#"{"payload": "a", "traceparent": ""}"#, "`traceparent`"),
            (r#"{"payload": "a", "tracestate": "a=b"}"#, "`tracestate` is given without"),
            (r#"["a"]"#, "is not a JSON object"),
        ];
        for (line, expected) in cases {
            let seen = all(line)?;
            assert!(seen.first().is_some_and(|seen| seen.starts_with("1 bad") && seen.contains(expected)), "{seen:?}");
        }
        Ok(())
    }

    #[test]
    fn oversized_line_is_refused_and_the_next_is_read() -> std::io::Result<()> {
        let line = |bytes: usize| format!("{{\"payload\": \"{}\"}}\n", "a".repeat(bytes));
        let text = [line(PAYLOAD_BYTES_MAX), line(PAYLOAD_BYTES_MAX + 1), line(LINE_BYTES_MAX), line(1)].concat();
        let seen = all(&text)?;
        assert!(seen[0].starts_with("1 Some"));
        assert!(seen[1].contains("`payload`: 1048577 bytes"), "{}", seen[1]);
        assert!(seen[2].contains("3 bad: is longer than"), "{}", seen[2]);
        assert_eq!(seen[3], "4 Some(\"a\") true");
        Ok(())
    }

    #[test]
    fn sent_message_equals_the_parsed_line() -> Result<(), String> {
        let line =
            r#"{"payload":"a","key":"k","id":"i","delay":"1h 30m","ttl":"1500ms","max_attempts":3,"meta":{"a":"1"}}"#;
        let (item, ours) = read(line.as_bytes(), Timestamp::ZERO)?;
        let sent = serde_json::to_string(&item).map_err(|error| error.to_string())?;
        let (again, _) = read(sent.as_bytes(), Timestamp::ZERO)?;
        assert!(!ours);
        assert_eq!((again.delay, again.ttl), (Some(Duration::from_secs(5_400)), Some(Duration::from_millis(1_500))));
        assert_eq!(serde_json::to_string(&again).map_err(|error| error.to_string())?, sent);
        Ok(())
    }
}
