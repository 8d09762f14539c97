//! The clock of a broker that was started with `--test-clock`: its time, and moving it forward.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::document::{BodyProblem, TestClockProblem};
use super::path_params::NoParams;
use super::problem::{Class, Problem};
use super::reply::Reply;
use super::strict_json::{Json, present};
use super::{App, schema};
use crate::broker::{ClockTarget, Due, FiredCron, Moved};
use crate::model::error::{Fault, Kind};
use crate::model::time::{Timestamp, millis, one_span, span};
use crate::platform::test_clock::TestClock;

/// Where to move the clock: exactly one field.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"advance": "30d"})))]
pub(crate) struct ClockMove {
    /// By how much: 0 to 3,650 days.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    advance: Option<Duration>,
    /// The same in milliseconds; not together with `advance`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 2_592_000_000u64)]
    advance_ms: Option<Duration>,
    /// To which time: not in the past, and at most 3,650 days ahead.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Time>)]
    to: Option<Timestamp>,
}

impl ClockMove {
    fn target(&self) -> Result<ClockTarget, Problem> {
        match (one_span("advance", self.advance, self.advance_ms)?, self.to) {
            (Some(span), None) => Ok(ClockTarget::Advance(span)),
            (None, Some(to)) => Ok(ClockTarget::To(to)),
            (Some(_), Some(_)) => {
                Err(Problem::wrong(Fault::Exclusive, "to", "is given together with `advance`; give one of them"))
            }
            (None, None) => Err(Problem::wrong(Fault::Missing, "advance", "is missing, and so is `to`")),
        }
    }
}

/// The time of messages.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({"now": "2026-02-01T03:04:05.678Z"})))]
pub(crate) struct ClockTime {
    /// Time of the clock.
    #[schema(value_type = String, format = DateTime)]
    now: Timestamp,
}

/// The outcome of a move of the clock.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "now": "2026-02-01T03:04:05.678Z", "due": [{"topic": "orders", "group": "default", "messages": 3}],
    "fired": [{"topic": "reports", "name": "nightly", "times": 30}], "timed_out": 1
})))]
pub(crate) struct ClockMoved {
    /// Time of the clock after the move.
    #[schema(value_type = String, format = DateTime)]
    now: Timestamp,
    /// The groups in which messages became due, and how many.
    due: Vec<DueMessages>,
    /// The cron jobs that fired, and how many times.
    fired: Vec<FiredCronJob>,
    /// Deliveries whose visibility timeout passed.
    timed_out: u64,
}

/// Messages of a group that became due.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({"topic": "orders", "group": "default", "messages": 3})))]
pub(crate) struct DueMessages {
    /// The topic.
    #[schema(value_type = schema::TopicName)]
    topic: String,
    /// The group.
    #[schema(value_type = schema::GroupName)]
    group: String,
    /// How many, with those of cron jobs.
    messages: u64,
}

/// A cron job that fired.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({"topic": "reports", "name": "nightly", "times": 30})))]
pub(crate) struct FiredCronJob {
    /// The topic.
    #[schema(value_type = schema::TopicName)]
    topic: String,
    /// Name of the cron job.
    #[schema(value_type = schema::CronName)]
    name: String,
    /// Its occurrences, each of which fired.
    times: u64,
}

impl From<Moved> for ClockMoved {
    fn from(moved: Moved) -> ClockMoved {
        let due = |Due { topic, group, messages }| DueMessages {
            topic: topic.to_string(),
            group: group.to_string(),
            messages,
        };
        let fired =
            |FiredCron { topic, name, times }| FiredCronJob { topic: topic.to_string(), name: name.to_string(), times };
        ClockMoved {
            now: moved.now,
            due: moved.due.into_iter().map(due).collect(),
            fired: moved.fired.into_iter().map(fired).collect(),
            timed_out: moved.timed_out,
        }
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
pub(crate) async fn get(State(app): State<App>, _: NoParams) -> Result<Reply<ClockTime>, Problem> {
    clock_of(&app)?;
    Ok(Reply(ClockTime { now: app.broker.now() }))
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
pub(crate) async fn change(
    State(app): State<App>,
    _: NoParams,
    request: Json<ClockMove>,
) -> Result<Reply<ClockMoved>, Problem> {
    let clock = clock_of(&app)?;
    let target = request.read(|request| request.target())?;
    Ok(Reply(app.broker.move_clock(&clock, target).await?.into()))
}
