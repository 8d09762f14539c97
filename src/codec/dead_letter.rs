//! Why a message is dead, and how its attempts failed.
//!
//! A dead record is `version (1) | bincode | history`, a history is a line for each failed attempt, oldest first:
//! `[at ms, attempt, reason or null]`, and perhaps a line with the error of the last one. Lines, so that a script can add one and drop the
//! oldest without reading them.

use bincode::{BorrowDecode, Decode, Encode};

use super::CONFIG;
use super::last_error::{LastErrorV1, MARK, read_last_error, write_last_error};
use crate::model::error::{Error, Result};
use crate::model::last_error::LastError;
use crate::model::limits::{HISTORY_MAX, HISTORY_REASON_BYTES_MAX};
use crate::model::spelling::names;
use crate::model::time::Timestamp;

const VERSION: u8 = 3;

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
    /// The whole error, of the last attempt alone, and only if the reason is not all of it.
    pub error: Option<LastError>,
}

impl Failure {
    pub fn new(at: Timestamp, attempt: u32, error: Option<&LastError>) -> Failure {
        let cut = |error: &LastError| {
            let mut bytes = 0;
            let fits = |c: &char| {
                bytes += bytes_in_json(*c);
                bytes <= HISTORY_REASON_BYTES_MAX
            };
            error.to_string().chars().take_while(fits).collect::<String>()
        };
        let reason = error.map(cut);
        let error = error.filter(|error| reason.as_deref().map(LastError::from).as_ref() != Some(error)).cloned();
        Failure { at, attempt, reason, error }
    }

    /// The error of the attempt, as far as it is known.
    pub fn last_error(&self) -> Option<LastError> {
        self.error.clone().or_else(|| self.reason.as_deref().map(LastError::from))
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
    /// The reason of the last nack, or why there was none.
    pub last_error: Option<LastError>,
    /// How the last attempts failed, oldest first; at most [`HISTORY_MAX`].
    pub history: Vec<Failure>,
}

#[derive(Encode, BorrowDecode)]
struct Header<'a> {
    reason: DeadLetterReason,
    attempts: u32,
    last_error: Option<LastErrorV1<'a>>,
}

impl DeadLetterRecord {
    /// A record without a history.
    pub fn new(reason: DeadLetterReason, attempts: u32, last_error: Option<LastError>) -> DeadLetterRecord {
        DeadLetterRecord { reason, attempts, last_error, history: Vec::new() }
    }
}

/// Lines of a history may be appended to it.
pub fn encode_dead(record: &DeadLetterRecord) -> Result<Vec<u8>> {
    let DeadLetterRecord { reason, attempts, last_error, history } = record;
    let header =
        Header { reason: *reason, attempts: *attempts, last_error: last_error.as_ref().map(LastErrorV1::from) };
    let mut bytes = vec![VERSION];
    bincode::encode_into_std_write(header, &mut bytes, CONFIG)
        .map_err(|error| Error::bug(format!("a dead record did not encode: {error}")))?;
    history.iter().for_each(|failure| bytes.extend_from_slice(encode_attempt(failure).as_bytes()));
    Ok(bytes)
}

/// The dead record of its bytes. Errors: [`crate::model::error::Kind::Corrupt`].
pub fn decode_dead(bytes: &[u8]) -> Result<DeadLetterRecord> {
    let (version, rest) = bytes.split_first().ok_or_else(|| Error::corrupt("an empty dead record"))?;
    if *version != VERSION {
        return Err(Error::corrupt(format!("a dead record has version {version}, this dwell reads {VERSION}")));
    }
    let (header, read): (Header<'_>, usize) = bincode::borrow_decode_from_slice(rest, CONFIG)
        .map_err(|error| Error::corrupt(format!("a dead record is unreadable ({error})")))?;
    let history = decode_history(&rest[read..])?;
    let Header { reason, attempts, last_error } = header;
    // One without an error died of its time: then the last attempt says more.
    let last_error = match last_error {
        Some(error) => Some(error.try_into()?),
        None => history.last().and_then(Failure::last_error),
    };
    Ok(DeadLetterRecord { reason, attempts, last_error, history })
}

/// The line of an attempt without its error, which is elsewhere.
pub fn encode_failure(failure: &Failure) -> String {
    let line = serde_json::json!([failure.at.as_ms(), failure.attempt, failure.reason]);
    format!("{line}\n")
}

/// The line of an attempt, and that of its error if it has one.
pub fn encode_attempt(failure: &Failure) -> String {
    let error = failure.error.as_ref().map(|error| format!("{}{}\n", char::from(MARK), write_last_error(error)));
    encode_failure(failure) + &error.unwrap_or_default()
}

/// The failures of a history. Errors: [`crate::model::error::Kind::Corrupt`].
pub fn decode_history(lines: &[u8]) -> Result<Vec<Failure>> {
    let mut failures: Vec<Failure> = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if let (Some((&MARK, error)), Some(last)) = (line.split_first(), failures.last_mut()) {
            last.error = Some(read_last_error(error)?);
            continue;
        }
        let (at, attempt, reason) = serde_json::from_slice(line)
            .map_err(|error| Error::corrupt(format!("a history of attempts is unreadable ({error})")))?;
        failures.push(Failure { at: Timestamp::from_ms(at), attempt, reason, error: None });
    }
    Ok(failures)
}

/// A history without errors, to which one more attempt is added. Drops the oldest one when it is full.
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
        Failure::new(Timestamp::from_ms(1_767_323_045_678), attempt, Some(&reason.into()))
    }

    #[test]
    fn written_form_round_trips() -> Result<()> {
        let long = || "é".repeat(10_000);
        let error = LastError::new(Some("SmtpError".into()), long(), Some(long()));
        let mut record = DeadLetterRecord::new(DeadLetterReason::Buried, 3, Some(error));
        assert_eq!(decode_dead(&encode_dead(&record)?)?, record);
        record.history = vec![failure(1, "a \"quoted\"\nline"), Failure::new(Timestamp::ZERO, 2, None)];
        assert_eq!(decode_dead(&encode_dead(&record)?)?, record);
        Ok(())
    }

    /// A change of these bytes needs another version.
    #[test]
    fn bytes_of_this_version_are_readable() -> Result<()> {
        let bytes = [3, 1, 3, 1, 0, 9, b's', b'm', b't', b'p', b':', b' ', b'4', b'5', b'1', 0];
        assert_eq!(decode_dead(&bytes)?, DeadLetterRecord::new(DeadLetterReason::Buried, 3, Some("smtp: 451".into())));
        assert!(decode_dead(&[2, 1, 3, 0]).is_err());
        Ok(())
    }

    #[test]
    fn the_last_attempt_has_its_whole_error() -> Result<()> {
        let error = LastError::new(Some("KeyError".into()), "'order'".into(), Some("at main\nat order".into()));
        let last = Failure::new(Timestamp::ZERO, 2, Some(&error));
        assert_eq!(last.reason.as_deref(), Some("KeyError: 'order'"));
        let lines = encode_failure(&failure(1, "busy")) + &encode_attempt(&last);
        let read = decode_history(lines.as_bytes())?;
        assert_eq!(read, [failure(1, "busy"), last]);
        assert_eq!(read.last().and_then(Failure::last_error), Some(error.clone()));
        assert_eq!(read[0].last_error(), Some("busy".into()), "a short message is in its line");
        // A message that expires has the error of its last attempt alone.
        let expired = DeadLetterRecord::new(DeadLetterReason::Expired, 2, None);
        let dead = decode_dead(&[encode_dead(&expired)?, lines.into_bytes()].concat())?;
        assert_eq!(dead.last_error, Some(error));
        for foreign in ["!AA\n", "[0,1,null]\n!\n", "[0,1,null]\n!no base64\n"] {
            assert!(decode_history(foreign.as_bytes()).is_err(), "{foreign:?}");
        }
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
            assert_eq!(decode_history(line.as_bytes())?, [Failure { error: None, ..failure }]);
        }
        Ok(())
    }
}
