use std::time::Duration;

use dwell::model::error::{Kind, Result};
use dwell::model::message::{GroupName, MessageId};
use dwell::model::partition::Partition;
use dwell::store::{Purge, Purged};

use crate::support::{LEASE, TestTopic, World, acks, buries, ids_of, kind_of, member, new_call, up_to};

async fn purge(topic: &TestTopic, group: &str, dead_letters: bool) -> Result<Purged> {
    let purge = Purge { group: GroupName::new(group)?, dead_letters };
    let call = new_call(&*topic.store.backend, 1);
    topic.store.messages.purge_group(&topic.descriptor, Partition(0), &call, &purge).await
}

async fn counts(topic: &TestTopic, group: &str) -> Result<[u64; 4]> {
    let stats = topic.stats_of(&topic.partition_of(group)?).await?;
    Ok([stats.scheduled, stats.ready, stats.in_flight, stats.dead])
}

pub(super) async fn purge_empties_one_group_only(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    orders.push_all(&[orders.message("reserved", 0)?]).await?;
    orders.owner().await?.reserve(up_to(1)).await?;
    orders.push_all(&[orders.message("ready", 0)?, orders.message("scheduled", 10)?]).await?;
    let purged = purge(&orders, "default", false).await?;
    assert_eq!((purged.messages, purged.dead_letters), (3, 0));
    assert_eq!(counts(&orders, "default").await?, [0, 0, 0, 0]);
    assert_eq!(counts(&orders, "audit").await?, [1, 2, 0, 0]);
    assert_eq!(orders.peek("reserved").await?, None);
    assert_eq!(purge(&orders, "default", false).await?.messages, 0, "nothing is left");
    world.pass(10);
    let mut owner = orders.owner().await?;
    assert_eq!(orders.recover(&mut owner).await?, 0);
    let reserved = owner.reserve(up_to(9)).await?;
    assert_eq!((reserved.messages.len(), reserved.dropped, reserved.unsettled, reserved.head), (0, 0, 0, None));
    let mut audit = orders.acquire(&orders.partition_of("audit")?, &member("audit"), LEASE).await?;
    assert_eq!(ids_of(&audit.reserve(up_to(9)).await?.messages), ["ready", "reserved", "scheduled"]);
    Ok(())
}

pub(super) async fn every_call_of_an_owner_before_a_purge_is_refused(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 3).await?;
    let mut old = orders.owner().await?;
    old.reserve(up_to(2)).await?;
    assert_eq!(purge(&orders, "default", false).await?.messages, 3);
    orders.push("m000000", 0).await?;
    assert_eq!(kind_of(old.settle(&acks(&["m000000"])?).await), Some(Kind::Stale));
    assert_eq!(kind_of(old.reserve(up_to(9)).await), Some(Kind::Stale));
    assert!(matches!(orders.renew(&member("owner"), &*old, LEASE).await?, dwell::store::Renewal::Lost { .. }));
    // Any member may take it at once, and there may have been deliveries until then.
    let mut next = orders.acquire(&orders.group_partition(), &member("other"), LEASE).await?;
    assert!(next.last_delivery() >= world.now());
    assert_eq!(orders.recover(&mut next).await?, 0);
    let reserved = next.reserve(up_to(9)).await?;
    assert_eq!((ids_of(&reserved.messages), reserved.unsettled), (vec!["m000000"], 1));
    assert_eq!(reserved.messages[0].attempts, 0, "it is another message");
    Ok(())
}

pub(super) async fn dead_letters_are_purged_only_if_asked(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 0)?]).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    assert_eq!(purge(&orders, "default", false).await?.messages, 1);
    assert_eq!(counts(&orders, "default").await?, [0, 0, 0, 1]);
    assert_eq!(orders.store.dead_letters.redrive(&orders.group_partition(), &[MessageId::new("a")?]).await?, [true]);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    assert_eq!(ids_of(&taken.messages), ["a"]);
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    let purged = purge(&orders, "default", true).await?;
    assert_eq!((purged.messages, purged.dead_letters), (0, 1));
    assert_eq!(counts(&orders, "default").await?, [0, 0, 0, 0]);
    Ok(())
}

pub(super) async fn messages_pushed_after_a_purge_stay(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 2_500).await?;
    assert_eq!(purge(&orders, "default", false).await?.messages, 2_500);
    orders.push_many("m", 3).await?;
    orders.push("later", 5).await?;
    assert_eq!(counts(&orders, "default").await?, [1, 3, 0, 0]);
    let mut owner = orders.owner().await?;
    assert_eq!(owner.reserve(up_to(9)).await?.messages.len(), 3);
    world.pass(5);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["later"]);
    Ok(())
}

pub(super) async fn a_purge_needs_the_current_descriptor(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut wanted = orders.descriptor.clone();
    wanted.settings.visibility_timeout = Duration::from_secs(5);
    orders.store.topics.update(&wanted).await?;
    assert_eq!(kind_of(purge(&orders, "default", false).await), Some(Kind::Stale));
    assert_eq!(counts(&orders, "default").await?, [0, 1, 0, 0]);
    Ok(())
}
