use std::time::Duration;

use dwell::codec::Failure;
use dwell::model::error::Result;
use dwell::model::message::MessageId;
use dwell::model::time::Timestamp;
use dwell::model::version::Version;
use dwell::store::LateFate::{Done, Gone, InFlight, Over, Repeated};
use dwell::store::{Charge, LateFate, LateSettlement, MessageState, Owner, Pushed, Retried, Returned};

use crate::support::{TestTopic, World, acks, buries, ids_of, new_call, retries, returns, up_to};

const BACKOFF: Duration = Duration::from_secs(1);

/// A message after its first delivery ended, with its version.
async fn failed(world: &World, orders: &TestTopic, id: &str) -> Result<(Box<dyn Owner>, Version)> {
    orders.push(id, 0).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    let next_at = world.now().plus(BACKOFF);
    let retried = Retried { id: MessageId::new(id)?, next_at, attempts: 1, failure: None };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    Ok((owner, taken.messages[0].version))
}

fn ack(id: &str, version: Version, attempt: u32) -> Result<LateSettlement> {
    Ok(LateSettlement {
        pauses_key: false,
        id: MessageId::new(id)?,
        version,
        attempt,
        redelivered: false,
        next_at: None,
        failure: None,
    })
}

async fn settle(orders: &TestTopic, settlements: &[LateSettlement]) -> Result<Vec<LateFate>> {
    let call = new_call(&*orders.store.backend, 1);
    let group_partition = orders.group_partition();
    orders
        .store
        .messages
        .settle_late(&orders.descriptor, group_partition.partition, &group_partition.group, &call, settlements)
        .await
}

pub(super) async fn late_ack_removes_a_waiting_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, version) = failed(&world, &orders, "a").await?;
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [Done]);
    assert_eq!(orders.peek("a").await?, None);
    world.pass(2_000);
    let reserved = owner.reserve(up_to(9)).await?;
    assert_eq!((reserved.messages.len(), reserved.dropped, reserved.unsettled), (0, 0, 0));
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [Repeated]);
    // The next message of the id is another one, without the charge.
    assert_eq!(orders.push("a", 0).await?, Pushed::Stored);
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [Over]);
    assert_eq!(orders.peek("a").await?.map(|peeked| peeked.attempts), Some(0));
    Ok(())
}

pub(super) async fn late_ack_is_not_repeated_by_that_of_a_later_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, earlier) = failed(&world, &orders, "a").await?;
    orders.cancel("a").await?;
    orders.push("a", 0).await?;
    let taken = owner.reserve(up_to(1)).await?;
    let later = taken.messages[0].version;
    let retried = Retried { id: MessageId::new("a")?, next_at: world.now().plus(BACKOFF), attempts: 1, failure: None };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    assert_eq!(settle(&orders, &[ack("a", later, 1)?]).await?, [Done]);
    // It may be in another topic.
    assert_eq!(settle(&orders, &[ack("a", earlier, 1)?]).await?, [Over]);
    assert_eq!(settle(&orders, &[ack("a", later, 1)?]).await?, [Repeated]);
    Ok(())
}

pub(super) async fn late_ack_for_later_deliveries_removes_what_was_delivered_again(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, version) = failed(&world, &orders, "a").await?;
    let older = |next_at| -> Result<LateSettlement> {
        Ok(LateSettlement { redelivered: true, next_at, ..ack("a", version, 1)? })
    };
    world.pass(2_000);
    let taken = owner.reserve(up_to(1)).await?;
    assert_eq!(settle(&orders, &[older(None)?]).await?, [InFlight], "its owner decides");
    let retried = Retried { id: MessageId::new("a")?, next_at: world.now().plus(BACKOFF), attempts: 2, failure: None };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    let later = LateSettlement { redelivered: true, ..ack("a", version, 3)? };
    let another = LateSettlement { redelivered: true, ..ack("a", version.plus(1), 1)? };
    let refused = [ack("a", version, 1)?, older(Some(world.now()))?, later, another];
    assert_eq!(settle(&orders, &refused).await?, [Over; 4]);
    assert_eq!(settle(&orders, &[older(None)?]).await?, [Done]);
    assert_eq!(settle(&orders, &[older(None)?]).await?, [Repeated]);
    assert_eq!(orders.peek("a").await?, None);
    Ok(())
}

pub(super) async fn late_ack_for_later_deliveries_counts_for_what_is_gone(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, version) = failed(&world, &orders, "a").await?;
    let any = |settlement| LateSettlement { redelivered: true, ..settlement };
    orders.cancel("a").await?;
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [Over]);
    let nack = LateSettlement { next_at: Some(world.now()), ..any(ack("a", version, 1)?) };
    assert_eq!(settle(&orders, &[nack, any(ack("a", version, 1)?)]).await?, [Over, Gone]);
    // It may be in another topic, so nobody acked it.
    assert_eq!(settle(&orders, &[ack("a", version, 1)?, any(ack("a", version, 1)?)]).await?, [Over, Gone]);
    // One that is dead is not gone.
    orders.push("b", 0).await?;
    let taken = owner.reserve(up_to(1)).await?;
    let version = taken.messages[0].version;
    owner.settle(&buries(taken.reservation, &["b"], &[])?).await?;
    assert_eq!(settle(&orders, &[any(ack("b", version, 1)?)]).await?, [Over]);
    assert_eq!(orders.stats().await?.dead, 1);
    Ok(())
}

pub(super) async fn a_late_ack_is_remembered_for_the_dedup_window(world: World) -> Result<()> {
    let mut orders = world.topic("orders").await?;
    orders.descriptor.settings.dedup_window = Duration::from_secs(60);
    let (_owner, version) = failed(&world, &orders, "a").await?;
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [Done]);
    assert_eq!(orders.push("a", 0).await?, Pushed::Duplicate);
    world.pass(60_001);
    assert_eq!(orders.push("a", 0).await?, Pushed::Stored);
    Ok(())
}

pub(super) async fn late_settlement_spares_a_redelivered_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, version) = failed(&world, &orders, "a").await?;
    world.pass(1_000);
    let taken = owner.reserve(up_to(1)).await?;
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [InFlight]);
    owner.start(&[Charge { id: MessageId::new("a")?, attempts: 2 }]).await?;
    let retried = Retried { id: MessageId::new("a")?, next_at: world.now(), attempts: 2, failure: None };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [Over]);
    assert_eq!(orders.peek("a").await?.map(|peeked| (peeked.state, peeked.attempts)), Some((MessageState::Ready, 2)));
    assert_eq!(settle(&orders, &[ack("a", version, 2)?]).await?, [Done]);
    assert_eq!(settle(&orders, &[ack("b", version, 1)?]).await?, [Over], "what never was");
    Ok(())
}

pub(super) async fn late_settlement_spares_a_rescheduled_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (_owner, version) = failed(&world, &orders, "a").await?;
    orders.reschedule("a", 500).await?;
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [Over]);
    assert_eq!(orders.peek("a").await?.map(|peeked| peeked.attempts), Some(1));
    Ok(())
}

pub(super) async fn late_settlement_needs_an_earlier_delivery(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    let (version, ready_at) = (taken.messages[0].version, taken.messages[0].ready_at);
    owner.settle(&returns(taken.reservation, Returned { id: MessageId::new("a")?, ready_at }, &[])?).await?;
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [Over]);
    assert_eq!(orders.stats().await?.ready, 1);
    Ok(())
}

pub(super) async fn late_nack_sets_the_due_time_in_the_store(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, version) = failed(&world, &orders, "a").await?;
    let next_at = world.now().plus(Duration::from_millis(300));
    let failure = Some(Failure::new(world.now(), 1, Some(&"busy".into())));
    let nack = LateSettlement { next_at: Some(next_at), failure, ..ack("a", version, 1)? };
    assert_eq!(settle(&orders, &[nack.clone(), nack]).await?, [Done, Done]);
    let peeked = orders.peek("a").await?;
    let history = peeked.as_ref().map(|peeked| peeked.history.len());
    assert_eq!((peeked.map(|peeked| peeked.attempts), history), (Some(1), Some(2)));
    world.pass(299);
    assert_eq!(owner.reserve(up_to(1)).await?.head, Some(next_at));
    world.pass(1);
    let again = owner.reserve(up_to(1)).await?.messages;
    assert_eq!((ids_of(&again), again[0].attempts, again[0].ready_at), (vec!["a"], 1, next_at));
    Ok(())
}

pub(super) async fn recovered_message_accepts_a_settlement_of_its_last_delivery(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let version = orders.owner().await?.reserve(up_to(1)).await?.messages[0].version;
    let mut owner = orders.owner().await?;
    assert_eq!(settle(&orders, &[ack("a", version, 1)?]).await?, [InFlight], "not recovered yet");
    assert_eq!(orders.recover(&mut owner).await?, 1);
    assert_eq!(settle(&orders, &[ack("a", version, 1)?, ack("a", version, 1)?]).await?, [Done, Repeated]);
    assert_eq!(owner.reserve(up_to(1)).await?.unsettled, 0);
    Ok(())
}

pub(super) async fn late_settlement_works_after_the_owner_released(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    orders.push("b", 0).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(2)).await?.messages;
    owner.release(Timestamp::ZERO).await?;
    let hidden = world.now().plus(BACKOFF);
    let extend = LateSettlement { next_at: Some(hidden), ..ack("b", taken[1].version, 1)? };
    let settlements = [ack("a", taken[0].version, 2)?, ack("a", taken[0].version, 1)?, extend];
    assert_eq!(settle(&orders, &settlements).await?, [Over, Done, Done]);
    let mut next = orders.owner().await?;
    assert_eq!(orders.recover(&mut next).await?, 0);
    let reserved = next.reserve(up_to(9)).await?;
    assert_eq!((reserved.messages.len(), reserved.head, reserved.unsettled), (0, Some(hidden), 0));
    world.pass(1_000);
    let again = next.reserve(up_to(9)).await?.messages;
    assert_eq!((ids_of(&again), again[0].attempts), (vec!["b"], 1));
    next.settle(&acks(&["b"])?).await
}

pub(super) async fn late_settlement_keeps_the_position_with_ordering(world: World) -> Result<()> {
    let orders = world.ordered("orders", &["default"]).await?;
    orders.push("a", 0).await?;
    orders.push("b", 0).await?;
    let taken = orders.owner().await?.reserve(up_to(2)).await?.messages;
    let mut owner = orders.owner().await?;
    orders.recover(&mut owner).await?;
    let next_at = world.now().plus(BACKOFF);
    let extend = LateSettlement { next_at: Some(next_at), ..ack("a", taken[0].version, 1)? };
    assert_eq!(settle(&orders, &[extend]).await?, [Done]);
    let again = owner.reserve(up_to(2)).await?.messages;
    assert_eq!((ids_of(&again), again[0].ready_at, again[0].attempts), (vec!["a", "b"], next_at, 1));
    assert_eq!(again[0].position, taken[0].position);
    Ok(())
}
