//! Members of a group: who lives, and how the others hear of it.

use std::sync::Arc;
use std::time::Duration;

use dwell::error::Result;
use dwell::message::GroupName;
use dwell::store::Channel;
use tokio::sync::Notify;

use crate::support::{World, member};

const TTL: Duration = Duration::from_secs(10);

pub(super) async fn a_member_lives_until_it_is_silent_for_a_ttl(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (topic, group) = (orders.descriptor.topic.clone(), GroupName::standard());
    let beat = async |name: &str| world.store.beat(&topic, &group, &member(name), TTL).await;
    assert_eq!(beat("b").await?, [member("b")]);
    world.pass(6_000);
    assert_eq!(beat("a").await?, [member("a"), member("b")]);
    world.pass(4_000);
    assert_eq!(beat("a").await?, [member("a")]);
    // Who was away for too long joins again, and other groups are none of its business.
    assert_eq!(beat("b").await?, [member("a"), member("b")]);
    let other = world.store.beat(&topic, &GroupName::new("other")?, &member("c"), TTL).await?;
    assert_eq!(other, [member("c")]);
    Ok(())
}

pub(super) async fn joining_and_leaving_are_announced(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (topic, group) = (orders.descriptor.topic.clone(), GroupName::standard());
    let heard = Arc::new(Notify::new());
    let channel = Channel::Members(topic.clone(), group.clone());
    let _wake = world.store.wakes().subscribe(channel, heard.clone());
    // A subscription wakes once when it stands, so that nothing before it is missed.
    if world.store.describe().kind == "redis" {
        heard.notified().await;
    }
    world.store.beat(&topic, &group, &member("a"), TTL).await?;
    heard.notified().await;
    world.store.beat(&topic, &group, &member("a"), TTL).await?;
    world.store.leave(&topic, &group, &member("a")).await?;
    heard.notified().await;
    world.store.leave(&topic, &group, &member("a")).await?;
    assert_eq!(world.store.beat(&topic, &group, &member("b"), TTL).await?, [member("b")]);
    Ok(())
}
