//! Operations: probes, metrics, the OpenAPI document, the hand-over between brokers, and the clock of a broker that was started
//! with `--test-clock`.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use dwell_client::wire::operations::{
    Alive, ClockMove, ClockMoved, ClockTime, Draining, DueMessages, FiredCronJob, Ready, Reloaded, StoreDescription,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::document::{BodyProblem, ProbeProblem, StoreProblem, TestClockProblem, TopicProblem, UnreadyProblem};
use super::path_params::NoParams;
use super::problem::{Class, Problem};
use super::reply::Reply;
use super::strict_json::{Json, media_type};
use super::{Admitted, App, body, schema};
use crate::broker::{ClockTarget, Due, FiredCron, Moved, STOPPING};
use crate::codec::decode_page;
use crate::model::error::{Error, Fault, Kind};
use crate::model::limits::{BATCH_BODY_BYTES_MAX, STREAM_BYTES_MAX};
use crate::model::time::{Timestamp, one_span};
use crate::outage::hand_over::{AFTER, HEARD, KIND, LOG, MEDIA_TYPE, STORE};
use crate::platform::test_clock::TestClock;
use crate::store::{Description, HandedOver, LogKind, TakenOver};

/// Report whether the process answers.
///
/// Needs no token.
#[utoipa::path(
    get, path = "/livez", operation_id = "getLiveness",
    tag = "operations",
    responses((status = 200, description = "It does", body = Alive), ProbeProblem)
)]
pub(crate) async fn livez() -> Reply<Alive> {
    Reply(Alive { status: "ok".into() })
}

/// Report whether pushes are accepted durably.
///
/// Needs no token. Also 503 once the broker is stopping.
#[utoipa::path(
    get, path = "/readyz", operation_id = "getReadiness",
    tag = "operations",
    responses((status = 200, description = "They are", body = Ready), ProbeProblem, UnreadyProblem)
)]
pub(crate) async fn readyz(app: Admitted) -> Result<Reply<Ready>, Problem> {
    let not_ready = |why: String| Problem::new(Class::Verb(Kind::Unavailable), why);
    if app.stopping.is_cancelled() {
        return Err(not_ready(STOPPING.to_owned()));
    }
    let health = app.broker().health().await;
    if !health.ready {
        return Err(not_ready(health.detail.unwrap_or_else(|| "pushes are not accepted".to_owned())));
    }
    let Description { kind, location, durability } = health.store;
    let store = StoreDescription { kind: kind.into(), location, durability };
    let status = if health.detail.is_some() { "degraded" } else { "ready" }.into();
    let test_clock = app.test_clock.as_ref().map(|_| app.broker().now());
    Ok(Reply(Ready { status, detail: health.detail, store, test_clock }))
}

/// Get metrics in the text format of Prometheus.
///
/// The reference of metrics lists them. With `Accept-Encoding: gzip` they are compressed.
#[utoipa::path(
    get, path = "/metrics", operation_id = "getMetrics",
    tag = "operations",
    responses((status = 200, description = "All metrics", body = schema::MetricsText, content_type = "text/plain"), Problem)
)]
pub(crate) async fn metrics(app: Admitted) -> Result<Response, Problem> {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, app.broker().scrape()?).into_response())
}

/// Get this document.
///
/// The protocol as OpenAPI 3.1.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "getOpenApi",
    tag = "operations",
    responses((status = 200, description = "An OpenAPI document", body = schema::OpenApiDocument), Problem)
)]
pub(crate) async fn openapi() -> Reply<serde_json::Value> {
    Reply(super::openapi())
}

/// The outcome of a page of records.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({"taken": 500, "refused": 0})))]
pub(crate) struct Taken {
    /// Records that are fsynced in its own log. If `taken` and `refused` are 0, it lacks earlier records of the journal: begin with
    /// the first one.
    taken: u64,
    /// Deletions of topics and purges of groups, for which the token needs `admin`.
    refused: u64,
}

/// Take over what a broker that stops has buffered.
///
/// For brokers, not for applications: the body is a page of the write-ahead log or of the journal of another broker.
#[utoipa::path(
    post, path = "/v1/hand-over", operation_id = "takeOverRecords",
    tag = "operations",
    params(
        ("Dwell-Store" = String, Header, description = "The name of the store that the records are for",
            example = "01JH3Y5ZQ4T8V6W2X9ABCDEFGH"),
        ("Dwell-Store-Heard" = Option<u64>, Header, description = "When that store last answered, in ms since 1970"),
        ("Dwell-Log" = String, Header, description = "The log that the records are from: `wal` or `journal`", example = "wal"),
        ("Dwell-Log-Id" = String, Header, description = "The name of that log", example = "01JH3Y5ZQ4T8V6W2X9ABCDEFGJ"),
        ("Dwell-Log-After" = Option<u64>, Header,
            description = "Number of the last record of a journal before the page; 0, or nothing, at its beginning")
    ),
    request_body(content((schema::Payload = "application/vnd.dwell.records")), description = "A page of records"),
    responses(
        (status = 200, description = "They are fsynced in a log of this broker", body = Taken),
        Problem, TopicProblem, BodyProblem,
    )
)]
pub(crate) async fn hand_over(
    app: Admitted,
    _: NoParams,
    headers: HeaderMap,
    body: Body,
) -> Result<Reply<Taken>, Problem> {
    if media_type(&headers).as_deref() != Some(MEDIA_TYPE) {
        body::refused(&app, &headers, body);
        return Err(Problem::new(Class::UnsupportedMediaType, format!("the body has to be `{MEDIA_TYPE}`")));
    }
    let name = |header: &str| {
        let mut values = headers.get_all(header).iter();
        let value = values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok());
        let is_name = |text: &&str| {
            (1..=STREAM_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        value.filter(is_name).ok_or_else(|| Problem::of_header(header, Fault::Format, "is missing, or is not a name"))
    };
    let kind = name(KIND)?;
    let kind = LogKind::ALL.into_iter().find(|known| known.name() == kind);
    let kind = kind.ok_or_else(|| Problem::of_header(KIND, Fault::Choice, "is neither `wal` nor `journal`"))?;
    let (store, log) = (name(STORE)?.to_owned(), name(LOG)?.to_owned());
    let number = |header: &str| match headers.get(header) {
        None => Ok(None),
        Some(value) => match value.to_str().ok().and_then(|text| text.parse::<u64>().ok()) {
            None => Err(Problem::of_header(header, Fault::Format, "is not a number")),
            number => Ok(number),
        },
    };
    let (heard, after) = (number(HEARD)?.map(Timestamp::from_ms), number(AFTER)?.unwrap_or(0));
    let bytes = body::read_for(&app, (app.pass(), &headers), body, BATCH_BODY_BYTES_MAX, "body").await?;
    let unreadable = |error: Error| Problem::malformed(error.detail().to_owned());
    let records = decode_page(bytes).map_err(unreadable)?;
    let handed = HandedOver { store, heard, kind, log, after, records };
    let taken = app.broker().take_over(handed, app.pass().is_admin()).await.map_err(|error| match error.kind() {
        Kind::Forbidden => Problem::new(Class::ScopeMissing, error.detail().to_owned()),
        _ => error.into(),
    })?;
    Ok(Reply(match taken {
        TakenOver::Kept { taken, refused } => Taken { taken, refused },
        TakenOver::LacksEarlier => Taken { taken: 0, refused: 0 },
    }))
}

/// Stop the broker gracefully.
///
/// As SIGTERM does: `/readyz` answers 503, partitions go to other brokers, buffered messages go to Redis or to another broker, and then
/// the process ends. The request is answered at once.
#[utoipa::path(
    post, path = "/v1/drain", operation_id = "drainBroker",
    tag = "operations",
    responses((status = 200, description = "It drains", body = Draining), Problem, StoreProblem)
)]
pub(crate) async fn drain(app: Admitted, _: NoParams) -> Reply<Draining> {
    app.drain.cancel();
    Reply(Draining { member: app.broker().member().to_string() })
}

/// Read the configuration again, and apply what needs no restart.
///
/// Tokens, webhooks, `log.level`, and what connections to Redis log in with. If the configuration is wrong, nothing changes.
#[utoipa::path(
    post, path = "/v1/reload", operation_id = "reloadConfiguration",
    tag = "operations",
    responses((status = 200, description = "It is in force", body = Reloaded), Problem, TestClockProblem)
)]
pub(crate) async fn reload(app: Admitted, _: NoParams) -> Result<Reply<Reloaded>, Problem> {
    let why = "this broker has no configuration that could be read again";
    let reload = app.reload.clone().ok_or_else(|| Problem::new(Class::Verb(Kind::NotFound), why))?;
    Ok(Reply(reload.reload().await?))
}

fn clock_target(to: &ClockMove) -> Result<ClockTarget, Problem> {
    match (one_span("advance", to.advance, to.advance_ms)?, to.to) {
        (Some(span), None) => Ok(ClockTarget::Advance(span)),
        (None, Some(to)) => Ok(ClockTarget::To(to)),
        (Some(_), Some(_)) => {
            Err(Problem::wrong(Fault::Exclusive, "to", "is given together with `advance`; give one of them"))
        }
        (None, None) => Err(Problem::wrong(Fault::Missing, "advance", "is missing, and so is `to`")),
    }
}

fn clock_moved(moved: Moved) -> ClockMoved {
    let due =
        |Due { topic, group, messages }| DueMessages { topic: topic.to_string(), group: group.to_string(), messages };
    let fired =
        |FiredCron { topic, name, times }| FiredCronJob { topic: topic.to_string(), name: name.to_string(), times };
    ClockMoved {
        now: moved.now,
        due: moved.due.into_iter().map(due).collect(),
        fired: moved.fired.into_iter().map(fired).collect(),
        timed_out: moved.timed_out,
    }
}

fn clock_of(app: &App) -> Result<Arc<TestClock>, Problem> {
    let why = "this broker goes by the clock of the machine; only `dwell serve --test-clock` has one that is moved";
    app.test_clock.clone().ok_or_else(|| Problem::new(Class::Verb(Kind::NotFound), why))
}

/// Get the time of the test clock.
///
/// Only with `--test-clock`.
#[utoipa::path(
    get, path = "/v1/test/clock", operation_id = "getTestClock",
    tag = "operations",
    responses((status = 200, description = "The time of messages", body = ClockTime), Problem, TestClockProblem)
)]
pub(crate) async fn test_clock(app: Admitted, _: NoParams) -> Result<Reply<ClockTime>, Problem> {
    clock_of(&app)?;
    Ok(Reply(ClockTime { now: app.broker().now() }))
}

/// Move the test clock forward.
///
/// Only with `--test-clock`. Once it answers everything that became due can be received. A repeated `advance` moves the clock
/// again.
#[utoipa::path(
    post, path = "/v1/test/clock", operation_id = "moveTestClock",
    tag = "operations", request_body = ClockMove,
    responses(
        (status = 200, description = "It is moved", body = ClockMoved),
        Problem, TestClockProblem, BodyProblem,
    )
)]
pub(crate) async fn move_test_clock(
    app: Admitted,
    _: NoParams,
    request: Json<ClockMove>,
) -> Result<Reply<ClockMoved>, Problem> {
    let clock = clock_of(&app)?;
    let target = request.read(|request| clock_target(&request))?;
    Ok(Reply(clock_moved(app.broker().move_clock(&clock, target).await?)))
}
