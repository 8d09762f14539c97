//! Moving the messages of a topic into another one.

use std::num::NonZeroU16;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::path_params::{NoParams, TopicPath};
use super::problem::Problem;
use super::problem_sets::{BodyProblem, TopicProblem};
use super::reply::Reply;
use super::schema;
use super::strict_json::{Json, present};
use crate::model::message::TopicName;

/// Destination of a move.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"to": "orders-16", "partitions": 16})))]
pub(crate) struct MoveTo {
    /// The topic to move to; created if it does not exist.
    #[schema(value_type = schema::TopicName)]
    to: TopicName,
    /// Its number of partitions, 1 to 1,024. Default: that of this topic, or of the other one if it is there.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 1024)]
    partitions: Option<NonZeroU16>,
}

/// Progress of a move.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({"moved": 1200, "dead": 3, "duplicates": 0, "in_flight": 2, "done": false})))]
pub(crate) struct Moved {
    /// Messages that this request moved, in each group.
    moved: u64,
    /// Dead letters that this request moved.
    dead: u64,
    /// Messages whose id the other topic has: dropped as duplicates.
    duplicates: u64,
    /// Messages that consumers of this topic have in flight.
    in_flight: u64,
    /// Whether nothing is left; if something is, repeat the request.
    done: bool,
}

/// Move the messages of a topic to another topic.
///
/// The way to another number of partitions. A request works for 5 s; repeat it until it is `done`.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/move", operation_id = "moveTopic",
    tag = "topics", request_body = MoveTo,
    params(TopicPath),
    responses((status = 200, description = "How far it came", body = Moved), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn move_topic(
    State(app): State<App>,
    TopicPath(topic): TopicPath,
    _: NoParams,
    wanted: Json<MoveTo>,
) -> Result<Reply<Moved>, Problem> {
    let MoveTo { to, partitions } = wanted.read(Ok)?;
    let moved = app.broker.move_topic(&topic, &to, partitions).await?;
    Ok(Reply(Moved {
        moved: moved.waiting,
        dead: moved.dead,
        duplicates: moved.there_already,
        in_flight: moved.in_flight,
        done: moved.done,
    }))
}
