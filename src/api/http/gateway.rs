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

use super::answer_budget::Held;
use super::authorization::Line;
use super::connection_limit::Connection;
use super::consume::{Consumer, ShownToken};
use super::problem::Summary;
use super::{App, body};
use crate::api::access::{Actor, Shown};
use crate::model::message::TopicName;

/// Answers the requests of another protocol.
#[async_trait]
pub trait Gateway: Send + Sync + 'static {
    /// Whether a request is of this protocol. Requests of the API never are.
    fn takes(&self, head: &Head) -> bool;

    /// Bytes of the largest body.
    fn body_bytes_max(&self) -> usize;

    /// `body` is an error when it could not be read: a status and a sentence.
    async fn answer(&self, head: Head, body: Result<Bytes, (u16, String)>, consumers: Consumers) -> GatewayReply;
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
}

/// The route of a request that no path shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route(pub(crate) &'static str);

/// The places of consumers that wait, and the connection of the request.
pub struct Consumers(App, Option<Connection>);

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

impl Consumers {
    /// Polls `work`, which takes deliveries, only while the token is valid and there is room for an answer. One that waits
    /// ends when its client closes its sending side: nobody reads any more.
    pub async fn take<T>(
        &self,
        token: Option<Shown>,
        waits: bool,
        work: impl Future<Output = T>,
    ) -> Result<T, TakeError> {
        let connection = self.1.as_ref().filter(|_| waits);
        let consumer = Consumer::enter(self.0.clone(), ShownToken(token), connection).map_err(|_| TakeError::Full)?;
        consumer.take(Box::pin(work)).await.map_err(|problem| match problem.status() {
            StatusCode::UNAUTHORIZED => TakeError::Revoked,
            _ => TakeError::NoRoom,
        })
    }

    /// Counts `bytes` of memory until the room is dropped.
    pub fn room(&self, bytes: usize) -> AnswerRoom {
        AnswerRoom(self.0.answers.take(bytes))
    }
}

/// Answers the requests of the gateway, if there is one.
pub(crate) async fn check(app: &App, request: Request) -> ControlFlow<Response, Request> {
    let Some(gateway) = app.gateway.as_deref() else { return ControlFlow::Continue(request) };
    let (parts, body) = request.into_parts();
    let head = Head(parts);
    if !gateway.takes(&head) {
        return ControlFlow::Continue(Request::from_parts(head.0, body));
    }
    let read = body::read(app, &head.0.headers, body, gateway.body_bytes_max(), "body").await;
    let read = read.map_err(|problem| (problem.status().as_u16(), problem.detail().to_owned()));
    let is_cut = read.is_err();
    let connection = head.0.extensions.get().cloned();
    let reply = gateway.answer(head, read, Consumers(app.clone(), connection)).await;
    ControlFlow::Break(response(reply, is_cut))
}

fn response(reply: GatewayReply, is_cut: bool) -> Response {
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
    response
}
