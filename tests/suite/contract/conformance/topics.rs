use std::task::Poll;

use std::num::NonZeroU16;

use dwell::broker::{Options, Precondition};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::PARTITIONS_MAX;
use dwell::model::message::{GroupName, TopicName};
use dwell::model::topic::{Descriptor, Pause, Rate, Settings, Subscription};
use dwell::store::{PartitionStats, Pushed};

use crate::support::{LEASE, Running, TestTopic, World, eventually, ids_of, kind_of, member, up_to};

pub(super) async fn create_topic_is_idempotent(world: World) -> Result<()> {
    let first = world.topic("orders").await?.descriptor;
    assert!(first.generation > 0 && first.incarnation == first.generation && !first.deleted);
    world.pass(5);
    let wanted = Descriptor::new(first.topic.clone(), Default::default());
    assert_eq!(world.store.topics.create(&wanted).await?, first);
    assert_eq!(world.store.topics.topic(&first.topic).await?, Some(first));
    Ok(())
}

pub(super) async fn an_update_needs_the_current_generation(world: World) -> Result<()> {
    let orders = world.topic("orders").await?.descriptor;
    let mut wanted = orders.clone();
    wanted.settings.max_attempts = 3;
    wanted.settings.annotations = [("team".to_owned(), "checkout".to_owned())].into_iter().collect();
    let updated = world.store.topics.update(&wanted).await?;
    assert!(updated.generation > orders.generation);
    assert_eq!(updated, Descriptor { generation: updated.generation, ..wanted.clone() });
    assert_eq!(world.store.topics.topic(&orders.topic).await?, Some(updated.clone()));
    assert_eq!(kind_of(world.store.topics.update(&wanted).await), Some(Kind::Stale));
    assert_eq!(world.store.topics.topic(&orders.topic).await?, Some(updated.clone()));
    world.store.topics.delete(&updated).await?;
    assert_eq!(kind_of(world.store.topics.update(&updated).await), Some(Kind::NotFound));
    Ok(())
}

pub(super) async fn limits_and_windows_of_groups_are_kept(world: World) -> Result<()> {
    let orders = world.topic("orders").await?.descriptor;
    let mut wanted = orders.clone();
    *wanted.subscription_mut(&GroupName::standard()) = Subscription {
        rate: Some(Rate::new(2.5)?),
        max_in_flight: Some(100),
        window: Some("mon-fri 22:00-06:30 Europe/Berlin".parse().map_err(|why: String| Error::bug(why))?),
        paused: Some(Pause { until: Some(world.now()) }),
        ..Subscription::default()
    };
    let updated = world.store.topics.update(&wanted).await?;
    assert_eq!(updated.subscriptions, wanted.subscriptions);
    assert_eq!(world.store.topics.topic(&orders.topic).await?, Some(updated));
    Ok(())
}

pub(super) async fn concurrent_update_and_deletion_have_one_winner(world: World) -> Result<()> {
    let orders = world.topic("orders").await?.descriptor;
    let updated = world.store.topics.update(&orders).await?;
    assert_eq!(kind_of(world.store.topics.delete_unchanged(&orders).await), Some(Kind::Stale));
    assert_eq!(world.store.topics.topic(&orders.topic).await?, Some(updated.clone()));
    world.store.topics.delete_unchanged(&updated).await?;
    assert_eq!(world.store.topics.topic(&orders.topic).await?, None);
    for round in 0..10 {
        let there = world.topic("orders").await?.descriptor;
        let (changed, deleted) =
            tokio::join!(world.store.topics.update(&there), world.store.topics.delete_unchanged(&there));
        assert!(changed.is_ok() != deleted.is_ok(), "round {round}: {changed:?} and {deleted:?}");
        if let Ok(changed) = changed {
            world.store.topics.delete(&changed).await?;
        }
    }
    Ok(())
}

pub(super) async fn concurrent_updates_have_one_winner(world: World) -> Result<()> {
    let brokers = [Running::start(&world, Options::default())?, Running::start(&world, Options::default())?];
    let topic = TopicName::new("orders")?;
    let mut generation = brokers[0].broker.declare(topic.clone(), Settings::default()).await?.descriptor.generation;
    for round in 1..20 {
        let change = |broker: usize| {
            let settings = Settings { max_attempts: 100 + 2 * round + broker as u32, ..Settings::default() };
            brokers[broker].broker.declare_if(topic.clone(), settings, Precondition::Generation(generation))
        };
        let (one, other) = tokio::join!(change(0), change(1));
        let (won, lost) = if one.is_ok() { (one, other) } else { (other, one) };
        assert_eq!(kind_of(lost), Some(Kind::Stale), "round {round}");
        generation = won?.descriptor.generation;
        let there = brokers[0].broker.topic(&topic).await?;
        assert_eq!(there.generation, generation, "round {round}");
    }
    let old = Precondition::Generation(generation - 1);
    assert_eq!(kind_of(brokers[0].broker.delete_topic_if(&topic, old).await), Some(Kind::Stale));
    brokers[1].broker.delete_topic_if(&topic, Precondition::Generation(generation)).await?;
    let absent = brokers[0].broker.declare_if(topic, Settings::default(), Precondition::Exists).await;
    assert_eq!(kind_of(absent), Some(Kind::Stale));
    Ok(())
}

pub(super) async fn push_with_an_older_descriptor_is_refused(world: World) -> Result<()> {
    let old = world.topic("orders").await?;
    let new = TestTopic { descriptor: world.store.topics.update(&old.descriptor).await?, ..old.clone() };
    assert_eq!(kind_of(old.push("a", 0).await), Some(Kind::Stale));
    assert_eq!(new.stats().await?, PartitionStats::default());
    assert_eq!(new.push("a", 0).await?, Pushed::Stored);
    assert_eq!(kind_of(old.push("b", 0).await), Some(Kind::Stale));
    Ok(())
}

pub(super) async fn owner_keeps_its_partition_across_an_update(world: World) -> Result<()> {
    let old = world.topic("orders").await?;
    old.push("a", 0).await?;
    let mut owner = old.owner().await?;
    let new = TestTopic { descriptor: world.store.topics.update(&old.descriptor).await?, ..old.clone() };
    new.push("b", 0).await?;
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["a", "b"]);
    assert_eq!(kind_of(old.owner().await), Some(Kind::Stale));
    new.owner().await?;
    assert_eq!(kind_of(owner.reserve(up_to(9)).await), Some(Kind::Stale));
    Ok(())
}

pub(super) async fn new_group_gets_later_pushes_only(world: World) -> Result<()> {
    let old = world.topic("orders").await?;
    old.push("before", 0).await?;
    let mut wanted = old.descriptor.clone();
    wanted.groups.push(GroupName::new("audit")?);
    let new = TestTopic { descriptor: world.store.topics.update(&wanted).await?, ..old };
    new.push("after", 0).await?;
    let mut auditor = new.acquire(&new.partition_of("audit")?, &member("auditor"), LEASE).await?;
    assert_eq!(ids_of(&auditor.reserve(up_to(9)).await?.messages), ["after"]);
    assert_eq!(ids_of(&new.owner().await?.reserve(up_to(9)).await?.messages), ["after", "before"]);
    Ok(())
}

pub(super) async fn deleted_topic_is_removed_with_its_messages(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let other = world.topic("others").await?;
    other.push("a", 0).await?;
    orders.push_many("m", 1_100).await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(10)).await?;
    let tombstone = world.store.topics.delete(&orders.descriptor).await?;
    assert!(tombstone.as_ref().is_some_and(|there| there.deleted && there.generation > orders.descriptor.generation));
    assert_eq!(world.store.topics.topic(&orders.descriptor.topic).await?, None);
    assert_eq!(world.store.topics.topics().await?, std::slice::from_ref(&other.descriptor.topic));
    assert_eq!(kind_of(orders.push("a", 0).await), Some(Kind::Stale));
    assert_eq!(kind_of(orders.owner().await), Some(Kind::Stale));
    assert_eq!(kind_of(owner.reserve(up_to(9)).await), Some(Kind::Stale));
    assert_eq!(orders.stats().await?, PartitionStats::default());
    assert_eq!(orders.peek("m000100").await?, None);
    assert_eq!(world.store.topics.delete(&orders.descriptor).await?, tombstone);
    assert_eq!(other.stats().await?.ready, 1);
    Ok(())
}

pub(super) async fn recreated_topic_has_a_new_identity(world: World) -> Result<()> {
    let old = world.topic("orders").await?;
    old.push("a", 0).await?;
    let mut owner = old.owner().await?;
    owner.reserve(up_to(1)).await?;
    world.store.topics.delete(&old.descriptor).await?;
    let new = world.topic("orders").await?;
    assert!(new.descriptor.generation > old.descriptor.generation);
    assert_eq!(new.descriptor.incarnation, new.descriptor.generation);
    assert_eq!(kind_of(old.push("b", 0).await), Some(Kind::Stale));
    assert_eq!(kind_of(owner.reserve(up_to(1)).await), Some(Kind::Stale));
    assert_eq!(new.stats().await?, PartitionStats::default());
    let mut owner = new.owner().await?;
    assert_eq!(owner.recover().await?.messages, 0);
    assert_eq!(new.push("a", 0).await?, Pushed::Stored);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["a"]);
    // Whoever still means the old one cannot delete the new one.
    assert_eq!(world.store.topics.delete(&old.descriptor).await?, None);
    assert_eq!(world.store.topics.topic(&new.descriptor.topic).await?, Some(new.descriptor));
    Ok(())
}

pub(super) async fn lost_topic_is_recreated_but_a_deleted_one_is_not(world: World) -> Result<()> {
    let lost = Descriptor {
        generation: 1_700_000_000_000,
        incarnation: 1_600_000_000_000,
        ..Descriptor::new(TopicName::new("lost")?, Settings { max_attempts: 3, ..Settings::default() })
    };
    let found = world.store.topics.create(&lost).await?;
    assert_eq!(found, lost);
    assert_eq!(world.store.topics.create(&lost).await?, lost);
    world.store.topics.delete(&found).await?;
    assert_eq!(kind_of(world.store.topics.create(&lost).await), Some(Kind::NotFound));
    assert_eq!(world.store.topics.topics().await?, []);
    let new = world.topic("lost").await?;
    assert!(new.descriptor.incarnation > lost.incarnation);
    // Whoever brings the old one back finds the new one in its place.
    assert_eq!(world.store.topics.create(&lost).await?, new.descriptor);
    Ok(())
}

pub(super) async fn topics_are_listed_by_name(world: World) -> Result<()> {
    let names = ["b", "a-1", "C", "a.0", "a"];
    for name in names {
        world.topic(name).await?;
    }
    let mut sorted = names.map(TopicName::new).into_iter().collect::<Result<Vec<_>>>()?;
    sorted.sort();
    assert_eq!(world.store.topics.topics().await?, sorted);
    Ok(())
}

pub(super) async fn late_deletion_spares_the_recreated_topic(world: World) -> Result<()> {
    eventually("a deletion is overtaken", async || {
        let old = world.topic("orders").await?;
        let mut deletion = std::pin::pin!(old.store.topics.delete(&old.descriptor));
        // It gets as far as refusing pushes, and is held up there; or it is over before anyone overtakes it.
        loop {
            if let Poll::Ready(deleted) = futures_util::poll!(deletion.as_mut()) {
                deleted?;
                return Ok(None);
            }
            world.settled().await;
            if kind_of(old.push("a", 0).await) == Some(Kind::Stale) {
                break;
            }
        }
        let new = world.topic("orders").await?;
        assert_ne!(new.descriptor.incarnation, old.descriptor.incarnation);
        new.push("b", 0).await?;
        deletion.await?;
        assert!(new.peek("b").await?.is_some());
        assert_eq!(world.store.topics.topic(&new.descriptor.topic).await?.as_ref(), Some(&new.descriptor));
        assert_eq!(world.store.topics.topics().await?, std::slice::from_ref(&new.descriptor.topic));
        Ok(Some(()))
    })
    .await
}

pub(super) async fn topic_past_its_limits_is_refused(world: World) -> Result<()> {
    let partitions =
        |count: u16| Settings { partitions: NonZeroU16::new(count).unwrap_or(NonZeroU16::MIN), ..Settings::default() };
    let wide = Descriptor::new(TopicName::new("wide")?, partitions(PARTITIONS_MAX + 1));
    assert_eq!(kind_of(world.store.topics.create(&wide).await), Some(Kind::Invalid));
    assert_eq!(world.store.topics.topic(&wide.topic).await?, None);
    let there = world.topic("orders").await?.descriptor;
    let mut without_groups = there.clone();
    without_groups.groups.clear();
    assert_eq!(kind_of(world.store.topics.update(&without_groups).await), Some(Kind::Invalid));
    assert_eq!(world.store.topics.topic(&there.topic).await?, Some(there));
    Ok(())
}
