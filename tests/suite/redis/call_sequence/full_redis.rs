//! Redis is full: it takes no pushes, and can be drained.

use dwell::model::error::{Kind, Result};
use dwell::model::message::MessageId;
use dwell::model::time::Timestamp;
use dwell::store::{Charge, Pushed, Renewal, Retried, Settlement};

use super::OrderedTopics;
use crate::support::{LEASE, acks, ids, ids_of, kind_of, member, retries, up_to};

#[tokio::test]
async fn a_full_redis_refuses_pushes_and_can_be_drained() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a", "b", "c"]).await?;
    let mut old = behind.orders.owner().await?;
    old.reserve(up_to(1)).await?;
    behind.server.ask::<()>("CONFIG SET maxmemory 100kb").await?;
    // Not even a script that Redis has to learn first stands in the way.
    behind.server.ask::<()>("SCRIPT FLUSH").await?;
    assert_eq!(kind_of(behind.orders.push("d", 0).await), Some(Kind::Unavailable));
    assert_eq!(behind.orders.peek("d").await?, None);

    let mut owner = behind.orders.owner().await?;
    assert_eq!(behind.orders.recover(&mut owner).await?, 1);
    assert!(matches!(behind.orders.renew(&member("owner"), &*owner, LEASE).await?, Renewal::Kept(_)));
    let first = owner.reserve(up_to(9)).await?;
    assert_eq!(first.messages.len(), 3);
    owner.start(&[Charge { id: MessageId::new("a")?, attempts: 2 }]).await?;
    let again = Retried { id: MessageId::new("c")?, next_at: behind.world.now(), attempts: 1, failure: None };
    owner.settle(&Settlement { acked: ids(&["a", "b"])?, ..retries(first.reservation, again, &[])? }).await?;
    let second = owner.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&second.messages), ["c"]);
    owner.settle(&Settlement { remaining: vec![(second.reservation, vec![])], ..acks(&["c"])? }).await?;
    owner.release(Timestamp::ZERO).await?;
    assert_eq!(behind.orders.stats().await?, Default::default());

    behind.server.ask::<()>("CONFIG SET maxmemory 0").await?;
    assert_eq!(behind.orders.push("d", 0).await?, Pushed::Stored);
    Ok(())
}

#[tokio::test]
async fn a_broker_can_begin_to_drain_a_full_redis() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a", "b"]).await?;
    behind.server.ask::<()>("CONFIG SET maxmemory 100kb").await?;
    let fresh = crate::support::World::redis_at(behind.server.url(), std::time::Duration::from_secs(1)).await?;
    let shop = OrderedTopics { world: fresh, ..behind };
    let consumer = shop.shop()?;
    for _ in 0..2 {
        let delivery = consumer.reserve(1).await?;
        assert_eq!(consumer.ack(&delivery[0]).await?, dwell::delivery::Verdict::Acked);
    }
    consumer.running.stop().await;
    assert_eq!(shop.orders.stats().await?, Default::default());
    Ok(())
}
