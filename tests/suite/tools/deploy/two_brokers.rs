//! Two brokers of the gateway as production configures them, with their tokens and their TLS, over a real Redis. Only where
//! they listen, what they are called and where they keep data is of this machine.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::kustomize::overlays;
use super::pods::{Secrets, dwell_of, environment, spec_of};
use crate::support::{RedisServer, eventually, failed, free_port};

const GATEWAY: &str = "dwell-gateway";

/// One of them. It is killed when dropped.
struct Broker {
    child: Child,
    client: Client,
    base: String,
}

impl Broker {
    /// Starts the container of the gateway, with its directory in place of the volume.
    async fn start(secrets: &Secrets, manifests: &[Value], dir: &Path) -> Result<Broker> {
        let port = free_port()?;
        let (data, file) = (dir.display().to_string(), dir.join("dwell.toml"));
        let toml = secrets.placed(super::pods::toml(manifests, GATEWAY)?).replace("/var/lib/dwell", &data);
        std::fs::write(&file, toml).map_err(failed("a configuration"))?;
        let container = dwell_of(spec_of(manifests, GATEWAY)?)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        let args = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let here = file.display().to_string();
        command.env_clear().args(args.map(|arg| if arg == "/etc/dwell/dwell.toml" { &*here } else { arg }));
        for (name, value) in environment(container) {
            command.env(name, secrets.placed(&value));
        }
        command.env("DWELL_LISTEN", format!("127.0.0.1:{port}"));
        let log = std::fs::File::create(dir.join("dwell.log")).map_err(failed("a log"))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.map_err(failed("dwell serve"))?;
        let roots = Roots::read(&secrets.file("dwell-tls/ca.crt")).map_err(Error::bug)?;
        let client = https::client(&roots)?.no_proxy().timeout(Duration::from_secs(30)).build();
        let client = client.map_err(|error| Error::bug(error.to_string()))?;
        let broker = Broker { child, client, base: format!("https://localhost:{port}") };
        // As the kubelet asks: without a token.
        let ready =
            async || Ok(broker.ask(Method::GET, "/readyz", "", None).await.filter(|(status, _)| *status == 200));
        eventually("a broker of the gateway is ready", ready).await.map_err(|error| {
            let said = std::fs::read_to_string(dir.join("dwell.log")).unwrap_or_default();
            Error::unavailable(format!("{}: {said}", error.detail()))
        })?;
        Ok(broker)
    }

    /// The status and the JSON of an answer; `None` when none came.
    async fn ask(&self, method: Method, target: &str, token: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let mut request = self.client.request(method, format!("{}{target}", self.base));
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = request.send().await.ok()?;
        Some((answer.status().as_u16(), serde_json::from_slice(&answer.bytes().await.ok()?).unwrap_or_default()))
    }

    async fn post(&self, target: &str, token: &str, body: &Value) -> Result<(u16, Value)> {
        let answer = self.ask(Method::POST, target, token, Some(body)).await;
        answer.ok_or_else(|| Error::unavailable(format!("no answer to {target}")))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[tokio::test]
async fn production_brokers_settle_each_others_receipts() -> Result<()> {
    let (redis, secrets) = (RedisServer::start().await?, Secrets::new()?);
    std::fs::write(secrets.file("dwell/redis-url"), redis.url()).map_err(failed("a file"))?;
    let production = overlays()?.into_iter().find(|(one, _)| one.is("production"));
    let (_, manifests) = production.ok_or_else(|| Error::bug("no production"))?;
    let dirs = [crate::support::scratch()?, crate::support::scratch()?];
    let a = Broker::start(&secrets, &manifests, dirs[0].path()).await?;
    let b = Broker::start(&secrets, &manifests, dirs[1].path()).await?;
    let token = |name: &str| std::fs::read_to_string(secrets.file(&format!("dwell/{name}"))).map_err(failed(name));
    let app = token("app")?;

    let messages: Vec<_> = (0..20).map(|n| json!({"id": format!("m{n}"), "payload": "x"})).collect();
    // Production creates no topic for a push, whose name may be misspelt.
    let (status, refused) = a.post("/v1/topics/orders/messages/batch", &app, &json!({"messages": messages})).await?;
    assert_eq!(status, 404, "{refused}");
    let made = a.ask(Method::PUT, "/v1/topics/orders", &token("admin")?, Some(&json!({}))).await;
    assert_eq!(made.map(|(status, _)| status), Some(201));
    let (status, pushed) = a.post("/v1/topics/orders/messages/batch", &app, &json!({"messages": messages})).await?;
    assert_eq!(status, 201, "{pushed}");
    // Only one of them has a consumer, and so all that is in hand.
    let group = "/v1/topics/orders/groups/default";
    let taken = async || {
        let (_, answer) = b.post(&format!("{group}/reserve"), &app, &json!({"max": 20, "wait": "1s"})).await?;
        let deliveries = answer["deliveries"].as_array().cloned().unwrap_or_default();
        Ok((!deliveries.is_empty()).then_some(deliveries))
    };
    let taken: Vec<Value> = eventually("messages are handed out", taken).await?;
    let receipts: Vec<&str> = taken.iter().filter_map(|one| one["receipt"].as_str()).collect();
    let (status, acked) = a.post(&format!("{group}/ack"), &app, &json!({"receipts": receipts})).await?;
    let results: Vec<&Value> = acked["results"].as_array().into_iter().flatten().map(|one| &one["status"]).collect();
    assert_eq!((status, results), (200, vec![&json!("acked"); receipts.len()]), "{acked}");

    // What Prometheus shows is good for looking.
    let (status, answer) = a.post(&format!("{group}/ack"), &token("metrics")?, &json!({"receipts": receipts})).await?;
    assert_eq!(status, 403, "{answer}");
    let scraped = a.ask(Method::GET, "/metrics", &token("metrics")?, None).await.map(|(status, _)| status);
    assert_eq!(scraped, Some(200));
    Ok(())
}
