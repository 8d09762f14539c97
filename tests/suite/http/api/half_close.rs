//! Clients that close their sending side and read on: they are answered. Reads that wait treat them as gone.

use std::time::Duration;

use dwell::api::http::{Listen, TlsFiles};
use dwell::sqs::SqsOptions;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::connection_limit::connect;
use super::served::{Outcome, Served};
use crate::support::{Certificates, eventually};

const GROUP: &str = "/v1/topics/orders/groups/default";

/// A request with a body.
fn request(line: &str, version: &str, body: &str) -> String {
    let length = body.len();
    format!("{line} HTTP/{version}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn push(id: &str) -> String {
    request(&format!("POST /v1/topics/orders/messages?id={id}"), "1.1", "x")
}

/// Sends all of it, closes the sending side, and reads to the end.
async fn said_and_closed<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, said: &str) -> Outcome<String> {
    stream.write_all(said.as_bytes()).await?;
    stream.shutdown().await?;
    let mut answer = Vec::new();
    timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await??;
    Ok(String::from_utf8(answer)?)
}

async fn tcp(dwell: &Served, said: &str) -> Outcome<String> {
    said_and_closed(connect(dwell, b"").await?, said).await
}

#[tokio::test]
async fn half_closed_client_is_answered() -> Outcome {
    let dwell = Served::start().await?;
    let chunked = |id: &str| {
        let line = format!("POST /v1/topics/orders/messages?id={id} HTTP/1.1\r\nHost: localhost\r\n");
        format!("{line}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
    };
    for n in 0..20 {
        assert!(tcp(&dwell, &push(&format!("a{n}"))).await?.starts_with("HTTP/1.1 201 "), "a{n}");
        assert!(tcp(&dwell, &chunked(&format!("b{n}"))).await?.starts_with("HTTP/1.1 201 "), "b{n}");
    }
    let old = request("POST /v1/topics/orders/messages?id=c", "1.0", "x");
    assert!(tcp(&dwell, &old).await?.starts_with("HTTP/1.0 201 "));
    // Requests that follow each other on one connection: each is answered, then the connection ends.
    let three = [push("d0"), push("d1"), push("d2")].concat();
    assert_eq!(tcp(&dwell, &three).await?.matches("HTTP/1.1 201 ").count(), 3);
    assert_eq!(dwell.counts("orders").await?.iter().sum::<u64>(), 44);
    Ok(())
}

#[tokio::test]
async fn body_in_pieces_of_a_half_closed_client_is_answered() -> Outcome {
    let dwell = Served::start().await?;
    let payload = "x".repeat(200_000);
    for n in 0..20 {
        let mut stream = connect(&dwell, b"").await?;
        let said = request(&format!("POST /v1/topics/orders/messages?id=a{n}"), "1.1", &payload);
        let (first, rest) = said.split_at(100_000);
        stream.write_all(first.as_bytes()).await?;
        stream.flush().await?;
        assert!(said_and_closed(stream, rest).await?.starts_with("HTTP/1.1 201 "), "a{n}");
    }
    // A body that ends before its length is no message.
    let cut = request("POST /v1/topics/orders/messages?id=cut", "1.1", "abcd").replace("abcd", "ab");
    assert!(tcp(&dwell, &cut).await?.starts_with("HTTP/1.1 400 "));
    let cut = "POST /v1/topics/orders/messages?id=cut HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
    assert!(tcp(&dwell, cut).await?.starts_with("HTTP/1.1 400 "));
    assert_eq!(tcp(&dwell, "POST /v1/topics/orders/messages HTTP/1.1\r\nHost: loc").await?, "");
    assert_eq!(dwell.counts("orders").await?.iter().sum::<u64>(), 20);
    Ok(())
}

#[tokio::test]
async fn large_answer_to_a_half_closed_client_is_whole() -> Outcome {
    let dwell = Served::start().await?;
    let payload = "x".repeat(1_000_000);
    for n in 0..3 {
        let line = format!("POST /v1/topics/orders/messages?id=a{n}");
        let pushed = dwell.send(dwell.request(&line)?.body(payload.clone())).await?;
        assert_eq!(pushed.status, 201);
    }
    let mut stream = connect(&dwell, request("GET /v1/topics/orders/messages", "1.1", "").as_bytes()).await?;
    stream.shutdown().await?;
    // The broker has written all that it can before the first byte is read.
    stream.readable().await?;
    for _ in 0..20 {
        assert_eq!(dwell.ask("GET /livez").await?.status, 200);
    }
    let mut answer = String::new();
    timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await??;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.matches("\"payload\":").count() == 3, "{}", answer.len());
    Ok(())
}

#[tokio::test]
async fn half_closed_client_is_answered_over_tls_and_a_unix_socket() -> Outcome {
    let dir = tempfile::tempdir()?;
    let certificates = Certificates::new()?;
    certificates.write(dir.path())?;
    let tls = TlsFiles { cert: dir.path().join("cert"), key: dir.path().join("key"), client_ca: None };
    let dwell = Served::start_with(|options| options.tls = Some(tls)).await?;
    let address = dwell.base.strip_prefix("https://").ok_or("no address")?;
    for n in 0..20 {
        // `shutdown` says goodbye as TLS does, and then closes the sending side.
        let stream = certificates.connect(address).await?;
        assert!(said_and_closed(stream, &push(&format!("a{n}"))).await?.starts_with("HTTP/1.1 201 "), "a{n}");
        // Without the goodbye of TLS.
        let mut stream = certificates.connect(address).await?;
        stream.write_all(push(&format!("b{n}")).as_bytes()).await?;
        stream.flush().await?;
        stream.get_mut().0.shutdown().await?;
        let mut answer = Vec::new();
        let _ = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await?;
        assert!(answer.starts_with(b"HTTP/1.1 201 "), "b{n}");
    }
    let path = dir.path().join("dwell.sock");
    let dwell = Served::start_with(|options| options.listen = Listen::Unix(path.clone())).await?;
    for n in 0..20 {
        let stream = UnixStream::connect(&path).await?;
        assert!(said_and_closed(stream, &push(&format!("a{n}"))).await?.starts_with("HTTP/1.1 201 "), "a{n}");
    }
    assert_eq!(dwell.counts("orders").await?.iter().sum::<u64>(), 20);
    Ok(())
}

#[tokio::test]
async fn reserve_without_wait_of_a_half_closed_client_is_answered() -> Outcome {
    let dwell = Served::start_with(|options| options.sqs = Some(SqsOptions::default())).await?;
    let receive = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n\
                   Content-Type: application/x-amz-json-1.0\r\n";
    let ask = json!({"QueueUrl": format!("{}/000000000000/orders", dwell.base), "WaitTimeSeconds": 0}).to_string();
    let receive = format!("{receive}Content-Length: {}\r\n\r\n{ask}", ask.len());
    for (said, id) in [(request(&format!("POST {GROUP}/reserve"), "1.1", ""), "native"), (receive, "sqs")] {
        assert!(tcp(&dwell, &push(id)).await?.starts_with("HTTP/1.1 201 "));
        // The broker may not have the message in memory at the first time.
        let got = async || {
            let answered = dwell.driven(tcp(&dwell, &said)).await.and_then(|answer| answer);
            let answer = answered.map_err(|error| dwell::model::error::Error::bug(error.to_string()))?;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{id}: {answer}");
            Ok(answer.contains("\"x\"").then_some(()))
        };
        eventually("it is delivered", got).await?;
    }
    Ok(())
}

/// Says a request that waits, closes the sending side, and pushes a message then: the next consumer has it at once, as its
/// first attempt.
async fn nothing_is_delivered_to(dwell: &Served, waiting: &str, is_stream: bool, id: &str) -> Outcome {
    let mut stream = connect(dwell, waiting.as_bytes()).await?;
    if is_stream {
        super::connection_limit::until(&mut stream, "\r\n\r\n").await?;
    }
    stream.shutdown().await?;
    let mut rest = Vec::new();
    timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await??;
    assert!(!String::from_utf8_lossy(&rest).contains("receipt"), "{id}");
    assert!(tcp(dwell, &push(id)).await?.starts_with("HTTP/1.1 201 "));
    let mut delivered = Vec::new();
    while delivered.is_empty() {
        delivered = dwell.reserve("orders").await?;
    }
    assert_eq!((&delivered[0]["id"], &delivered[0]["attempt"]), (&json!(id), &json!(1)));
    let ack = json!({"receipts": [delivered[0]["receipt"]]});
    dwell.tell(&format!("POST {GROUP}/ack"), ack).await?;
    Ok(())
}

#[tokio::test]
async fn waiting_read_of_a_half_closed_client_ends_and_takes_nothing() -> Outcome {
    let dwell = Served::start_with(|options| options.sqs = Some(SqsOptions::default())).await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let poll = format!("POST {GROUP}/reserve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
    let poll = format!("{poll}Content-Length: 15\r\n\r\n{{\"wait\": \"60s\"}}");
    let ask = json!({"QueueUrl": format!("{}/000000000000/orders", dwell.base), "WaitTimeSeconds": 20}).to_string();
    let receive = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n\
                   Content-Type: application/x-amz-json-1.0\r\n";
    let receive = format!("{receive}Content-Length: {}\r\n\r\n{ask}", ask.len());
    let lines = request(&format!("POST {GROUP}/stream"), "1.1", "");
    for (n, (waiting, is_stream)) in [(&poll, false), (&receive, false), (&lines, true)].into_iter().enumerate() {
        nothing_is_delivered_to(&dwell, waiting, is_stream, &format!("m{n}")).await?;
        // Behind a request that was answered, on the same connection.
        let later = request(&format!("POST /v1/topics/orders/messages?id=later{n}&delay=1h"), "1.1", "x");
        let answers = tcp(&dwell, &format!("{later}{waiting}")).await?;
        assert!(answers.starts_with("HTTP/1.1 201 ") && !answers.contains("receipt"), "{answers}");
    }
    Ok(())
}

#[tokio::test]
async fn request_that_follows_a_waiting_read_is_answered() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let poll = format!("POST {GROUP}/reserve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
    let poll = format!("{poll}Content-Length: 15\r\n\r\n{{\"wait\": \"10s\"}}");
    let mut stream = connect(&dwell, poll.as_bytes()).await?;
    // It comes in two pieces while the read waits, and the first byte of it is read early.
    let next = push("a");
    for piece in [&next[..1], &next[1..]] {
        assert_eq!(dwell.ask("GET /livez").await?.status, 200);
        stream.write_all(piece.as_bytes()).await?;
        stream.flush().await?;
    }
    let mut answers = String::new();
    let both = async {
        while !answers.contains("HTTP/1.1 201 ") {
            let mut some = [0; 4_096];
            let count = stream.read(&mut some).await?;
            assert!(count > 0, "{answers}");
            answers.push_str(&String::from_utf8_lossy(&some[..count]));
        }
        Outcome::Ok(())
    };
    dwell.driven(both).await??;
    assert!(answers.starts_with("HTTP/1.1 200 "), "{answers}");
    Ok(())
}
