//! What each request needs: the one place that says it. A request that is not here needs `admin`.
//!
//! What shows payloads needs a scope, for what shows names and numbers any token will do: a list, dead letters and cron jobs need
//! `consume`. A message can also be looked at with `produce`: who knows its id may cancel it.

use axum::http::Method;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::SecurityRequirement;

use crate::api::access::{Scope, Scopes};

/// What a request needs when tokens are configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    Open,
    /// Any token.
    Token,
    /// A token with one of these scopes, or `admin`.
    One(Scopes),
}

const PRODUCE: Need = Need::One(Scopes::of(&[Scope::Produce]));
const CONSUME: Need = Need::One(Scopes::of(&[Scope::Consume]));
const EITHER: Need = Need::One(Scopes::of(&[Scope::Produce, Scope::Consume]));
const ADMIN: Need = Need::One(Scopes::of(&[Scope::Admin]));

/// A topic, and a group of it, as routes begin.
macro_rules! topic {
    ($rest:literal) => {
        concat!("/v1/topics/{topic}", $rest)
    };
}
macro_rules! group {
    ($rest:literal) => {
        concat!("/v1/topics/{topic}/groups/{group}", $rest)
    };
}

/// Every request of the protocol, and the one of its paths that is two: a batch, and the message with the id `batch`.
pub(crate) const NEEDS: [(&str, &str, Need); 45] = [
    ("GET", "/livez", Need::Open),
    ("GET", "/readyz", Need::Open),
    ("GET", "/metrics", Need::Token),
    ("GET", "/openapi.json", Need::Token),
    ("POST", "/v1/hand-over", PRODUCE),
    ("GET", "/v1/topics", Need::Token),
    ("GET", topic!(""), Need::Token),
    ("PUT", topic!(""), ADMIN),
    ("DELETE", topic!(""), ADMIN),
    ("POST", topic!("/move"), ADMIN),
    ("GET", topic!("/groups"), Need::Token),
    ("GET", group!(""), Need::Token),
    ("PUT", group!(""), ADMIN),
    ("DELETE", group!(""), ADMIN),
    ("POST", group!("/pause"), ADMIN),
    ("POST", group!("/resume"), ADMIN),
    ("GET", group!("/forecast"), Need::Token),
    ("GET", group!("/bulk"), Need::Token),
    ("POST", group!("/bulk"), ADMIN),
    ("GET", group!("/verify"), ADMIN),
    ("POST", group!("/verify"), ADMIN),
    ("GET", topic!("/cron"), CONSUME),
    ("GET", topic!("/cron/{name}"), CONSUME),
    ("PUT", topic!("/cron/{name}"), ADMIN),
    ("DELETE", topic!("/cron/{name}"), ADMIN),
    ("POST", topic!("/cron/{name}/pause"), ADMIN),
    ("POST", topic!("/cron/{name}/resume"), ADMIN),
    ("POST", topic!("/messages"), PRODUCE),
    ("POST", topic!("/messages/batch"), PRODUCE),
    ("GET", topic!("/messages"), CONSUME),
    ("GET", topic!("/messages/{id}"), EITHER),
    ("DELETE", topic!("/messages/{id}"), PRODUCE),
    ("PATCH", topic!("/messages/{id}"), PRODUCE),
    ("GET", topic!("/messages/batch"), EITHER),
    ("DELETE", topic!("/messages/batch"), PRODUCE),
    ("PATCH", topic!("/messages/batch"), PRODUCE),
    ("GET", topic!("/messages/{id}/explain"), Need::Token),
    ("POST", group!("/reserve"), CONSUME),
    ("POST", group!("/stream"), CONSUME),
    ("POST", group!("/ack"), CONSUME),
    ("POST", group!("/nack"), CONSUME),
    ("POST", group!("/extend"), CONSUME),
    ("GET", group!("/dead-letters"), CONSUME),
    ("POST", group!("/dead-letters/redrive"), ADMIN),
    ("POST", group!("/dead-letters/purge"), ADMIN),
];

impl Need {
    /// What a request needs, by the route that it matched, if it matched one.
    pub(crate) fn of(method: &Method, route: Option<&str>, path: &str) -> Need {
        let reads = is_read(method);
        // The console's files say nothing of this broker. What it shows comes over the routes above.
        let place = route.unwrap_or(path);
        if reads && (place == "/" || place == "/ui" || place.starts_with("/ui/")) {
            return Need::Open;
        }
        // Nothing is there, which is said to whoever has a token.
        let Some(route) = route else { return Need::Token };
        let method = if reads { "GET" } else { method.as_str() };
        NEEDS.iter().find(|(needs, path, _)| *needs == method && *path == route).map_or(ADMIN, |(_, _, need)| *need)
    }
}

/// Whether a token with these scopes sees what producers and consumers wrote.
pub(crate) fn may_see_payloads(scopes: Scopes) -> bool {
    matches!(EITHER, Need::One(needed) if scopes.grant(needed))
}

/// Whether a request changes what the broker keeps for everybody.
pub(crate) fn is_change(method: &Method, route: &str) -> bool {
    !is_read(method) && NEEDS.contains(&(method.as_str(), route, ADMIN))
}

/// Whether a request changes nothing.
pub(crate) fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// Says in the OpenAPI document of which scopes the token of each request needs one.
pub(crate) fn document(document: &mut OpenApi) {
    for (method, path, need) in NEEDS {
        let Some(item) = document.paths.paths.get_mut(path) else { continue };
        let operation = match method {
            "GET" => &mut item.get,
            "PUT" => &mut item.put,
            "POST" => &mut item.post,
            "DELETE" => &mut item.delete,
            _ => &mut item.patch,
        };
        let Some(operation) = operation else { continue };
        let sufficient = match need {
            Need::Open => vec![],
            Need::Token => Scope::ALL.to_vec(),
            Need::One(scopes) => Scope::ALL.into_iter().filter(|scope| Scopes::of(&[*scope]).grant(scopes)).collect(),
        };
        let requirement = |scope: Scope| SecurityRequirement::new(scope.name(), [""; 0]);
        operation.security = Some(sufficient.into_iter().map(requirement).collect());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_says_what_it_needs_and_the_document_too() {
        let document = crate::api::http::openapi();
        let mut served: BTreeSet<(String, String)> = BTreeSet::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                served.insert((method.to_uppercase(), path.clone()));
                let security = operation["security"].as_array().map(Vec::len);
                let open = ["/livez", "/readyz"].contains(&path.as_str());
                assert_eq!(security == Some(0), open, "{method} {path}");
                assert!(security.is_some(), "{method} {path} says nothing of what it needs");
                for code in ["401", "403"] {
                    let said = operation["responses"][code].is_object();
                    assert_eq!(said, !open || code == "403", "{method} {path} {code}");
                }
            }
        }
        // The message with the id `batch` is in no document: its path is that of batches.
        let of_batch = |method: &str| (method.to_owned(), "/v1/topics/{topic}/messages/batch".to_owned());
        served.extend(["GET", "DELETE", "PATCH"].map(of_batch));
        let said: BTreeSet<_> =
            NEEDS.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(said, served);
        assert_eq!(said.len(), NEEDS.len(), "one is there twice");
    }

    #[test]
    fn what_is_not_known_needs_admin_and_only_files_of_the_console_need_nothing() {
        let of = |method: &str, route| Need::of(&method.parse().unwrap_or_default(), Some(route), "/");
        assert_eq!(of("HEAD", "/livez"), Need::Open);
        assert_eq!(of("HEAD", "/v1/topics/{topic}/messages"), CONSUME);
        assert_eq!(of("POST", "/livez"), ADMIN);
        assert_eq!(of("GET", "/new"), ADMIN);
        for (path, open) in
            [("/", true), ("/ui", true), ("/ui/", true), ("/ui/{*path}", true), ("/uix", false), ("/v1/ui/", false)]
        {
            assert_eq!(of("GET", path) == Need::Open, open, "{path}");
            assert_eq!(of("POST", path), ADMIN, "{path}");
        }
        assert_eq!(Need::of(&Method::POST, None, "/ui/"), Need::Token);
        assert_eq!(Need::of(&Method::GET, None, "/ui/absent.js"), Need::Open);
        assert_eq!(Need::of(&Method::GET, Some("/v1/topics"), "/ui/"), Need::Token);
    }
}
