//! Cancelling and rescheduling a message.

use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::message_json::due_of;
use super::path_params::{MessagePath, Params, TopicPath};
use super::problem::{Class, Problem};
use super::problem_sets::{BodyProblem, MatchProblem, TopicProblem};
use super::reply::Reply;
use super::schema;
use super::strict_json::{Json, present};
use crate::model::error::{Fault, Kind};
use crate::model::message::{Due, Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::{Timestamp, millis, one_span, span};
use crate::store::{Expected, Fate, Fates, Peeked, Rescheduled};

/// Result of a cancel or reschedule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"id": "order-4711", "partition": 3, "status": "cancelled", "groups": [{"group": "default",
    "status": "cancelled"}]}
)))]
pub(crate) struct Control {
    /// Message id.
    #[schema(value_type = schema::MessageId)]
    id: MessageId,
    /// Partition of the topic, from 0 on.
    #[schema(value_type = u16)]
    partition: Partition,
    /// `cancelled` or `rescheduled`; `partly` when a group had it in flight.
    #[schema(value_type = schema::ControlStatus)]
    status: &'static str,
    /// When it is due now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    due_at: Option<Timestamp>,
    /// `true` if it was buffered on the local disk.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    buffered: bool,
    /// One for each group of the topic.
    groups: Vec<GroupFate>,
}

/// Result in one group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GroupFate {
    /// Name of the group.
    #[schema(value_type = schema::GroupName)]
    group: String,
    /// `cancelled` or `rescheduled`, `in_flight`, `dead` or `absent`.
    #[schema(value_type = schema::GroupControlStatus)]
    status: &'static str,
}

/// Which message is meant.
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

/// A new due time: exactly one of the two.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"delay": "30m"})))]
pub(crate) struct NewDue {
    /// A duration from now, at most 3,650 d; 0 is now.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    delay: Option<Duration>,
    /// The same in milliseconds; not together with `delay`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 1800000)]
    delay_ms: Option<Duration>,
    /// The due time; not together with `delay`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Time>)]
    due_at: Option<Timestamp>,
    /// What happens if `due_at` is in the past: `now` (it is due at once) or `reject`. Default `now`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Past>)]
    past: Option<String>,
}

impl NewDue {
    fn due(self, now: Timestamp) -> Result<Due, Problem> {
        let delay = one_span("delay", self.delay, self.delay_ms)?;
        if delay.is_none() && self.due_at.is_none() {
            return Err(Problem::wrong(Fault::Missing, "delay", "is missing, and so is `due_at`"));
        }
        let past = self.past.as_deref().map(str::parse).transpose()?.unwrap_or_default();
        let due = due_of(delay, self.due_at, past)?;
        due.fix(now)?;
        Ok(due)
    }
}

/// Cancel a message.
///
/// Takes it out of every group in which it is scheduled or ready. Messages in flight and dead letters stay.
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
    State(app): State<App>,
    MessagePath(topic, id): MessagePath,
    params: KeyParams,
) -> Result<(StatusCode, Reply<Control>), Problem> {
    cancel_it(&app, &topic, id, params).await
}

/// The path of a batch is also the path of the message with the id `batch`.
pub(crate) async fn cancel_batch(
    State(app): State<App>,
    TopicPath(topic): TopicPath,
    params: KeyParams,
) -> Result<(StatusCode, Reply<Control>), Problem> {
    cancel_it(&app, &topic, MessageId::new("batch")?, params).await
}

async fn cancel_it(
    app: &App,
    topic: &TopicName,
    id: MessageId,
    params: KeyParams,
) -> Result<(StatusCode, Reply<Control>), Problem> {
    let (partition, cancelled) = app.broker.cancel(topic, &id, params.key.as_ref()).await?;
    let control =
        Control { id, partition, status: "cancelled", due_at: None, buffered: cancelled.buffered, groups: vec![] };
    answer(control, &cancelled.fates)
}

/// Change the due time of a message.
///
/// In every group in which it is scheduled or ready. A `delay` of `0s` delivers it now.
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
    State(app): State<App>,
    MessagePath(topic, id): MessagePath,
    params: KeyParams,
    headers: HeaderMap,
    due: Json<NewDue>,
) -> Result<(StatusCode, Reply<Control>), Problem> {
    reschedule_it(&app, &topic, id, params, &headers, due).await
}

/// The path of a batch is also the path of the message with the id `batch`.
pub(crate) async fn reschedule_batch(
    State(app): State<App>,
    TopicPath(topic): TopicPath,
    params: KeyParams,
    headers: HeaderMap,
    due: Json<NewDue>,
) -> Result<(StatusCode, Reply<Control>), Problem> {
    reschedule_it(&app, &topic, MessageId::new("batch")?, params, &headers, due).await
}

async fn reschedule_it(
    app: &App,
    topic: &TopicName,
    id: MessageId,
    params: KeyParams,
    headers: &HeaderMap,
    due: Json<NewDue>,
) -> Result<(StatusCode, Reply<Control>), Problem> {
    let now = app.broker.now();
    let (due, expected) = (due.read(|due| due.due(now))?, expected(headers)?);
    let outcome = app.broker.reschedule(topic, &id, params.key.as_ref(), due, expected).await?;
    match outcome.rescheduled {
        Rescheduled::Done(fates) => {
            let (partition, due_at) = (outcome.partition, Some(outcome.due_at));
            answer(Control { id, partition, status: "rescheduled", due_at, buffered: false, groups: vec![] }, &fates)
        }
        Rescheduled::Changed(group) => {
            let detail = format!("message {id} is another one in group {group} than `If-Match` says; nothing changed");
            Err(Problem::new(Class::PreconditionFailed, detail))
        }
        Rescheduled::Expires => Err(Problem::wrong(Fault::Range, "due_at", "is not before it expires")),
    }
}

/// One answer for all groups: see docs/reference/statuses.md.
fn answer(control: Control, fates: &Fates) -> Result<(StatusCode, Reply<Control>), Problem> {
    let (done, id) = (control.status, &control.id);
    let status = |fate: Fate| if fate == Fate::Done { done } else { fate.name() };
    let groups: Vec<GroupFate> =
        fates.0.iter().map(|(group, fate)| GroupFate { group: group.to_string(), status: status(*fate) }).collect();
    let refused = |kind, why: String| {
        let groups = serde_json::to_value(&groups).unwrap_or_default();
        Err(Problem::new(Class::Verb(kind), why).with_groups(groups))
    };
    let names = |fate| fates.of(fate).map(|group| group.as_str()).collect::<Vec<_>>().join(", ");
    match (fates.has(Fate::Done), fates.has(Fate::InFlight), fates.has(Fate::Dead)) {
        (true, false, _) => Ok((StatusCode::OK, Reply(Control { groups, ..control }))),
        (true, true, _) => Ok((StatusCode::MULTI_STATUS, Reply(Control { groups, status: "partly", ..control }))),
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

/// What names the due time and the attempts of a message, so that a change of either is noticed.
pub(crate) fn etag(peeked: &Peeked) -> String {
    format!("\"{}.{}\"", peeked.message.due_at.as_ms(), peeked.attempts)
}

/// What `If-Match` says.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::GroupName;

    #[test]
    fn a_tag_is_read_back_and_garbage_is_refused() -> Result<(), Box<dyn std::error::Error>> {
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
    fn one_answer_for_all_groups() -> crate::model::error::Result<()> {
        let (id, names) = (MessageId::new("a")?, [GroupName::new("default")?, GroupName::new("audit")?]);
        let status = |fates: [Fate; 2]| {
            let (status, partition) = ("cancelled", Partition(0));
            let control = Control { id: id.clone(), partition, status, due_at: None, buffered: false, groups: vec![] };
            let fates = Fates(names.iter().cloned().zip(fates).collect());
            answer(control, &fates).map_or_else(|problem| problem.status(), |(status, _)| status).as_u16()
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
