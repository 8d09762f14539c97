//! A Redis that answers and refuses this configuration: the first start fails with the reason, a later one buffers.

use std::path::Path;
use std::process::{Command, Output};

use dwell::model::error::{Error, Result};
use serde_json::json;

use crate::support::{PROGRAM, Process, RedisServer, failed, free_port, scratch};

/// A start that is expected to fail: what it said.
async fn refused(dir: &Path, url: &str) -> Result<String> {
    let (dir, url) = (dir.to_owned(), url.to_owned());
    let run = move || {
        let mut command = Command::new("timeout");
        command.args(["20", PROGRAM, "serve", "--redis", &url, "--log-level", "error"]).env_clear();
        command.arg("--listen").arg(format!("unix:{}", dir.join("dwell.sock").display()));
        command.arg("--data-dir").arg(&dir).output()
    };
    let ended = tokio::task::spawn_blocking(run).await.map_err(|error| Error::bug(error.to_string()))?;
    let Output { status, stderr, .. } = ended.map_err(failed("dwell serve"))?;
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success() && status.code() != Some(124), "it serves: {said}");
    Ok(said)
}

#[tokio::test]
async fn the_first_start_fails_when_redis_refuses_the_configuration() -> Result<()> {
    let port = free_port()?;
    let tcp = ["--save", "", "--bind", "127.0.0.1", "--port", &port];
    let server = RedisServer::start_with(&tcp).await?;
    server.ask::<()>("ACL SETUSER weak on >weak ~* &* +@all -hset").await?;
    let host = format!("127.0.0.1:{port}");
    let cases = [
        (format!("{}?user=weak&pass=s3cret", server.url()), "WRONGPASS"),
        (format!("{}?user=weak&pass=weak", server.url()), "NOPERM"),
        (format!("redis+cluster://{host}"), "cluster support disabled"),
        (format!("redis+sentinel://{host}/main"), "SENTINEL"),
    ];
    for (url, reason) in cases {
        let dir = scratch()?;
        let said = refused(dir.path(), &url).await?;
        assert!(said.contains("Redis refuses") && said.contains(reason), "{url}: {said}");
        assert!(said.contains("redis.start_without") && !said.contains("s3cret"), "{said}");
    }
    server.ask::<()>("CONFIG SET requirepass secret").await?;
    let said = refused(scratch()?.path(), &server.url()).await?;
    assert!(said.contains("Redis refuses: NOAUTH"), "{said}");
    Ok(())
}

#[tokio::test]
async fn start_without_redis_option_buffers() -> Result<()> {
    let (server, dir) = (RedisServer::start().await?, scratch()?);
    server.ask::<()>("CONFIG SET requirepass secret").await?;
    let settings = [("REDIS_URL", server.url()), ("REDIS_START_WITHOUT", "true".to_owned())];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let process = Process::serve(dir.path(), &settings).await?;
    assert_buffers(&process).await;
    // What is buffered has to be replayed some day, so nothing keeps the next start from it.
    drop(process);
    let process = Process::serve(dir.path(), &settings[..1]).await?;
    assert_buffers(&process).await;
    Ok(())
}

#[tokio::test]
async fn a_broker_that_was_connected_before_starts_and_buffers() -> Result<()> {
    let (server, dir) = (RedisServer::start().await?, scratch()?);
    let url = server.url();
    let settings = [("REDIS_URL", url.as_str())];
    drop(Process::serve(dir.path(), &settings).await?);
    server.ask::<()>("CONFIG SET requirepass secret").await?;
    let process = Process::serve(dir.path(), &settings).await?;
    assert_buffers(&process).await;
    Ok(())
}

#[tokio::test]
async fn unreachable_redis_does_not_prevent_the_start() -> Result<()> {
    let dir = scratch()?;
    let process = Process::serve(dir.path(), &[("REDIS_URL", "redis://127.0.0.1:1")]).await?;
    assert_buffers(&process).await;
    Ok(())
}

async fn assert_buffers(process: &Process) {
    let message = json!({"payload": "x", "delay": "1h"});
    let answer = process.client.post("/v1/topics/orders/messages", &message).await;
    let status = answer.as_ref().map(|(status, body)| (*status, body["status"].as_str()));
    assert_eq!(status, Some((202, Some("buffered"))), "{answer:?}");
}
