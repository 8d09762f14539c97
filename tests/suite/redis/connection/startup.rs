//! Redis is not there when dwell starts, or must not be used.

use dwell::store::Backend as _;
use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::{Kind, Result};
use dwell::platform::clock::Clock;
use dwell::store::redis::{Redis, RedisOptions};
use dwell::telemetry::metrics::Metrics;

use crate::support::{RedisServer, World, eventually, kind_of};

#[tokio::test]
async fn store_opens_without_redis_and_connects_later() -> Result<()> {
    let mut server = RedisServer::start().await?;
    server.kill()?;
    let world = World::redis_at(server.url(), Duration::from_millis(500)).await?;
    assert_eq!(kind_of(world.store.backend.ping().await), Some(Kind::Unavailable));
    assert_eq!(kind_of(world.store.backend.store_id("a").await), Some(Kind::Unavailable));
    assert_eq!(world.store.backend.describe().durability, "not reachable yet");
    server.restart().await?;
    eventually("it is reached", async || Ok(world.store.backend.ping().await.ok())).await?;
    assert_eq!(world.store.backend.store_id("b").await?, "b");
    assert!(
        world.store.backend.describe().durability.contains("no append-only file"),
        "{:?}",
        world.store.backend.describe()
    );
    Ok(())
}

#[tokio::test]
async fn evicting_redis_is_refused_at_the_start() -> Result<()> {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]).await?;
    let open = async |allow_eviction| {
        let options = RedisOptions { allow_eviction, ..RedisOptions::new(server.url()) };
        Redis::open(options, Clock::System, Arc::new(Metrics::new()?)).await
    };
    assert_eq!(kind_of(open(false).await), Some(Kind::Invalid));
    open(true).await?.ping().await
}

#[tokio::test]
async fn redis_that_starts_evicting_is_unused_until_fixed() -> Result<()> {
    let server = RedisServer::start().await?;
    let world = World::redis_at(server.url(), Duration::from_millis(500)).await?;
    let orders = world.topic("orders").await?;
    server.ask::<()>("CONFIG SET maxmemory-policy volatile-ttl").await?;
    server.ask::<()>("CLIENT KILL TYPE normal").await?;
    // The call that met the end of its connection may have been applied.
    let refused = eventually("the next connection is looked at", async || {
        Ok(orders.push("a", 0).await.err().filter(|error| error.kind() == Kind::Unavailable))
    })
    .await?;
    assert!(refused.detail().contains("maxmemory-policy volatile-ttl"), "{refused}");
    server.ask::<()>("CONFIG SET maxmemory-policy noeviction").await?;
    orders.push("a", 0).await.map(drop)
}
