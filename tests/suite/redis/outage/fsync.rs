//! `redis.fsync`: what is answered 201 is fsynced, at the primary and at the replicas. Redis 7.0 has no `WAITAOF`; there these
//! stories show that it is refused. `make servers` runs them on servers that have it.

use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::platform::clock::Clock;
use dwell::store::Pushed;
use dwell::store::redis::{Confirmation, Redis, RedisOptions};
use dwell::telemetry::metrics::Metrics;

use super::replicas::follows;
use super::{Dwell, Outage};
use crate::support::{RedisServer, eventually, free_port, from_environment};

/// As `dwell serve` asks for at least: Redis fsyncs once a second, and half of it is waited.
const PATIENCE: Duration = Duration::from_secs(5);

const EVERY_SECOND: [&str; 6] = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"];

/// A broker that waits for fsyncs; none where Redis has no `WAITAOF`, and then it was refused for that.
async fn dwell_where_fsyncs_are_seen(outage: &Outage) -> Result<Option<Dwell>> {
    let commands: Vec<redis::Value> = outage.redis.ask("COMMAND INFO WAITAOF").await?;
    if commands.iter().any(|found| *found != redis::Value::Nil) {
        return outage.dwell().await.map(Some);
    }
    assert_eq!(from_environment::<u32>("DWELL_WAITAOF")?, None, "a server with WAITAOF was asked for");
    let options = RedisOptions { confirmation: outage.confirmation, ..RedisOptions::new(outage.redis.url()) };
    let refused = Redis::open(options, Clock::System, Arc::new(Metrics::new()?)).await.err();
    let is_named = |error: &Error| error.kind() == Kind::Invalid && error.detail().contains("no WAITAOF");
    assert!(refused.as_ref().is_some_and(is_named), "{refused:?}");
    Ok(None)
}

async fn shows(dwell: &Dwell, reason: &str) -> Result<()> {
    eventually("the reason is shown", async || {
        let health = dwell.broker().health().await;
        Ok((health.ready && health.detail.is_some_and(|said| said.contains(reason))).then_some(()))
    })
    .await
}

#[tokio::test]
async fn push_is_stored_after_fsync_and_buffered_until_then() -> Result<()> {
    let confirmation = Confirmation { replicas: 0, fsync: true };
    let outage =
        Outage { confirmation, timeout: PATIENCE, ..Outage::with(RedisServer::start_with(&EVERY_SECOND).await?)? };
    let Some(dwell) = dwell_where_fsyncs_are_seen(&outage).await? else { return Ok(()) };
    assert!(dwell.0.describe().durability.contains("what is answered is fsynced"), "{:?}", dwell.0.describe());
    for id in ["first", "second"] {
        assert_eq!(dwell.push_one("orders", id).await?.pushed, Pushed::Stored, "Redis fsyncs within a second");
    }

    // Left to the kernel, which does not say when.
    outage.redis.ask::<()>("CONFIG SET appendfsync no").await?;
    assert_eq!(dwell.push_one("orders", "unsynced").await?.pushed, Pushed::Buffered);
    shows(&dwell, "did not fsync the change in time").await?;
    outage.redis.ask::<()>("CONFIG SET appendfsync everysec").await?;
    dwell.recovered().await?;

    outage.redis.ask::<()>("CONFIG SET appendonly no").await?;
    assert_eq!(dwell.push_one("orders", "nowhere").await?.pushed, Pushed::Buffered);
    shows(&dwell, "appendonly").await?;
    outage.redis.ask::<()>("CONFIG SET appendonly yes").await?;
    dwell.recovered().await?;
    assert_eq!(dwell.push_one("orders", "last").await?.pushed, Pushed::Stored);
    dwell.delivers("orders", &["first", "second", "unsynced", "nowhere", "last"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn push_is_stored_after_a_replica_fsync() -> Result<()> {
    let port = free_port()?;
    let tcp = ["--repl-diskless-sync-delay", "0", "--bind", "127.0.0.1", "--port", &port];
    let primary = RedisServer::start_with(&[&EVERY_SECOND[..], &tcp].concat()).await?;
    let replica = RedisServer::start_with(&[&EVERY_SECOND[..], &["--replicaof", "127.0.0.1", &port]].concat()).await?;
    follows(&primary).await?;
    let confirmation = Confirmation { replicas: 1, fsync: true };
    let outage = Outage { confirmation, timeout: PATIENCE, ..Outage::with(primary)? };
    let Some(dwell) = dwell_where_fsyncs_are_seen(&outage).await? else { return Ok(()) };
    eventually("the replica has begun its file", async || {
        Ok((dwell.push_one("before", "m").await?.pushed != Pushed::Buffered).then_some(()))
    })
    .await?;
    dwell.recovered().await?;
    let stored = dwell.push_one("orders", "on-both").await?;
    assert_eq!((stored.pushed, stored.replicas), (Pushed::Stored, 1));

    replica.ask::<()>("CONFIG SET appendonly no").await?;
    assert_eq!(dwell.push_one("orders", "on-one").await?.pushed, Pushed::Buffered, "the replica only has it in memory");
    shows(&dwell, "`redis.min_replicas` asks for 1").await?;
    replica.ask::<()>("CONFIG SET appendonly yes").await?;
    dwell.recovered().await?;
    let stored = dwell.push_one("orders", "again").await?;
    assert_eq!((stored.pushed, stored.replicas), (Pushed::Stored, 1));
    dwell.delivers("orders", &["on-both", "on-one", "again"]).await?;
    dwell.close().await
}
