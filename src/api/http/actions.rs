//! The requests of the native protocol, as the gate needs to know them. A request that is not listed here needs `admin`.
//!
//! Requests that show payloads need a scope; for names and numbers any token is enough. A message can also be read with
//! `produce`: a client that knows its id may cancel it.

use axum::http::Method;

use crate::gate::{Action, AnswerSize, Effect, Holds, Needs, Resource, UNKNOWN};
use crate::model::limits::{BATCH_BODY_BYTES_MAX, REQUEST_BODY_BYTES_MAX};

const ADMIN: Needs = Needs::ADMIN;
const CONSUME: Needs = Needs::CONSUME;
const EITHER: Needs = Needs::EITHER;
const PRODUCE: Needs = Needs::PRODUCE;
const TOKEN: Needs = Needs::Token;

const BROKER: Resource = Resource::Broker;
const GROUP: Resource = Resource::Group;
const MESSAGES: Resource = Resource::Messages;
const TOPIC: Resource = Resource::Topic;

const COUNTED: AnswerSize = AnswerSize::Counted;
const SMALL: AnswerSize = AnswerSize::Small;

const NOTHING: Holds = Holds::Nothing;
const PLACE: Holds = Holds::Place;
const WHOLE: Holds = Holds::WholeRead;

const JSON: usize = REQUEST_BODY_BYTES_MAX;
const BATCH: usize = BATCH_BODY_BYTES_MAX;

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

/// A request that reads: it has no body.
const fn get(name: &'static str, needs: Needs, acts_on: Resource, answer: AnswerSize, holds: Holds) -> Action {
    Action { method: "GET", name, needs, effect: Effect::Reads, acts_on, body_bytes: 0, answer, holds }
}

/// A request that changes something.
const fn change(
    (method, name): (&'static str, &'static str),
    needs: Needs,
    acts_on: Resource,
    body_bytes: usize,
    answer: AnswerSize,
    holds: Holds,
) -> Action {
    Action { method, name, needs, effect: Effect::Changes, acts_on, body_bytes, answer, holds }
}

/// The files of the console contain nothing about this broker.
pub static CONSOLE: Action = get("/ui", Needs::Nothing, BROKER, COUNTED, NOTHING);

/// A GET that the table does not have.
static UNKNOWN_GET: Action = get("", ADMIN, BROKER, COUNTED, NOTHING);

/// A path that leads nowhere.
static NOWHERE: Action = get("", Needs::Token, BROKER, SMALL, NOTHING);

/// Every request of the protocol. One path has two meanings: a batch, and the message with the id `batch`.
pub static ACTIONS: [Action; 56] = [
    get("/livez", Needs::Nothing, BROKER, SMALL, NOTHING),
    get("/readyz", Needs::Nothing, BROKER, SMALL, NOTHING),
    get("/metrics", TOKEN, BROKER, COUNTED, NOTHING),
    get("/openapi.json", TOKEN, BROKER, COUNTED, NOTHING),
    change(("POST", "/v1/hand-over"), Needs::HAND_OVER, MESSAGES, BATCH, SMALL, NOTHING),
    change(("POST", "/v1/drain"), ADMIN, BROKER, 0, SMALL, NOTHING),
    change(("POST", "/v1/reload"), ADMIN, BROKER, 0, COUNTED, NOTHING),
    get("/v1/test/clock", TOKEN, BROKER, SMALL, NOTHING),
    change(("POST", "/v1/test/clock"), ADMIN, BROKER, JSON, COUNTED, NOTHING),
    get("/v1/attention", TOKEN, BROKER, COUNTED, WHOLE),
    get("/v1/brokers", TOKEN, BROKER, COUNTED, WHOLE),
    get("/v1/traffic", TOKEN, BROKER, COUNTED, NOTHING),
    get("/v1/topics", TOKEN, BROKER, COUNTED, NOTHING),
    get(topic!(""), TOKEN, TOPIC, COUNTED, WHOLE),
    change(("PUT", topic!("")), ADMIN, TOPIC, JSON, COUNTED, NOTHING),
    change(("DELETE", topic!("")), ADMIN, TOPIC, 0, SMALL, NOTHING),
    change(("POST", topic!("/move")), ADMIN, TOPIC, JSON, SMALL, NOTHING),
    get(topic!("/groups"), TOKEN, TOPIC, COUNTED, WHOLE),
    get(group!(""), TOKEN, GROUP, COUNTED, WHOLE),
    change(("PUT", group!("")), ADMIN, GROUP, JSON, COUNTED, NOTHING),
    change(("DELETE", group!("")), ADMIN, GROUP, 0, SMALL, NOTHING),
    change(("POST", group!("/pause")), ADMIN, GROUP, JSON, COUNTED, NOTHING),
    change(("POST", group!("/resume")), ADMIN, GROUP, 0, COUNTED, NOTHING),
    change(("POST", group!("/keys/{key}/pause")), ADMIN, GROUP, JSON, COUNTED, NOTHING),
    change(("POST", group!("/keys/{key}/resume")), ADMIN, GROUP, 0, COUNTED, NOTHING),
    get(group!("/forecast"), TOKEN, GROUP, COUNTED, WHOLE),
    get(group!("/bulk"), TOKEN, GROUP, COUNTED, WHOLE),
    change(("POST", group!("/bulk")), ADMIN, GROUP, JSON, COUNTED, WHOLE),
    get(group!("/verify"), ADMIN, GROUP, COUNTED, WHOLE),
    change(("POST", group!("/verify")), ADMIN, GROUP, 0, COUNTED, WHOLE),
    get(topic!("/cron"), CONSUME, TOPIC, COUNTED, WHOLE),
    get(topic!("/cron/{name}"), CONSUME, TOPIC, COUNTED, NOTHING),
    change(("PUT", topic!("/cron/{name}")), ADMIN, TOPIC, JSON, COUNTED, NOTHING),
    change(("DELETE", topic!("/cron/{name}")), ADMIN, TOPIC, 0, SMALL, NOTHING),
    change(("POST", topic!("/cron/{name}/pause")), ADMIN, TOPIC, 0, COUNTED, NOTHING),
    change(("POST", topic!("/cron/{name}/resume")), ADMIN, TOPIC, 0, COUNTED, NOTHING),
    change(("POST", topic!("/messages")), PRODUCE, MESSAGES, BATCH, SMALL, NOTHING),
    change(("POST", topic!("/messages/batch")), PRODUCE, MESSAGES, BATCH, COUNTED, NOTHING),
    get(topic!("/messages"), CONSUME, GROUP, COUNTED, WHOLE),
    get(topic!("/messages/{id}"), EITHER, MESSAGES, COUNTED, NOTHING),
    change(("DELETE", topic!("/messages/{id}")), PRODUCE, MESSAGES, 0, SMALL, NOTHING),
    change(("PATCH", topic!("/messages/{id}")), PRODUCE, MESSAGES, JSON, SMALL, NOTHING),
    get(topic!("/messages/batch"), EITHER, MESSAGES, COUNTED, NOTHING),
    change(("DELETE", topic!("/messages/batch")), PRODUCE, MESSAGES, 0, SMALL, NOTHING),
    change(("PATCH", topic!("/messages/batch")), PRODUCE, MESSAGES, JSON, SMALL, NOTHING),
    get(topic!("/messages/{id}/explain"), TOKEN, MESSAGES, COUNTED, WHOLE),
    change(("POST", group!("/reserve")), CONSUME, GROUP, JSON, COUNTED, PLACE),
    change(("POST", group!("/stream")), CONSUME, GROUP, 0, COUNTED, PLACE),
    change(("POST", group!("/ack")), CONSUME, GROUP, JSON, COUNTED, NOTHING),
    change(("POST", group!("/nack")), CONSUME, GROUP, BATCH, COUNTED, NOTHING),
    change(("POST", group!("/release")), CONSUME, GROUP, JSON, COUNTED, NOTHING),
    change(("POST", group!("/extend")), CONSUME, GROUP, JSON, COUNTED, NOTHING),
    get(group!("/dead-letters"), CONSUME, GROUP, COUNTED, WHOLE),
    change(("POST", group!("/dead-letters/redrive")), ADMIN, GROUP, JSON, COUNTED, WHOLE),
    change(("POST", group!("/dead-letters/purge")), ADMIN, GROUP, JSON, COUNTED, WHOLE),
    change(("POST", group!("/purge")), ADMIN, GROUP, JSON, SMALL, NOTHING),
];

/// Those that check `If-Match`. No other condition is checked, of any request.
const CHECKING_IF_MATCH: [(&str, &str); 4] = [
    ("PUT", topic!("")),
    ("DELETE", topic!("")),
    ("PATCH", topic!("/messages/{id}")),
    ("PATCH", topic!("/messages/batch")),
];

pub(crate) fn checks_if_match(action: &Action) -> bool {
    CHECKING_IF_MATCH.contains(&(action.method, action.name))
}

/// Whether a request of the protocol changes something without being told more than its path and query.
pub(crate) fn has_no_body(action: &Action) -> bool {
    action.effect == Effect::Changes && action.body_bytes == 0 && !action.name.is_empty()
}

pub(crate) fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// The action of a request; `route` is the one that matches its path.
pub(crate) fn of(method: &Method, route: Option<&str>, path: &str) -> &'static Action {
    let reads = is_read(method);
    let place = route.unwrap_or(path);
    if reads && (place == "/" || place == "/ui" || place.starts_with("/ui/")) {
        return &CONSOLE;
    }
    let Some(route) = route else { return &NOWHERE };
    let method = if reads { "GET" } else { method.as_str() };
    let unknown = if reads { &UNKNOWN_GET } else { &UNKNOWN };
    ACTIONS.iter().find(|action| action.method == method && action.name == route).unwrap_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_routes_need_admin_and_only_console_files_are_public() {
        let needs = |method: &str, route| of(&method.parse().unwrap_or_default(), Some(route), "/").needs;
        assert_eq!(needs("HEAD", "/livez"), Needs::Nothing);
        assert_eq!(needs("HEAD", "/v1/topics/{topic}/messages"), CONSUME);
        assert_eq!(needs("POST", "/livez"), ADMIN);
        assert_eq!(needs("GET", "/new"), ADMIN);
        for (path, open) in
            [("/", true), ("/ui", true), ("/ui/", true), ("/ui/{*path}", true), ("/uix", false), ("/v1/ui/", false)]
        {
            assert_eq!(needs("GET", path) == Needs::Nothing, open, "{path}");
            assert_eq!(needs("POST", path), ADMIN, "{path}");
        }
        assert_eq!(of(&Method::POST, None, "/ui/").needs, Needs::Token);
        assert_eq!(of(&Method::GET, None, "/ui/absent.js").needs, Needs::Nothing);
        assert_eq!(of(&Method::GET, Some("/v1/topics"), "/ui/").needs, Needs::Token);
    }

    #[test]
    fn document_has_the_requests_that_check_if_match() {
        let document = crate::api::http::openapi();
        for action in ACTIONS.iter().filter(|action| action.name != topic!("/messages/batch")) {
            let operation = &document["paths"][action.name][action.method.to_ascii_lowercase()];
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let takes_it = parameters.into_iter().any(|parameter| parameter["name"] == "If-Match");
            assert_eq!(takes_it, checks_if_match(action), "{} {}", action.method, action.name);
            assert_eq!(
                operation["requestBody"].is_null(),
                action.effect == Effect::Reads || has_no_body(action),
                "{} {}",
                action.method,
                action.name
            );
        }
    }

    #[test]
    fn a_get_never_changes_anything_and_everything_else_does() {
        for action in &ACTIONS {
            assert_eq!(action.effect == Effect::Reads, action.method == "GET", "{} {}", action.method, action.name);
        }
    }
}
