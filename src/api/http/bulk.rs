//! Bulk operations on the messages of a range of due times: count, cancel, postpone, advance, park.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use dwell_client::wire::bulk::{BulkChange, BulkChanged, BulkCount};
use utoipa::IntoParams;

use super::Admitted;
use super::document::{BodyProblem, TopicProblem};
use super::path_params::{GroupPath, NoParams, Params};
use super::problem::Problem;
use super::reply::Reply;
use super::schema;
use super::strict_json::Json;
use crate::broker::BulkAction;
use crate::model::error::Fault;
use crate::model::time::{Timestamp, one_span};
use crate::store::Window;

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BulkParams {
    /// Start of the window.
    #[param(value_type = schema::Time)]
    from: Timestamp,
    /// End of the window, which is not part of it.
    #[param(value_type = schema::Time)]
    to: Timestamp,
}

impl<S: Sync> FromRequestParts<S> for BulkParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<BulkParams, Problem> {
        let params = Params::read(parts.uri.query(), &["from", "to"])?;
        let time = |name| params.time(name)?.ok_or_else(|| Problem::of_parameter(name, Fault::Missing, "is missing"));
        Ok(BulkParams { from: time("from")?, to: time("to")? })
    }
}

fn bulk_action(change: &BulkChange) -> Result<BulkAction, Problem> {
    match (&*change.action, one_span("by", change.by, change.by_ms)?) {
        ("cancel", None) => Ok(BulkAction::Cancel),
        ("park", None) => Ok(BulkAction::Park),
        ("unpark", None) => Ok(BulkAction::Unpark),
        ("postpone", Some(by)) => Ok(BulkAction::Postpone(by)),
        ("advance", Some(by)) => Ok(BulkAction::Advance(by)),
        ("postpone" | "advance", None) => Err(Problem::wrong(Fault::Missing, "by", "is missing: by how much?")),
        ("cancel" | "park" | "unpark", Some(_)) => {
            Err(Problem::wrong(Fault::Exclusive, "by", "belongs to `postpone` and `advance`"))
        }
        (other, _) => {
            let why = format!("{other:?} is none of cancel, postpone, advance, park, unpark");
            Err(Problem::wrong(Fault::Choice, "action", why))
        }
    }
}

/// Count the messages that are due in a window.
///
/// These are the messages that the bulk operation on the same window changes.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/groups/{group}/bulk", operation_id = "countMessagesByDueTime",
    tag = "producing",
    params(GroupPath, BulkParams),
    responses((status = 200, description = "How many", body = BulkCount), Problem, TopicProblem)
)]
pub(crate) async fn count(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    params: BulkParams,
) -> Result<Reply<BulkCount>, Problem> {
    let window = Window { from: params.from, to: params.to };
    let waiting = app.broker().count_window(&topic, &group, window).await.map_err(Problem::of_query)?;
    Ok(Reply(BulkCount { waiting }))
}

/// Cancel, postpone, advance or park the messages that are due in a window.
///
/// A request works for 5 s; while it answers with a `next_cursor`, repeat it with that as `cursor`.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/bulk", operation_id = "changeMessagesByDueTime",
    tag = "producing", request_body = BulkChange,
    params(GroupPath),
    responses((status = 200, description = "How many", body = BulkChanged), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn change(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    change: Json<BulkChange>,
) -> Result<Reply<BulkChanged>, Problem> {
    let (change, bulk_action) = change.read(|change| bulk_action(&change).map(|bulk_action| (change, bulk_action)))?;
    let window = Window { from: change.from, to: change.to };
    let done = app.broker().change_window(&topic, &group, window, bulk_action, change.cursor.as_deref()).await?;
    Ok(Reply(BulkChanged { changed: done.changed, passed_over: done.passed_over, next_cursor: done.next }))
}
