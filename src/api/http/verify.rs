//! Whether the keys of a group agree with each other.

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
use crate::broker::Audit;
use crate::model::partition::Partition;

/// Where to go on.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct VerifyParams {
    /// The `next_cursor` of the answer before.
    #[param(value_type = Option<schema::Cursor>)]
    cursor: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for VerifyParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<VerifyParams, Problem> {
        let params = Params::read(parts.uri.query(), &["cursor"])?;
        Ok(VerifyParams { cursor: params.get("cursor").map(str::to_owned) })
    }
}

/// Inconsistencies of stored data.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"seen": 12000, "findings": [{"id": "order-4711", "partition": 3, "defect": "body_without_id"}]}
)))]
pub(crate) struct Findings {
    /// Entries that were looked at.
    seen: u64,
    /// Inconsistencies; with POST they are repaired.
    findings: Vec<Found>,
    /// Where to continue; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Cursor>)]
    next_cursor: Option<String>,
}

/// An inconsistency.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Found {
    /// Message id.
    #[schema(value_type = schema::MessageId)]
    id: String,
    /// The partition.
    #[schema(value_type = u16)]
    partition: Partition,
    /// How: `body_without_id`, `id_without_body`, `charge_without_body`, `dead_id_without_body` or
    /// `dead_body_without_id`.
    #[schema(value_type = schema::Defect)]
    defect: &'static str,
}

impl From<Audit> for Findings {
    fn from(audit: Audit) -> Findings {
        let found = |(partition, finding): (_, crate::store::Finding)| Found {
            id: finding.id,
            partition,
            defect: finding.defect.name(),
        };
        let findings = audit.findings.into_iter().map(found).collect();
        Findings { seen: audit.seen, findings, next_cursor: audit.next }
    }
}

/// Verify that the stored data of a group is consistent.
///
/// A request works for half a second and changes nothing; `next_cursor` is where the next one continues.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/groups/{group}/verify", operation_id = "verifyGroup",
    tag = "groups",
    params(GroupPath, VerifyParams),
    responses((status = 200, description = "Findings", body = Findings), Problem, TopicProblem)
)]
pub(crate) async fn verify(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    params: VerifyParams,
) -> Result<Reply<Findings>, Problem> {
    let audit = app.broker.audit(&topic, &group, params.cursor.as_deref(), false).await.map_err(Problem::of_query)?;
    Ok(Reply(audit.into()))
}

/// Verify the stored data of a group and repair it.
///
/// As the request that only verifies, but each page is repaired in one step beside live traffic.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/verify", operation_id = "repairGroup",
    tag = "groups",
    params(GroupPath, VerifyParams),
    responses((status = 200, description = "Findings, which are repaired", body = Findings), Problem, TopicProblem)
)]
pub(crate) async fn repair(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    params: VerifyParams,
) -> Result<Reply<Findings>, Problem> {
    let audit = app.broker.audit(&topic, &group, params.cursor.as_deref(), true).await.map_err(Problem::of_query)?;
    Ok(Reply(audit.into()))
}
