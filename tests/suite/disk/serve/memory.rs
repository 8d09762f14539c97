//! A WAL that is larger than the memory of its process.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use dwell::model::error::{Error, Result};
use serde_json::{Value, json};

use crate::support::{Mode, PROGRAM, Process, Proxy, RedisServer, eventually_within, scratch};

/// What the process may allocate, with the stacks of its threads. It takes 210 to 250 MB, however large the backlog is.
const MEMORY_BYTES: usize = 352 << 20;
/// What is pushed in the outage.
const BACKLOG_BYTES: usize = 9 * MEMORY_BYTES / 8;
const PAYLOAD_BYTES: usize = 500_000;
/// Messages of a batch.
const BATCH: usize = 2;

fn said(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("dwell.log")).unwrap_or_default()
}

/// Waits for a replay of a debug build on a busy machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);

#[tokio::test]
async fn backlog_larger_than_memory_is_replayed() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let proxy = Proxy::before(&redis)?;
    proxy.set(Mode::Refuse);
    let url = proxy.url();
    let settings = [("REDIS_URL", url.as_str()), ("TOPIC_PARTITIONS", "2")];
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -d {}; exec \"$0\" \"$@\"", MEMORY_BYTES >> 10), PROGRAM]);
    // What the allocator only reserves would count, too.
    let commits = std::ffi::OsStr::new("0");
    let reserves = [("MIMALLOC_ARENA_EAGER_COMMIT", commits), ("MIMALLOC_EAGER_COMMIT", commits)];
    let process = Process::serve_by(limited, dir.path(), &settings, &reserves).await?;
    let (mut pushed, payload) = (0, "x".repeat(PAYLOAD_BYTES));
    while pushed * PAYLOAD_BYTES < BACKLOG_BYTES {
        let message = |n: usize| json!({ "id": (pushed + n).to_string(), "payload": payload, "delay": "1h" });
        let messages: Vec<Value> = (0..BATCH).map(message).collect();
        let body = json!({ "messages": messages });
        let answer = process.client.post("/v1/topics/orders/messages/batch", &body).await;
        let (status, body) = answer
            .ok_or_else(|| Error::unavailable(format!("no answer after {pushed} messages: {}", said(dir.path()))))?;
        assert_eq!(status, 202, "{body}");
        pushed += BATCH;
    }
    proxy.set(Mode::Pass);
    let last = Mutex::new(Value::Null);
    let replayed = async || {
        let (_, body) =
            process.client.get("/readyz").await.ok_or_else(|| Error::unavailable("no answer while it replays"))?;
        let is_ready = body["status"] == "ready";
        *last.lock().unwrap_or_else(PoisonError::into_inner) = body;
        Ok(is_ready.then_some(()))
    };
    eventually_within(PATIENCE, "the backlog is replayed", replayed)
        .await
        .inspect_err(|_| eprintln!("{last:?}: {}", said(dir.path())))?;
    let topic = process.client.get("/v1/topics/orders").await;
    let scheduled = topic.as_ref().map(|(_, body)| &body["totals"][0]["scheduled"]);
    assert_eq!(scheduled, Some(&json!(pushed)), "{topic:?}");
    Ok(())
}
