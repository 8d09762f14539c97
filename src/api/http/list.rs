//! Listing messages by state and due window.

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::message_json::{Contents, FailedAttempt};
use super::path_params::{Params, TopicPath};
use super::problem::Problem;
use super::problem_sets::TopicProblem;
use super::schema;
use super::{App, json_list};
use crate::broker::{ListEntry, Which};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{BATCH_MESSAGES_MAX, CALL_BYTES_MAX};
use crate::model::message::GroupName;
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::store::{State as MessageState, Window};

/// Messages of a page when nothing is said.
const LIMIT_DEFAULT: usize = 100;

/// A message of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListedMessage {
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
    /// When it died.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    died_at: Option<Timestamp>,
    /// Due time of the producer, or of a reschedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    due_at: Option<Timestamp>,
    /// Time after which it is not delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// How the last attempts failed, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<FailedAttempt>,
    #[serde(flatten)]
    contents: Option<Contents>,
    /// Why the stored message cannot be read; then `due_at` and what travelled with it are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

impl From<ListEntry> for ListedMessage {
    fn from(entry: ListEntry) -> ListedMessage {
        let (state, mut history) = (entry.state.name(), entry.listed.history);
        let died_at = match entry.state {
            MessageState::Dead { died_at, record } => {
                history = record.history;
                Some(died_at)
            }
            MessageState::Scheduled | MessageState::Ready | MessageState::InFlight => None,
        };
        let mut listed = ListedMessage {
            id: entry.listed.id.into(),
            partition: entry.partition,
            state,
            attempts: entry.listed.attempts,
            next_at: entry.listed.next_at,
            died_at,
            due_at: None,
            expires_at: None,
            history: history.into_iter().map(FailedAttempt::from).collect(),
            contents: None,
            unreadable: None,
        };
        match entry.listed.message {
            Ok(message) => {
                (listed.due_at, listed.expires_at) = (Some(message.due_at), message.envelope.expires_at);
                listed.contents = Some(Contents::from(message.envelope));
            }
            Err(error) => listed.unreadable = Some(error.detail().to_owned()),
        }
        listed
    }
}

/// A page of messages.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the answer, which is written item by item")]
#[schema(examples(json!(
    {"messages": [{"id": "order-4711", "partition": 3, "state": "scheduled", "attempts": 0,
    "next_at": "2026-01-02T03:04:05.678Z", "due_at": "2026-01-02T03:04:05.678Z",
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}]}
)))]
pub(crate) struct ListedMessages {
    /// Partition by partition; what waits by the time at which it is tried next.
    messages: Vec<ListedMessage>,
    /// Where the next page begins; absent at the end.
    #[schema(value_type = Option<schema::Cursor>)]
    next_cursor: Option<String>,
}

/// Which messages, and which page of them.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// `scheduled`, `ready`, `in_flight` or `dead`. Default: scheduled and ready.
    #[param(value_type = Option<schema::MessageState>)]
    state: Option<Which>,
    /// In which group. Default `default`.
    #[param(value_type = Option<schema::GroupName>)]
    group: Option<GroupName>,
    /// From this time on.
    #[param(value_type = Option<schema::Time>)]
    from: Option<Timestamp>,
    /// Before this time.
    #[param(value_type = Option<schema::Time>)]
    to: Option<Timestamp>,
    /// 1 to 1,000. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    #[param(value_type = Option<schema::Cursor>)]
    cursor: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for ListParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<ListParams, Problem> {
        let params = Params::read(parts.uri.query(), &["state", "group", "from", "to", "limit", "cursor"])?;
        let most = u32::try_from(BATCH_MESSAGES_MAX).unwrap_or(u32::MAX);
        Ok(ListParams {
            state: params.read_as("state", state_of)?,
            group: params.read_as("group", GroupName::new)?,
            from: params.time("from")?,
            to: params.time("to")?,
            limit: params.number("limit", 1..=most)?,
            cursor: params.get("cursor").map(str::to_owned),
        })
    }
}

fn state_of(name: &str) -> Result<Which> {
    let known = Which::NAMED.into_iter().find(|which| which.name() == name);
    known.ok_or_else(|| {
        Error::wrong(Fault::Choice, "state", format!("{name:?} is not one of scheduled, ready, in_flight, dead"))
    })
}

/// List messages by state and due time.
///
/// Partition by partition; follow `next_cursor` to the end. A page may be shorter than `limit`, and even empty.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/messages", operation_id = "listMessages",
    tag = "producing",
    params(TopicPath, ListParams),
    responses((status = 200, description = "A page", body = ListedMessages), Problem, TopicProblem)
)]
pub(crate) async fn list(
    State(app): State<App>,
    TopicPath(topic): TopicPath,
    params: ListParams,
) -> Result<Response, Problem> {
    let window = Window { from: params.from.unwrap_or(Window::ALL.from), to: params.to.unwrap_or(Window::ALL.to) };
    let limit = params.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(LIMIT_DEFAULT);
    let group = params.group.unwrap_or_else(GroupName::standard);
    let which = params.state.unwrap_or(Which::Waiting);
    let mut held = app.answers.admit(json_list::weight_max(2 * CALL_BYTES_MAX)).await?;
    let page = app.broker.list(&topic, &group, which, window, params.cursor.as_deref(), limit).await;
    let page = page.map_err(Problem::of_query)?;
    let size = |entry: &ListEntry| entry.listed.message.as_ref().map_or(0, |message| message.envelope.payload.len());
    held.resize(json_list::weigh(page.messages.iter().map(size)));
    Ok(json_list::answer("messages", page.messages.into_iter().map(ListedMessage::from), page.next, held))
}
