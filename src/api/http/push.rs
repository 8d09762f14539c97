//! Pushing one message: the body is the payload, or as `application/json` an envelope like the items of a batch.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use dwell_client::wire::messages::Meta;
use dwell_client::wire::push::{BatchMessage, PushResult};
use serde::de::IgnoredAny;
use utoipa::IntoParams;

use super::document::{BodyProblem, TopicProblem};
use super::message_json::{bytes_of, due_of, payload_of, trace_of, trace_of_headers};
use super::path_params::{Params, TopicPath};
use super::problem::Problem;
use super::reply::{self, ResourcePath};
use super::schema;
use super::strict_json::{media_type, parse};
use super::{Admitted, body};
use crate::broker::PushOutcome;
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{ATTEMPTS_MAX, BATCH_BODY_BYTES_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX};
use crate::model::message::{Conflict, Dedup, DedupKey, Due, Key, MessageId, NewMessage, Past};
use crate::model::time::{Timestamp, one_span};
use crate::platform::request_id::REQUEST_ID;
use crate::store::Pushed;

/// The parameters of a push, which are those of a message but for the last one.
#[rustfmt::skip]
const ACCEPTED: [&str; 19] = [
    "key", "id", "conflict", "debounce_max", "debounce_max_ms", "delay", "delay_ms", "due_at", "past", "spread", "spread_ms", "ttl", "ttl_ms", "max_attempts", "priority",
    "dedup_key", "dedup_for", "dedup_for_ms", "raw",
];

/// Header names arrive in lower case.
const META_PREFIX: &str = "dwell-meta-";

const RAW: &str = "dwell-raw";

/// A header that each post of a webhook has, and no push.
const WEBHOOK: &str = "dwell-attempt";

/// The fields of an envelope that are no parameters.
const ENVELOPE_ALONE: [&str; 8] =
    ["payload", "payload_base64", "payload_json", "content_type", "meta", "attachment", "traceparent", "tracestate"];

const HINT: &str = "a JSON document as the payload is sent with ?raw=true";

const IDEMPOTENCY_KEY: &str = "idempotency-key";

pub(crate) fn result(outcome: PushOutcome) -> PushResult {
    PushResult {
        id: outcome.id.into(),
        partition: outcome.partition.map(|partition| partition.0),
        due_at: Some(outcome.due_at),
        duplicate_of: outcome.duplicate_of.map(String::from),
        differs: outcome.differs,
        status: outcome.pushed.name().into(),
        topic_created: false,
        replicas: Some(outcome.replicas).filter(|replicas| *replicas > 0),
        error: None,
    }
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PushParams {
    /// Decides the partition; without a key the dedup key does, and without both the id.
    #[param(value_type = Option<schema::Key>)]
    key: Option<Key>,
    /// Makes the push repeatable. Default: the header `Idempotency-Key`, and else a new ULID.
    #[param(value_type = Option<schema::MessageId>)]
    id: Option<MessageId>,
    /// Policy if the id exists: `keep`, `reject`, `replace`, `debounce` or `after`. Default `keep`.
    #[param(value_type = Option<schema::ConflictPolicy>)]
    conflict: Option<Conflict>,
    /// How long after its first push the message may be due at the latest. Only with `conflict=debounce`.
    #[param(value_type = Option<schema::Duration>)]
    debounce_max: Option<Duration>,
    /// The same in milliseconds; not together with `debounce_max`.
    #[param(value_type = Option<u64>)]
    debounce_max_ms: Option<Duration>,
    /// A duration from now, at most 3,650 d. Default 0.
    #[param(value_type = Option<schema::Duration>)]
    delay: Option<Duration>,
    /// The same in milliseconds; not together with `delay`.
    #[param(value_type = Option<u64>, example = 1800000)]
    delay_ms: Option<Duration>,
    /// The due time; not together with `delay`.
    #[param(value_type = Option<schema::Time>)]
    due_at: Option<Timestamp>,
    /// Policy if `due_at` is in the past: `now` (it is due at once) or `reject`. Default `now`.
    #[param(value_type = Option<schema::Past>)]
    past: Option<Past>,
    /// The due time moves by up to this, by a value that the id decides: a repeat gets the same.
    #[param(value_type = Option<schema::Duration>)]
    spread: Option<Duration>,
    /// The same in milliseconds; not together with `spread`.
    #[param(value_type = Option<u64>)]
    spread_ms: Option<Duration>,
    /// A duration from the due time, after which it is not delivered. Default: the topic's.
    #[param(value_type = Option<schema::Duration>)]
    ttl: Option<Duration>,
    /// The same in milliseconds; not together with `ttl`.
    #[param(value_type = Option<u64>)]
    ttl_ms: Option<Duration>,
    /// Attempts before it is dead, up to 1,000; 0 is without a limit. Default: the topic's.
    #[param(minimum = 0, maximum = 1000)]
    max_attempts: Option<u32>,
    /// 0 to 9: among the ready messages of a partition higher ones are handed out first. Default 0.
    #[param(value_type = Option<u32>, minimum = 0, maximum = 9)]
    priority: Option<u8>,
    /// Within `dedup_for`, another push with this dedup key to the partition is a duplicate. Only with `conflict=keep`.
    #[param(value_type = Option<schema::DedupKey>)]
    dedup_key: Option<DedupKey>,
    /// How long that lasts, counted from this push: 1 s to 7 d. Required with `dedup_key`.
    #[param(value_type = Option<schema::Duration>)]
    dedup_for: Option<Duration>,
    /// The same in milliseconds; not together with `dedup_for`.
    #[param(value_type = Option<u64>)]
    dedup_for_ms: Option<Duration>,
    /// `true`: the body is the payload, also as `application/json`. Default: the header `Dwell-Raw`, and else `false`.
    raw: Option<bool>,
    /// The first parameter of a message that is given: an envelope must not have any beside it.
    #[param(ignore)]
    of_message: Option<&'static str>,
}

impl<S: Sync> FromRequestParts<S> for PushParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<PushParams, Problem> {
        let params = Params::read(parts.uri.query(), &ACCEPTED)?;
        Ok(PushParams {
            of_message: ACCEPTED.into_iter().find(|name| *name != "raw" && params.get(name).is_some()),
            key: params.read_as("key", Key::new)?,
            id: params.read_as("id", MessageId::new)?,
            conflict: params.read_as("conflict", str::parse)?,
            debounce_max: params.span("debounce_max")?,
            debounce_max_ms: params.millis("debounce_max_ms")?,
            delay: params.span("delay")?,
            delay_ms: params.millis("delay_ms")?,
            due_at: params.time("due_at")?,
            past: params.read_as("past", str::parse)?,
            spread: params.span("spread")?,
            spread_ms: params.millis("spread_ms")?,
            ttl: params.span("ttl")?,
            ttl_ms: params.millis("ttl_ms")?,
            max_attempts: params.number("max_attempts", 0..=ATTEMPTS_MAX)?,
            priority: params.number("priority", 0..=PRIORITY_MAX)?,
            dedup_key: params.read_as("dedup_key", DedupKey::of_producer)?,
            dedup_for: params.span("dedup_for")?,
            dedup_for_ms: params.millis("dedup_for_ms")?,
            raw: params.switch("raw")?,
        })
    }
}

pub(crate) fn message(item: BatchMessage, now: Timestamp) -> Result<NewMessage, Problem> {
    let is_text = item.payload.is_some();
    let (payload, implied) = payload_of(item.payload, item.payload_base64, item.payload_json)?;
    if is_text && item.content_type.as_deref().is_some_and(is_another_charset) {
        let why = "names another charset than UTF-8, which `payload` is in; send the bytes of the other one as `payload_base64`";
        return Err(Problem::wrong(Fault::Exclusive, "content_type", why));
    }
    let past = item.past.as_deref().map(str::parse).transpose()?.unwrap_or_default();
    let message = NewMessage {
        id: item.id.map(MessageId::new).transpose()?,
        conflict: item.conflict.map_or(Ok(Conflict::Keep), |conflict| conflict.parse())?,
        debounce_max: one_span("debounce_max", item.debounce_max, item.debounce_max_ms)?,
        key: item.key.map(Key::new).transpose()?,
        dedup: Dedup::of(
            item.dedup_key.map(DedupKey::of_producer).transpose()?,
            one_span("dedup_for", item.dedup_for, item.dedup_for_ms)?,
        )?,
        due: due_of(one_span("delay", item.delay, item.delay_ms)?, item.due_at, past)?,
        spread: one_span("spread", item.spread, item.spread_ms)?,
        ttl: one_span("ttl", item.ttl, item.ttl_ms)?,
        max_attempts: item.max_attempts,
        priority: item.priority.unwrap_or(0),
        content_type: item.content_type.or_else(|| implied.map(str::to_owned)),
        meta: item.meta.unwrap_or_default().0,
        trace: trace_of(item.traceparent.as_deref(), item.tracestate.as_deref())?,
        attachment: item.attachment.map_or(Ok(Bytes::new()), |text| bytes_of("attachment", &text))?,
        payload,
    };
    message.check(now)?;
    Ok(message)
}

fn is_another_charset(content_type: &str) -> bool {
    let media_type: Option<mime::Mime> = content_type.parse().ok();
    let charset = media_type.as_ref().and_then(|media_type| media_type.get_param(mime::CHARSET));
    charset.is_some_and(|charset| charset != mime::UTF_8 && charset != "us-ascii")
}

impl PushParams {
    fn dedup(&self) -> Result<Option<Dedup>> {
        Dedup::of(self.dedup_key.clone(), one_span("dedup_for", self.dedup_for, self.dedup_for_ms)?)
    }

    fn due(&self) -> Result<Due> {
        due_of(one_span("delay", self.delay, self.delay_ms)?, self.due_at, self.past.unwrap_or_default())
    }
}

/// Push one message: as `application/json` an item of a batch, and otherwise the payload itself.
///
/// The `Content-Type` of a payload and headers `Dwell-Meta-<name>` travel with it.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/messages", operation_id = "pushMessage",
    tag = "producing",
    params(
        TopicPath, PushParams,
        ("Dwell-Raw" = Option<bool>, Header, description = "`true`: the body is the payload, also as `application/json`", example = true),
        ("Idempotency-Key" = Option<schema::MessageId>, Header, description = "The id, if the parameter `id` is absent. While a message with this id and another payload is held, the push is refused (422)"),
        ("traceparent" = Option<String>, Header, description = "W3C Trace Context of the push; ignored if invalid", example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate" = Option<String>, Header, description = "What tracing systems add to `traceparent`", example = "congo=t61rcWkgMzE")
    ),
    request_body(
        content((BatchMessage = "application/json"), (schema::Payload = "application/octet-stream")),
        description = "An envelope, or the payload: any bytes of any other content type"
    ),
    responses(
        (status = 201, description = "The message is stored", body = PushResult,
         headers(("Location" = String, description = "Path of the message"))),
        (status = 202, description = "The store is unavailable: the message is on the local disk, and is replayed later", body = PushResult),
        (status = 200, description = "The id exists, or the dedup key was seen: nothing changed, or the waiting message was replaced or debounced", body = PushResult),
        Problem, TopicProblem, BodyProblem,
    )
)]
pub(crate) async fn push(
    app: Admitted,
    TopicPath(topic): TopicPath,
    params: PushParams,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    check_headers(&headers)?;
    let message = match form_of(&params, &headers)? {
        Form::Envelope => enveloped(&app, &params, &headers, body).await?,
        form => raw(&app, params, &headers, form, body).await?,
    };
    if message.conflict != Conflict::Keep && headers.contains_key(IDEMPOTENCY_KEY) {
        let why = "is given together with `conflict`: it refuses another message of its id; give the id as `id`";
        return Err(Problem::of_header("Idempotency-Key", Fault::Exclusive, why));
    }
    let offer = app.broker().offer(message);
    let id = offer.id().clone();
    let outcome = app.broker().push_offer(&topic, offer).await.map_err(|error| Problem::from(error).with_id(&id))?;
    if outcome.other_content && headers.contains_key(IDEMPOTENCY_KEY) {
        let why = format!("is the one of message {id}, which has another payload: a new message needs a new key");
        return Err(Problem::of_header("Idempotency-Key", Fault::Invalid, why));
    }
    let status = match outcome.pushed {
        Pushed::Stored | Pushed::Behind | Pushed::Journaled => StatusCode::CREATED,
        Pushed::Buffered => StatusCode::ACCEPTED,
        Pushed::Duplicate | Pushed::DuplicateOf(_) | Pushed::Replaced | Pushed::Debounced => StatusCode::OK,
    };
    let topic_created = outcome.topic_created;
    let result = PushResult { topic_created, ..result(outcome) };
    let place = ResourcePath(&[("topics", topic.as_str()), ("messages", id.as_str())]);
    Ok(reply::created(status, &place, result))
}

/// The kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Envelope,
    /// The payload, as the request says.
    Raw,
    /// The payload, as its content type suggests.
    Implied,
}

fn form_of(params: &PushParams, headers: &HeaderMap) -> Result<Form, Problem> {
    let of_header = match headers.get(RAW).map(HeaderValue::as_bytes) {
        None => None,
        Some(b"false") => Some(false),
        Some(b"true") => Some(true),
        Some(_) => return Err(Problem::of_header("Dwell-Raw", Fault::Choice, "is neither true nor false")),
    };
    let raw = params.raw.or(of_header).unwrap_or(false);
    Ok(match media_type(headers).as_deref() {
        _ if raw => Form::Raw,
        Some("application/json") => Form::Envelope,
        _ => Form::Implied,
    })
}

/// A header that was meant for dwell, but is not known, would be lost without a word.
fn check_headers(headers: &HeaderMap) -> Result<(), Problem> {
    let is_known = |name: &str| name.starts_with(META_PREFIX) || [RAW, REQUEST_ID].contains(&name);
    let is_unknown = |name: &str| name.starts_with("dwell-") && !is_known(name);
    let why = "is not a header of a push: there are Dwell-Raw and Dwell-Meta-<name>; a delay is a parameter, as in ?delay=30m";
    expect_none(headers, is_unknown, why)
}

/// A header that belongs to one message says nothing about those of a batch.
pub(crate) fn check_headers_of_batch(headers: &HeaderMap) -> Result<(), Problem> {
    let is_of_one = |name: &str| name == IDEMPOTENCY_KEY || name.starts_with("dwell-") && name != REQUEST_ID;
    let why = "is a header of a single push: give each message of the batch its own fields, such as `id` and `meta`";
    expect_none(headers, is_of_one, why)
}

fn expect_none(headers: &HeaderMap, is_wrong: impl Fn(&str) -> bool, why: &str) -> Result<(), Problem> {
    // A webhook of another broker posts here, with headers that say what it delivers.
    let is_webhook = headers.contains_key(WEBHOOK);
    match headers.keys().find(|name| !is_webhook && is_wrong(name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Problem::of_header(name.as_str(), Fault::Unknown, why)),
    }
}

async fn raw(
    app: &Admitted,
    params: PushParams,
    headers: &HeaderMap,
    form: Form,
    body: Body,
) -> Result<NewMessage, Problem> {
    // All headers and the announced size of the payload are checked before the body is read.
    let mut message = message_of(params, headers)?;
    message.check(app.clock.now()).map_err(of_raw)?;
    message.payload = body::read_for(app, (app.pass(), headers), body, PAYLOAD_BYTES_MAX, "payload").await?;
    if form == Form::Implied && is_meant_otherwise(media_type(headers).as_deref(), &message.payload) {
        let why = "goes with a body that looks like a message with its fields, and would be due at once: send that as application/json \
                   (curl: --json), or say ?raw=true if it is the payload";
        return Err(Problem::of_header("Content-Type", Fault::Choice, why));
    }
    Ok(message)
}

/// Whether a body is probably a multipart form, an envelope (an object of its fields alone, with a payload), or a form of its fields.
fn is_meant_otherwise(media_type: Option<&str>, body: &[u8]) -> bool {
    let is_field = |name: &str| ACCEPTED.contains(&name) || ENVELOPE_ALONE.contains(&name);
    let body = body.trim_ascii();
    match media_type {
        Some(multipart) if multipart.starts_with("multipart/") => true,
        Some("application/x-www-form-urlencoded") if !body.starts_with(b"{") => {
            let names =
                body.split(|byte| *byte == b'&').map(|pair| pair.split(|byte| *byte == b'=').next().unwrap_or(pair));
            let mut names = names.map(|name| std::str::from_utf8(name).unwrap_or_default());
            body.contains(&b'=') && names.all(is_field)
        }
        _ => {
            let fields = || serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body).ok();
            let is_envelope = |fields: BTreeMap<String, IgnoredAny>| {
                fields.keys().any(|name| name.starts_with("payload")) && fields.keys().all(|name| is_field(name))
            };
            body.starts_with(b"{") && fields().is_some_and(is_envelope)
        }
    }
}

async fn enveloped(
    app: &Admitted,
    params: &PushParams,
    headers: &HeaderMap,
    body: Body,
) -> Result<NewMessage, Problem> {
    if let Some(name) = params.of_message {
        let why = format!("is a field of an envelope, not a parameter beside one; {HINT}");
        return Err(Problem::of_parameter(name, Fault::Exclusive, why));
    }
    if let Some(name) = headers.keys().find(|name| name.as_str().starts_with(META_PREFIX)) {
        let why = format!("belongs into `meta` of the envelope; {HINT}");
        return Err(Problem::of_header(name.as_str(), Fault::Exclusive, why));
    }
    let bytes = body::read_for(app, (app.pass(), headers), body, BATCH_BODY_BYTES_MAX, "body").await?;
    let now = app.clock.now();
    let message = parse(&bytes, |item: BatchMessage| self::message(item, now));
    let mut message = message.map_err(|problem| problem.hinting(HINT))?;
    message.id = id_of(message.id, headers)?;
    message.trace = message.trace.or_else(|| trace_of_headers(headers));
    message.check(now)?;
    Ok(message)
}

fn of_raw(error: Error) -> Problem {
    match error.field() {
        Some(("content_type", fault, why)) => Problem::of_header("Content-Type", fault, why),
        Some(("meta", fault, why)) => Problem::of_header("Dwell-Meta", fault, why),
        _ => Problem::of_query(error),
    }
}

fn message_of(params: PushParams, headers: &HeaderMap) -> Result<NewMessage, Problem> {
    let due = params.due().map_err(Problem::of_query)?;
    let dedup = params.dedup().map_err(Problem::of_query)?;
    Ok(NewMessage {
        id: id_of(params.id, headers)?,
        conflict: params.conflict.unwrap_or_default(),
        debounce_max: one_span("debounce_max", params.debounce_max, params.debounce_max_ms)
            .map_err(Problem::of_query)?,
        key: params.key,
        dedup,
        due,
        spread: one_span("spread", params.spread, params.spread_ms).map_err(Problem::of_query)?,
        ttl: one_span("ttl", params.ttl, params.ttl_ms).map_err(Problem::of_query)?,
        max_attempts: params.max_attempts,
        priority: params.priority.unwrap_or(0),
        content_type: content_type_of(headers)?,
        meta: meta_of(headers)?,
        trace: trace_of_headers(headers),
        attachment: Bytes::new(),
        payload: Bytes::new(),
    })
}

fn id_of(id: Option<MessageId>, headers: &HeaderMap) -> Result<Option<MessageId>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(id) };
    if id.is_some() || values.next().is_some() {
        return Err(Problem::of_header(IDEMPOTENCY_KEY, Fault::Repeated, "is given twice, or together with `id`"));
    }
    let wrong = |why: &str| Problem::of_header(IDEMPOTENCY_KEY, Fault::Format, why);
    let text = value.to_str().map_err(|_| wrong("an id has only visible ASCII characters without spaces"))?;
    MessageId::new(text).map(Some).map_err(|error| wrong(error.field().map_or(error.detail(), |(_, _, why)| why)))
}

fn content_type_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(Problem::of_header("content-type", Fault::Repeated, "is given twice"));
    }
    let text = value.map(|value| value.to_str().map(str::to_owned)).transpose();
    text.map_err(|_| Problem::of_header("content-type", Fault::Format, "has only visible ASCII characters"))
}

fn meta_of(headers: &HeaderMap) -> Result<Vec<(String, String)>, Problem> {
    let mut meta = Meta::default();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(META_PREFIX) else { continue };
        let value = String::from_utf8(value.as_bytes().to_vec())
            .map_err(|_| Problem::malformed(format!("the header `{META_PREFIX}{name}` is not UTF-8")))?;
        meta.0.push((name.to_owned(), value));
    }
    meta.check().map_err(|why| Problem::of_header("Dwell-Meta", Fault::Repeated, why))?;
    Ok(meta.0)
}
