//! Reading what scripts answer.

use bytes::Bytes;
use redis::Value;

use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;

/// The values of an answer, read from front to back.
#[derive(Debug)]
pub(super) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    pub(super) fn of(value: Value) -> Result<Reply> {
        match value {
            Value::Array(values) => Ok(Reply(values.into_iter())),
            other => Err(unexpected("an array", &other)),
        }
    }

    /// How many values are left.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn value(&mut self) -> Result<Value> {
        self.0.next().ok_or_else(|| Error::corrupt("a script answered less than its header says"))
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes> {
        match self.value()? {
            Value::BulkString(bytes) => Ok(bytes.into()),
            other => Err(unexpected("bytes", &other)),
        }
    }

    pub(super) fn text(&mut self) -> Result<String> {
        text(self.value()?)
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        let value = self.value()?;
        number(&value).ok_or_else(|| unexpected("a number", &value))
    }

    /// A time in ms, or nothing for an empty text. What follows the ms is the place within it.
    pub(super) fn time(&mut self) -> Result<Option<Timestamp>> {
        match self.value()? {
            Value::BulkString(bytes) if bytes.is_empty() => Ok(None),
            value => match text(value.clone()).ok().as_deref().and_then(time_of) {
                Some(at) => Ok(Some(at)),
                None => {
                    number(&value).map(|ms| Some(Timestamp::from_ms(ms))).ok_or_else(|| unexpected("a time", &value))
                }
            },
        }
    }

    /// A text that may be missing or empty.
    pub(super) fn maybe_text(&mut self) -> Result<Option<String>> {
        Ok(maybe_text(self.value()?)?.filter(|text| !text.is_empty()))
    }

    pub(super) fn list(&mut self) -> Result<Reply> {
        Reply::of(self.value()?)
    }
}

/// The time of a score.
pub(super) fn time_of(score: &str) -> Option<Timestamp> {
    let ms = score.split_once('.').map_or(score, |(ms, _)| ms);
    ms.parse().ok().map(Timestamp::from_ms)
}

/// A value as text.
pub(super) fn text(value: Value) -> Result<String> {
    match value {
        Value::BulkString(bytes) => {
            String::from_utf8(bytes).map_err(|_| Error::corrupt("a key holds bytes that are not UTF-8"))
        }
        Value::SimpleString(text) => Ok(text),
        Value::Okay => Ok("OK".to_owned()),
        other => Err(unexpected("text", &other)),
    }
}

/// A value as text, or nothing.
pub(super) fn maybe_text(value: Value) -> Result<Option<String>> {
    match value {
        Value::Nil => Ok(None),
        other => text(other).map(Some),
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

fn unexpected(wanted: &str, got: &Value) -> Error {
    Error::corrupt(format!("Redis answered {got:?} where {wanted} was expected"))
}
