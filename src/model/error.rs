//! What can go wrong, as a closed list: each kind says what the caller may do about it.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest detail an error carries, in bytes. Hostile input is quoted in details, so it is cut.
pub const DETAIL_BYTES_MAX: usize = 512;

/// What a detail that was cut ends with, within its limit.
const CUT: &str = "…";

/// The result of every fallible operation of dwell.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure it is. The kind decides what the caller may do; the detail is for people.
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

impl Kind {
    /// Every kind, for documentation and tests.
    pub const ALL: [Kind; 12] = [
        Kind::Invalid,
        Kind::Forbidden,
        Kind::NotFound,
        Kind::Stale,
        Kind::Conflict,
        Kind::Ambiguous,
        Kind::TooLarge,
        Kind::Full,
        Kind::Unavailable,
        Kind::OutcomeUnknown,
        Kind::Corrupt,
        Kind::Bug,
    ];

    /// The stable name, as in the problem `type`, in metrics and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::Forbidden => "forbidden",
            Kind::NotFound => "not-found",
            Kind::Stale => "stale",
            Kind::Conflict => "conflict",
            Kind::Ambiguous => "ambiguous",
            Kind::TooLarge => "too-large",
            Kind::Full => "full",
            Kind::Unavailable => "unavailable",
            Kind::OutcomeUnknown => "outcome-unknown",
            Kind::Corrupt => "corrupt",
            Kind::Bug => "bug",
        }
    }
}

/// What a request names and does not exist: a topic, or a group or a cron job of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The topic.
    pub topic: String,
    /// The group that the topic does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The cron job that the topic does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
}

impl Missing {
    /// A topic that does not exist.
    pub fn topic(topic: &impl fmt::Display) -> Missing {
        Missing { topic: topic.to_string(), group: None, cron: None }
    }

    /// A group that the topic does not have.
    pub fn group(topic: &impl fmt::Display, group: &impl fmt::Display) -> Missing {
        Missing { group: Some(group.to_string()), ..Missing::topic(topic) }
    }

    /// A cron job that the topic does not have.
    pub fn cron(topic: &impl fmt::Display, name: &impl fmt::Display) -> Missing {
        Missing { cron: Some(name.to_string()), ..Missing::topic(topic) }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = &self.topic;
        match (&self.group, &self.cron) {
            (Some(group), _) => write!(f, "topic {topic} has no group {group}"),
            (None, Some(name)) => write!(f, "topic {topic} has no cron job {name}"),
            (None, None) => write!(f, "topic {topic} does not exist"),
        }
    }
}

/// What is wrong with a field or parameter: a stable code for programs, beside the detail for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It has another type of JSON value than the one that is accepted.
    Type,
    /// There is no field or parameter of this name.
    Unknown,
    /// It is required and absent.
    Missing,
    /// It is given more than once.
    Repeated,
    /// Its text cannot be read as what it stands for.
    Format,
    /// A number, duration, time or length is out of its range.
    Range,
    /// It is none of a closed list of words.
    Choice,
    /// It cannot be given together with another field, or not without it.
    Exclusive,
    /// It is larger than a size limit.
    TooLarge,
    /// Anything else.
    Invalid,
}

impl Fault {
    /// Every fault, for documentation and tests.
    pub const ALL: [Fault; 10] = [
        Fault::Type,
        Fault::Unknown,
        Fault::Missing,
        Fault::Repeated,
        Fault::Format,
        Fault::Range,
        Fault::Choice,
        Fault::Exclusive,
        Fault::TooLarge,
        Fault::Invalid,
    ];

    /// The stable code, as in `errors` of a problem.
    pub fn code(self) -> &'static str {
        match self {
            Fault::Type => "type",
            Fault::Unknown => "unknown",
            Fault::Missing => "missing",
            Fault::Repeated => "repeated",
            Fault::Format => "format",
            Fault::Range => "range",
            Fault::Choice => "choice",
            Fault::Exclusive => "exclusive",
            Fault::TooLarge => "too_large",
            Fault::Invalid => "invalid",
        }
    }

    /// What the code means, for the page of errors.
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

/// The field that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: Box<str>,
    fault: Fault,
}

/// What an error says to programs, beside the detail for people.
#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    Field(Field),
    Missing(Missing),
    /// The store answered, and refuses how it is configured here.
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
    /// An error of this kind. A detail over [`DETAIL_BYTES_MAX`] is cut.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Error {
        let mut detail = detail.into();
        if detail.len() > DETAIL_BYTES_MAX {
            let mut end = DETAIL_BYTES_MAX - CUT.len();
            while !detail.is_char_boundary(end) {
                end -= 1;
            }
            detail = format!("{}{CUT}", &detail[..end]).into();
        }
        Error { kind, detail, about: None }
    }

    /// [`Kind::Invalid`], naming the field or parameter that is wrong.
    pub fn invalid(field: &str, why: impl fmt::Display) -> Error {
        Error::wrong(Fault::Invalid, field, why)
    }

    /// [`Kind::Invalid`], or [`Kind::TooLarge`] for [`Fault::TooLarge`], naming the field or parameter and its fault.
    pub fn wrong(fault: Fault, field: &str, why: impl fmt::Display) -> Error {
        let kind = if fault == Fault::TooLarge { Kind::TooLarge } else { Kind::Invalid };
        let error = Error::new(kind, format!("`{field}`: {why}"));
        error.about(About::Field(Field { name: field.into(), fault }))
    }

    /// [`Kind::NotFound`].
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::NotFound, detail)
    }

    /// [`Kind::NotFound`], naming what is missing. What to do about it depends on who asked: that is for the front end to say.
    pub fn missing(missing: Missing) -> Error {
        let detail = missing.to_string();
        Error::new(Kind::NotFound, detail).about(About::Missing(missing))
    }

    /// [`Kind::Stale`].
    pub fn stale(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::Stale, detail)
    }

    /// [`Kind::Unavailable`].
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::Unavailable, detail)
    }

    /// [`Kind::Unavailable`]: the store answered, and it refuses how it is configured here. Waiting alone does not help.
    pub fn refused(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::unavailable(detail).about(About::Refusal)
    }

    /// [`Kind::OutcomeUnknown`].
    pub fn outcome_unknown(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::OutcomeUnknown, detail)
    }

    /// [`Kind::Corrupt`].
    pub fn corrupt(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::Corrupt, detail)
    }

    /// [`Kind::Bug`].
    pub fn bug(detail: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::Bug, detail)
    }

    fn about(self, about: About) -> Error {
        Error { about: Some(Box::new(about)), ..self }
    }

    /// What kind of failure it is.
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

    /// What is missing, if the error says so.
    pub fn what_is_missing(&self) -> Option<&Missing> {
        match self.about.as_deref() {
            Some(About::Missing(missing)) => Some(missing),
            _ => None,
        }
    }

    /// The same error with another sentence.
    #[must_use]
    pub fn saying(self, detail: impl Into<Cow<'static, str>>) -> Error {
        Error { about: self.about, ..Error::new(self.kind, detail) }
    }

    /// The sentence for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The field or parameter that is wrong, with its fault and the detail without the name of the field.
    pub fn field(&self) -> Option<(&str, Fault, &str)> {
        let Some(About::Field(Field { name, fault })) = self.about.as_deref() else { return None };
        // A long detail is cut, its beginning never.
        let why = self.detail.get(name.len() + "``: ".len()..).unwrap_or_default();
        Some((name, *fault, why))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.detail)
    }
}

impl std::error::Error for Error {}

/// The innermost cause of an error, which is what people can act on.
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
    fn a_hostile_detail_is_cut_at_a_character() {
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
