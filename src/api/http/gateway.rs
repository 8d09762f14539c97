//! Another protocol on the same listener. Its requests have their own paths, tokens and answers; limits of bodies,
//! answers and waiting consumers, metrics, and the log of failures are shared.

use std::ops::ControlFlow;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;

use super::authorization::Line;
use super::connection_limit::{Connection, Peer};
use super::consume::Consumer;
use super::problem::{Problem, Summary};
use super::{App, body, counted_answer};
use crate::gate::access::Actor;
use crate::gate::{Entrant, Gate, Held, Identity, Pass};
use crate::model::message::TopicName;

/// Answers the requests of another protocol. They pass the same gate as others: [`Gateway::enter`] before the body is read, and
/// after it each action needs a [`Pass`].
#[async_trait]
pub trait Gateway: Send + Sync + 'static {
    /// Whether a request is of this protocol. Requests of the API never are.
    fn takes(&self, head: &Head) -> bool;

    /// Bytes of the largest body.
    fn body_bytes_max(&self) -> usize;

    /// Whose a request claims to be. Errors: the answer.
    fn enter(&self, head: &Head, gate: &Gate) -> Result<Entrant, Box<GatewayReply>>;

    /// The answer to a request that is refused, with this status, before it comes to the gate.
    fn refuse(&self, head: &Head, status: u16, why: String) -> GatewayReply;

    /// `body` is an error when it could not be read: a status and a sentence.
    async fn answer(&self, call: GatewayCall) -> GatewayReply;
}

/// A request that passed the gate for the first time.
pub struct GatewayCall {
    pub head: Head,
    /// A status and a sentence when it could not be read.
    pub body: Result<Bytes, (u16, String)>,
    pub entrant: Entrant,
    pub desk: Desk,
}

/// A request without its body. It keeps what its connection read: drop it before a long wait.
#[derive(Debug)]
pub struct Head(Parts);

impl Head {
    pub fn method(&self) -> &str {
        self.0.method.as_str()
    }

    /// As it was sent, in percent-encoding.
    pub fn path(&self) -> &str {
        self.0.uri.path()
    }

    pub fn query(&self) -> Option<&str> {
        self.0.uri.query()
    }

    /// The names of all headers, in lower case.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.0.headers.keys().map(|name| name.as_str())
    }

    /// Where it comes from: the address of the client or the proxy, or `socket`.
    pub fn peer(&self) -> String {
        self.0.extensions.get::<Peer>().map_or("socket".to_owned(), |Peer(address)| address.to_string())
    }

    /// All values of a header with commas between them; `None` without any, and for bytes that are not UTF-8.
    pub fn header(&self, name: &str) -> Option<String> {
        let values = self.0.headers.get_all(name).iter().map(|value| std::str::from_utf8(value.as_bytes()));
        let values = values.collect::<Result<Vec<_>, _>>().ok()?;
        (!values.is_empty()).then(|| values.join(","))
    }
}

#[derive(Debug, Default)]
pub struct GatewayReply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// The label of metrics: one of a few.
    pub route: &'static str,
    /// The name of the failure and its detail, for the log.
    pub failure: Option<(&'static str, String)>,
    /// The actor and the topic of a change, for the audit log.
    pub audit: Option<(Actor, Option<TopicName>)>,
    /// Whose memory the answer takes.
    pub identity: Option<Identity>,
}

/// The route of a request that no path shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route(pub(crate) &'static str);

/// The gate, and the places of consumers that wait: a gateway shares them with the rest of the listener; and the connection of the
/// request.
pub struct Desk(App, Option<Connection>);

/// Why a consumer gets nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeError {
    /// All places of waiting consumers are taken.
    Full,
    /// The token was revoked meanwhile.
    Revoked,
    /// Answers that clients do not read take all the memory there is for answers.
    NoRoom,
}

/// Memory of an answer that is being written.
#[derive(Debug)]
pub struct AnswerRoom(#[expect(dead_code, reason = "gives the bytes back when dropped")] Held);

impl Desk {
    pub fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// Polls `work`, which takes deliveries, only while the token is valid and there is room for an answer. One that waits
    /// ends when its client closes its sending side: nobody reads any more.
    pub async fn take<T>(&self, pass: &Pass, waits: bool, work: impl Future<Output = T>) -> Result<T, TakeError> {
        let connection = self.1.as_ref().filter(|_| waits);
        let consumer = Consumer::enter(&self.0, pass, connection).map_err(|_| TakeError::Full)?;
        consumer.take(Box::pin(work)).await.map_err(|problem| match problem.status() {
            StatusCode::UNAUTHORIZED => TakeError::Revoked,
            _ => TakeError::NoRoom,
        })
    }

    /// Counts `bytes` of memory until the room is dropped.
    pub fn room(&self, pass: &Pass, bytes: usize) -> AnswerRoom {
        AnswerRoom(self.0.gate.answers.take(pass.identity(), bytes))
    }
}

/// Answers the requests of the gateway, if there is one. `guarded` is whether the request may come to the gate at all.
pub(crate) async fn check(
    app: &App,
    request: Request,
    guarded: Result<(), Problem>,
) -> ControlFlow<Response, (Request, Result<(), Problem>)> {
    let Some(gateway) = app.gateway.as_deref() else { return ControlFlow::Continue((request, guarded)) };
    let (parts, body) = request.into_parts();
    let head = Head(parts);
    if !gateway.takes(&head) {
        return ControlFlow::Continue((Request::from_parts(head.0, body), guarded));
    }
    let entered = match guarded {
        Err(problem) => Err(Box::new(gateway.refuse(&head, problem.status().as_u16(), problem.detail().to_owned()))),
        Ok(()) => gateway.enter(&head, &app.gate),
    };
    let entrant = match entered {
        Ok(entrant) => entrant,
        Err(reply) => {
            body::refused(app, &head.0.headers, body);
            return ControlFlow::Break(response(app, *reply, false));
        }
    };
    let read = body::read(app, (entrant.identity(), &head.0.headers), body, gateway.body_bytes_max(), "body").await;
    let read = read.map_err(|problem| (problem.status().as_u16(), problem.detail().to_owned()));
    let is_cut = read.is_err();
    let connection: Option<Connection> = head.0.extensions.get().cloned();
    let call = GatewayCall { head, body: read, entrant, desk: Desk(app.clone(), connection.clone()) };
    let reply = gateway.answer(call).await;
    if let (Some(connection), Some(identity)) = (connection, &reply.identity) {
        connection.is_of(identity);
    }
    ControlFlow::Break(response(app, reply, is_cut))
}

fn response(app: &App, reply: GatewayReply, is_cut: bool) -> Response {
    let mut response = Response::new(Body::from(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    if is_cut {
        // The rest of the body may still arrive, so the connection cannot be used again.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response.extensions_mut().insert(Route(reply.route));
    if let Some((name, detail)) = reply.failure {
        response.extensions_mut().insert(Summary { name, detail: detail.into() });
    }
    if let Some((actor, topic)) = reply.audit {
        Line::of_gateway(actor, reply.route, topic).end(&response);
    }
    counted_answer::count(&app.gate.answers, &reply.identity.unwrap_or(Identity::LOCAL), response)
}
