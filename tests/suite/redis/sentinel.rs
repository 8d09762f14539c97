//! Behind sentinels: the primary is killed, or frozen, and a replica is promoted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dwell::model::error::Result;
use dwell::store::Channel;
use rustix::process::Signal;
use tokio::sync::Notify;

use crate::redis::cluster::datagrams_are_received;
use crate::support::{TestTopic, Watched, World, eventually, signal};

const TIMEOUT: Duration = Duration::from_millis(500);

/// A topic behind sentinels, with what was pushed before known to the replica too.
async fn before_the_failover() -> Result<(Watched, World, TestTopic)> {
    let watched = Watched::start().await?;
    let world = World::redis_at(watched.url(), TIMEOUT).await?;
    assert!(world.store.backend.describe().location.starts_with("main behind the sentinels 127.0.0.1:"));
    assert!(
        world.store.backend.describe().durability.contains("writes do not wait for any"),
        "{:?}",
        world.store.backend.describe()
    );
    let orders = world.topic("orders").await?;
    orders.push_many("before", 100).await?;
    watched.primary.ask::<u64>("WAIT 1 1000").await?;
    Ok((watched, world, orders))
}

/// From the promotion on: a push is stored soon, and what was there is there.
async fn goes_on_soon(watched: &Watched, world: &World, orders: &TestTopic) -> Result<()> {
    watched.promoted().await?;
    let began = Instant::now();
    eventually("a push is stored", async || Ok(orders.push("after", 0).await.ok())).await?;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(watched.replica.ask::<u64>("HLEN {dwell:orders:0}:default:h").await?, 101);
    // What was not replicated is lost, so nobody takes a partition for a while.
    assert_eq!(world.store.backend.losses().borrow().count, 1);
    let wakes = world.topic("wakes").await?;
    let notify = Arc::new(Notify::new());
    let _wake = world.store.backend.wakes().subscribe(Channel::head(&wakes.group_partition()), notify.clone());
    let mut delay = 1_000_000;
    // The first may be that of the subscription itself.
    for _ in 0..2 {
        eventually("announcements come from there", async || {
            delay -= 1;
            wakes.push(&format!("m{delay}"), delay).await?;
            Ok(tokio::time::timeout(TIMEOUT / 10, notify.notified()).await.ok())
        })
        .await?;
    }
    datagrams_are_received(world, world).await
}

/// Somebody calls all the time, as owners do that renew.
async fn meanwhile_calls(world: &World) {
    loop {
        let _ = world.store.backend.ping().await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_primary_is_killed() -> Result<()> {
    let (mut watched, world, orders) = before_the_failover().await?;
    watched.primary.kill()?;
    tokio::select! {
        () = meanwhile_calls(&world) => Ok(()),
        done = goes_on_soon(&watched, &world, &orders) => done,
    }
}

#[tokio::test]
async fn the_primary_is_frozen_and_returns() -> Result<()> {
    let (watched, world, orders) = before_the_failover().await?;
    signal(&watched.primary, Signal::STOP)?;
    goes_on_soon(&watched, &world, &orders).await?;
    signal(&watched.primary, Signal::CONT)?;
    // It believes that it is the primary until a sentinel tells it.
    eventually("it is a replica", async || {
        orders.push("meanwhile", 0).await?;
        // While it changes sides it closes its connections.
        let info: Option<String> = watched.primary.ask("INFO replication").await.ok();
        Ok(info.filter(|info| info.contains("role:slave")))
    })
    .await?;
    assert_eq!(
        watched.replica.ask::<u64>("HLEN {dwell:orders:0}:default:h").await?,
        orders.stats().await?.ready + orders.stats().await?.scheduled
    );
    Ok(())
}

#[tokio::test]
async fn unknown_sentinel_service_name_is_reported() -> Result<()> {
    let watched = Watched::start().await?;
    let url = watched.url().replace("/main", "/other");
    let world = World::redis_at(url, TIMEOUT).await?;
    let refused = world.store.backend.ping().await.err();
    assert!(refused.as_ref().is_some_and(|error| error.detail().contains("no primary named other")), "{refused:?}");
    Ok(())
}
