//! Why the last attempt of a message failed, in the words of its consumer or of the broker.

use std::fmt;

use super::limits::{ERROR_CLASS_BYTES_MAX, ERROR_STACK_BYTES_MAX, REASON_BYTES_MAX};
use super::spelling::beginning;

/// An error of which each part is cut at its limit, at a character. A part without text is absent, but for the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    class: Option<String>,
    message: String,
    stack: Option<String>,
}

impl LastError {
    pub fn new(class: Option<String>, message: String, stack: Option<String>) -> LastError {
        let part = |text: Option<String>, most| text.filter(|text| !text.is_empty()).map(|text| cut(text, most));
        LastError {
            class: part(class, ERROR_CLASS_BYTES_MAX),
            message: cut(message, REASON_BYTES_MAX),
            stack: part(stack, ERROR_STACK_BYTES_MAX),
        }
    }

    /// Its type, as in `KeyError`.
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// Where it arose, a line for each call.
    pub fn stack(&self) -> Option<&str> {
        self.stack.as_deref()
    }

    /// Bytes of all its parts.
    pub fn size(&self) -> usize {
        self.parts().map(str::len).sum()
    }

    /// Whether this text is in one of its parts.
    pub fn contains(&self, text: &str) -> bool {
        self.parts().any(|part| part.contains(text))
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.class().into_iter().chain([self.message()]).chain(self.stack())
    }
}

fn cut(mut text: String, most: usize) -> String {
    text.truncate(beginning(&text, most).len());
    text
}

impl From<String> for LastError {
    fn from(message: String) -> LastError {
        LastError::new(None, message, None)
    }
}

impl From<&str> for LastError {
    fn from(message: &str) -> LastError {
        LastError::from(message.to_owned())
    }
}

/// `KeyError: 'order'`, without the stack.
impl fmt::Display for LastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.class {
            Some(class) if self.message.is_empty() => f.write_str(class),
            Some(class) => write!(f, "{class}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_cut_at_a_character_of_its_limit() {
        for (text, count) in [("x", 1), ("é", 2), ("€", 3), ("😀", 4)] {
            let long = || text.repeat(10_000);
            let error = LastError::new(Some(long()), long(), Some(long()));
            for (part, most) in [
                (error.class().unwrap_or_default(), ERROR_CLASS_BYTES_MAX),
                (error.message(), REASON_BYTES_MAX),
                (error.stack().unwrap_or_default(), ERROR_STACK_BYTES_MAX),
            ] {
                assert_eq!(part, text.repeat(most / count), "{text}");
            }
        }
        let whole = "x".repeat(REASON_BYTES_MAX);
        assert_eq!(LastError::from(&*whole).message(), whole);
    }

    #[test]
    fn an_error_is_shown_with_its_class() {
        let shown = |class: &str, message: &str| LastError::new(Some(class.into()), message.into(), None).to_string();
        assert_eq!(shown("KeyError", "'order'"), "KeyError: 'order'");
        assert_eq!(shown("", "smtp: 451"), "smtp: 451");
        assert_eq!(shown("StopIteration", ""), "StopIteration");
    }
}
