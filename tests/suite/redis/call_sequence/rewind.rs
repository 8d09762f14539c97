//! Redis loses its last writes, all of them, or its scripts.

use std::collections::BTreeSet;
use std::time::Duration;

use dwell::delivery::{StaleReason, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::message::MessageId;
use dwell::model::time::Timestamp;
use dwell::store::{Charge, Owner, Renewal, Settlement};

use futures_util::future::{BoxFuture, join};

use super::OrderedTopics;
use crate::support::{LEASE, RedisServer, World, acks, ids_of, kind_of, member, up_to};

/// Redis goes on from an earlier moment of this epoch. The owner notices with its next call, whichever that is.
#[tokio::test]
async fn rewound_redis_is_detected_and_loses_nothing() -> Result<()> {
    type Next = fn(&mut dyn Owner) -> BoxFuture<'_, Result<()>>;
    let calls: [Next; 3] = [
        |owner| Box::pin(async { owner.reserve(up_to(9)).await.map(drop) }),
        |owner| Box::pin(async { owner.settle(&acks(&["b"])?).await }),
        |owner| Box::pin(async { owner.start(&[Charge { id: MessageId::new("b")?, attempts: 1 }]).await }),
    ];
    for next in calls {
        let behind = OrderedTopics::start().await?;
        behind.push(&["a", "b", "c", "d"]).await?;
        let mut owner = behind.orders.owner().await?;
        owner.reserve(up_to(2)).await?;
        let earlier = behind.server.snapshot().await?;
        owner.settle(&acks(&["a"])?).await?;
        owner.reserve(up_to(1)).await?;
        behind.server.rewind(&earlier).await?;
        let refused = next(&mut *owner).await.err().map(|error| (error.kind(), error.detail().contains("REWOUND")));
        assert_eq!(refused, Some((Kind::Stale, true)));
        // It stays so: the owner has to acquire anew.
        assert!(owner.reserve(up_to(9)).await.is_err());
        let mut owner = behind.orders.owner().await?;
        assert_eq!(behind.orders.stats().await?.in_flight, 2);
        behind.orders.recover(&mut owner).await?;
        assert_eq!(behind.orders.stats().await?.ready, 4);
        let taken = owner.reserve(up_to(9)).await?.messages;
        assert_eq!(ids_of(&taken).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["a", "b", "c", "d"]));
    }
    Ok(())
}

/// Redis goes on from before the epoch, and the next one has the same number: its token tells it apart.
#[tokio::test]
async fn epoch_that_redis_forgot_has_ended() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a"]).await?;
    let earlier = behind.server.snapshot().await?;
    let mut forgotten = behind.orders.owner().await?;
    let reservation = forgotten.reserve(up_to(9)).await?.reservation;
    behind.server.rewind(&earlier).await?;
    assert_eq!(behind.orders.renew(&member("owner"), &*forgotten, LEASE).await?, Renewal::Lost { by: None });
    let mut owner = behind.orders.owner().await?;
    assert_eq!(owner.epoch().number(), forgotten.epoch().number());
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["a"]);
    let ack = Settlement { remaining: vec![(reservation, vec![])], ..acks(&["a"])? };
    assert_eq!(forgotten.settle(&ack).await.err().map(|error| error.kind()), Some(Kind::Stale));
    assert!(matches!(behind.orders.renew(&member("owner"), &*forgotten, LEASE).await?, Renewal::Lost { .. }));
    assert_eq!(behind.orders.stats().await?.in_flight, 1);
    Ok(())
}

#[tokio::test]
async fn ack_refused_by_a_rewound_redis_is_not_acked() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a", "b"]).await?;
    let shop = behind.shop()?;
    let first = shop.reserve(1).await?;
    let earlier = behind.server.snapshot().await?;
    assert_eq!(shop.ack(&first[0]).await?, Verdict::Acked);
    let second = shop.reserve(1).await?;
    behind.server.rewind(&earlier).await?;
    assert_eq!(shop.ack(&second[0]).await?, Verdict::Stale(StaleReason::LostPartition));
    assert_eq!(shop.ids(2).await?, ["a", "b"]);
    assert_eq!(shop.repairs(), 0);
    Ok(())
}

#[tokio::test]
async fn emptied_redis_is_used_again() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a", "b"]).await?;
    let shop = behind.shop()?;
    let lost = shop.reserve(9).await?;
    behind.server.ask::<()>("FLUSHALL").await?;
    // Whoever comes first finds the loss, and has changed nothing.
    assert_eq!(kind_of(behind.push(&["c"]).await), Some(Kind::Stale));
    assert_eq!(behind.orders.store.backend.losses().borrow().count, 1);
    behind.push(&["c", "d"]).await?;
    assert_eq!(shop.ids(2).await?, ["c", "d"]);
    assert_eq!(shop.ack(&lost[0]).await?, Verdict::Stale(StaleReason::LostPartition));
    Ok(())
}

/// Nothing is released yet, so data of before is refused, and not read.
#[tokio::test]
async fn partition_without_a_history_is_of_another_version() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    let older = r#"SET {dwell:orders:0}:gen 0000000000000001{"topic":"orders","partitions":1}"#;
    behind.server.ask::<()>(older).await?;
    let refused = behind.push(&["a"]).await.err();
    assert!(refused.is_some_and(|error| error.detail().contains("another version of dwell")));
    Ok(())
}

#[tokio::test]
async fn scripts_are_reloaded_after_a_script_flush() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    let forget = async || behind.server.ask::<()>("SCRIPT FLUSH").await;
    forget().await?;
    behind.push(&["a", "b"]).await?;
    forget().await?;
    let mut owner = behind.orders.owner().await?;
    forget().await?;
    behind.orders.recover(&mut owner).await?;
    forget().await?;
    let reservation = owner.reserve(up_to(1)).await?.reservation;
    forget().await?;
    assert!(matches!(behind.orders.renew(&member("owner"), &*owner, LEASE).await?, Renewal::Kept(_)));
    forget().await?;
    owner.start(&[Charge { id: MessageId::new("a")?, attempts: 1 }]).await?;
    forget().await?;
    owner.settle(&Settlement { remaining: vec![(reservation, vec![])], ..acks(&["a"])? }).await?;
    forget().await?;
    assert_eq!(behind.orders.stats().await?.ready, 1);
    forget().await?;
    assert!(behind.orders.peek("b").await?.is_some());
    forget().await?;
    owner.release(Timestamp::ZERO).await
}

#[tokio::test]
async fn a_call_outlasts_a_restart_of_redis() -> Result<()> {
    let mut server = RedisServer::durable().await?;
    let world = World::redis_at(server.url(), Duration::from_secs(1)).await?;
    let orders = world.topic("orders").await?;
    orders.push_many("m", 3).await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(1)).await?;
    server.kill()?;
    let (settled, restarted) = join(owner.settle(&acks(&["m000000"])?), server.restart()).await;
    restarted?;
    settled?;
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["m000001", "m000002"]);
    Ok(())
}
