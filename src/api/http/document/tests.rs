//! What tools that read the document rely on; `make contract` runs the tools themselves.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use crate::api::http::{openapi, router, testing};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Resolves a reference, if it is one.
fn resolve<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    let target = part["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
    target.and_then(|target| document.pointer(target)).unwrap_or(part)
}

/// Calls `check` with each operation, as in `GET /v1/topics`.
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

/// The example of a schema: its own, or that of its reference.
fn example(document: &Value, schema: &Value) -> Option<Value> {
    let given = |schema: &Value| schema["examples"].get(0).cloned();
    given(schema).or_else(|| given(resolve(document, schema)))
}

#[test]
fn operation_ids_are_unique_and_begin_with_a_verb() {
    const VERBS: [&str; 25] = [
        "ack",
        "cancel",
        "change",
        "count",
        "create",
        "delete",
        "explain",
        "extend",
        "forecast",
        "get",
        "list",
        "move",
        "nack",
        "pause",
        "purge",
        "push",
        "redrive",
        "repair",
        "reschedule",
        "reserve",
        "resume",
        "stream",
        "take",
        "update",
        "verify",
    ];
    let document = openapi();
    let mut ids = BTreeMap::new();
    each_operation(&document, |request, operation| {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        let speaks = VERBS.iter().any(|verb| {
            id.strip_prefix(verb).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
        });
        assert!(speaks && id.chars().all(|c| c.is_ascii_alphanumeric()), "{request}: {id:?}");
        let other = ids.insert(id.clone(), request.to_owned());
        assert_eq!(other, None, "{request} is also called {id}");
    });
}

#[test]
fn the_head_names_servers_licence_and_scopes_and_describes_every_tag() {
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
    for scope in crate::api::access::Scope::ALL.map(crate::api::access::Scope::name) {
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

/// The statuses of an operation that follow from what it takes.
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
    if operation["requestBody"].is_object() {
        statuses.extend(["408", "413"]);
    }
    if operation["requestBody"]["content"]["application/json"].is_object() {
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
fn every_operation_has_every_status_that_it_can_answer() {
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
            let settles = ["/ack", "/nack", "/extend"].iter().any(|verb| request.ends_with(verb));
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
fn every_body_and_every_shared_text_has_an_example() {
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

/// The example of an answer has no field that its schema lacks, and every one that it requires.
#[test]
fn examples_of_answers_have_the_fields_of_their_schemas() {
    fn fields<'a>(document: &'a Value, schema: &'a Value, known: &mut BTreeSet<&'a str>, must: &mut BTreeSet<&'a str>) {
        let schema = resolve(document, schema);
        known.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
        must.extend(schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str));
        schema["allOf"].as_array().into_iter().flatten().for_each(|part| fields(document, part, known, must));
    }
    let document = openapi();
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let (mut known, mut must) = (BTreeSet::new(), BTreeSet::new());
        fields(&document, schema, &mut known, &mut must);
        let Some(Value::Object(example)) = example(&document, schema).filter(|_| !known.is_empty()) else { continue };
        let given: BTreeSet<_> = example.keys().map(String::as_str).collect();
        assert!(given.is_subset(&known), "{name}: {given:?} beside {known:?}");
        assert!(must.is_subset(&given), "{name}: {given:?} lacks some of {must:?}");
    }
}

/// Every request, written with the examples of its parameters and body, is read: its store is away, and nothing else is
/// wrong with it.
#[tokio::test]
async fn requests_made_of_the_examples_are_understood() -> Outcome {
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
        // A window has two ends.
        if request.starts_with("GET") && path.ends_with("/bulk") {
            path.push_str("?from=2026-01-02T03:04:05Z&to=2026-01-02T04:04:05Z");
        }
        let contents = operation["requestBody"]["content"].as_object().into_iter().flatten();
        let bodies: Vec<_> = contents
            .map(|(content_type, content)| {
                let body = example(&document, &content["schema"]).unwrap_or_else(|| content["example"].clone());
                // Records are written by brokers; a page of them may be empty.
                let is_page = content_type == crate::outage::successor::MEDIA_TYPE;
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
        let response = router(testing::app()?).oneshot(request.body(Body::from(body))?).await?;
        let status = response.status().as_u16();
        let said = response.into_body().collect().await?.to_bytes();
        assert!([200, 503].contains(&status), "{method} {path}: {status} {}", String::from_utf8_lossy(&said));
    }
    Ok(())
}
