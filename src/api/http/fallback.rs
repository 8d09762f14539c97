//! Requests for which there is no route, or none with their method.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::extract::MatchedPath;
use axum::http::{Method, Uri};

use super::document::SERVED;
use super::problem::{Class, Problem};
use crate::model::error::Kind;

/// Methods in the order in which they are listed.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// A batch is pushed at the path of the message with the id `batch`.
const BATCH: &str = "/v1/topics/{topic}/messages/batch";

/// The methods of every documented path.
static ALLOWED: LazyLock<BTreeMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let methods_of = |path: &str| {
        let documented = |method: &&str| SERVED["paths"][path].get(method.to_ascii_lowercase()).is_some();
        METHODS.into_iter().filter(documented).collect::<Vec<_>>()
    };
    let paths = SERVED["paths"].as_object().into_iter().flat_map(serde_json::Map::keys);
    let mut allowed: BTreeMap<_, _> = paths.map(|path| (path.as_str(), methods_of(path))).collect();
    allowed.entry(BATCH).or_default().extend(methods_of("/v1/topics/{topic}/messages/{id}"));
    for methods in allowed.values_mut() {
        // Whoever answers GET answers HEAD.
        if let Some(get) = methods.iter().position(|method| *method == "GET") {
            methods.insert(get + 1, "HEAD");
        }
    }
    allowed
});

pub(super) async fn no_route(uri: Uri) -> Problem {
    let hint = match uri.path() {
        "/health" | "/healthz" => "; readiness is at /readyz, liveness at /livez",
        _ => "",
    };
    Problem::new(Class::Verb(Kind::NotFound), format!("there is nothing at {:?}{hint}", uri.path()))
}

pub(super) async fn no_method(method: Method, path: Option<MatchedPath>, uri: Uri) -> Problem {
    let hint = match uri.path().ends_with("/stream") {
        true => "; a stream takes messages, so it is opened with POST",
        false => "",
    };
    // What is not documented are the files of the console.
    let allowed = path.and_then(|path| ALLOWED.get(path.as_str())).map_or("GET, HEAD".to_owned(), |all| all.join(", "));
    let detail = format!("{method} is not a method of {:?}; allowed: {allowed}{hint}", uri.path());
    Problem::new(Class::MethodNotAllowed, detail)
}
