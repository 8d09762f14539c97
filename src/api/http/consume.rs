//! Consuming: reserve.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::consumer::{Consumer, ShownToken};
use super::message_json::Contents;
use super::path_params::{GroupPath, NoParams};
use super::problem::Problem;
use super::problem_sets::{BodyProblem, TopicProblem, WaitProblem};
use super::schema;
use super::strict_json::{JsonOrDefault, present};
use super::{App, json_list};
use crate::broker::ReserveRequest;
use crate::delivery;
use crate::model::partition::Partition;
use crate::model::time::{Timestamp, millis, one_span, span};

/// A request for deliveries.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"max": 10, "wait": "20s"})))]
pub(crate) struct Reserve {
    /// 1 to 1,000 deliveries. Default 1.
    #[serde(default, deserialize_with = "present")]
    #[schema(minimum = 1, maximum = 1000)]
    max: Option<usize>,
    /// How long to wait for the first delivery, 0 to 60 s. Default 0.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    wait: Option<Duration>,
    /// The same in milliseconds; not together with `wait`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 20000)]
    wait_ms: Option<Duration>,
    /// 100 ms to 12 h. Default: the topic's.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    visibility_timeout: Option<Duration>,
    /// The same in milliseconds; not together with `visibility_timeout`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 30000)]
    visibility_timeout_ms: Option<Duration>,
    /// Minimum time since a message was pushed, at most 3,650 d. Default 0.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    min_age: Option<Duration>,
    /// The same in milliseconds; not together with `min_age`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 10000)]
    min_age_ms: Option<Duration>,
}

impl Reserve {
    /// What is asked for, and how old messages have to be.
    fn request(self) -> Result<(ReserveRequest, Duration), Problem> {
        let request = ReserveRequest {
            max: self.max.unwrap_or(1),
            wait: one_span("wait", self.wait, self.wait_ms)?.unwrap_or_default(),
            visibility_timeout: one_span("visibility_timeout", self.visibility_timeout, self.visibility_timeout_ms)?,
        };
        let min_age = one_span("min_age", self.min_age, self.min_age_ms)?.unwrap_or_default();
        request.check(min_age)?;
        Ok((request, min_age))
    }
}

/// A message that was handed to a consumer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"receipt": "3.17.k3Zq9xT0aB1c.152.9f3a1c2e", "id": "order-4711", "attempt": 1, "partition": 3,
    "due_at": "2026-01-02T03:04:05.678Z", "deadline": "2026-01-02T03:04:35.679Z", "lateness_ms": 1,
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}
)))]
pub(crate) struct Delivery {
    /// Identifies this delivery; settle it with this.
    #[schema(value_type = schema::Receipt)]
    receipt: String,
    /// Message id.
    #[schema(value_type = schema::MessageId)]
    id: String,
    #[serde(flatten)]
    contents: Contents,
    /// Number of the delivery attempt, starting at 1.
    attempt: u32,
    /// Partition of the topic, from 0 on.
    #[schema(value_type = u16)]
    partition: Partition,
    /// Due time of the producer.
    #[schema(value_type = String, format = DateTime)]
    due_at: Timestamp,
    /// When the delivery counts as failed, unless it is settled or extended before.
    #[schema(value_type = String, format = DateTime)]
    deadline: Timestamp,
    /// From the time at which it was due (or due again after a retry) to the hand-over, in milliseconds.
    lateness_ms: u64,
}

impl From<delivery::Delivery> for Delivery {
    fn from(delivery: delivery::Delivery) -> Delivery {
        Delivery {
            receipt: delivery.receipt.to_string(),
            id: delivery.message.id.into(),
            contents: Contents::from(delivery.message.envelope),
            attempt: delivery.attempt,
            partition: delivery.partition,
            due_at: delivery.message.due_at,
            deadline: delivery.deadline,
            lateness_ms: u64::try_from(delivery.lateness.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Reserved deliveries.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the answer, which is written item by item")]
#[schema(examples(json!(
    {"deliveries": [{"receipt": "3.17.k3Zq9xT0aB1c.152.9f3a1c2e", "id": "order-4711", "attempt": 1, "partition": 3,
    "due_at": "2026-01-02T03:04:05.678Z", "deadline": "2026-01-02T03:04:35.679Z", "lateness_ms": 1,
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}]}
)))]
pub(crate) struct Deliveries {
    /// Empty when nothing was due within `wait`.
    deliveries: Vec<Delivery>,
}

/// Reserve messages that are due, or wait for the first one.
///
/// Each delivery has to be settled before its `deadline`; then it is delivered again.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/reserve", operation_id = "reserveMessages",
    tag = "consuming", request_body = Option<Reserve>,
    params(GroupPath),
    responses((status = 200, description = "What was due", body = Deliveries), Problem, TopicProblem, BodyProblem, WaitProblem)
)]
pub(crate) async fn reserve(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    token: ShownToken,
    asked: JsonOrDefault<Reserve>,
) -> Result<Response, Problem> {
    let (request, min_age) = asked.read(Reserve::request)?;
    // From here to the reply nothing waits: what was taken is not lost to a client that leaves in between.
    let consumer = Consumer::enter(app.clone(), token)?;
    let reserved = consumer.take(Box::pin(app.broker.reserve_aged(&topic, &group, request, min_age))).await?;
    let deliveries = reserved.map_err(Problem::of_waiting)?;
    let payloads = deliveries.iter().map(|delivery| delivery.message.envelope.payload.len());
    let held = app.answers.take(json_list::weigh(payloads));
    Ok(json_list::answer("deliveries", deliveries.into_iter().map(Delivery::from), None, held))
}
