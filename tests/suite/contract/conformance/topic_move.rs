use std::num::NonZeroU16;
use std::time::Duration;

use dwell::codec::Failure;
use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::RECOVER_IDS_MAX;
use dwell::model::message::{Conflict, GroupName, Key, MessageId, TopicName};
use dwell::model::topic::{Descriptor, Settings};
use dwell::store::{MessageState, MovedPage, PartitionStats, Retried};

use crate::support::{TestTopic, World, acks, buries, kind_of, no_such_customer, retries, up_to};

/// A topic of more partitions.
pub(super) async fn wider(world: &World, partitions: u16, groups: &[&str]) -> Result<Descriptor> {
    let partitions = NonZeroU16::new(partitions).unwrap_or(NonZeroU16::MIN);
    let settings = Settings { partitions, ..Settings::default() };
    let mut wanted = Descriptor::new(TopicName::new("wider")?, settings);
    wanted.groups = groups.iter().map(GroupName::new).collect::<Result<_>>()?;
    world.store.topics.create(&wanted).await
}

/// Moves all there is in a partition.
pub(super) async fn move_all(from: &TestTopic, group: &str, to: &Descriptor) -> Result<MovedPage> {
    let mut all = MovedPage::default();
    loop {
        let page = from.store.maintenance.move_page(&from.descriptor, &from.partition_of(group)?, to).await?;
        all.waiting += page.waiting;
        all.dead += page.dead;
        all.there_already += page.there_already;
        if !page.more {
            return Ok(all);
        }
        from.store.maintenance.moved(&from.partition_of(group)?, &page).await?;
    }
}

/// What a group of a topic holds in all partitions.
async fn held(world: &World, topic: &Descriptor, group: &str) -> Result<PartitionStats> {
    let group = GroupName::new(group)?;
    let group_partitions: Vec<_> =
        topic.partitions().map(|partition| topic.group_partition(partition, &group)).collect();
    let mut sum = PartitionStats::default();
    for stats in world.store.reads.stats(&group_partitions).await? {
        sum.scheduled += stats.scheduled;
        sum.ready += stats.ready;
        sum.in_flight += stats.in_flight;
        sum.dead += stats.dead;
    }
    Ok(sum)
}

pub(super) async fn moved_message_is_unchanged_in_the_partition_of_its_key(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut keyed = orders.message("later", 60_000)?;
    keyed.envelope.key = Some(Key::new("customer-7")?);
    keyed.envelope.attachment = "gateway".into();
    orders.push_all(&[keyed.clone()]).await?;
    orders.push("failed", 0).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    let failure = Failure::new(world.now(), 1, Some(&no_such_customer()));
    let next_at = world.now().plus(Duration::from_secs(5));
    let id = MessageId::new("failed")?;
    let retried = Retried { id: id.clone(), next_at, attempts: 1, failure: Some(failure.clone()) };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    orders.push("dead", 0).await?;
    let taken = owner.reserve(up_to(1)).await?;
    owner.settle(&buries(taken.reservation, &["dead"], &[])?).await?;
    let died_at = world.now();
    world.pass(7);

    let to = wider(&world, 16, &["default"]).await?;
    let moved = move_all(&orders, "default", &to).await?;
    assert_eq!((moved.waiting, moved.dead, moved.there_already), (2, 1, 0));
    assert_eq!(
        orders.stats().await?,
        PartitionStats { owner: orders.stats().await?.owner, ..PartitionStats::default() }
    );
    let look = async |key: &str, id: &str| {
        let partition = to.group_partition(to.partition_of(key), &GroupName::standard());
        world.store.reads.peek(&partition, &MessageId::new(id)?).await
    };
    let later = look("customer-7", "later").await?.ok_or_else(|| Error::not_found("later"))?;
    assert_eq!((later.message, later.next_at, later.attempts), (keyed.clone(), Some(keyed.due_at), 0));
    let failed = look("failed", "failed").await?.ok_or_else(|| Error::not_found("failed"))?;
    assert_eq!((failed.next_at, failed.attempts, failed.history), (Some(next_at), 1, vec![failure]));
    let dead = look("dead", "dead").await?.ok_or_else(|| Error::not_found("dead"))?;
    let MessageState::Dead { died_at: at, record } = dead.state else { return Err(Error::not_found("dead")) };
    assert_eq!((at, record.last_error), (died_at, Some(no_such_customer())));
    // The owner of what was left counts no message too few.
    orders.push("next", 0).await?;
    let reserved = owner.reserve(up_to(9)).await?;
    assert_eq!((reserved.messages.len(), reserved.unsettled), (1, 1));
    Ok(())
}

pub(super) async fn move_skips_in_flight_messages_and_is_per_group(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    orders.push_many("m", 3).await?;
    let mut owner = orders.owner().await?;
    assert_eq!(owner.reserve(up_to(1)).await?.messages.len(), 1);
    let to = wider(&world, 4, &["default", "audit"]).await?;
    assert_eq!(move_all(&orders, "default", &to).await?.waiting, 2);
    assert_eq!(held(&world, &to, "audit").await?, PartitionStats::default());
    assert_eq!(orders.stats().await?.in_flight, 1);
    owner.settle(&acks(&["m000000"])?).await?;
    assert_eq!(orders.stats().await?.in_flight, 0);
    assert_eq!(move_all(&orders, "audit", &to).await?.waiting, 3);
    assert_eq!((held(&world, &to, "default").await?.ready, held(&world, &to, "audit").await?.ready), (2, 3));
    Ok(())
}

pub(super) async fn concurrent_moves_duplicate_nothing(world: World) -> Result<()> {
    const MANY: usize = 4 * RECOVER_IDS_MAX + 1;
    let orders = world.topic("orders").await?;
    orders.push_many("m", MANY).await?;
    let to = wider(&world, 8, &["default"]).await?;
    // Somebody has one of them already.
    let there = orders.message("m000007", 0)?;
    let partition = to.partition_of("m000007");
    let call = crate::support::new_call(&*world.store.backend, 1);
    world.store.messages.push(&to, partition, &call, Conflict::Keep, &[there]).await?;
    let moves = (0..3).map(|_| move_all(&orders, "default", &to));
    futures_util::future::try_join_all(moves).await?;
    assert_eq!(orders.stats().await?.ready, 0);
    assert_eq!(held(&world, &to, "default").await?.ready, MANY as u64);
    Ok(())
}

pub(super) async fn move_to_a_changed_topic_is_refused_and_resumable(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 3).await?;
    let to = wider(&world, 2, &["default"]).await?;
    world.store.topics.delete(&to).await?;
    world.pass(1);
    assert_eq!(
        kind_of(orders.store.maintenance.move_page(&orders.descriptor, &orders.group_partition(), &to).await),
        Some(Kind::Stale)
    );
    let to = wider(&world, 2, &["default"]).await?;
    move_all(&orders, "default", &to).await?;
    assert_eq!((orders.stats().await?.ready, held(&world, &to, "default").await?.ready), (0, 3));
    Ok(())
}
