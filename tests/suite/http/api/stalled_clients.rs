//! Clients that ask and do not read, and clients that do not send what they announce.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::served::{Outcome, Served};
use crate::support::{PATIENCE, Process, eventually, scratch};

/// A payload that takes six times as many bytes in JSON.
static PAYLOAD: [u8; 1024 * 1024] = [1; 1024 * 1024];

async fn asked(dir: &Path, request: &str) -> Outcome<UnixStream> {
    let mut stream = UnixStream::connect(dir.join("dwell.sock")).await?;
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: dwell\r\nContent-Length: 0\r\n\r\n").as_bytes()).await?;
    Ok(stream)
}

/// The memory of a process in MiB: what it has (`VmRSS:`), or the most that it has had (`VmHWM:`).
fn memory(id: u32, which: &str) -> Outcome<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let field = status.lines().find_map(|line| line.strip_prefix(which)?.trim().strip_suffix(" kB"));
    Ok(field.ok_or("no such number")?.parse::<u64>()? / 1_024)
}

#[tokio::test]
async fn unread_responses_use_bounded_memory() -> Outcome {
    let dir = scratch()?;
    let dwell = Process::serve(dir.path(), &[]).await?;
    for id in ["a", "b", "c", "d"] {
        let mut push = UnixStream::connect(dir.path().join("dwell.sock")).await?;
        let head = "HTTP/1.1\r\nHost: dwell\r\nConnection: close\r\nContent-Length: 1048576\r\n\r\n";
        push.write_all(format!("POST /v1/topics/orders/messages?id={id} {head}").as_bytes()).await?;
        push.write_all(&PAYLOAD).await?;
        let mut answer = String::new();
        push.read_to_string(&mut answer).await?;
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
    let before = memory(dwell.id(), "VmHWM:")?;
    let mut unread = Vec::new();
    for _ in 0..40 {
        unread.push(asked(dir.path(), "GET /v1/topics/orders/messages/a").await?);
        unread.push(asked(dir.path(), "GET /v1/topics/orders/messages?limit=1000").await?);
    }
    for stream in &unread {
        timeout(PATIENCE, stream.readable()).await??;
    }
    // Without a bound they take 1.2 GiB; with one, little more than its 128 MiB.
    let more = memory(dwell.id(), "VmHWM:")? - before;
    assert!(more < 400, "{more} MiB for answers that nobody reads");
    // What needs no room is answered all the while, and when the clients have left, so is the rest.
    assert_eq!(dwell.client.get("/livez").await.map(|(status, _)| status), Some(200));
    let batch = serde_json::json!({"messages": [{"payload": "x"}]});
    let pushed = dwell.client.post("/v1/topics/orders/messages/batch", &batch).await;
    assert_eq!(pushed.map(|(status, _)| status), Some(201));
    drop(unread);
    let listed =
        async || Ok(dwell.client.get("/v1/topics/orders/messages?limit=1").await.filter(|(status, _)| *status == 200));
    eventually("a list is answered", listed).await?;
    Ok(())
}

#[tokio::test]
async fn endless_headers_use_little_memory_and_free_it() -> Outcome {
    let dir = scratch()?;
    let dwell = Process::serve(dir.path(), &[]).await?;
    let before = memory(dwell.id(), "VmRSS:")?;
    // One that is too long is refused at once, one that is not when its time is over. Whatever stays behind of a round adds to the next;
    // when the allocator returns free memory to the system depends on which threads work.
    for size in [60_000, 15_000, 15_000, 15_000] {
        let header = format!("GET /v1/topics HTTP/1.1\r\nHost: dwell\r\nX: {}", "x".repeat(size));
        let mut open = Vec::new();
        for _ in 0..400 {
            let mut stream = UnixStream::connect(dir.path().join("dwell.sock")).await?;
            // It may be refused before it is sent whole.
            let _ = stream.write_all(header.as_bytes()).await;
            open.push(stream);
        }
        for stream in &open {
            timeout(PATIENCE, stream.readable()).await??;
        }
        let most = memory(dwell.id(), "VmHWM:")?.saturating_sub(before);
        println!("{most} MiB for headers of {size} bytes");
        assert!(most < 20, "{most} MiB for headers of {size} bytes");
    }
    assert_eq!(dwell.client.get("/livez").await.map(|(status, _)| status), Some(200));
    Ok(())
}

#[tokio::test]
async fn stalled_bodies_are_evicted_for_arriving_ones() -> Outcome {
    const ANNOUNCED: usize = 8 * 1024 * 1024;
    let dwell = Served::start().await?;
    let address = dwell.base.strip_prefix("http://").ok_or("no address")?;
    let connect = async |announced: usize| -> Outcome<TcpStream> {
        let mut stream = TcpStream::connect(address).await?;
        let head = "HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
        let head = format!("POST /v1/topics/orders/messages/batch {head}Content-Length: {announced}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        Ok(stream)
    };
    let most = vec![b' '; ANNOUNCED - 1];
    let mut stalled = Vec::new();
    // One more than there is room for.
    for _ in 0..33 {
        let mut stream = connect(ANNOUNCED).await?;
        stream.write_all(&most).await?;
        stalled.push(stream);
    }
    let mut answer = [0; 13];
    timeout(PATIENCE, stalled[0].read_exact(&mut answer)).await??;
    assert_eq!(&answer, b"HTTP/1.1 503 ");
    // A body that comes in pieces is read, a large one too.
    let message = format!("{{\"messages\": [{{\"payload\": \"{}\"}}]}}", "x".repeat(1_000_000));
    for body in [message.as_str(), "{\"messages\": [{\"payload\": \"x\"}]}"] {
        let mut stream = connect(body.len()).await?;
        let (first, rest) = body.split_at(20);
        stream.write_all(first.as_bytes()).await?;
        stream.flush().await?;
        stream.write_all(rest.as_bytes()).await?;
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await??;
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
    Ok(())
}
