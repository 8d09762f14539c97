//! The listener for operators: it shows what `view` shows, to everybody where there are no tokens, and does nothing else.

use dwell::api::http::{ACTIONS, ConnectionOptions, Listen, TlsFiles};
use dwell::platform::https::{self, Roots};
use dwell::sqs::SqsOptions;
use reqwest::Client;
use serde_json::Value;

use super::routes::{about, filled_with, state};
use super::{token, tokens_in};
use crate::http::api::served::{Outcome, Served};
use crate::support::Certificates;

/// The status and the answer of a request to the listener for operators.
async fn asked(dwell: &Served, client: &Client, line: &str, headers: &[(&str, &str)]) -> Outcome<(u16, String)> {
    let (method, path) = line.split_once(' ').ok_or("a method and a path")?;
    let base = dwell.server.admin_url().ok_or("no listener for operators")?;
    let mut request = client.request(method.parse()?, format!("{}{path}", base.replace("0.0.0.0", "127.0.0.1")));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = dwell.driven(request.send()).await??;
    Ok((response.status().as_u16(), response.text().await?))
}

fn everywhere() -> Option<Listen> {
    Listen::parse("0.0.0.0:0").ok()
}

#[tokio::test]
async fn without_tokens_it_shows_what_view_shows_and_changes_nothing() -> Outcome {
    let dwell = Served::start_with(|options| {
        options.admin = everywhere();
        options.sqs = Some(SqsOptions::default());
    })
    .await?;
    dwell.tell("PUT /v1/topics/there", serde_json::json!({"partitions": 1})).await?;
    let (client, mut shown) = (&dwell.client, 0);
    for action in &ACTIONS {
        let line = about(action, "there");
        let (status, text) = asked(&dwell, client, &line, &[]).await?;
        match action.only_shows() {
            true => assert!(![401, 403].contains(&status), "{line}: {status} {text}"),
            false => {
                assert_eq!(status, 403, "{line}: {text}");
                assert!(text.contains("this listener is for operators"), "{line}: {text}");
            }
        }
        shown += usize::from(action.only_shows());
    }
    assert_eq!(shown, ACTIONS.iter().filter(|action| action.needs.name() == "any token").count() + 2);
    // No other protocol, and no way to act in the console.
    let sqs = [("x-amz-target", "AmazonSQS.CreateQueue"), ("content-type", "application/x-amz-json-1.0")];
    assert!([403, 404, 405].contains(&asked(&dwell, client, "POST /", &sqs).await?.0));
    assert!(!asked(&dwell, client, "GET /?Action=ListQueues", &[]).await?.1.contains("QueueUrl"));
    assert!(asked(&dwell, client, "GET /ui/", &[]).await?.1.contains("read_only"));
    let topics: Value = serde_json::from_str(&asked(&dwell, client, "GET /v1/topics", &[]).await?.1)?;
    assert_eq!(topics["topics"].as_array().map(Vec::len), Some(1), "{topics}");
    // A page whose name was bound to this address.
    let (status, text) = asked(&dwell, client, "GET /metrics", &[("host", "evil.example")]).await?;
    assert_eq!(status, 403, "{text}");
    assert_eq!(asked(&dwell, client, "GET /metrics", &[("host", "10.1.2.3:7374")]).await?.0, 200);
    // The listener for clients is as it was.
    assert_eq!(dwell.ask("POST /v1/topics/there/messages").await?.status, 201);
    Ok(())
}

#[tokio::test]
async fn with_tokens_it_asks_for_one_and_admin_changes_nothing_by_it() -> Outcome {
    let dir = tempfile::tempdir()?;
    let tokens = tokens_in(dir.path())?;
    let dwell = filled_with(tokens, |options| options.admin = everywhere()).await?;
    let (client, before) = (&dwell.client, state(&dwell).await?);
    for path in ["/livez", "/readyz"] {
        assert_eq!(asked(&dwell, client, &format!("GET {path}"), &[]).await?.0, 200);
    }
    for (name, status) in [("viewer", 200), ("producer", 200), ("admin", 200)] {
        let bearer = format!("Bearer {}", token(name));
        assert_eq!(asked(&dwell, client, "GET /metrics", &[("authorization", &bearer)]).await?.0, status, "{name}");
    }
    assert_eq!(asked(&dwell, client, "GET /metrics", &[]).await?.0, 401);
    // With tokens any name of this machine will do.
    let viewer = format!("Bearer {}", token("viewer"));
    let named = [("authorization", viewer.as_str()), ("host", "web-1.example.com:7374")];
    assert_eq!(asked(&dwell, client, "GET /v1/brokers", &named).await?.0, 200);
    let admin = format!("Bearer {}", token("admin"));
    for action in ACTIONS.iter().filter(|action| !action.only_shows()) {
        let line = about(action, "there");
        assert_eq!(asked(&dwell, client, &line, &[("authorization", &admin)]).await?.0, 403, "{line}");
    }
    assert_eq!(state(&dwell).await?, before);
    Ok(())
}

#[tokio::test]
async fn probes_need_no_certificate_where_clients_do() -> Outcome {
    let dir = tempfile::tempdir()?;
    Certificates::new()?.write(dir.path())?;
    let file = |name| dir.path().join(name);
    let tls = TlsFiles { cert: file("cert"), key: file("key"), client_ca: Some(file("ca")) };
    let dwell = Served::start_with(|options| (options.admin, options.tls) = (everywhere(), Some(tls))).await?;
    let client = https::client(&Roots::read(&file("ca"))?)?.no_proxy().build()?;
    assert!(client.get(format!("{}/livez", dwell.base)).send().await.is_err());
    assert!(dwell.server.admin_url().is_some_and(|url| url.starts_with("https://")));
    assert_eq!(asked(&dwell, &client, "GET /readyz", &[]).await?.0, 200);
    assert!(asked(&dwell, &client, "GET /metrics", &[]).await?.1.contains("dwell_http_requests_total"));
    Ok(())
}

#[tokio::test]
async fn probes_are_answered_while_clients_take_all_connections() -> Outcome {
    let few = ConnectionOptions { max: 1, ..ConnectionOptions::default() };
    let dwell = Served::start_with(|options| (options.admin, options.connections) = (everywhere(), few)).await?;
    dwell.tell("PUT /v1/topics/there", serde_json::json!({})).await?;
    let poll = dwell.request("POST /v1/topics/there/groups/default/reserve")?;
    let poll = poll.json(&serde_json::json!({"wait": "50s"}));
    let other = https::client(&Roots::none())?.no_proxy().build()?;
    tokio::select! {
        answer = poll.send() => return Err(format!("not waiting: {answer:?}").into()),
        answered = asked(&dwell, &other, "GET /livez", &[]) => assert_eq!(answered?.0, 200),
    }
    Ok(())
}
