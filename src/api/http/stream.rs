//! Deliveries as a stream: one JSON object a line, for as long as the client stays.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use futures_util::stream::unfold;
use utoipa::IntoParams;

use super::App;
use super::consume::Delivery;
use super::consumer::{self, Consumer, ShownToken};
use super::path_params::{GroupPath, Params};
use super::problem::Problem;
use super::problem_sets::{TopicProblem, WaitProblem};
use super::schema;
use super::strict_json::{JsonOrDefault, NoFields};
use crate::broker::StreamRequest;
use crate::delivery::Session;
use crate::model::limits::{STREAM_IN_FLIGHT_MAX, STREAM_SILENCE_MAX};
use crate::model::time::one_span;

/// Deliveries that a stream has in flight unless it asks for another number.
const IN_FLIGHT: u32 = 100;

/// The parameters of a stream.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamParams {
    /// 1 to 1,000 deliveries of this stream that are not settled. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    max_in_flight: Option<u32>,
    /// 100 ms to 12 h. Default: the topic's.
    #[param(value_type = Option<schema::Duration>)]
    visibility_timeout: Option<Duration>,
    /// The same in milliseconds; not together with `visibility_timeout`.
    #[param(value_type = Option<u64>, example = 30000)]
    visibility_timeout_ms: Option<Duration>,
}

impl<S: Sync> FromRequestParts<S> for StreamParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<StreamParams, Problem> {
        let params =
            Params::read(parts.uri.query(), &["max_in_flight", "visibility_timeout", "visibility_timeout_ms"])?;
        let most = u32::try_from(STREAM_IN_FLIGHT_MAX).unwrap_or(u32::MAX);
        Ok(StreamParams {
            max_in_flight: params.number("max_in_flight", 1..=most)?,
            visibility_timeout: params.span("visibility_timeout")?,
            visibility_timeout_ms: params.millis("visibility_timeout_ms")?,
        })
    }
}

/// Stream messages as they become due, one a line, until either side ends the stream.
///
/// Settle them with other requests. An empty line shows that the stream is open.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/stream", operation_id = "streamMessages",
    tag = "consuming",
    params(GroupPath, StreamParams),
    responses(
        (status = 200, description = "A delivery a line", body = Delivery, content_type = "application/x-ndjson"),
        Problem, TopicProblem, WaitProblem,
    )
)]
pub(crate) async fn stream(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    params: StreamParams,
    token: ShownToken,
    body: JsonOrDefault<NoFields>,
) -> Result<impl IntoResponse, Problem> {
    let max_in_flight = usize::try_from(params.max_in_flight.unwrap_or(IN_FLIGHT)).unwrap_or(STREAM_IN_FLIGHT_MAX);
    body.read(|NoFields {}| Ok(()))?;
    let visibility_timeout = one_span("visibility_timeout", params.visibility_timeout, params.visibility_timeout_ms);
    let visibility_timeout = visibility_timeout.map_err(Problem::of_query)?;
    let request = StreamRequest { max_in_flight, visibility_timeout };
    let consumer = Consumer::enter(app.clone(), token)?;
    let session = app.broker.stream(&topic, &group, request).await.map_err(Problem::of_waiting)?;
    let lines = Body::from_stream(unfold((consumer, session), next_line));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], lines))
}

/// The next line. Between taking a delivery and giving its line away nothing waits, so what is taken is written; a slow
/// client is not asked for, and nothing is taken for it.
async fn next_line(
    (consumer, session): (Consumer, Session),
) -> Option<(Result<Bytes, Infallible>, (Consumer, Session))> {
    let line = match consumer.take(session.next(STREAM_SILENCE_MAX)).await {
        Ok(Some(delivery)) => {
            let mut line = serde_json::to_vec(&Delivery::from(delivery)).ok()?;
            line.push(b'\n');
            line.into()
        }
        Ok(None) if session.is_over() => {
            session.end();
            return None;
        }
        Ok(None) => Bytes::from_static(b"\n"),
        Err(problem) if consumer::is_over_soon(&problem) => Bytes::from_static(b"\n"),
        // What it has in hand goes back with it.
        Err(_) => return None,
    };
    Some((Ok(line), (consumer, session)))
}
