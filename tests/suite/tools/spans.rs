//! Spans of dwell's own, as an OTLP receiver gets them.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use dwell::api::http::Listen;
use dwell::api::webhook::{Target, Webhook};
use dwell::app::engine::StoreOptions;
use dwell::app::server::{Server, ServerOptions};
use dwell::broker::Options;
use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, TopicName};
use dwell::platform::clock::Clock;
use dwell::platform::https::{self, Roots};
use dwell::telemetry::spans::{Endpoint, SpanOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::support::{Application, Certificates, eventually, scratch};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// An OTLP receiver that answers with a status and keeps what it was sent.
struct Receiver {
    application: Application,
    bodies: mpsc::UnboundedReceiver<Value>,
    spans: Vec<Value>,
}

impl Receiver {
    async fn start(status: StatusCode) -> Result<Receiver> {
        let (router, bodies) = Receiver::router(status);
        Ok(Receiver { application: Application::serve(router, 0).await?, bodies, spans: Vec::new() })
    }

    async fn start_over_tls(certificates: &Certificates) -> Result<Receiver> {
        let (router, bodies) = Receiver::router(StatusCode::OK);
        let application = Application::serve_over_tls(router, certificates).await?;
        Ok(Receiver { application, bodies, spans: Vec::new() })
    }

    fn router(status: StatusCode) -> (Router, mpsc::UnboundedReceiver<Value>) {
        let (sender, bodies) = mpsc::unbounded_channel();
        let take = move |State(sender): State<mpsc::UnboundedSender<Value>>, body: Bytes| async move {
            let _ = sender.send(serde_json::from_slice(&body).unwrap_or_default());
            status
        };
        let route = axum::routing::post(take);
        (Router::new().route("/posted/v1/traces", route).with_state(sender), bodies)
    }

    /// Waits until it has a span of each of these names, and answers the last of each.
    async fn until(&mut self, names: &[&str]) -> Result<BTreeMap<String, Value>> {
        let name = |span: &Value| span["name"].as_str().unwrap_or_default().to_owned();
        eventually("the spans are exported", async || {
            while let Ok(body) = self.bodies.try_recv() {
                let resource = &body["resourceSpans"][0];
                assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "dwell");
                let spans = resource["scopeSpans"][0]["spans"].as_array().cloned();
                self.spans.extend(spans.unwrap_or_default());
            }
            let all: BTreeMap<_, _> = self.spans.iter().map(|span| (name(span), span.clone())).collect();
            Ok(names.iter().all(|name| all.contains_key(*name)).then_some(all))
        })
        .await
    }
}

/// A broker that exports spans, and a client of it.
struct Traced {
    server: Server,
    client: reqwest::Client,
    _dir: TempDir,
}

impl Traced {
    async fn start(endpoint: &str, ratio: f64, webhook: Option<&str>) -> Result<Traced> {
        let endpoint = Endpoint::parse(endpoint).map_err(Error::bug)?;
        Traced::exporting(SpanOptions { ratio, ..SpanOptions::new(endpoint) }, webhook).await
    }

    async fn exporting(spans: SpanOptions, webhook: Option<&str>) -> Result<Traced> {
        let dir = scratch()?;
        let store = StoreOptions::Embedded { dir: dir.path().join("store") };
        let mut options = ServerOptions::new(Listen::ephemeral(), store, Options::default());
        (options.clock, options.spans) = (Clock::System, Some(spans));
        if let Some(url) = webhook {
            options.webhooks.push(Webhook {
                topic: TopicName::new("hooked")?,
                group: GroupName::standard(),
                target: Target::parse(url, false).map_err(Error::bug)?,
                ca_file: None,
                concurrency: 1,
                timeout: std::time::Duration::from_secs(5),
                secret: None,
                enabled: true,
            });
        }
        let client =
            https::client(&Roots::none())?.no_proxy().build().map_err(|error| Error::bug(error.to_string()))?;
        Ok(Traced { server: Server::start(options).await?, client, _dir: dir })
    }

    async fn send(&self, target: &str, traceparent: Option<&str>, body: &str) -> Result<Value> {
        let failed = |error: reqwest::Error| Error::unavailable(error.to_string());
        let mut request = self.client.post(format!("{}{target}", self.server.url())).body(body.to_owned());
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        // A batch has its fields in its body.
        let request = if target.ends_with("/batch") { request } else { request.header("dwell-raw", "true") };
        let answer = request.header("content-type", "application/json").send().await.map_err(failed)?;
        let (status, text) = (answer.status(), answer.text().await.map_err(failed)?);
        assert!(status.is_success(), "{target}: {status} {text}");
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    async fn push(&self, topic: &str, traceparent: Option<&str>) -> Result<Value> {
        self.send(&format!("/v1/topics/{topic}/messages"), traceparent, "x").await
    }

    /// The `traceparent` of the next delivery.
    async fn traceparent(&self, topic: &str) -> Result<Option<String>> {
        let taken =
            self.send(&format!("/v1/topics/{topic}/groups/default/reserve"), None, r#"{"wait": "10s"}"#).await?;
        assert_eq!(taken["deliveries"].as_array().map(Vec::len), Some(1), "{taken}");
        Ok(taken["deliveries"][0]["traceparent"].as_str().map(str::to_owned))
    }

    async fn spans_that(&self, became: &str) -> Result<u64> {
        let text = self.client.get(format!("{}/metrics", self.server.url())).send().await;
        let text = text.map_err(|error| Error::unavailable(error.to_string()))?.text().await.unwrap_or_default();
        let line = format!("dwell_spans_total{{outcome=\"{became}\"}} ");
        let value = text.lines().find_map(|text| text.strip_prefix(&line)?.parse().ok());
        value.ok_or_else(|| Error::bug(format!("no {line}: {text}")))
    }
}

fn attribute<'a>(span: &'a Value, name: &str) -> &'a Value {
    let all = span["attributes"].as_array().into_iter().flatten();
    all.into_iter().find(|attribute| attribute["key"] == name).map_or(&Value::Null, |found| &found["value"])
}

fn ids(traceparent: &str) -> (&str, &str) {
    (traceparent.get(3..35).unwrap_or_default(), traceparent.get(36..52).unwrap_or_default())
}

#[tokio::test]
async fn push_delivery_and_post_join_the_producers_trace() -> Result<()> {
    let mut receiver = Receiver::start(StatusCode::OK).await?;
    let (application, mut posts) = Application::told().await?;
    let traced = Traced::start(&receiver.application.url(), 0.0, Some(&application.url())).await?;
    let (trace, producer) = ids(PARENT);

    let pushed = traced.push("orders", Some(PARENT)).await?;
    let handed_on = traced.traceparent("orders").await?.unwrap_or_default();
    let spans = receiver.until(&["send orders", "receive orders"]).await?;
    let (push, deliver) = (&spans["send orders"], &spans["receive orders"]);
    assert_eq!((&push["traceId"], &push["parentSpanId"]), (&json!(trace), &json!(producer)), "{push}");
    assert_eq!((&deliver["traceId"], &deliver["parentSpanId"]), (&json!(trace), &push["spanId"]), "{deliver}");
    assert_eq!((json!(ids(&handed_on).0), json!(ids(&handed_on).1)), (json!(trace), deliver["spanId"].clone()));
    assert_eq!((&push["kind"], &deliver["kind"]), (&json!(4), &json!(3)));
    for (span, operation) in [(push, "send"), (deliver, "receive")] {
        assert_eq!(attribute(span, "messaging.operation.name")["stringValue"], operation);
        assert_eq!(attribute(span, "messaging.operation.type")["stringValue"], operation);
        assert_eq!(attribute(span, "messaging.system")["stringValue"], "dwell");
        assert_eq!(attribute(span, "messaging.destination.name")["stringValue"], "orders");
        assert_eq!(attribute(span, "messaging.message.id")["stringValue"], pushed["id"]);
        let time = |name: &str| span[name].as_str().and_then(|time| time.parse::<u64>().ok()).unwrap_or_default();
        assert!(time("startTimeUnixNano") > 0 && time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
        assert_eq!(span.get("status"), None, "{span}");
    }

    traced.push("hooked", Some(PARENT)).await?;
    let posted = posts.next().await?;
    let handed_on = posted.header("traceparent").to_owned();
    posted.answer(StatusCode::INTERNAL_SERVER_ERROR);
    let spans = receiver.until(&["process hooked"]).await?;
    let webhook = &spans["process hooked"];
    assert_eq!((&json!(trace), &json!(ids(&handed_on).1)), (&webhook["traceId"], &webhook["spanId"]), "{webhook}");
    assert_eq!(attribute(webhook, "http.response.status_code")["intValue"], "500");
    assert_eq!(webhook["status"], json!({"code": 2, "message": "status 500"}));
    assert_eq!(attribute(webhook, "error.type")["stringValue"], "500");
    traced.server.stop().await
}

/// Also one that does not count: a settlement that comes a second time, after another one.
#[tokio::test]
async fn settlement_is_a_child_of_its_delivery() -> Result<()> {
    let mut receiver = Receiver::start(StatusCode::OK).await?;
    let traced = Traced::start(&receiver.application.url(), 0.0, None).await?;
    traced.push("orders", Some(PARENT)).await?;
    let group = "/v1/topics/orders/groups/default";
    let taken = traced.send(&format!("{group}/reserve"), None, r#"{"wait": "10s"}"#).await?;
    let receipts = json!({"receipts": [taken["deliveries"][0]["receipt"]]}).to_string();
    traced.send(&format!("{group}/ack"), None, &receipts).await?;
    let spans = receiver.until(&["receive orders", "settle orders"]).await?;
    let (receive, settle) = (&spans["receive orders"], &spans["settle orders"]);
    assert_eq!((&settle["traceId"], &settle["parentSpanId"]), (&receive["traceId"], &receive["spanId"]), "{settle}");
    assert_eq!(attribute(settle, "messaging.operation.type")["stringValue"], "settle");
    assert_eq!(attribute(settle, "messaging.consumer.group.name")["stringValue"], "default");
    assert_eq!(attribute(settle, "dwell.outcome")["stringValue"], "acked");
    assert_eq!((&settle["kind"], settle.get("status")), (&json!(3), None), "{settle}");
    // It was acked: a nack is none.
    let failed = traced.client.post(format!("{}{group}/nack", traced.server.url())).body(receipts);
    let failed = failed.header("content-type", "application/json").send().await;
    assert!(failed.is_ok_and(|answer| answer.status() == 409));
    let failed = eventually("the second one is exported", async || {
        let settle = receiver.until(&["settle orders"]).await?.remove("settle orders").unwrap_or_default();
        Ok((attribute(&settle, "dwell.outcome")["stringValue"] == "stale").then_some(settle))
    })
    .await?;
    assert_eq!(failed["status"]["code"], 2, "{failed}");
    assert_eq!(attribute(&failed, "error.type")["stringValue"], "already_settled", "{failed}");
    traced.server.stop().await
}

#[tokio::test]
async fn unsampled_trace_context_is_passed_through() -> Result<()> {
    let mut receiver = Receiver::start(StatusCode::OK).await?;
    let traced = Traced::start(&receiver.application.url(), 1.0, None).await?;
    traced.push("orders", Some(UNSAMPLED)).await?;
    assert_eq!(traced.traceparent("orders").await?.as_deref(), Some(UNSAMPLED));
    // Without a trace of the producer it begins here, and the delivery belongs to it.
    traced.push("roots", None).await?;
    let handed_on = traced.traceparent("roots").await?.unwrap_or_default();
    let spans = receiver.until(&["send roots", "receive roots"]).await?;
    let (send, receive) = (&spans["send roots"], &spans["receive roots"]);
    assert_eq!(send.get("parentSpanId"), None);
    assert_eq!((&send["traceId"], json!(ids(&handed_on).0)), (&receive["traceId"], send["traceId"].clone()));
    traced.server.stop().await?;
    assert_eq!(receiver.spans.len(), 2, "{:?}", receiver.spans);
    Ok(())
}

#[tokio::test]
async fn tls_collector_gets_spans_if_its_certificate_is_trusted() -> Result<()> {
    let (certificates, others, dir, other) = (Certificates::new()?, Certificates::new()?, scratch()?, scratch()?);
    certificates.write(dir.path())?;
    others.write(other.path())?;
    let mut receiver = Receiver::start_over_tls(&certificates).await?;
    let believing = async |dir: &TempDir| {
        let url = receiver.application.url().replace("http://", "https://");
        let (endpoint, ca_file) = (Endpoint::parse(&url).map_err(Error::bug)?, Some(dir.path().join("ca")));
        Traced::exporting(SpanOptions { ca_file, ..SpanOptions::new(endpoint) }, None).await
    };
    let (believer, doubter) = (believing(&dir).await?, believing(&other).await?);
    doubter.push("orders", Some(PARENT)).await?;
    eventually("a span is not sent", async || Ok((doubter.spans_that("failed").await? == 1).then_some(()))).await?;
    assert!(receiver.bodies.try_recv().is_err(), "it was sent to whoever answers");
    believer.push("orders", Some(PARENT)).await?;
    receiver.until(&["send orders"]).await?;
    doubter.server.stop().await?;
    believer.server.stop().await
}

#[tokio::test]
async fn remaining_spans_are_exported_at_stop() -> Result<()> {
    let mut receiver = Receiver::start(StatusCode::OK).await?;
    let traced = Traced::start(&receiver.application.url(), 0.0, None).await?;
    traced.push("orders", Some(PARENT)).await?;
    traced.server.stop().await?;
    receiver.until(&["send orders"]).await.map(drop)
}

#[tokio::test]
async fn hanging_collector_does_not_delay_pushes() -> Result<()> {
    // It takes connections and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").map_err(crate::support::failed("a socket"))?;
    let address = silent.local_addr().map_err(crate::support::failed("an address"))?;
    let traced = Traced::start(&format!("http://{address}"), 0.0, None).await?;
    let item = json!({"payload": "x", "traceparent": PARENT});
    let batch = json!({"messages": vec![item; 1_000]}).to_string();
    // The first request is given up after 3 s, and then what had no place is counted: nobody waited for either.
    let lost = async || {
        let answer = traced.send("/v1/topics/orders/messages/batch", None, &batch).await?;
        assert!(answer["results"].as_array().is_some_and(|results| results.iter().all(|it| it["status"] == "stored")));
        Ok((traced.spans_that("dropped").await? >= 1_000).then_some(()))
    };
    eventually("spans are dropped", lost).await?;
    assert_eq!(traced.spans_that("exported").await?, 0);
    let began = Clock::System.instant();
    traced.server.stop().await?;
    assert!(Clock::System.instant().since(began) < std::time::Duration::from_secs(20));
    Ok(())
}

#[tokio::test]
async fn rejected_spans_are_counted() -> Result<()> {
    let receiver = Receiver::start(StatusCode::SERVICE_UNAVAILABLE).await?;
    let traced = Traced::start(&receiver.application.url(), 0.0, None).await?;
    traced.push("orders", Some(PARENT)).await?;
    eventually("a span is refused", async || Ok((traced.spans_that("failed").await? == 1).then_some(()))).await?;
    traced.server.stop().await
}
