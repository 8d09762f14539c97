//! Cron jobs: create, get, list, pause, resume, delete.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::Admitted;
use super::document::{BodyProblem, TopicProblem};
use super::message_json::{Meta, payload_of, text_or_base64};
use super::path_params::{CronPath, NoParams, Params, TopicPath};
use super::problem::Problem;
use super::reply::Reply;
use super::reply::{self, ResourcePath};
use super::schema;
use super::strict_json::{Json, present};
use crate::model::error::Fault;
use crate::model::limits::{CRON_JOBS_MAX, SCHEDULE_PAYLOAD_BYTES_MAX};
use crate::model::message::CronJobName;
use crate::model::schedule::{Missed, Schedule, Timing};
use crate::model::time::{Timestamp, millis, one_span, span};
use crate::store::CronJobRecord;

const TIME_ZONE: &str = "UTC";

/// A recurring message: when it occurs, and what is pushed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin", "payload": "close the books"})))]
pub(crate) struct NewCronJob {
    /// A cron expression: minute, hour, day of month, month, day of week; or `@hourly`, `@daily`, `@weekly`, `@monthly`,
    /// `@yearly`. Either this or `every`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::CronExpression>)]
    cron: Option<String>,
    /// The IANA name of the time zone of `cron`. Default `UTC`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::TimeZone>)]
    time_zone: Option<String>,
    /// The span from one occurrence to the next, 1 s to 3,650 d.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    every: Option<Duration>,
    /// The same in milliseconds; not together with `every`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 900000)]
    every_ms: Option<Duration>,
    /// Occurrences are whole spans of `every` after this. Default 1970-01-01T00:00:00Z.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Time>)]
    from: Option<Timestamp>,
    /// Which missed occurrences are pushed later: `skip` (none), `last` or `all`. Default `last`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Missed>)]
    missed: Option<String>,
    /// How long after its occurrence a message is still worth delivering.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    ttl: Option<Duration>,
    /// The same in milliseconds; not together with `ttl`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 3600000)]
    ttl_ms: Option<Duration>,
    /// Overrides the topic's number of attempts; 0 is without a limit.
    #[serde(default, deserialize_with = "present")]
    #[schema(minimum = 0, maximum = 1000)]
    max_attempts: Option<u32>,
    /// The payload as text.
    #[serde(default, deserialize_with = "present")]
    payload: Option<String>,
    /// The payload in base64. Exactly one of the three.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Base64>)]
    payload_base64: Option<String>,
    /// The payload as any JSON value; its content type is `application/json` unless `content_type` says otherwise.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload_json: Option<Box<RawValue>>,
    /// Travels with the payload.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::ContentType>)]
    content_type: Option<String>,
    /// Names and values that travel with the payload.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Meta>)]
    meta: Option<Meta>,
}

impl NewCronJob {
    fn named(self, name: CronJobName) -> Result<Schedule, Problem> {
        let timing = match (self.cron, one_span("every", self.every, self.every_ms)?) {
            (Some(cron), None) if self.from.is_none() => {
                Timing::Cron { cron, time_zone: self.time_zone.unwrap_or_else(|| TIME_ZONE.to_owned()) }
            }
            (None, Some(every)) if self.time_zone.is_none() => {
                Timing::Every { every, from: self.from.unwrap_or_default() }
            }
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
        let wrong =
            |text: String| Problem::wrong(Fault::Choice, "missed", format!("{text:?} is none of skip, last, all"));
        let missed = match self.missed {
            None => Missed::default(),
            Some(text) => Missed::named(&text).ok_or_else(|| wrong(text))?,
        };
        let (payload, implied) = payload_of(self.payload, self.payload_base64, self.payload_json)?;
        Ok(Schedule {
            name,
            timing,
            missed,
            paused: false,
            ttl: one_span("ttl", self.ttl, self.ttl_ms)?,
            max_attempts: self.max_attempts,
            content_type: self.content_type.or_else(|| implied.map(str::to_owned)),
            meta: self.meta.unwrap_or_default().0,
            payload,
        })
    }
}

/// A recurring message.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "last", "paused": false,
    "state": "active", "next_at": "2026-01-03T02:00:00.000Z", "meta": {}, "payload": "close the books"}
)))]
pub(crate) struct CronJob {
    /// Its name, which is the key of its messages.
    name: String,
    /// Cron expression; absent with `every`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::CronExpression>)]
    cron: Option<String>,
    /// Time zone of `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TimeZone>)]
    time_zone: Option<String>,
    /// Span from one occurrence to the next; absent with `cron`.
    #[serde(skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[schema(value_type = Option<u64>)]
    every_ms: Option<Duration>,
    /// Occurrences are whole spans of `every` after this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// Policy for missed occurrences.
    #[schema(value_type = schema::Missed)]
    missed: &'static str,
    /// Whether nothing is pushed.
    paused: bool,
    /// `active`, `paused`, or `failed` when this broker cannot compute its next time.
    #[schema(value_type = schema::CronState)]
    state: &'static str,
    /// Why it has failed, and what to write; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// When it occurs next; absent while it is paused, and when it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
    /// How long after its occurrence a message is still delivered.
    #[serde(skip_serializing_if = "Option::is_none", with = "millis::optional")]
    #[schema(value_type = Option<u64>)]
    ttl_ms: Option<Duration>,
    /// Overrides `max_attempts` of the topic; 0 is without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    /// Media type of the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ContentType>)]
    content_type: Option<String>,
    /// Names and values that travel with the payload.
    #[schema(value_type = schema::Meta)]
    meta: Meta,
    /// Payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// Payload in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Base64>)]
    payload_base64: Option<String>,
}

impl From<CronJobRecord> for CronJob {
    fn from(record: CronJobRecord) -> CronJob {
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
            missed: schedule.missed.name(),
            paused: schedule.paused,
            state,
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
}

/// A page of cron jobs.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the answer, which is written item by item")]
#[schema(examples(json!(
    {"cron_jobs": [{"name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "last",
    "paused": false, "state": "active", "next_at": "2026-01-03T02:00:00.000Z", "meta": {}, "payload": "close the books"}]}
)))]
pub(crate) struct CronJobs {
    /// Partition by partition, sorted by name.
    cron_jobs: Vec<CronJob>,
    /// Where the next page begins; absent at the end.
    #[schema(value_type = Option<schema::Cursor>)]
    next_cursor: Option<String>,
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
    Ok(reply::list("cron_jobs", page.cron_jobs.into_iter().map(CronJob::from), page.next, held))
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
        let schedule = new.named(name.clone())?;
        schedule.check(now)?;
        Ok(schedule)
    })?;
    let (made, record) = app.broker().put_cron_job(&topic, schedule).await?;
    let place = ResourcePath(&[("topics", topic.as_str()), ("cron", name.as_str())]);
    Ok(reply::created(reply::created_status(made), &place, CronJob::from(record)))
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
    Ok(Reply(CronJob::from(app.broker().cron_job(&topic, &name).await?)))
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
    Ok(Reply(CronJob::from(app.broker().pause_cron_job(&topic, &name, true).await?)))
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
    Ok(Reply(CronJob::from(app.broker().pause_cron_job(&topic, &name, false).await?)))
}
