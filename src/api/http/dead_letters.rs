//! Dead letters: list, redrive, purge.

use std::num::NonZeroU64;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use dwell_client::wire::dead_letters::{Purged, Redriven};
use dwell_client::wire::messages::FailedAttempt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::document::{BodyProblem, TopicProblem};

use super::message_json::{Contents, failed_attempt};
use super::path_params::{GroupPath, NoParams, Params};
use super::problem::{Problem, collect};
use super::reply::Reply;
use super::schema;
use super::strict_json::{Items, JsonOrDefault, present};
use super::{Admitted, reply};
use crate::broker::{DeadLetterFilter, DeadLetterSweep, DeadLetterSweepResult};
use crate::codec::DeadLetterReason;
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{BATCH_MESSAGES_MAX, CALL_BYTES_MAX};
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::{Timestamp, millis, one_span, span};
use crate::store::Dead;

fn read_reason(text: &str) -> Result<DeadLetterReason> {
    let names = || DeadLetterReason::ALL.map(DeadLetterReason::name).join(", ");
    let found = DeadLetterReason::ALL.into_iter().find(|reason| reason.name() == text);
    found.ok_or_else(|| Error::wrong(Fault::Choice, "reason", format!("{text:?} is none of {}", names())))
}

const LIMIT_DEFAULT: usize = 100;

/// A dead letter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterMessage {
    /// Message id.
    #[schema(value_type = schema::MessageId)]
    id: String,
    /// Partition of the topic, from 0 on.
    #[schema(value_type = u16)]
    partition: Partition,
    /// When it died.
    #[schema(value_type = String, format = DateTime)]
    died_at: Timestamp,
    /// `max_attempts`, `buried`, `unreadable` or `expired`.
    #[schema(value_type = schema::DeathReason)]
    reason: &'static str,
    /// Attempts that were made.
    attempts: u32,
    /// Reason of the last nack.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// How the last 16 attempts failed, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<FailedAttempt>,
    /// Due time of the producer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    due_at: Option<Timestamp>,
    #[serde(flatten)]
    contents: Option<Contents>,
    /// `hop_limit`: eight topics have forwarded it, so it stays here even if this topic forwards its dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    unforwarded: Option<&'static str>,
    /// Why the stored message cannot be read; then `due_at` and what travelled with it are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

impl DeadLetterMessage {
    fn new(partition: Partition, dead: Dead) -> DeadLetterMessage {
        let unforwarded = dead.is_at_hop_limit().then_some("hop_limit");
        let (due_at, contents, unreadable) = match dead.message {
            Ok(message) => (Some(message.due_at), Some(Contents::from(message.envelope)), None),
            Err(error) => (None, None, Some(error.detail().to_owned())),
        };
        DeadLetterMessage {
            id: dead.id.into(),
            partition,
            died_at: dead.died_at,
            reason: dead.record.reason.name(),
            attempts: dead.record.attempts,
            last_error: dead.record.last_error,
            history: dead.record.history.into_iter().map(failed_attempt).collect(),
            due_at,
            contents,
            unforwarded,
            unreadable,
        }
    }
}

/// A page of dead letters.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the answer, which is written item by item")]
#[schema(examples(json!(
    {"dead_letters": [{"id": "order-4711", "partition": 3, "died_at": "2026-01-02T03:04:05.678Z", "reason": "max_attempts",
    "attempts": 16, "last_error": "smtp: 550", "due_at": "2026-01-02T03:04:05.678Z",
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}]}
)))]
pub(crate) struct DeadLetterMessages {
    /// Partition by partition, the oldest death first.
    dead_letters: Vec<DeadLetterMessage>,
    /// Where the next page begins; absent at the end.
    #[schema(value_type = Option<schema::Cursor>)]
    next_cursor: Option<String>,
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadLetterParams {
    /// 1 to 1,000. Default 100.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    #[param(value_type = Option<schema::Cursor>)]
    cursor: Option<String>,
    /// Only those with this reason.
    #[param(value_type = Option<schema::DeathReason>)]
    reason: Option<String>,
    /// Minimum age of a dead letter.
    #[param(value_type = Option<schema::Duration>)]
    older_than: Option<Duration>,
    /// The same in milliseconds; not together with `older_than`.
    #[param(value_type = Option<u64>, example = 3600000)]
    older_than_ms: Option<Duration>,
    /// Maximum age of a dead letter.
    #[param(value_type = Option<schema::Duration>)]
    younger_than: Option<Duration>,
    /// The same in milliseconds; not together with `younger_than`.
    #[param(value_type = Option<u64>, example = 86400000)]
    younger_than_ms: Option<Duration>,
    /// Only those with this text in the last error or in the payload, 1 to 256 bytes.
    #[param(value_type = Option<schema::SearchText>)]
    text: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for DeadLetterParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<DeadLetterParams, Problem> {
        let accepted =
            ["limit", "cursor", "reason", "older_than", "older_than_ms", "younger_than", "younger_than_ms", "text"];
        let params = Params::read(parts.uri.query(), &accepted)?;
        let text = |name| params.get(name).map(str::to_owned);
        Ok(DeadLetterParams {
            limit: params.number("limit", 1..=BATCH_MESSAGES_MAX)?,
            cursor: text("cursor"),
            reason: text("reason"),
            older_than: params.span("older_than")?,
            older_than_ms: params.millis("older_than_ms")?,
            younger_than: params.span("younger_than")?,
            younger_than_ms: params.millis("younger_than_ms")?,
            text: text("text"),
        })
    }
}

impl DeadLetterParams {
    fn filter(&self) -> Result<DeadLetterFilter> {
        Ok(DeadLetterFilter {
            reason: self.reason.as_deref().map(read_reason).transpose()?,
            older_than: one_span("older_than", self.older_than, self.older_than_ms)?,
            younger_than: one_span("younger_than", self.younger_than, self.younger_than_ms)?,
            text: self.text.clone(),
        })
    }
}

/// A selection of dead letters: `ids`, or the other fields.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"reason": "max_attempts", "older_than": "1h"})))]
pub(crate) struct Which {
    /// Not together with another field.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Vec<schema::MessageId>>, min_items = 1, max_items = 1000)]
    ids: Option<Items<String>>,
    /// Only those with this reason.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::DeathReason>)]
    reason: Option<String>,
    /// Minimum age of a dead letter.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    older_than: Option<Duration>,
    /// The same in milliseconds; not together with `older_than`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 3600000)]
    older_than_ms: Option<Duration>,
    /// Maximum age of a dead letter.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    younger_than: Option<Duration>,
    /// The same in milliseconds; not together with `younger_than`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 86400000)]
    younger_than_ms: Option<Duration>,
    /// Only those with this text in the last error or in the payload, 1 to 256 bytes.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::SearchText>)]
    text: Option<String>,
    /// The largest number of dead letters to change.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    limit: Option<NonZeroU64>,
    /// Dead letters a second, at most.
    #[serde(default, deserialize_with = "present")]
    #[schema(minimum = 1, maximum = 100_000)]
    rate: Option<u32>,
    /// The `next_cursor` of the answer before.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Cursor>)]
    cursor: Option<String>,
    /// All that are dead now. Not together with a narrower selection.
    #[serde(default)]
    all: bool,
    /// Only count them. Not together with `ids`.
    #[serde(default)]
    dry_run: bool,
}

enum DeadLetterSelection {
    Ids(Vec<MessageId>),
    Matching(DeadLetterSweep),
    Counting(DeadLetterSweep),
}

impl Which {
    /// Refuses a purge without a selection: an empty body may be one that was lost on the way.
    fn expect_selector(&self) -> Result<(), Problem> {
        let narrowed = self.reason.is_some() || self.text.is_some();
        let aged = [self.older_than, self.older_than_ms, self.younger_than, self.younger_than_ms];
        match self.all || self.ids.is_some() || narrowed || aged.iter().any(Option::is_some) {
            true => Ok(()),
            false => {
                let why = "does not say which; give ids, reason, older_than, younger_than or text, or {\"all\": true}";
                Err(Problem::wrong(Fault::Missing, "body", why))
            }
        }
    }

    fn read(self) -> Result<DeadLetterSelection, Problem> {
        let filter = DeadLetterFilter {
            reason: self.reason.as_deref().map(read_reason).transpose()?,
            older_than: one_span("older_than", self.older_than, self.older_than_ms)?,
            younger_than: one_span("younger_than", self.younger_than, self.younger_than_ms)?,
            text: self.text,
        };
        filter.check()?;
        if self.all && filter != DeadLetterFilter::default() {
            return Err(Problem::wrong(Fault::Exclusive, "all", "is given beside what narrows the choice"));
        }
        let (limit, rate, cursor) = (self.limit.map(NonZeroU64::get), self.rate, self.cursor);
        let sweep = DeadLetterSweep { filter, limit, rate, cursor };
        let Some(Items(ids)) = self.ids else {
            return Ok(if self.dry_run {
                DeadLetterSelection::Counting(sweep)
            } else {
                DeadLetterSelection::Matching(sweep)
            });
        };
        if sweep != DeadLetterSweep::default() || self.all || self.dry_run {
            let why = "are given beside another field; name the messages or describe them";
            return Err(Problem::wrong(Fault::Exclusive, "ids", why));
        }
        let ids = ids.into_iter().map(|id| MessageId::new(id).map_err(Problem::from));
        // Each is an item, not the field `id` of one.
        collect(ids.enumerate(), |error, i| error.moved(format!("/ids/{i}"))).map(DeadLetterSelection::Ids)
    }
}

/// List dead letters.
///
/// Partition by partition, the oldest death first; follow `next_cursor` to the end.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/groups/{group}/dead-letters", operation_id = "listDeadLetters",
    tag = "dead letters",
    params(GroupPath, DeadLetterParams),
    responses((status = 200, description = "A page", body = DeadLetterMessages), Problem, TopicProblem)
)]
pub(crate) async fn list(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    params: DeadLetterParams,
) -> Result<Response, Problem> {
    let limit = params.limit.unwrap_or(LIMIT_DEFAULT);
    let filter = params.filter().map_err(Problem::of_query)?;
    let mut held = app.admit(reply::weight_max(2 * CALL_BYTES_MAX)).await?;
    let page = app.broker().dead_matching(&topic, &group, &filter, params.cursor.as_deref(), limit).await;
    let page = page.map_err(Problem::of_query)?;
    let size = |(_, dead): &(Partition, Dead)| dead.message.as_ref().map_or(0, |message| message.envelope.size());
    held.resize(reply::weigh(page.dead.iter().map(size)));
    let dead = page.dead.into_iter().map(|(partition, dead)| DeadLetterMessage::new(partition, dead));
    Ok(reply::list("dead_letters", dead, page.next, held))
}

/// Make dead letters ready again.
///
/// Those of `ids`, or all that match the other fields. Attempts start again at 1.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/dead-letters/redrive", operation_id = "redriveDeadLetters",
    tag = "dead letters", request_body = Option<Which>,
    params(GroupPath),
    responses((status = 200, description = "How many", body = Redriven), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn redrive(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    which: JsonOrDefault<Which>,
) -> Result<Reply<Redriven>, Problem> {
    let Changed { count, matching, next } = change(&app, &topic, &group, which.read(Which::read)?, false).await?;
    Ok(Reply(Redriven { redriven: count, matching, next_cursor: next }))
}

/// Delete dead letters for good.
///
/// Those of `ids`, or all that match the other fields.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/dead-letters/purge", operation_id = "purgeDeadLetters",
    tag = "dead letters", request_body = Which,
    params(GroupPath),
    responses((status = 200, description = "How many", body = Purged), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn purge(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    which: JsonOrDefault<Which>,
) -> Result<Reply<Purged>, Problem> {
    let selection = which.read(|which| {
        which.expect_selector()?;
        which.read()
    })?;
    let Changed { count, matching, next } = change(&app, &topic, &group, selection, true).await?;
    Ok(Reply(Purged { purged: count, matching, next_cursor: next }))
}

struct Changed {
    count: u64,
    matching: Option<u64>,
    next: Option<String>,
}

async fn change(
    app: &Admitted,
    topic: &TopicName,
    group: &GroupName,
    selection: DeadLetterSelection,
    purges: bool,
) -> Result<Changed, Problem> {
    let broker = app.broker();
    let DeadLetterSweepResult { count, next } = match selection {
        DeadLetterSelection::Counting(sweep) => {
            let DeadLetterSweepResult { count, next } = broker.count_dead(topic, group, &sweep).await?;
            return Ok(Changed { count: 0, matching: Some(count), next });
        }
        DeadLetterSelection::Ids(ids) => {
            let ids = Some(&ids[..]);
            let changed =
                if purges { broker.purge(topic, group, ids).await } else { broker.redrive(topic, group, ids).await };
            DeadLetterSweepResult { count: changed?, next: None }
        }
        DeadLetterSelection::Matching(sweep) if purges => broker.purge_many(topic, group, &sweep).await?,
        DeadLetterSelection::Matching(sweep) => broker.redrive_many(topic, group, &sweep).await?,
    };
    Ok(Changed { count, matching: None, next })
}
