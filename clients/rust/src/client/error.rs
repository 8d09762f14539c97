//! The errors of the client. A caller decides by the variant; the text is for people.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::wire::messages::GroupFate;
use crate::wire::problem::Problem;
use crate::wire::push::PushResult;

/// Why a call failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The broker refused the request. The same request will be refused again.
    Refused(Box<Refused>),
    /// No answer that is final came before the time for repeats was over. The request may have succeeded: a push is safe to send again
    /// with the same id and key.
    Unavailable(Box<Unavailable>),
    /// Some messages of [`Client::push_many`](crate::Client::push_many) were not accepted.
    NotAccepted(Box<NotAccepted>),
    /// An argument that no broker would accept. Nothing was sent.
    Argument(String),
    /// The client cannot be used as it is set up: the address, the token file or the CA file is wrong.
    Setup(String),
    /// The answer is not one of dwell: something else is at this address. The request may have succeeded.
    Unreadable(Box<Unreadable>),
    /// The producer is closed, or its runtime has ended.
    Closed,
}

impl Error {
    pub(crate) fn argument(why: impl Into<String>) -> Error {
        Error::Argument(why.into())
    }

    /// The refusal, if it is one: `error.refused().is_some_and(|refused| refused.kind == "conflict")`.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Error::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    /// Whether the broker refused the request with this type, such as `not-found`.
    pub fn is(&self, kind: &str) -> bool {
        self.refused().is_some_and(|refused| refused.kind == kind)
    }

    /// Whether the outcome is unknown, or the broker could not do it now.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(refused) => refused.fmt(f),
            Error::Unavailable(unavailable) => unavailable.fmt(f),
            Error::NotAccepted(not_accepted) => not_accepted.fmt(f),
            Error::Unreadable(unreadable) => unreadable.fmt(f),
            Error::Argument(why) | Error::Setup(why) => f.write_str(why),
            Error::Closed => f.write_str("the producer is closed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unavailable(unavailable) => std::error::Error::source(&**unavailable),
            _ => None,
        }
    }
}

/// A request that the broker refused.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refused {
    /// HTTP status.
    pub status: u16,
    /// The type of the problem without its prefix, such as `not-found`; stable. Empty if the answer is not one of dwell.
    pub kind: String,
    /// The error, its place, and what to do; for people.
    pub detail: String,
    /// Name of the request in the log of the broker.
    pub request_id: Option<String>,
    /// How long the broker asks to wait.
    pub retry_after: Option<Duration>,
    /// An earlier try of this call had no answer and may have succeeded. Then `conflict` and `precondition-failed` may be its doing.
    pub repeated: bool,
    /// The whole answer.
    pub problem: Option<Box<Problem>>,
}

impl Refused {
    /// The refusal that a problem in an answer is.
    pub(crate) fn of(problem: Problem) -> Refused {
        Refused {
            status: problem.status,
            kind: problem.name().to_owned(),
            detail: problem.detail.clone(),
            request_id: problem.request_id.clone(),
            retry_after: None,
            repeated: false,
            problem: Some(Box::new(problem)),
        }
    }

    /// State of the message in each group, when a cancel or reschedule changed nothing.
    pub fn groups(&self) -> &[GroupFate] {
        self.problem.as_ref().and_then(|problem| problem.groups.as_deref()).unwrap_or_default()
    }
}

impl std::error::Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.is_empty() {
            true => write!(f, "the broker answered {}: {}", self.status, self.detail),
            false => write!(f, "{} ({}): {}", self.kind, self.status, self.detail),
        }
    }
}

/// A call without a final answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Unavailable {
    /// Address of the server.
    pub address: String,
    /// The last answer, if there was one.
    pub answer: Option<Refused>,
    /// Why there was no answer, for people.
    pub detail: String,
    /// A try had no answer and may have succeeded. If not, nothing was carried out: the server was not reached, or said so.
    pub repeated: bool,
    pub(crate) cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Its source is why there was no answer.
impl std::error::Error for Unavailable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dwell at {} is unavailable: {}", self.address, self.detail)
    }
}

/// An answer that is not one of dwell.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Unreadable {
    /// Address of the server.
    pub address: String,
    /// Why it cannot be read, for people.
    pub detail: String,
}

impl std::error::Error for Unreadable {}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer of {} is not one of dwell: {}", self.address, self.detail)
    }
}

/// Messages that were not accepted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NotAccepted {
    /// Why the first of them was not accepted.
    pub first: Refused,
    /// One for each message, in order.
    pub results: Vec<PushResult>,
}

impl NotAccepted {
    /// How many were not accepted.
    pub fn failed(&self) -> usize {
        self.results.iter().filter(|result| result.error.is_some()).count()
    }
}

impl std::error::Error for NotAccepted {}

impl fmt::Display for NotAccepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, all) = (self.failed(), self.results.len());
        write!(f, "{failed} of {all} messages were not accepted, the first with: {}", self.first)
    }
}
