use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::limits::CALL_IDS_MAX;
use dwell::model::message::MessageId;
use dwell::store::{Charge, MessageState, Pushed, Reservation, Retried, Returned, Settlement};

use crate::support::{World, acks, buries, ids, ids_of, retries, returns, up_to};

pub(super) async fn acked_message_is_removed(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 0)?]).await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(9)).await?;
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(orders.peek("a").await?, None);
    assert_eq!(orders.stats().await?.in_flight, 1);
    owner.settle(&Settlement { remaining: vec![(Reservation(1), vec![])], ..acks(&["b"])? }).await?;
    assert_eq!(owner.reserve(up_to(9)).await?.unsettled, 0);
    // Without a dedup window, the id is free again.
    assert_eq!(orders.push("a", 0).await?, Pushed::Stored);
    Ok(())
}

pub(super) async fn nacked_message_is_rescheduled_with_its_attempts(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let pushed = orders.message("a", 0)?;
    orders.push_all(std::slice::from_ref(&pushed)).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    let next_at = world.now().plus(Duration::from_millis(500));
    let retried = Retried { id: MessageId::new("a")?, next_at, attempts: 1, failure: None };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    world.pass(499);
    assert_eq!(owner.reserve(up_to(9)).await?.head, Some(next_at));
    world.pass(1);
    let again = owner.reserve(up_to(9)).await?.messages;
    assert_eq!((again.len(), again[0].ready_at, again[0].attempts), (1, next_at, 1));
    // The due time that the producer asked for stays.
    assert_eq!(again[0].message, Ok(pushed));
    Ok(())
}

pub(super) async fn released_message_is_charged_less(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    // The first attempt was never charged; the third one was.
    for (charged, left) in [(None, 0), (Some(3), 2)] {
        let taken = owner.reserve(up_to(9)).await?;
        let id = MessageId::new("a")?;
        owner
            .start(&charged.map(|attempts| Charge { id: id.clone(), attempts }).into_iter().collect::<Vec<_>>())
            .await?;
        world.pass(50);
        let released = Retried { id, next_at: world.now(), attempts: left, failure: None };
        owner.settle(&retries(taken.reservation, released, &[])?).await?;
        assert_eq!(orders.peek("a").await?.map(|a| (a.attempts, a.state)), Some((left, MessageState::Ready)));
    }
    let again = owner.reserve(up_to(9)).await?.messages;
    assert_eq!((again.len(), again[0].ready_at, again[0].attempts), (1, world.now(), 2));
    Ok(())
}

pub(super) async fn returned_message_is_not_charged(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    let ready_at = taken.messages[0].ready_at;
    world.pass(50);
    owner.settle(&returns(taken.reservation, Returned { id: MessageId::new("a")?, ready_at }, &[])?).await?;
    let again = owner.reserve(up_to(9)).await?.messages;
    assert_eq!((again.len(), again[0].ready_at, again[0].attempts), (1, ready_at, 0));
    Ok(())
}

pub(super) async fn settle_applies_a_decision_per_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 6).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(6)).await?;
    let all = ids(&ids_of(&taken.messages))?;
    let later = world.now().plus(Duration::from_millis(70));
    let mut mixed = buries(taken.reservation, &["m000003"], &["m000004", "m000005"])?;
    mixed.acked = vec![all[0].clone()];
    mixed.retried = vec![Retried { id: all[1].clone(), next_at: later, attempts: 7, failure: None }];
    mixed.returned = vec![Returned { id: all[2].clone(), ready_at: world.now() }];
    owner.settle(&mixed).await?;
    let stats = orders.stats().await?;
    assert_eq!((stats.scheduled, stats.ready, stats.in_flight, stats.dead), (1, 1, 2, 1));
    // Only what remains in the reservation is recovered.
    let mut next = orders.owner().await?;
    assert_eq!(orders.recover(&mut next).await?, 2);
    assert_eq!(orders.peek("m000001").await?.map(|m| m.attempts), Some(7));
    assert_eq!(orders.stats().await?.in_flight, 0);
    Ok(())
}

pub(super) async fn settling_a_missing_message_changes_nothing(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 0)?]).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    let settled = Settlement { remaining: vec![(taken.reservation, ids(&["b"])?)], ..acks(&["a"])? };
    owner.settle(&settled).await?;
    let before = orders.stats().await?;
    owner.settle(&settled).await?;
    owner.settle(&Settlement::default()).await?;
    owner.start(&[Charge { id: MessageId::new("a")?, attempts: 3 }]).await?;
    assert_eq!(orders.stats().await?, before);
    // The charge of what is gone does not stick to who has the id next.
    orders.push("a", 0).await?;
    assert_eq!(orders.peek("a").await?.map(|a| a.attempts), Some(0));
    Ok(())
}

pub(super) async fn attempt_charges_are_absolute(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(1)).await?;
    for attempts in [2, 2, 3] {
        owner.start(&[Charge { id: MessageId::new("a")?, attempts }]).await?;
        let peeked = orders.peek("a").await?;
        assert_eq!(peeked.map(|a| (a.attempts, a.state)), Some((attempts, MessageState::InFlight)));
    }
    Ok(())
}

pub(super) async fn settle_accepts_at_most_a_thousand_decisions(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", CALL_IDS_MAX + 1).await?;
    let mut owner = orders.owner().await?;
    let mut taken = owner.reserve(up_to(CALL_IDS_MAX)).await?.messages;
    taken.append(&mut owner.reserve(up_to(1)).await?.messages);
    let mut all = Settlement { acked: taken.into_iter().map(|m| m.id).collect(), ..Settlement::default() };
    assert!(owner.settle(&all).await.is_err());
    assert_eq!(orders.stats().await?.in_flight, CALL_IDS_MAX as u64 + 1);
    all.acked.pop();
    owner.settle(&all).await?;
    assert_eq!(orders.stats().await?.in_flight, 1);
    Ok(())
}
