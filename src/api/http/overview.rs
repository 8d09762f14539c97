//! The first things that an operator looks at: recent traffic, reasons to act, and the brokers of the fleet.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use dwell_client::wire::operations::{AttentionItem, AttentionList, BrokerList, ListedBroker};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::document::StoreProblem;
use super::path_params::{NoParams, Params};
use super::problem::Problem;
use super::reply::Reply;
use super::{Admitted, schema};
use crate::broker::{Concern, FleetBroker, Point, Sample};
use crate::model::time::{Timestamp, ms_up};
use crate::store::MemberId;

/// The recent traffic of this broker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"member": "web-1-k3v9x2", "step_ms": 10000, "samples": [{"at": "2026-01-02T03:04:10Z", "pushed": 12, "delivered": 10, "retried": 1,
    "expired": 0, "lateness_p50_ms": 1.2, "lateness_p99_ms": 4.8, "backlog": 3, "takeovers": 0,
    "topics": [{"topic": "orders", "pushed": 12, "delivered": 10, "retried": 1, "expired": 0, "lateness_p50_ms": 1.2,
    "lateness_p99_ms": 4.8, "backlog": 3}]}]}
)))]
pub(crate) struct Traffic {
    /// Name of the broker.
    member: String,
    /// How long each sample is.
    step_ms: u64,
    /// At most 180, the oldest first.
    samples: Vec<TrafficSample>,
}

/// The traffic of a step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrafficSample {
    /// Its end.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    #[serde(flatten)]
    total: TrafficCounts,
    /// Partitions that this broker acquired with messages in flight, because their owner ended without a stop.
    takeovers: u32,
    /// The busiest topics, at most 40; a topic without traffic and backlog is absent. `other` are those past the 200th.
    topics: Vec<TopicTraffic>,
}

/// The traffic of a topic in a step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopicTraffic {
    /// Name of the topic.
    #[schema(value_type = schema::TopicName)]
    topic: String,
    #[serde(flatten)]
    counts: TrafficCounts,
}

/// Events of a step, and the backlog at its end.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrafficCounts {
    /// Pushes that were accepted.
    pushed: u32,
    /// Messages that were delivered, to all groups together.
    delivered: u32,
    /// Of the delivered messages, those that were not the first delivery of their message.
    retried: u32,
    /// Messages that expired before they were delivered.
    expired: u32,
    /// Half of the deliveries were at most so late; absent without deliveries.
    #[serde(skip_serializing_if = "Option::is_none")]
    lateness_p50_ms: Option<f32>,
    /// 99 of 100 deliveries were at most so late; an hour stands for all above.
    #[serde(skip_serializing_if = "Option::is_none")]
    lateness_p99_ms: Option<f32>,
    /// Messages ready or in flight in the whole store, in the group that has most; absent while the store is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog: Option<u32>,
}

impl From<Point> for TrafficCounts {
    fn from(point: Point) -> TrafficCounts {
        let Point { pushed, delivered, retried, released: _, expired, lateness_ms, backlog } = point;
        let [p50, p99] = lateness_ms.map_or([None; 2], |late| late.map(Some));
        TrafficCounts { pushed, delivered, retried, expired, lateness_p50_ms: p50, lateness_p99_ms: p99, backlog }
    }
}

impl From<&Sample> for TrafficSample {
    fn from(sample: &Sample) -> TrafficSample {
        let Sample { at, total, takeovers, topics } = sample;
        let topics =
            topics.iter().map(|(topic, point)| TopicTraffic { topic: topic.to_string(), counts: (*point).into() });
        TrafficSample { at: *at, total: (*total).into(), takeovers: *takeovers, topics: topics.collect() }
    }
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrafficParams {
    /// Only samples that ended after this time. Default: all.
    #[param(value_type = Option<schema::Time>)]
    after: Option<Timestamp>,
}

impl<S: Sync> FromRequestParts<S> for TrafficParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<TrafficParams, Problem> {
        let params = Params::read(parts.uri.query(), &["after"])?;
        Ok(TrafficParams { after: params.time("after")? })
    }
}

/// Get the traffic of this broker in the last 30 minutes.
///
/// A sample every 10 s, kept in memory. Other brokers have their own.
#[utoipa::path(
    get, path = "/v1/traffic", operation_id = "getTraffic",
    tag = "operations",
    params(TrafficParams),
    responses((status = 200, description = "The samples", body = Traffic), Problem, StoreProblem)
)]
pub(crate) async fn traffic(app: Admitted, params: TrafficParams) -> Reply<Traffic> {
    let broker = &app.broker();
    let samples = broker.traffic(params.after).iter().map(|sample| sample.as_ref().into()).collect();
    Reply(Traffic { member: broker.member().to_string(), step_ms: ms_up(broker.traffic_step()), samples })
}

fn attention_item(concern: &Concern) -> AttentionItem {
    let Concern { kind, place, cause } = concern;
    let topic = place.as_ref().map(|(topic, _)| topic.to_string());
    let group = place.as_ref().and_then(|(_, group)| group.as_ref()).map(ToString::to_string);
    AttentionItem {
        kind: kind.name().into(),
        topic,
        group,
        cause: cause.clone(),
        alert: kind.alert().map(str::to_owned),
    }
}

/// List what needs attention.
///
/// Late messages, groups without consumers, pauses, retries, dead letters and dropped messages of the last 30 minutes, and the state of the store,
/// each with its cause. The answer may be 2 s old.
#[utoipa::path(
    get, path = "/v1/attention", operation_id = "listAttention",
    tag = "operations",
    responses((status = 200, description = "What needs attention", body = AttentionList), Problem, StoreProblem)
)]
pub(crate) async fn attention(app: Admitted, _: NoParams) -> Result<Reply<AttentionList>, Problem> {
    let found = app.broker().attention().await?;
    let attention = found.concerns.iter().map(attention_item).collect();
    Ok(Reply(AttentionList { attention, topics_seen: found.topics_seen, topics: found.topics }))
}

fn listed((member, broker): (MemberId, FleetBroker)) -> ListedBroker {
    let FleetBroker { version, is_here, groups, demanded, waiting, owned, wal, process, heard_at } = broker;
    let (journal_records, journal_bytes) = process.map_or((0, 0), |process| process.journal);
    ListedBroker {
        member: member.to_string(),
        version,
        here: is_here,
        groups,
        demanded,
        waiting,
        owned,
        wal_records: wal.records,
        wal_bytes: wal.bytes,
        wal_limit_bytes: wal.limit_bytes,
        started_at: process.map(|process| process.started_at),
        doing: process.map_or("unknown", |process| process.doing.name()).into(),
        journal_records,
        journal_bytes,
        clock_ahead_ms: process.map(|process| process.clock_ahead_ms),
        heard_at: Some(heard_at),
    }
}

/// List the brokers that share the store.
///
/// Also those that only take pushes. Each says every 15 seconds that it is there, and what it does; a broker that was killed is listed for
/// up to 50 seconds. The counts of groups are those of the first 500 topics.
#[utoipa::path(
    get, path = "/v1/brokers", operation_id = "listBrokers",
    tag = "operations",
    responses((status = 200, description = "The brokers", body = BrokerList), Problem, StoreProblem)
)]
pub(crate) async fn brokers(app: Admitted, _: NoParams) -> Result<Reply<BrokerList>, Problem> {
    Ok(Reply(BrokerList { brokers: app.broker().brokers().await?.into_iter().map(listed).collect() }))
}
