//! A user who may do less than dwell has to is told so before anything is half done.

use dwell::store::Backend as _;
use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::platform::clock::Clock;
use dwell::store::Pushed;
use dwell::store::redis::{Confirmation, Redis, RedisOptions};
use dwell::telemetry::metrics::Metrics;

use crate::support::{RedisServer, World, eventually, up_to};

const ACL: &str = include_str!("../../../../deploy/redis.acl");

#[tokio::test]
async fn each_missing_permission_is_named() -> Result<()> {
    let server = RedisServer::start().await?;
    server.ask::<()>(&format!("ACL SETUSER {}", ACL.trim().trim_start_matches("user "))).await?;
    let url = format!("{}?user=dwell&pass=password", server.url());
    let world = World::redis_at(url, Duration::from_millis(500)).await?;
    let orders = world.topic("orders").await?;
    let commands: Vec<&str> = ACL.split_whitespace().filter_map(|word| word.strip_prefix('+')).collect();
    assert!(commands.len() > 35, "{commands:?}");
    // Announcements are of another connection, and only shorten a sleep; some are for clusters; only /readyz asks for the
    // time alone; only who waits for replicas waits.
    let others = ["wait", "ssubscribe", "sunsubscribe", "ping", "time", "dbsize", "asking", "cluster|slots"];
    for command in commands.into_iter().filter(|command| !others.contains(command)) {
        server.ask::<()>(&format!("ACL SETUSER dwell -{command}")).await?;
        server.ask::<()>("CLIENT KILL USER dwell").await?;
        let refused = eventually(command, async || {
            Ok(orders.push("refused", 0).await.err().filter(|error| error.kind() == Kind::Unavailable))
        })
        .await?;
        let said = refused.detail().to_owned();
        assert!(said.contains("NOPERM") && said.contains(command) && said.contains("deploy/redis.acl"), "{said}");
        server.ask::<()>(&format!("ACL SETUSER dwell +{command}")).await?;
    }
    orders.push("stored", 0).await?;
    assert_eq!(orders.stats().await?.ready, 1);
    Ok(())
}

#[tokio::test]
async fn missing_wait_permission_is_reported() -> Result<()> {
    let server = RedisServer::start().await?;
    server.ask::<()>(&format!("ACL SETUSER {}", ACL.trim().trim_start_matches("user "))).await?;
    let url = format!("{}?user=dwell&pass=password", server.url());
    let confirmation = Confirmation { replicas: 1, fsync: false };
    let options = RedisOptions { confirmation, ..RedisOptions::new(url) };
    let durability = async || {
        let store = Redis::open(options.clone(), Clock::System, Arc::new(Metrics::new()?)).await?;
        Ok::<_, Error>(store.describe().durability)
    };
    let permitted = durability().await?;
    assert!(permitted.contains("what is answered is on 1"), "{permitted}");
    server.ask::<()>("ACL SETUSER dwell -wait").await?;
    let store = Redis::open(options, Clock::System, Arc::new(Metrics::new()?)).await?;
    let refused = store.ping().await.err().map(|error| error.detail().to_owned()).unwrap_or_default();
    assert!(refused.contains("NOPERM") && refused.contains("wait"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn forbidden_key_patterns_are_named() -> Result<()> {
    let server = RedisServer::start().await?;
    server.ask::<()>("ACL SETUSER dwell on >password ~dwell:* &* +@all").await?;
    let url = format!("{}?user=dwell&pass=password", server.url());
    let world = World::redis_at(url, Duration::from_millis(500)).await?;
    let refused = world.store.backend.ping().await.err().map(|error| error.detail().to_owned()).unwrap_or_default();
    assert!(refused.contains("get on {dwell:") && !refused.contains("get on dwell:"), "{refused}");
    Ok(())
}

/// It is refused in the middle of a script then, whose repeat does the rest.
#[tokio::test]
async fn permission_revoked_at_runtime_loses_no_message() -> Result<()> {
    let server = RedisServer::start().await?;
    server.ask::<()>(&format!("ACL SETUSER {}", ACL.trim().trim_start_matches("user "))).await?;
    let url = format!("{}?user=dwell&pass=password", server.url());
    let world = World::redis_at(url, Duration::from_millis(500)).await?;
    let orders = world.topic("orders").await?;
    orders.push("before", 0).await?;
    let mut owner = orders.owner().await?;
    server.ask::<()>("ACL SETUSER dwell -hset").await?;
    // The first is refused midway, the second when a new connection is looked at.
    for _ in 0..2 {
        let refused = orders.push("a", 0).await.err().filter(|error| error.kind() == Kind::Unavailable);
        assert!(refused.is_some_and(|error| error.detail().contains("NOPERM")));
    }
    assert_eq!(server.ask::<u64>("ZCARD {dwell:orders:0}:default:z").await?, 2, "it was not midway");
    server.ask::<()>("ACL SETUSER dwell +hset").await?;
    assert_eq!(orders.push("a", 0).await?, Pushed::Stored);
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!((taken.messages.len(), taken.dropped), (2, 0));
    Ok(())
}
