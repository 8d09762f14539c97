//! Every request of every surface with every kind of token: allowed or refused as the table of the gate says, and refused before
//! anything happens.

use std::collections::BTreeSet;
use std::time::Duration;

use dwell::api::http::{ACTIONS, CONSOLE};
use dwell::app::server::ServerOptions;
use dwell::gate::access::{Scopes, Token};
use dwell::gate::{Action, Effect, Needs};
use dwell::sqs::SqsOptions;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{TOKENS, asking, status, token, tokens_in};
use crate::http::api::served::{Outcome, Served};

/// Every request that is served, as in `GET /v1/topics`.
fn served() -> BTreeSet<String> {
    let document = dwell::api::http::openapi();
    let mut requests = BTreeSet::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        let methods = item.as_object().into_iter().flatten().map(|(method, _)| method.to_uppercase());
        requests.extend(methods.map(|method| format!("{method} {path}")));
    }
    requests
}

/// A request of the protocol about these names.
pub(super) fn about(action: &Action, name: &str) -> String {
    let names = ["{topic}", "{group}", "{id}", "{name}"];
    let path = names.iter().fold(action.name.to_owned(), |path, place| path.replace(place, name));
    format!("{} {path}", action.method)
}

/// A broker that asks for tokens, with SQS; it has a topic, a group, a message and a cron job, all called `there`.
async fn filled() -> Outcome<(Served, TempDir)> {
    let dir = tempfile::tempdir()?;
    let tokens = tokens_in(dir.path())?;
    Ok((filled_with(tokens, |_| {}).await?, dir))
}

/// What the message and the cron job of [`filled_with`] carry.
pub(super) const PAYLOAD: &str = "what-only-some-may-see";

/// The same with these tokens, of which one is that of `admin`.
pub(super) async fn filled_with(tokens: Vec<Token>, change: impl FnOnce(&mut ServerOptions)) -> Outcome<Served> {
    let dwell = Served::start_with(|options| {
        options.tokens = tokens;
        options.broker.auto_create = false;
        options.sqs = Some(SqsOptions::default());
        change(options);
    })
    .await?;
    for (line, body) in [
        ("PUT /v1/topics/there", json!({"partitions": 1})),
        ("PUT /v1/topics/there/groups/there", json!({})),
        ("POST /v1/topics/there/messages", json!({"id": "there", "payload": PAYLOAD, "delay": "1h"})),
        ("PUT /v1/topics/there/cron/there", json!({"every": "30d", "payload": PAYLOAD})),
    ] {
        let request = dwell.request(line)?.bearer_auth(token("admin")).json(&body);
        let answer = dwell.send(request).await?;
        assert!(answer.status < 300, "{line}: {} {}", answer.status, answer.body);
    }
    Ok(dwell)
}

/// Everything that a refused request could have changed.
pub(super) async fn state(dwell: &Served) -> Outcome<Vec<Value>> {
    let mut state = Vec::new();
    for line in [
        "GET /v1/topics",
        "GET /v1/topics/there",
        "GET /v1/topics/there/groups/there",
        "GET /v1/topics/there/messages/there",
        "GET /v1/topics/there/cron",
    ] {
        let request = dwell.request(line)?.bearer_auth(token("admin"));
        state.push(dwell.send(request).await?.body);
    }
    Ok(state)
}

async fn refused(dwell: &Served, line: &str, authorization: Option<&str>) -> Outcome<(u16, Option<String>, Value)> {
    let mut request = dwell.request(line)?;
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let response = dwell.driven(request.send()).await??;
    let asks = response.headers().get("www-authenticate").and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok((response.status().as_u16(), asks, serde_json::from_slice(&response.bytes().await?)?))
}

/// A token makes one read over a whole topic at a time: one that began a second one within it would wait for itself.
#[tokio::test]
async fn every_read_of_one_token_is_answered() -> Outcome {
    let (dwell, _dir) = filled().await?;
    let bearer = format!("Bearer {}", token("admin"));
    for action in ACTIONS.iter().filter(|action| action.method == "GET") {
        let there = about(action, "there");
        let status = timeout(Duration::from_secs(5), status(&dwell, &there, Some(&bearer))).await;
        let status = status.map_err(|_| format!("{there}: no answer"))??;
        assert!(status < 500, "{there}: {status}");
    }
    Ok(())
}

/// What no token is.
const NO_TOKENS: [Option<&str>; 4] =
    [None, Some("Bearer"), Some("Bearer s3cret-of-nobody-here"), Some("Basic czNjcmV0")];

#[tokio::test]
async fn every_route_enforces_the_scopes_of_the_table() -> Outcome {
    let (dwell, _dir) = filled().await?;
    let of_batch = |action: &&Action| action.method == "POST" || !action.name.ends_with("/messages/batch");
    let in_table: BTreeSet<_> =
        ACTIONS.iter().filter(of_batch).map(|action| format!("{} {}", action.method, action.name)).collect();
    assert_eq!(in_table, served());
    let before = state(&dwell).await?;
    for action in &ACTIONS {
        let (there, absent) = (about(action, "there"), about(action, "absent"));
        if action.needs == Needs::Nothing {
            assert_eq!(status(&dwell, &there, None).await?, 200, "{there}");
            continue;
        }
        for unknown in NO_TOKENS {
            let (status, asks, problem) = refused(&dwell, &there, unknown).await?;
            assert_eq!((status, asks.as_deref()), (401, Some("Bearer")), "{there}: {problem}");
            assert_eq!(problem["type"], "urn:dwell:error:unauthorized", "{there}");
            assert!(!problem.to_string().contains("s3cret"), "{there}: {problem}");
        }
        for (name, token, scopes) in TOKENS {
            let bearer = format!("Bearer {token}");
            if action.needs.are_met_by(Scopes::of(scopes)) {
                let status = status(&dwell, &absent, Some(&bearer)).await?;
                assert!(status != 401 && status != 403, "{absent} of {name}: {status}");
                continue;
            }
            let (status, asks, problem) = refused(&dwell, &there, Some(&bearer)).await?;
            assert_eq!((status, asks), (403, None), "{there} of {name}: {problem}");
            assert_eq!(problem["type"], "urn:dwell:error:scope-missing", "{there} of {name}");
            let detail = problem["detail"].as_str().unwrap_or_default();
            let Needs::OneOf(needed) = action.needs else { return Err("only scopes are missing".into()) };
            let said = format!("this needs a token with the scope {needed}; `{name}` has ");
            assert!(detail.starts_with(&said), "{there}: {problem}");
            assert!(!problem.to_string().contains("s3cret"), "{there}: {problem}");
        }
    }
    assert_eq!(state(&dwell).await?, before, "a request that was refused changed something");
    Ok(())
}

/// A request of an SQS client about the queue `there`.
fn of_sqs(dwell: &Served, action: &str, way: &str) -> Outcome<reqwest::RequestBuilder> {
    of_sqs_about(dwell, action, way, "there")
}

/// The same about any queue.
pub(super) fn of_sqs_about(dwell: &Served, action: &str, way: &str, queue: &str) -> Outcome<reqwest::RequestBuilder> {
    let (url, arn) = (format!("http://h/000000000000/{queue}"), format!("arn:aws:sqs:us-east-1:000000000000:{queue}"));
    let pairs = [
        ("QueueUrl", url.as_str()),
        ("QueueName", queue),
        ("MessageBody", "x"),
        ("ReceiptHandle", "AAAA"),
        ("VisibilityTimeout", "1"),
        ("SourceArn", arn.as_str()),
        ("Label", "l"),
        ("TaskHandle", "x"),
    ];
    let form = pairs.iter().map(|(name, value)| format!("&{name}={}", value.replace(':', "%3A").replace('/', "%2F")));
    let form = format!("Action={action}{}", form.collect::<String>());
    let json: serde_json::Map<_, _> = pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    Ok(match way {
        "json" => dwell.request("POST /")?.header("x-amz-target", format!("AmazonSQS.{action}")).json(&json),
        "form" => dwell.request("POST /")?.header("content-type", "application/x-www-form-urlencoded").body(form),
        _ => dwell.request(&format!("GET /?{form}"))?,
    })
}

/// The status of a request of an SQS client, and its error, in the protocol of the request.
async fn answered(
    dwell: &Served,
    (action, way): (&str, &str),
    authorization: Option<&str>,
) -> Outcome<(u16, Option<String>)> {
    let mut request = of_sqs(dwell, action, way)?;
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    error_of(dwell, request, (action, way)).await
}

/// The status of an answer to an SQS client, and its error, in the protocol of the request.
pub(super) async fn error_of(
    dwell: &Served,
    request: reqwest::RequestBuilder,
    (action, way): (&str, &str),
) -> Outcome<(u16, Option<String>)> {
    let response = dwell.driven(request.send()).await??;
    let (status, kind) = (response.status().as_u16(), response.headers()["content-type"].to_str()?.to_owned());
    assert_eq!(kind, if way == "json" { "application/x-amz-json-1.0" } else { "text/xml" }, "{action} {way}");
    let text = response.text().await?;
    let code = match way {
        "json" => text.split("com.amazonaws.sqs#").nth(1).and_then(|rest| rest.split('"').next()),
        _ => text.split("<Code>").nth(1).and_then(|rest| rest.split('<').next()),
    };
    Ok((status, code.map(|code| code.trim_end_matches("Exception").to_owned())))
}

#[tokio::test]
async fn every_sqs_action_enforces_the_scopes_of_the_table() -> Outcome {
    let (dwell, _dir) = filled().await?;
    let before = state(&dwell).await?;
    let denied = (403, Some("AccessDenied".to_owned()));
    for action in dwell::sqs::actions() {
        let name = action.name.trim_start_matches("AmazonSQS.");
        for way in ["json", "form", "link"] {
            for (unknown, code) in NO_TOKENS.into_iter().zip(["", "", "InvalidClientTokenId", ""]) {
                let code = if code.is_empty() { "MissingAuthenticationToken" } else { code };
                let answer = answered(&dwell, (name, way), unknown).await?;
                assert_eq!(answer, (403, Some(code.to_owned())), "{name} by {way} with {unknown:?}");
            }
            for (token_name, token, scopes) in TOKENS {
                let bearer = format!("Bearer {token}");
                let is_allowed = action.needs.are_met_by(Scopes::of(scopes));
                if !is_allowed || (way == "link" && action.effect == Effect::Changes) {
                    let answer = answered(&dwell, (name, way), Some(&bearer)).await?;
                    assert_eq!(answer, denied, "{name} by {way} of {token_name}");
                }
            }
        }
    }
    assert_eq!(state(&dwell).await?, before, "a request that was refused changed something");
    // Last the one that leaves no queue.
    let mut actions = dwell::sqs::actions();
    actions.sort_by_key(|action| action.name.ends_with(".DeleteQueue"));
    for action in actions {
        let name = action.name.trim_start_matches("AmazonSQS.");
        for way in ["json", "form", "link"] {
            let is_by_link = way == "link" && action.effect == Effect::Changes;
            for (token_name, token, scopes) in TOKENS {
                if action.needs.are_met_by(Scopes::of(scopes)) && !is_by_link {
                    let answer = answered(&dwell, (name, way), Some(&format!("Bearer {token}"))).await?;
                    let is_refused = answer.0 == 403 || answer.1.as_deref() == Some("AccessDenied");
                    assert!(!is_refused, "{name} by {way} of {token_name}: {answer:?}");
                }
            }
        }
    }
    Ok(())
}

/// A client of SQS that sends what is no request gets an error that it can read.
#[tokio::test]
async fn errors_at_the_url_of_a_queue_are_those_of_sqs() -> Outcome {
    let dwell = Served::start_with(|options| options.sqs = Some(SqsOptions::default())).await?;
    dwell.tell("PUT /v1/topics/there", json!({"partitions": 1})).await?;
    for (request, code) in [
        ("GET /000000000000/there", "MissingAction"),
        ("POST /000000000000/there", "MissingAction"),
        ("GET /000000000000/there?Action=Nothing", "InvalidAction"),
        ("PUT /000000000000/there?Action=PurgeQueue", "InvalidAction"),
        ("DELETE /000000000000/there", "InvalidAction"),
    ] {
        let response = dwell.driven(dwell.request(request)?.send()).await??;
        assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (400, &"text/xml".parse()?));
        let text = response.text().await?;
        assert!(text.contains(&format!("<Code>{code}</Code>")), "{request}: {text}");
    }
    for request in ["GET /nowhere", "GET /123/there", "GET /000000000000", "DELETE /v1/topics/other"] {
        let response = dwell.driven(dwell.request(request)?.send()).await??;
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{request}");
    }
    Ok(())
}

/// Without tokens signatures are not checked, and a link has none in a header: no link changes anything.
#[tokio::test]
async fn no_link_changes_anything_without_tokens() -> Outcome {
    let dwell = Served::start_with(|options| options.sqs = Some(SqsOptions::default())).await?;
    dwell.tell("PUT /v1/topics/there", json!({"partitions": 1})).await?;
    let before = dwell.ask("GET /v1/topics/there").await?.body;
    for action in dwell::sqs::actions().into_iter().filter(|action| action.effect == Effect::Changes) {
        let name = action.name.trim_start_matches("AmazonSQS.");
        for authorization in [
            None,
            Some(
                "AWS4-HMAC-SHA256 Credential=a/20260102/r/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature=x",
            ),
        ] {
            let answer = answered(&dwell, (name, "link"), authorization).await?;
            assert_eq!(answer, (403, Some("AccessDenied".to_owned())), "{name}");
        }
    }
    let at = "20260102T030405Z";
    let presigned = format!(
        "&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a%2F20260102%2Fr%2Fsqs%2Faws4_request&X-Amz-Date={at}\
         &X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=x"
    );
    let purge = "GET /000000000000/there?Action=PurgeQueue";
    let linked = dwell.driven(dwell.request(&format!("{purge}{presigned}"))?.send()).await??;
    assert_eq!(linked.status().as_u16(), 403);
    assert_eq!(dwell.ask("GET /v1/topics/there").await?.body, before);
    let signed = format!(
        "AWS4-HMAC-SHA256 Credential=a/{}/r/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature=x",
        &at[..8]
    );
    let signed = dwell.request(purge)?.header("authorization", signed).header("x-amz-date", at);
    assert_eq!(dwell.driven(signed.send()).await??.status().as_u16(), 200);
    assert_eq!(answered(&dwell, ("ListQueues", "link"), None).await?.0, 200);
    // A queue that a GET would create is not created either.
    let options = SqsOptions { auto_create: true, ..SqsOptions::default() };
    let dwell = Served::start_with(|server| server.sqs = Some(options)).await?;
    assert_eq!(answered(&dwell, ("GetQueueUrl", "link"), None).await?.0, 403);
    assert_eq!(dwell.ask("GET /v1/topics").await?.body["topics"], json!([]));
    assert_eq!(answered(&dwell, ("GetQueueUrl", "form"), None).await?.0, 200);
    Ok(())
}

#[tokio::test]
async fn unknown_route_is_404_only_with_a_token() -> Outcome {
    let (dwell, _dir) = asking().await?;
    let producer = format!("Bearer {}", token("producer"));
    for (line, known) in [("GET /v2/topics", 404), ("POST /nowhere", 404), ("GET /v1/topics/", 404)] {
        assert_eq!(status(&dwell, line, None).await?, 401, "{line}");
        assert_eq!(status(&dwell, line, Some(&producer)).await?, known, "{line}");
    }
    // The console is no part of the protocol; its files need no token, and nothing but its files.
    assert_eq!(CONSOLE.needs, Needs::Nothing);
    assert!(![401, 403].contains(&status(&dwell, "GET /ui/", None).await?));
    for line in ["POST /", "POST /ui/", "GET /uix", "GET /ui/../v1/topics", "GET //ui/", "GET /v1/topics?/ui/"] {
        assert_eq!(status(&dwell, line, None).await?, 401, "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn bearer_token_must_be_single_and_exact() -> Outcome {
    let (dwell, _dir) = asking().await?;
    let admin = token("admin");
    for good in [format!("Bearer {admin}"), format!("bearer {admin}"), format!("BEARER   {admin}")] {
        assert_eq!(status(&dwell, "GET /v1/topics", Some(&good)).await?, 200, "{good}");
    }
    for bad in [admin.to_owned(), format!("Bearer {admin}x"), format!("Bearer {}", admin.to_uppercase())] {
        assert_eq!(status(&dwell, "GET /v1/topics", Some(&bad)).await?, 401, "{bad}");
    }
    assert_eq!(status(&dwell, &format!("GET /v1/topics?access_token={admin}"), None).await?, 401);
    let twice = dwell.request("GET /v1/topics")?.bearer_auth(admin).header("authorization", "Bearer other");
    assert_eq!(dwell.driven(twice.send()).await??.status().as_u16(), 400);
    Ok(())
}

/// The answer arrives although the body of the request was not read.
#[tokio::test]
async fn large_push_without_a_token_gets_401() -> Outcome {
    let (dwell, _dir) = asking().await?;
    for _ in 0..8 {
        let request = dwell.request("POST /v1/topics/orders/messages/batch")?.body(vec![b' '; 4 * 1024 * 1024]);
        let answer = dwell.send(request).await?;
        assert_eq!((answer.status, answer.content_type.as_str()), (401, "application/problem+json"));
    }
    Ok(())
}

/// Nobody is heard before saying who asks: the answer comes while the body is still to come.
#[tokio::test]
async fn no_body_of_an_unknown_sqs_client_is_read() -> Outcome {
    let (dwell, _dir) = filled().await?;
    let key = "Credential=nobody/20260102/eu-west-1/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature=x";
    let old = key.replace("nobody", "admin").replace("20260102", "20200102");
    for (authorization, code) in [
        (String::new(), "MissingAuthenticationToken"),
        ("Authorization: Bearer s3cret-of-nobody-here\r\n".to_owned(), "InvalidClientTokenId"),
        ("Authorization: AWS4-HMAC-SHA256 x\r\n".to_owned(), "IncompleteSignature"),
        (format!("X-Amz-Date: 20200102T030405Z\r\nAuthorization: AWS4-HMAC-SHA256 {old}\r\n"), "RequestExpired"),
    ] {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\n{authorization}Content-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: 8000000\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
            dwell.base.trim_start_matches("http://")
        );
        let mut stream = TcpStream::connect(dwell.base.trim_start_matches("http://")).await?;
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains("</ErrorResponse>") {
            let read = timeout(Duration::from_secs(10), stream.read_buf(&mut answer)).await;
            let text = String::from_utf8_lossy(&answer).into_owned();
            assert!(matches!(read, Ok(Ok(1..))), "{code}: {text}");
        }
        let answer = String::from_utf8(answer)?;
        assert!(answer.starts_with("HTTP/1.1 40") && answer.contains(&format!("<Code>{code}</Code>")), "{answer}");
    }
    Ok(())
}

/// `Host` becomes a part of queue URLs, so it is no longer than a name can be; the answer is in the protocol of the request.
#[tokio::test]
async fn long_or_foreign_host_is_refused_in_the_protocol_of_the_request() -> Outcome {
    let dwell = Served::start_with(|options| options.sqs = Some(SqsOptions::default())).await?;
    let long = format!("localhost:{}7373", "0".repeat(8_000));
    for (way, kind) in [("json", "application/x-amz-json-1.0"), ("form", "text/xml"), ("link", "text/xml")] {
        for (host, status, said) in [(long.as_str(), 400, "at most 259"), ("evil.example", 403, "loopback")] {
            let request = of_sqs(&dwell, "ListQueues", way)?.header("host", host);
            let response = dwell.driven(request.send()).await??;
            let seen = (response.status().as_u16(), response.headers()["content-type"].to_str()?.to_owned());
            assert_eq!(seen, (status, kind.to_owned()), "{way}");
            assert!(response.text().await?.contains(said), "{way}");
        }
    }
    let answer = dwell.send(dwell.request("GET /v1/topics")?.header("host", long)).await?;
    assert_eq!((answer.status, answer.content_type.as_str()), (400, "application/problem+json"));
    Ok(())
}

/// Every answer that may be large waits for memory, whatever the protocol; small ones do not.
#[tokio::test]
async fn no_large_answer_begins_without_memory_for_it() -> Outcome {
    let dwell = Served::start_with(|options| {
        options.sqs = Some(SqsOptions::default());
        (options.answer_bytes, options.answer_patience) = (0, Duration::ZERO);
    })
    .await?;
    for (name, status) in [("ListQueues", 503), ("GetQueueAttributes", 503), ("GetQueueUrl", 400), ("DeleteQueue", 400)]
    {
        assert_eq!(answered(&dwell, (name, "json"), None).await?.0, status, "{name}");
    }
    assert_eq!(dwell.ask("GET /v1/topics").await?.status, 503);
    assert_eq!(dwell.ask("GET /readyz").await?.status, 200);
    Ok(())
}

/// What a request has read counts nowhere while it waits for memory of its answer: so a large one does not wait.
#[tokio::test]
async fn large_request_does_not_wait_for_memory_of_its_answer() -> Outcome {
    let dwell = Served::start_with(|options| {
        options.sqs = Some(SqsOptions::default());
        (options.answer_bytes, options.answer_patience) = (0, Duration::from_secs(600));
    })
    .await?;
    for bytes in [100 * 1024, 4 * 1024 * 1024] {
        let body = json!({"QueueUrl": "http://h/0/orders", "Entries": [{"Id": "a", "MessageBody": "x".repeat(bytes)}]});
        let request = dwell.request("POST /")?.header("x-amz-target", "AmazonSQS.SendMessageBatch").json(&body);
        let response = timeout(Duration::from_secs(60), request.send()).await??;
        assert_eq!(response.status().as_u16(), 503, "{bytes}");
    }
    let small = dwell.request("POST /")?.header("x-amz-target", "AmazonSQS.ListQueues").json(&json!({}));
    assert!(timeout(Duration::from_secs(2), small.send()).await.is_err(), "a small one waits");
    Ok(())
}
