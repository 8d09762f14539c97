//! Requests to the whole router that are answered without the store.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, Uri, header};
use axum::routing::post;
use bytes::Bytes;
use dwell_client::wire::operations::Reloaded;
use flate2::read::GzDecoder;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::*;
use crate::broker::{Broker, Options};
use crate::model::error::{Error, Result};
use crate::model::message::{Conflict, CronJobName, GroupName, Key, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::model::version::Version;
use crate::platform::clock::Clock;
use crate::platform::signing_key::SigningKey;
use crate::platform::tasks::Tasks;
use crate::store::{
    self, Acquired, Call, Cancelled, Claim, Copied, CopyCursor, CronJobChange, CronJobDeletion, CronJobRecord,
    DeadLetterOutlinePage, DeadLetterPage, DeadLetterRange, DeadLetterRetention, Description, DroppedDeadLetters,
    Fired, Firing, Forecast, Forward, Forwarded, HandedOver, HealthSnapshot, Heartbeat, InFlightCursor, KeyPause,
    LateFate, LateSettlement, LiveMember, Loss, MemberId, MemberReport, MovedPage, OutlinePage, OwnerRecord, Owners,
    Page, PartitionDepth, PartitionStats, PausedKey, Peeked, Purge, Purged, PushVerdict, Renewal, Reschedule,
    Rescheduled, SlotAsk, Slots, Spans, Store, StoreClock, TakenOver, VerifyCursor, VerifyPage, WaitingCursor,
    WaitingRange, Wakes, Window, WindowPage,
};
use crate::telemetry::metrics::Metrics;

type Outcome = Result<(), Box<dyn std::error::Error>>;

async fn ask(
    line: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Result<(u16, HeaderMap, Value), Box<dyn std::error::Error>> {
    let (method, target) = line.split_once(' ').ok_or("no target")?;
    let mut request = Request::builder().method(method).uri(target).header("host", "localhost:7373");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    answer(router(app()?), request.body(body.into())?).await
}

async fn answer(router: Router, request: Request<Body>) -> Result<(u16, HeaderMap, Value), Box<dyn std::error::Error>> {
    let response = router.oneshot(request).await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.into_body().collect().await?.to_bytes();
    Ok((status, headers, serde_json::from_slice(&bytes).unwrap_or_default()))
}

async fn refused(
    line: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
    (status, kind, said): (u16, &str, &str),
) -> Outcome {
    let (got, got_headers, problem) = ask(line, headers, body).await?;
    assert_eq!(got, status, "{line}: {problem}");
    assert_eq!(got_headers[header::CONTENT_TYPE], "application/problem+json", "{line}");
    assert_eq!(problem["type"], format!("urn:dwell:error:{kind}"), "{line}");
    assert_eq!(problem["status"], status, "{line}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(said)), "{line}: {problem}");
    Ok(())
}

/// A configuration that is as it was.
struct Unchanged;

#[async_trait]
impl Reload for Unchanged {
    async fn reload(&self) -> Result<Reloaded> {
        Ok(Reloaded { changed: Vec::new(), needs_restart: Vec::new() })
    }
}

/// An application over a store that is always unavailable, so that requests end before the broker acts.
pub(crate) fn app() -> Result<App> {
    let store = Away { clock: StoreClock::new(Clock::System), wakes: Wakes::default() };
    let options =
        Options { drain_timeout: Duration::ZERO, settle_timeout: Duration::from_secs(1), ..Options::default() };
    let broker = Broker::new(Store::of(Arc::new(store)), Arc::new(Metrics::new()?), Tasks::new(), options);
    let app = App::new(broker, Clock::System, Guard::Loopback { tls: false }, Tasks::new());
    Ok(app.with_reload(Arc::new(Unchanged)))
}

#[tokio::test]
async fn unknown_routes_and_resources_get_a_problem() -> Outcome {
    refused("GET /v2/topics", &[], "", (404, "not-found", "\"/v2/topics\"")).await?;
    refused("GET /v1/topics/", &[], "", (404, "not-found", "")).await?;
    refused("PATCH /v1/topics/orders", &[], "", (405, "method-not-allowed", "PATCH")).await?;
    refused("POST /000000000000/orders", &[], "", (404, "not-found", "start dwell with `--sqs`")).await?;
    refused("POST /", &[], "", (405, "method-not-allowed", "for an SQS client start dwell with `--sqs`")).await?;
    refused("GET /healthz", &[], "", (404, "not-found", "readiness is at /readyz")).await?;
    let (status, headers, _) = ask("GET /", &[], "").await?;
    assert_eq!((status, headers[header::LOCATION].to_str()?), (307, "/ui"));
    let (_, headers, _) = ask("POST /v1/topics/orders/groups/g/dead-letters", &[], "").await?;
    assert_eq!(headers[header::ALLOW], "GET,HEAD");
    let paths = openapi()["paths"].as_object().ok_or("no paths")?.clone();
    for path in paths.keys().map(String::as_str).chain(["/ui", "/v1/topics/{topic}/messages/batch"]) {
        let target = path.replace(['{', '}'], "");
        let (status, headers, problem) = ask(&format!("OPTIONS {target}"), &[], "").await?;
        let allow: std::collections::BTreeSet<_> = headers[header::ALLOW].to_str()?.split(',').collect();
        let detail = problem["detail"].as_str().unwrap_or_default();
        let said = detail.split("; allowed: ").nth(1).and_then(|said| said.split(';').next()).unwrap_or_default();
        assert_eq!((status, said.split(", ").collect()), (405, allow), "{path}: {detail}");
    }
    refused("GET /v1/topics", &[("host", "evil.example")], "", (400, "malformed", "`host`")).await?;
    refused("GET /v1/topics", &[("origin", "http://evil.example")], "", (403, "forbidden", "evil")).await
}

#[tokio::test]
async fn invalid_parameters_are_refused() -> Outcome {
    let invalid = |said| (422, "invalid", said);
    let push = "POST /v1/topics/orders/messages";
    refused(&format!("{push}?dealy=5s"), &[], "x", invalid("`dealy`: is not a parameter")).await?;
    refused(&format!("{push}?delay=5s&delay=5s"), &[], "x", invalid("`delay`: is given twice")).await?;
    refused(&format!("{push}?delay=-5s"), &[], "x", invalid("`delay`: \"-5s\" is negative")).await?;
    refused(&format!("{push}?delay=soon"), &[], "x", invalid("`delay`: \"soon\" is not a duration")).await?;
    refused(&format!("{push}?delay=3651d"), &[], "x", invalid("`delay`: a message is due at most")).await?;
    refused(&format!("{push}?delay=1s&due_at=2026-01-02T03:04:05Z"), &[], "x", invalid("together with `due_at`"))
        .await?;
    refused(&format!("{push}?ttl=0s"), &[], "x", invalid("`ttl`")).await?;
    refused(&format!("{push}?max_attempts=1001"), &[], "x", invalid("0 to 1000")).await?;
    refused(&format!("{push}?key=%FF"), &[], "x", (400, "malformed", "`key` is not UTF-8")).await?;
    refused(&format!("{push}?id=a%20b"), &[], "x", invalid("`id`")).await?;
    refused("POST /v1/topics/a%20b/messages", &[], "x", invalid("`topic`")).await?;
    refused("POST /v1/topics/%FF/messages", &[], "x", (400, "malformed", "UTF-8")).await?;
    refused("GET /v1/topics?limit=5", &[], "", invalid("there are none here")).await?;
    refused("DELETE /v1/topics/orders?force=1", &[], "", invalid("`force`")).await?;
    refused("GET /v1/topics/orders/groups/g/dead-letters?limit=1001", &[], "", invalid("`limit`")).await
}

#[tokio::test]
async fn errors_outside_the_body_name_parameter_or_header() -> Outcome {
    let group = "/v1/topics/orders/groups/default";
    let push = "POST /v1/topics/orders/messages";
    let cases = [
        ("GET /v1/topics?limit=5".to_owned(), "limit", "unknown"),
        ("GET /v1/topics/a%20b".to_owned(), "topic", "format"),
        (format!("{push}?delay=soon"), "delay", "format"),
        (format!("{push}?delay=1s&due_at=2026-01-02T03:04:05Z"), "delay", "exclusive"),
        (format!("{push}?delay=1s&delay_ms=1"), "delay", "exclusive"),
        (format!("{push}?delay=3651d"), "delay", "range"),
        (format!("{push}?ttl=0s"), "ttl", "range"),
        (format!("{push}?id=a%20b"), "id", "format"),
        (format!("{push}?conflict=win"), "conflict", "choice"),
        (format!("{push}?past=maybe"), "past", "choice"),
        (format!("{push}?priority=10"), "priority", "range"),
        (format!("{push}?raw=1"), "raw", "choice"),
        ("DELETE /v1/topics/orders/messages/a?key=".to_owned(), "key", "format"),
        ("GET /v1/topics/orders/messages?state=x".to_owned(), "state", "choice"),
        ("GET /v1/topics/orders/messages?group=a%20b".to_owned(), "group", "format"),
        (format!("GET {group}/bulk?from=2026-01-02T03:04:05Z"), "to", "missing"),
        (format!("GET {group}/bulk?from=2026-01-02T03:04:05Z&to=2026-01-02T03:04:05Z"), "to", "range"),
        (format!("GET {group}/dead-letters?reason=boredom"), "reason", "choice"),
        (format!("GET {group}/forecast?step=1s&step_ms=5"), "step", "exclusive"),
        (
            format!("POST {group}/stream?visibility_timeout=1s&visibility_timeout_ms=5"),
            "visibility_timeout",
            "exclusive",
        ),
    ];
    let late = r#"{"due_at": "2020-01-01T00:00:00Z"}"#;
    let (_, _, problem) = ask("PATCH /v1/topics/orders/messages/a", &[], late).await?;
    assert_eq!(problem["errors"].as_array().map(Vec::len), Some(1), "{problem}");
    for (line, name, code) in cases {
        let (status, _, problem) = ask(&line, &[], if line.starts_with(push) { "x" } else { "" }).await?;
        let error = &problem["errors"][0];
        assert_eq!(
            (status, &error["parameter"], &error["code"]),
            (422, &name.into(), &code.into()),
            "{line}: {problem}"
        );
        assert_eq!(error.get("pointer"), None, "{line}");
    }
    let (_, _, problem) = ask("GET /v1/topics?a=1&limt=2&a=3", &[], "").await?;
    assert_eq!(problem["errors"].as_array().map(Vec::len), Some(3), "{problem}");
    for (name, value, header) in [("dwell-raw", "1", "Dwell-Raw"), ("dwell-meta-A!", "1", "Dwell-Meta")] {
        let (_, _, problem) = ask(push, &[(name, value)], "x").await?;
        assert_eq!(problem["errors"][0]["header"], header, "{problem}");
    }
    Ok(())
}

#[tokio::test]
async fn payload_headers_are_validated() -> Outcome {
    let push = "POST /v1/topics/orders/messages";
    let twice = [("dwell-meta-a", "1"), ("Dwell-Meta-A", "2")];
    refused(push, &twice, "x", (422, "invalid", "`Dwell-Meta`: \"a\" is given twice")).await?;
    refused(push, &[("dwell-meta-a!", "1")], "x", (422, "invalid", "`Dwell-Meta`")).await?;
    let raw = "POST /v1/topics/orders/messages?raw=true";
    refused(raw, &[("dwell-raw", "1")], "x", (422, "invalid", "`Dwell-Raw`: is neither true nor false")).await?;
    refused(push, &[("dwell-meta-", "1")], "x", (422, "invalid", "`Dwell-Meta`")).await?;
    let types = [("content-type", "a/b"), ("content-type", "a/b")];
    refused(push, &types, "x", (422, "invalid", "`content-type`")).await?;
    let payload = vec![0; crate::model::limits::PAYLOAD_BYTES_MAX + 1];
    refused(push, &[], payload, (413, "too-large", "`payload`: 1048577 or more bytes, at most 1048576")).await
}

#[tokio::test]
async fn unknown_body_fields_are_refused() -> Outcome {
    let group = "POST /v1/topics/orders/groups/default";
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let reserve = format!("{group}/reserve");
    refused(&reserve, &form, r#"{"max": 1}"#, (415, "unsupported-media-type", "curl: --json")).await?;
    refused(&reserve, &[], r#"{"maximum": 1}"#, (422, "invalid", "`maximum`")).await?;
    refused(&reserve, &[], r#"{"max": 1"#, (400, "malformed", "ends too early")).await?;
    refused(&reserve, &[], r#"{"wait": "-1s"}"#, (422, "invalid", "`wait`")).await?;
    refused(&reserve, &[], r#"{"wait": null}"#, (422, "invalid", "`wait`")).await?;
    refused(&format!("{group}/ack"), &[], "", (400, "malformed", "the body is empty")).await?;
    refused(&format!("{group}/ack"), &[], r#"{"receipts": []}"#, (422, "invalid", "empty")).await?;
    refused(&format!("{group}/extend"), &[], r#"{"receipts": ["a"]}"#, (422, "invalid", "visibility_timeout")).await?;
    refused(&format!("{group}/dead-letters/redrive"), &[], r#"{"ids": []}"#, (422, "invalid", "empty")).await?;
    refused(&format!("{group}/dead-letters/redrive"), &[], r#"{"ids": ["a b"]}"#, (422, "invalid", "`ids[0]`")).await?;
    let large = "x".repeat(crate::model::limits::REQUEST_BODY_BYTES_MAX + 1);
    refused(&format!("{group}/ack"), &[], large, (413, "too-large", "`body`")).await?;
    refused("PUT /v1/topics/orders", &[], r#"{"partition": 3}"#, (422, "invalid", "`partition`")).await?;
    refused("PUT /v1/topics/orders", &[], r#"{"partitions": 0}"#, (422, "invalid", "`partitions`")).await
}

#[tokio::test]
async fn invalid_batch_is_refused_as_a_whole() -> Outcome {
    let batch = "POST /v1/topics/orders/messages/batch";
    let item = r#"{"payload": "a"}"#;
    let bad = format!(r#"{{"messages": [{item}, {{"payload": "a", "delay": "-1s"}}]}}"#);
    refused(batch, &[], bad, (422, "invalid", "`messages[1].delay`")).await?;
    let many = format!(r#"{{"messages": [{}]}}"#, vec![item; 10_001].join(","));
    refused(batch, &[], many, (422, "invalid", "`messages`: there are more than 1000 items")).await?;
    let lines = [("content-type", "application/x-ndjson")];
    refused(batch, &lines, format!("{item}\n{{}}"), (422, "invalid", "line 2: `payload`")).await?;
    refused(batch, &[("content-type", "text/csv")], "a", (415, "unsupported-media-type", "text/csv")).await?;
    let large = vec![b' '; crate::model::limits::BATCH_BODY_BYTES_MAX + 1];
    refused(batch, &[], large, (413, "too-large", "at most 8388608")).await
}

#[tokio::test]
async fn panic_is_a_500_and_every_response_is_counted() -> Outcome {
    async fn broken(headers: HeaderMap) -> &'static str {
        // Out of range: there is no such header.
        let values: Vec<_> = headers.get_all("x-absent").iter().collect();
        values[0].to_str().map_or("", |_| "")
    }
    let app = app()?;
    let metrics = app.metrics.clone();
    let router = layered(Router::new().route("/broken/{id}", get(broken)), app);
    let request = |path| Request::builder().uri(path).header("host", "localhost").body(Body::empty());
    let (status, _, problem) = answer(router.clone(), request("/broken/1")?).await?;
    assert_eq!((status, problem["type"].as_str()), (500, Some("urn:dwell:error:bug")));
    answer(router, request("/nowhere")?).await?;
    let text = metrics.text()?;
    assert!(text.contains(r#"dwell_http_requests_total{code="500",route="/broken/{id}"} 1"#), "{text}");
    assert!(text.contains(r#"dwell_http_requests_total{code="404",route="unmatched"} 1"#), "{text}");
    Ok(())
}

/// A part of a request keeps the whole buffer that its connection read, which a consumer that waits must not do.
#[tokio::test]
async fn waiting_request_keeps_nothing_that_was_read() -> Outcome {
    async fn waiting(body: Bytes) {
        drop(body);
        std::future::pending().await
    }
    let read = || Bytes::from(b"/reserve".to_vec());
    let (target, value, body) = (read(), read(), read());
    let mut request = Request::post(Uri::from_maybe_shared(target.clone())?).header("host", "localhost:7373");
    request = request.header("user-agent", HeaderValue::from_maybe_shared(value.clone())?);
    let router = layered(Router::new().route("/reserve", post(waiting)), app()?);
    let answer = router.oneshot(request.body(Body::from(body.clone()))?);
    tokio::pin!(answer);
    assert!(timeout(Duration::from_millis(10), answer.as_mut()).await.is_err());
    assert_eq!([target, value, body].map(|read| read.is_unique()), [true; 3], "target, header, body");
    Ok(())
}

#[tokio::test]
async fn operational_routes_respond_without_a_store() -> Outcome {
    assert_eq!(ask("GET /livez", &[], "").await?.2["status"], "ok");
    let (_, _, document) = ask("GET /openapi.json", &[], "").await?;
    assert!(document["paths"]["/v1/topics/{topic}/messages"]["post"].is_object());
    let (status, headers, _) = ask("GET /metrics", &[], "").await?;
    assert_eq!((status, &headers[header::CONTENT_TYPE]), (200, &"text/plain; version=0.0.4; charset=utf-8".parse()?));
    let app = app()?;
    app.stopping().cancel();
    let request = Request::builder().uri("/readyz").header("host", "localhost").body(Body::empty())?;
    let (status, headers, _) = answer(router(app), request).await?;
    assert_eq!((status, headers.contains_key(header::RETRY_AFTER)), (503, true));
    Ok(())
}

#[tokio::test]
async fn metrics_are_compressed_for_clients_that_accept_it() -> Outcome {
    async fn scrape(accepted: &str) -> Result<(HeaderMap, Bytes), Box<dyn std::error::Error>> {
        let request = Request::get("/metrics").header("host", "localhost:7373").header("accept-encoding", accepted);
        let response = router(app()?).oneshot(request.body(Body::empty())?).await?;
        Ok((response.headers().clone(), response.into_body().collect().await?.to_bytes()))
    }
    for accepted in ["gzip", "deflate;q=0.1, GZIP;q=0.5", "br,gzip ; q=1"] {
        let (headers, bytes) = scrape(accepted).await?;
        assert_eq!(headers.get("content-encoding").map(|coding| coding.as_bytes()), Some(b"gzip".as_slice()));
        let mut text = String::new();
        GzDecoder::new(&bytes[..]).read_to_string(&mut text)?;
        assert!(text.contains("# HELP dwell_") && bytes.len() < text.len() / 3, "{} of {}", bytes.len(), text.len());
    }
    for refused in ["", "identity", "deflate", "gzip;q=0"] {
        let (headers, bytes) = scrape(refused).await?;
        assert!(!headers.contains_key("content-encoding") && bytes.starts_with(b"# HELP"), "{refused}");
    }
    Ok(())
}

#[test]
fn every_reference_of_the_document_resolves() {
    fn check(part: &Value, document: &Value) {
        if let Some(place) = part["$ref"].as_str().and_then(|place| place.strip_prefix('#')) {
            assert!(document.pointer(place).is_some(), "{place}");
        }
        assert!(part != "null", "null is neither accepted nor sent");
        match part {
            Value::Object(parts) => parts.values().for_each(|part| check(part, document)),
            Value::Array(parts) => parts.iter().for_each(|part| check(part, document)),
            _ => {}
        }
    }
    let document = openapi();
    check(&document, &document);
}

struct Away {
    clock: StoreClock,
    wakes: Wakes,
}

fn away<T>() -> Result<T> {
    Err(Error::unavailable("this store is always away"))
}

#[async_trait]
impl store::Backend for Away {
    fn describe(&self) -> Description {
        Description { kind: "away", location: String::new(), durability: "none".to_owned() }
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    fn losses(&self) -> watch::Receiver<Loss> {
        watch::Sender::default().subscribe()
    }

    async fn run(&self, _: &dyn Owners, stop: CancellationToken) {
        stop.cancelled().await;
    }
    async fn ping(&self) -> Result<()> {
        away()
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
    async fn store_id(&self, _: &str) -> Result<String> {
        away()
    }
    async fn receipt_key(&self, _: &SigningKey) -> Result<SigningKey> {
        away()
    }

    fn health_snapshot(&self) -> HealthSnapshot {
        HealthSnapshot::default()
    }
}

/// Implements the traits of the store: the listed methods return an error.
macro_rules! always_away {
    ($($of:path { $($method:ident($($argument:ty),*) -> $found:ty;)* } and { $($other:tt)* })*) => { $(
        #[async_trait]
        impl $of for Away {
            $(async fn $method(&self, $(_: $argument),*) -> Result<$found> {
                away()
            })*
            $($other)*
        }
    )* };
}

always_away! {
    store::Topics {
        topic(&TopicName) -> Option<Descriptor>;
        topics() -> Vec<TopicName>;
        create(&Descriptor) -> Descriptor;
        update(&Descriptor) -> Descriptor;
        publish_descriptor(&Descriptor) -> ();
        delete(&Descriptor) -> Option<Descriptor>;
        delete_unchanged(&Descriptor) -> Option<Descriptor>;
    } and {}
    store::Messages {
        take_over(HandedOver, bool) -> TakenOver;
        push(&Descriptor, Partition, &Call, Conflict, &[Message]) -> Vec<PushVerdict>;
        cancel(&Descriptor, Partition, &Call, &MessageId) -> Cancelled;
        purge_group(&Descriptor, Partition, &Call, &Purge) -> Purged;
        pause_key(&Descriptor, Partition, &Call, &KeyPause) -> ();
        reschedule(&Descriptor, Partition, &Call, &Reschedule) -> Rescheduled;
        settle_late(&Descriptor, Partition, &GroupName, &Call, &[LateSettlement]) -> Vec<LateFate>;
    } and {}
    store::Reads {
        peek(&GroupPartition, &MessageId) -> Option<Peeked>;
        check_kept(&GroupPartition) -> ();
        waiting(&GroupPartition, Window, Option<&WaitingCursor>, usize) -> Page<WaitingCursor>;
        outlines(&[WaitingRange]) -> Vec<OutlinePage>;
        in_flight(&GroupPartition, Option<&InFlightCursor>, usize) -> Page<InFlightCursor>;
        paused_keys(&GroupPartition, usize) -> (u64, Vec<PausedKey>);
        paused_until(&GroupPartition, &Key) -> Option<Timestamp>;
        stats(&[GroupPartition]) -> Vec<PartitionStats>;
        depth(&[GroupPartition], &[Duration]) -> Vec<PartitionDepth>;
        forecast(&[GroupPartition], Spans) -> Vec<Forecast>;
        window(&GroupPartition, Window, Option<&(Timestamp, MessageId)>, usize) -> WindowPage;
    } and {}
    store::DeadLetters {
        dead_by_age(&DeadLetterRange) -> DeadLetterPage;
        dead_outlines(&[DeadLetterRange]) -> Vec<DeadLetterOutlinePage>;
        redrive(&GroupPartition, &[MessageId]) -> Vec<bool>;
        purge(&GroupPartition, &[MessageId]) -> Vec<Option<Version>>;
        forward(&GroupPartition, Option<&Descriptor>, &[MessageId]) -> Forward;
        forwarded(&GroupPartition, &Forwarded) -> ();
        drop_dead(&GroupPartition, DeadLetterRetention) -> DroppedDeadLetters;
    } and {}
    store::CronJobs {
        cron_partitions() -> Vec<(TopicName, Partition)>;
        list(&TopicName, Partition) -> Vec<CronJobRecord>;
        put_cron_job(&Descriptor, Partition, &CronJobChange) -> Option<Timestamp>;
        delete_cron_job(&Descriptor, Partition, &CronJobName) -> CronJobDeletion;
        fire(&Descriptor, Partition, &Firing) -> Fired;
    } and {}
    store::Groups {
        members(&TopicName, &GroupName, Duration) -> Vec<MemberReport>;
        leave(&TopicName, &GroupName, &MemberId) -> ();
        slots(&TopicName, &GroupName, SlotAsk) -> Slots;
        send(&MemberId, Bytes) -> bool;
    } and {
        async fn heartbeat(&self, _: &MemberId, heartbeats: &[Heartbeat], _: Duration) -> Vec<Result<Vec<LiveMember>>> {
            heartbeats.iter().map(|_| away()).collect()
        }
    }
    store::Leases {
        acquire(&GroupPartition, &MemberId, Duration, u64) -> Acquired;
        owner_records(&[GroupPartition]) -> Vec<Option<OwnerRecord>>;
    } and {
        async fn renew(&self, _: &MemberId, claims: &[Claim], _: Duration) -> Vec<Result<Renewal>> {
            claims.iter().map(|_| away()).collect()
        }
    }
    store::Maintenance {
        copy(&Descriptor, Partition, &GroupName, Option<CopyCursor>) -> Copied;
        audit(&GroupPartition, Option<&VerifyCursor>, bool) -> VerifyPage;
        move_page(&Descriptor, &GroupPartition, &Descriptor) -> MovedPage;
    } and {}
}
