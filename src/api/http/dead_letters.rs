//! Dead letters: list, redrive, purge.

use std::num::NonZeroU64;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use dwell_client::wire::dead_letters::{DeadLetterMessage, DeadLetterMessages, DeadLetterSelector, Purged, Redriven};
use dwell_client::wire::items::Items;
use utoipa::IntoParams;

use super::document::{BodyProblem, TopicProblem};

use super::message_json::{contents_of, failed_attempt, last_error_of};
use super::path_params::{GroupPath, NoParams, Params};
use super::problem::{Problem, collect};
use super::reply::Reply;
use super::schema;
use super::strict_json::JsonOrDefault;
use super::{Admitted, reply};
use crate::broker::{DeadLetterFilter, DeadLetterSweep, DeadLetterSweepResult};
use crate::codec::DeadLetterReason;
use crate::model::error::{Error, Fault, Result};
use crate::model::last_error::LastError;
use crate::model::limits::{BATCH_MESSAGES_MAX, CALL_BYTES_MAX};
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::one_span;
use crate::store::{AgeOrder, Dead};

fn read_reason(text: &str) -> Result<DeadLetterReason> {
    let names = || DeadLetterReason::ALL.map(DeadLetterReason::name).join(", ");
    let found = DeadLetterReason::ALL.into_iter().find(|reason| reason.name() == text);
    found.ok_or_else(|| Error::wrong(Fault::Choice, "reason", format!("{text:?} is none of {}", names())))
}

const LIMIT_DEFAULT: usize = 100;

fn described(partition: Partition, dead: Dead) -> DeadLetterMessage {
    let unforwarded = dead.is_at_hop_limit().then_some("hop_limit".into());
    let (due_at, contents, unreadable) = match dead.message {
        Ok(message) => (Some(message.due_at), Some(contents_of(message.envelope)), None),
        Err(error) => (None, None, Some(error.detail().to_owned())),
    };
    DeadLetterMessage {
        id: dead.id.into(),
        partition: partition.0,
        died_at: dead.died_at,
        reason: dead.record.reason.name().into(),
        attempts: dead.record.attempts,
        last_error: dead.record.last_error.as_ref().map(last_error_of),
        history: dead.record.history.into_iter().map(failed_attempt).collect(),
        due_at,
        contents,
        unforwarded,
        unreadable,
    }
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
    /// `newest` or `oldest`: by the time of their death over all partitions, this one first; equal times by partition.
    /// `partition`, the default: partition by partition, the oldest death of each first.
    #[param(value_type = Option<schema::DeadLetterOrder>)]
    order: Option<AgeOrder>,
}

/// The order of a name; none is partition by partition.
fn order_of(name: &str) -> Result<Option<AgeOrder>> {
    match name {
        "partition" => Ok(None),
        "oldest" => Ok(Some(AgeOrder::OldestFirst)),
        "newest" => Ok(Some(AgeOrder::NewestFirst)),
        _ => Err(Error::wrong(Fault::Choice, "order", format!("{name:?} is not one of partition, oldest, newest"))),
    }
}

impl<S: Sync> FromRequestParts<S> for DeadLetterParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<DeadLetterParams, Problem> {
        let ages = ["older_than", "older_than_ms", "younger_than", "younger_than_ms"];
        let accepted = [&["limit", "cursor", "reason", "text", "order"][..], &ages].concat();
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
            order: params.read_as("order", order_of)?.flatten(),
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

enum DeadLetterSelection {
    Ids(Vec<MessageId>),
    Matching(DeadLetterSweep),
    Counting(DeadLetterSweep),
}

/// Refuses a change without a selection: an empty body may be one that was lost on the way.
fn expect_selector(which: &DeadLetterSelector) -> Result<(), Problem> {
    let narrowed = which.reason.is_some() || which.text.is_some();
    let aged = [which.older_than, which.older_than_ms, which.younger_than, which.younger_than_ms];
    match which.all || which.ids.is_some() || narrowed || aged.iter().any(Option::is_some) {
        true => Ok(()),
        false => {
            let why = "does not say which; give ids, reason, older_than, younger_than or text, or {\"all\": true}";
            Err(Problem::wrong(Fault::Missing, "body", why))
        }
    }
}

fn selection(which: DeadLetterSelector) -> Result<DeadLetterSelection, Problem> {
    expect_selector(&which)?;
    let filter = DeadLetterFilter {
        reason: which.reason.as_deref().map(read_reason).transpose()?,
        older_than: one_span("older_than", which.older_than, which.older_than_ms)?,
        younger_than: one_span("younger_than", which.younger_than, which.younger_than_ms)?,
        text: which.text,
    };
    filter.check()?;
    if which.all && filter != DeadLetterFilter::default() {
        return Err(Problem::wrong(Fault::Exclusive, "all", "is given beside what narrows the choice"));
    }
    let (limit, rate, cursor) = (which.limit.map(NonZeroU64::get), which.rate, which.cursor);
    let sweep = DeadLetterSweep { filter, limit, rate, cursor };
    let Some(Items(ids)) = which.ids else {
        return Ok(if which.dry_run {
            DeadLetterSelection::Counting(sweep)
        } else {
            DeadLetterSelection::Matching(sweep)
        });
    };
    if sweep != DeadLetterSweep::default() || which.all || which.dry_run {
        let why = "are given beside another field; name the messages or describe them";
        return Err(Problem::wrong(Fault::Exclusive, "ids", why));
    }
    let ids = ids.into_iter().map(|id| MessageId::new(id).map_err(Problem::from));
    // Each is an item, not the field `id` of one.
    collect(ids.enumerate(), |error, i| error.moved(format!("/ids/{i}"))).map(DeadLetterSelection::Ids)
}

/// List dead letters.
///
/// Follow `next_cursor` to the end. A page may be shorter than `limit`, and even empty. A dead letter that stays is listed once;
/// one that died after the first page is not listed.
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
    let cursor = params.cursor.as_deref();
    let page = match params.order {
        None => app.broker().dead_matching(&topic, &group, &filter, cursor, limit).await,
        Some(order) => app.broker().dead_by_age(&topic, &group, &filter, order, cursor, limit).await,
    };
    let page = page.map_err(Problem::of_query)?;
    let size = |(_, dead): &(Partition, Dead)| {
        let error = dead.record.last_error.as_ref().map_or(0, LastError::size);
        error + dead.message.as_ref().map_or(0, |message| message.envelope.size())
    };
    held.resize(reply::weigh(page.dead.iter().map(size)));
    let dead = page.dead.into_iter().map(|(partition, dead)| described(partition, dead));
    Ok(reply::list("dead_letters", dead, page.next, held))
}

/// Make dead letters ready again.
///
/// Those of `ids`, all that match the other fields, or with `{"all": true}` all. Attempts start again at 1.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/dead-letters/redrive", operation_id = "redriveDeadLetters",
    tag = "dead letters", request_body = DeadLetterSelector,
    params(GroupPath),
    responses((status = 200, description = "How many", body = Redriven), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn redrive(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    which: JsonOrDefault<DeadLetterSelector>,
) -> Result<Reply<Redriven>, Problem> {
    let Changed { count, matching, next } = change(&app, &topic, &group, which.read(selection)?, false).await?;
    Ok(Reply(Redriven { redriven: count, matching, next_cursor: next }))
}

/// Delete dead letters for good.
///
/// Those of `ids`, all that match the other fields, or with `{"all": true}` all.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/dead-letters/purge", operation_id = "purgeDeadLetters",
    tag = "dead letters", request_body = DeadLetterSelector,
    params(GroupPath),
    responses((status = 200, description = "How many", body = Purged), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn purge(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    which: JsonOrDefault<DeadLetterSelector>,
) -> Result<Reply<Purged>, Problem> {
    let Changed { count, matching, next } = change(&app, &topic, &group, which.read(selection)?, true).await?;
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
