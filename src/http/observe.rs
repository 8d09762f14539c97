//! What happens around every request: it is counted and timed, and a panic becomes an answer.

use std::any::Any;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::App;
use super::problem::{Class, Problem};
use crate::error::Kind;

/// Counts a request under its route. Paths that are no route share a label: a scan must not make series.
pub(crate) async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let began = app.clock.instant();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    app.metrics.http_request(route, response.status().as_u16(), app.clock.instant().since(began));
    response
}

/// Answers for a handler that panicked. What it said goes to the log, not to the client.
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = said.unwrap_or("no text"), "a request panicked: a defect in dwell, please report it");
    Problem::new(Class::Verb(Kind::Bug), "the request met a defect in dwell; its log says more").into_response()
}
