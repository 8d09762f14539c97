//! Paused keys: what a reservation by key takes of them.

use std::time::Duration;

use dwell::model::error::{Kind, Result};
use dwell::model::limits::DUE_LOOKED_AT_MAX;
use dwell::model::message::{GroupName, Key};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::store::{KeyPause, PausedKey};

use super::audited;
use super::sorted::{keyed, of};
use crate::support::{TestTopic, World, acks, ids_of, kind_of, new_call, up_to};

const MS: Duration = Duration::from_millis(1);

async fn pause(orders: &TestTopic, group: &str, key: &str, until: Option<Timestamp>) -> Result<()> {
    let pause = KeyPause { group: GroupName::new(group)?, key: Key::new(key)?, until };
    let call = new_call(&*orders.store.backend, 1);
    orders.store.messages.pause_key(&orders.descriptor, Partition(0), &call, &pause).await
}

async fn push(orders: &TestTopic, ids: &[&str]) -> Result<()> {
    let message = |id: &&str| keyed(orders, id, Some(&id[..1]).filter(|key| *key != "-"), 0);
    orders.push_all(&ids.iter().map(message).collect::<Result<Vec<_>>>()?).await.map(drop)
}

fn paused(key: &str, until: Timestamp) -> Result<PausedKey> {
    Ok(PausedKey { key: Key::new(key)?, until })
}

pub(super) async fn messages_of_a_paused_key_are_sorted_and_not_taken(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    push(&orders, &["a1", "a2", "b1", "-1"]).await?;
    let until = world.now().plus(MS * 1_000);
    pause(&orders, "default", "a", Some(until)).await?;
    let taken = owner.reserve_by_key(up_to(9), &[], Some(2)).await?;
    assert_eq!((ids_of(&taken.messages), taken.sorted), (vec!["-1", "b1"], vec![of(Some("a"), 2)?]));
    assert_eq!((taken.paused, taken.dropped, taken.unsettled), (vec![paused("a", until)?], 0, 2));
    // Neither those that are sorted, nor those that come later.
    world.pass(999);
    push(&orders, &["a3", "b2"]).await?;
    let taken = owner.reserve_by_key(up_to(9), &[], Some(2)).await?;
    assert_eq!((ids_of(&taken.messages), taken.sorted), (vec!["b2"], vec![of(Some("a"), 3)?]));
    assert_eq!(taken.paused, [paused("a", until)?]);
    let taken = owner.reserve_by_key(up_to(9), &[of(Some("a"), 5)?], Some(2)).await?;
    assert_eq!((taken.messages.len(), taken.sorted_left), (0, vec![3]));
    assert_eq!((taken.sorted.len(), taken.paused), (0, vec![paused("a", until)?]));
    world.pass(1);
    let taken = owner.reserve_by_key(up_to(9), &[of(Some("a"), 5)?], Some(2)).await?;
    assert_eq!((ids_of(&taken.messages), taken.sorted_left, taken.paused), (vec!["a1", "a2", "a3"], vec![0], vec![]));
    assert_eq!(audited(&orders, true).await?.1, []);
    Ok(())
}

pub(super) async fn the_last_pause_of_a_key_counts(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let (mut owner, now) = (orders.owner().await?, world.now());
    let listed = async |group: &str, limit| orders.store.reads.paused_keys(&orders.partition_of(group)?, limit).await;
    push(&orders, &["a1", "b1", "c1"]).await?;
    for (key, ms) in [("a", 500), ("b", 300), ("c", 400), ("a", 200), ("b", 600)] {
        pause(&orders, "default", key, Some(now.plus(MS * ms))).await?;
    }
    pause(&orders, "audit", "a", Some(now.plus(MS * 900))).await?;
    let (a, b, c) =
        (paused("a", now.plus(MS * 200))?, paused("b", now.plus(MS * 600))?, paused("c", now.plus(MS * 400))?);
    assert_eq!(listed("default", 9).await?, (3, vec![a.clone(), c.clone(), b.clone()]));
    assert_eq!(listed("default", 1).await?, (3, vec![a]));
    assert_eq!(listed("audit", 9).await?, (1, vec![paused("a", now.plus(MS * 900))?]));
    pause(&orders, "default", "c", None).await?;
    pause(&orders, "default", "x", None).await?;
    let taken = owner.reserve_by_key(up_to(9), &[], Some(2)).await?;
    assert_eq!(ids_of(&taken.messages), ["c1"]);
    world.pass(200);
    assert_eq!(listed("default", 9).await?, (1, vec![b]));
    let asked = [of(Some("a"), 1)?, of(Some("b"), 1)?];
    let taken = owner.reserve_by_key(up_to(9), &asked, Some(2)).await?;
    assert_eq!((ids_of(&taken.messages), taken.sorted_left), (vec!["a1"], vec![0, 1]));
    // A time that has come pauses nothing.
    pause(&orders, "default", "b", Some(world.now())).await?;
    let taken = owner.reserve_by_key(up_to(9), &asked, Some(2)).await?;
    assert_eq!((ids_of(&taken.messages), taken.sorted_left), (vec!["b1"], vec![0, 0]));
    Ok(())
}

/// In a group that is not fair no pause counts, also for what was sorted before.
pub(super) async fn a_reservation_without_a_share_knows_no_pause(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    push(&orders, &["a1"]).await?;
    pause(&orders, "default", "a", Some(world.now().plus(MS * 1_000))).await?;
    owner.reserve_by_key(up_to(9), &[], Some(2)).await?;
    push(&orders, &["a2"]).await?;
    let taken = owner.reserve_by_key(up_to(9), &[of(Some("a"), 9)?], None).await?;
    assert_eq!((ids_of(&taken.messages), taken.paused), (vec!["a1", "a2"], vec![]));
    push(&orders, &["a3"]).await?;
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["a3"]);
    Ok(())
}

/// A backlog of a paused key does not hide others.
pub(super) async fn a_backlog_of_a_paused_key_is_sorted_page_by_page(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    let ids: Vec<String> = (0..3 * DUE_LOOKED_AT_MAX).map(|n| format!("a{n:05}")).collect();
    for page in ids.chunks(500) {
        push(&orders, &page.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    }
    world.pass(1);
    push(&orders, &["b1"]).await?;
    pause(&orders, "default", "a", Some(world.now().plus(MS * 9_000))).await?;
    let taken = owner.reserve_by_key(up_to(900), &[], Some(400)).await?;
    assert_eq!(ids_of(&taken.messages), ["b1"]);
    owner.reserve_by_key(up_to(900), &[], Some(400)).await?;
    world.pass(9_000);
    let mut got = 0;
    while got < ids.len() {
        let taken = owner.reserve_by_key(up_to(500), &[of(Some("a"), 500)?], Some(400)).await?;
        assert!(!taken.messages.is_empty());
        got += taken.messages.len();
    }
    assert_eq!(got, ids.len());
    Ok(())
}

pub(super) async fn pauses_go_with_their_group_and_topic(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let until = Some(world.now().plus(MS * 9_000));
    for group in ["default", "audit"] {
        pause(&orders, group, "a", until).await?;
    }
    let partition = orders.partition_of("audit")?;
    let mut wanted = orders.descriptor.clone();
    wanted.groups.retain(|group| group.as_str() != "audit");
    let older = world.existing(world.store.topics.update(&wanted).await?);
    let mut wanted = older.descriptor.clone();
    wanted.groups.push(GroupName::new("audit")?);
    let orders = world.existing(world.store.topics.update(&wanted).await?);
    assert_eq!(orders.store.reads.paused_keys(&partition, 9).await?, (0, vec![]));
    assert_eq!(orders.store.reads.paused_keys(&orders.group_partition(), 9).await?.0, 1);
    assert_eq!(kind_of(pause(&older, "default", "b", until).await), Some(Kind::Stale));
    orders.store.topics.delete(&orders.descriptor).await?;
    world.pass(1);
    let orders = world.topic("orders").await?;
    assert_eq!(orders.store.reads.paused_keys(&orders.group_partition(), 9).await?, (0, vec![]));
    push(&orders, &["a1"]).await?;
    let mut owner = orders.owner().await?;
    assert_eq!(ids_of(&owner.reserve_by_key(up_to(9), &[], Some(2)).await?.messages), ["a1"]);
    owner.settle(&acks(&["a1"])?).await
}
