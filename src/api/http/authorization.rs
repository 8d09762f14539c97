//! Every request on its way to its handler: through the gate, and into the audit log.

use axum::RequestExt as _;
use axum::extract::{MatchedPath, RawPathParams, Request};
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::actions::{self, is_read};
use super::connection_limit::Connection;
use super::origin_guard::bearer;
use super::problem::{Class, Problem};
use super::{App, body, counted_answer, path_params, strict_json};
use crate::gate::access::{Actor, Scopes};
use crate::gate::{Action, Claim, Effect, Entrant, Needs, Pass, Refusal, Sent};
use crate::model::error::{Fault, Kind};
use crate::model::message::{CronJobName, GroupName, MessageId, TopicName};

pub(crate) fn may_see_payloads(scopes: Scopes) -> bool {
    Needs::EITHER.are_met_by(scopes)
}

/// Whether keys of any messages are shown: they are in lists of messages, too.
pub(crate) fn may_see_keys(scopes: Scopes) -> bool {
    Needs::CONSUME.are_met_by(scopes)
}

pub(crate) async fn check(app: &App, mut request: Request, next: Next) -> Response {
    if let Err(problem) = path_params::check_path(request.uri().path()) {
        return refused(app, request, problem);
    }
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let action = actions::of(request.method(), route, request.uri().path());
    let entrant = match enter(app, action, request.headers()) {
        Ok(entrant) => entrant,
        Err(problem) => return refused(app, request, problem),
    };
    let identity = entrant.identity().clone();
    if let Some(connection) = request.extensions().get::<Connection>() {
        connection.is_of(&identity);
    }
    let line = Line::begin(action, entrant.actor(), &mut request).await;
    let sent = if is_read(request.method()) { Sent::ByLink } else { Sent::OnPurpose };
    let response = match app.gate.pass(entrant, action, sent).await {
        Err(refusal) => refused(app, request, refusal.into()),
        Ok(pass) => match admitted(app, pass, request).await {
            Err(problem) => problem.into_response(),
            Ok(request) => identity.clone().scope(next.run(request)).await,
        },
    };
    if let Some(line) = line {
        line.end(&response);
    }
    counted_answer::count(&app.gate.answers, &identity, response)
}

/// A request that passed the gate, unless it says something that nobody would look at.
async fn admitted(app: &App, pass: Pass, mut request: Request) -> Result<Request, Problem> {
    let action = pass.action();
    if action.effect == Effect::Changes
        && let Err(problem) = check_conditions(action, request.headers())
    {
        let (parts, unread) = request.into_parts();
        body::refused(app, &parts.headers, unread);
        return Err(problem);
    }
    if actions::has_no_body(action) {
        request = strict_json::without_fields(app, &pass, request).await?;
    }
    request.extensions_mut().insert(pass);
    Ok(request)
}

const CONDITIONS: [(HeaderName, &str); 4] = [
    (header::IF_MATCH, "If-Match"),
    (header::IF_NONE_MATCH, "If-None-Match"),
    (header::IF_MODIFIED_SINCE, "If-Modified-Since"),
    (header::IF_UNMODIFIED_SINCE, "If-Unmodified-Since"),
];

fn check_conditions(action: &Action, headers: &HeaderMap) -> Result<(), Problem> {
    let is_checked = |name: &HeaderName| *name == header::IF_MATCH && actions::checks_if_match(action);
    match CONDITIONS.iter().find(|(name, _)| headers.contains_key(name) && !is_checked(name)) {
        None => Ok(()),
        Some((_, name)) => {
            let why = "is a condition that this request does not check: leave it out";
            Err(Problem::of_header(name, Fault::Unknown, why))
        }
    }
}

fn enter(app: &App, action: &Action, headers: &HeaderMap) -> Result<Entrant, Problem> {
    if action.needs == Needs::Nothing {
        return Ok(app.gate.enter_anonymously());
    }
    Ok(app.gate.enter(Claim::Token(bearer(headers)?))?)
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let class = match refusal {
            Refusal::NoToken | Refusal::UnknownToken => Class::Unauthorized,
            Refusal::Scope(_) => Class::ScopeMissing,
            Refusal::ByLink(_) | Refusal::OtherListener(_) => Class::Verb(Kind::Forbidden),
            Refusal::Full(error) => return error.into(),
        };
        Problem::new(class, refusal.detail().to_owned())
    }
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
    pub(crate) async fn begin(action: &Action, actor: Option<&Actor>, request: &mut Request) -> Option<Line> {
        let (actor, method) = (actor?, request.method().clone());
        let is_noted = is_of_operators(action) || is_control(&method, action.name) && is_by_hand(request);
        if !is_noted {
            return None;
        }
        let (actor, route) = (actor.clone(), action.name.to_owned());
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

fn is_of_operators(action: &Action) -> bool {
    action.is_of_operators() && !action.name.is_empty()
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

    use crate::api::http::ACTIONS;

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
                let last = operation["security"].as_array().and_then(|security| security.last());
                assert_eq!(last.is_some_and(|last| *last == serde_json::json!({})), !open, "{method} {path}");
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
            ACTIONS.iter().map(|action| (action.method.to_owned(), action.name.to_owned())).collect();
        assert_eq!(said, served);
        assert_eq!(said.len(), ACTIONS.len(), "one is there twice");
    }
}
