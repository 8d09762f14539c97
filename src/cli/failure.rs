//! How a command fails: a sentence for people and an exit code for scripts. And errors of a broker as its clients see them.

use std::fmt;

use dwell_client::wire::problem::{Missing, Problem};

use crate::model::error::{Error, Kind};

pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 64;
pub(crate) const UNAVAILABLE: u8 = 69;
const INTERRUPTED: u8 = 130;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// The text to print; empty when everything was printed before.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { code: FAILED, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { code: USAGE, message: message.into() }
    }

    pub(crate) fn interrupted(message: impl Into<String>) -> Failure {
        Failure { code: INTERRUPTED, message: message.into() }
    }

    pub(crate) fn printed() -> Failure {
        Failure { code: FAILED, message: String::new() }
    }

    /// The reader of the output went away, as `head` does: no failure, but the end.
    pub(crate) fn output_closed() -> Failure {
        Failure { code: 0, message: String::new() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let unavailable = matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown);
        let code = if unavailable { UNAVAILABLE } else { FAILED };
        Failure { code, message: error.detail().to_owned() }
    }
}

pub(crate) type CallResult<T> = Result<T, CallError>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// Nothing listens there: nothing was applied.
    Unreachable(String),
    /// The request was sent and no answer came: perhaps it was applied.
    NoAnswer(String),
    Problem(Box<Problem>),
    Garbled(String),
}

impl CallError {
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            CallError::Unreachable(_) | CallError::NoAnswer(_) => true,
            CallError::Problem(problem) => problem.is_passing(),
            CallError::Garbled(_) => false,
        }
    }

    pub(crate) fn is_topic_missing(&self) -> bool {
        let CallError::Problem(problem) = self else { return false };
        problem.missing.as_ref().is_some_and(Missing::is_topic)
    }

    pub(crate) fn is_unknown(&self) -> bool {
        let is_unknown = |problem: &Problem| problem.name() == "outcome-unknown";
        matches!(self, CallError::NoAnswer(_)) || matches!(self, CallError::Problem(problem) if is_unknown(problem))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Unreachable(text) | CallError::NoAnswer(text) | CallError::Garbled(text) => f.write_str(text),
            CallError::Problem(problem) => InWords(problem).fmt(f),
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure { code: if error.is_passing() { UNAVAILABLE } else { FAILED }, message: error.to_string() }
    }
}

/// A problem in the words of the command line.
pub(crate) struct InWords<'a>(pub(crate) &'a Problem);

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InWords(problem) = self;
        if let Some(missing) = &problem.missing {
            return write!(f, "{missing}; {} ({})", remedy(missing), problem.name());
        }
        match problem.detail.as_str() {
            "" => write!(f, "{} ({})", problem.title, problem.name())?,
            detail => write!(f, "{detail} ({})", problem.name())?,
        }
        // The detail has the first one.
        problem.errors.iter().skip(1).try_for_each(|error| write!(f, "\n  {}: {}", error.place(), error.detail))
    }
}

fn remedy(missing: &Missing) -> String {
    match missing {
        Missing { topic, group: Some(group), .. } => format!("create it with `dwell group create {topic} {group}`"),
        Missing { topic, cron: Some(_), .. } => format!("`dwell cron list {topic}` shows those that exist"),
        Missing { topic, .. } => format!("create it with `dwell topic create {topic}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str, detail: &str) -> serde_json::Result<CallError> {
        let text =
            format!(r#"{{"type":"urn:dwell:error:{name}","title":"T","status":503,"detail":{detail:?},"new":1}}"#);
        serde_json::from_str(&text).map(|problem| CallError::Problem(Box::new(problem)))
    }

    #[test]
    fn not_found_suggests_the_create_command() -> serde_json::Result<()> {
        let cases = [
            (r#"{"topic":"orders"}"#, "topic orders does not exist; create it with `dwell topic create orders`"),
            (
                r#"{"topic":"orders","group":"audit"}"#,
                "topic orders has no group audit; create it with `dwell group create orders audit`",
            ),
            (
                r#"{"topic":"orders","cron":"nightly"}"#,
                "topic orders has no cron job nightly; `dwell cron list orders` shows those that exist",
            ),
        ];
        for (missing, said) in cases {
            let text =
                format!(r#"{{"type":"not-found","title":"T","status":404,"detail":"PUT it","missing":{missing}}}"#);
            let problem: Problem = serde_json::from_str(&text)?;
            assert_eq!(InWords(&problem).to_string(), format!("{said} (not-found)"));
        }
        Ok(())
    }

    #[test]
    fn problem_maps_to_a_sentence_and_an_exit_code() -> serde_json::Result<()> {
        let failure = Failure::from(problem("invalid", "`delay`: is negative")?);
        assert_eq!(failure, Failure { code: FAILED, message: "`delay`: is negative (invalid)".to_owned() });
        assert_eq!(Failure::from(problem("unavailable", "")?).message, "T (unavailable)");
        let many = r#"{"type": "urn:dwell:error:invalid", "title": "T", "status": 422, "detail": "`a`: is wrong; and 1 more in `errors`",
            "errors": [{"pointer": "/a", "code": "type", "detail": "is wrong"}, {"parameter": "b", "code": "range", "detail": "too"}]}"#;
        let shown = serde_json::from_str(many).map(|problem| CallError::Problem(Box::new(problem)))?.to_string();
        assert_eq!(shown, "`a`: is wrong; and 1 more in `errors` (invalid)\n  b: too");
        for passing in ["unavailable", "full", "outcome-unknown"] {
            assert_eq!(Failure::from(problem(passing, "")?).code, UNAVAILABLE, "{passing}");
        }
        Ok(())
    }
}
