//! For whoever runs dwell: is it alive, is it ready, what does it measure, what does it serve.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::problem::{Class, Problem};
use super::reply::Reply;
use crate::error::Kind;
use crate::store::Description;

/// The process answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Alive {
    /// `ok`.
    status: &'static str,
}

/// Pushes are accepted durably.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ready {
    /// `ready` or `degraded`.
    status: &'static str,
    /// What is degraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    store: StoreDescription,
}

/// What the store is and what it survives.
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

/// Whether the process answers at all.
#[utoipa::path(
    get, path = "/livez", tag = "operations",
    responses((status = 200, description = "It does", body = Alive))
)]
pub(crate) async fn livez() -> Reply<Alive> {
    Reply(Alive { status: "ok" })
}

/// Whether pushes are accepted durably.
#[utoipa::path(
    get, path = "/readyz", tag = "operations",
    responses((status = 200, description = "They are", body = Ready), Problem)
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

/// Metrics in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "All metrics", body = String, content_type = "text/plain"), Problem)
)]
pub(crate) async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, Problem> {
    let text = app.broker.scrape()?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// This protocol, for machines.
#[utoipa::path(
    get, path = "/openapi.json", tag = "operations",
    responses((status = 200, description = "An OpenAPI document", body = Object))
)]
pub(crate) async fn openapi() -> Reply<serde_json::Value> {
    Reply(super::openapi())
}
