//! Tokens: clients sign with them, and scopes hold.

use std::path::Path;

use dwell::gate::access::{Scope, Scopes, Token};
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::tempdir;

use super::{Answer, Broker, Outcome, Store, text};

const TOKENS: [(&str, &str, &[Scope]); 3] = [
    ("producer", "s3cret-of-the-producer", &[Scope::Produce]),
    ("consumer", "s3cret-of-the-consumer", &[Scope::Consume]),
    ("admin", "s3cret-of-the-operator", &[Scope::Admin]),
];

fn tokens_in(dir: &Path) -> Outcome<Vec<Token>> {
    let token = |(name, token, scopes): &(&str, &str, &[Scope])| {
        let file = dir.join(name);
        std::fs::write(&file, token)?;
        Ok(Token { name: (*name).into(), file, scopes: Scopes::of(scopes) })
    };
    TOKENS.iter().map(token).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hmac(key: &[u8], text: &str) -> Outcome<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)?;
    mac.update(text.as_bytes());
    Ok(mac.finalize().into_bytes().to_vec())
}

/// Signs as an SDK does, at a number of seconds since 1970.
fn signed(
    dwell: &Broker,
    action: &str,
    body: &Value,
    (name, secret): (&str, &str),
    at: i64,
) -> Outcome<RequestBuilder> {
    let time = jiff::Timestamp::from_second(at)?.strftime("%Y%m%dT%H%M%SZ").to_string();
    let (date, host) = (&time[..8], dwell.base.trim_start_matches("http://"));
    let names = "host;x-amz-date;x-amz-target";
    let headers = format!("host:{host}\nx-amz-date:{time}\nx-amz-target:AmazonSQS.{action}\n");
    let canonical = format!("POST\n/\n\n{headers}\n{names}\n{}", hex(&Sha256::digest(body.to_string())));
    let scope = format!("{date}/eu-west-1/sqs/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in [date, "eu-west-1", "sqs", "aws4_request", &text] {
        key = hmac(&key, part)?;
    }
    let signature = hex(&key);
    let authorization =
        format!("AWS4-HMAC-SHA256 Credential={name}/{scope}, SignedHeaders={names}, Signature={signature}");
    Ok(dwell.request(action, body).header("x-amz-date", time).header("authorization", authorization))
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

async fn asked(dwell: &Broker, action: &str, body: Value, name: &str) -> Outcome<Answer> {
    let secret = TOKENS.iter().find(|(other, ..)| *other == name).map_or("", |(_, secret, _)| *secret);
    Broker::send(signed(dwell, action, &body, (name, secret), now())?).await
}

#[tokio::test]
async fn sqs_requests_need_a_valid_signature_and_scope() -> Outcome {
    let dir = tempdir()?;
    let tokens = tokens_in(dir.path())?;
    let dwell = Broker::start_with(&Store::Embedded, |options| options.tokens = tokens).await?;
    let created = asked(&dwell, "CreateQueue", json!({"QueueName": "orders"}), "producer").await?;
    assert_eq!(created.status, 200, "{created:?}");
    let url = text(&created.body["QueueUrl"]);
    let send = json!({"QueueUrl": url, "MessageBody": "x"});
    assert_eq!(asked(&dwell, "SendMessage", send.clone(), "producer").await?.status, 200);
    let receive = json!({"QueueUrl": url, "WaitTimeSeconds": 20, "AttributeNames": ["SenderId"]});
    let received = asked(&dwell, "ReceiveMessage", receive.clone(), "consumer").await?;
    assert_eq!(received.body["Messages"][0]["Attributes"], json!({"SenderId": "producer"}), "{received:?}");
    let arn = json!({"QueueUrl": url, "AttributeNames": ["QueueArn"]});
    let arn = asked(&dwell, "GetQueueAttributes", arn, "consumer").await?;
    assert_eq!(arn.body["Attributes"]["QueueArn"], "arn:aws:sqs:eu-west-1:000000000000:orders");
    for (action, body, name) in [
        ("SendMessage", send.clone(), "consumer"),
        ("ReceiveMessage", receive, "producer"),
        ("PurgeQueue", json!({"QueueUrl": url}), "consumer"),
        ("DeleteQueue", json!({"QueueUrl": url}), "producer"),
        ("CreateQueue", json!({"QueueName": "other", "Attributes": {"DelaySeconds": "1"}}), "producer"),
    ] {
        let answer = asked(&dwell, action, body, name).await?;
        assert_eq!((answer.status, answer.code.as_deref()), (403, Some("AccessDenied;Sender")), "{action} {name}");
    }
    let code = async |request: RequestBuilder| Ok::<_, Box<dyn std::error::Error>>(Broker::send(request).await?.code);
    let secret = TOKENS[0].1;
    let forged = |name, secret, at| signed(&dwell, "SendMessage", &send, (name, secret), at);
    assert_eq!(code(dwell.request("SendMessage", &send)).await?.as_deref(), Some("MissingAuthenticationToken;Sender"));
    assert_eq!(code(forged("nobody", secret, now())?).await?.as_deref(), Some("InvalidClientTokenId;Sender"));
    assert_eq!(code(forged("producer", "wrong", now())?).await?.as_deref(), Some("SignatureDoesNotMatch;Sender"));
    assert_eq!(code(forged("producer", secret, now() - 3_600)?).await?.as_deref(), Some("RequestExpired;Sender"));
    let bearer = dwell.request("SendMessage", &send).header("authorization", format!("Bearer {secret}"));
    assert_eq!(Broker::send(bearer).await?.status, 200);
    // Native requests need their own authorization.
    let native = dwell.client.get(format!("{}/v1/topics", dwell.base)).send().await?;
    assert_eq!(native.status().as_u16(), 401);
    Ok(())
}

#[tokio::test]
async fn a_web_page_cannot_send_a_form() -> Outcome {
    let dwell = Broker::start(&Store::Embedded).await?;
    let form = "Action=CreateQueue&QueueName=orders";
    for (name, value) in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site"), ("host", "evil.example")]
    {
        let request = dwell.client.post(&dwell.base).header("content-type", "application/x-www-form-urlencoded");
        let response = request.header(name, value).body(form).send().await?;
        assert_eq!(response.status().as_u16(), 403, "{name}");
    }
    assert_eq!(dwell.tell("ListQueues", json!({})).await?, json!({}));
    Ok(())
}

#[tokio::test]
async fn sqs_requests_are_refused_unless_enabled() -> Outcome {
    let dwell = Broker::start_with(&Store::Embedded, |options| options.sqs = None).await?;
    let response = dwell.request("ListQueues", &json!({})).send().await?;
    assert_eq!(response.status().as_u16(), 405);
    Ok(())
}

/// Creating a queue without `admin` is what a push does: not where `topic.auto_create` is false.
#[tokio::test]
async fn only_an_admin_creates_queues_without_auto_create() -> Outcome {
    let dir = tempdir()?;
    let tokens = tokens_in(dir.path())?;
    let dwell = Broker::start_with(&Store::Embedded, |options| {
        options.tokens = tokens;
        options.broker.auto_create = false;
        options.sqs = Some(dwell::sqs::SqsOptions { auto_create: true, ..Default::default() });
    })
    .await?;
    let create = json!({"QueueName": "orders"});
    let denied = asked(&dwell, "CreateQueue", create.clone(), "producer").await?;
    assert_eq!((denied.status, denied.code.as_deref()), (403, Some("AccessDenied;Sender")), "{denied:?}");
    assert!(denied.body["message"].as_str().is_some_and(|why| why.contains("topic.auto_create")), "{denied:?}");
    for (action, body) in
        [("GetQueueUrl", create.clone()), ("SendMessage", json!({"QueueUrl": "http://h/0/orders", "MessageBody": "x"}))]
    {
        for name in ["producer", "admin"] {
            let answer = asked(&dwell, action, body.clone(), name).await?;
            let code = Some("AWS.SimpleQueueService.NonExistentQueue;Sender");
            assert_eq!((answer.status, answer.code.as_deref()), (400, code), "{action} of {name}");
        }
    }
    assert_eq!(asked(&dwell, "CreateQueue", create.clone(), "admin").await?.status, 200);
    assert_eq!(asked(&dwell, "CreateQueue", create, "producer").await?.status, 200, "it is there");
    Ok(())
}

/// Nobody adds a header to a signed request: it could name another action.
#[tokio::test]
async fn every_amz_header_of_a_signed_request_is_signed() -> Outcome {
    let dir = tempdir()?;
    let tokens = tokens_in(dir.path())?;
    let dwell = Broker::start_with(&Store::Embedded, |options| options.tokens = tokens).await?;
    assert_eq!(asked(&dwell, "CreateQueue", json!({"QueueName": "orders"}), "admin").await?.status, 200);
    let url = json!({"QueueUrl": "http://h/0/orders"});
    let secret = TOKENS.iter().find(|(name, ..)| *name == "admin").map_or("", |(_, secret, _)| *secret);
    let request = signed(&dwell, "GetQueueAttributes", &url, ("admin", secret), now())?;
    assert_eq!(Broker::send(request).await?.status, 200);
    let request = signed(&dwell, "GetQueueAttributes", &url, ("admin", secret), now())?;
    let more = Broker::send(request.header("x-amz-security-token", "x")).await?;
    assert_eq!((more.status, more.code.as_deref()), (400, Some("IncompleteSignature;Sender")), "{more:?}");
    assert!(more.body["message"].as_str().is_some_and(|why| why.contains("x-amz-security-token")), "{more:?}");
    // A second target makes another request of it.
    let request = signed(&dwell, "GetQueueAttributes", &url, ("admin", secret), now())?;
    let twice = Broker::send(request.header("x-amz-target", "AmazonSQS.PurgeQueue")).await?;
    assert!(twice.status >= 400, "{twice:?}");
    Ok(())
}

/// The table of the gate holds for signed requests, too.
#[tokio::test]
async fn every_action_enforces_its_scopes_for_signed_requests() -> Outcome {
    let dir = tempdir()?;
    let tokens = tokens_in(dir.path())?;
    let dwell = Broker::start_with(&Store::Embedded, |options| options.tokens = tokens).await?;
    assert_eq!(asked(&dwell, "CreateQueue", json!({"QueueName": "orders"}), "admin").await?.status, 200);
    let mut actions = dwell::sqs::actions();
    actions.sort_by_key(|action| action.name.ends_with(".DeleteQueue"));
    for action in actions {
        let name = action.name.trim_start_matches("AmazonSQS.");
        let body = json!({"QueueUrl": "http://h/0/orders", "QueueName": "orders", "ReceiptHandle": "AAAA"});
        for (token, _, scopes) in TOKENS {
            let answer = asked(&dwell, name, body.clone(), token).await?;
            let is_denied = answer.code.as_deref() == Some("AccessDenied;Sender");
            assert_eq!(!is_denied, action.needs.are_met_by(Scopes::of(scopes)), "{name} of {token}: {answer:?}");
        }
    }
    Ok(())
}
