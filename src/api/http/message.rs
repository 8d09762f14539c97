//! One message: get, explain, cancel, reschedule.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use dwell_client::wire::messages::{Control, Explained, GroupFate, GroupReason, Message, NewDue};
use utoipa::IntoParams;

use super::authorization::{may_see_keys, may_see_payloads};
use super::document::{BodyProblem, MatchProblem, TopicProblem};
use super::message_json::{contents_of, due_of, failed_attempt, last_error_of};
use super::path_params::{MessagePath, Params};
use super::problem::{Class, Problem};
use super::reply::Reply;
use super::strict_json::Json;
use super::{Admitted, reply, schema};
use crate::broker::without_keys;
use crate::codec::Failure;
use crate::model::error::{Error, Fault, Kind};
use crate::model::limits::ENVELOPE_BYTES_MAX;
use crate::model::message::{Due, GroupName, Key, MessageId, Past};
use crate::model::partition::Partition;
use crate::model::time::{Timestamp, one_span};
use crate::store::{Expected, Fate, Fates, MessageState, Peeked, Rescheduled};

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct KeyParams {
    /// The key that it was pushed with, if any.
    #[param(value_type = Option<schema::Key>)]
    key: Option<Key>,
}

impl<S: Sync> FromRequestParts<S> for KeyParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<KeyParams, Problem> {
        let params = Params::read(parts.uri.query(), &["key"])?;
        Ok(KeyParams { key: params.read_as("key", Key::new)? })
    }
}

fn read_due(new: NewDue, now: Timestamp) -> Result<Due, Problem> {
    let delay = one_span("delay", new.delay, new.delay_ms)?;
    if delay.is_none() && new.due_at.is_none() {
        return Err(Problem::wrong(Fault::Missing, "delay", "is missing, and so is `due_at`"));
    }
    // A producer may be late; a due time that is changed to the past is a mistake.
    let past = new.past.as_deref().map(str::parse).transpose()?.unwrap_or(Past::Reject);
    let due = due_of(delay, new.due_at, past)?;
    due.fix(now)?;
    Ok(due)
}

/// Cancel a message.
///
/// Removes it from every group in which no consumer has it, also from the memory of its owner: it is not delivered afterwards.
/// Messages in flight and dead letters stay.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}/messages/{id}", operation_id = "cancelMessage",
    tag = "producing",
    params(MessagePath, KeyParams),
    responses(
        (status = 200, description = "It is cancelled", body = Control),
        (status = 207, description = "It is cancelled, but a group had it in flight", body = Control),
        Problem, TopicProblem,
    )
)]
pub(crate) async fn cancel(
    app: Admitted,
    MessagePath(topic, id): MessagePath,
    params: KeyParams,
) -> Result<(StatusCode, Reply<Control>), Problem> {
    let cancelled = app.broker().cancel(&topic, &id, params.key.as_ref()).await;
    let (partition, cancelled) = told_to(&app, cancelled)?;
    let control = Control { buffered: cancelled.buffered, ..control(&id, partition, "cancelled") };
    answer(control, &cancelled.fates)
}

/// Change the due time of a message.
///
/// In every group in which no consumer has it. A `delay` of `0s` delivers it now.
#[utoipa::path(
    patch, path = "/v1/topics/{topic}/messages/{id}", operation_id = "rescheduleMessage",
    tag = "producing", request_body = NewDue,
    params(
        MessagePath, KeyParams,
        ("If-Match" = Option<schema::Etag>, Header, description = "The `etag` that it has to have")
    ),
    responses(
        (status = 200, description = "It is rescheduled", body = Control),
        (status = 207, description = "It is rescheduled, but a group had it in flight", body = Control),
        Problem, TopicProblem, BodyProblem, MatchProblem,
    )
)]
pub(crate) async fn reschedule(
    app: Admitted,
    MessagePath(topic, id): MessagePath,
    params: KeyParams,
    headers: HeaderMap,
    due: Json<NewDue>,
) -> Result<(StatusCode, Reply<Control>), Problem> {
    let now = app.broker().now();
    let (due, expected) = (due.read(|due| read_due(due, now))?, expected(&headers)?);
    let outcome = app.broker().reschedule(&topic, &id, params.key.as_ref(), due, expected).await;
    let outcome = told_to(&app, outcome)?;
    match outcome.rescheduled {
        Rescheduled::Done(fates) => {
            let control = control(&id, outcome.partition, "rescheduled");
            answer(Control { due_at: Some(outcome.due_at), ..control }, &fates)
        }
        Rescheduled::Changed(group) => {
            let detail = format!("message {id} is another one in group {group} than `If-Match` says; nothing changed");
            Err(Problem::new(Class::PreconditionFailed, detail))
        }
        Rescheduled::Expires => Err(Problem::wrong(Fault::Range, "due_at", "is not before it expires")),
    }
}

/// Tells a client the keys of messages only if it sees them in lists, too.
fn told_to<T>(app: &Admitted, outcome: Result<T, Error>) -> Result<T, Problem> {
    let sees_keys = app.pass().actor().is_some_and(|actor| may_see_keys(actor.scopes));
    outcome.map_err(|error| if sees_keys { error } else { without_keys(error) }.into())
}

fn control(id: &MessageId, partition: Partition, status: &'static str) -> Control {
    let (id, partition, status) = (id.to_string(), partition.0, status.into());
    Control { id, partition, status, due_at: None, buffered: false, groups: Vec::new() }
}

fn answer(control: Control, fates: &Fates) -> Result<(StatusCode, Reply<Control>), Problem> {
    let (done, id) = (&control.status, &control.id);
    let status = |fate: Fate| if fate == Fate::Done { done.clone() } else { fate.name().into() };
    let groups: Vec<GroupFate> =
        fates.0.iter().map(|(group, fate)| GroupFate { group: group.to_string(), status: status(*fate) }).collect();
    let refused = |kind, why: String| Err(Problem::new(Class::Verb(kind), why).with_groups(groups.clone()));
    let names = |fate| fates.of(fate).map(|group| group.as_str()).collect::<Vec<_>>().join(", ");
    match (fates.has(Fate::Done), fates.has(Fate::InFlight), fates.has(Fate::Dead)) {
        (true, false, _) => Ok((StatusCode::OK, Reply(Control { groups, ..control }))),
        (true, true, _) => {
            Ok((StatusCode::MULTI_STATUS, Reply(Control { groups, status: "partly".into(), ..control })))
        }
        (false, true, _) => {
            refused(Kind::Conflict, format!("message {id} is in flight in {}; it is not {done}", names(Fate::InFlight)))
        }
        (false, false, true) => {
            refused(Kind::Conflict, format!("message {id} is dead in {}; it is not {done}", names(Fate::Dead)))
        }
        (false, false, false) => {
            let why = "it was never pushed, it is settled, or it was pushed with another `key`";
            refused(Kind::NotFound, format!("there is no message {id} that waits: {why}"))
        }
    }
}

/// Changes with the due time and with the number of attempts.
pub(crate) fn etag(peeked: &Peeked) -> String {
    format!("\"{}.{}\"", peeked.message.due_at.as_ms(), peeked.attempts)
}

fn expected(headers: &HeaderMap) -> Result<Expected, Problem> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let Some(value) = values.next() else { return Ok(Expected::default()) };
    let wrong = || Problem::of_header("If-Match", Fault::Format, "is not one `etag` that dwell gave, or `*`");
    let text = value.to_str().ok().filter(|_| values.next().is_none()).ok_or_else(wrong)?.trim();
    if text == "*" {
        return Ok(Expected::default());
    }
    let tag = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let (due_at, attempts) = tag.and_then(|tag| tag.split_once('.')).ok_or_else(wrong)?;
    Ok(Expected {
        due_at: Some(Timestamp::from_ms(due_at.parse().map_err(|_| wrong())?)),
        attempts: Some(attempts.parse().map_err(|_| wrong())?),
    })
}

fn described(partition: Partition, peeked: Peeked) -> Message {
    let (state, etag) = (peeked.state.name(), etag(&peeked));
    let mut history = peeked.history;
    let (died_at, record) = match peeked.state {
        MessageState::Dead { died_at, mut record } => {
            history = std::mem::take(&mut record.history);
            (Some(died_at), Some(record))
        }
        _ => (None, None),
    };
    let last_error = match &record {
        Some(record) => record.last_error.clone(),
        None => history.last().and_then(Failure::last_error),
    };
    let is_held = matches!(state, "in_flight" | "blocked" | "backoff");
    let owner = peeked.owner.filter(|_| is_held).map(|owner| owner.as_str().to_owned());
    let successor_due_at = peeked.message.successor.map(|successor| successor.message.due_at);
    let envelope = peeked.message.envelope;
    Message {
        id: peeked.message.id.into(),
        partition: partition.0,
        state: state.into(),
        attempts: peeked.attempts,
        next_at: peeked.next_at,
        due_at: peeked.message.due_at,
        expires_at: envelope.expires_at,
        max_attempts: envelope.max_attempts,
        owner,
        successor_due_at,
        etag,
        contents: contents_of(envelope),
        died_at,
        reason: record.as_ref().map(|record| record.reason.name().into()),
        last_error: last_error.as_ref().map(last_error_of),
        history: history.into_iter().map(failed_attempt).collect(),
    }
}

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
pub(crate) async fn get(
    app: Admitted,
    MessagePath(topic, id): MessagePath,
    params: LookParams,
) -> Result<Reply<Message>, Problem> {
    let group = params.group.unwrap_or_else(GroupName::standard);
    // After this the answer is counted while it is sent.
    let _held = app.admit(reply::weight_max(ENVELOPE_BYTES_MAX)).await?;
    let peeked = app.broker().peek(&topic, &group, &id, params.key.as_ref()).await;
    let (partition, peeked) = told_to(&app, peeked)?;
    Ok(Reply(described(partition, peeked)))
}

/// Explain why a message is not delivered yet.
///
/// Gives one reason for each group of the topic.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/messages/{id}/explain", operation_id = "explainMessage",
    tag = "producing",
    params(MessagePath, KeyParams),
    responses((status = 200, description = "The reasons", body = Explained), Problem, TopicProblem)
)]
pub(crate) async fn explain(
    app: Admitted,
    MessagePath(topic, id): MessagePath,
    params: KeyParams,
) -> Result<Reply<Explained>, Problem> {
    let explanation = told_to(&app, app.broker().explain(&topic, &id, params.key.as_ref()).await)?;
    let sees = app.pass().actor().is_some_and(|actor| may_see_payloads(actor.scopes));
    let groups = explanation.groups.into_iter().map(|(group, reason)| {
        let error = reason.error.filter(|_| sees);
        GroupReason {
            group: group.to_string(),
            reason: reason.name.into(),
            blocker: reason.blocker.map(String::from),
            until: reason.until,
            owner: reason.owner.map(|owner| owner.to_string()),
            last_error: error.as_ref().map(last_error_of),
            detail: match error {
                Some(error) => format!("{}: {error}", reason.detail),
                None => reason.detail,
            },
        }
    });
    Ok(Reply(Explained {
        id: id.to_string(),
        partition: explanation.partition.0,
        buffered: explanation.buffered,
        groups: groups.collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::GroupName;

    #[test]
    fn etag_round_trips_and_garbage_is_refused() -> Result<(), Box<dyn std::error::Error>> {
        let read = |text: &str| -> Result<Option<Expected>, Box<dyn std::error::Error>> {
            let headers = HeaderMap::from_iter([(header::IF_MATCH, text.parse()?)]);
            Ok(expected(&headers).ok())
        };
        let tagged = Expected { due_at: Some(Timestamp::from_ms(1_767_323_045_678)), attempts: Some(2) };
        assert_eq!(read("\"1767323045678.2\"")?, Some(tagged));
        assert_eq!(read("*")?, Some(Expected::default()));
        for bad in ["", "1.2", "\"1\"", "\"1.x\"", "W/\"1.2\"", "\"1.2\", \"3.4\""] {
            assert_eq!(read(bad)?, None, "{bad:?}");
        }
        assert_eq!(expected(&HeaderMap::new()).ok(), Some(Expected::default()));
        Ok(())
    }

    #[test]
    fn status_combines_the_results_of_all_groups() -> crate::model::error::Result<()> {
        let (id, names) = (MessageId::new("a")?, [GroupName::new("default")?, GroupName::new("audit")?]);
        let status = |fates: [Fate; 2]| {
            let fates = Fates(names.iter().cloned().zip(fates).collect());
            answer(control(&id, Partition(0), "cancelled"), &fates)
                .map_or_else(|problem| problem.status(), |(status, _)| status)
                .as_u16()
        };
        use Fate::{Absent, Dead, Done, InFlight};
        let cases = [
            ([Done, Done], 200),
            ([Done, Absent], 200),
            ([Dead, Done], 200),
            ([Done, InFlight], 207),
            ([InFlight, Absent], 409),
            ([Dead, InFlight], 409),
            ([Absent, Dead], 409),
            ([Absent, Absent], 404),
        ];
        for (fates, expected) in cases {
            assert_eq!(status(fates), expected, "{fates:?}");
        }
        Ok(())
    }
}
