//! Connections between two requests: they are kept for a while, and a header that has begun has to arrive soon.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection_limit::{connect, is_closed, until};
use super::served::{Outcome, Served};

const PUSH: &[u8] = b"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx";

/// A broker to which a header has to arrive within a second, and whose connections may be idle for so long.
async fn impatient(idle_timeout: Duration) -> Outcome<Served> {
    Served::start_with(|options| {
        options.connections.header_timeout = Duration::from_secs(1);
        options.connections.idle_timeout = idle_timeout;
    })
    .await
}

/// Pushes a message; the header of the answer.
async fn push(stream: &mut TcpStream) -> Outcome<String> {
    stream.write_all(PUSH).await?;
    let header = until(stream, "\r\n\r\n").await?;
    until(stream, "}\n").await?;
    assert!(header.starts_with("HTTP/1.1 201 "), "{header}");
    Ok(header.to_ascii_lowercase())
}

/// Says nothing for so long, in which the broker neither says anything nor closes.
async fn silence(stream: &mut TcpStream, span: Duration) -> Outcome {
    match timeout(span, stream.read(&mut [0])).await {
        Err(_) => Ok(()),
        Ok(read) => Err(format!("the connection ended in its silence: {read:?}").into()),
    }
}

#[tokio::test]
async fn connection_survives_six_idle_seconds() -> Outcome {
    let dwell = Served::start().await?;
    let mut stream = connect(&dwell, b"").await?;
    let header = push(&mut stream).await?;
    assert!(header.contains("\r\nkeep-alive: timeout=75\r\n"), "{header}");
    silence(&mut stream, Duration::from_millis(6_500)).await?;
    push(&mut stream).await?;
    Ok(())
}

#[tokio::test]
async fn keep_alive_outlasts_the_header_timeout_and_ends() -> Outcome {
    let dwell = impatient(Duration::from_secs(3)).await?;
    let mut stream = connect(&dwell, b"").await?;
    for _ in 0..2 {
        assert!(push(&mut stream).await?.contains("\r\nkeep-alive: timeout=3\r\n"));
        silence(&mut stream, Duration::from_millis(1_500)).await?;
    }
    push(&mut stream).await?;
    assert!(is_closed(&mut stream).await?);
    Ok(())
}

#[tokio::test]
async fn slow_header_of_a_second_request_is_cut() -> Outcome {
    let dwell = impatient(Duration::from_secs(3_600)).await?;
    let mut stream = connect(&dwell, b"").await?;
    push(&mut stream).await?;
    silence(&mut stream, Duration::from_millis(1_500)).await?;
    stream.write_all(b"POST /v1/topics/orders/mess").await?;
    assert!(is_closed(&mut stream).await?);
    let counts = dwell.counts("orders").await?;
    assert_eq!(counts.iter().sum::<u64>(), 1);
    Ok(())
}

#[tokio::test]
async fn keep_alive_header_matches_the_connection() -> Outcome {
    let dwell = Served::start().await?;
    for last in ["GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET /livez HTTP/1.0\r\n\r\n"] {
        let answer = dwell.raw(last.replace("Host: a", "Host: localhost").as_bytes()).await?.to_ascii_lowercase();
        assert!(answer.starts_with("http/1.") && !answer.contains("keep-alive:"), "{answer}");
    }
    Ok(())
}
