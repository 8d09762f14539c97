//! A real redis-server for one test.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use dwell::error::{Error, Result};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{eventually, failed};

/// A redis-server with a scratch directory and a Unix socket of its own, so that no two tests can meet on a port.
/// It is killed when dropped.
pub(crate) struct RedisServer {
    child: Child,
    dir: TempDir,
}

impl RedisServer {
    /// Starts one that keeps nothing on disk, and waits until it answers a PING.
    pub(crate) async fn start() -> Result<RedisServer> {
        RedisServer::start_with(&["--save", "", "--appendonly", "no"]).await
    }

    /// Starts one with these options, and waits until it answers a PING.
    pub(crate) async fn start_with(options: &[&str]) -> Result<RedisServer> {
        let dir = tempfile::tempdir().map_err(failed("a scratch directory"))?;
        let child = spawn(dir.path(), options)?;
        let server = RedisServer { child, dir };
        server.answered().await?;
        Ok(server)
    }

    /// Where a client finds it.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", socket(self.dir.path()))
    }

    async fn answered(&self) -> Result<()> {
        let socket = socket(self.dir.path());
        eventually("redis-server answers a PING", async || ping(&socket).await).await
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill, and waiting returns at once.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(dir: &Path) -> String {
    dir.join("redis.sock").display().to_string()
}

fn spawn(dir: &Path, options: &[&str]) -> Result<Child> {
    Command::new("redis-server")
        .args(["--port", "0", "--unixsocket", &socket(dir), "--dir"])
        .arg(dir)
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| {
            Error::unavailable(format!("redis-server did not start ({error}): these tests need one in PATH"))
        })
}

/// Whether it answers; one that does not listen yet, or still loads, does not.
async fn ping(socket: &str) -> Result<Option<()>> {
    let Ok(mut stream) = UnixStream::connect(socket).await else { return Ok(None) };
    let mut answer = [0; 7];
    let answered = stream.write_all(b"PING\r\n").await.is_ok() && stream.read_exact(&mut answer).await.is_ok();
    Ok((answered && &answer == b"+PONG\r\n").then_some(()))
}

#[tokio::test]
async fn each_server_is_a_server_of_its_own() -> Result<()> {
    let (one, other) = (RedisServer::start().await?, RedisServer::start().await?);
    assert_ne!(one.url(), other.url());
    drop(one);
    other.answered().await
}
