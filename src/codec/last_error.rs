//! The error of an attempt, as it is stored: `version (1) | bincode`.
//!
//! In a history it is a line behind that of its attempt, `!` and the same in base64: of the newest attempt alone, since a script
//! takes it out when it adds another one. So each message has the error of its last attempt alone, and no text that a
//! consumer sends takes more than a third more than its bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bincode::{BorrowDecode, Encode};

use super::CONFIG;
use crate::model::error::{Error, Result};
use crate::model::last_error::LastError;
use crate::model::limits::{ERROR_CLASS_BYTES_MAX, ERROR_STACK_BYTES_MAX, REASON_BYTES_MAX};

const VERSION: u8 = 1;

/// The byte that begins the line of an error in a history.
pub(super) const MARK: u8 = b'!';

#[derive(Encode, BorrowDecode)]
pub(super) struct LastErrorV1<'a> {
    class: Option<&'a str>,
    message: &'a str,
    stack: Option<&'a str>,
}

impl<'a> From<&'a LastError> for LastErrorV1<'a> {
    fn from(error: &'a LastError) -> LastErrorV1<'a> {
        LastErrorV1 { class: error.class(), message: error.message(), stack: error.stack() }
    }
}

impl TryFrom<LastErrorV1<'_>> for LastError {
    type Error = Error;

    fn try_from(LastErrorV1 { class, message, stack }: LastErrorV1<'_>) -> Result<LastError> {
        let fits = |part: Option<&str>, most| part.is_none_or(|part| !part.is_empty() && part.len() <= most);
        let is_written = fits(class, ERROR_CLASS_BYTES_MAX) && fits(stack, ERROR_STACK_BYTES_MAX);
        if !is_written || message.len() > REASON_BYTES_MAX {
            return Err(Error::corrupt("an error of an attempt is longer than any that is written"));
        }
        Ok(LastError::new(class.map(str::to_owned), message.to_owned(), stack.map(str::to_owned)))
    }
}

/// The bytes of an error: at most 16 more than its parts have.
pub fn encode_last_error(error: &LastError) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    // Texts of these lengths encode, and writing to memory does not fail.
    let _ = bincode::encode_into_std_write(LastErrorV1::from(error), &mut bytes, CONFIG);
    bytes
}

/// The error of its bytes. Errors: [`crate::model::error::Kind::Corrupt`].
pub fn decode_last_error(bytes: &[u8]) -> Result<LastError> {
    let unreadable = |why: &str| Error::corrupt(format!("an error of an attempt is unreadable ({why})"));
    let (version, rest) = bytes.split_first().ok_or_else(|| unreadable("it is empty"))?;
    if *version != VERSION {
        return Err(unreadable(&format!("it has version {version}, this dwell reads {VERSION}")));
    }
    let (error, read): (LastErrorV1<'_>, usize) =
        bincode::borrow_decode_from_slice(rest, CONFIG).map_err(|error| unreadable(&error.to_string()))?;
    if read != rest.len() {
        return Err(unreadable("something follows it"));
    }
    error.try_into()
}

/// The same as text, in base64.
pub fn write_last_error(error: &LastError) -> String {
    STANDARD_NO_PAD.encode(encode_last_error(error))
}

/// The error of its text. Errors: [`crate::model::error::Kind::Corrupt`].
pub fn read_last_error(text: impl AsRef<[u8]>) -> Result<LastError> {
    let unreadable = |error| Error::corrupt(format!("an error of an attempt is no base64 ({error})"));
    decode_last_error(&STANDARD_NO_PAD.decode(text).map_err(unreadable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest() -> LastError {
        let long = || Some("\u{1}".repeat(10_000));
        LastError::new(long(), long().unwrap_or_default(), long())
    }

    #[test]
    fn stored_form_round_trips_and_is_bounded() -> Result<()> {
        let stack = || Some("  at main\n\tat \"quoted\" \\ \u{1F600}".to_owned());
        for error in [
            LastError::from(""),
            LastError::from("smtp: 451"),
            LastError::new(Some("KeyError".into()), "'order'".into(), stack()),
            LastError::new(None, "no class".into(), stack()),
            largest(),
        ] {
            let (bytes, text) = (encode_last_error(&error), write_last_error(&error));
            assert_eq!((decode_last_error(&bytes)?, read_last_error(&text)?), (error.clone(), error.clone()));
            assert!(bytes.len() <= error.size() + 16 && !text.contains('\n'), "{error:?}");
        }
        assert_eq!(largest().size(), ERROR_CLASS_BYTES_MAX + REASON_BYTES_MAX + ERROR_STACK_BYTES_MAX);
        assert!(write_last_error(&largest()).len() < 7_250);
        Ok(())
    }

    #[test]
    fn foreign_bytes_are_no_error() {
        let whole = encode_last_error(&largest());
        for end in 0..whole.len() {
            assert!(decode_last_error(&whole[..end]).is_err(), "{end}");
        }
        assert!(decode_last_error(&[whole.clone(), vec![0]].concat()).is_err());
        assert!(decode_last_error(&[&[VERSION + 1], &whole[1..]].concat()).is_err());
        // A length that no bytes follow, and parts that are longer than those that are written.
        assert!(decode_last_error(&[VERSION, 0, 253, 255, 255, 255, 255, 255, 255, 255, 255]).is_err());
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        for (class, message, stack) in [(None, &*long, None), (Some(&*long), "", None), (Some(""), "", None)] {
            let mut bytes = vec![VERSION];
            let _ = bincode::encode_into_std_write(LastErrorV1 { class, message, stack }, &mut bytes, CONFIG);
            assert!(decode_last_error(&bytes).is_err());
        }
        assert!(read_last_error("no base64!").is_err());
    }
}
