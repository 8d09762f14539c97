//! Clients that are slow, careless or not from here.

use std::time::Duration;

use super::served::{Outcome, Served};

#[tokio::test]
async fn slow_header_is_closed_and_slow_body_gets_408() -> Outcome {
    let dwell = Served::start_with(|options| {
        options.connections.header_timeout = Duration::from_millis(200);
        options.body_timeout = Duration::from_millis(200);
    })
    .await?;
    assert_eq!(dwell.raw(b"").await?, "");
    assert_eq!(dwell.raw(b"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: loc").await?, "");
    let push = "POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345";
    let answer = dwell.raw(push.as_bytes()).await?;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("urn:dwell:error:timeout"), "{answer}");
    assert_eq!(dwell.ask("GET /v1/topics").await?.body["topics"].as_array().map(Vec::len), Some(0));
    Ok(())
}

#[tokio::test]
async fn oversized_content_length_is_refused_before_the_body() -> Outcome {
    let dwell = Served::start_with(|options| options.connections.header_timeout = Duration::from_millis(200)).await?;
    let push = "POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\
                Expect: 100-continue\r\n\r\n";
    let answer = dwell.raw(push.as_bytes()).await?;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let long = format!("GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(16_384));
    assert!(dwell.raw(long.as_bytes()).await?.starts_with("HTTP/1.1 431 "));
    let fits =
        format!("GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: {}\r\n\r\n", "x".repeat(16_000));
    assert!(dwell.raw(fits.as_bytes()).await?.starts_with("HTTP/1.1 200 "));
    assert!(dwell.raw(b"\x16\x03\x01 not HTTP\r\n\r\n").await?.starts_with("HTTP/1.1 400 "));
    Ok(())
}

#[tokio::test]
async fn a_web_page_cannot_reach_the_broker() -> Outcome {
    let dwell = Served::start().await?;
    let push = || dwell.request("POST /v1/topics/orders/messages");
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example"), ("origin", "null")] {
        let answer = dwell.send(push()?.header(name, value).body("x")).await?;
        assert_eq!((answer.status, answer.body["type"].as_str()), (403, Some("urn:dwell:error:forbidden")), "{value}");
    }
    assert_eq!(dwell.ask("GET /v1/topics").await?.body["topics"].as_array().map(Vec::len), Some(0));
    assert_eq!(dwell.send(push()?.header("origin", &dwell.base).body("x")).await?.status, 201);
    Ok(())
}
