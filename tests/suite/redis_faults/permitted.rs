//! A user who may do less than dwell has to is told so before anything is half done.

use std::time::Duration;

use dwell::error::{Kind, Result};

use crate::support::{RedisServer, World, eventually};

const ACL: &str = include_str!("../../../deploy/redis.acl");

#[tokio::test]
async fn each_permission_that_is_missing_is_named() -> Result<()> {
    let server = RedisServer::start().await?;
    server.ask::<()>(&format!("ACL SETUSER {}", ACL.trim().trim_start_matches("user "))).await?;
    let url = format!("{}?user=dwell&pass=password", server.url());
    let world = World::redis_at(url, Duration::from_millis(500)).await?;
    let orders = world.topic("orders").await?;
    let commands: Vec<&str> = ACL.split_whitespace().filter_map(|word| word.strip_prefix('+')).collect();
    assert!(commands.len() > 35, "{commands:?}");
    // Announcements are of another connection, and only shorten a sleep; some are for clusters; only /readyz asks for the
    // time alone.
    let others = ["ssubscribe", "sunsubscribe", "ping", "time", "dbsize", "asking", "cluster|slots"];
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
async fn keys_that_are_not_permitted_are_named() -> Result<()> {
    let server = RedisServer::start().await?;
    server.ask::<()>("ACL SETUSER dwell on >password ~dwell:* &* +@all").await?;
    let url = format!("{}?user=dwell&pass=password", server.url());
    let world = World::redis_at(url, Duration::from_millis(500)).await?;
    let refused = world.store.ping().await.err().map(|error| error.detail().to_owned()).unwrap_or_default();
    assert!(refused.contains("get on {dwell:") && !refused.contains("get on dwell:"), "{refused}");
    Ok(())
}
