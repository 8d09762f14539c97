//! Topics: create, get, delete, list, move.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use dwell_client::wire::topics::{
    Counts, GroupTotals, MoveTo, Moved, PartitionState, Topic, TopicDescription, TopicList, TopicSettings,
};

use super::document::{BodyProblem, MatchProblem, StoreProblem, TopicProblem};
use super::origin_guard::single;
use super::path_params::{NoParams, TopicPath};
use super::problem::{Class, Problem};
use super::reply::{self, Reply, ResourcePath, tagged};
use super::strict_json::{Json, JsonOrDefault};
use super::{Admitted, schema};
use crate::broker::Precondition;
use crate::model::error::{Error, Fault, Kind};
use crate::model::message::{GroupName, TopicName};
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition, Rest, Settings};
use crate::store::PartitionStats;

fn topic_of(descriptor: &Descriptor) -> Topic {
    Topic {
        topic: descriptor.topic.to_string(),
        groups: descriptor.groups.iter().map(GroupName::to_string).collect(),
        settings: descriptor.settings.clone().into(),
    }
}

pub(super) fn state_name(rest: Option<Rest>) -> &'static str {
    match rest {
        None => "active",
        Some(Rest::Copying) => "copying",
        Some(Rest::Paused(_)) => "paused",
        Some(Rest::Closed { .. }) => "closed",
    }
}

pub(super) fn counts<'a>(partitions: impl IntoIterator<Item = &'a PartitionStats>) -> Counts {
    partitions.into_iter().fold(Counts::default(), |mut sum, stats| {
        sum.scheduled += stats.scheduled;
        sum.ready += stats.ready;
        sum.blocked += stats.blocked;
        sum.backoff += stats.backoff;
        sum.in_flight += stats.in_flight;
        sum.dead += stats.dead;
        sum.oldest_ready_age_ms = sum.oldest_ready_age_ms.max(stats.oldest_ready_age);
        sum
    })
}

pub(super) fn partition_state((group_partition, stats): (GroupPartition, PartitionStats)) -> PartitionState {
    PartitionState {
        partition: group_partition.partition.0,
        group: group_partition.group.to_string(),
        counts: counts([&stats]),
        next_due_at: stats.head,
        owner: stats.owner.map(|owner| owner.to_string()),
    }
}

fn described(
    descriptor: &Descriptor,
    stats: Vec<(GroupPartition, PartitionStats)>,
    now: Timestamp,
) -> TopicDescription {
    let total = |group: &GroupName| {
        let of_group = stats.iter().filter(|(partition, _)| partition.group == *group).map(|(_, stats)| stats);
        let state = state_name(descriptor.subscription(group).rest(now)).into();
        GroupTotals { group: group.to_string(), state, counts: counts(of_group) }
    };
    let totals = descriptor.groups.iter().map(total).collect();
    let partitions = stats.into_iter().map(partition_state).collect();
    TopicDescription { topic: topic_of(descriptor), totals, partitions }
}

/// Create a topic, or change its settings.
///
/// Settings that the body names change, others stay. Repeating the request changes nothing, so every producer may create
/// its topic at its start.
#[utoipa::path(
    put, path = "/v1/topics/{topic}", operation_id = "createOrUpdateTopic",
    tag = "topics", request_body = Option<TopicSettings>,
    params(
        TopicPath,
        ("If-Match" = Option<schema::TopicEtag>, Header, description = "The `ETag` that the topic has to have; `*`: it has to exist")
    ),
    responses(
        (status = 201, description = "The topic was created", body = Topic,
         headers(("Location" = String, description = "Path of the topic"), ("ETag" = schema::TopicEtag, description = "Its version"))),
        (status = 200, description = "The topic existed", body = Topic,
         headers(("ETag" = schema::TopicEtag, description = "Its version"))),
        Problem, TopicProblem, BodyProblem, MatchProblem,
    )
)]
pub(crate) async fn create_or_update(
    app: Admitted,
    TopicPath(topic): TopicPath,
    _: NoParams,
    headers: HeaderMap,
    settings: JsonOrDefault<TopicSettings>,
) -> Result<Response, Problem> {
    let precondition = precondition(&headers)?;
    let settings = settings.read(|settings| {
        Settings::default().changed_by(settings.clone())?;
        Ok(settings)
    })?;
    let base = match app.broker().topic(&topic).await {
        // Settings that the body does not name are kept from this version, so it must be the expected one.
        Ok(descriptor) => {
            precondition.check(&topic, Some(&descriptor)).map_err(|error| unmatched(precondition, error))?;
            descriptor.settings.clone()
        }
        Err(error) if error.kind() == Kind::NotFound => app.broker().topic_defaults().clone(),
        Err(error) => return Err(error.into()),
    };
    let declared = app.broker().declare_if(topic.clone(), base.changed_by(settings)?, precondition).await;
    let declared = declared.map_err(|error| unmatched(precondition, error))?;
    let (status, place) = (reply::created_status(declared.created), ResourcePath(&[("topics", topic.as_str())]));
    let answer = reply::created(status, &place, topic_of(&declared.descriptor));
    Ok(tagged(answer, &declared.descriptor))
}

/// Get a topic with its settings and counts.
///
/// Counts are given for each group, and for each partition of each group.
#[utoipa::path(
    get, path = "/v1/topics/{topic}", operation_id = "getTopic",
    tag = "topics",
    params(TopicPath),
    responses(
        (status = 200, description = "The topic", body = TopicDescription,
         headers(("ETag" = schema::TopicEtag, description = "Version of its settings and groups"))),
        Problem, TopicProblem,
    )
)]
pub(crate) async fn get(app: Admitted, TopicPath(topic): TopicPath, _: NoParams) -> Result<Response, Problem> {
    let descriptor = app.broker().topic(&topic).await?;
    let stats = app.broker().stats(&topic).await?;
    let answer = Reply(described(&descriptor, stats, app.broker().now())).into_response();
    Ok(tagged(answer, &descriptor))
}

/// Delete a topic with all its messages.
///
/// Messages in flight go too; their receipts become stale.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}", operation_id = "deleteTopic",
    tag = "topics",
    params(
        TopicPath,
        ("If-Match" = Option<schema::TopicEtag>, Header, description = "The `ETag` that the topic has to have")
    ),
    responses(
        (status = 204, description = "The topic is gone"),
        Problem, TopicProblem, MatchProblem,
    )
)]
pub(crate) async fn delete(
    app: Admitted,
    TopicPath(topic): TopicPath,
    _: NoParams,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let precondition = precondition(&headers)?;
    let deleted = app.broker().delete_topic_if(&topic, precondition).await;
    deleted.map_err(|error| unmatched(precondition, error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the names of all topics.
///
/// Names are sorted.
#[utoipa::path(
    get, path = "/v1/topics", operation_id = "listTopics",
    tag = "topics",
    responses(
        (status = 200, description = "All topics", body = TopicList),
        Problem, StoreProblem,
    )
)]
pub(crate) async fn list(app: Admitted, _: NoParams) -> Result<Reply<TopicList>, Problem> {
    let topics = app.broker().topics().await?;
    Ok(Reply(TopicList { topics: topics.iter().map(ToString::to_string).collect() }))
}

/// Move the messages of a topic to another topic.
///
/// The way to another number of partitions. A request works for 5 s; repeat it until it is `done`.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/move", operation_id = "moveTopic",
    tag = "topics", request_body = MoveTo,
    params(TopicPath),
    responses((status = 200, description = "How far it came", body = Moved), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn move_topic(
    app: Admitted,
    TopicPath(topic): TopicPath,
    _: NoParams,
    wanted: Json<MoveTo>,
) -> Result<Reply<Moved>, Problem> {
    let (to, partitions) = wanted.read(|MoveTo { to, partitions }| {
        let to = TopicName::new(to).map_err(|error| error.about_field("to"))?;
        Ok((to, partitions))
    })?;
    let moved = app.broker().move_topic(&topic, &to, partitions).await?;
    Ok(Reply(Moved {
        moved: moved.waiting,
        dead: moved.dead,
        duplicates: moved.there_already,
        in_flight: moved.in_flight,
        done: moved.done,
    }))
}

fn precondition(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let Some(text) = single(headers, header::IF_MATCH)? else { return Ok(Precondition::None) };
    if text.trim() == "*" {
        return Ok(Precondition::Exists);
    }
    let tag = text.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let generation = tag.filter(|tag| tag.bytes().all(|digit| digit.is_ascii_digit())).and_then(|tag| tag.parse().ok());
    let wrong = || Problem::of_header("If-Match", Fault::Format, "is not one `ETag` that dwell gave, or `*`");
    generation.map(Precondition::Generation).ok_or_else(wrong)
}

fn unmatched(precondition: Precondition, error: Error) -> Problem {
    match (precondition, error.kind()) {
        (Precondition::Exists | Precondition::Generation(_), Kind::Stale) => {
            Problem::new(Class::PreconditionFailed, error.detail().to_owned())
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn if_match_accepts_one_etag_or_any() {
        let read = |text: &'static str| {
            precondition(&HeaderMap::from_iter([(header::IF_MATCH, HeaderValue::from_static(text))])).ok()
        };
        assert_eq!(precondition(&HeaderMap::new()).ok(), Some(Precondition::None));
        assert_eq!(read("\"4711\""), Some(Precondition::Generation(4_711)));
        assert_eq!(read("*"), Some(Precondition::Exists));
        for bad in ["", "4711", "\"\"", "\"-1\"", "\"+1\"", "W/\"1\"", "\"1\", \"2\"", "\"1.2\""] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
