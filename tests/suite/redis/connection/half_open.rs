//! Connections that lead nowhere, though nobody closed them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dwell::model::error::{Kind, Result};
use dwell::store::Channel;
use tokio::sync::Notify;

use crate::support::{Mode, Proxy, RedisServer, World, eventually};

const TIMEOUT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn calls_have_a_new_connection_within_three_timeouts() -> Result<()> {
    let server = RedisServer::start().await?;
    let proxy = Proxy::before(&server)?;
    let world = World::redis_at(proxy.url(), TIMEOUT).await?;
    proxy.set(Mode::BlackHole);
    proxy.set(Mode::Pass);
    let began = Instant::now();
    eventually("a call is answered", async || Ok(world.store.backend.ping().await.ok())).await?;
    assert!(began.elapsed() < TIMEOUT * 3 + Duration::from_secs(10), "{:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn subscription_recovers_after_an_unanswered_ping() -> Result<()> {
    let server = RedisServer::start().await?;
    let proxy = Proxy::before(&server)?;
    let world = World::redis_at(proxy.url(), TIMEOUT).await?;
    let orders = world.topic("orders").await?;
    let notify = Arc::new(Notify::new());
    let _wake = world.store.backend.wakes().subscribe(Channel::head(&orders.group_partition()), notify.clone());
    let mut delay = 1_000_000;
    let mut woken = async || {
        eventually("an earlier head wakes", async || {
            delay -= 1;
            match orders.push(&format!("m{delay}"), delay).await {
                Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown) => Ok(None),
                pushed => pushed.map(drop).and(Ok(tokio::time::timeout(TIMEOUT, notify.notified()).await.ok())),
            }
        })
        .await
    };
    // Twice: the first may be that of the subscription itself.
    woken().await?;
    woken().await?;
    proxy.set(Mode::BlackHole);
    proxy.set(Mode::Pass);
    eventually("calls are answered", async || Ok(world.store.backend.ping().await.ok())).await?;
    let began = Instant::now();
    woken().await?;
    woken().await?;
    assert!(began.elapsed() < TIMEOUT * 6 + Duration::from_secs(10), "{:?}", began.elapsed());
    Ok(())
}
