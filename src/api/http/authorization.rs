//! The scope that each request needs, and the audit log. A request that is not listed here needs `admin`.
//!
//! Requests that show payloads need a scope; for names and numbers any token is enough. A message can also be read with
//! `produce`: a client that knows its id may cancel it.

use axum::RequestExt as _;
use axum::extract::{MatchedPath, RawPathParams, Request};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::SecurityRequirement;

use super::origin_guard::bearer;
use super::problem::{Class, Problem};
use super::{App, body, path_params};
use crate::api::access::{Actor, Scope, Scopes};
use crate::model::message::{CronJobName, GroupName, MessageId, TopicName};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Open,
    Token,
    One(Scopes),
}

const PRODUCE: Need = Need::One(Scopes::of(&[Scope::Produce]));
const CONSUME: Need = Need::One(Scopes::of(&[Scope::Consume]));
const EITHER: Need = Need::One(Scopes::of(&[Scope::Produce, Scope::Consume]));
const ADMIN: Need = Need::One(Scopes::of(&[Scope::Admin]));

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

/// Every request of the protocol. One path has two meanings: a batch, and the message with the id `batch`.
const NEEDS: [(&str, &str, Need); 51] = [
    ("GET", "/livez", Need::Open),
    ("GET", "/readyz", Need::Open),
    ("GET", "/metrics", Need::Token),
    ("GET", "/openapi.json", Need::Token),
    ("POST", "/v1/hand-over", PRODUCE),
    ("GET", "/v1/test/clock", Need::Token),
    ("POST", "/v1/test/clock", ADMIN),
    ("GET", "/v1/attention", Need::Token),
    ("GET", "/v1/brokers", Need::Token),
    ("GET", "/v1/traffic", Need::Token),
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
    ("POST", group!("/purge"), ADMIN),
];

impl Need {
    fn of(method: &Method, route: Option<&str>, path: &str) -> Need {
        let reads = is_read(method);
        // The files of the console contain nothing about this broker.
        let place = route.unwrap_or(path);
        if reads && (place == "/" || place == "/ui" || place.starts_with("/ui/")) {
            return Need::Open;
        }
        let Some(route) = route else { return Need::Token };
        let method = if reads { "GET" } else { method.as_str() };
        NEEDS.iter().find(|(needs, path, _)| *needs == method && *path == route).map_or(ADMIN, |(_, _, need)| *need)
    }
}

pub(crate) fn may_see_payloads(scopes: Scopes) -> bool {
    matches!(EITHER, Need::One(needed) if scopes.grant(needed))
}

fn is_change(method: &Method, route: &str) -> bool {
    !is_read(method) && NEEDS.contains(&(method.as_str(), route, ADMIN))
}

pub(crate) fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

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

pub(crate) async fn check(app: &App, mut request: Request, next: Next) -> Response {
    if let Err(problem) = path_params::check_path(request.uri().path()) {
        return refused(app, request, problem);
    }
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let need = Need::of(request.method(), route, request.uri().path());
    let actor = match authenticate(app, need, request.headers()) {
        Ok(actor) => actor,
        Err(problem) => return refused(app, request, problem),
    };
    if is_read(request.method())
        && need != Need::Open
        && let Err(error) = app.answers.while_room(async {}).await
    {
        return refused(app, request, error.into());
    }
    if let Some(actor) = actor {
        request.extensions_mut().insert(actor.scopes);
    }
    let line = Line::begin(actor, route, &mut request).await;
    let response = match lacks(need, actor) {
        Some(problem) => refused(app, request, problem),
        None => next.run(request).await,
    };
    if let Some(line) = line {
        line.end(&response);
    }
    response
}

fn authenticate<'a>(app: &'a App, need: Need, headers: &HeaderMap) -> Result<Option<&'a Actor>, Problem> {
    if need == Need::Open {
        return Ok(None);
    }
    let token = bearer(headers)?;
    match app.access.authenticate(token) {
        Some(actor) => Ok(Some(actor)),
        None => {
            let detail = match token {
                None => "a token is needed: `Authorization: Bearer TOKEN`",
                Some(_) => "the token is none of those that are known here",
            };
            Err(Problem::new(Class::Unauthorized, detail))
        }
    }
}

fn lacks(need: Need, actor: Option<&Actor>) -> Option<Problem> {
    let (Need::One(needed), Some(actor)) = (need, actor) else { return None };
    if actor.scopes.grant(needed) {
        return None;
    }
    let has: Vec<_> = actor.scopes.each().map(|scope| scope.name()).collect();
    let detail = format!("this needs a token with the scope {needed}; `{}` has {}", actor.name, has.join(", "));
    Some(Problem::new(Class::ScopeMissing, detail))
}

fn refused(app: &App, request: Request, problem: Problem) -> Response {
    let (parts, unread) = request.into_parts();
    body::refused(app, &parts.headers, unread);
    problem.into_response()
}

pub const CLI_USER_AGENT_PREFIX: &str = "dwell-cli/";

/// A line of the audit log. It is written when dropped, so also when the client left before the answer.
///
/// Logged are changes that need `admin`, and cancels and reschedules made by a person: with the command line or in a
/// browser. Cancels of an application are its daily work.
#[derive(Debug)]
pub(crate) struct Line {
    actor: Actor,
    method: Method,
    route: String,
    subject: Subject,
    status: Option<u16>,
}

#[derive(Debug, Default)]
struct Subject {
    topic: Option<TopicName>,
    group: Option<GroupName>,
    cron: Option<CronJobName>,
    id: Option<MessageId>,
}

impl Line {
    pub(crate) async fn begin(actor: Option<&Actor>, route: Option<&str>, request: &mut Request) -> Option<Line> {
        let (actor, route) = actor.zip(route)?;
        let method = request.method().clone();
        let is_noted = is_change(&method, route) || is_control(&method, route) && is_by_hand(request);
        if !is_noted {
            return None;
        }
        let (actor, route) = (actor.clone(), route.to_owned());
        // A path that is badly encoded names nothing; the request is refused for it.
        let params = request.extract_parts::<RawPathParams>().await.ok();
        let subject = params.as_ref().map(Subject::of).unwrap_or_default();
        Some(Line { actor, method, route, subject, status: None })
    }

    /// Of a request of another protocol.
    pub(crate) fn of_gateway(actor: Actor, route: &str, topic: Option<TopicName>) -> Line {
        let (subject, route) = (Subject { topic, ..Subject::default() }, route.to_owned());
        Line { actor, method: Method::POST, route, subject, status: None }
    }

    pub(crate) fn end(mut self, response: &Response) {
        self.status = Some(response.status().as_u16());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Subject { topic, group, cron, id } = &self.subject;
        let (topic, group) = (topic.as_ref().map(TopicName::as_str), group.as_ref().map(GroupName::as_str));
        let (cron, id) = (cron.as_ref().map(CronJobName::as_str), id.as_ref().map(MessageId::as_str));
        let (actor, method, route) = (&*self.actor.name, self.method.as_str(), &*self.route);
        match self.status {
            Some(status) => tracing::info!(
                target: "dwell::audit", actor, method, route, topic, group, cron, id, status, "done"
            ),
            None => tracing::info!(
                target: "dwell::audit", actor, method, route, topic, group, cron, id,
                "the client left before it was answered; perhaps done"
            ),
        }
    }
}

impl Subject {
    fn of(params: &RawPathParams) -> Subject {
        let value = |name| params.iter().find(|(given, _)| *given == name).map(|(_, value)| value);
        Subject {
            topic: value("topic").and_then(|text| TopicName::new(text).ok()),
            group: value("group").and_then(|text| GroupName::new(text).ok()),
            cron: value("name").and_then(|text| CronJobName::new(text).ok()),
            id: value("id").and_then(|text| MessageId::new(text).ok()),
        }
    }
}

fn is_control(method: &Method, route: &str) -> bool {
    let routes = ["/v1/topics/{topic}/messages/{id}", "/v1/topics/{topic}/messages/batch"];
    [Method::DELETE, Method::PATCH].contains(method) && routes.contains(&route)
}

/// Whether a person makes the request: browsers send `Origin` with a change.
fn is_by_hand(request: &Request) -> bool {
    let agent = request.headers().get(header::USER_AGENT).map(|agent| agent.as_bytes());
    agent.is_some_and(|agent| agent.starts_with(CLI_USER_AGENT_PREFIX.as_bytes()))
        || request.headers().contains_key(header::ORIGIN)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_and_the_document_list_required_scopes() {
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
        // The message with the id `batch` is not in the document: its path is that of batches.
        let of_batch = |method: &str| (method.to_owned(), "/v1/topics/{topic}/messages/batch".to_owned());
        served.extend(["GET", "DELETE", "PATCH"].map(of_batch));
        let said: BTreeSet<_> =
            NEEDS.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(said, served);
        assert_eq!(said.len(), NEEDS.len(), "one is there twice");
    }

    #[test]
    fn unknown_routes_need_admin_and_only_console_files_are_public() {
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
