//! What only the embedded store promises: one process, one directory, and what a reopened one still knows.

use dwell::store::{Backend as _, Leases as _, Messages as _, Reads as _, Topics as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::{CALL_IDS_MAX, ID_BYTES_MAX, PAYLOAD_BYTES_MAX, TOPICS_MAX};
use dwell::model::message::{Conflict, Due, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::{Descriptor, Settings};
use dwell::platform::clock::Clock;
use dwell::store::embedded::Embedded;
use dwell::store::{Acquired, PartitionStats, Pushed, Settlement};
use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use tokio::sync::Notify;

use crate::support::{LEASE, World, acks, buries, failed, ids, ids_of, kind_of, member, scratch, up_to};

#[tokio::test]
async fn a_directory_in_use_is_refused_with_a_clear_error() -> Result<()> {
    let dir = scratch()?;
    let _first = Embedded::open(dir.path(), Clock::System)?;
    let second = Embedded::open(dir.path(), Clock::System).map(|_| ());
    let error = second.err().ok_or_else(|| Error::bug("two stores in one directory"))?;
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.detail().contains("another dwell uses") && error.detail().contains("--data-dir"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_closed_store_can_be_opened_again_at_once() -> Result<()> {
    let mut world = World::embedded().await?;
    for round in 0..15 {
        world.topic("orders").await?.push(&round.to_string(), 0).await?;
        world = world.reopened().await?;
    }
    assert_eq!(world.topic("orders").await?.stats().await?.ready, 15);
    Ok(())
}

#[tokio::test]
async fn reopened_store_keeps_everything_but_leases() -> Result<()> {
    let world = World::embedded().await?;
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    orders.push_many("m", 5).await?;
    orders.push("later", 70).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(4)).await?;
    let mut settlement = buries(taken.reservation, &["m000000"], &["m000002", "m000003"])?;
    settlement.acked = ids(&["m000001"])?;
    settlement.dedup_window = Duration::from_secs(60);
    owner.settle(&settlement).await?;
    let (before, epoch) = (orders.stats().await?, owner.epoch().number());
    assert_eq!(world.store.backend.store_id("first").await?, "first");
    let descriptor = orders.descriptor.clone();
    drop((owner, orders));

    let world = world.reopened().await?;
    assert_eq!(world.store.backend.store_id("second").await?, "first");
    assert_eq!(world.store.topics.topic(&descriptor.topic).await?.as_ref(), Some(&descriptor));
    let orders = world.existing(descriptor);
    assert_eq!(orders.stats().await?, PartitionStats { owner: None, ..before });
    assert_eq!(orders.stats_of(&orders.partition_of("audit")?).await?.ready, 5);
    for id in ["m000000", "m000001", "m000002", "later"] {
        assert_eq!(orders.push(id, 0).await?, Pushed::Duplicate, "{id}");
    }
    let mut owner = orders.acquire(&orders.group_partition(), &member("other"), LEASE).await?;
    assert!(owner.epoch().number() > epoch);
    assert_eq!(orders.recover(&mut owner).await?, 2);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["m000002", "m000003", "m000004"]);
    Ok(())
}

#[tokio::test]
async fn only_an_earlier_head_wakes() -> Result<()> {
    let world = World::embedded().await?;
    let orders = world.topic("orders").await?;
    let notify = Arc::new(Notify::new());
    let _wake =
        orders.store.backend.wakes().subscribe(dwell::store::Channel::head(&orders.group_partition()), notify.clone());
    let woken = || notify.notified().now_or_never().is_some();
    for (id, delay, wakes) in [("a", 100, true), ("a", 1, false), ("b", 100, false), ("c", 200, false), ("d", 99, true)]
    {
        orders.push(id, delay).await?;
        assert_eq!(woken(), wakes, "{id}");
    }
    Ok(())
}

#[tokio::test]
async fn rejoined_group_holds_nothing() -> Result<()> {
    let world = World::embedded().await?;
    let both = world.topic_with_groups("orders", &["default", "audit"]).await?;
    both.push("a", 0).await?;
    let audit = both.partition_of("audit")?;
    let mut auditor = both.acquire(&audit, &member("auditor"), LEASE).await?;
    let mut wanted = both.descriptor.clone();
    wanted.groups = vec![GroupName::standard()];
    let mut wanted = world.store.topics.update(&wanted).await?;
    assert_eq!(kind_of(auditor.reserve(up_to(1)).await), Some(Kind::Stale));
    wanted.groups = both.descriptor.groups.clone();
    let again = world.existing(world.store.topics.update(&wanted).await?);
    assert_eq!(again.stats_of(&audit).await?, PartitionStats::default());
    assert_eq!(again.stats().await?.ready, 1);
    let descriptor = again.descriptor.clone();
    drop((both, again, auditor));
    let world = world.reopened().await?;
    assert_eq!(world.existing(descriptor).stats_of(&audit).await?, PartitionStats::default());
    Ok(())
}

/// sled never fsyncs the files that it makes for large leaves, so there must not be any.
#[tokio::test]
async fn large_values_stay_in_the_synced_file() -> Result<()> {
    let world = World::embedded().await?;
    let orders = world.topic("orders").await?;
    let long = |n: usize| format!("{n:0ID_BYTES_MAX$}");
    let all = (0..CALL_IDS_MAX).map(|n| orders.message(&long(n), 0)).collect::<Result<Vec<_>>>()?;
    orders.push_all(&all).await?;
    for n in 0..20 {
        let mut new = NewMessage::new(vec![n; PAYLOAD_BYTES_MAX]);
        new.id = Some(MessageId::new(format!("large{n}"))?);
        orders.push_all(&[new.accept(world.now())?]).await?;
    }
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(CALL_IDS_MAX)).await?;
    let taken = owner.reserve(up_to(CALL_IDS_MAX)).await?;
    owner.settle(&buries(taken.reservation, &ids_of(&taken.messages)[..10], &ids_of(&taken.messages)[10..])?).await?;
    owner = orders.owner().await?;
    assert_eq!(orders.recover(&mut owner).await?, CALL_IDS_MAX + 10);
    drop((orders, owner));
    let blobs = |dir: &Path| Ok(std::fs::read_dir(dir.join("blobs")).map_err(failed("sled's blobs"))?.count());
    assert_eq!(world.reopened_after(blobs).await?.1, 0);
    Ok(())
}

#[tokio::test]
async fn settled_messages_leave_no_keys() -> Result<()> {
    let world = World::embedded().await?;
    world.topic("orders").await?.owner().await?;
    let (mut world, empty) = world.reopened_after(entries).await?;
    for _ in 0..3 {
        let orders = world.topic("orders").await?;
        let mut owner = orders.owner().await?;
        orders.push_many("m", 100).await?;
        let mut new = NewMessage::new(vec![7; PAYLOAD_BYTES_MAX]);
        new.id = Some(MessageId::new("large")?);
        orders.push_all(&[new.accept(world.now())?]).await?;
        let taken = owner.reserve(up_to(101)).await?;
        let all = ids_of(&taken.messages);
        assert_eq!(all.len(), 101);
        owner.settle(&buries(taken.reservation, &all[..50], &all[50..])?).await?;
        owner.settle(&Settlement { remaining: vec![(taken.reservation, vec![])], ..acks(&all[50..])? }).await?;
        orders.store.dead_letters.purge(&orders.group_partition(), &ids(&all[..50])?).await?;
        drop((orders, owner));
        let left;
        (world, left) = world.reopened_after(entries).await?;
        assert_eq!(left, empty);
    }
    Ok(())
}

/// Number of entries in sled's tree.
fn entries(dir: &Path) -> Result<usize> {
    let db = sled::open(dir).map_err(|error| Error::unavailable(error.to_string()))?;
    Ok(db.len())
}

#[tokio::test]
async fn interrupted_deletion_is_finished_at_open() -> Result<()> {
    let (world, empty) = World::embedded().await?.reopened_after(entries).await?;
    let orders = world.topic("orders").await?;
    orders.push_many("m", 5_000).await?;
    // The caller goes away as soon as the topic is gone, while its messages are not.
    let deletion = world.store.topics.delete(&orders.descriptor).now_or_never();
    assert!(deletion.is_none() && world.store.topics.topics().await?.is_empty());
    drop(orders);
    let (world, left) = world.reopened_after(entries).await?;
    assert!(left > 10_000, "{left}");
    // What is left after the store was opened is the tombstone.
    assert_eq!(world.reopened_after(entries).await?.1, empty + 1);
    Ok(())
}

/// The files of a store that was closed with a thousand messages in it, by name.
async fn files_of_a_store() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let world = World::embedded().await?;
    world.topic("orders").await?.push_many("m", 1_000).await?;
    let read = |dir: &Path, name| Ok((name, std::fs::read(dir.join(name)).map_err(failed(name))?));
    let read_all = |dir: &Path| ["db", "conf", "commits"].map(|name| read(dir, name)).into_iter().collect();
    Ok(world.reopened_after(read_all).await?.1)
}

/// What comes of opening a store with such files: the number of its ready messages.
async fn opened_with(files: &[(&str, Vec<u8>)]) -> Result<u64> {
    let dir = scratch()?;
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).map_err(failed(name))?;
    }
    let store = Embedded::open(dir.path(), Clock::System)?;
    let orders = store.topic(&TopicName::new("orders")?).await?.ok_or_else(|| Error::not_found("orders"))?;
    Ok(store.stats(&[orders.group_partition(Partition(0), &GroupName::standard())]).await?[0].ready)
}

#[tokio::test]
async fn damaged_store_is_refused_at_open() -> Result<()> {
    let whole = files_of_a_store().await?;
    assert_eq!(opened_with(&whole).await?, 1_000);
    let size = whole[0].1.len();
    for part in 0..30 {
        let mut damaged = whole.clone();
        damaged[0].1[part * size / 30 + 100] ^= 1 << (part % 8);
        match opened_with(&damaged).await {
            Ok(messages) => assert_eq!(messages, 1_000, "flipped in part {part}"),
            Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "flipped in part {part}: {error}"),
        }
    }
    for end in [0, 1_000, size / 2] {
        let mut cut = whole.clone();
        cut[0].1.truncate(end);
        assert_eq!(kind_of(opened_with(&cut).await), Some(Kind::Corrupt), "cut to {end} bytes");
    }
    Ok(())
}

#[tokio::test]
async fn torn_sled_configuration_loses_nothing() -> Result<()> {
    let whole = files_of_a_store().await?;
    let (name, settings) = &whole[1];
    assert_eq!(*name, "conf");
    for zeros in (0..=settings.len()).step_by(6) {
        let mut torn = whole.clone();
        torn[1].1[..zeros].fill(0);
        assert_eq!(opened_with(&torn).await?, 1_000, "{zeros} bytes of it are zeros");
    }
    Ok(())
}

#[tokio::test]
async fn incomplete_snapshot_loses_nothing() -> Result<()> {
    let mut files = files_of_a_store().await?;
    for bytes in [0, 8, 500] {
        files.push(("snap.FFFFFFFFFFFFFFFF.generating", vec![b'%'; bytes]));
        assert_eq!(opened_with(&files).await?, 1_000, "{bytes} bytes");
        files.pop();
    }
    Ok(())
}

#[tokio::test]
async fn operator_can_accept_a_damaged_store() -> Result<()> {
    let mut files = files_of_a_store().await?;
    let size = files[0].1.len();
    files[0].1.truncate(size / 2);
    let refused = opened_with(&files).await.err();
    assert!(refused.is_some_and(|error| error.detail().contains("/commits accepts that")));
    files.pop();
    assert!(opened_with(&files).await? < 1_000);
    Ok(())
}

#[tokio::test]
async fn topic_limit_is_exact() -> Result<()> {
    let world = World::embedded().await?;
    let name = |n: usize| TopicName::new(format!("topic-{n}"));
    let wanted = |n| Ok(Descriptor::new(name(n)?, Settings::default()));
    let all = (0..TOPICS_MAX).map(wanted).collect::<Result<Vec<_>>>()?;
    let made = join_all(all.iter().map(|wanted| world.store.topics.create(wanted))).await;
    let made = made.into_iter().collect::<Result<Vec<_>>>()?;
    let more = wanted(TOPICS_MAX)?;
    assert_eq!(kind_of(world.store.topics.create(&more).await), Some(Kind::Full));
    assert_eq!(world.store.topics.create(&all[7]).await?, made[7]);
    world.store.topics.delete(&made[7]).await?;
    world.store.topics.create(&more).await?;
    assert_eq!(kind_of(world.store.topics.create(&all[7]).await), Some(Kind::Full));
    Ok(())
}

#[tokio::test]
async fn generation_of_a_deleted_topic_is_not_reused() -> Result<()> {
    let mut world = World::embedded().await?;
    let mut last = 0;
    for _ in 0..5 {
        // The clock stands still, so that only the tombstone knows what comes next.
        let orders = world.topic("orders").await?.descriptor;
        assert!(orders.generation > last);
        last = world.store.topics.update(&orders).await?.generation;
        assert!(last > orders.generation);
        world.store.topics.delete(&orders).await?;
        world = world.reopened().await?;
    }
    Ok(())
}

#[tokio::test]
async fn delay_is_rounded_up_to_a_millisecond() -> Result<()> {
    let dir = scratch()?;
    let store = Embedded::open(dir.path(), Clock::System)?;
    let descriptor = store.create(&Descriptor::new(TopicName::new("orders")?, Settings::default())).await?;
    let partition = descriptor.group_partition(Partition(0), &GroupName::standard());
    let acquired = store.acquire(&partition, &member("owner"), LEASE, descriptor.generation).await?;
    let Acquired::Owned(mut owner) = acquired else { return Err(Error::bug("the partition is not free")) };
    let delay = Duration::from_millis(3);
    for _ in 0..20 {
        let began = Clock::System.instant();
        let mut message = NewMessage::new("a");
        message.due = Due::In(delay);
        let message = message.accept(store.clock().now())?;
        let call = crate::support::new_call(&store, 1);
        let push = store.push(&descriptor, Partition(0), &call, Conflict::Keep, std::slice::from_ref(&message));
        let reserve = async {
            while owner.reserve(up_to(1)).await?.messages.is_empty() {}
            Ok::<_, Error>(Clock::System.instant().since(began))
        };
        let (pushed, took) = join(push, reserve).await;
        pushed?;
        let took = took?;
        assert!(took >= delay, "{took:?}");
    }
    Ok(())
}
