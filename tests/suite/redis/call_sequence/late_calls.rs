//! A copy of a call arrives long after the call was answered: it is without effect.

use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::message::MessageId;
use dwell::model::time::Timestamp;
use dwell::store::{Charge, Retried, Settlement};

use super::OrderedTopics;
use crate::support::{LEASE, Strike, acks, eventually, ids_of, member, retries, up_to};

#[tokio::test]
async fn late_reserve_call_takes_no_message() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a", "b"]).await?;
    let mut owner = behind.orders.owner().await?;
    behind.proxy.next(Strike::Copy);
    let taken = owner.reserve(up_to(1)).await?;
    let late = behind.proxy.struck()?;
    // The very next call of the sequence may still be this one, repeated: it reads the same reservation again.
    let answer = behind.without_effect(&late).await?;
    assert!(answer.contains("OK") && answer.contains("\r\na\r\n") && !answer.contains("\r\nb\r\n"), "{answer:?}");
    owner.settle(&Settlement { remaining: vec![(taken.reservation, vec![])], ..acks(&["a"])? }).await?;
    assert!(behind.without_effect(&late).await?.contains("LATE"));
    let mut next = behind.orders.owner().await?;
    assert!(behind.without_effect(&late).await?.contains("STALE"));
    assert_eq!(ids_of(&next.reserve(up_to(9)).await?.messages), ["b"]);
    Ok(())
}

#[tokio::test]
async fn a_late_settlement_decides_nothing() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a"]).await?;
    let mut owner = behind.orders.owner().await?;
    let first = owner.reserve(up_to(9)).await?.reservation;
    let again = Retried { id: MessageId::new("a")?, next_at: behind.world.now(), attempts: 1, failure: None };
    behind.proxy.next(Strike::Copy);
    owner.settle(&retries(first, again, &[])?).await?;
    let nack = behind.proxy.struck()?;
    assert!(behind.without_effect(&nack).await?.contains("OK"));
    let second = owner.reserve(up_to(9)).await?.reservation;
    // Applied again it would put the id into the zset while it is in a reservation.
    assert!(behind.without_effect(&nack).await?.contains("LATE"));
    behind.proxy.next(Strike::Copy);
    owner.settle(&Settlement { remaining: vec![(second, vec![])], ..acks(&["a"])? }).await?;
    let ack = behind.proxy.struck()?;
    // The same id, pushed anew: the ack of the old one must not take its body.
    behind.push(&["a"]).await?;
    let mut next = behind.orders.owner().await?;
    for late in [nack, ack] {
        assert!(behind.without_effect(&late).await?.contains("STALE"));
    }
    assert_eq!(ids_of(&next.reserve(up_to(9)).await?.messages), ["a"]);
    Ok(())
}

#[tokio::test]
async fn late_start_recover_and_repair_calls_change_nothing() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a", "b"]).await?;
    behind.orders.owner().await?.reserve(up_to(1)).await?;
    let mut owner = behind.orders.owner().await?;
    behind.proxy.next(Strike::Copy);
    owner.recover().await?;
    let recover = behind.proxy.struck()?;
    behind.proxy.next(Strike::Copy);
    owner.repair(None).await?;
    let repair = behind.proxy.struck()?;
    owner.reserve(up_to(9)).await?;
    behind.proxy.next(Strike::Copy);
    owner.start(&[Charge { id: MessageId::new("a")?, attempts: 2 }]).await?;
    let start = behind.proxy.struck()?;
    // What this epoch reserved is not for its own recovery, nor for its repair.
    assert!(behind.without_effect(&recover).await?.contains("OK"));
    assert!(behind.without_effect(&repair).await?.contains("STALE"));
    owner.start(&[Charge { id: MessageId::new("a")?, attempts: 3 }]).await?;
    assert!(behind.without_effect(&start).await?.contains("LATE"));
    behind.orders.owner().await?;
    for late in [recover, repair, start] {
        assert!(behind.without_effect(&late).await?.contains("STALE"));
    }
    Ok(())
}

#[tokio::test]
async fn late_lease_calls_change_nothing() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.proxy.next(Strike::Copy);
    let owner = behind.orders.owner().await?;
    let acquire = behind.proxy.struck()?;
    behind.proxy.next(Strike::Copy);
    behind.orders.renew(&member("owner"), &*owner, LEASE).await?;
    let renew = behind.proxy.struck()?;
    behind.proxy.next(Strike::Copy);
    owner.release(Timestamp::ZERO).await?;
    let release = behind.proxy.struck()?;
    // A partition that was given up stays free.
    assert!(behind.without_effect(&acquire).await?.contains("CHANGED"));
    assert!(behind.without_effect(&renew).await?.contains("LOST"));
    assert!(behind.without_effect(&release).await?.contains("OK"));
    for (who, found) in [("other", "HELD"), ("owner", "CHANGED")] {
        let next = behind.orders.acquire(&behind.orders.group_partition(), &member(who), LEASE).await?;
        assert!(behind.without_effect(&acquire).await?.contains(found));
        assert!(behind.without_effect(&renew).await?.contains("LOST"));
        assert!(behind.without_effect(&release).await?.contains("STALE"));
        next.release(Timestamp::ZERO).await?;
    }
    Ok(())
}

#[tokio::test]
async fn delayed_acquire_loses_to_a_faster_one() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.proxy.next(Strike::Request);
    assert!(behind.orders.owner().await.is_err());
    let held_up = behind.proxy.struck()?;
    let other = behind.orders.acquire(&behind.orders.group_partition(), &member("other"), LEASE).await?;
    assert!(behind.without_effect(&held_up).await?.contains("HELD"));
    other.release(Timestamp::ZERO).await?;
    assert!(behind.without_effect(&held_up).await?.contains("CHANGED"));
    Ok(())
}

#[tokio::test]
async fn late_push_restores_nothing() -> Result<()> {
    // What comes before the push is late takes less, on any machine.
    let timeout = Duration::from_secs(2);
    let behind = OrderedTopics::with_timeout(timeout).await?;
    behind.proxy.next(Strike::Copy);
    behind.push(&["a"]).await?;
    let late = behind.proxy.struck()?;
    assert!(behind.without_effect(&late).await?.contains("OK"));
    let mut owner = behind.orders.owner().await?;
    let reservation = owner.reserve(up_to(9)).await?.reservation;
    owner.settle(&Settlement { remaining: vec![(reservation, vec![])], ..acks(&["a"])? }).await?;
    // Its caller has waited for one time limit, and then it took another way.
    let till = redis_us(&behind).await? + u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
    eventually("the push is late", async || Ok((redis_us(&behind).await? > till).then_some(()))).await?;
    assert!(behind.without_effect(&late).await?.contains("LATE"));
    assert_eq!(behind.orders.peek("a").await?, None);
    Ok(())
}

/// The time of Redis.
async fn redis_us(behind: &OrderedTopics) -> Result<u64> {
    let (seconds, micros): (u64, u64) = behind.server.ask("TIME").await?;
    Ok(seconds * 1_000_000 + micros)
}
