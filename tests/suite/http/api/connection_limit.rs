//! More connections than there may be: who says nothing keeps nobody out, and no answer is cut off.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::served::{Outcome, Served};

const LIST: &[u8] = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LAST: &[u8] = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Room for so many connections, which never end because they are silent.
async fn room_for(max: usize) -> Outcome<Served> {
    Served::start_with(|options| {
        options.connections.max = max;
        options.connections.header_timeout = Duration::from_secs(3_600);
    })
    .await
}

pub(super) async fn connect(dwell: &Served, said: &[u8]) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(dwell.base.strip_prefix("http://").ok_or("no address")?).await?;
    stream.write_all(said).await?;
    Ok(stream)
}

/// Reads until something was said.
pub(super) async fn until(stream: &mut TcpStream, end: &str) -> Outcome<String> {
    let mut heard = Vec::new();
    while !heard.ends_with(end.as_bytes()) {
        match timeout(Duration::from_secs(10), stream.read_u8()).await? {
            Ok(byte) => heard.push(byte),
            Err(error) => return Err(format!("{error} after {:?}", String::from_utf8_lossy(&heard)).into()),
        }
    }
    Ok(String::from_utf8(heard)?)
}

/// Whether the broker has closed it.
pub(super) async fn is_closed(stream: &mut TcpStream) -> Outcome<bool> {
    match timeout(Duration::from_secs(10), stream.read(&mut [0])).await? {
        Ok(read) => Ok(read == 0),
        Err(error) => Ok(error.kind() == ErrorKind::ConnectionReset),
    }
}

#[tokio::test]
async fn silent_connections_do_not_block_others() -> Outcome {
    let dwell = room_for(3).await?;
    let mut known = connect(&dwell, LIST).await?;
    until(&mut known, "{\"topics\":[]}").await?;
    let mut silent = Vec::new();
    for said in [&b""[..], b"GET /v1/topics HTTP/1.1\r\nHost: loc"].repeat(50) {
        silent.push(connect(&dwell, said).await?);
        assert!(dwell.raw(LAST).await?.ends_with("{\"topics\":[]}\n"));
    }
    // Who has sent a request before has its connection still, between two requests.
    known.write_all(LIST).await?;
    until(&mut known, "{\"topics\":[]}").await?;
    for stream in silent.iter_mut().rev().skip(3) {
        assert!(is_closed(stream).await?);
    }
    Ok(())
}

#[tokio::test]
async fn many_connections_of_one_address_leave_those_of_others() -> Outcome {
    let dwell = room_for(4).await?;
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 2], 0).into())?;
    let mut other = socket.connect(dwell.base.strip_prefix("http://").ok_or("no address")?.parse()?).await?;
    other.write_all(LIST).await?;
    until(&mut other, "{\"topics\":[]}").await?;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut stream = connect(&dwell, LIST).await?;
        until(&mut stream, "{\"topics\":[]}").await?;
        idle.push(stream);
    }
    other.write_all(LIST).await?;
    until(&mut other, "{\"topics\":[]}").await?;
    until(&mut idle[0], "\n").await?;
    assert!(is_closed(&mut idle[0]).await?);
    Ok(())
}

#[tokio::test]
async fn stalled_body_does_not_block_others_and_is_not_stored() -> Outcome {
    let dwell = room_for(1).await?;
    let push = b"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\
                 Expect: 100-continue\r\n\r\n";
    let mut slow = connect(&dwell, push).await?;
    until(&mut slow, "\r\n\r\n").await?;
    slow.write_all(b"pay").await?;
    assert!(dwell.raw(LAST).await?.ends_with("{\"topics\":[]}\n"));
    assert!(is_closed(&mut slow).await?);
    assert!(dwell.raw(LAST).await?.ends_with("{\"topics\":[]}\n"));
    Ok(())
}

#[tokio::test]
async fn active_request_is_not_evicted() -> Outcome {
    let dwell = room_for(1).await?;
    let declare =
        b"PUT /v1/topics/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert!(dwell.raw(declare).await?.starts_with("HTTP/1.1 201 "));
    let stream =
        b"POST /v1/topics/orders/groups/default/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    let mut consumer = connect(&dwell, stream).await?;
    until(&mut consumer, "\r\n\r\n").await?;
    let mut second = std::pin::pin!(dwell.raw(LAST));
    assert!(timeout(Duration::from_millis(100), second.as_mut()).await.is_err(), "there was room for one");
    assert_eq!(consumer.try_read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    drop(consumer);
    assert!(second.await?.ends_with("{\"topics\":[\"orders\"]}\n"));
    Ok(())
}

#[tokio::test]
async fn waiting_consumers_leave_connections_for_others() -> Outcome {
    let dwell = room_for(10).await?;
    let declare =
        b"PUT /v1/topics/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert!(dwell.raw(declare).await?.starts_with("HTTP/1.1 201 "));
    let stream =
        b"POST /v1/topics/orders/groups/default/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    let poll = b"POST /v1/topics/orders/groups/default/reserve HTTP/1.1\r\nHost: localhost\r\n\
                 Content-Type: application/json\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{\"wait\": \"60s\"}";
    let mut consumers = Vec::new();
    for _ in 0..9 {
        let mut consumer = connect(&dwell, stream).await?;
        assert!(until(&mut consumer, "\r\n\r\n").await?.starts_with("HTTP/1.1 200 "));
        consumers.push(consumer);
    }
    let mut tenth = connect(&dwell, stream).await?;
    assert!(until(&mut tenth, "\r\n\r\n").await?.starts_with("HTTP/1.1 429 "));
    let refused = dwell.raw(poll).await?;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("urn:dwell:error:full"), "{refused}");
    for probe in [&b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"[..], LAST] {
        assert!(dwell.raw(probe).await?.starts_with("HTTP/1.1 200 "));
    }
    Ok(())
}
