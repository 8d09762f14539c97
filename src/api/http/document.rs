//! The OpenAPI document: its head, and what holds for every operation. Paths come from the handlers, shared schemas from
//! `schema`, problems from `problem_sets`, and scopes from `needs`.

use std::sync::LazyLock;

use serde_json::Value;
use utoipa::openapi::schema::ComponentsBuilder;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Components, OpenApi as Document};
use utoipa::{Modify, OpenApi, PartialSchema};

use super::problem::ProblemBody;
use super::settle::SettlementProblem;
use super::{authorization, problem_sets, schema};
use crate::api::access::Scope;

#[cfg(test)]
mod tests;

/// The document that the broker serves.
pub(super) static SERVED: LazyLock<Value> = LazyLock::new(super::openapi);

/// What is no part of any handler.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "dwell",
        description = "A partitioned delay broker. A producer pushes a message with a due time; every group of its topic \
                       gets it when it is due, at least once and never early.\n\n\
                       Every answer has a header `Dwell-Request-Id`. Every error is \
                       `application/problem+json` (RFC 9457). A path with another method is answered 405 with `Allow`.",
        contact(name = "The authors of dwell"),
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers(
        (url = "http://{host}:{port}", description = "A broker on this machine.", variables(
            ("host" = (default = "localhost", description = "Loopback name or address.")),
            ("port" = (default = "7373", description = "Port of `listen`."))
        ))
    ),
    tags(
        (name = "topics", description = "Create, describe, move and delete topics."),
        (name = "groups", description = "Subscriptions: each group gets every message of its topic."),
        (name = "producing", description = "Push, get, cancel and reschedule messages."),
        (name = "cron", description = "Messages that are pushed by a cron expression or at equal intervals."),
        (name = "consuming", description = "Reserve or stream messages that are due, and settle them."),
        (name = "dead letters", description = "Messages that used up their attempts, were buried, or expired: list, redrive and purge them."),
        (name = "operations", description = "Probes, metrics and this document.")
    ),
    components(schemas(
        ProblemBody, SettlementProblem, schema::Duration, schema::ExponentialBackoff, schema::LadderBackoff, schema::TopicName,
        schema::GroupName, schema::CronName, schema::MessageId, schema::Key, schema::Cursor, schema::Etag, schema::TopicEtag,
        schema::Time,
        schema::ConflictPolicy, schema::MessageState, schema::DeathReason
    )),
    modifiers(&Shared)
)]
pub(crate) struct Head;

/// What all operations share.
struct Shared;

impl Modify for Shared {
    fn modify(&self, document: &mut Document) {
        let components: Components = document.components.take().unwrap_or_default();
        let components = ComponentsBuilder::from(components).responses_from_iter(problem_sets::components());
        let schemes = Scope::ALL.into_iter().map(|scope| (scope.name(), token(scope)));
        let components =
            schemes.fold(components, |components, (name, scheme)| components.security_scheme(name, scheme));
        document.components = Some(components.build());
    }
}

/// A token with a scope, of which an operation may need one. Only OAuth 2 schemes can list scopes, so each is a scheme.
fn token(scope: Scope) -> SecurityScheme {
    let about = format!(
        "A token with the scope `{}`, which may {} Needed only if the broker has tokens configured.",
        scope.name(),
        scope.about()
    );
    SecurityScheme::Http(Http::builder().scheme(HttpAuthScheme::Bearer).description(Some(about)).build())
}

/// The document of everything that the router serves.
pub(super) fn complete(mut document: Document) -> Value {
    authorization::document(&mut document);
    let mut document = serde_json::to_value(document).unwrap_or_default();
    forbid_null(&mut document);
    document
}

/// The schema of a body, as the document has it.
pub(super) fn schema_of<T: PartialSchema>() -> Value {
    let mut schema = serde_json::to_value(T::schema()).unwrap_or_default();
    forbid_null(&mut schema);
    schema
}

/// The derived document lets every optional field be `null`. dwell neither accepts nor sends it: such a field is absent.
fn forbid_null(part: &mut Value) {
    match part {
        Value::Object(fields) => {
            if let Some(Value::Array(kinds)) = fields.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if kinds.len() == 1 {
                    fields["type"] = kinds.remove(0);
                }
            }
            if let Some(Value::Array(choices)) = fields.get_mut("oneOf") {
                choices.retain(|choice| choice["type"] != "null");
                // A choice of one is that one.
                if choices.len() == 1
                    && let Value::Object(only) = choices.remove(0)
                {
                    fields.remove("oneOf");
                    fields.extend(only);
                }
            }
            fields.values_mut().for_each(forbid_null);
        }
        Value::Array(parts) => parts.iter_mut().for_each(forbid_null),
        _ => {}
    }
}
