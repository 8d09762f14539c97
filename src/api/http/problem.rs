//! Errors as `application/problem+json` (RFC 9457), with a stable `type` for each kind of failure.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dwell_client::wire::messages::GroupFate;
use dwell_client::wire::problem::Problem as ProblemBody;
use dwell_client::wire::settle::Verdicts;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::field_errors::{FieldError, FieldErrors};
use super::reply::Reply;
use crate::model::error::{Error, Fault, Kind, Missing};
use crate::platform::request_id::RequestId;

pub(crate) const TYPE_PREFIX: &str = "urn:dwell:error:";

pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Every kind of problem: those of the broker, and those that HTTP finds before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Verb(Kind),
    Malformed,
    Unauthorized,
    ScopeMissing,
    MethodNotAllowed,
    Timeout,
    PreconditionFailed,
    UnsupportedMediaType,
    NotSettled,
    UnknownReceipt,
    InvalidReceipt,
}

impl Class {
    pub(crate) const OF_RECEIPTS: [Class; 3] = [Class::NotSettled, Class::UnknownReceipt, Class::InvalidReceipt];

    pub(crate) fn all() -> impl Iterator<Item = Class> {
        let http = [
            Class::Malformed,
            Class::Unauthorized,
            Class::ScopeMissing,
            Class::MethodNotAllowed,
            Class::Timeout,
            Class::PreconditionFailed,
            Class::UnsupportedMediaType,
        ];
        Kind::ALL.map(Class::Verb).into_iter().chain(http).chain(Class::OF_RECEIPTS)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Verb(kind) => kind.name(),
            Class::Malformed => "malformed",
            Class::Unauthorized => "unauthorized",
            Class::ScopeMissing => "scope-missing",
            Class::MethodNotAllowed => "method-not-allowed",
            Class::Timeout => "timeout",
            Class::PreconditionFailed => "precondition-failed",
            Class::UnsupportedMediaType => "unsupported-media-type",
            Class::NotSettled => "not-settled",
            Class::UnknownReceipt => "unknown-receipt",
            Class::InvalidReceipt => "invalid-receipt",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Class::Verb(Kind::Invalid) => "Invalid request",
            Class::Verb(Kind::Forbidden) => "Origin not allowed",
            Class::Verb(Kind::NotFound) => "Not found",
            Class::Verb(Kind::Stale) => "Topic has changed",
            Class::Verb(Kind::Conflict) => "Conflict",
            Class::Verb(Kind::Ambiguous) => "Ambiguous message id",
            Class::Verb(Kind::TooLarge) => "Too large",
            Class::Verb(Kind::Full) => "No capacity left",
            Class::Verb(Kind::Unavailable) => "Temporarily unavailable",
            Class::Verb(Kind::OutcomeUnknown) => "Outcome unknown",
            Class::Verb(Kind::Corrupt) => "Stored data is unreadable",
            Class::Verb(Kind::Bug) => "Internal error",
            Class::Malformed => "Malformed request",
            Class::Unauthorized => "Token required",
            Class::ScopeMissing => "Insufficient scope",
            Class::MethodNotAllowed => "Method not allowed",
            Class::Timeout => "Request timeout",
            Class::PreconditionFailed => "Precondition failed",
            Class::UnsupportedMediaType => "Unsupported media type",
            Class::NotSettled => "Delivery has ended",
            Class::UnknownReceipt => "Unknown receipt",
            Class::InvalidReceipt => "Invalid receipt",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Class::Verb(Kind::Invalid) => StatusCode::UNPROCESSABLE_ENTITY,
            Class::Verb(Kind::Forbidden) => StatusCode::FORBIDDEN,
            Class::Verb(Kind::NotFound) => StatusCode::NOT_FOUND,
            Class::Verb(Kind::Stale | Kind::Conflict | Kind::Ambiguous) => StatusCode::CONFLICT,
            Class::Verb(Kind::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            Class::Verb(Kind::Full | Kind::Unavailable) => StatusCode::SERVICE_UNAVAILABLE,
            Class::Verb(Kind::OutcomeUnknown) => StatusCode::GATEWAY_TIMEOUT,
            Class::Verb(Kind::Corrupt | Kind::Bug) => StatusCode::INTERNAL_SERVER_ERROR,
            Class::Malformed => StatusCode::BAD_REQUEST,
            Class::Unauthorized => StatusCode::UNAUTHORIZED,
            Class::ScopeMissing => StatusCode::FORBIDDEN,
            Class::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Class::Timeout => StatusCode::REQUEST_TIMEOUT,
            Class::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Class::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Class::NotSettled => StatusCode::CONFLICT,
            Class::UnknownReceipt => StatusCode::NOT_FOUND,
            Class::InvalidReceipt => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Problem {
    class: Class,
    status: StatusCode,
    /// Contains the detail, cut to its limit.
    error: Error,
    id: Option<String>,
    // Boxed: most problems have none, and every handler returns one.
    errors: Option<Box<Listed>>,
    results: Option<Box<serde_json::Value>>,
    groups: Option<Vec<GroupFate>>,
    verdict: Option<Box<Refused>>,
}

#[derive(Debug)]
struct Refused {
    reason: &'static str,
    failed: usize,
}

#[derive(Debug)]
struct Listed {
    errors: Vec<FieldError>,
    more: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Summary {
    pub(crate) name: &'static str,
    pub(crate) detail: Arc<str>,
}

/// Stable type of an error: docs/reference/errors.md lists them all with what to do.
pub(crate) enum TypeSchema {}

impl PartialSchema for TypeSchema {
    fn schema() -> RefOr<Schema> {
        let names = Class::all().map(|class| format!("{TYPE_PREFIX}{}", class.name()));
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Stable type of an error: docs/reference/errors.md lists them all with what to do."))
            .enum_values(Some(names))
            .examples([format!("{TYPE_PREFIX}invalid")])
            .into()
    }
}

impl ToSchema for TypeSchema {
    fn name() -> Cow<'static, str> {
        "ProblemType".into()
    }
}

impl Problem {
    pub(crate) fn new(class: Class, detail: impl Into<Cow<'static, str>>) -> Problem {
        let kind = if let Class::Verb(kind) = class { kind } else { Kind::Invalid };
        Problem {
            class,
            status: class.status(),
            error: Error::new(kind, detail),
            id: None,
            errors: None,
            results: None,
            groups: None,
            verdict: None,
        }
    }

    /// The first error decides the type and begins the detail.
    pub(crate) fn of_faults(faults: FieldErrors) -> Problem {
        let (errors, more) = faults.into_parts();
        let others = errors.len().saturating_sub(1) + more;
        let detail = match (errors.first(), others) {
            (None, _) => String::new(),
            (Some(first), 0) => first.to_string(),
            (Some(first), others) => format!("{first}; and {others} more in `errors`"),
        };
        let is_large = errors.first().is_some_and(|first| first.fault() == Fault::TooLarge);
        let kind = if is_large { Kind::TooLarge } else { Kind::Invalid };
        let errors = Some(Box::new(Listed { errors, more }));
        Problem { errors, ..Problem::new(Class::Verb(kind), detail) }
    }

    fn of_field(error: FieldError) -> Problem {
        let mut faults = FieldErrors::default();
        faults.push(error);
        Problem::of_faults(faults)
    }

    pub(crate) fn of_parameter(name: &str, fault: Fault, why: impl fmt::Display) -> Problem {
        Problem::of_field(FieldError::of_parameter(name, fault, why.to_string()))
    }

    pub(crate) fn of_header(name: &str, fault: Fault, why: impl fmt::Display) -> Problem {
        Problem::of_field(FieldError::of_header(name, fault, why.to_string()))
    }

    /// The error of a request without a body: it names a parameter.
    pub(crate) fn of_query(error: Error) -> Problem {
        match error.field() {
            Some((name, fault, why)) => Problem::of_parameter(name, fault, why),
            None => error.into(),
        }
    }

    pub(crate) fn malformed(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(Class::Malformed, detail)
    }

    pub(crate) fn wrong(fault: Fault, field: &str, why: impl fmt::Display) -> Problem {
        Error::wrong(fault, field, why).into()
    }

    /// The wrong fields, and how many more; the problem itself when it is about something else.
    pub(crate) fn into_errors(self) -> Result<(Vec<FieldError>, usize), Box<Problem>> {
        match self.errors {
            Some(listed) => Ok((listed.errors, listed.more)),
            None => Err(Box::new(self)),
        }
    }

    /// Answers 429 instead of 503: too many consumers wait, but the broker is not full.
    pub(crate) fn of_waiting(mut self) -> Problem {
        if self.class == Class::Verb(Kind::Full) {
            self.status = StatusCode::TOO_MANY_REQUESTS;
        }
        self
    }

    pub(crate) fn in_line(mut self, number: usize) -> Problem {
        if self.errors.is_none() {
            let detail = format!("line {number}: {}", self.detail());
            self.error = self.error.with_detail(detail);
        }
        self
    }

    pub(crate) fn hinting(mut self, hint: &str) -> Problem {
        let detail = format!("{}; {hint}", self.detail());
        self.error = self.error.with_detail(detail);
        self
    }

    /// Adds the message id to repeat the push with, if the push was perhaps applied.
    pub(crate) fn with_id(mut self, id: &impl fmt::Display) -> Problem {
        if matches!(self.class, Class::Verb(Kind::OutcomeUnknown | Kind::Bug)) {
            self.id = Some(id.to_string());
        }
        self
    }

    pub(crate) fn with_results(mut self, results: serde_json::Value) -> Problem {
        self.results = Some(Box::new(results));
        self
    }

    pub(crate) fn with_groups(mut self, groups: Vec<GroupFate>) -> Problem {
        self.groups = Some(groups);
        self
    }

    pub(crate) fn with_verdict(mut self, reason: &'static str, verdicts: &Verdicts) -> Problem {
        self.verdict = Some(Box::new(Refused { reason, failed: verdicts.failed }));
        self.with_results(serde_json::to_value(&verdicts.results).unwrap_or_default())
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn detail(&self) -> &str {
        self.error.detail()
    }

    pub(crate) fn body(self) -> ProblemBody {
        let detail = self.detail().to_owned();
        let Listed { errors, more } = self.errors.map_or(Listed { errors: Vec::new(), more: 0 }, |listed| *listed);
        ProblemBody {
            kind: format!("{TYPE_PREFIX}{}", self.class.name()),
            title: self.class.title().into(),
            status: self.status.as_u16(),
            detail,
            request_id: None,
            missing: self.error.what_is_missing().cloned(),
            errors: errors.into_iter().map(FieldError::into_wire).collect(),
            more_errors: (more > 0).then_some(more),
            id: self.id,
            results: self.results.map(|results| *results),
            groups: self.groups,
            reason: self.verdict.as_ref().map(|refused| refused.reason.into()),
            failed: self.verdict.map(|refused| refused.failed),
        }
    }
}

fn remedy(missing: &Missing) -> String {
    let path = match missing {
        Missing { topic, group: Some(group), .. } => format!("/v1/topics/{topic}/groups/{group}"),
        Missing { topic, cron: Some(name), .. } => format!("/v1/topics/{topic}/cron/{name}"),
        Missing { topic, .. } => format!("/v1/topics/{topic}"),
    };
    format!("{missing}; create it with PUT {path}")
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        if let Some(wrong) = FieldError::of(&error) {
            return Problem::of_field(wrong);
        }
        let error = match error.what_is_missing().map(remedy) {
            Some(detail) => error.with_detail(detail),
            None => error,
        };
        let class = Class::Verb(error.kind());
        let status = class.status();
        Problem { class, status, error, id: None, errors: None, results: None, groups: None, verdict: None }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (class, status) = (self.class, self.status);
        let summary = Summary { name: class.name(), detail: self.detail().into() };
        let mut body = self.body();
        body.request_id = RequestId::current().map(|id| id.to_string());
        let mut response = (status, Reply(body)).into_response();
        response.extensions_mut().insert(summary);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if matches!(class, Class::Verb(Kind::Full | Kind::Unavailable)) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if class == Class::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if class == Class::Timeout {
            // The rest of the body may still arrive, so the connection cannot be used again.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemType {
    pub name: &'static str,
    pub statuses: String,
    pub perhaps_applied: bool,
    pub remedy: &'static str,
}

pub fn problem_types() -> Vec<ProblemType> {
    let mut classes: Vec<Class> = Class::all().collect();
    classes.sort_by_key(|class| class.status());
    let statuses = |class: Class| match class {
        Class::Verb(Kind::Full) => format!("{}, 429", class.status().as_u16()),
        class => class.status().as_u16().to_string(),
    };
    let described = |class: Class| ProblemType {
        name: class.name(),
        statuses: statuses(class),
        perhaps_applied: matches!(class, Class::Verb(Kind::OutcomeUnknown | Kind::Bug)),
        remedy: advice(class),
    };
    classes.into_iter().map(described).collect()
}

fn advice(class: Class) -> &'static str {
    match class {
        Class::Verb(Kind::Invalid) => "A field or parameter is unknown, repeated, missing or out of range. Correct it.",
        Class::Verb(Kind::Forbidden) => {
            "`Host`, `Origin` or `Sec-Fetch-Site` names another site. Pages of other sites cannot call dwell."
        }
        Class::Verb(Kind::NotFound) => {
            "The topic, group, message, cron job or path does not exist. `missing` names the topic or group, `detail` the request \
             that creates it."
        }
        Class::Verb(Kind::Stale) => "The topic changed meanwhile. Read it again.",
        Class::Verb(Kind::Conflict) => {
            "The request contradicts what exists: another number of partitions, an id that exists, a message that is in flight \
             or dead."
        }
        Class::Verb(Kind::Ambiguous) => {
            "Several messages have this id with different keys; `detail` lists them. Give the `key`."
        }
        Class::Verb(Kind::TooLarge) => "A limit of size was exceeded. Send less.",
        Class::Verb(Kind::Full) => {
            "A limit of capacity is reached; 429 when too many consumers wait. Try again after `Retry-After` seconds."
        }
        Class::Verb(Kind::Unavailable) => {
            "`detail` says why: the store cannot be reached and the local disk does not accept the push, or this broker is \
             stopping. Ask another broker, or try again after `Retry-After` seconds."
        }
        Class::Verb(Kind::OutcomeUnknown) => {
            "The store was asked and did not answer. Repeat the request with the same message id or receipt."
        }
        Class::Verb(Kind::Corrupt) => "Stored bytes are not what dwell wrote. Ask an operator to look.",
        Class::Verb(Kind::Bug) => "A defect in dwell. Please report it.",
        Class::Malformed => "The request cannot be read: broken JSON, UTF-8 or percent-encoding. Correct it.",
        Class::Unauthorized => "The request carries no token that the broker knows. Send `Authorization: Bearer …`.",
        Class::ScopeMissing => "The token lacks the scope that `detail` names.",
        Class::MethodNotAllowed => {
            "The path does not have this method; `detail` and the header `Allow` name those it has."
        }
        Class::Timeout => "The body did not arrive in time. Send it again.",
        Class::PreconditionFailed => "The message or topic is not the version in `If-Match`. Get it again.",
        Class::UnsupportedMediaType => "The request needs another content type, or the body has a `Content-Encoding`.",
        Class::NotSettled => "The delivery is over; `reason` says why. Do not repeat the request.",
        Class::UnknownReceipt => "The receipt belongs to another topic or group.",
        Class::InvalidReceipt => {
            "The text is no receipt of these brokers: it was changed or made up, or comes from an older version."
        }
    }
}

/// Collects the parts of a body, or everything that is wrong with them. `place` moves an error to its part.
pub(crate) fn collect<T>(
    parts: impl Iterator<Item = (usize, Result<T, Problem>)>,
    place: impl Fn(FieldError, usize) -> FieldError,
) -> Result<Vec<T>, Problem> {
    let (mut made, mut faults) = (Vec::with_capacity(parts.size_hint().0), FieldErrors::default());
    for (number, part) in parts {
        match part.map_err(Problem::into_errors) {
            Ok(part) => made.push(part),
            Err(Err(of_something_else)) => return Err(*of_something_else),
            Err(Ok((errors, more))) => {
                faults.extend(errors.into_iter().map(|error| place(error, number)).collect(), more);
            }
        }
    }
    if faults.is_empty() { Ok(made) } else { Err(Problem::of_faults(faults)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_lists_every_error_class_with_its_status() {
        let page = include_str!("../../../docs/reference/errors.md");
        for class in Class::all() {
            let row = format!("| `{}` | {}", class.name(), class.status().as_u16());
            assert!(page.contains(&row), "{row}");
        }
        let rows = page.lines().skip_while(|line| !line.starts_with("| type | status |")).skip(2);
        assert_eq!(rows.take_while(|line| line.starts_with('|')).count(), Class::all().count());
    }

    #[test]
    fn only_retryable_errors_have_retry_after() {
        for class in Class::all() {
            let response = Problem::new(class, "because").into_response();
            let again = matches!(class, Class::Verb(Kind::Full | Kind::Unavailable));
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), again, "{class:?}");
            assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM_JSON);
        }
    }
}
