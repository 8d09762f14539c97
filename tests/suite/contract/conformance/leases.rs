use std::time::Duration;

use dwell::model::error::{Kind, Result};
use dwell::model::message::MessageId;
use dwell::model::time::Timestamp;
use dwell::store::{Acquired, Charge, Claim, Epoch, HeadState, Owner, Renewal};
use futures_util::future::{join, join_all};

use crate::support::{LEASE, TestTopic, World, acks, eventually, ids_of, kind_of, member, up_to};

/// Short enough to see it lapse in real time.
const SHORT: Duration = Duration::from_millis(60);

pub(super) async fn every_acquire_starts_a_new_epoch(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let first = orders.owner().await?;
    let second = orders.owner().await?;
    assert!(second.epoch().number() > first.epoch().number());
    second.release(Timestamp::ZERO).await?;
    let third = orders.acquire(&orders.group_partition(), &member("other"), LEASE).await?;
    assert!(third.epoch().number() > first.epoch().number() + 1);
    Ok(())
}

pub(super) async fn a_held_lease_is_refused_and_names_its_holder(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let mut owner = orders.owner().await?;
    let refused = orders
        .store
        .leases
        .acquire(&orders.group_partition(), &member("other"), LEASE, orders.descriptor.generation)
        .await?;
    let still = LEASE / 2..=LEASE;
    assert!(
        matches!(&refused, Acquired::Held { by, expires_in } if *by == member("owner") && still.contains(expires_in))
    );
    owner.reserve(up_to(1)).await?;
    // Each group has leases of its own.
    orders.acquire(&orders.partition_of("audit")?, &member("other"), LEASE).await?;
    assert_eq!(orders.stats().await?.owner, Some(member("owner")));
    Ok(())
}

pub(super) async fn next_owner_learns_when_the_last_delivery_was(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let owner = orders.owner().await?;
    assert_eq!(owner.last_delivery(), Timestamp::ZERO, "there was none");
    let last = world.now().minus(Duration::from_secs(9));
    owner.release(last).await?;
    let owner = orders.owner().await?;
    assert_eq!(owner.last_delivery(), last);
    owner.release(last).await?;
    let before = world.now();
    drop(orders.owner().await?);
    // It was not released, so that nobody knows.
    let owner = orders.owner().await?;
    assert!(owner.last_delivery() >= before, "{} before {before}", owner.last_delivery());
    Ok(())
}

pub(super) async fn released_partition_is_free_immediately(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let owner = orders.owner().await?;
    let claim = Claim { group_partition: orders.group_partition(), epoch: owner.epoch().clone() };
    owner.release(Timestamp::ZERO).await?;
    assert_eq!(orders.stats().await?.owner, None);
    let renewed = orders.store.leases.renew(&member("owner"), std::slice::from_ref(&claim), LEASE).await;
    assert_eq!(renewed, [Ok(Renewal::Lost { by: None })]);
    orders.acquire(&orders.group_partition(), &member("other"), LEASE).await?;
    let renewed = orders.store.leases.renew(&member("owner"), &[claim], LEASE).await;
    assert_eq!(renewed, [Ok(Renewal::Lost { by: Some(member("other")) })]);
    Ok(())
}

/// Also when the owner gives it up just then.
pub(super) async fn racing_acquires_succeed_or_name_the_holder(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (partition, generation) = (orders.group_partition(), orders.descriptor.generation);
    let racers: Vec<_> = (0..8).map(|n| member(&format!("racer-{n}"))).collect();
    for _ in 0..20 {
        let owner = orders.owner().await?;
        let race = racers.iter().map(|racer| orders.store.leases.acquire(&partition, racer, LEASE, generation));
        let (results, released) = join(join_all(race), owner.release(Timestamp::ZERO)).await;
        released?;
        let mut winners = Vec::new();
        for result in results {
            match result? {
                Acquired::Owned(winner) => winners.push(winner),
                Acquired::Held { by, .. } => assert!(by == member("owner") || racers.contains(&by), "{by}"),
            }
        }
        assert!(winners.len() <= 1);
        for winner in winners {
            winner.release(Timestamp::ZERO).await?;
        }
    }
    Ok(())
}

pub(super) async fn every_call_of_an_older_epoch_is_refused(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 0)?]).await?;
    let mut old = orders.owner().await?;
    old.reserve(up_to(1)).await?;
    let mut new = orders.owner().await?;
    let before = orders.stats().await?;
    assert_eq!(kind_of(old.recover().await), Some(Kind::Stale));
    assert_eq!(kind_of(old.reserve(up_to(9)).await), Some(Kind::Stale));
    assert_eq!(kind_of(old.settle(&acks(&["a"])?).await), Some(Kind::Stale));
    assert_eq!(kind_of(old.start(&[Charge { id: MessageId::new("a")?, attempts: 9 }]).await), Some(Kind::Stale));
    assert_eq!(kind_of(old.release(Timestamp::ZERO).await), Some(Kind::Stale));
    assert_eq!(orders.stats().await?, before);
    assert_eq!(orders.recover(&mut new).await?, 1);
    assert_eq!(orders.peek("a").await?.map(|a| a.attempts), Some(1));
    assert_eq!(new.reserve(up_to(9)).await?.messages.len(), 2);
    Ok(())
}

pub(super) async fn expired_lease_is_free(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut late = orders.acquire(&orders.group_partition(), &member("late"), SHORT).await?;
    late.reserve(up_to(1)).await?;
    world.time.advance(SHORT);
    let mut owner = free(&orders).await?;
    let lost = orders.renew(&member("late"), &*late, LEASE).await?;
    assert_eq!(lost, Renewal::Lost { by: Some(member("owner")) });
    assert_eq!(kind_of(late.settle(&acks(&["a"])?).await), Some(Kind::Stale));
    assert_eq!(orders.recover(&mut owner).await?, 1);
    Ok(())
}

/// The partition for the member `owner`, once it is free.
async fn free(orders: &TestTopic) -> Result<Box<dyn Owner>> {
    let (partition, owner, generation) = (orders.group_partition(), member("owner"), orders.descriptor.generation);
    eventually("the lease lapses", async || {
        match orders.store.leases.acquire(&partition, &owner, LEASE, generation).await? {
            Acquired::Owned(owner) => Ok(Some(owner)),
            Acquired::Held { .. } => Ok(None),
        }
    })
    .await
}

pub(super) async fn expired_and_untaken_lease_is_resumed(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 0)?]).await?;
    let mut owner = orders.acquire(&orders.group_partition(), &member("owner"), SHORT).await?;
    owner.reserve(up_to(1)).await?;
    world.time.advance(SHORT);
    eventually("the lease lapses", async || Ok(orders.stats().await?.owner.is_none().then_some(()))).await?;
    assert!(matches!(orders.renew(&member("owner"), &*owner, LEASE).await?, Renewal::Kept(_)));
    assert_eq!(orders.stats().await?.owner, Some(member("owner")));
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["b"]);
    Ok(())
}

pub(super) async fn renew_returns_a_result_per_claim(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit", "billing"]).await?;
    let mut claims = Vec::new();
    for group in ["default", "audit", "billing"] {
        let partition = orders.partition_of(group)?;
        let epoch = orders.acquire(&partition, &member("owner"), LEASE).await?.epoch().clone();
        claims.push(Claim { group_partition: partition, epoch });
    }
    orders.acquire(&claims[0].group_partition, &member("owner"), LEASE).await?;
    claims[1].epoch = Epoch::after(claims[1].epoch.number() - 1);
    let renewed = orders.store.leases.renew(&member("owner"), &claims, LEASE).await;
    let kept: Vec<_> = renewed.iter().map(|answer| matches!(answer, Ok(Renewal::Kept(_)))).collect();
    assert_eq!(kept, [false, false, true], "{renewed:?}");
    // Nobody renews for another member.
    let other = orders.store.leases.renew(&member("other"), &claims[2..], LEASE).await;
    assert_eq!(other, [Ok(Renewal::Lost { by: Some(member("owner")) })]);
    Ok(())
}

pub(super) async fn renew_returns_head_and_generation(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let owner = orders.owner().await?;
    let renewed = async || orders.renew(&member("owner"), &*owner, LEASE).await;
    let generation = orders.descriptor.generation;
    assert_eq!(renewed().await?, Renewal::Kept(HeadState { head: None, generation, is_moving: false }));
    orders.push("a", 70).await?;
    let head = Some(world.now().plus(Duration::from_millis(70)));
    assert_eq!(renewed().await?, Renewal::Kept(HeadState { head, generation, is_moving: false }));
    let generation = orders.store.topics.update(&orders.descriptor).await?.generation;
    assert_eq!(renewed().await?, Renewal::Kept(HeadState { head, generation, is_moving: false }));
    Ok(())
}
