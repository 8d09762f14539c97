//! A real redis-server for one test.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use dwell::model::error::{Error, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, RedisResult};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{PATIENCE, eventually, failed, scratch};

/// A redis-server with a scratch directory and a Unix socket of its own, so that no two tests can meet on a port.
/// It is killed when dropped.
pub(crate) struct RedisServer {
    child: Child,
    dir: TempDir,
    options: Vec<String>,
}

/// Every key as it was: its name, its DUMP, and how long it had to live, in ms, or 0.
pub(crate) type Snapshot = Vec<(String, Vec<u8>, u64)>;

impl RedisServer {
    /// Starts one that keeps nothing on disk, and waits until it answers a PING.
    pub(crate) async fn start() -> Result<RedisServer> {
        RedisServer::start_with(&["--save", "", "--appendonly", "no"]).await
    }

    /// Starts one that answers when it is on disk.
    pub(crate) async fn durable() -> Result<RedisServer> {
        RedisServer::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]).await
    }

    /// Starts one with these options, and waits until it answers a PING.
    pub(crate) async fn start_with(options: &[&str]) -> Result<RedisServer> {
        RedisServer::start_in(scratch()?, options).await
    }

    /// The same in a directory that has something in it.
    pub(crate) async fn start_in(dir: TempDir, options: &[&str]) -> Result<RedisServer> {
        let options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
        let child = spawn(dir.path(), &options)?;
        let server = RedisServer { child, dir, options };
        server.answered().await?;
        Ok(server)
    }

    /// The same for one that asks whoever connects who they are; waits only until it listens.
    pub(crate) async fn guarded(dir: TempDir, options: &[&str]) -> Result<RedisServer> {
        let options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
        let child = spawn(dir.path(), &options)?;
        let server = RedisServer { child, dir, options };
        let socket = server.socket();
        eventually("redis-server listens", async || Ok(UnixStream::connect(&socket).await.ok())).await?;
        Ok(server)
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(failed("the end of redis-server"))
    }

    /// Starts a killed one again with these options besides, and waits until it answers, if only with an error.
    pub(crate) async fn restart_with(&mut self, options: &[&str]) -> Result<()> {
        self.options.extend(options.iter().map(|option| option.to_string()));
        self.child = spawn(self.dir.path(), &self.options)?;
        let socket = self.socket();
        eventually("redis-server listens", async || Ok(UnixStream::connect(&socket).await.ok())).await.map(drop)
    }

    /// Its directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a killed one again on what it left on disk, and waits until it answers a PING.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.child = spawn(self.dir.path(), &self.options)?;
        self.answered().await
    }

    /// Its process id, for signals.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where a client finds it.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket())
    }

    /// The path of its socket.
    pub(crate) fn socket(&self) -> String {
        socket(self.dir.path())
    }

    /// A command as on the command line, its words separated by spaces.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &str) -> Result<T> {
        let mut words = command.split(' ');
        let mut call = redis::cmd(words.next().unwrap_or_default());
        call.arg(words.collect::<Vec<_>>());
        self.call(&call).await
    }

    /// A command with arguments of any bytes.
    pub(crate) async fn call<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let client = Client::open(self.url()).map_err(refused)?;
        let mut connection = connect(&client).await.map_err(refused)?;
        command.query_async(&mut connection).await.map_err(refused)
    }

    /// The names of all keys, sorted.
    pub(crate) async fn keys(&self) -> Result<Vec<String>> {
        let mut keys: Vec<String> = self.ask("KEYS *").await?;
        keys.sort();
        Ok(keys)
    }

    /// All it holds.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot> {
        let mut snapshot = Vec::new();
        for key in self.keys().await? {
            let dump: redis::Value = self.call(redis::cmd("DUMP").arg(&key)).await?;
            let left: i64 = self.call(redis::cmd("PTTL").arg(&key)).await?;
            if let redis::Value::BulkString(dump) = dump {
                snapshot.push((key, dump, u64::try_from(left).unwrap_or(0)));
            }
        }
        Ok(snapshot)
    }

    /// Makes another one hold what this one holds, all of one moment, as a replica does whose link breaks now.
    pub(crate) async fn copy_to(&self, other: &RedisServer) -> Result<()> {
        // Reads go on.
        self.ask::<String>("CLIENT PAUSE 5000 WRITE").await?;
        let snapshot = self.snapshot().await;
        self.ask::<String>("CLIENT UNPAUSE").await?;
        other.rewind(&snapshot?).await
    }

    /// Makes it hold what it held then, and nothing else.
    pub(crate) async fn rewind(&self, snapshot: &Snapshot) -> Result<()> {
        // All at once: a broker that renews in between would write what is restored next.
        let mut all = redis::pipe();
        all.atomic().cmd("FLUSHALL").ignore();
        for (key, dump, left) in snapshot {
            all.cmd("RESTORE").arg(key).arg(left).arg(dump.as_slice()).ignore();
        }
        let client = Client::open(self.url()).map_err(refused)?;
        let mut connection = connect(&client).await.map_err(refused)?;
        all.query_async(&mut connection).await.map_err(refused)
    }

    /// From now on a replica gets nothing of what this primary answers.
    pub(crate) async fn leave_behind(&self, replica: &RedisServer) -> Result<()> {
        // One that logs in where no password is set is refused.
        replica.ask::<()>("CONFIG SET masterauth wrong").await?;
        self.ask::<u64>("CLIENT KILL TYPE replica").await.map(drop)
    }

    async fn answered(&self) -> Result<()> {
        let socket = self.socket();
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

/// A connection that waits as long as a story does: half a second, the default, is short on a machine with much to do.
pub(crate) async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    let patient =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&patient).await
}

fn socket(dir: &Path) -> String {
    dir.join("redis.sock").display().to_string()
}

fn refused(error: RedisError) -> Error {
    Error::unavailable(format!("a command of the story: {error}"))
}

fn spawn(dir: &Path, options: &[String]) -> Result<Child> {
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
async fn each_test_gets_a_separate_server() -> Result<()> {
    let (one, other) = (RedisServer::start().await?, RedisServer::start().await?);
    assert_ne!(one.url(), other.url());
    drop(one);
    other.answered().await
}
