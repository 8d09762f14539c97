//! Groups: create, get, delete, list, pause, resume, verify.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use dwell_client::wire::dead_letters::Purged;
use dwell_client::wire::groups::{
    Findings, Found, Group, GroupDescription, GroupKeys as Keys, GroupList, KeyLimit as WireKeyLimit, KeyPause,
    KeyState, Member, NewGroup, NewKeyLimit, PauseOf, PurgeOf,
};
use dwell_client::wire::items::{Named, Object};
use utoipa::IntoParams;

use super::authorization::may_see_keys;
use super::document::{BodyProblem, TopicProblem};
use super::field_errors::{FieldError, FieldErrors};
use super::path_params::{GroupPath, KeyPath, NoParams, Params, TopicPath};
use super::problem::Problem;
use super::reply::{self, Reply, ResourcePath};
use super::strict_json::JsonOrDefault;
use super::topics::{counts, partition_state, state_name};
use super::{Admitted, schema};
use crate::broker::{Audit, GroupKeys, GroupRequest, PauseFor, PausedKeys};
use crate::delivery::{HeldKey, KeyLimit};
use crate::model::error::{Error, Fault};
use crate::model::message::{GroupName, Key};
use crate::model::partition::Partition;
use crate::model::time::{Timestamp, one_span};
use crate::model::topic::{Descriptor, Fairness, KeyException, KeyPatterns, KeyRate, Rest, Weight};
use crate::model::window::DeliveryWindow;
use crate::store::{Finding, MemberReport, Purge};

fn request(new: NewGroup) -> Result<GroupRequest, Problem> {
    let copy_of = new.copy_of.map(GroupName::new).transpose().map_err(|error| error.about_field("copy_of"))?;
    let window = new.window.map(|Object(window)| DeliveryWindow::read(window)).transpose().map_err(about_window)?;
    let fair = new.fair.map(|word| Fairness::read(&word)).transpose()?;
    let key_limits = new.key_limits.map(|limits| read_patterns("key_limits", limits, exception)).transpose()?;
    let weights = new.weights.map(|weights| read_patterns("weights", weights, Weight::new)).transpose()?;
    let NewGroup { rate, max_in_flight, key_max_in_flight, key_rate, key_burst, .. } = new;
    Ok(GroupRequest {
        copy_of,
        rate,
        max_in_flight,
        window,
        fair,
        key_max_in_flight,
        key_rate,
        key_burst,
        key_limits,
        weights,
    })
}

fn exception(Object(limit): Object<NewKeyLimit>) -> Result<KeyException, Error> {
    KeyException::new(limit.max_in_flight, limit.rate, limit.burst)
}

fn read_patterns<W, T: Clone>(
    field: &'static str,
    Named(wire): Named<W>,
    read: impl Fn(W) -> Result<T, Error>,
) -> Result<KeyPatterns<T>, Error> {
    let of_pattern = |(pattern, value)| {
        let value = read(value).map_err(|error| match error.field() {
            Some((_, fault, why)) => Error::wrong(fault, field, format!("{pattern:?}: {why}")),
            None => error,
        })?;
        Ok((pattern, value))
    };
    KeyPatterns::new(field, wire.into_iter().map(of_pattern).collect::<Result<_, Error>>()?)
}

fn about_window(error: Error) -> Problem {
    let Some(field) = FieldError::of(&error) else { return error.into() };
    let mut faults = FieldErrors::default();
    faults.add(field.under("/window"));
    Problem::of_faults(faults)
}

fn described(descriptor: &Descriptor, group: &GroupName, now: Timestamp) -> Group {
    let subscription = descriptor.subscription(group);
    let rest = subscription.rest(now);
    Group {
        group: group.to_string(),
        state: state_name(rest).into(),
        paused_until: rest.filter(|rest| !rest.is_closed()).and_then(Rest::until),
        opens_at: rest.filter(|rest| rest.is_closed()).and_then(Rest::until),
        copy_of: subscription.copy_of.map(|source| source.to_string()),
        rate: subscription.rate.map(f64::from),
        max_in_flight: subscription.max_in_flight,
        window: subscription.window.map(Into::into),
        key_max_in_flight: subscription.key_max_in_flight,
        key_rate: subscription.key_rate.map(KeyRate::per_second),
        key_burst: subscription.key_rate.map(KeyRate::burst).filter(|burst| *burst > 1),
        fair: descriptor.is_fair(group).then(|| Fairness::Key.name().into()),
        weights: subscription.weights.iter().map(|(pattern, weight)| (pattern.to_owned(), weight.get())).collect(),
        key_limits: subscription
            .key_limits
            .iter()
            .map(|(pattern, limit)| (pattern.to_owned(), key_limit(*limit)))
            .collect(),
    }
}

fn key_limit(limit: KeyException) -> WireKeyLimit {
    WireKeyLimit { max_in_flight: limit.max_in_flight(), rate: limit.rate(), burst: limit.burst() }
}

fn member(report: MemberReport) -> Member {
    let MemberReport { id, state, version, heard_at } = report;
    let (waiting, owned) = (state.waiting as u64, state.owned as u64);
    Member { member: id.to_string(), version, demand: state.has_demand, waiting, owned, heard_at: Some(heard_at) }
}

fn keys(GroupKeys { keys, is_complete }: GroupKeys, paused: PausedKeys) -> Keys {
    // An owner learns that a key is paused when it asks the store for its messages.
    let paused_until = |key: &Option<Key>| {
        let paused = paused.first.iter().find(|paused| key.as_ref() == Some(&paused.key));
        paused.map(|paused| paused.until)
    };
    let state = |HeldKey { key, ready, in_flight, limit, opens_at }| {
        let paused_until = paused_until(&key).filter(|_| ready > 0);
        let limit = if paused_until.is_some() { Some(KeyLimit::Pause) } else { limit };
        KeyState {
            key: key.map(|key: Key| key.to_string()),
            ready,
            in_flight,
            reason: limit.map(|limit| limit.reason().into()),
            until: paused_until.or(opens_at),
        }
    };
    Keys {
        count: keys.count,
        complete: is_complete,
        busiest: keys.busiest.into_iter().map(state).collect(),
        paused_count: paused.count,
        paused: paused.first.iter().map(|paused| key_pause(&paused.key, Some(paused.until))).collect(),
    }
}

fn key_pause(key: &Key, paused_until: Option<Timestamp>) -> KeyPause {
    KeyPause { key: key.to_string(), paused_until }
}

fn length(pause: PauseOf) -> Result<PauseFor, Problem> {
    match (one_span("for", pause.span, pause.span_ms)?, pause.until) {
        (Some(_), Some(_)) => Err(Problem::wrong(Fault::Exclusive, "for", "is given together with `until`")),
        (Some(span), None) => Ok(PauseFor::Span(span)),
        (None, Some(until)) => Ok(PauseFor::Until(until)),
        (None, None) => Ok(PauseFor::Ever),
    }
}

/// An empty body may be one that was lost on the way.
fn confirmed(purge: PurgeOf) -> Result<PurgeOf, Problem> {
    match purge.all {
        true => Ok(purge),
        false => Err(Problem::wrong(Fault::Missing, "all", "is missing; {\"all\": true} deletes all messages")),
    }
}

/// Create a group, or change its limits.
///
/// A new group gets every message that is pushed from then on, or begins with a copy of another group.
#[utoipa::path(
    put, path = "/v1/topics/{topic}/groups/{group}", operation_id = "createOrUpdateGroup",
    tag = "groups", request_body = Option<NewGroup>,
    params(GroupPath),
    responses(
        (status = 201, description = "The group was created", body = Group,
         headers(("Location" = String, description = "Path of the group"))),
        (status = 200, description = "The group existed", body = Group),
        Problem, TopicProblem, BodyProblem,
    )
)]
pub(crate) async fn create_or_update(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    new: JsonOrDefault<NewGroup>,
) -> Result<Response, Problem> {
    let made = app.broker().create_group(&topic, &group, new.read(request)?).await?;
    let place = ResourcePath(&[("topics", topic.as_str()), ("groups", group.as_str())]);
    let body = described(&made.descriptor, &group, app.broker().now());
    Ok(reply::created(reply::created_status(made.created), &place, body))
}

/// Get a group with its state, counts and members.
///
/// Counts are given in total and for each partition. Members are the brokers that consume for the group.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/groups/{group}", operation_id = "getGroup",
    tag = "groups",
    params(GroupPath),
    responses((status = 200, description = "The group", body = GroupDescription), Problem, TopicProblem)
)]
pub(crate) async fn get(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
) -> Result<Reply<GroupDescription>, Problem> {
    let (descriptor, stats) = app.broker().group(&topic, &group).await?;
    let members = app.broker().members(&topic, &group).await?.into_iter().map(member).collect();
    let keys = match app.pass().actor().is_some_and(|actor| may_see_keys(actor.scopes)) {
        true => match app.broker().keys(&descriptor, &group, &stats).await? {
            Some(of_owners) => Some(keys(of_owners, app.broker().paused_keys(&descriptor, &group).await?)),
            None => None,
        },
        false => None,
    };
    let totals = counts(stats.iter().map(|(_, stats)| stats));
    let group = described(&descriptor, &group, app.broker().now());
    let partitions = stats.into_iter().map(partition_state).collect();
    Ok(Reply(GroupDescription { group, totals, partitions, members, keys }))
}

/// Delete a group with all its messages.
///
/// Messages in flight and dead letters go too. When the answer is lost, repeat the request.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}/groups/{group}", operation_id = "deleteGroup",
    tag = "groups",
    params(GroupPath),
    responses((status = 204, description = "The group is gone"), Problem, TopicProblem)
)]
pub(crate) async fn delete(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
) -> Result<StatusCode, Problem> {
    app.broker().delete_group(&topic, &group).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete all messages of a group.
///
/// Also those in flight, whose receipts become stale; other groups keep theirs. Messages pushed before the request are gone
/// once it is answered, also those that brokers have buffered. A repeated request also deletes messages pushed since.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/purge", operation_id = "purgeGroup",
    tag = "groups", request_body = PurgeOf,
    params(GroupPath),
    responses((status = 200, description = "How many", body = Purged), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn purge(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    of: JsonOrDefault<PurgeOf>,
) -> Result<Reply<Purged>, Problem> {
    let PurgeOf { dead_letters, dry_run, .. } = of.read(confirmed)?;
    let purge = Purge { group, dead_letters };
    if dry_run {
        let matching = Some(app.broker().count_purge(&topic, &purge).await?);
        return Ok(Reply(Purged { matching, ..Purged::default() }));
    }
    let purged = app.broker().purge_group(&topic, &purge).await?;
    Ok(Reply(Purged { purged: purged.messages + purged.dead_letters, ..Purged::default() }))
}

/// List the groups of a topic.
///
/// Each with its state and limits.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/groups", operation_id = "listGroups",
    tag = "groups",
    params(TopicPath),
    responses((status = 200, description = "Its groups", body = GroupList), Problem, TopicProblem)
)]
pub(crate) async fn list(app: Admitted, TopicPath(topic): TopicPath, _: NoParams) -> Result<Reply<GroupList>, Problem> {
    let (descriptor, now) = (app.broker().topic(&topic).await?, app.broker().now());
    Ok(Reply(GroupList { groups: descriptor.groups.iter().map(|group| described(&descriptor, group, now)).collect() }))
}

/// Pause a group.
///
/// Nothing is delivered until the group is resumed or the pause ends. Deliveries in flight may still be settled.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/pause", operation_id = "pauseGroup",
    tag = "groups", request_body = Option<PauseOf>,
    params(GroupPath),
    responses((status = 200, description = "It is paused", body = Group), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn pause(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    pause: JsonOrDefault<PauseOf>,
) -> Result<Reply<Group>, Problem> {
    let pause = pause.read(length)?;
    let descriptor = app.broker().pause_group(&topic, &group, pause).await?;
    Ok(Reply(described(&descriptor, &group, app.broker().now())))
}

/// Resume a group.
///
/// A group that is not paused stays as it is.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/resume", operation_id = "resumeGroup",
    tag = "groups",
    params(GroupPath),
    responses((status = 200, description = "It continues", body = Group), Problem, TopicProblem)
)]
pub(crate) async fn resume(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
) -> Result<Reply<Group>, Problem> {
    let descriptor = app.broker().resume_group(&topic, &group).await?;
    Ok(Reply(described(&descriptor, &group, app.broker().now())))
}

/// Pause a key of a fair group.
///
/// No message of the key is delivered from the answer on until the key is resumed or the pause ends; those of other keys do not wait for
/// it. Deliveries in flight may still be settled. Another pause of the key takes the place of the first.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/keys/{key}/pause", operation_id = "pauseKey",
    tag = "groups", request_body = PauseOf,
    params(KeyPath),
    responses((status = 200, description = "It is paused", body = KeyPause), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn pause_key(
    app: Admitted,
    KeyPath(topic, group, key): KeyPath,
    _: NoParams,
    pause: JsonOrDefault<PauseOf>,
) -> Result<Reply<KeyPause>, Problem> {
    let pause = pause.read(length)?;
    let until = app.broker().pause_key(&topic, &group, &key, pause).await?;
    Ok(Reply(key_pause(&key, Some(until))))
}

/// Resume a key of a fair group.
///
/// A key that is not paused stays as it is.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/keys/{key}/resume", operation_id = "resumeKey",
    tag = "groups",
    params(KeyPath),
    responses((status = 200, description = "It continues", body = KeyPause), Problem, TopicProblem)
)]
pub(crate) async fn resume_key(
    app: Admitted,
    KeyPath(topic, group, key): KeyPath,
    _: NoParams,
) -> Result<Reply<KeyPause>, Problem> {
    app.broker().resume_key(&topic, &group, &key).await?;
    Ok(Reply(key_pause(&key, None)))
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct VerifyParams {
    /// The `next_cursor` of the answer before.
    #[param(value_type = Option<schema::Cursor>)]
    cursor: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for VerifyParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<VerifyParams, Problem> {
        let params = Params::read(parts.uri.query(), &["cursor"])?;
        Ok(VerifyParams { cursor: params.get("cursor").map(str::to_owned) })
    }
}

fn findings(audit: Audit) -> Findings {
    let found = |(partition, finding): (Partition, Finding)| Found {
        id: finding.id,
        partition: partition.0,
        defect: finding.defect.name().into(),
    };
    let findings = audit.findings.into_iter().map(found).collect();
    Findings { seen: audit.seen, findings, next_cursor: audit.next }
}

/// Verify that the stored data of a group is consistent.
///
/// A request works for half a second and changes nothing; `next_cursor` is where the next one continues.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/groups/{group}/verify", operation_id = "verifyGroup",
    tag = "groups",
    params(GroupPath, VerifyParams),
    responses((status = 200, description = "Findings", body = Findings), Problem, TopicProblem)
)]
pub(crate) async fn verify(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    params: VerifyParams,
) -> Result<Reply<Findings>, Problem> {
    let audit = app.broker().audit(&topic, &group, params.cursor.as_deref(), false).await.map_err(Problem::of_query)?;
    Ok(Reply(findings(audit)))
}

/// Verify the stored data of a group and repair it.
///
/// As the request that only verifies, but it repairs each page in one step, while producers and consumers work.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/verify", operation_id = "repairGroup",
    tag = "groups",
    params(GroupPath, VerifyParams),
    responses((status = 200, description = "Findings, which are repaired", body = Findings), Problem, TopicProblem)
)]
pub(crate) async fn repair(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    params: VerifyParams,
) -> Result<Reply<Findings>, Problem> {
    let audit = app.broker().audit(&topic, &group, params.cursor.as_deref(), true).await.map_err(Problem::of_query)?;
    Ok(Reply(findings(audit)))
}
