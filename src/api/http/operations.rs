//! For whoever runs dwell: is it alive, is it ready, what does it measure, what does it serve.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::problem::{Class, Problem};
use super::problem_sets::{ProbeProblem, UnreadyProblem};
use super::reply::Reply;
use super::schema;
use crate::model::error::Kind;
use crate::store::Description;

/// The process answers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({"status": "ok"})))]
pub(crate) struct Alive {
    /// `ok`.
    status: &'static str,
}

/// Pushes are accepted durably.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"status": "ready", "store": {"kind": "redis", "location": "redis://localhost:6379",
    "durability": "a 201 survives …"}}
)))]
pub(crate) struct Ready {
    /// `ready` or `degraded`.
    status: &'static str,
    /// What is degraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// The store.
    store: StoreDescription,
}

/// The store, and what it survives.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoreDescription {
    /// `embedded` or `redis`.
    kind: &'static str,
    /// Where it is, without secrets.
    location: String,
    /// What a 201 survives, and what it does not.
    durability: String,
}

impl From<Description> for StoreDescription {
    fn from(store: Description) -> StoreDescription {
        StoreDescription { kind: store.kind, location: store.location, durability: store.durability }
    }
}

/// Report whether the process answers.
///
/// Needs no token.
#[utoipa::path(
    get, path = "/livez", operation_id = "getLiveness",
    tag = "operations",
    responses((status = 200, description = "It does", body = Alive), ProbeProblem)
)]
pub(crate) async fn livez() -> Reply<Alive> {
    Reply(Alive { status: "ok" })
}

/// Report whether pushes are accepted durably.
///
/// Needs no token. Also 503 once the broker is stopping.
#[utoipa::path(
    get, path = "/readyz", operation_id = "getReadiness",
    tag = "operations",
    responses((status = 200, description = "They are", body = Ready), ProbeProblem, UnreadyProblem)
)]
pub(crate) async fn readyz(State(app): State<App>) -> Result<Reply<Ready>, Problem> {
    let not_ready = |why: String| Problem::new(Class::Verb(Kind::Unavailable), why);
    if app.stopping.is_cancelled() {
        return Err(not_ready("dwell is stopping".to_owned()));
    }
    let health = app.broker.health().await;
    if !health.ready {
        return Err(not_ready(health.detail.unwrap_or_else(|| "pushes are not accepted".to_owned())));
    }
    let status = if health.detail.is_some() { "degraded" } else { "ready" };
    Ok(Reply(Ready { status, detail: health.detail, store: health.store.into() }))
}

/// Get metrics in the text format of Prometheus.
///
/// The reference of metrics lists them.
#[utoipa::path(
    get, path = "/metrics", operation_id = "getMetrics",
    tag = "operations",
    responses((status = 200, description = "All metrics", body = schema::MetricsText, content_type = "text/plain"), Problem)
)]
pub(crate) async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, Problem> {
    let text = app.broker.scrape()?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// Get this document.
///
/// The protocol as OpenAPI 3.1.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "getOpenApi",
    tag = "operations",
    responses((status = 200, description = "An OpenAPI document", body = schema::OpenApiDocument), Problem)
)]
pub(crate) async fn openapi() -> Reply<serde_json::Value> {
    Reply(super::openapi())
}
