//! The frame of every request: request id, metrics, log of failures, panics, and unknown routes or methods.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tracing::Instrument;
use utoipa::openapi::OpenApi;

use super::App;
use super::document::SERVED;
use super::gateway::Route;
use super::problem::{Class, Problem, Summary};
use crate::model::error::Kind;
use crate::platform::clock::Instant;
use crate::platform::log_throttle::BurstThrottle;
use crate::platform::request_id::{REQUEST_ID, RequestId};
use crate::telemetry::metrics::HttpMetrics;

const PATH_SHOWN: usize = 200;

/// Probes ask it every few seconds, and its changes are logged elsewhere.
const READINESS: &str = "/readyz";

/// A request as the log and the metrics need it. All are copies: a part of the request would keep the bytes that the connection
/// read while a consumer waits.
pub(crate) struct Observed {
    id: RequestId,
    route: Option<MatchedPath>,
    method: Method,
    path: Box<str>,
    began: Instant,
}

impl Observed {
    pub(crate) fn begin(app: &App, request: &Request) -> Observed {
        Observed {
            id: name_of(request.headers()),
            route: request.extensions().get::<MatchedPath>().cloned(),
            method: request.method().clone(),
            path: shown(request.uri()),
            began: app.clock.instant(),
        }
    }

    /// Unknown paths share a label: a scan must not create series.
    pub(crate) async fn end(self, app: &App, answer: impl Future<Output = Response>) -> Response {
        let Observed { id, route, method, path, began } = self;
        // At the level of errors, so that every line is logged with its request.
        let span = tracing::error_span!("request", request_id = %id);
        let mut response = id.clone().scope(answer).instrument(span.clone()).await;
        let now = app.clock.instant();
        let of_gateway = response.extensions().get::<Route>().map(|Route(route)| *route);
        let route = of_gateway.unwrap_or(route.as_ref().map_or(UNMATCHED, MatchedPath::as_str));
        app.metrics.http.request(route, response.status().as_u16(), now.since(began));
        span.in_scope(|| app.failures.note(now, &method, &path, &response));
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::from_str(id.as_str()) {
            headers.insert(REQUEST_ID, value);
        }
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        response
    }
}

fn shown(uri: &Uri) -> Box<str> {
    let path = uri.path();
    let end = path.char_indices().nth(PATH_SHOWN).map_or(path.len(), |(at, _)| at);
    path[..end].into()
}

fn name_of(headers: &HeaderMap) -> RequestId {
    let mut given = headers.get_all(REQUEST_ID).iter();
    let first = given.next().filter(|_| given.next().is_none());
    first.and_then(|value| RequestId::given(value.as_bytes())).unwrap_or_else(RequestId::fresh)
}

/// Logs failed requests, a few of each kind: an outage under load must not fill the disk.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<BTreeMap<&'static str, BurstThrottle>>);

impl FailureLog {
    /// Client errors are logged only at debug and without their detail, which may repeat a part of a payload.
    fn note(&self, now: Instant, method: &Method, path: &str, response: &Response) {
        let (status, summary) = (response.status(), response.extensions().get::<Summary>());
        let kind = summary.map_or("", |summary| summary.name);
        let code = status.as_u16();
        if !status.is_server_error() {
            return tracing::debug!(%method, path, status = code, kind, "answered");
        }
        let error = summary.map_or("", |summary| &summary.detail);
        match if path == READINESS { None } else { self.admit(kind, now) } {
            Some(unlogged) if status == StatusCode::INTERNAL_SERVER_ERROR => {
                tracing::error!(%method, path, status = code, kind, error, unlogged, "a request failed");
            }
            Some(unlogged) => tracing::warn!(%method, path, status = code, kind, error, unlogged, "a request failed"),
            None => tracing::debug!(%method, path, status = code, kind, error, "a request failed"),
        }
    }

    fn admit(&self, kind: &'static str, now: Instant) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default().admit(now)
    }
}

/// The panic message is logged by the panic hook, and is not sent to the client.
pub(crate) fn panicked(_: Box<dyn Any + Send>) -> Response {
    Problem::new(Class::Verb(Kind::Bug), "the request met a defect in dwell; its log says more").into_response()
}

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// The path of a batch is also the path of the message with the id `batch`.
const BATCH: &str = "/v1/topics/{topic}/messages/batch";

static ALLOWED: LazyLock<BTreeMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let methods_of = |path: &str| {
        let documented = |method: &&str| SERVED["paths"][path].get(method.to_ascii_lowercase()).is_some();
        METHODS.into_iter().filter(documented).collect::<Vec<_>>()
    };
    let paths = SERVED["paths"].as_object().into_iter().flat_map(serde_json::Map::keys);
    let mut allowed: BTreeMap<_, _> = paths.map(|path| (path.as_str(), methods_of(path))).collect();
    allowed.entry(BATCH).or_default().extend(methods_of("/v1/topics/{topic}/messages/{id}"));
    for methods in allowed.values_mut() {
        if let Some(get) = methods.iter().position(|method| *method == "GET") {
            methods.insert(get + 1, "HEAD");
        }
    }
    allowed
});

pub(super) async fn no_route(uri: Uri) -> Problem {
    let path = uri.path();
    let hint = match path.trim_end_matches('/') {
        "/health" | "/healthz" => "; readiness is at /readyz, liveness at /livez".to_owned(),
        shorter if shorter.starts_with("/v1/") && shorter != path => {
            format!("; without the slash at its end it is {shorter:?}")
        }
        path if is_of_sqs(path) => "; for an SQS client start dwell with `--sqs`".to_owned(),
        bare if bare.starts_with("/topics") || bare.starts_with("/brokers") => {
            format!("; paths of the API begin with /v1: \"/v1{bare}\"")
        }
        _ => String::new(),
    };
    Problem::new(Class::Verb(Kind::NotFound), format!("there is nothing at {path:?}{hint}"))
}

/// Whether a path is one of SQS: an account of 12 digits, and a name.
fn is_of_sqs(path: &str) -> bool {
    let parts = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    parts.is_some_and(|(account, _)| account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(super) async fn no_method(method: Method, path: Option<MatchedPath>, uri: Uri) -> Problem {
    let hint = match uri.path() {
        "/" if method == Method::POST => "; for an SQS client start dwell with `--sqs`",
        path if path.ends_with("/stream") => "; a stream takes messages, so it is opened with POST",
        _ => "",
    };
    // Only the files of the console are not documented.
    let allowed = path.and_then(|path| ALLOWED.get(path.as_str())).map_or("GET, HEAD".to_owned(), |all| all.join(", "));
    let detail = format!("{method} is not a method of {:?}; allowed: {allowed}{hint}", uri.path());
    Problem::new(Class::MethodNotAllowed, detail)
}

const UNMATCHED: &str = "unmatched";

const FAILURES: [&str; 3] = ["500", "503", "504"];

/// Creates the series of every route before its first request: the documented successes, and failures of the broker.
pub(super) fn expect(metrics: &HttpMetrics, document: &OpenApi) {
    for (route, item) in &document.paths.paths {
        let operations = [&item.get, &item.put, &item.post, &item.delete, &item.patch];
        let codes = operations.into_iter().flatten().flat_map(|operation| operation.responses.responses.keys());
        let successes = codes.map(String::as_str).filter(|code| code.starts_with('2'));
        metrics.expect(route, successes.chain(FAILURES));
    }
    metrics.expect(UNMATCHED, ["404"]);
}
