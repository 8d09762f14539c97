//! Dead messages: list, redrive, purge.

use axum::Json as Reply;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::params::{GroupPath, NoParams, Params};
use super::problem::Problem;
use super::shape::Contents;
use super::strict::{Items, JsonOrDefault, present};
use crate::limits::BATCH_MESSAGES_MAX;
use crate::message::MessageId;
use crate::partition::Partition;
use crate::store::Dead;
use crate::time::Timestamp;

/// Dead messages of a page when nothing is said.
const LIMIT_DEFAULT: usize = 100;

/// A dead message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadMessage {
    id: String,
    #[schema(value_type = u16)]
    partition: Partition,
    #[schema(value_type = String, format = DateTime)]
    died_at: Timestamp,
    /// `max_attempts`, `buried`, `unreadable` or `expired`.
    reason: &'static str,
    /// Attempts that were made.
    attempts: u32,
    /// What the last nack said.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// What the producer asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    due_at: Option<Timestamp>,
    #[serde(flatten)]
    contents: Option<Contents>,
    /// Why the stored message cannot be read; then `due_at` and what travelled with it are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

impl DeadMessage {
    fn new(partition: Partition, dead: Dead) -> DeadMessage {
        let (due_at, contents, unreadable) = match dead.message {
            Ok(message) => (Some(message.due_at), Some(Contents::from(message.envelope)), None),
            Err(error) => (None, None, Some(error.detail().to_owned())),
        };
        DeadMessage {
            id: dead.id.into(),
            partition,
            died_at: dead.died_at,
            reason: dead.record.reason.name(),
            attempts: dead.record.attempts,
            last_error: dead.record.last_error,
            due_at,
            contents,
            unreadable,
        }
    }
}

/// A page of dead messages.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadMessages {
    /// Partition by partition, the oldest death first.
    dead: Vec<DeadMessage>,
    /// Where the next page begins; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Which page.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadParams {
    /// 1 to 1,000. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for DeadParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<DeadParams, Problem> {
        let params = Params::read(parts.uri.query(), &["limit", "cursor"])?;
        let most = u32::try_from(BATCH_MESSAGES_MAX).unwrap_or(u32::MAX);
        Ok(DeadParams { limit: params.number("limit", 1..=most)?, cursor: params.get("cursor").map(str::to_owned) })
    }
}

/// Which dead messages; all without `ids`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 1000)]
    ids: Option<Items<String>>,
}

impl Which {
    fn ids(self) -> Result<Option<Vec<MessageId>>, Problem> {
        let Some(Items(ids)) = self.ids else { return Ok(None) };
        let check = |(i, id): (usize, String)| {
            MessageId::new(id).map_err(|why| Problem::from(why).within(&format!("`ids[{i}]`:")))
        };
        ids.into_iter().enumerate().map(check).collect::<Result<_, _>>().map(Some)
    }
}

/// How many messages were made ready again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Redriven {
    redriven: usize,
}

/// How many messages were deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Purged {
    purged: usize,
}

/// List dead messages.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/groups/{group}/dead", tag = "dead messages",
    params(("topic" = String, Path), ("group" = String, Path), DeadParams),
    responses((status = 200, description = "A page", body = DeadMessages), Problem)
)]
pub(crate) async fn list(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    params: DeadParams,
) -> Result<Reply<DeadMessages>, Problem> {
    let limit = params.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(LIMIT_DEFAULT);
    let page = app.broker.dead(&topic, &group, params.cursor.as_deref(), limit).await?;
    let dead = page.dead.into_iter().map(|(partition, dead)| DeadMessage::new(partition, dead));
    Ok(Reply(DeadMessages { dead: dead.collect(), next_cursor: page.next }))
}

/// Make dead messages ready again.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/dead/redrive", tag = "dead messages", request_body = Option<Which>,
    params(("topic" = String, Path), ("group" = String, Path)),
    responses((status = 200, description = "How many", body = Redriven), Problem)
)]
pub(crate) async fn redrive(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    JsonOrDefault(which): JsonOrDefault<Which>,
) -> Result<Reply<Redriven>, Problem> {
    let redriven = app.broker.redrive(&topic, &group, which.ids()?.as_deref()).await?;
    Ok(Reply(Redriven { redriven }))
}

/// Delete dead messages for good.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}/groups/{group}/dead", tag = "dead messages", request_body = Option<Which>,
    params(("topic" = String, Path), ("group" = String, Path)),
    responses((status = 200, description = "How many", body = Purged), Problem)
)]
pub(crate) async fn purge(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    JsonOrDefault(which): JsonOrDefault<Which>,
) -> Result<Reply<Purged>, Problem> {
    let purged = app.broker.purge(&topic, &group, which.ids()?.as_deref()).await?;
    Ok(Reply(Purged { purged }))
}
