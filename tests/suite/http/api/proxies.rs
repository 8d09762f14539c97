//! A real nginx in front of a broker, as docs/how-to/proxies.md configures it, and with its defaults.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use reqwest::Response;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::served::{Outcome, Served};
use crate::support::{PATIENCE, eventually, scratch};

const GROUP: &str = "/v1/topics/orders/groups/default";

/// The `location` that a plain nginx has, and that of the page.
const PLAIN: &str = "location / { proxy_pass http://BROKER; }";

fn of_the_page() -> Outcome<String> {
    let page = include_str!("../../../../docs/how-to/proxies.md");
    let block =
        page.split_once("```nginx\n").and_then(|(_, rest)| rest.split_once("```")).ok_or("the page has no nginx")?;
    let server = block.0.split_once("location /").and_then(|(_, rest)| rest.split_once("\n    }"));
    Ok(format!("location /{}\n    }}", server.ok_or("no location")?.0))
}

/// An nginx that passes everything on to a broker; its address.
async fn nginx(dwell: &Served, dir: &Path, location: &str) -> Outcome<(Child, String)> {
    let free = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let broker = dwell.base.strip_prefix("http://").ok_or("no address")?;
    let location = location.replace("BROKER", broker);
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths: String = paths.iter().map(|name| format!("{name}_temp_path {name};")).collect();
    let config = format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{ }}
         http {{ access_log off; {paths} upstream dwell {{ server {broker}; keepalive 16; }}
           server {{ listen {free}; {location} }} }}"
    );
    std::fs::write(dir.join("nginx.conf"), config)?;
    let mut nginx = Command::new("nginx");
    nginx.args(["-e", "stderr", "-c", "nginx.conf", "-p"]).arg(dir).stderr(Stdio::null()).kill_on_drop(true);
    let nginx = nginx.spawn()?;
    eventually("nginx listens", async || Ok(TcpStream::connect(free).await.ok())).await?;
    Ok((nginx, format!("http://{free}")))
}

async fn push(dwell: &Served, id: &str) -> Outcome {
    let pushed = dwell.send(dwell.request(&format!("POST /v1/topics/orders/messages?id={id}"))?.body("x")).await?;
    assert_eq!(pushed.status, 201);
    Ok(())
}

/// The next delivery, as it is written. Empty lines say that the stream is open.
async fn delivery(stream: &mut Response) -> Outcome<Value> {
    loop {
        let line = timeout(PATIENCE, stream.chunk()).await??.ok_or("the stream has ended")?;
        if !line.trim_ascii().is_empty() {
            return Ok(serde_json::from_slice(&line)?);
        }
    }
}

async fn stream_passes(location: &str) -> Outcome {
    let (dwell, dir) = (Served::start().await?, scratch()?);
    let (_nginx, proxy) = nginx(&dwell, dir.path(), location).await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let open = dwell.client.post(format!("{proxy}{GROUP}/stream?visibility_timeout=10m")).send();
    let mut stream = timeout(PATIENCE, open).await??;
    assert_eq!(stream.status().as_u16(), 200);
    let cached = stream.headers().get("cache-control").and_then(|value| value.to_str().ok());
    assert_eq!(cached, Some("no-store, no-transform"));
    for n in 0..3 {
        push(&dwell, &format!("m{n}")).await?;
        let delivery = delivery(&mut stream).await?;
        assert_eq!((&delivery["id"], &delivery["attempt"]), (&json!(format!("m{n}")), &json!(1)));
        let ack = json!({"receipts": [delivery["receipt"]]});
        assert_eq!(dwell.tell(&format!("POST {GROUP}/ack"), ack).await?["results"][0]["status"], "acked");
    }
    // A client that leaves has gone for the broker too: what it had comes again long before its time is over.
    push(&dwell, "left").await?;
    assert_eq!(delivery(&mut stream).await?["id"], "left");
    drop(stream);
    let (before, mut again) = (dwell.now(), Vec::new());
    while again.is_empty() {
        again = dwell.reserve("orders").await?;
    }
    assert_eq!((&again[0]["id"], &again[0]["attempt"]), (&json!("left"), &json!(2)));
    assert!(dwell.now().since(before) < Duration::from_secs(300));
    Ok(())
}

#[tokio::test]
async fn stream_passes_a_plain_nginx_line_by_line() -> Outcome {
    stream_passes(PLAIN).await
}

#[tokio::test]
async fn stream_passes_the_nginx_of_the_page() -> Outcome {
    stream_passes(&of_the_page()?).await
}

#[tokio::test]
async fn pushes_and_long_polls_pass_the_nginx_of_the_page() -> Outcome {
    let (dwell, dir) = (Served::start().await?, scratch()?);
    let (_nginx, proxy) = nginx(&dwell, dir.path(), &of_the_page()?).await?;
    // A batch of 8 MiB, which nginx would refuse beyond 1 MiB with its defaults.
    let messages: Vec<Value> =
        (0..7).map(|n| json!({"id": format!("m{n}"), "payload": "x".repeat(1_000_000)})).collect();
    let batch =
        dwell.client.post(format!("{proxy}/v1/topics/orders/messages/batch")).json(&json!({"messages": messages}));
    assert_eq!(dwell.send(batch).await?.status, 201);
    for n in 0..20 {
        let line = format!("{proxy}/v1/topics/orders/messages?id=n{n}");
        assert_eq!(dwell.send(dwell.client.post(line).body("x")).await?.status, 201);
    }
    let mut got = 0;
    while got < 27 {
        let poll = dwell.client.post(format!("{proxy}{GROUP}/reserve")).json(&json!({"max": 10, "wait": "20s"}));
        let deliveries = dwell.send(poll).await?.body["deliveries"].clone();
        got += deliveries.as_array().map(Vec::len).ok_or("no deliveries")?;
    }
    Ok(())
}
