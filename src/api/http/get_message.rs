//! Looking at one message without taking it.

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::control::etag;
use super::message_json::{Contents, FailedAttempt};
use super::path_params::{MessagePath, Params, TopicPath};
use super::problem::Problem;
use super::problem_sets::TopicProblem;
use super::reply::Reply;
use super::schema;
use super::{App, json_list};
use crate::model::limits::ENVELOPE_BYTES_MAX;
use crate::model::message::{GroupName, Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::store::{Peeked, State as MessageState};

/// A message and where it is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"id": "order-4711", "partition": 3, "state": "scheduled", "attempts": 0, "next_at": "2026-01-02T03:04:05.678Z",
    "due_at": "2026-01-02T03:04:05.678Z", "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {},
    "payload": "close order 4711", "etag": "\"1767323045678.0\""}
)))]
pub(crate) struct Message {
    /// Message id.
    #[schema(value_type = schema::MessageId)]
    id: String,
    /// Partition of the topic, from 0 on.
    #[schema(value_type = u16)]
    partition: Partition,
    /// `scheduled`, `ready`, `in_flight` or `dead`.
    #[schema(value_type = schema::MessageState)]
    state: &'static str,
    /// Attempts that were charged.
    attempts: u32,
    /// When it is tried next; only while scheduled or ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
    /// Due time of the producer; a retry does not change it.
    #[schema(value_type = String, format = DateTime)]
    due_at: Timestamp,
    /// Time after which it is not delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// Overrides the topic's number of attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    /// The broker that owns its partition, while it is in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Names its due time and its attempts, for `If-Match`.
    #[schema(value_type = schema::Etag)]
    etag: String,
    #[serde(flatten)]
    contents: Contents,
    /// When it died.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    died_at: Option<Timestamp>,
    /// Why it is dead: `max_attempts`, `buried`, `unreadable` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::DeathReason>)]
    reason: Option<&'static str>,
    /// Reason of the last nack of a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// How the last 16 attempts failed, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<FailedAttempt>,
}

impl Message {
    fn new(partition: Partition, peeked: Peeked) -> Message {
        let (state, etag) = (peeked.state.name(), etag(&peeked));
        let mut history = peeked.history;
        let (died_at, record) = match peeked.state {
            MessageState::Dead { died_at, mut record } => {
                history = std::mem::take(&mut record.history);
                (Some(died_at), Some(record))
            }
            MessageState::Scheduled | MessageState::Ready | MessageState::InFlight => (None, None),
        };
        let owner = peeked.owner.filter(|_| state == "in_flight").map(|owner| owner.as_str().to_owned());
        let envelope = peeked.message.envelope;
        Message {
            id: peeked.message.id.into(),
            partition,
            state,
            attempts: peeked.attempts,
            next_at: peeked.next_at,
            due_at: peeked.message.due_at,
            expires_at: envelope.expires_at,
            max_attempts: envelope.max_attempts,
            owner,
            etag,
            contents: Contents::from(envelope),
            died_at,
            reason: record.as_ref().map(|record| record.reason.name()),
            last_error: record.and_then(|record| record.last_error),
            history: history.into_iter().map(FailedAttempt::from).collect(),
        }
    }
}

/// Which message is meant.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LookParams {
    /// The key that it was pushed with, if any.
    #[param(value_type = Option<schema::Key>)]
    key: Option<Key>,
    /// In which group. Default `default`.
    #[param(value_type = Option<schema::GroupName>)]
    group: Option<GroupName>,
}

impl<S: Sync> FromRequestParts<S> for LookParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<LookParams, Problem> {
        let params = Params::read(parts.uri.query(), &["key", "group"])?;
        Ok(LookParams { key: params.read_as("key", Key::new)?, group: params.read_as("group", GroupName::new)? })
    }
}

/// Get a message without reserving it.
///
/// With its state in one group. Give the `key` that it was pushed with.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/messages/{id}", operation_id = "getMessage",
    tag = "producing",
    params(MessagePath, LookParams),
    responses((status = 200, description = "The message", body = Message), Problem, TopicProblem)
)]
pub(crate) async fn look(
    State(app): State<App>,
    MessagePath(topic, id): MessagePath,
    params: LookParams,
) -> Result<Reply<Message>, Problem> {
    look_at(&app, &topic, &id, params).await
}

/// The path of a batch is also the path of the message with the id `batch`.
pub(crate) async fn look_at_batch(
    State(app): State<App>,
    TopicPath(topic): TopicPath,
    params: LookParams,
) -> Result<Reply<Message>, Problem> {
    look_at(&app, &topic, &MessageId::new("batch")?, params).await
}

async fn look_at(app: &App, topic: &TopicName, id: &MessageId, params: LookParams) -> Result<Reply<Message>, Problem> {
    let group = params.group.unwrap_or_else(GroupName::standard);
    // From the answer on what it holds is counted as it is sent.
    let _held = app.answers.admit(json_list::weight_max(ENVELOPE_BYTES_MAX)).await?;
    let (partition, peeked) = app.broker.peek(topic, &group, id, params.key.as_ref()).await?;
    Ok(Reply(Message::new(partition, peeked)))
}
