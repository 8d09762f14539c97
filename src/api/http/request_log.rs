//! What happens around every request: it has a name, it is counted and timed, what went wrong is logged, and a panic
//! becomes an answer.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use super::App;
use super::problem::{Class, Problem, Said};
use super::route_metrics::UNMATCHED;
use crate::model::error::Kind;
use crate::platform::clock::Instant;
use crate::platform::log_throttle::BurstThrottle;
use crate::platform::request_id::{REQUEST_ID, RequestId};

/// Characters of a path in the log.
const PATH_SHOWN: usize = 200;

/// Probes ask it every few seconds, and what it answers is logged when it changes.
const READINESS: &str = "/readyz";

/// Names a request, counts it under its route, and logs how it failed. Paths that are no route share a label: a scan must
/// not make series.
pub(crate) async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = name_of(request.headers());
    // At the level of errors, so that there is no level at which a line is logged without it.
    let span = tracing::error_span!("request", request_id = %id);
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let began = app.clock.instant();
    let mut response = id.clone().scope(next.run(request)).instrument(span.clone()).await;
    let now = app.clock.instant();
    let route = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
    app.metrics.http.request(route, response.status().as_u16(), now.since(began));
    span.in_scope(|| app.faults.note(now, &method, &uri, &response));
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        headers.insert(REQUEST_ID, value);
    }
    // What it says belongs to who asked, and is what it says it is.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    app.answers.count(response)
}

/// The name that the client gave, if it is one and the only one; else a new one.
fn name_of(headers: &HeaderMap) -> RequestId {
    let mut given = headers.get_all(REQUEST_ID).iter();
    let first = given.next().filter(|_| given.next().is_none());
    first.and_then(|value| RequestId::given(value.as_bytes())).unwrap_or_else(RequestId::fresh)
}

/// Logs failed requests, of each kind of failure a few: an outage under load must not fill the disk.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<BTreeMap<&'static str, BurstThrottle>>);

impl Faults {
    /// What the client did wrong is only said at debug, and without its words: they may be a part of a payload.
    fn note(&self, now: Instant, method: &Method, uri: &Uri, response: &Response) {
        let (status, said) = (response.status(), response.extensions().get::<Said>());
        let kind = said.map_or("", |said| said.name);
        let path: String = uri.path().chars().take(PATH_SHOWN).collect();
        let code = status.as_u16();
        if !status.is_server_error() {
            return tracing::debug!(%method, path, status = code, kind, "answered");
        }
        let error = said.map_or("", |said| &said.detail);
        match if path == READINESS { None } else { self.admit(kind, now) } {
            Some(unlogged) if status == StatusCode::INTERNAL_SERVER_ERROR => {
                tracing::error!(%method, path, status = code, kind, error, unlogged, "a request failed");
            }
            Some(unlogged) => tracing::warn!(%method, path, status = code, kind, error, unlogged, "a request failed"),
            None => tracing::debug!(%method, path, status = code, kind, error, "a request failed"),
        }
    }

    /// Whether one more of a kind is logged, and then how many were not since the last.
    fn admit(&self, kind: &'static str, now: Instant) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default().admit(now)
    }
}

/// Answers for a handler that panicked. What it said went to the log, by the hook of the process, and not to the client.
pub(crate) fn panicked(_: Box<dyn Any + Send>) -> Response {
    Problem::new(Class::Verb(Kind::Bug), "the request met a defect in dwell; its log says more").into_response()
}
