//! Listing messages by state and due time, and the forecast of a group.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use dwell_client::wire::bulk::{Due, GroupForecast};
use dwell_client::wire::messages::{ListedMessage, ListedMessages};
use utoipa::IntoParams;

use super::document::TopicProblem;
use super::message_json::{contents_of, failed_attempt};
use super::path_params::{GroupPath, Params, TopicPath};
use super::problem::Problem;
use super::reply::Reply;
use super::{Admitted, reply, schema};
use crate::broker::{ListEntry, ListedState};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{BATCH_MESSAGES_MAX, CALL_BYTES_MAX, FORECAST_SPANS_MAX};
use crate::model::message::GroupName;
use crate::model::time::{Timestamp, one_span};
use crate::store::{MessageState, Window};

const LIMIT_DEFAULT: usize = 100;

fn listed(entry: ListEntry) -> ListedMessage {
    let (state, mut history) = (entry.state.name(), entry.listed.history);
    let died_at = match entry.state {
        MessageState::Dead { died_at, record } => {
            history = record.history;
            Some(died_at)
        }
        _ => None,
    };
    let mut listed = ListedMessage {
        id: entry.listed.id.into(),
        partition: entry.partition.0,
        state: state.into(),
        attempts: entry.listed.attempts,
        next_at: entry.listed.next_at,
        died_at,
        due_at: None,
        expires_at: None,
        history: history.into_iter().map(failed_attempt).collect(),
        contents: None,
        unreadable: None,
    };
    match entry.listed.message {
        Ok(message) => {
            (listed.due_at, listed.expires_at) = (Some(message.due_at), message.envelope.expires_at);
            listed.contents = Some(contents_of(message.envelope));
        }
        Err(error) => listed.unreadable = Some(error.detail().to_owned()),
    }
    listed
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListOrder {
    Partition,
    Due,
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// `scheduled`, `ready`, `blocked`, `backoff`, `in_flight` or `dead`. Default: all that no consumer has and that are not
    /// dead.
    #[param(value_type = Option<schema::MessageState>)]
    state: Option<ListedState>,
    /// In which group. Default `default`.
    #[param(value_type = Option<schema::GroupName>)]
    group: Option<GroupName>,
    /// From this time on.
    #[param(value_type = Option<schema::Time>)]
    from: Option<Timestamp>,
    /// Before this time.
    #[param(value_type = Option<schema::Time>)]
    to: Option<Timestamp>,
    /// `due`: by the time at which they are tried next, over all partitions; equal times by partition. `partition`, the
    /// default: partition by partition. Messages that are in flight or dead have only that one.
    #[param(value_type = Option<schema::ListOrder>)]
    order: Option<ListOrder>,
    /// 1 to 1,000. Default 100.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    #[param(value_type = Option<schema::Cursor>)]
    cursor: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for ListParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<ListParams, Problem> {
        let params = Params::read(parts.uri.query(), &["state", "group", "from", "to", "order", "limit", "cursor"])?;
        Ok(ListParams {
            state: params.read_as("state", state_of)?,
            group: params.read_as("group", GroupName::new)?,
            from: params.time("from")?,
            to: params.time("to")?,
            order: params.read_as("order", order_of)?,
            limit: params.number("limit", 1..=BATCH_MESSAGES_MAX)?,
            cursor: params.get("cursor").map(str::to_owned),
        })
    }
}

fn state_of(name: &str) -> Result<ListedState> {
    let known = ListedState::NAMED.into_iter().find(|which| which.name() == name);
    known.ok_or_else(|| {
        Error::wrong(
            Fault::Choice,
            "state",
            format!("{name:?} is not one of scheduled, ready, blocked, backoff, in_flight, dead"),
        )
    })
}

fn order_of(name: &str) -> Result<ListOrder> {
    match name {
        "partition" => Ok(ListOrder::Partition),
        "due" => Ok(ListOrder::Due),
        _ => Err(Error::wrong(Fault::Choice, "order", format!("{name:?} is not one of partition, due"))),
    }
}

/// List messages by state and due time.
///
/// Follow `next_cursor` to the end. A page may be shorter than `limit`, and even empty. A message that is rescheduled
/// meanwhile may be listed twice or left out; any other is listed once.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/messages", operation_id = "listMessages",
    tag = "producing",
    params(TopicPath, ListParams),
    responses((status = 200, description = "A page", body = ListedMessages), Problem, TopicProblem)
)]
pub(crate) async fn list(app: Admitted, TopicPath(topic): TopicPath, params: ListParams) -> Result<Response, Problem> {
    let window = Window { from: params.from.unwrap_or(Window::ALL.from), to: params.to.unwrap_or(Window::ALL.to) };
    let limit = params.limit.unwrap_or(LIMIT_DEFAULT);
    let group = params.group.unwrap_or_else(GroupName::standard);
    let which = params.state.unwrap_or(ListedState::Waiting);
    let mut held = app.admit(reply::weight_max(2 * CALL_BYTES_MAX)).await?;
    let cursor = params.cursor.as_deref();
    let page = match params.order.unwrap_or(ListOrder::Partition) {
        ListOrder::Partition => app.broker().list(&topic, &group, which, window, cursor, limit).await,
        ListOrder::Due => app.broker().list_by_due(&topic, &group, which, window, cursor, limit).await,
    };
    let page = page.map_err(Problem::of_query)?;
    let size = |entry: &ListEntry| entry.listed.message.as_ref().map_or(0, |message| message.envelope.size());
    held.resize(reply::weigh(page.messages.iter().map(size)));
    Ok(reply::list("messages", page.messages.into_iter().map(listed), page.next, held))
}

const STANDARD: (Duration, usize) = (Duration::from_secs(60), 60);

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
    spans: usize,
}

impl<S: Sync> FromRequestParts<S> for ForecastParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<ForecastParams, Problem> {
        let params = Params::read(parts.uri.query(), &["step", "step_ms", "spans"])?;
        Ok(ForecastParams {
            step: params.span("step")?,
            step_ms: params.millis("step_ms")?,
            spans: params.number("spans", 1..=FORECAST_SPANS_MAX)?.unwrap_or(STANDARD.1),
        })
    }
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
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    params: ForecastParams,
) -> Result<Reply<GroupForecast>, Problem> {
    let step = one_span("step", params.step, params.step_ms).map_err(Problem::of_query)?.unwrap_or(STANDARD.0);
    let (spans, forecast) =
        app.broker().forecast(&topic, &group, step, params.spans).await.map_err(Problem::of_query)?;
    let due = |(index, due)| Due { until: spans.end(index + 1), due };
    Ok(Reply(GroupForecast {
        from: spans.from,
        step_ms: spans.step,
        ready: forecast.ready,
        spans: forecast.spans.into_iter().enumerate().map(due).collect(),
        later: forecast.later,
        backoff: forecast.backoff,
    }))
}
