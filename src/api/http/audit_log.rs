//! The audit trail: one line of the log for each thing that an operator did, or tried to do.
//!
//! Written are requests that need `admin` and change something, and cancels and reschedules that are made by hand: by the
//! command line, or in a browser. What an application cancels is its daily work. The name of the request is in its span.

use axum::RequestExt as _;
use axum::extract::{RawPathParams, Request};
use axum::http::{Method, header};
use axum::response::Response;

use super::authorization;
use crate::api::access::Actor;
use crate::model::message::{GroupName, MessageId, ScheduleName, TopicName};

/// How the command line begins its `User-Agent`.
pub const BY_HAND: &str = "dwell-cli/";

/// A line that is written when it is dropped: also when its client left before it was answered.
#[derive(Debug)]
pub(crate) struct Line {
    actor: Actor,
    method: Method,
    route: String,
    subject: Subject,
    status: Option<u16>,
}

/// What was done something to, as far as the path says it and it is a name.
#[derive(Debug, Default)]
struct Subject {
    topic: Option<TopicName>,
    group: Option<GroupName>,
    cron: Option<ScheduleName>,
    id: Option<MessageId>,
}

impl Line {
    /// Begins the line of a request, if it has one.
    pub(crate) async fn begin(actor: Option<&Actor>, route: Option<&str>, request: &mut Request) -> Option<Line> {
        let (actor, route) = actor.zip(route)?;
        let method = request.method().clone();
        let is_noted = authorization::is_change(&method, route) || is_control(&method, route) && is_by_hand(request);
        if !is_noted {
            return None;
        }
        let (actor, route) = (actor.clone(), route.to_owned());
        // A path that is badly encoded names nothing; the request is refused for it.
        let params = request.extract_parts::<RawPathParams>().await.ok();
        let subject = params.as_ref().map(Subject::of).unwrap_or_default();
        Some(Line { actor, method, route, subject, status: None })
    }

    /// The answer is known.
    pub(crate) fn end(mut self, response: &Response) {
        self.status = Some(response.status().as_u16());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Subject { topic, group, cron, id } = &self.subject;
        let (topic, group) = (topic.as_ref().map(TopicName::as_str), group.as_ref().map(GroupName::as_str));
        let (cron, id) = (cron.as_ref().map(ScheduleName::as_str), id.as_ref().map(MessageId::as_str));
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
            cron: value("name").and_then(|text| ScheduleName::new(text).ok()),
            id: value("id").and_then(|text| MessageId::new(text).ok()),
        }
    }
}

/// Whether a request is about one message that waits.
fn is_control(method: &Method, route: &str) -> bool {
    let routes = ["/v1/topics/{topic}/messages/{id}", "/v1/topics/{topic}/messages/batch"];
    [Method::DELETE, Method::PATCH].contains(method) && routes.contains(&route)
}

/// Whether a person makes a request. Browsers say where a change comes from.
fn is_by_hand(request: &Request) -> bool {
    let agent = request.headers().get(header::USER_AGENT).map(|agent| agent.as_bytes());
    agent.is_some_and(|agent| agent.starts_with(BY_HAND.as_bytes())) || request.headers().contains_key(header::ORIGIN)
}
