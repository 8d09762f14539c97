//! Why a message is not delivered yet.

use axum::Extension;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::authorization::may_see_payloads;
use super::path_params::{MessagePath, Params};
use super::problem::Problem;
use super::problem_sets::TopicProblem;
use super::reply::Reply;
use super::schema;
use crate::api::access::Scopes;
use crate::model::message::Key;
use crate::model::partition::Partition;

/// Which message is meant.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExplainParams {
    /// The key that it was pushed with, if any.
    #[param(value_type = Option<schema::Key>)]
    key: Option<Key>,
}

impl<S: Sync> FromRequestParts<S> for ExplainParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<ExplainParams, Problem> {
        let params = Params::read(parts.uri.query(), &["key"])?;
        Ok(ExplainParams { key: params.read_as("key", Key::new)? })
    }
}

/// Why a message is not delivered yet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"id": "order-4711", "partition": 3, "buffered": false, "groups": [{"group": "default", "reason": "scheduled",
    "detail": "due at 2026-01-02T03:04:05.678Z"}]}
)))]
pub(crate) struct Explained {
    /// Message id.
    #[schema(value_type = schema::MessageId)]
    id: String,
    /// Partition of the topic, from 0 on.
    #[schema(value_type = u16)]
    partition: Partition,
    /// Whether it is buffered on the disk of this broker.
    buffered: bool,
    /// One for each group of the topic.
    groups: Vec<GroupReason>,
}

/// The reason of one group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GroupReason {
    /// Name of the group.
    #[schema(value_type = schema::GroupName)]
    group: String,
    /// A stable name: see docs/reference/statuses.md.
    #[schema(value_type = schema::ExplainReason)]
    reason: &'static str,
    /// The same in a sentence. What a consumer said with a nack is in it only for a token that sees payloads.
    detail: String,
}

/// Explain why a message is not delivered yet.
///
/// Gives one reason for each group of the topic.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/messages/{id}/explain", operation_id = "explainMessage",
    tag = "producing",
    params(MessagePath, ExplainParams),
    responses((status = 200, description = "The reasons", body = Explained), Problem, TopicProblem)
)]
pub(crate) async fn explain(
    State(app): State<App>,
    MessagePath(topic, id): MessagePath,
    params: ExplainParams,
    Extension(scopes): Extension<Scopes>,
) -> Result<Reply<Explained>, Problem> {
    let explanation = app.broker.explain(&topic, &id, params.key.as_ref()).await?;
    let sees = may_see_payloads(scopes);
    let groups = explanation.groups.into_iter().map(|(group, reason)| GroupReason {
        group: group.to_string(),
        reason: reason.name,
        detail: match reason.error.filter(|_| sees) {
            Some(error) => format!("{}: {error}", reason.detail),
            None => reason.detail,
        },
    });
    Ok(Reply(Explained {
        id: id.to_string(),
        partition: explanation.partition,
        buffered: explanation.buffered,
        groups: groups.collect(),
    }))
}
