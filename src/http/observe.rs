//! What happens around every request: it is counted and timed, and a panic becomes an answer.

use std::any::Any;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::App;
use super::problem::{Class, Problem};
use crate::error::Kind;
use crate::metrics::HttpMetrics;

/// The route of paths that are none.
const UNMATCHED: &str = "unmatched";

/// The codes of failures that alerts look for.
const FAILURES: [&str; 3] = ["500", "503", "504"];

/// Counts a request under its route. Paths that are no route share a label: a scan must not make series.
pub(crate) async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let began = app.clock.instant();
    let response = next.run(request).await;
    let route = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
    app.metrics.http.request(route, response.status().as_u16(), app.clock.instant().since(began));
    response
}

/// Gives every route its series: its successes, as the document has them, and the failures that are no client's.
pub(crate) fn expect(metrics: &HttpMetrics, document: &utoipa::openapi::OpenApi) {
    for (route, item) in &document.paths.paths {
        let operations = [&item.get, &item.put, &item.post, &item.delete, &item.patch];
        let codes = operations.into_iter().flatten().flat_map(|operation| operation.responses.responses.keys());
        let successes = codes.map(String::as_str).filter(|code| code.starts_with('2'));
        metrics.expect(route, successes.chain(FAILURES));
    }
    metrics.expect(UNMATCHED, ["404"]);
}

/// Answers for a handler that panicked. What it said goes to the log, not to the client.
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = said.unwrap_or("no text"), "a request panicked: a defect in dwell, please report it");
    Problem::new(Class::Verb(Kind::Bug), "the request met a defect in dwell; its log says more").into_response()
}
