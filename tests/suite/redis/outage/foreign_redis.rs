//! Another Redis, and another process.

use std::time::Duration;

use dwell::model::error::{Kind, Result};
use dwell::store::Pushed;

use super::Outage;
use crate::support::{Mode, RedisServer, eventually, kind_of};

#[tokio::test]
async fn buffered_records_go_to_another_redis_only_on_request() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    outage.redis.kill()?;
    dwell.push_one("orders", "b").await?;
    dwell.close().await?;

    let other = RedisServer::start().await?;
    other.ask::<String>("SET dwell:id somebody-else").await?;
    let refused = outage.dwell_on(other.url(), false).await.map(drop);
    assert!(matches!(&refused, Err(error) if error.kind() == Kind::Conflict && error.detail().contains("--adopt")));
    let dwell = outage.dwell_on(other.url(), true).await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["b"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn unexpected_redis_receives_nothing() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    outage.redis.kill()?;
    dwell.push_one("orders", "b").await?;
    dwell.close().await?;
    // Nobody is there at the start, and then somebody else.
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push_one("orders", "c").await?.pushed, Pushed::Buffered);
    // Until it is another one, it is the right one.
    outage.proxy.set(Mode::Refuse);
    outage.redis.restart().await?;
    outage.redis.ask::<String>("FLUSHALL").await?;
    outage.redis.ask::<String>("SET dwell:id somebody-else").await?;
    outage.proxy.set(Mode::Pass);
    eventually("it is noticed", async || Ok((!dwell.broker().health().await.ready).then_some(()))).await?;
    let health = dwell.broker().health().await;
    assert!(health.detail.as_deref().is_some_and(|why| why.contains("--adopt")), "{health:?}");
    assert_eq!(kind_of(dwell.push_one("orders", "d").await), Some(Kind::Unavailable));
    assert_eq!(outage.redis.keys().await?, ["dwell:history", "dwell:id"]);
    // The right one comes back.
    outage.redis.ask::<String>("FLUSHALL").await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["b", "c"]).await?;
    dwell.close().await
}

/// A broker that started without its Redis knows when it began to buffer: a Redis that was named later is its own, emptied.
#[tokio::test]
async fn redis_emptied_before_the_start_is_known_by_the_time_of_its_name() -> Result<()> {
    let mut outage = Outage::begin().await?;
    outage.dwell().await?.close().await?;
    let before = ulid::Ulid::new();
    outage.redis.kill()?;
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push_one("orders", "a").await?.pushed, Pushed::Buffered);
    dwell.close().await?;
    let dwell = outage.dwell().await?;
    outage.proxy.set(Mode::Refuse);
    outage.redis.restart().await?;
    outage.redis.ask::<String>("FLUSHALL").await?;
    outage.redis.ask::<String>(&format!("SET dwell:id {before}")).await?;
    outage.proxy.set(Mode::Pass);
    eventually("it is another one", async || Ok((!dwell.broker().health().await.ready).then_some(()))).await?;
    outage.redis.ask::<String>(&format!("SET dwell:id {}", ulid::Ulid::new())).await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["a"]).await?;
    dwell.close().await
}

/// Another broker gave it the topics back, under a name of before.
#[tokio::test]
async fn redis_with_the_same_topics_is_the_same_one() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let before = ulid::Ulid::new();
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "first").await?;
    dwell.delivers("orders", &["first"]).await?;
    let made: String = outage.redis.ask("GET {dwell:orders:0}:gen").await?;
    outage.redis.kill()?;
    assert_eq!(dwell.push_one("orders", "a").await?.pushed, Pushed::Buffered);
    dwell.close().await?;
    outage.proxy.set(Mode::Refuse);
    outage.redis.restart().await?;
    outage.redis.ask::<String>("FLUSHALL").await?;
    outage.redis.ask::<String>(&format!("SET dwell:id {before}")).await?;
    outage.redis.call::<String>(redis::cmd("SET").arg("{dwell:orders:0}:gen").arg(&made)).await?;
    outage.proxy.set(Mode::Pass);
    let dwell = outage.dwell().await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["a"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn empty_wal_is_bound_to_the_next_redis() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    dwell.close().await?;
    let other = RedisServer::start().await?;
    other.ask::<String>("SET dwell:id somebody-else").await?;
    let dwell = outage.dwell_on(other.url(), false).await?;
    assert_eq!(dwell.push_one("orders", "a").await?.pushed, Pushed::Stored);
    dwell.close().await
}

#[tokio::test]
async fn unsuitable_redis_receives_nothing_and_is_reported() -> Result<()> {
    let mut outage = Outage::begin().await?;
    outage.redis.kill()?;
    let dwell = outage.dwell_on(outage.redis.url(), false).await?;
    assert_eq!(dwell.push_one("orders", "a").await?.pushed, Pushed::Buffered);
    let why = async |what: &str| {
        eventually(what, async || {
            let health = dwell.broker().health().await;
            Ok(health.detail.filter(|why| health.ready && why.contains(what)).map(drop))
        })
        .await
    };
    why("cannot be reached").await?;
    outage.redis.restart_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await?;
    // Not the reason of before.
    why("noeviction").await?;
    assert_eq!(dwell.push_one("orders", "b").await?.pushed, Pushed::Buffered);
    assert_eq!(outage.redis.keys().await?, [""; 0]);
    outage.redis.ask::<String>("CONFIG SET maxmemory-policy noeviction").await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["a", "b"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn two_processes_do_not_share_a_directory() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let second = outage.dwell().await.map(drop);
    assert_eq!(kind_of(second), Some(Kind::Conflict));
    dwell.push("orders", &["a"], Duration::ZERO).await?;
    dwell.close().await
}
