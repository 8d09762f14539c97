use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::limits::CALL_IDS_MAX;
use dwell::store::ReserveLimit;

use crate::support::{LEASE, World, ids_of, member, up_to};

pub(super) async fn no_message_is_reserved_a_millisecond_early(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 1_000).await?;
    let due_at = world.now().plus(Duration::from_millis(1_000));
    let mut owner = orders.owner().await?;
    world.pass(999);
    let early = owner.reserve(up_to(9)).await?;
    assert!(early.messages.is_empty());
    assert_eq!((early.head, early.unsettled, early.dropped), (Some(due_at), 0, 0));
    world.pass(1);
    let due = owner.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&due.messages), ["a"]);
    assert_eq!((due.messages[0].ready_at, due.messages[0].attempts), (due_at, 0));
    assert_eq!((due.head, due.unsettled, due.dropped), (None, 1, 0));
    Ok(())
}

pub(super) async fn due_messages_are_reserved_in_due_time_order(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_all(&[orders.message("c", 30)?, orders.message("a", 10)?, orders.message("e", 500)?]).await?;
    orders.push_all(&[orders.message("d", 40)?, orders.message("b", 20)?]).await?;
    world.pass(499);
    let taken = orders.owner().await?.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&taken.messages), ["a", "b", "c", "d"]);
    assert_eq!(taken.head, Some(world.now().plus(Duration::from_millis(1))));
    Ok(())
}

pub(super) async fn a_reservation_is_bounded_by_count(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", CALL_IDS_MAX + 3).await?;
    let mut owner = orders.owner().await?;
    let first = owner.reserve(up_to(2)).await?;
    assert_eq!(ids_of(&first.messages), ["m000000", "m000001"]);
    assert_eq!(first.head, Some(world.now()));
    let second = owner.reserve(up_to(CALL_IDS_MAX)).await?;
    assert_eq!((second.messages.len(), second.unsettled), (CALL_IDS_MAX, CALL_IDS_MAX as u64 + 2));
    assert_ne!(second.reservation, first.reservation);
    assert_eq!(ids_of(&owner.reserve(up_to(CALL_IDS_MAX)).await?.messages), ["m001002"]);
    Ok(())
}

pub(super) async fn a_reservation_is_bounded_by_bytes_but_takes_one_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 6).await?;
    let mut owner = orders.owner().await?;
    let mut within = async |bytes| owner.reserve(ReserveLimit { messages: 9, bytes }).await;
    let one = within(1).await?;
    assert_eq!(one.messages.len(), 1);
    let each = one.messages[0].bytes;
    assert_eq!(within(2 * each - 1).await?.messages.len(), 1);
    assert_eq!(within(2 * each).await?.messages.len(), 2);
    assert_eq!(within(usize::MAX).await?.messages.len(), 2);
    Ok(())
}

pub(super) async fn reserved_message_is_not_reserved_twice(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    assert_eq!(owner.reserve(up_to(9)).await?.messages.len(), 1);
    world.pass(3_600_000);
    let again = owner.reserve(up_to(9)).await?;
    assert_eq!((again.messages.len(), again.head, again.unsettled), (0, None, 1));
    Ok(())
}

pub(super) async fn empty_partition_has_no_head(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let nothing = orders.owner().await?.reserve(up_to(9)).await?;
    assert_eq!((nothing.messages.len(), nothing.head, nothing.unsettled), (0, None, 0));
    Ok(())
}

pub(super) async fn groups_reserve_independently(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    orders.push("a", 0).await?;
    assert_eq!(orders.owner().await?.reserve(up_to(9)).await?.messages.len(), 1);
    let audit = orders.partition_of("audit")?;
    assert_eq!(orders.stats_of(&audit).await?.ready, 1);
    let mut auditor = orders.acquire(&audit, &member("auditor"), LEASE).await?;
    assert_eq!(ids_of(&auditor.reserve(up_to(9)).await?.messages), ["a"]);
    Ok(())
}
