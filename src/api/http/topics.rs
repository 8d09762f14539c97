//! Topics: create, get, delete, list, move.

use std::num::NonZeroU16;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use dwell_client::wire::items::Object;
use dwell_client::wire::topics::{Counts, GroupTotals, MoveTo, Moved, PartitionState, TopicList};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::document::{BodyProblem, MatchProblem, StoreProblem, TopicProblem};
use super::origin_guard::single;
use super::path_params::{NoParams, TopicPath};
use super::problem::{Class, Problem};
use super::reply::{self, Reply, ResourcePath, tagged};
use super::strict_json::{Json, JsonOrDefault, present};
use super::{Admitted, schema};
use crate::broker::Precondition;
use crate::model::error::{Error, Fault, Kind, Result};
use crate::model::message::{GroupName, TopicName};
use crate::model::retry::Backoff;
use crate::model::time::{Timestamp, millis, one_span, span};
use crate::model::topic::{Annotations, DeadLetterTopic, Descriptor, Expiry, GroupPartition, Ordering, Rest, Settings};
use crate::store::PartitionStats;

/// Settings of a topic. A field that is absent stays unchanged, or has its default in a new topic.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"partitions": 8, "visibility_timeout": "30s", "max_attempts": 16})))]
pub(crate) struct TopicSettings {
    /// 1 to 1,024; cannot be changed later. Default 8.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 1024)]
    partitions: Option<NonZeroU16>,
    /// How long a consumer has to settle a delivery, 100 ms to 12 h. Default 30 s.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    visibility_timeout: Option<Duration>,
    /// The same in milliseconds; not together with `visibility_timeout`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 30000)]
    visibility_timeout_ms: Option<Duration>,
    /// Attempts before a message is dead, up to 1,000; 0 is without a limit. Default 16.
    #[serde(default, deserialize_with = "present")]
    #[schema(minimum = 0, maximum = 1000)]
    max_attempts: Option<u32>,
    /// The delay between attempts: `{kind: "exponential", initial, max, factor, jitter}` or `{kind: "ladder", steps}`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Backoff>)]
    backoff: Option<Backoff>,
    /// How long after a message was acked a push with its id is still a duplicate, at most 7 d. Default 0.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    dedup_window: Option<Duration>,
    /// The same in milliseconds; not together with `dedup_window`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 600000)]
    dedup_window_ms: Option<Duration>,
    /// `key`: the messages of a key one after the other; cannot be changed later. Default `none`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Ordering>)]
    ordering: Option<Ordering>,
    /// How long after its due time a message without its own `ttl` is worth delivering, at most 3,650 d; 0 is
    /// indefinitely. Default 0.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    ttl: Option<Duration>,
    /// The same in milliseconds; not together with `ttl`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 3600000)]
    ttl_ms: Option<Duration>,
    /// Policy for an expired message: `drop` or `bury`. Default `drop`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Expiry>)]
    on_expiry: Option<Expiry>,
    /// How long dead letters are kept, at most 3,650 d; 0 is indefinitely. Default 0.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    dead_max_age: Option<Duration>,
    /// The same in milliseconds; not together with `dead_max_age`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 1209600000)]
    dead_max_age_ms: Option<Duration>,
    /// How many dead letters a group keeps in each partition; 0 is all. Default 0.
    #[serde(default, deserialize_with = "present")]
    #[schema(minimum = 0, maximum = 10_000_000)]
    dead_max_count: Option<u64>,
    /// Texts about the topic, which dwell does not read. Those that are absent stay; an empty text removes one.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<schema::Annotations>)]
    annotations: Option<Annotations>,
    /// The topic to which messages move that used all attempts or were buried. Default: they stay dead letters.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<DeadLetter>)]
    dead_letter: Option<Object<DeadLetter>>,
}

/// A topic for dead letters.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"topic": "orders-dead"})))]
pub(crate) struct DeadLetter {
    /// Name of the topic, another one; empty for none. It should exist: until it does, dead letters stay in their group.
    #[schema(value_type = schema::TopicNameOrNone)]
    topic: String,
}

impl DeadLetter {
    fn read(self) -> Result<Option<DeadLetterTopic>> {
        let topic = (!self.topic.is_empty()).then(|| TopicName::new(self.topic)).transpose()?;
        Ok(topic.map(|topic| DeadLetterTopic { topic }))
    }
}

impl TopicSettings {
    fn over(self, base: Settings) -> Result<Settings> {
        let settings = Settings {
            partitions: self.partitions.unwrap_or(base.partitions),
            visibility_timeout: one_span("visibility_timeout", self.visibility_timeout, self.visibility_timeout_ms)?
                .unwrap_or(base.visibility_timeout),
            max_attempts: self.max_attempts.unwrap_or(base.max_attempts),
            backoff: self.backoff.unwrap_or(base.backoff),
            dedup_window: one_span("dedup_window", self.dedup_window, self.dedup_window_ms)?
                .unwrap_or(base.dedup_window),
            ordering: self.ordering.unwrap_or(base.ordering),
            ttl: one_span("ttl", self.ttl, self.ttl_ms)?.unwrap_or(base.ttl),
            on_expiry: self.on_expiry.unwrap_or(base.on_expiry),
            dead_max_age: one_span("dead_max_age", self.dead_max_age, self.dead_max_age_ms)?
                .unwrap_or(base.dead_max_age),
            dead_max_count: self.dead_max_count.unwrap_or(base.dead_max_count),
            annotations: base.annotations.changed_by(self.annotations.unwrap_or_default()),
            dead_letter: match self.dead_letter {
                Some(Object(dead_letter)) => dead_letter.read()?,
                None => base.dead_letter,
            },
        };
        settings.check()?;
        Ok(settings)
    }
}

/// A topic.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({"topic": "orders", "groups": ["default"], "settings": Settings::default()})))]
pub(crate) struct Topic {
    /// Its name.
    #[schema(value_type = schema::TopicName)]
    topic: String,
    /// Its groups, each of which gets every message.
    #[schema(value_type = Vec<schema::GroupName>)]
    groups: Vec<String>,
    /// All its settings.
    #[schema(value_type = TopicSettings)]
    settings: Settings,
}

impl From<&Descriptor> for Topic {
    fn from(descriptor: &Descriptor) -> Topic {
        Topic {
            topic: descriptor.topic.to_string(),
            groups: descriptor.groups.iter().map(GroupName::to_string).collect(),
            settings: descriptor.settings.clone(),
        }
    }
}

/// A topic and what is in it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"topic": "orders", "groups": ["default"], "settings": Settings::default(), "totals": [{"group": "default", "state": "active", "scheduled": 150, "ready": 1, "blocked": 0, "backoff": 0, "in_flight": 0, "dead": 0}],
    "partitions": [{"partition": 0, "group": "default", "scheduled": 150, "ready": 1, "blocked": 0, "backoff": 0, "in_flight": 0, "dead": 0}]}
)))]
pub(crate) struct TopicDescription {
    #[serde(flatten)]
    topic: Topic,
    /// One for every group.
    totals: Vec<GroupTotals>,
    /// One for every partition and group.
    partitions: Vec<PartitionState>,
}

pub(super) fn state_name(rest: Option<Rest>) -> &'static str {
    match rest {
        None => "active",
        Some(Rest::Copying) => "copying",
        Some(Rest::Paused(_)) => "paused",
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

impl TopicDescription {
    fn new(descriptor: &Descriptor, stats: Vec<(GroupPartition, PartitionStats)>, now: Timestamp) -> TopicDescription {
        let total = |group: &GroupName| {
            let of_group = stats.iter().filter(|(partition, _)| partition.group == *group).map(|(_, stats)| stats);
            let state = state_name(descriptor.subscription(group).rest(now)).into();
            GroupTotals { group: group.to_string(), state, counts: counts(of_group) }
        };
        let totals = descriptor.groups.iter().map(total).collect();
        let partitions = stats.into_iter().map(partition_state).collect();
        TopicDescription { topic: Topic::from(descriptor), totals, partitions }
    }
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
        settings.clone().over(Settings::default())?;
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
    let declared = app.broker().declare_if(topic.clone(), settings.over(base)?, precondition).await;
    let declared = declared.map_err(|error| unmatched(precondition, error))?;
    let (status, place) = (reply::created_status(declared.created), ResourcePath(&[("topics", topic.as_str())]));
    let answer = reply::created(status, &place, Topic::from(&declared.descriptor));
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
    let answer = Reply(TopicDescription::new(&descriptor, stats, app.broker().now())).into_response();
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
