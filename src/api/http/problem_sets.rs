//! Problems in the OpenAPI document: shared responses for each status, and sets of them for `responses(…)`.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use utoipa::IntoResponses;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{ContentBuilder, Header, Ref, RefOr, Response, ResponseBuilder};

use super::problem::{Class, PROBLEM_JSON, Problem};
use crate::model::error::Kind;

macro_rules! sets {
    ($($(#[doc = $doc:literal])+ $name:ident: $($status:ident)+;)+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) enum $name {}

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    references(&[$(StatusCode::$status),+])
                }
            }
        )+
    };
}

sets! {
    /// Problems of a probe, which needs no token.
    ProbeProblem: BAD_REQUEST FORBIDDEN INTERNAL_SERVER_ERROR;
    /// Problems of a readiness probe.
    UnreadyProblem: SERVICE_UNAVAILABLE;
    /// Problems of a request that uses the store.
    StoreProblem: UNPROCESSABLE_ENTITY GATEWAY_TIMEOUT;
    /// Problems of a request about a topic.
    TopicProblem: NOT_FOUND CONFLICT UNPROCESSABLE_ENTITY GATEWAY_TIMEOUT;
    /// Problems of a request with a body.
    BodyProblem: REQUEST_TIMEOUT PAYLOAD_TOO_LARGE UNSUPPORTED_MEDIA_TYPE;
    /// Problems of a request that waits for deliveries.
    WaitProblem: TOO_MANY_REQUESTS;
    /// Problems of a request with `If-Match`.
    MatchProblem: PRECONDITION_FAILED;
}

/// Problems of every request that needs a token.
impl IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        references(&[
            StatusCode::BAD_REQUEST,
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::INTERNAL_SERVER_ERROR,
            StatusCode::SERVICE_UNAVAILABLE,
        ])
    }
}

/// Problems of a request that settles.
pub(crate) enum SettlementProblems {}

impl IntoResponses for SettlementProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let reference =
            |status: StatusCode| RefOr::Ref(Ref::from_response_name(format!("Settlement{}", name_of(status))));
        SETTLEMENT.into_iter().map(|(status, _)| (status.as_str().to_owned(), reference(status))).collect()
    }
}

/// The statuses that a request which settles answers otherwise than others, with what they mean.
const SETTLEMENT: [(StatusCode, &str); 4] = [
    (StatusCode::NOT_FOUND, "No such topic or group; or the only receipt is not of this topic and group."),
    (StatusCode::CONFLICT, "The delivery of the only receipt is over, or the request is for another broker."),
    (
        StatusCode::UNPROCESSABLE_ENTITY,
        "A field is unknown, repeated, missing or out of range; or the only receipt is none.",
    ),
    (StatusCode::GATEWAY_TIMEOUT, "The store or the owner did not answer: the delivery may have been settled."),
];

/// The statuses of problems, with what they mean. 405 is no part of an operation: it says that there is none.
const STATUSES: [(StatusCode, &str); 14] = [
    (StatusCode::BAD_REQUEST, "The request cannot be read: broken JSON, bad UTF-8 or bad percent-encoding."),
    (StatusCode::UNAUTHORIZED, "The broker has tokens configured, and the request has none that it knows."),
    (StatusCode::FORBIDDEN, "The token lacks the required scope, or the request comes from another site."),
    (StatusCode::NOT_FOUND, "No such topic, group, message or cron job."),
    (StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time."),
    (StatusCode::CONFLICT, "The request contradicts what exists, or the topic changed meanwhile."),
    (StatusCode::PRECONDITION_FAILED, "The message or topic is not as `If-Match` says."),
    (StatusCode::PAYLOAD_TOO_LARGE, "A size limit is exceeded."),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The request takes another content type."),
    (StatusCode::UNPROCESSABLE_ENTITY, "A field or parameter is unknown, repeated, missing or out of range."),
    (StatusCode::TOO_MANY_REQUESTS, "Too many consumers wait."),
    (StatusCode::INTERNAL_SERVER_ERROR, "Stored bytes are unreadable, or the request met a defect in dwell."),
    (StatusCode::SERVICE_UNAVAILABLE, "The store cannot be reached, or a capacity limit is reached."),
    (StatusCode::GATEWAY_TIMEOUT, "The store did not answer: the request may have been applied."),
];

/// The component that describes a status.
fn name_of(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().split(' ').collect()
}

fn references(statuses: &[StatusCode]) -> BTreeMap<String, RefOr<Response>> {
    let reference =
        |status: &StatusCode| (status.as_str().to_owned(), RefOr::Ref(Ref::from_response_name(name_of(*status))));
    statuses.iter().map(reference).collect()
}

/// The components that the sets refer to.
pub(crate) fn components() -> impl Iterator<Item = (String, RefOr<Response>)> {
    let everywhere = |class: &Class| !Class::OF_RECEIPTS.contains(class);
    let shared = STATUSES.into_iter().map(move |(status, about)| {
        (name_of(status), component(status, about, "Problem", Class::all().filter(everywhere)))
    });
    shared.chain(SETTLEMENT.into_iter().map(|(status, about)| {
        (format!("Settlement{}", name_of(status)), component(status, about, "SettlementProblem", Class::all()))
    }))
}

/// A response with an example of every class of its status.
fn component(
    status: StatusCode,
    about: &'static str,
    schema: &str,
    classes: impl Iterator<Item = Class>,
) -> RefOr<Response> {
    let classes = classes.filter(|class| answers(*class).contains(&status));
    let examples = classes.map(|class| {
        let mut body = serde_json::to_value(Problem::new(class, about).body()).unwrap_or_default();
        body["status"] = status.as_u16().into();
        (class.name(), ExampleBuilder::new().summary(class.title()).value(Some(body)).build())
    });
    let content =
        ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).examples_from_iter(examples).build();
    let response = ResponseBuilder::new().description(about).content(PROBLEM_JSON, content);
    let response = match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            response.header(RETRY_AFTER.as_str(), header("Seconds after which to try again.", Type::Integer))
        }
        StatusCode::UNAUTHORIZED => {
            response.header(WWW_AUTHENTICATE.as_str(), header("The scheme, `Bearer`.", Type::String))
        }
        _ => response,
    };
    response.build().into()
}

/// The statuses that problems of a class have.
fn answers(class: Class) -> Vec<StatusCode> {
    let of_waiting = (class == Class::Verb(Kind::Full)).then_some(StatusCode::TOO_MANY_REQUESTS);
    of_waiting.into_iter().chain([class.status()]).collect()
}

fn header(about: &str, kind: Type) -> Header {
    HeaderBuilder::new().schema(ObjectBuilder::new().schema_type(kind)).description(Some(about)).build()
}
