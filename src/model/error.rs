//! Everything that can go wrong, as a closed list: each kind says what the caller may do about it.

use std::borrow::Cow;
use std::fmt;

pub use dwell_client::wire::problem::Missing;

use crate::model::spelling::{beginning, names};

/// Hostile input is quoted in details, so they are cut to this many bytes.
pub const DETAIL_BYTES_MAX: usize = 512;
const CUT: &str = "…";

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind decides what the caller may do; the detail is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is wrong and was not applied. Correct it.
    Invalid,
    /// The request may not be made from there. Nothing was applied.
    Forbidden,
    /// The topic, group or message does not exist. Nothing was applied.
    NotFound,
    /// The caller no longer owns what it speaks of (an old epoch, an old descriptor). Read again.
    Stale,
    /// The request contradicts what exists. Nothing was applied.
    Conflict,
    /// Several messages are meant by what the request says. Nothing was applied. Say which.
    Ambiguous,
    /// A named size limit was passed. Nothing was applied. Send less.
    TooLarge,
    /// A named capacity is used up. Nothing was applied. Try later.
    Full,
    /// The store could not be reached: certainly not applied. Try again.
    Unavailable,
    /// The store was asked and did not answer: perhaps applied. Repeat with the same message id.
    OutcomeUnknown,
    /// Stored bytes are not what dwell wrote. An operator has to look.
    Corrupt,
    /// A defect in dwell. Please report it.
    Bug,
}

names! { Kind::name:
    Invalid => "invalid",
    Forbidden => "forbidden",
    NotFound => "not-found",
    Stale => "stale",
    Conflict => "conflict",
    Ambiguous => "ambiguous",
    TooLarge => "too-large",
    Full => "full",
    Unavailable => "unavailable",
    OutcomeUnknown => "outcome-unknown",
    Corrupt => "corrupt",
    Bug => "bug",
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    Type,
    Unknown,
    Missing,
    Repeated,
    Format,
    Range,
    Choice,
    Exclusive,
    TooLarge,
    Invalid,
}

names! { Fault::code:
    Type => "type",
    Unknown => "unknown",
    Missing => "missing",
    Repeated => "repeated",
    Format => "format",
    Range => "range",
    Choice => "choice",
    Exclusive => "exclusive",
    TooLarge => "too_large",
    Invalid => "invalid",
}

impl Fault {
    pub fn meaning(self) -> &'static str {
        match self {
            Fault::Type => "The JSON value has another type than the one that is accepted.",
            Fault::Unknown => "No field or parameter has this name.",
            Fault::Missing => "The field is required and absent.",
            Fault::Repeated => "The field is given more than once.",
            Fault::Format => "The text is not a valid duration, time, name or base64.",
            Fault::Range => "A number, duration, time or length is out of its range.",
            Fault::Choice => "The word is not one of those that are accepted.",
            Fault::Exclusive => "The field cannot be combined with another one, or needs another one.",
            Fault::TooLarge => "The value is larger than a size limit.",
            Fault::Invalid => "Anything else.",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: Box<str>,
    fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    Field(Field),
    Missing(Missing),
    Refusal,
}

/// An error: a kind from the closed list, and a detail that says what was wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    detail: Cow<'static, str>,
    // Boxed: every function returns an error, and few are about something.
    about: Option<Box<About>>,
}

impl Error {
    /// A detail over [`DETAIL_BYTES_MAX`] is cut.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Error {
        let mut detail = detail.into();
        if detail.len() > DETAIL_BYTES_MAX {
            detail = format!("{}{CUT}", beginning(&detail, DETAIL_BYTES_MAX - CUT.len())).into();
        }
        Error { kind, detail, about: None }
    }

    pub fn invalid(field: &str, why: impl fmt::Display) -> Error {
        Error::wrong(Fault::Invalid, field, why)
    }

    /// [`Kind::Invalid`], or [`Kind::TooLarge`] for [`Fault::TooLarge`], about a field or parameter.
    pub fn wrong(fault: Fault, field: &str, why: impl fmt::Display) -> Error {
        let kind = if fault == Fault::TooLarge { Kind::TooLarge } else { Kind::Invalid };
        let error = Error::new(kind, format!("`{field}`: {why}"));
        error.about(About::Field(Field { name: field.into(), fault }))
    }

    /// [`Kind::Invalid`]: a number, duration, time or length is out of its range.
    pub fn range(field: &str, why: impl fmt::Display) -> Error {
        Error::wrong(Fault::Range, field, why)
    }

    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::NotFound, detail)
    }

    /// The remedy depends on the caller, so the front end adds it.
    pub fn missing(missing: Missing) -> Error {
        let detail = missing.to_string();
        Error::new(Kind::NotFound, detail).about(About::Missing(missing))
    }

    pub fn stale(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::Stale, detail)
    }

    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::Unavailable, detail)
    }

    /// [`Kind::Unavailable`]: the store answered, and it refuses how it is configured here. Waiting alone does not help.
    pub fn refused(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::unavailable(detail).about(About::Refusal)
    }

    pub fn outcome_unknown(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::OutcomeUnknown, detail)
    }

    pub fn corrupt(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::Corrupt, detail)
    }

    pub fn bug(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::Bug, detail)
    }

    fn about(self, about: About) -> Error {
        Error { about: Some(Box::new(about)), ..self }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the store could not be reached, or did not answer: not because of what was asked.
    pub fn is_outage(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::OutcomeUnknown)
    }

    /// Whether the store answered, and refuses how it is configured here: see [`Error::refused`].
    pub fn is_refusal(&self) -> bool {
        matches!(self.about.as_deref(), Some(About::Refusal))
    }

    pub fn what_is_missing(&self) -> Option<&Missing> {
        match self.about.as_deref() {
            Some(About::Missing(missing)) => Some(missing),
            _ => None,
        }
    }

    #[must_use]
    pub fn with_detail(self, detail: impl Into<Cow<'static, str>>) -> Error {
        Error { about: self.about, ..Error::new(self.kind, detail) }
    }

    /// The sentence for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The field or parameter, its fault, and the detail without the name of the field.
    pub fn field(&self) -> Option<(&str, Fault, &str)> {
        let Some(About::Field(Field { name, fault })) = self.about.as_deref() else { return None };
        // A long detail is cut, its beginning never.
        let why = self.detail.get(name.len() + "``: ".len()..).unwrap_or_default();
        Some((name, *fault, why))
    }

    /// The same about the field `name`, which is what the request calls it: the group to copy is `copy_of`.
    #[must_use]
    pub fn about_field(self, name: &str) -> Error {
        match self.field() {
            Some((_, fault, why)) => Error::wrong(fault, name, why),
            None => self,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.detail)
    }
}

impl std::error::Error for Error {}

pub fn innermost_cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_detail_is_cut_at_a_character() {
        let error = Error::new(Kind::Invalid, "é".repeat(DETAIL_BYTES_MAX));
        assert!((DETAIL_BYTES_MAX - 3..=DETAIL_BYTES_MAX).contains(&error.detail().len()));
        assert!(error.detail().ends_with(CUT));
        let whole = "x".repeat(DETAIL_BYTES_MAX);
        assert_eq!(Error::new(Kind::Invalid, whole.clone()).detail(), whole);
    }

    #[test]
    fn error_of_a_field_keeps_its_name_fault_and_reason() {
        let error = Error::wrong(Fault::Range, "wait", "is at most 1m");
        assert_eq!((error.kind(), error.detail()), (Kind::Invalid, "`wait`: is at most 1m"));
        assert_eq!(error.field(), Some(("wait", Fault::Range, "is at most 1m")));
        assert_eq!(Error::wrong(Fault::TooLarge, "payload", "is large").kind(), Kind::TooLarge);
        assert_eq!(Error::not_found("no topic").field(), None);
        let codes: std::collections::HashSet<_> = Fault::ALL.iter().map(|fault| fault.code()).collect();
        assert_eq!(codes.len(), Fault::ALL.len());
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::HashSet<_> = Kind::ALL.iter().map(|k| k.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
