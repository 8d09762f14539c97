//! Why a message is dead, and how its attempts failed.
//!
//! A dead record is `version (1) | bincode | history`, a history is a line for each failed attempt, oldest first:
//! `[at ms, attempt, reason or null]`. Lines, so that a script can add one and drop the oldest without reading them.

use bincode::{BorrowDecode, Decode, Encode};

use super::CONFIG;
use crate::model::error::{Error, Result};
use crate::model::limits::{HISTORY_MAX, HISTORY_REASON_BYTES_MAX, REASON_BYTES_MAX};
use crate::model::spelling::names;
use crate::model::time::Timestamp;

/// Records before there were histories.
const WITHOUT_HISTORY: u8 = 1;
const VERSION: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum DeadLetterReason {
    MaxAttempts,
    Buried,
    Unreadable,
    /// Its time to live was over before it was handed out.
    Expired,
}

names! { DeadLetterReason::name:
    MaxAttempts => "max_attempts",
    Buried => "buried",
    Unreadable => "unreadable",
    Expired => "expired",
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// On the store's clock.
    pub at: Timestamp,
    /// From 1.
    pub attempt: u32,
    /// The reason of the nack, or why there was none; cut so that it takes at most 200 bytes as JSON.
    pub reason: Option<String>,
}

impl Failure {
    pub fn new(at: Timestamp, attempt: u32, reason: Option<&str>) -> Failure {
        let cut = |text: &str| {
            let mut bytes = 0;
            let fits = |c: &char| {
                bytes += bytes_in_json(*c);
                bytes <= HISTORY_REASON_BYTES_MAX
            };
            text.chars().take_while(fits).collect()
        };
        Failure { at, attempt, reason: reason.map(cut) }
    }
}

fn bytes_in_json(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterRecord {
    pub reason: DeadLetterReason,
    pub attempts: u32,
    /// The reason of the last nack, or why there was none; at most 1,024 bytes.
    pub last_error: Option<String>,
    /// How the last attempts failed, oldest first; at most [`HISTORY_MAX`].
    pub history: Vec<Failure>,
}

#[derive(Encode, BorrowDecode)]
struct Header<'a> {
    reason: DeadLetterReason,
    attempts: u32,
    last_error: Option<&'a str>,
}

impl DeadLetterRecord {
    /// A record whose last error is cut to its limit, without a history.
    pub fn new(reason: DeadLetterReason, attempts: u32, last_error: Option<String>) -> DeadLetterRecord {
        let last_error = last_error.map(|mut text| {
            let mut end = text.len().min(REASON_BYTES_MAX);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text
        });
        DeadLetterRecord { reason, attempts, last_error, history: Vec::new() }
    }
}

/// Lines of a history may be appended to it.
pub fn encode_dead(record: &DeadLetterRecord) -> Result<Vec<u8>> {
    let DeadLetterRecord { reason, attempts, last_error, history } = record;
    let header = Header { reason: *reason, attempts: *attempts, last_error: last_error.as_deref() };
    let mut bytes = vec![VERSION];
    bincode::encode_into_std_write(header, &mut bytes, CONFIG)
        .map_err(|error| Error::bug(format!("a dead record did not encode: {error}")))?;
    history.iter().for_each(|failure| bytes.extend_from_slice(encode_failure(failure).as_bytes()));
    Ok(bytes)
}

/// The dead record of its bytes. Errors: [`crate::model::error::Kind::Corrupt`].
pub fn decode_dead(bytes: &[u8]) -> Result<DeadLetterRecord> {
    let (version, rest) = bytes.split_first().ok_or_else(|| Error::corrupt("an empty dead record"))?;
    if !matches!(*version, WITHOUT_HISTORY | VERSION) {
        return Err(Error::corrupt(format!("a dead record has version {version}, this dwell reads up to {VERSION}")));
    }
    let (header, read): (Header<'_>, usize) = bincode::borrow_decode_from_slice(rest, CONFIG)
        .map_err(|error| Error::corrupt(format!("a dead record is unreadable ({error})")))?;
    let history = if *version == VERSION { decode_history(&rest[read..])? } else { Vec::new() };
    let Header { reason, attempts, last_error } = header;
    Ok(DeadLetterRecord { reason, attempts, last_error: last_error.map(str::to_owned), history })
}

pub fn encode_failure(failure: &Failure) -> String {
    let line = serde_json::json!([failure.at.as_ms(), failure.attempt, failure.reason]);
    format!("{line}\n")
}

/// The failures of a history. Errors: [`crate::model::error::Kind::Corrupt`].
pub fn decode_history(lines: &[u8]) -> Result<Vec<Failure>> {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let read = |line| {
        let (at, attempt, reason) = serde_json::from_slice(line)
            .map_err(|error| Error::corrupt(format!("a history of attempts is unreadable ({error})")))?;
        Ok(Failure { at: Timestamp::from_ms(at), attempt, reason })
    };
    lines.map(read).collect()
}

/// Drops the oldest one when it is full.
pub fn extend_history(history: &[u8], failure: &Failure) -> Vec<u8> {
    let ends: Vec<usize> = history.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    let surplus = (ends.len() + 1).saturating_sub(HISTORY_MAX);
    let from = surplus.checked_sub(1).and_then(|last| ends.get(last)).map_or(0, |end| end + 1);
    [&history[from..], encode_failure(failure).as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(attempt: u32, reason: &str) -> Failure {
        Failure::new(Timestamp::from_ms(1_767_323_045_678), attempt, Some(reason))
    }

    #[test]
    fn written_form_round_trips() -> Result<()> {
        let mut record = DeadLetterRecord::new(DeadLetterReason::Buried, 3, Some("é".repeat(REASON_BYTES_MAX)));
        assert_eq!(decode_dead(&encode_dead(&record)?)?, record);
        assert!(record.last_error.as_ref().is_some_and(|text| text.len() <= REASON_BYTES_MAX));
        record.history = vec![failure(1, "a \"quoted\"\nline"), Failure::new(Timestamp::ZERO, 2, None)];
        assert_eq!(decode_dead(&encode_dead(&record)?)?, record);
        Ok(())
    }

    /// Bytes written by version 1, which had no history.
    #[test]
    fn version_1_is_readable() -> Result<()> {
        let bytes = [1, 1, 3, 1, 9, b's', b'm', b't', b'p', b':', b' ', b'4', b'5', b'1'];
        assert_eq!(decode_dead(&bytes)?, DeadLetterRecord::new(DeadLetterReason::Buried, 3, Some("smtp: 451".into())));
        assert!(decode_dead(&[3, 1, 3, 0]).is_err());
        Ok(())
    }

    #[test]
    fn history_keeps_the_newest_entries() -> Result<()> {
        let mut history = Vec::new();
        for attempt in 1..=20 {
            history = extend_history(&history, &failure(attempt, "no"));
            let kept = decode_history(&history)?;
            assert_eq!(kept.len(), usize::try_from(attempt).unwrap_or(0).min(HISTORY_MAX));
            assert_eq!(kept.last().map(|failure| failure.attempt), Some(attempt));
        }
        assert_eq!(decode_history(&history)?.first().map(|failure| failure.attempt), Some(5));
        Ok(())
    }

    #[test]
    fn history_entry_is_bounded_for_any_reason() -> Result<()> {
        for (text, kept) in [("x", 200), ("\n", 100), ("\u{1}", 33), ("é", 100), ("\"", 100)] {
            let failure = failure(u32::MAX, &text.repeat(1_000));
            assert_eq!(failure.reason.as_ref().map(|reason| reason.chars().count()), Some(kept), "{text:?}");
            let line = encode_failure(&failure);
            assert!(line.len() <= 230 && line.matches('\n').count() == 1, "{line:?}");
            assert_eq!(decode_history(line.as_bytes())?, [failure]);
        }
        Ok(())
    }
}
