//! Cron jobs: create, get, list, pause, resume, delete.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use dwell_client::wire::cron::{CronJob, CronJobs, NewCronJob};
use dwell_client::wire::messages::Meta;
use utoipa::IntoParams;

use super::Admitted;
use super::document::{BodyProblem, TopicProblem};
use super::message_json::{payload_of, text_or_base64};
use super::path_params::{CronPath, NoParams, Params, TopicPath};
use super::problem::Problem;
use super::reply::Reply;
use super::reply::{self, ResourcePath};
use super::schema;
use super::strict_json::Json;
use crate::model::error::Fault;
use crate::model::limits::{CRON_JOBS_MAX, SCHEDULE_PAYLOAD_BYTES_MAX};
use crate::model::message::CronJobName;
use crate::model::schedule::{Missed, Schedule, Timing};
use crate::model::time::one_span;
use crate::store::CronJobRecord;

const TIME_ZONE: &str = "UTC";

fn schedule(new: NewCronJob, name: CronJobName) -> Result<Schedule, Problem> {
    let timing = match (new.cron, one_span("every", new.every, new.every_ms)?) {
        (Some(cron), None) if new.from.is_none() => {
            Timing::Cron { cron, time_zone: new.time_zone.unwrap_or_else(|| TIME_ZONE.to_owned()) }
        }
        (None, Some(every)) if new.time_zone.is_none() => Timing::Every { every, from: new.from.unwrap_or_default() },
        (Some(_), None) => {
            return Err(Problem::wrong(Fault::Exclusive, "from", "belongs to `every`, not to `cron`"));
        }
        (None, Some(_)) => {
            return Err(Problem::wrong(Fault::Exclusive, "time_zone", "belongs to `cron`, not to `every`"));
        }
        (Some(_), Some(_)) => {
            return Err(Problem::wrong(Fault::Exclusive, "cron", "is given together with `every`"));
        }
        (None, None) => return Err(Problem::wrong(Fault::Missing, "cron", "is missing, and so is `every`")),
    };
    let wrong = |text: String| Problem::wrong(Fault::Choice, "missed", format!("{text:?} is none of skip, last, all"));
    let missed = match new.missed {
        None => Missed::default(),
        Some(text) => Missed::named(&text).ok_or_else(|| wrong(text))?,
    };
    let (payload, implied) = payload_of(new.payload, new.payload_base64, new.payload_json)?;
    Ok(Schedule {
        name,
        timing,
        missed,
        paused: false,
        ttl: one_span("ttl", new.ttl, new.ttl_ms)?,
        max_attempts: new.max_attempts,
        content_type: new.content_type.or_else(|| implied.map(str::to_owned)),
        meta: new.meta.unwrap_or_default().0,
        payload,
    })
}

fn described(record: CronJobRecord) -> CronJob {
    let (state, next_at, failure) = match record.schedule.expect(record.last) {
        Ok(Some(next)) => ("active", Some(next), None),
        Ok(None) => ("paused", None, None),
        Err(error) => ("failed", None, Some(error.detail().to_owned())),
    };
    let schedule = record.schedule;
    let (cron, every) = match schedule.timing {
        Timing::Cron { cron, time_zone } => (Some((cron, time_zone)), None),
        Timing::Every { every, from } => (None, Some((every, from))),
        Timing::Unreadable { .. } => (None, None),
    };
    let ((cron, time_zone), (every, from)) = (cron.unzip(), every.unzip());
    let (payload, payload_base64) = text_or_base64(schedule.payload);
    CronJob {
        name: schedule.name.into(),
        cron,
        time_zone,
        every_ms: every,
        from,
        missed: schedule.missed.name().into(),
        paused: schedule.paused,
        state: state.into(),
        failure,
        next_at,
        ttl_ms: schedule.ttl,
        max_attempts: schedule.max_attempts,
        content_type: schedule.content_type,
        meta: Meta(schedule.meta),
        payload,
        payload_base64,
    }
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CronParams {
    /// The `next_cursor` of the page before.
    #[param(value_type = Option<schema::Cursor>)]
    cursor: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for CronParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<CronParams, Problem> {
        let params = Params::read(parts.uri.query(), &["cursor"])?;
        Ok(CronParams { cursor: params.get("cursor").map(str::to_owned) })
    }
}

/// List the cron jobs of a topic.
///
/// Partition by partition; follow `next_cursor` to the end.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/cron", operation_id = "listCronJobs",
    tag = "cron",
    params(TopicPath, CronParams),
    responses((status = 200, description = "A page", body = CronJobs), Problem, TopicProblem)
)]
pub(crate) async fn list(app: Admitted, TopicPath(topic): TopicPath, params: CronParams) -> Result<Response, Problem> {
    let mut held = app.admit(reply::weight_max(2 * CRON_JOBS_MAX * SCHEDULE_PAYLOAD_BYTES_MAX)).await?;
    let page = app.broker().cron_jobs(&topic, params.cursor.as_deref()).await.map_err(Problem::of_query)?;
    held.resize(reply::weigh(page.cron_jobs.iter().map(|record| record.schedule.payload.len())));
    Ok(reply::list("cron_jobs", page.cron_jobs.into_iter().map(described), page.next, held))
}

/// Create a cron job, or change it.
///
/// Repeating the request changes nothing, so every producer may do so at its start.
#[utoipa::path(
    put, path = "/v1/topics/{topic}/cron/{name}", operation_id = "createOrUpdateCronJob",
    tag = "cron", request_body = NewCronJob,
    params(CronPath),
    responses(
        (status = 201, description = "The cron job was created", body = CronJob,
         headers(("Location" = String, description = "Path of the cron job"))),
        (status = 200, description = "The cron job existed", body = CronJob),
        Problem, TopicProblem, BodyProblem,
    )
)]
pub(crate) async fn create_or_update(
    app: Admitted,
    CronPath(topic, name): CronPath,
    _: NoParams,
    new: Json<NewCronJob>,
) -> Result<Response, Problem> {
    let now = app.broker().now();
    let schedule = new.read(|new| {
        let schedule = self::schedule(new, name.clone())?;
        schedule.check(now)?;
        Ok(schedule)
    })?;
    let (made, record) = app.broker().put_cron_job(&topic, schedule).await?;
    let place = ResourcePath(&[("topics", topic.as_str()), ("cron", name.as_str())]);
    Ok(reply::created(reply::created_status(made), &place, described(record)))
}

/// Get a cron job.
///
/// With the time of its next occurrence.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/cron/{name}", operation_id = "getCronJob",
    tag = "cron",
    params(CronPath),
    responses((status = 200, description = "The cron job", body = CronJob), Problem, TopicProblem)
)]
pub(crate) async fn get(
    app: Admitted,
    CronPath(topic, name): CronPath,
    _: NoParams,
) -> Result<Reply<CronJob>, Problem> {
    Ok(Reply(described(app.broker().cron_job(&topic, &name).await?)))
}

/// Delete a cron job.
///
/// Messages that it has pushed stay.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}/cron/{name}", operation_id = "deleteCronJob",
    tag = "cron",
    params(CronPath),
    responses((status = 204, description = "The cron job is deleted"), Problem, TopicProblem)
)]
pub(crate) async fn delete(app: Admitted, CronPath(topic, name): CronPath, _: NoParams) -> Result<StatusCode, Problem> {
    app.broker().delete_cron_job(&topic, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause a cron job.
///
/// Nothing is pushed until it is resumed.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/cron/{name}/pause", operation_id = "pauseCronJob",
    tag = "cron",
    params(CronPath),
    responses((status = 200, description = "It is paused", body = CronJob), Problem, TopicProblem)
)]
pub(crate) async fn pause(
    app: Admitted,
    CronPath(topic, name): CronPath,
    _: NoParams,
) -> Result<Reply<CronJob>, Problem> {
    Ok(Reply(described(app.broker().pause_cron_job(&topic, &name, true).await?)))
}

/// Resume a cron job.
///
/// It continues with the next occurrence; those that were missed are not pushed.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/cron/{name}/resume", operation_id = "resumeCronJob",
    tag = "cron",
    params(CronPath),
    responses((status = 200, description = "It continues", body = CronJob), Problem, TopicProblem)
)]
pub(crate) async fn resume(
    app: Admitted,
    CronPath(topic, name): CronPath,
    _: NoParams,
) -> Result<Reply<CronJob>, Problem> {
    Ok(Reply(described(app.broker().pause_cron_job(&topic, &name, false).await?)))
}
