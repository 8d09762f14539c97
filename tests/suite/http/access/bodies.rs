//! Bodies of requests: none is read before the gate let its request in, and none is larger than its action takes.

use std::time::Duration;

use dwell::api::http::ACTIONS;
use dwell::gate::{Action, AnswerSize, Needs};
use dwell::model::limits::PAYLOAD_BYTES_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::routes::{about, filled_with, state};
use super::{token, tokens_in};
use crate::http::api::served::{Outcome, Served};

/// A way to send a body to an action: the headers that it needs, and the bytes that it takes.
struct Way {
    headers: &'static str,
    bytes: usize,
}

/// All ways to send a body to an action of `/v1`.
fn ways(action: &Action) -> Vec<Way> {
    const JSON: &str = "Content-Type: application/json\r\n";
    const RECORDS: &str =
        "Content-Type: application/vnd.dwell.records\r\nDwell-Store: a\r\nDwell-Log: wal\r\nDwell-Log-Id: a\r\n";
    let way = |headers| Way { headers, bytes: action.body_bytes };
    match action.name {
        "/v1/hand-over" => vec![way(RECORDS)],
        // Without `Content-Type` and with any other one the body is the payload itself.
        "/v1/topics/{topic}/messages" if action.method == "POST" => {
            vec![way(JSON), Way { headers: "", bytes: PAYLOAD_BYTES_MAX }]
        }
        "/v1/topics/{topic}/messages/batch" if action.method == "POST" => {
            vec![way(JSON), way("Content-Type: application/x-ndjson\r\n")]
        }
        _ => vec![way(JSON)],
    }
}

fn has_body(action: &&Action) -> bool {
    action.body_bytes > 0
}

/// A connection on which the head of a request was sent.
struct Sent(TcpStream);

impl Sent {
    async fn head(dwell: &Served, line: &str, bearer: Option<&str>, headers: &str) -> Outcome<Sent> {
        let host = dwell.base.trim_start_matches("http://");
        let bearer = bearer.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(host).await?;
        let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{bearer}{headers}Connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        Ok(Sent(stream))
    }

    /// What is answered up to the end of a head: `100 Continue` is the wish to read the body.
    async fn first(&mut self, line: &str) -> Outcome<u16> {
        let mut answer = Vec::new();
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = timeout(Duration::from_secs(20), self.0.read_buf(&mut answer)).await;
            let text = String::from_utf8_lossy(&answer);
            assert!(matches!(read, Ok(Ok(1..))), "{line}: {read:?} after {text}");
        }
        status_of(&answer)
    }

    /// The status and the text of the whole answer.
    async fn answer(mut self) -> Outcome<(u16, String)> {
        let mut answer = Vec::new();
        timeout(Duration::from_secs(60), self.0.read_to_end(&mut answer)).await??;
        Ok((status_of(&answer)?, String::from_utf8_lossy(&answer).into_owned()))
    }
}

fn status_of(answer: &[u8]) -> Outcome<u16> {
    let text = String::from_utf8_lossy(answer);
    Ok(text.split(' ').nth(1).ok_or_else(|| format!("no status: {text}"))?.parse()?)
}

/// A client that waits until it is asked for the body of so many bytes.
fn waiting(headers: &str, bytes: usize) -> String {
    format!("{headers}Content-Length: {bytes}\r\nExpect: 100-continue\r\n")
}

async fn filled(change: impl FnOnce(&mut dwell::app::server::ServerOptions)) -> Outcome<(Served, tempfile::TempDir)> {
    let dir = tempfile::tempdir()?;
    Ok((filled_with(tokens_in(dir.path())?, change).await?, dir))
}

#[tokio::test]
async fn no_route_reads_a_body_before_the_gate() -> Outcome {
    let (dwell, _dir) = filled(|_| {}).await?;
    let before = state(&dwell).await?;
    for action in ACTIONS.iter().filter(|action| action.needs != Needs::Nothing) {
        let line = about(action, "there");
        for Way { headers, bytes } in ways(action) {
            let headers = waiting(headers, bytes.clamp(2, 1_000));
            for (bearer, status) in [(None, 401), (Some("s3cret-of-nobody-here"), 401), (Some(token("viewer")), 403)] {
                let is_let_in = status == 403 && action.needs == Needs::Token;
                let first = Sent::head(&dwell, &line, bearer, &headers).await?.first(&line).await?;
                match is_let_in {
                    true => assert_ne!(first, 100, "{line}: it has no body"),
                    false => assert_eq!(first, status, "{line} with {bearer:?}"),
                }
            }
            // So that the walk shows something: who is let in is asked for the body, if there is one.
            let line = about(action, "absent");
            let first = Sent::head(&dwell, &line, Some(token("admin")), &headers).await?.first(&line).await?;
            // One that changes something and has no fields takes no other body than `{}`.
            assert_eq!(first == 100, action.method != "GET", "{line}: {first}");
        }
    }
    for action in dwell::sqs::actions() {
        let name = action.name;
        for headers in
            [format!("X-Amz-Target: {name}\r\n"), "Content-Type: application/x-www-form-urlencoded\r\n".into()]
        {
            let mut sent = Sent::head(&dwell, "POST /", None, &waiting(&headers, 1_000)).await?;
            assert_eq!(sent.first(name).await?, 403, "{name}");
            let mut sent = Sent::head(&dwell, "POST /", Some(token("admin")), &waiting(&headers, 1_000)).await?;
            assert_eq!(sent.first(name).await?, 100, "{name}");
        }
    }
    assert_eq!(state(&dwell).await?, before, "a request without its body changed something");
    Ok(())
}

/// Of what has to wait for memory nothing is read before that.
#[tokio::test]
async fn no_body_is_read_while_there_is_no_room_for_the_answer() -> Outcome {
    let dir = tempfile::tempdir()?;
    let tokens = tokens_in(dir.path())?;
    let dwell = Served::start_with(|options| {
        options.tokens = tokens;
        (options.answer_bytes, options.answer_patience) = (0, Duration::ZERO);
    })
    .await?;
    for action in ACTIONS.iter().filter(|action| action.answer == AnswerSize::Counted && action.needs != Needs::Nothing)
    {
        let line = about(action, "there");
        for Way { headers, bytes } in ways(action) {
            let headers = waiting(headers, bytes.clamp(2, 1_000));
            let first = Sent::head(&dwell, &line, Some(token("admin")), &headers).await?.first(&line).await?;
            assert_eq!(first, 503, "{line}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_route_refuses_a_body_past_its_limit() -> Outcome {
    let (dwell, _dir) = filled(|_| {}).await?;
    let (before, admin) = (state(&dwell).await?, Some(token("admin")));
    for action in ACTIONS.iter().filter(has_body) {
        let line = about(action, "there");
        for Way { headers, bytes } in ways(action) {
            // One that is announced is not even asked for.
            let mut sent = Sent::head(&dwell, &line, admin, &waiting(headers, bytes + 1)).await?;
            assert_eq!(sent.first(&line).await?, 413, "{line} {headers}");
            // One that is not, and one whose client does not wait.
            for announced in [false, true] {
                let (status, text) = past(&dwell, &line, headers, bytes + 1, announced).await?;
                assert_eq!(status, 413, "{line} {headers}: {text}");
                assert!(text.contains("urn:dwell:error:too-large"), "{line} {headers}: {text}");
            }
        }
    }
    assert_eq!(state(&dwell).await?, before, "a request whose body is too large changed something");
    Ok(())
}

/// One byte less is read: it is what is in it that counts.
#[tokio::test]
async fn every_route_reads_a_body_at_its_limit() -> Outcome {
    let (dwell, _dir) = filled(|_| {}).await?;
    for action in ACTIONS.iter().filter(has_body) {
        // A stream waits for its topic, and not for its group.
        let line = match about(action, "absent") {
            stream if stream.ends_with("/stream") => stream.replace("topics/absent", "topics/there"),
            line => line,
        };
        for Way { headers, bytes } in ways(action) {
            let (status, text) = past(&dwell, &line, headers, bytes, true).await?;
            assert!(![408, 413, 503].contains(&status), "{line} {headers}: {text}");
            // The one that was made: its consumers would wait.
            dwell.send(dwell.request("DELETE /v1/topics/absent")?.bearer_auth(token("admin"))).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_sqs_action_refuses_a_body_past_its_limit() -> Outcome {
    let (dwell, _dir) = filled(|_| {}).await?;
    let (before, admin) = (state(&dwell).await?, Some(token("admin")));
    for action in dwell::sqs::actions() {
        let (name, bytes) = (action.name, action.body_bytes);
        let json = format!("X-Amz-Target: {name}\r\n");
        let form = "Content-Type: application/x-www-form-urlencoded\r\n".to_owned();
        let link = format!("GET /?Action={}", name.trim_start_matches("AmazonSQS."));
        for (line, headers, kind) in [
            ("POST /", &json, "application/x-amz-json-1.0"),
            ("POST /", &form, "text/xml"),
            (link.as_str(), &String::new(), "text/xml"),
        ] {
            let sent = Sent::head(&dwell, line, admin, &waiting(headers, bytes + 1)).await?;
            let (status, text) = sent.answer().await?;
            assert_eq!(status, 400, "{name} by {line}: {text}");
            assert!(text.contains(kind) && text.contains("InvalidParameterValue"), "{name} by {line}: {text}");
        }
    }
    for headers in ["X-Amz-Target: AmazonSQS.PurgeQueue\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"] {
        let (status, text) = past(&dwell, "POST /", headers, 8 * 1024 * 1024 + 1, false).await?;
        assert!(status == 400 && text.contains("InvalidParameterValue"), "{headers}: {text}");
    }
    assert_eq!(state(&dwell).await?, before, "a request whose body is too large changed something");
    Ok(())
}

/// Sends a body of so many bytes, an object with spaces behind it, with its length before it or in chunks.
async fn past(dwell: &Served, line: &str, headers: &str, bytes: usize, announced: bool) -> Outcome<(u16, String)> {
    let length = match announced {
        true => format!("Content-Length: {bytes}\r\n"),
        false => "Transfer-Encoding: chunked\r\n".to_owned(),
    };
    let Sent(stream) = Sent::head(dwell, line, Some(token("admin")), &format!("{headers}{length}")).await?;
    let (mut answer, mut body) = stream.into_split();
    let send = async move {
        let mut text = vec![b' '; bytes];
        text[..2].copy_from_slice(b"{}");
        if !announced {
            body.write_all(format!("{bytes:x}\r\n").as_bytes()).await?;
        }
        body.write_all(&text).await?;
        if !announced {
            body.write_all(b"\r\n0\r\n\r\n").await?;
        }
        // Its end is the end of the connection, which the answer is to come before.
        Ok::<_, std::io::Error>(body)
    };
    let mut text = Vec::new();
    let read = timeout(Duration::from_secs(60), answer.read_to_end(&mut text));
    let (read, _sent) = dwell.driven(futures_util::future::join(read, send)).await?;
    read??;
    Ok((status_of(&text)?, String::from_utf8_lossy(&text).into_owned()))
}

/// What is wrong with the headers is answered although the body was not read.
#[tokio::test]
async fn a_large_body_of_a_wrong_type_gets_its_answer() -> Outcome {
    let (dwell, _dir) = filled(|_| {}).await?;
    for (line, headers, status) in [
        ("POST /v1/topics/there/messages/batch", "Content-Type: text/plain\r\n", 415),
        ("POST /v1/topics/there/messages/batch?x=1", "", 422),
        ("POST /v1/topics/there/messages?priority=77", "", 422),
        ("POST /v1/topics/there/messages?priority=7", "Content-Type: application/json\r\n", 422),
        ("POST /v1/topics/there/messages", "Dwell-Raw: maybe\r\n", 422),
        ("POST /v1/hand-over", "Content-Type: text/plain\r\n", 415),
        ("POST /v1/hand-over", "Content-Type: application/vnd.dwell.records\r\n", 422),
        ("PUT /v1/topics/there?x=1", "", 422),
        ("PUT /v1/topics/th%20ere", "", 422),
        ("POST /v1/topics/there/groups/there/reserve?x=1", "", 422),
        ("POST /v1/nowhere", "", 404),
        ("POST /v1/topics", "", 405),
    ] {
        for _ in 0..4 {
            let (seen, text) = past(&dwell, line, headers, 4 * 1024 * 1024, true).await?;
            assert_eq!(seen, status, "{line} {headers}: {text}");
        }
    }
    Ok(())
}
