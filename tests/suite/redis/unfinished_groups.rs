//! Groups in Redis, when whoever changed them died half-way: what such a process leaves is made by hand.

use std::num::NonZeroU16;

use dwell::model::error::{Kind, Result};
use dwell::model::message::{Conflict, GroupName, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::{Descriptor, Settings};
use dwell::store::{CopyCursor, PartitionStats, Pushed};

use crate::support::{TestTopic, World, kind_of, new_call};

fn audit() -> Result<GroupName> {
    GroupName::new("audit")
}

async fn meddle(world: &World, command: &[&str]) -> Result<String> {
    world.meddle(&command.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>()).await
}

/// Puts a descriptor in place as an update does that dies before any partition but the first has seen it.
async fn put(world: &World, descriptor: &Descriptor) -> Result<TestTopic> {
    let json = serde_json::to_string(descriptor).unwrap_or_default();
    let key = format!("{{dwell:{}:0}}:gen", descriptor.topic);
    let history_and_count = meddle(world, &["GETRANGE", &key, "17", "65"]).await?;
    let text = format!("{:016} {history_and_count} {json}", descriptor.generation);
    meddle(world, &["SET", &key, &text]).await?;
    Ok(world.existing(descriptor.clone()))
}

#[tokio::test]
async fn partially_created_group_is_completed() -> Result<()> {
    let world = World::redis().await?;
    let two = Settings { partitions: NonZeroU16::MIN.saturating_add(1), ..Settings::default() };
    let old = world.store.topics.create(&Descriptor::new(TopicName::new("orders")?, two)).await?;
    let mut wanted = old.clone();
    wanted.groups.push(audit()?);
    let new = put(&world, &old.followed_by(&wanted, old.generation + 1)).await?;
    let push = async |descriptor: &Descriptor, id| {
        let (call, message) = (new_call(&*world.store.backend, 1), new.message(id, 0)?);
        let pushed = world.store.messages.push(descriptor, Partition(1), &call, Conflict::Keep, &[message]).await?;
        Ok(pushed.into_iter().next().map(|verdict| verdict.pushed))
    };
    // Who does not know of the group goes on, until making it again is answered.
    assert_eq!(push(&old, "before").await?, Some(Ok(Pushed::Stored)));
    world.store.topics.publish_descriptor(&new.descriptor).await?;
    assert_eq!(kind_of(push(&old, "passed-by").await), Some(Kind::Stale));
    assert_eq!(push(&new.descriptor, "after").await?, Some(Ok(Pushed::Stored)));
    assert_eq!(new.stats_of(&new.descriptor.group_partition(Partition(1), &audit()?)).await?.ready, 1);
    Ok(())
}

#[tokio::test]
async fn interrupted_deletion_is_finished_by_the_next_change() -> Result<()> {
    let world = World::redis().await?;
    let both = world.topic_with_groups("orders", &["default", "audit"]).await?;
    both.push_many("m", 300).await?;
    let mut wanted = both.descriptor.clone();
    wanted.groups.retain(|group| group.as_str() == "default");
    let half = put(&world, &both.descriptor.followed_by(&wanted, both.descriptor.generation + 1)).await?;
    assert_eq!(half.descriptor.leaving, [audit()?]);
    // The next change makes the group again: it is empty all the same.
    let mut again = half.descriptor.clone();
    again.groups.push(audit()?);
    let again = world.existing(world.store.topics.update(&again).await?);
    assert!(again.descriptor.leaving.is_empty() && !again.descriptor.has_same(&both.descriptor, &audit()?));
    assert_eq!(again.stats_of(&again.partition_of("audit")?).await?, PartitionStats::default());
    assert_eq!((again.stats().await?.ready, again.push("new", 0).await?), (300, Pushed::Stored));
    assert_eq!(again.stats_of(&again.partition_of("audit")?).await?.ready, 1);
    // And the deletion of the topic takes what a group left behind.
    let half = put(&world, &again.descriptor.followed_by(&wanted, again.descriptor.generation + 1)).await?;
    world.store.topics.delete(&half.descriptor).await?;
    let left = meddle(&world, &["EXISTS", "{dwell:orders:0}:audit:z", "{dwell:orders:0}:audit:h"]).await?;
    assert_eq!(left, "0");
    Ok(())
}

#[tokio::test]
async fn cursor_of_another_process_restarts_the_scan() -> Result<()> {
    let world = World::redis().await?;
    let orders = world.topic("orders").await?;
    orders.push_many("m", 1_500).await?;
    let mut wanted = orders.descriptor.clone();
    wanted.groups.push(audit()?);
    wanted.subscription_mut(&audit()?).copy_of = Some(GroupName::standard());
    let copy = world.store.topics.update(&wanted).await?;
    let page = async |from| world.store.maintenance.copy(&copy, Partition(0), &audit()?, from).await;
    let first = page(None).await?;
    let cursor = first.next.map(|CopyCursor(text)| text).unwrap_or_default();
    let parts: Vec<&str> = cursor.split(' ').collect();
    assert_eq!((parts.len(), parts[1].len()), (3, 40), "{cursor}");
    // As if Redis had been restarted: the number means another place in it, so nothing may be passed over.
    let mut from = Some(CopyCursor(format!("{} {} {}", parts[0], "0".repeat(40), parts[2])));
    let mut copied = first.messages;
    loop {
        let next = page(from).await?;
        copied += next.messages;
        from = next.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(copied, 1_500);
    Ok(())
}
