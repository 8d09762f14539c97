//! What a target answered, and what that decides.

use std::time::{Duration, UNIX_EPOCH};

use crate::delivery::Decision;
use crate::model::limits::RETRY_AFTER_MAX;
use crate::model::time::{Timestamp, show_span};
use crate::telemetry::spans::Span;

/// Bytes of an answer's body that go into the reason.
pub(super) const SAID_BYTES: usize = 200;

/// Every label value of metrics.
pub(super) const OUTCOMES: [&str; 5] = ["ok", "gone", "refused", "timed_out", "failed"];

/// How a POST ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// With an answer.
    Status {
        /// The HTTP status.
        status: u16,
        /// When the target wants the message again.
        retry_after: Option<Duration>,
        /// The beginning of the body.
        said: String,
    },
    /// Without an answer in so much time.
    TimedOut(Duration),
    /// Without an answer: no connection, or one that broke.
    Failed(String),
}

impl Answer {
    /// The label value of metrics, one of [`OUTCOMES`].
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Answer::Status { status: 200..=299, .. } => "ok",
            Answer::Status { status: 410, .. } => "gone",
            Answer::Status { .. } => "refused",
            Answer::TimedOut(_) => "timed_out",
            Answer::Failed(_) => "failed",
        }
    }

    /// What becomes of the message. Only 410 says that it can never succeed: other statuses of the 400s come from wrong
    /// deployments as well, and those get repaired.
    pub(super) fn decision(&self) -> Decision {
        match self {
            Answer::Status { status: 200..=299, .. } => Decision::Ack,
            Answer::Status { status: 410, .. } => Decision::Bury { reason: Some(self.reason()) },
            Answer::Status { retry_after, .. } => Decision::Nack { delay: *retry_after, reason: Some(self.reason()) },
            Answer::TimedOut(_) | Answer::Failed(_) => Decision::Nack { delay: None, reason: Some(self.reason()) },
        }
    }

    /// What went wrong, without the words of the target: they may repeat the payload.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            Answer::Status { status: 200..=299, .. } => None,
            Answer::Status { status, .. } => Some(format!("status {status}")),
            Answer::TimedOut(_) | Answer::Failed(_) => Some(self.reason()),
        }
    }

    /// Adds to a span how it was answered.
    pub(super) fn describe(&self, span: Span) -> Span {
        let span = match self {
            Answer::Status { status, .. } => span.number("http.response.status_code", *status),
            Answer::TimedOut(_) | Answer::Failed(_) => span,
        };
        span.text("dwell.outcome", self.outcome())
    }

    /// What went wrong, for people.
    pub(super) fn reason(&self) -> String {
        match self {
            Answer::Status { status: status @ 300..=399, .. } => format!("status {status}: redirects are not followed"),
            Answer::Status { status, said, .. } if said.is_empty() => format!("status {status}"),
            Answer::Status { status, said, .. } => format!("status {status}: {said}"),
            Answer::TimedOut(timeout) => format!("no answer within {}", show_span(*timeout)),
            Answer::Failed(why) => why.clone(),
        }
    }
}

/// The value of `Retry-After`, in seconds or as an HTTP date, at most a day; `None` for anything else.
pub(super) fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has are a long time too.
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
    }
    let date = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let at = Timestamp::from_ms(u64::try_from(date.as_millis()).ok()?);
    Some(at.since(now).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_decides() {
        let status = |status, said: &str| Answer::Status { status, retry_after: None, said: said.to_owned() };
        let nack = |delay, reason: &str| Decision::Nack { delay, reason: Some(reason.to_owned()) };
        let two = Some(Duration::from_secs(2));
        let cases = [
            (status(200, "fine"), "ok", Decision::Ack),
            (status(204, ""), "ok", Decision::Ack),
            (status(410, "no such user"), "gone", Decision::Bury { reason: Some("status 410: no such user".into()) }),
            (status(302, "moved"), "refused", nack(None, "status 302: redirects are not followed")),
            (status(404, ""), "refused", nack(None, "status 404")),
            (status(500, "oops"), "refused", nack(None, "status 500: oops")),
            (Answer::Status { status: 503, retry_after: two, said: String::new() }, "refused", nack(two, "status 503")),
            (Answer::TimedOut(Duration::from_secs(10)), "timed_out", nack(None, "no answer within 10s")),
            (Answer::Failed("Connection refused".into()), "failed", nack(None, "Connection refused")),
        ];
        for (answer, outcome, decision) in cases {
            assert_eq!((answer.outcome(), answer.decision()), (outcome, decision), "{answer:?}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_never_too_long() {
        // Sun, 06 Nov 1994 08:49:37 GMT.
        let now = Timestamp::from_ms(784_111_777_000);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let cases = [
            ("2", seconds(2)),
            (" 120 ", seconds(120)),
            ("0", seconds(0)),
            ("86400", seconds(86_400)),
            ("86401", Some(RETRY_AFTER_MAX)),
            ("99999999999999999999999", Some(RETRY_AFTER_MAX)),
            ("315360000", Some(RETRY_AFTER_MAX)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", seconds(10)),
            ("Sunday, 06-Nov-94 08:49:47 GMT", seconds(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", seconds(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(RETRY_AFTER_MAX)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ];
        for (value, expected) in cases {
            assert_eq!(retry_after(value, now), expected, "{value:?}");
        }
    }
}
