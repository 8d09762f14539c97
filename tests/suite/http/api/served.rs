//! A broker that is served over HTTP on the embedded store, with a clock that only the story moves.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use dwell::api::http::Listen;
use dwell::app::engine::StoreOptions;
use dwell::app::server::{Server, ServerOptions};
use dwell::model::time::Timestamp;
use dwell::platform::clock::{Clock, Manual};
use dwell::platform::https::{self, Roots};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;
use tempfile::{TempDir, tempdir};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What a story ends with.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// When every story begins.
const START: Timestamp = Timestamp::from_ms(1_767_323_045_678);

/// A broker, and a client that speaks to it.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) base: String,
    time: Manual,
    _dir: TempDir,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

impl Served {
    pub(crate) async fn start() -> Outcome<Served> {
        Served::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut ServerOptions)) -> Outcome<Served> {
        let (dir, time) = (tempdir()?, Manual::at(START));
        let store = StoreOptions::Embedded { dir: dir.path().join("store") };
        let mut options = ServerOptions::new(Listen::ephemeral(), store, dwell::broker::Options::default());
        options.clock = Clock::Manual(time.clone());
        change(&mut options);
        // The authority of a certificate lies beside it.
        let authority = options.tls.as_ref().map(|files| Roots::read(&files.cert.with_file_name("ca"))).transpose();
        let mut client = https::client(&authority.unwrap_or_default().unwrap_or(Roots::none()))?.no_proxy();
        if let Listen::Unix(path) = &options.listen {
            client = client.unix_socket(path.as_path());
        }
        let server = Server::start(options).await?;
        let base = if server.url().starts_with("unix:") { "http://dwell".to_owned() } else { server.url() };
        Ok(Served { server, client: client.build()?, base, time, _dir: dir })
    }

    /// A request, as in `request("POST /v1/topics/orders/messages")`.
    pub(crate) fn request(&self, line: &str) -> Outcome<RequestBuilder> {
        let (method, target) = line.split_once(' ').ok_or("a method and a target")?;
        Ok(self.client.request(method.parse::<Method>()?, format!("{}{target}", self.base)))
    }

    /// Sends a request; while nothing is answered, time passes.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Outcome<Answer> {
        let response = self.driven(request.send()).await??;
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type").map(|value| value.to_str().map(str::to_owned));
        let content_type = content_type.transpose()?.unwrap_or_default();
        let bytes = response.bytes().await?;
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes)? };
        Ok(Answer { status, content_type, body })
    }

    /// A request without a body.
    pub(crate) async fn ask(&self, line: &str) -> Outcome<Answer> {
        self.send(self.request(line)?).await
    }

    /// A request with a JSON body; answers the body of a 2xx.
    pub(crate) async fn tell(&self, line: &str, body: Value) -> Outcome<Value> {
        let answer = self.send(self.request(line)?.json(&body)).await?;
        assert!((200..300).contains(&answer.status), "{line}: {answer:?}");
        Ok(answer.body)
    }

    /// Waits for an answer and moves the clock meanwhile, a little at a time, for at most 20 minutes of the story.
    pub(crate) async fn driven<T>(&self, answer: impl Future<Output = T>) -> Outcome<T> {
        let mut answer = pin!(answer);
        for _ in 0..60_000 {
            match timeout(Duration::from_millis(1), answer.as_mut()).await {
                Ok(answer) => return Ok(answer),
                Err(_) => self.time.advance(Duration::from_millis(20)),
            }
        }
        Err("no answer".into())
    }

    /// Moves the clock.
    pub(crate) fn pass(&self, span: Duration) {
        self.time.advance(span);
    }

    /// The time of the story.
    pub(crate) fn now(&self) -> Timestamp {
        Clock::Manual(self.time.clone()).now()
    }

    /// How many messages of the group `default` are scheduled, ready, in flight and dead.
    pub(crate) async fn counts(&self, topic: &str) -> Outcome<[u64; 4]> {
        let answer = self.ask(&format!("GET /v1/topics/{topic}")).await?;
        let totals = &answer.body["totals"][0];
        let count = |state: &str| totals[state].as_u64().ok_or_else(|| format!("no count of {state}: {answer:?}"));
        Ok([count("scheduled")?, count("ready")?, count("in_flight")?, count("dead")?])
    }

    /// Takes what is due in a topic, waiting for up to 5 s of the story.
    pub(crate) async fn reserve(&self, topic: &str) -> Outcome<Vec<Value>> {
        let line = format!("POST /v1/topics/{topic}/groups/default/reserve");
        let answer = self.tell(&line, serde_json::json!({"max": 10, "wait": "5s"})).await?;
        Ok(answer["deliveries"].as_array().ok_or("no deliveries")?.clone())
    }

    /// The receipt of the next delivery of a topic, which has to be the only one.
    pub(crate) async fn receipt(&self, topic: &str) -> Outcome<String> {
        match self.reserve(topic).await?.as_slice() {
            [delivery] => Ok(delivery["receipt"].as_str().ok_or("no receipt")?.to_owned()),
            other => Err(format!("one delivery was expected: {other:?}").into()),
        }
    }

    /// Sends bytes as they are and reads until the broker closes.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Outcome<String> {
        let address = self.base.strip_prefix("http://").ok_or("no address")?;
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut answer = String::new();
        timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await??;
        Ok(answer)
    }
}
