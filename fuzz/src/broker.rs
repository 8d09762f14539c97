//! A real broker on the embedded store, and requests to it without a socket between.
//!
//! It has one topic, `orders`, with messages that wait and messages that are dead. A push to another topic does not make it,
//! so requests to one are read to the end and change nothing.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::response::Parts;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use dwell::api::http::{App, Guard, router};
use dwell::app::engine::{Engine, StoreOptions};
use dwell::broker::Options;
use dwell::model::error::DETAIL_BYTES_MAX;
use dwell::platform::clock::Clock;
use dwell::platform::tasks::Tasks;
use dwell::sqs::{Sqs, SqsOptions};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// The broker of this process.
pub(crate) struct Broker {
    router: Router,
    runtime: Runtime,
    _engine: Engine,
    _dir: TempDir,
}

/// What was answered to a client of SQS.
pub(crate) struct SqsAnswer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// `null` when it is no JSON.
    pub(crate) body: Value,
}

thread_local! {
    static BROKER: Broker = Broker::start();
}

/// Sends a request to the broker. Panics at an answer that no request may get.
pub(crate) fn answer(request: Request<Body>) -> Answer {
    BROKER.with(|broker| broker.answer(request))
}

/// The same, whatever protocol it is of.
pub(crate) fn sqs_answer(request: Request<Body>) -> SqsAnswer {
    BROKER.with(|broker| {
        let (parts, body) = broker.whole(request);
        let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        SqsAnswer { status: parts.status.as_u16(), content_type: content_type.to_owned(), body: body.to_vec() }
    })
}

/// A request with a JSON body from this machine.
pub(crate) fn request(method: &str, target: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::builder().method(method).uri(target).header(HOST, "localhost");
    request.header(CONTENT_TYPE, "application/json").body(body.into()).expect("a request of our own")
}

impl Broker {
    fn start() -> Broker {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let options = Options { auto_create: false, drain_timeout: Duration::ZERO, ..Options::default() };
        let store = StoreOptions::Embedded { dir: dir.path().to_owned() };
        let engine = runtime.block_on(Engine::start(store, options, Clock::System)).expect("an engine");
        let app = App::new(engine.broker().clone(), Clock::System, Guard::Loopback { tls: false }, Tasks::new());
        let sqs = Sqs::new(engine.broker().clone(), Clock::System, SqsOptions::default(), false, Tasks::new());
        let app = app.with_gateway(sqs);
        let broker = Broker { router: router(app), runtime, _engine: engine, _dir: dir };
        broker.fill();
        broker
    }

    fn fill(&self) {
        let say = |method: &str, target: &str, body: Value| {
            let answer = self.answer(request(method, &format!("/v1/topics/orders{target}"), body.to_string()));
            assert!(answer.status.is_success(), "{}", answer.body);
            answer.body
        };
        say("PUT", "", json!({"partitions": 3}));
        let message = |n: usize, delay: &str| json!({"id": format!("order-{n}"), "payload": "close", "delay": delay});
        let dead: Vec<Value> = (0..6).map(|n| message(n, "0s")).collect();
        say("POST", "/messages/batch", json!({"messages": dead}));
        let mut buried = 0;
        while buried < dead.len() {
            let reserved = say("POST", "/groups/default/reserve", json!({"max": 10, "wait": "1s"}));
            let deliveries = reserved["deliveries"].as_array().cloned().unwrap_or_default();
            let bury: Vec<Value> = deliveries.iter().map(|d| json!({"receipt": d["receipt"], "bury": true})).collect();
            buried += bury.len();
            if !bury.is_empty() {
                say("POST", "/groups/default/nack", json!({"receipts": bury}));
            }
        }
        let waiting: Vec<Value> = (10..20).map(|n| message(n, "3000d")).collect();
        say("POST", "/messages/batch", json!({"messages": waiting}));
        say("PUT", "/cron/nightly", json!({"cron": "0 3 1 1 *", "payload": "close the year"}));
    }

    fn whole(&self, request: Request<Body>) -> (Parts, Bytes) {
        self.runtime.block_on(async {
            let answered = self.router.clone().oneshot(request).await.expect("infallible");
            let (parts, body) = answered.into_parts();
            (parts, body.collect().await.expect("a whole body").to_bytes())
        })
    }

    fn answer(&self, request: Request<Body>) -> Answer {
        let is_head = request.method() == "HEAD";
        let (parts, body) = self.whole(request);
        let content_type = parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_vec()).unwrap_or_default();
        let is_json = content_type.ends_with(b"json") && !is_head;
        let answer = match serde_json::from_slice(&body) {
            Ok(body) if is_json => Answer { status: parts.status, body },
            Err(error) if is_json => panic!("{}: {error}", parts.status),
            _ => Answer { status: parts.status, body: Value::Null },
        };
        if !answer.status.is_success() && !is_head {
            assert_eq!(content_type, b"application/problem+json", "{}", answer.status);
            answer.check_problem();
        }
        answer
    }
}

impl Answer {
    fn check_problem(&self) {
        let problem = &self.body;
        assert_ne!(self.status, StatusCode::INTERNAL_SERVER_ERROR, "{problem}");
        assert_eq!(problem["status"], self.status.as_u16(), "{problem}");
        assert!(problem["type"].as_str().is_some_and(|name| name.starts_with("urn:dwell:error:")), "{problem}");
        let detail = problem["detail"].as_str().unwrap_or_else(|| panic!("no detail: {problem}"));
        assert!(!detail.is_empty() && detail.len() <= DETAIL_BYTES_MAX, "{} bytes: {detail}", detail.len());
    }
}
