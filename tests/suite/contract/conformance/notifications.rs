use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::time::Timestamp;
use dwell::store::{Channel, PartitionStats, Wake};
use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::support::{TestTopic, World, buries, eventually, ids, ids_of, up_to};

/// Who sleeps until the topic's first partition has an earlier head.
fn sleeper(orders: &TestTopic) -> (Arc<Notify>, Wake) {
    sleeper_at(orders, Channel::head(&orders.group_partition()))
}

fn sleeper_at(orders: &TestTopic, channel: Channel) -> (Arc<Notify>, Wake) {
    let notify = Arc::new(Notify::new());
    let wake = orders.store.backend.wakes().subscribe(channel, notify.clone());
    (notify, wake)
}

/// Whether the sleeper is woken soon. A store that announces over a network needs a moment for it.
async fn woken(notify: &Notify) -> bool {
    tokio::time::timeout(Duration::from_millis(250), notify.notified()).await.is_ok()
}

pub(super) async fn an_earlier_head_wakes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (notify, _wake) = sleeper(&orders);
    // A wake may be lost while the store still subscribes, so the head gets earlier until one comes through.
    let mut delay = 1_000_000;
    eventually("an earlier head wakes", async || {
        delay -= 1;
        orders.push(&format!("m{delay}"), delay).await?;
        Ok(woken(&notify).await.then_some(()))
    })
    .await?;
    orders.push("later", 2_000_000).await?;
    orders.push("earlier", 1).await?;
    assert!(woken(&notify).await);
    assert_ne!(orders.stats().await?, PartitionStats::default());
    Ok(())
}

pub(super) async fn rescheduling_to_the_front_wakes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (notify, _wake) = sleeper(&orders);
    orders.push_all(&[orders.message("first", 1_000_000)?, orders.message("second", 2_000_000)?]).await?;
    let mut delay = 900_000;
    eventually("a new head wakes", async || {
        delay -= 1;
        orders.reschedule("second", delay).await?;
        Ok(woken(&notify).await.then_some(()))
    })
    .await?;
    // The pushes and the first of these may still be on their way.
    while woken(&notify).await {}
    orders.reschedule("first", 950_000).await?;
    assert!(!woken(&notify).await, "it is not the head");
    orders.reschedule("second", 960_000).await?;
    assert!(!woken(&notify).await, "it is not the head any more");
    Ok(())
}

pub(super) async fn a_redriven_message_wakes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 200).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(200)).await?;
    owner.settle(&buries(taken.reservation, &ids_of(&taken.messages), &[])?).await?;
    let mut dead = taken.messages.iter();
    let (notify, _wake) = sleeper(&orders);
    eventually("a redriven message wakes", async || {
        owner.reserve(up_to(9)).await?;
        let next = dead.next().map(|message| message.id.as_str()).unwrap_or("none");
        assert_eq!(orders.store.dead_letters.redrive(&orders.group_partition(), &ids(&[next])?).await?, [true]);
        Ok(woken(&notify).await.then_some(()))
    })
    .await
}

pub(super) async fn release_and_head_notifications_are_distinct(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (released, _releases) = sleeper_at(&orders, Channel::release(&orders.group_partition()));
    let (earlier, _heads) = sleeper(&orders);
    // A subscription wakes once when it stands, so that nothing before it is missed.
    if world.store.backend.describe().kind == "redis" {
        released.notified().await;
        earlier.notified().await;
    }
    // Announcements keep their order, so one that had gone astray would be there before the next.
    orders.push("a", 2).await?;
    earlier.notified().await;
    assert!(released.notified().now_or_never().is_none());
    orders.owner().await?.release(Timestamp::ZERO).await?;
    released.notified().await;
    assert!(earlier.notified().now_or_never().is_none());
    orders.push("b", 1).await?;
    earlier.notified().await;
    assert!(released.notified().now_or_never().is_none());
    Ok(())
}

pub(super) async fn topic_change_notifies_without_a_head(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (changed, _changes) = sleeper_at(&orders, Channel::Changed(orders.descriptor.topic.clone()));
    let (earlier, _heads) = sleeper(&orders);
    if world.store.backend.describe().kind == "redis" {
        changed.notified().await;
        earlier.notified().await;
    }
    orders.push("a", 2).await?;
    earlier.notified().await;
    assert!(changed.notified().now_or_never().is_none());
    let orders = world.existing(world.store.topics.update(&orders.descriptor).await?);
    changed.notified().await;
    assert!(earlier.notified().now_or_never().is_none());
    world.store.topics.delete(&orders.descriptor).await?;
    changed.notified().await;
    Ok(())
}
