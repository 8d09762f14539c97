//! The user's password changes, and changes back.

use std::time::Duration;

use dwell::model::error::{Kind, Result};

use crate::support::{RedisServer, World, eventually};

#[tokio::test]
async fn wrong_password_is_reported_until_corrected() -> Result<()> {
    let server = RedisServer::start().await?;
    server.ask::<()>("ACL SETUSER dwell on >right ~* &* +@all").await?;
    let url = format!("{}?user=dwell&pass=right", server.url());
    let world = World::redis_at(url, Duration::from_millis(500)).await?;
    let orders = world.topic("orders").await?;
    for (rule, reason) in [("resetpass >other", "WRONGPASS"), ("off", "WRONGPASS")] {
        server.ask::<()>(&format!("ACL SETUSER dwell {rule}")).await?;
        server.ask::<()>("CLIENT KILL USER dwell").await?;
        let refused = eventually(reason, async || {
            Ok(orders.push("a", 0).await.err().filter(|error| error.detail().contains(reason)))
        })
        .await?;
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(!refused.detail().contains("right,") && refused.detail().contains("`redis.url`"), "{refused}");
        server.ask::<()>("ACL SETUSER dwell on resetpass >right").await?;
        eventually("it goes on", async || Ok(orders.push("a", 0).await.ok())).await?;
    }
    Ok(())
}

#[tokio::test]
async fn missing_password_is_reported() -> Result<()> {
    let server = RedisServer::start().await?;
    server.ask::<()>("CONFIG SET requirepass secret").await?;
    let world = World::redis_at(server.url(), Duration::from_millis(500)).await?;
    let refused = world.store.backend.ping().await.err();
    assert!(refused.is_some_and(|error| error.detail().contains("NOAUTH") && error.kind() == Kind::Unavailable));
    Ok(())
}
