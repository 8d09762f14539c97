use std::collections::BTreeSet;
use std::time::Duration;

use dwell::model::error::{Kind, Result};
use dwell::model::message::{GroupName, MessageId};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::store::{Claim, CopyCursor, PartitionStats, Pushed, Renewal, Retried};

use crate::support::{LEASE, TestTopic, World, acks, buries, ids_of, kind_of, member, retries, up_to};

const AUDIT: &str = "audit";

/// The topic with the group `audit` beside those it has, perhaps a copy of `default`.
async fn with_audit(world: &World, topic: &TestTopic, copy: bool) -> Result<TestTopic> {
    let audit = GroupName::new(AUDIT)?;
    let mut wanted = topic.descriptor.clone();
    wanted.groups.push(audit.clone());
    wanted.subscription_mut(&audit).copy_of = copy.then(GroupName::standard);
    Ok(world.existing(world.store.topics.update(&wanted).await?))
}

async fn without_audit(world: &World, topic: &TestTopic) -> Result<TestTopic> {
    let mut wanted = topic.descriptor.clone();
    wanted.groups.retain(|group| group.as_str() != AUDIT);
    Ok(world.existing(world.store.topics.update(&wanted).await?))
}

/// The topic whose copy is done.
async fn done(world: &World, topic: &TestTopic) -> Result<TestTopic> {
    let mut wanted = topic.descriptor.clone();
    wanted.subscription_mut(&GroupName::new(AUDIT)?).copy_of = None;
    Ok(world.existing(world.store.topics.update(&wanted).await?))
}

async fn copy_page(topic: &TestTopic, from: Option<CopyCursor>) -> Result<(usize, Option<CopyCursor>)> {
    let copied = topic.store.maintenance.copy(&topic.descriptor, Partition(0), &GroupName::new(AUDIT)?, from).await?;
    Ok((copied.messages, copied.next))
}

/// Copies all pages from one on, and answers how many messages that were.
async fn copy_from(topic: &TestTopic, mut from: Option<CopyCursor>) -> Result<usize> {
    let mut messages = 0;
    loop {
        let (copied, next) = copy_page(topic, from).await?;
        messages += copied;
        from = next;
        if from.is_none() {
            return Ok(messages);
        }
    }
}

pub(super) async fn deleted_group_is_removed_with_its_messages(world: World) -> Result<()> {
    let orders = with_audit(&world, &world.topic("orders").await?, false).await?;
    orders.push_many("m", 1_100).await?;
    let partition = orders.partition_of(AUDIT)?;
    let mut auditor = orders.acquire(&partition, &member("auditor"), LEASE).await?;
    let reserved = auditor.reserve(up_to(3)).await?;
    auditor.settle(&buries(reserved.reservation, &["m000000"], &["m000001", "m000002"])?).await?;
    let claim = Claim { group_partition: partition.clone(), epoch: auditor.epoch().clone() };
    let left = without_audit(&world, &orders).await?;
    assert!(left.descriptor.leaving.is_empty() && left.descriptor.generation > orders.descriptor.generation);
    assert_eq!(left.stats_of(&partition).await?, PartitionStats::default());
    assert_eq!(kind_of(auditor.settle(&acks(&["m000001"])?).await), Some(Kind::Stale));
    assert_eq!(kind_of(orders.acquire(&partition, &member("auditor"), LEASE).await), Some(Kind::Stale));
    let renewed = world.store.leases.renew(&member("auditor"), &[claim], LEASE).await.pop();
    assert!(matches!(renewed, Some(Ok(Renewal::Lost { .. }))), "{renewed:?}");
    // The other group has lost nothing, and pushes go on.
    assert_eq!(kind_of(orders.push("late", 0).await), Some(Kind::Stale));
    assert_eq!(left.push("late", 0).await?, Pushed::Stored);
    assert_eq!((left.stats().await?.ready, left.stats_of(&partition).await?.ready), (1_101, 0));
    Ok(())
}

pub(super) async fn recreated_group_is_a_new_group(world: World) -> Result<()> {
    let first = with_audit(&world, &world.topic("orders").await?, false).await?;
    let audit = GroupName::new(AUDIT)?;
    first.push("a", 0).await?;
    let mut old = first.acquire(&first.partition_of(AUDIT)?, &member("auditor"), LEASE).await?;
    old.reserve(up_to(1)).await?;
    let again = with_audit(&world, &without_audit(&world, &first).await?, false).await?;
    assert!(!again.descriptor.has_same(&first.descriptor, &audit));
    assert!(again.descriptor.has_same(&first.descriptor, &GroupName::standard()));
    assert_eq!(kind_of(old.settle(&acks(&["a"])?).await), Some(Kind::Stale));
    let mut new = again.acquire(&again.partition_of(AUDIT)?, &member("auditor"), LEASE).await?;
    assert_eq!(again.recover(&mut new).await?, 0);
    again.push("b", 0).await?;
    assert_eq!(ids_of(&new.reserve(up_to(9)).await?.messages), ["b"]);
    Ok(())
}

pub(super) async fn descriptor_is_published_unless_older(world: World) -> Result<()> {
    let old = world.topic("orders").await?;
    world.store.topics.publish_descriptor(&old.descriptor).await?;
    let new = with_audit(&world, &old, false).await?;
    world.store.topics.publish_descriptor(&new.descriptor).await?;
    assert_eq!(kind_of(world.store.topics.publish_descriptor(&old.descriptor).await), Some(Kind::Stale));
    assert_eq!(new.push("a", 0).await?, Pushed::Stored);
    world.store.topics.delete(&new.descriptor).await?;
    assert_eq!(kind_of(world.store.topics.publish_descriptor(&new.descriptor).await), Some(Kind::Stale));
    Ok(())
}

pub(super) async fn copied_group_has_the_messages_of_its_source(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for (id, delay) in [("acked", 0), ("dead", 0), ("out", 0), ("retried", 0), ("ready", 20), ("later", 5_000)] {
        orders.push(id, delay).await?;
    }
    let began = world.now();
    let mut owner = orders.owner().await?;
    let reserved = owner.reserve(up_to(4)).await?;
    let retried =
        Retried { id: MessageId::new("retried")?, next_at: world.now().plus(LEASE), attempts: 1, failure: None };
    owner.settle(&retries(reserved.reservation, retried, &["acked", "dead", "out"])?).await?;
    owner.settle(&buries(reserved.reservation, &["dead"], &["acked", "out"])?).await?;
    owner.settle(&acks(&["acked"])?).await?;
    world.pass(30);
    let copy = with_audit(&world, &orders, true).await?;
    copy.push("new", 0).await?;
    assert_eq!(copy_from(&copy, None).await?, 4);
    let copy = done(&world, &copy).await?;
    let mut auditor = copy.acquire(&copy.partition_of(AUDIT)?, &member("auditor"), LEASE).await?;
    let due =
        |message: &dwell::store::ReservedMessage| (message.id.as_str().to_owned(), message.ready_at, message.attempts);
    let at = |ms: u64| began.plus(Duration::from_millis(ms));
    let expected = |id: &str, at: Timestamp| (id.to_owned(), at, 0);
    let ready: Vec<_> = auditor.reserve(up_to(9)).await?.messages.iter().map(due).collect();
    assert_eq!(
        ready,
        [expected("out", at(0)), expected("retried", at(0)), expected("ready", at(20)), expected("new", at(30))]
    );
    world.pass(5_000);
    let later = auditor.reserve(up_to(9)).await?.messages;
    assert_eq!(later.iter().map(due).collect::<Vec<_>>(), [expected("later", at(5_000))]);
    assert_eq!(later[0].message.as_ref().map(|m| m.envelope.payload.clone()), Ok("later".into()));
    // The source has what it had.
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["ready", "new", "later"]);
    Ok(())
}

pub(super) async fn restarted_copy_duplicates_nothing(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 1_500).await?;
    let mut owner = orders.owner().await?;
    let copy = with_audit(&world, &orders, true).await?;
    // Cut short after some pages; meanwhile the source goes on.
    let (mut copied, mut from) = copy_page(&copy, None).await?;
    while copied < 100 {
        let (more, next) = copy_page(&copy, from).await?;
        (copied, from) = (copied + more, next);
    }
    copy.push_many("n", 300).await?;
    let reserved = owner.reserve(up_to(200)).await?;
    let (some, rest) = reserved.messages.split_at(50);
    let gone: BTreeSet<String> = ids_of(some).into_iter().map(str::to_owned).collect();
    owner.settle(&acks(&ids_of(some))?).await?;
    assert_eq!(rest.len(), 150);
    // Begun again by someone, and gone on with by someone else.
    let again = copy_from(&copy, None).await?;
    assert_eq!(copy_from(&copy, from).await?, 0);
    let audit = copy.stats_of(&copy.partition_of(AUDIT)?).await?;
    assert_eq!(audit.ready, (copied + again + 300) as u64);
    // What the source had settled before the copy came to it need not be there; everything else is, once.
    let copy = done(&world, &copy).await?;
    let mut auditor = copy.acquire(&copy.partition_of(AUDIT)?, &member("auditor"), LEASE).await?;
    let mut seen = BTreeSet::new();
    loop {
        let page = auditor.reserve(up_to(1_000)).await?.messages;
        if page.is_empty() {
            break;
        }
        for message in &page {
            assert!(seen.insert(message.id.as_str().to_owned()), "{} came twice", message.id);
        }
        auditor.settle(&acks(&ids_of(&page))?).await?;
    }
    let all = (0..1_500).map(|n| format!("m{n:06}")).chain((0..300).map(|n| format!("n{n:06}")));
    let missing: Vec<_> = all.filter(|id| !seen.contains(id) && !gone.contains(id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    Ok(())
}

pub(super) async fn finished_copy_copies_nothing_more(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let copy = with_audit(&world, &orders, true).await?;
    assert_eq!(copy_from(&copy, None).await?, 1);
    let finished = done(&world, &copy).await?;
    let mut auditor = finished.acquire(&finished.partition_of(AUDIT)?, &member("auditor"), LEASE).await?;
    auditor.reserve(up_to(1)).await?;
    auditor.settle(&acks(&["a"])?).await?;
    // A page that was stuck on the way brings nothing back: not to this group, nor to another one of the name.
    assert_eq!(kind_of(copy_page(&copy, None).await), Some(Kind::Stale));
    let again = with_audit(&world, &without_audit(&world, &finished).await?, false).await?;
    assert_eq!(kind_of(copy_page(&copy, None).await), Some(Kind::Stale));
    assert_eq!(again.stats_of(&again.partition_of(AUDIT)?).await?, PartitionStats::default());
    let copied_again = with_audit(&world, &without_audit(&world, &again).await?, true).await?;
    assert_eq!(kind_of(copy_page(&copy, None).await), Some(Kind::Stale));
    assert_eq!(copy_from(&copied_again, None).await?, 1);
    Ok(())
}
