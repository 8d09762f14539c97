//! How many messages become due.

use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::path_params::{GroupPath, Params};
use super::problem::Problem;
use super::problem_sets::TopicProblem;
use super::reply::Reply;
use super::schema;
use crate::model::limits::FORECAST_SPANS_MAX;
use crate::model::time::{Timestamp, millis, one_span};

/// How long a span is, and how many there are, when nothing is said.
const STANDARD: (Duration, u32) = (Duration::from_secs(60), 60);

/// Which spans.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ForecastParams {
    /// How long each span is, 1 ms to 3,650 d. Default 1 min.
    #[param(value_type = Option<schema::Duration>)]
    step: Option<Duration>,
    /// The same in milliseconds; not together with `step`.
    #[param(value_type = Option<u64>, example = 3600000)]
    step_ms: Option<Duration>,
    /// How many there are, 1 to 500. Default 60.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    spans: u32,
}

impl<S: Sync> FromRequestParts<S> for ForecastParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<ForecastParams, Problem> {
        let params = Params::read(parts.uri.query(), &["step", "step_ms", "spans"])?;
        let most = u32::try_from(FORECAST_SPANS_MAX).unwrap_or(u32::MAX);
        Ok(ForecastParams {
            step: params.span("step")?,
            step_ms: params.millis("step_ms")?,
            spans: params.number("spans", 1..=most)?.unwrap_or(STANDARD.1),
        })
    }
}

/// Forecast of a group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"from": "2026-01-02T03:04:05.678Z", "step_ms": 3_600_000, "ready": 3, "spans": [{"until": "2026-01-02T04:04:05.678Z",
    "due": 1200}], "later": 15}
)))]
pub(crate) struct GroupForecast {
    /// Where the first span begins: now.
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    /// How long each span is.
    #[serde(with = "millis")]
    #[schema(value_type = u64, example = 60000)]
    step_ms: Duration,
    /// Messages that are due already.
    ready: u64,
    /// One for each span.
    spans: Vec<Due>,
    /// Messages that become due after the last span.
    later: u64,
}

/// Messages that become due in one span.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Due {
    /// The end of the span, which belongs to it.
    #[schema(value_type = String, format = DateTime)]
    until: Timestamp,
    /// Messages.
    due: u64,
}

/// Count the messages that become due, in equal spans of time.
///
/// Messages in flight and dead letters are not counted.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/groups/{group}/forecast", operation_id = "forecastGroup",
    tag = "topics",
    params(GroupPath, ForecastParams),
    responses((status = 200, description = "The counts", body = GroupForecast), Problem, TopicProblem)
)]
pub(crate) async fn forecast(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    params: ForecastParams,
) -> Result<Reply<GroupForecast>, Problem> {
    let count = usize::try_from(params.spans).unwrap_or(usize::MAX);
    let step = one_span("step", params.step, params.step_ms).map_err(Problem::of_query)?.unwrap_or(STANDARD.0);
    let (spans, forecast) = app.broker.forecast(&topic, &group, step, count).await.map_err(Problem::of_query)?;
    let due = |(index, due)| Due { until: spans.end(index + 1), due };
    Ok(Reply(GroupForecast {
        from: spans.from,
        step_ms: spans.step,
        ready: forecast.ready,
        spans: forecast.spans.into_iter().enumerate().map(due).collect(),
        later: forecast.later,
    }))
}
