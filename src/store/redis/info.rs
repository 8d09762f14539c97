//! What this Redis is, and whether messages are safe in it.

use std::collections::HashMap;

use redis::{Client, ConnectionAddr};

use super::connection::Connection;
use super::reply::{Reply, text};
use crate::error::{Error, Result};

/// The oldest Redis whose scripts have flags.
const OLDEST_VERSION: u32 = 7;

/// What INFO says.
#[derive(Debug)]
pub(super) struct Info {
    version: String,
    eviction: String,
    aof: bool,
    fsync: Option<String>,
    replicas: u32,
}

/// Asks Redis about itself.
pub(super) async fn look(connection: &Connection) -> Result<Info> {
    let answer = text(connection.call(&redis::cmd("INFO")).await?)?;
    let fields: HashMap<&str, &str> = answer.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    Ok(Info {
        version: field("redis_version").to_owned(),
        eviction: field("maxmemory_policy").to_owned(),
        aof: field("aof_enabled") == "1",
        fsync: fsync_policy(connection).await,
        replicas: field("connected_slaves").parse().unwrap_or(0),
    })
}

/// An ACL may forbid CONFIG; then the policy stays unknown.
async fn fsync_policy(connection: &Connection) -> Option<String> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("appendfsync");
    let mut reply = Reply::of(connection.call(&command).await.ok()?).ok()?;
    reply.text().ok()?;
    reply.text().ok()
}

/// Where a client connects to, without secrets.
pub(super) fn location(client: &Client) -> String {
    let info = client.get_connection_info();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => format!("{host}:{port}"),
        ConnectionAddr::TcpTls { host, port, .. } => format!("{host}:{port} (TLS)"),
        ConnectionAddr::Unix(path) => path.display().to_string(),
        _ => "unknown".to_owned(),
    }
}

impl Info {
    /// # Errors
    /// `Invalid` for a Redis that is too old, or that deletes messages without an error.
    pub(super) fn check(&self, allow_eviction: bool) -> Result<()> {
        let major = self.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        if major < OLDEST_VERSION {
            let version = &self.version;
            return Err(Error::invalid("redis.url", format!("Redis {version} is too old, dwell needs 7.0 or newer")));
        }
        if self.eviction != "noeviction" && !allow_eviction {
            let policy = &self.eviction;
            let why = format!(
                "this Redis has maxmemory-policy {policy} and may delete messages without an error; \
                 set `maxmemory-policy noeviction`, or `redis.allow_eviction = true` to take the risk"
            );
            return Err(Error::invalid("redis.url", why));
        }
        Ok(())
    }

    /// What a 201 survives.
    pub(super) fn durability(&self) -> String {
        let persistence = match (self.aof, self.fsync.as_deref()) {
            (false, _) => "no append-only file: a restart of Redis loses messages; set `appendonly yes`".to_owned(),
            (true, Some("always")) => "append-only file, fsync always: survives power loss".to_owned(),
            (true, Some("everysec")) => "append-only file, fsync every second: survives a crash of Redis; \
                 a power loss or failover loses about the last second"
                .to_owned(),
            (true, fsync) => format!("append-only file, fsync {}", fsync.unwrap_or("unknown")),
        };
        format!("Redis {}, {persistence}; {} replica(s)", self.version, self.replicas)
    }
}
