//! One primary, one replica and three sentinels, each a real process.

use std::process::{Child, Command, Stdio};

use dwell::model::error::Result;
use redis::{Client, FromRedisValue};
use tempfile::TempDir;

use super::redis::RedisServer;
use super::tls::free_port;
use super::{eventually, failed, scratch};

/// What the primary is called.
pub(crate) const NAME: &str = "main";

/// A primary with its replica, watched.
pub(crate) struct Watched {
    pub(crate) primary: RedisServer,
    pub(crate) replica: RedisServer,
    replica_port: String,
    sentinels: Vec<Sentinel>,
}

struct Sentinel {
    child: Child,
    port: String,
    _dir: TempDir,
}

impl Watched {
    /// Starts them, and waits until they know one another. The sentinels give up on a primary after 0.7 seconds.
    pub(crate) async fn start() -> Result<Watched> {
        let (port, other) = (free_port()?, free_port()?);
        let tcp = ["--save", "", "--bind", "127.0.0.1", "--port"];
        let primary = RedisServer::start_with(&[&tcp[..], &[&port]].concat()).await?;
        let behind = ["--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::start_with(&[&tcp[..], &[&other], &behind[..]].concat()).await?;
        primary.ask::<()>("CONFIG SET repl-diskless-sync-delay 0").await?;
        eventually("the replica follows", async || {
            let info: String = replica.ask("INFO replication").await?;
            Ok(info.contains("master_link_status:up").then_some(()))
        })
        .await?;
        let sentinels = (0..3).map(|_| Sentinel::start(&port)).collect::<Result<Vec<_>>>()?;
        let watched = Watched { primary, replica, replica_port: other, sentinels };
        for sentinel in &watched.sentinels {
            eventually("the sentinels know one another", async || sentinel.knows_all().await).await?;
        }
        Ok(watched)
    }

    /// Where a client finds them.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{NAME}", hosts.join(","))
    }

    /// Starts the killed primary again without data, as a replica of the one that was promoted.
    pub(crate) async fn rejoin(&mut self) -> Result<()> {
        self.replica.ask::<()>("CONFIG SET repl-diskless-sync-delay 0").await?;
        self.primary.restart_with(&["--replicaof", "127.0.0.1", &self.replica_port]).await
    }

    /// Returns in the moment in which a sentinel says that the replica is the primary.
    pub(crate) async fn promoted(&self) -> Result<()> {
        eventually("the replica is promoted", async || {
            for sentinel in &self.sentinels {
                let named: Option<Vec<String>> =
                    sentinel.ask(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}")).await;
                if named.is_some_and(|named| named.contains(&self.replica_port)) {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
        .await
    }
}

impl Sentinel {
    fn start(primary: &str) -> Result<Sentinel> {
        let (dir, port) = (scratch()?, free_port()?);
        let file = dir.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {NAME} 700\nsentinel failover-timeout {NAME} 2000\n",
            dir.path().display()
        );
        std::fs::write(&file, text).map_err(failed("the configuration of a sentinel"))?;
        let mut command = Command::new("redis-server");
        command.arg(&file).arg("--sentinel").stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Sentinel { child: command.spawn().map_err(failed("a sentinel"))?, port, _dir: dir })
    }

    async fn ask<T: FromRedisValue>(&self, command: &str) -> Option<T> {
        let client = Client::open(format!("redis://127.0.0.1:{}", self.port)).ok()?;
        let mut connection = client.get_multiplexed_async_connection().await.ok()?;
        let mut words = command.split(' ');
        redis::cmd(words.next()?).arg(words.collect::<Vec<_>>()).query_async(&mut connection).await.ok()
    }

    /// Tells it to look often, so that no story waits for its habits.
    async fn knows_all(&self) -> Result<Option<()>> {
        let haste = "SENTINEL DEBUG info-period 100 ask-period 100 publish-period 100";
        let told = self.ask::<redis::Value>(haste).await.is_some();
        let known: Option<Vec<String>> = self.ask(&format!("SENTINEL MASTER {NAME}")).await;
        let known = known.unwrap_or_default();
        let count = |name: &str| known.iter().position(|field| field == name).and_then(|at| known.get(at + 1));
        let all =
            count("num-slaves").is_some_and(|n| n == "1") && count("num-other-sentinels").is_some_and(|n| n == "2");
        Ok((told && all).then_some(()))
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill, and waiting returns at once.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops a process without ending it, or lets it go on.
pub(crate) fn signal(server: &RedisServer, signal: rustix::process::Signal) -> Result<()> {
    super::signal_to(server.pid(), signal)
}
