//! Errors of a broker as its clients see them.

use std::fmt;

use serde::de::DeserializeOwned;

use super::api::Problem;
use super::failure::{FAILED, Failure, UNAVAILABLE};

/// Why a call to a broker failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallError {
    /// Nothing listens there: nothing was applied.
    Unreachable(String),
    /// The request was sent and no answer came: perhaps it was applied.
    NoAnswer(String),
    /// The broker refused.
    Problem(Box<Problem>),
    /// The answer is not dwell's.
    Garbled(String),
}

impl CallError {
    /// Whether the same request may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            CallError::Unreachable(_) | CallError::NoAnswer(_) => true,
            CallError::Problem(problem) => problem.is_passing(),
            CallError::Garbled(_) => false,
        }
    }

    /// The result of each item of the request, if the broker answered each for itself.
    pub(super) fn results<R: DeserializeOwned>(&self) -> Option<Vec<R>> {
        match self {
            CallError::Problem(problem) => problem.results(),
            CallError::Unreachable(_) | CallError::NoAnswer(_) | CallError::Garbled(_) => None,
        }
    }

    /// Whether the request was perhaps applied.
    pub(super) fn is_unknown(&self) -> bool {
        match self {
            CallError::NoAnswer(_) => true,
            CallError::Problem(problem) => problem.name() == "outcome-unknown",
            CallError::Unreachable(_) | CallError::Garbled(_) => false,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Unreachable(text) | CallError::NoAnswer(text) | CallError::Garbled(text) => f.write_str(text),
            CallError::Problem(problem) => problem.fmt(f),
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure { code: if error.is_passing() { UNAVAILABLE } else { FAILED }, message: error.to_string() }
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
    fn what_is_missing_is_created_with_a_command() -> serde_json::Result<()> {
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
            assert_eq!(problem.to_string(), format!("{said} (not-found)"));
        }
        Ok(())
    }

    #[test]
    fn a_problem_becomes_a_sentence_and_an_exit_code() -> serde_json::Result<()> {
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
