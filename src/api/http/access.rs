//! Whether who makes a request may make it.

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::audit_log::Line;
use super::authorization::{Need, is_read};
use super::problem::{Class, Problem};
use super::{App, body, origin_guard, path_params};
use crate::api::access::Actor;

/// Refuses who has no token, or none that is good for what is asked. What operators do is written down.
pub(crate) async fn check(State(app): State<App>, mut request: Request, next: Next) -> Response {
    if let Err(problem) = path_params::check_path(request.uri().path()) {
        return refused(&app, request, problem);
    }
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let need = Need::of(request.method(), route, request.uri().path());
    let actor = match who(&app, need, request.headers()) {
        Ok(actor) => actor,
        Err(problem) => return refused(&app, request, problem),
    };
    if is_read(request.method())
        && need != Need::Open
        && let Err(problem) = app.answers.while_room(async {}).await
    {
        return refused(&app, request, problem);
    }
    if let Some(actor) = actor {
        request.extensions_mut().insert(actor.scopes);
    }
    let line = Line::begin(actor, route, &mut request).await;
    let response = match lacks(need, actor) {
        Some(problem) => refused(&app, request, problem),
        None => next.run(request).await,
    };
    if let Some(line) = line {
        line.end(&response);
    }
    response
}

/// Who makes a request. # Errors: 401 when that has to be known, and is not.
fn who<'a>(app: &'a App, need: Need, headers: &HeaderMap) -> Result<Option<&'a Actor>, Problem> {
    if need == Need::Open {
        return Ok(None);
    }
    let token = bearer(headers)?;
    match app.access.who(token) {
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

/// What an actor lacks for what is asked.
fn lacks(need: Need, actor: Option<&Actor>) -> Option<Problem> {
    let (Need::One(needed), Some(actor)) = (need, actor) else { return None };
    if actor.scopes.grant(needed) {
        return None;
    }
    let has: Vec<_> = actor.scopes.each().map(|scope| scope.name()).collect();
    let detail = format!("this needs a token with the scope {needed}; `{}` has {}", actor.name, has.join(", "));
    Some(Problem::new(Class::ScopeMissing, detail))
}

/// The token that a request shows.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let value = origin_guard::single(headers, header::AUTHORIZATION)?;
    let shown = value.and_then(|value| value.split_once(' '));
    Ok(shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim()))
}

fn refused(app: &App, request: Request, problem: Problem) -> Response {
    let (parts, unread) = request.into_parts();
    body::refused(app, &parts.headers, unread);
    problem.into_response()
}
