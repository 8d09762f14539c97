//! The OpenAPI document: its head, the problems of each status, and properties of all operations.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::StatusCode;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use dwell_client::wire::problem;
use serde_json::Value;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ComponentsBuilder, ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, ContentBuilder, Header, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi, PartialSchema, ToSchema};

use super::actions::{self, ACTIONS};
use super::problem::{Class, PROBLEM_JSON, Problem, TypeSchema};
use super::schema;
use crate::gate::Needs;
use crate::gate::access::{Scope, Scopes};
use crate::model::error::Kind;

pub(super) static SERVED: LazyLock<Value> = LazyLock::new(super::openapi);

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
        problem::Problem, SettlementProblem, schema::Duration, schema::ExponentialBackoff, schema::LadderBackoff, schema::TopicName,
        schema::GroupName, schema::CronName, schema::MessageId, schema::Key, schema::DedupKey, schema::Cursor, schema::Etag, schema::TopicEtag,
        schema::Time,
        schema::ConflictPolicy, schema::OnFailure, schema::MessageState, schema::ListOrder, schema::DeadLetterOrder, schema::DeathReason
    )),
    modifiers(&Shared)
)]
pub(crate) struct Head;

struct Shared;

impl Modify for Shared {
    fn modify(&self, document: &mut Document) {
        let components: Components = document.components.take().unwrap_or_default();
        let components = ComponentsBuilder::from(components).responses_from_iter(problem_components());
        let schemes = Scope::ALL.into_iter().map(|scope| (scope.name(), token(scope)));
        let components =
            schemes.fold(components, |components, (name, scheme)| components.security_scheme(name, scheme));
        document.components = Some(components.build());
    }
}

/// Only OAuth 2 schemes can list scopes, so each scope is a scheme.
fn token(scope: Scope) -> SecurityScheme {
    let about = format!(
        "A token with the scope `{}`, which may {} Needed only if the broker has tokens configured.",
        scope.name(),
        scope.about()
    );
    SecurityScheme::Http(Http::builder().scheme(HttpAuthScheme::Bearer).description(Some(about)).build())
}

/// The scopes of each request, and the problems of those without a body.
fn describe_actions(document: &mut Document) {
    for action in &ACTIONS {
        let Some(item) = document.paths.paths.get_mut(action.name) else { continue };
        let operation = match action.method {
            "GET" => &mut item.get,
            "PUT" => &mut item.put,
            "POST" => &mut item.post,
            "DELETE" => &mut item.delete,
            _ => &mut item.patch,
        };
        let Some(operation) = operation else { continue };
        let is_sufficient = |scope: &Scope| action.needs.are_met_by(Scopes::of(&[*scope]));
        let sufficient: Vec<_> = match action.needs {
            Needs::Nothing => vec![],
            Needs::Token | Needs::OneOf(_) => Scope::ALL.into_iter().filter(is_sufficient).collect(),
        };
        let requirement = |scope: Scope| SecurityRequirement::new(scope.name(), [""; 0]);
        // A broker without tokens needs none: what generates clients asks for no token that nobody has.
        let without = (!sufficient.is_empty()).then(SecurityRequirement::default);
        operation.security = Some(sufficient.into_iter().map(requirement).chain(without).collect());
        if actions::has_no_body(action) {
            operation.responses.responses.extend(NoBodyProblem::responses());
        }
    }
}

pub(super) fn complete(mut document: Document) -> Value {
    describe_actions(&mut document);
    if let Some(components) = &mut document.components {
        schema::define(components);
        components.schemas.insert(TypeSchema::name().into_owned(), TypeSchema::schema());
    }
    let mut document = serde_json::to_value(document).unwrap_or_default();
    forbid_null(&mut document);
    document
}

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

macro_rules! sets {
    ($($(#[doc = $doc:literal])+ $name:ident: $($status:ident)+;)+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) enum $name {}

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    references(&[$(StatusCode::$status),+])
                }
            }
        )+
    };
}

sets! {
    /// Problems of a probe, which needs no token.
    ProbeProblem: BAD_REQUEST FORBIDDEN INTERNAL_SERVER_ERROR;
    /// Problems of a readiness probe.
    UnreadyProblem: SERVICE_UNAVAILABLE;
    /// Problems of a request that uses the store.
    StoreProblem: UNPROCESSABLE_ENTITY GATEWAY_TIMEOUT;
    /// Problems of a request about a topic.
    TopicProblem: NOT_FOUND CONFLICT UNPROCESSABLE_ENTITY GATEWAY_TIMEOUT;
    /// Problems of a request about the test clock or the configuration.
    TestClockProblem: NOT_FOUND UNPROCESSABLE_ENTITY GATEWAY_TIMEOUT;
    /// Problems of a request with a body.
    BodyProblem: REQUEST_TIMEOUT PAYLOAD_TOO_LARGE UNSUPPORTED_MEDIA_TYPE;
    /// Problems of a request that changes something and has no body.
    NoBodyProblem: REQUEST_TIMEOUT PAYLOAD_TOO_LARGE UNSUPPORTED_MEDIA_TYPE UNPROCESSABLE_ENTITY;
    /// Problems of a request that waits for deliveries.
    WaitProblem: TOO_MANY_REQUESTS;
    /// Problems of a request with `If-Match`.
    MatchProblem: PRECONDITION_FAILED;
}

impl IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        references(&[
            StatusCode::BAD_REQUEST,
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::INTERNAL_SERVER_ERROR,
            StatusCode::SERVICE_UNAVAILABLE,
        ])
    }
}

/// The verdict on the only receipt of a request, when its decision does not count; or an error of the request.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the problem of a single receipt that is not settled")]
#[schema(examples(json!({
    "type": "urn:dwell:error:not-settled", "title": "Delivery has ended", "status": 409,
    "detail": "the visibility timeout passed before this request", "reason": "deadline_passed", "failed": 1,
    "results": [{"receipt": "AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q", "status": "stale", "reason": "deadline_passed"}],
    "request_id": "01JGZK3W8M5T0000000000000A"
})))]
pub(crate) struct SettlementProblem {
    /// Type of the error. Programs switch on it.
    #[schema(value_type = TypeSchema)]
    r#type: String,
    /// Short name of the type, for people.
    title: String,
    /// HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The error, its place, and what to do; for people. It may change.
    detail: String,
    /// Name of the request, as in the header `Dwell-Request-Id` and in the broker's log.
    request_id: Option<String>,
    /// Why the decision does not count; absent when the request itself is wrong.
    #[schema(value_type = Option<schema::VerdictReason>)]
    reason: Option<String>,
    /// 1, with a `reason`.
    failed: Option<usize>,
    /// The verdict, with a `reason`.
    #[schema(schema_with = verdict_results, required = false)]
    results: Option<Vec<()>>,
}

fn verdict_results() -> ArrayBuilder {
    schema::list_of("Settled").description(Some("The verdict, with a `reason`."))
}

pub(crate) enum SettlementProblems {}

impl IntoResponses for SettlementProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let reference =
            |status: StatusCode| RefOr::Ref(Ref::from_response_name(format!("Settlement{}", name_of(status))));
        SETTLEMENT.into_iter().map(|(status, _)| (status.as_str().to_owned(), reference(status))).collect()
    }
}

const SETTLEMENT: [(StatusCode, &str); 4] = [
    (StatusCode::NOT_FOUND, "No such topic or group; or the only receipt is not of this topic and group."),
    (StatusCode::CONFLICT, "The delivery of the only receipt is over, or the request is for another broker."),
    (
        StatusCode::UNPROCESSABLE_ENTITY,
        "A field is unknown, repeated, missing or out of range; or the only receipt is none.",
    ),
    (StatusCode::GATEWAY_TIMEOUT, "The store or the owner did not answer: the delivery may have been settled."),
];

/// 405 is not listed: it means that there is no operation.
const STATUSES: [(StatusCode, &str); 14] = [
    (StatusCode::BAD_REQUEST, "The request cannot be read: broken JSON, bad UTF-8 or bad percent-encoding."),
    (StatusCode::UNAUTHORIZED, "The broker has tokens configured, and the request has none that it knows."),
    (StatusCode::FORBIDDEN, "The token lacks the required scope, or the request comes from another site."),
    (StatusCode::NOT_FOUND, "No such topic, group, message, cron job or test clock."),
    (StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time."),
    (StatusCode::CONFLICT, "The request contradicts what exists, or the topic changed meanwhile."),
    (StatusCode::PRECONDITION_FAILED, "The message or topic is not as `If-Match` says."),
    (StatusCode::PAYLOAD_TOO_LARGE, "A size limit is exceeded."),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The request takes another content type."),
    (StatusCode::UNPROCESSABLE_ENTITY, "A field or parameter is unknown, repeated, missing or out of range."),
    (StatusCode::TOO_MANY_REQUESTS, "Too many consumers wait."),
    (StatusCode::INTERNAL_SERVER_ERROR, "Stored bytes are unreadable, or the request met a defect in dwell."),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "The store cannot be reached, the broker is stopping, or a capacity limit is reached.",
    ),
    (StatusCode::GATEWAY_TIMEOUT, "The store did not answer: the request may have been applied."),
];

fn name_of(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().split(' ').collect()
}

fn references(statuses: &[StatusCode]) -> BTreeMap<String, RefOr<Response>> {
    let reference =
        |status: &StatusCode| (status.as_str().to_owned(), RefOr::Ref(Ref::from_response_name(name_of(*status))));
    statuses.iter().map(reference).collect()
}

fn problem_components() -> impl Iterator<Item = (String, RefOr<Response>)> {
    let everywhere = |class: &Class| !Class::OF_RECEIPTS.contains(class);
    let shared = STATUSES.into_iter().map(move |(status, about)| {
        (name_of(status), component(status, about, "Problem", Class::all().filter(everywhere)))
    });
    shared.chain(SETTLEMENT.into_iter().map(|(status, about)| {
        (format!("Settlement{}", name_of(status)), component(status, about, "SettlementProblem", Class::all()))
    }))
}

fn component(
    status: StatusCode,
    about: &'static str,
    schema: &str,
    classes: impl Iterator<Item = Class>,
) -> RefOr<Response> {
    let classes = classes.filter(|class| answers(*class).contains(&status));
    let examples = classes.map(|class| {
        let mut body = serde_json::to_value(Problem::new(class, about).body()).unwrap_or_default();
        body["status"] = status.as_u16().into();
        (class.name(), ExampleBuilder::new().summary(class.title()).value(Some(body)).build())
    });
    let content =
        ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).examples_from_iter(examples).build();
    let response = ResponseBuilder::new().description(about).content(PROBLEM_JSON, content);
    let response = match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            response.header(RETRY_AFTER.as_str(), header("Seconds after which to try again.", Type::Integer))
        }
        StatusCode::UNAUTHORIZED => {
            response.header(WWW_AUTHENTICATE.as_str(), header("The scheme, `Bearer`.", Type::String))
        }
        _ => response,
    };
    response.build().into()
}

fn answers(class: Class) -> Vec<StatusCode> {
    let of_waiting = (class == Class::Verb(Kind::Full)).then_some(StatusCode::TOO_MANY_REQUESTS);
    of_waiting.into_iter().chain([class.status()]).collect()
}

fn header(about: &str, kind: Type) -> Header {
    HeaderBuilder::new().schema(ObjectBuilder::new().schema_type(kind)).description(Some(about)).build()
}

/// Properties that tools rely on; `make contract` runs the tools themselves.
#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tower::ServiceExt;

    use crate::api::http::{openapi, router, tests};

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn resolve<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
        let target = part["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
        target.and_then(|target| document.pointer(target)).unwrap_or(part)
    }

    fn each_operation<'a>(document: &'a Value, mut check: impl FnMut(&str, &'a Value)) {
        let mut count = 0;
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                check(&format!("{} {path}", method.to_uppercase()), operation);
                count += 1;
            }
        }
        assert!(count > 35, "{count} operations");
    }

    fn example(document: &Value, schema: &Value) -> Option<Value> {
        let given = |schema: &Value| schema["examples"].get(0).cloned();
        given(schema).or_else(|| given(resolve(document, schema)))
    }

    #[test]
    fn operation_ids_are_unique_and_begin_with_a_verb() {
        const VERBS: &str = "ack cancel change count create delete drain explain extend forecast get list move nack \
                             pause purge push redrive release reload repair reschedule reserve resume stream take update verify";
        let document = openapi();
        let mut ids = BTreeMap::new();
        each_operation(&document, |request, operation| {
            let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
            let speaks = VERBS.split(' ').any(|verb| {
                id.strip_prefix(verb).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
            });
            assert!(speaks && id.chars().all(|c| c.is_ascii_alphanumeric()), "{request}: {id:?}");
            let other = ids.insert(id.clone(), request.to_owned());
            assert_eq!(other, None, "{request} is also called {id}");
        });
    }

    #[test]
    fn document_names_servers_licence_scopes_and_describes_tags() {
        let document = openapi();
        assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1.")));
        assert!(document["servers"][0]["url"].as_str().is_some_and(|url| url.starts_with("http")));
        assert!(document["info"]["license"]["identifier"].is_string());
        let described: BTreeSet<_> = document["tags"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|tag| tag["description"].as_str().is_some_and(|text| text.ends_with('.')))
            .filter_map(|tag| tag["name"].as_str())
            .collect();
        let mut used = BTreeSet::new();
        each_operation(&document, |request, operation| {
            assert_eq!(operation["tags"].as_array().map(Vec::len), Some(1), "{request}");
            used.extend(operation["tags"][0].as_str());
        });
        assert_eq!(used, described);
        for scope in crate::gate::access::Scope::ALL.map(crate::gate::access::Scope::name) {
            let about = document["components"]["securitySchemes"][scope]["description"].as_str().unwrap_or_default();
            assert!(about.contains(&format!("`{scope}`")), "{scope}: {about}");
        }
    }

    #[test]
    fn every_operation_parameter_and_field_is_described() {
        let document = openapi();
        let says = |part: &Value| part["description"].as_str().is_some_and(|text| text.len() > 3);
        each_operation(&document, |request, operation| {
            assert!(operation["summary"].as_str().is_some_and(|text| text.len() < 120), "{request} has no summary");
            assert!(says(operation), "{request}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(says(parameter), "{request}: {}", parameter["name"]);
            }
            for (status, response) in operation["responses"].as_object().into_iter().flatten() {
                assert!(says(resolve(&document, response)), "{request} {status}");
            }
        });
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            assert!(says(schema), "{name}");
            let parts = schema["allOf"].as_array().into_iter().flatten().chain([schema]);
            for (field, property) in parts.filter_map(|part| part["properties"].as_object()).flatten() {
                let constant = property["enum"].as_array().is_some_and(|words| words.len() == 1);
                assert!(says(property) || says(resolve(&document, property)) || constant, "{name}.{field}");
            }
        }
    }

    fn expected_statuses(request: &str, operation: &Value) -> BTreeSet<&'static str> {
        let mut statuses = BTreeSet::from(["400", "403", "500"]);
        if !["GET /livez", "GET /readyz"].contains(&request) {
            statuses.extend(["401", "503"]);
        }
        if request.contains("/v1/") {
            statuses.extend(["422", "504"]);
        }
        if request.contains("{topic}") {
            statuses.extend(["404", "409"]);
        }
        if request.contains("/v1/test/") {
            statuses.insert("404");
        }
        if !request.starts_with("GET") {
            statuses.extend(["408", "413", "422"]);
        }
        let body = &operation["requestBody"];
        if !request.starts_with("GET") && (body.is_null() || body["content"]["application/json"].is_object()) {
            statuses.insert("415");
        }
        if request.ends_with("/reserve") || request.ends_with("/stream") {
            statuses.insert("429");
        }
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        if parameters.into_iter().any(|parameter| parameter["name"] == "If-Match") {
            statuses.insert("412");
        }
        statuses
    }

    #[test]
    fn every_operation_documents_every_possible_status() {
        let document = openapi();
        each_operation(&document, |request, operation| {
            let statuses: BTreeSet<_> =
                operation["responses"].as_object().into_iter().flatten().map(|(status, _)| status.as_str()).collect();
            assert!(statuses.iter().any(|status| status.starts_with('2')), "{request}: {statuses:?}");
            let missing: Vec<_> =
                expected_statuses(request, operation).into_iter().filter(|status| !statuses.contains(status)).collect();
            assert!(missing.is_empty(), "{request} lacks {missing:?}");
            for status in statuses.iter().filter(|status| !status.starts_with('2')) {
                let response = resolve(&document, &operation["responses"][status]);
                let content = &response["content"]["application/problem+json"];
                let settles = ["/ack", "/nack", "/release", "/extend"].iter().any(|verb| request.ends_with(verb));
                let names_receipts = settles && ["404", "409", "422", "504"].contains(status);
                let schema = if names_receipts { "SettlementProblem" } else { "Problem" };
                assert_eq!(content["schema"]["$ref"], format!("#/components/schemas/{schema}"), "{request} {status}");
                for (name, example) in content["examples"].as_object().into_iter().flatten() {
                    let value = &example["value"];
                    assert_eq!(value["status"].to_string(), **status, "{request} {name}");
                    assert_eq!(value["type"], format!("urn:dwell:error:{name}"), "{request}");
                }
            }
        });
    }

    #[test]
    fn every_body_and_shared_parameter_has_an_example() {
        let document = openapi();
        each_operation(&document, |request, operation| {
            let successes = operation["responses"].as_object().into_iter().flatten();
            let successes = successes.filter(|(status, _)| status.starts_with('2')).map(|(_, response)| response);
            for body in successes.chain([&operation["requestBody"]]) {
                for (content_type, content) in body["content"].as_object().into_iter().flatten() {
                    let given = content["example"].is_null() && example(&document, &content["schema"]).is_none();
                    assert!(!given, "{request}: {content_type}");
                }
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let schema = &parameter["schema"];
                let plain = ["integer", "boolean"].iter().any(|kind| schema["type"] == *kind);
                let given = plain || !parameter["example"].is_null() || example(&document, schema).is_some();
                assert!(given, "{request}: {}", parameter["name"]);
            }
        });
    }

    #[test]
    fn response_examples_match_their_schemas() {
        fn fields<'a>(
            document: &'a Value,
            schema: &'a Value,
            known: &mut BTreeSet<&'a str>,
            must: &mut BTreeSet<&'a str>,
        ) {
            let schema = resolve(document, schema);
            known.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
            must.extend(schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str));
            schema["allOf"].as_array().into_iter().flatten().for_each(|part| fields(document, part, known, must));
        }
        let document = openapi();
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            let (mut known, mut must) = (BTreeSet::new(), BTreeSet::new());
            fields(&document, schema, &mut known, &mut must);
            let Some(Value::Object(example)) = example(&document, schema).filter(|_| !known.is_empty()) else {
                continue;
            };
            let given: BTreeSet<_> = example.keys().map(String::as_str).collect();
            assert!(given.is_subset(&known), "{name}: {given:?} beside {known:?}");
            assert!(must.is_subset(&given), "{name}: {given:?} lacks some of {must:?}");
        }
    }

    /// Every request, built from the examples of its parameters and body, is valid up to the unavailable store.
    #[tokio::test]
    async fn requests_built_from_the_examples_are_accepted() -> Outcome {
        let document = openapi();
        let mut requests = Vec::new();
        each_operation(&document, |request, operation| {
            let (method, path) = request.split_once(' ').unwrap_or_default();
            let mut path = path.to_owned();
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let headers: Vec<(String, String)> = parameters
                .filter(|parameter| parameter["in"] == "header")
                .filter_map(|parameter| {
                    Some((parameter["name"].as_str()?.to_owned(), parameter["example"].as_str()?.to_owned()))
                })
                .collect();
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let value = example(&document, &parameter["schema"]).unwrap_or_default();
                let value = value.as_str().unwrap_or_default();
                path = path.replace(&format!("{{{}}}", parameter["name"].as_str().unwrap_or_default()), value);
            }
            if request.starts_with("GET") && path.ends_with("/bulk") {
                path.push_str("?from=2026-01-02T03:04:05Z&to=2026-01-02T04:04:05Z");
            }
            let contents = operation["requestBody"]["content"].as_object().into_iter().flatten();
            let bodies: Vec<_> = contents
                .map(|(content_type, content)| {
                    let body = example(&document, &content["schema"]).unwrap_or_else(|| content["example"].clone());
                    let is_page = content_type == crate::outage::hand_over::MEDIA_TYPE;
                    (content_type.clone(), if is_page { String::new() } else { body.to_string() })
                })
                .collect();
            let empty = bodies.is_empty().then(|| (String::new(), String::new()));
            for (content_type, body) in bodies.into_iter().chain(empty) {
                requests.push((method.to_owned(), path.clone(), content_type, headers.clone(), body));
            }
        });
        for (method, path, content_type, headers, body) in requests {
            let mut request = Request::builder().method(method.as_str()).uri(&path).header("host", "localhost:7373");
            if !content_type.is_empty() {
                request = request.header("content-type", &content_type);
            }
            request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
            let response = router(tests::app()?).oneshot(request.body(Body::from(body))?).await?;
            let status = response.status().as_u16();
            let said = response.into_body().collect().await?.to_bytes();
            // This broker has no test clock.
            let expected = if path.starts_with("/v1/test/") { [404, 404] } else { [200, 503] };
            assert!(expected.contains(&status), "{method} {path}: {status} {}", String::from_utf8_lossy(&said));
        }
        Ok(())
    }
}
