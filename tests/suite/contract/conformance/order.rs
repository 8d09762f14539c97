use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::message::{Message, MessageId};
use dwell::model::time::Timestamp;
use dwell::store::{Reservation, Retried, Returned, Settlement};

use crate::support::{TestTopic, World, acks, ids, ids_of, member, up_to};

/// A message that was accepted earlier, and whose push took its time, or waited in a log.
fn due_at(topic: &TestTopic, id: &str, at: Timestamp) -> Result<Message> {
    Ok(Message { due_at: at, ..topic.message(id, 0)? })
}

/// Ids that sort the other way round than they come.
fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{:06}", 999_999 - n)).collect()
}

pub(super) async fn equal_due_times_keep_push_order(world: World) -> Result<()> {
    let orders = world.ordered("orders", &["default"]).await?;
    for (prefix, delay) in [("z", 50), ("y", 50), ("x", 51), ("w", 50), ("v", 0), ("u", 0)] {
        let batch = names(prefix, 3).iter().map(|id| orders.message(id, delay)).collect::<Result<Vec<_>>>()?;
        orders.push_all(&batch).await?;
    }
    let mut owner = orders.owner().await?;
    let expected = |prefixes: [&str; 2]| prefixes.iter().flat_map(|prefix| names(prefix, 3)).collect::<Vec<_>>();
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), expected(["v", "u"]));
    world.pass(49);
    assert_eq!(owner.reserve(up_to(9)).await?.messages, []);
    world.pass(1);
    assert_eq!(orders.stats().await?.ready, 9);
    // Cut in the middle of a millisecond.
    assert_eq!(ids_of(&owner.reserve(up_to(4)).await?.messages), expected(["z", "y"])[..4]);
    let rest = owner.reserve(up_to(99)).await?;
    assert_eq!(ids_of(&rest.messages), [&expected(["z", "y"])[4..], &expected(["w", "w"])[..3]].concat());
    assert!(rest.messages.iter().all(|message| message.position == world.now() && message.ready_at == world.now()));
    assert_eq!(rest.head, Some(world.now().plus(Duration::from_millis(1))));
    Ok(())
}

pub(super) async fn late_push_is_ordered_after_reserved_messages(world: World) -> Result<()> {
    let orders = world.ordered("orders", &["default"]).await?;
    let at = world.now().plus(Duration::from_millis(10));
    orders.push("z", 10).await?;
    world.pass(10);
    orders.owner().await?.reserve(up_to(1)).await?;
    // None finds the others in the zset: each comes when those before it are reserved.
    for late in ["y", "x", "w"] {
        world.pass(7);
        orders.push_all(&[due_at(&orders, late, at)?]).await?;
        let mut lost = orders.owner().await?;
        lost.reserve(up_to(9)).await?;
    }
    let mut owner = orders.owner().await?;
    assert_eq!(orders.recover(&mut owner).await?, 4);
    let taken = owner.reserve(up_to(9)).await?.messages;
    assert_eq!(ids_of(&taken), ["z", "y", "x", "w"]);
    assert!(taken.iter().all(|message| message.position == at && message.attempts == 1));
    Ok(())
}

pub(super) async fn returned_message_keeps_its_position(world: World) -> Result<()> {
    let orders = world.ordered("orders", &["default"]).await?;
    let batch = names("m", 5).iter().map(|id| orders.message(id, 0)).collect::<Result<Vec<_>>>()?;
    orders.push_all(&batch).await?;
    let mut owner = orders.owner().await?;
    let first = owner.reserve(up_to(3)).await?;
    let ready_at = first.messages[0].ready_at;
    let back = |id: &MessageId| Returned { id: id.clone(), ready_at };
    let ids: Vec<MessageId> = first.messages.iter().map(|message| message.id.clone()).collect();
    orders.push("a", 0).await?;
    // The last one first, in two calls.
    let returned = vec![back(&ids[2])];
    let remaining = vec![(first.reservation, ids[..2].to_vec())];
    owner.settle(&Settlement { returned, remaining, ..Settlement::default() }).await?;
    let returned = vec![back(&ids[1]), back(&ids[0])];
    let remaining = vec![(first.reservation, vec![])];
    owner.settle(&Settlement { returned, remaining, ..Settlement::default() }).await?;
    let expected = [names("m", 5), vec!["a".to_owned()]].concat();
    let again = owner.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&again.messages), expected);
    assert!(again.messages.iter().all(|message| message.attempts == 0));
    Ok(())
}

pub(super) async fn a_failed_message_that_holds_its_key_stays_reserved(world: World) -> Result<()> {
    let orders = world.ordered("orders", &["default"]).await?;
    orders.push_all(&[orders.message("b", 0)?, orders.message("a", 0)?]).await?;
    let pushed_at = world.now();
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    let next_at = world.now().plus(Duration::from_millis(800));
    let kept = vec![Retried { id: MessageId::new("b")?, next_at, attempts: 3, failure: None }];
    owner.settle(&Settlement { kept: kept.clone(), ..Settlement::default() }).await?;
    let looked = orders.peek("b").await?.map(|peeked| (peeked.state.name(), peeked.attempts));
    assert_eq!(looked, Some(("in_flight", 3)));
    assert_eq!(owner.reserve(up_to(9)).await?.unsettled, 2);
    // Who takes over finds it in its place, with its attempts, and with the time of the next one.
    world.pass(5);
    let mut next = orders.acquire(&orders.group_partition(), &member("owner"), crate::support::LEASE).await?;
    assert_eq!(orders.recover(&mut next).await?, 2);
    let again = next.reserve(up_to(1)).await?;
    let message = &again.messages[0];
    assert_eq!((message.id.as_str(), message.position, message.ready_at), ("b", pushed_at, next_at));
    assert_eq!(message.attempts, 3);
    assert_ne!(again.messages[0].ready_at, taken.messages[0].ready_at);
    // A charge that was made in vain is taken back together with the message.
    let returned = vec![Returned { id: MessageId::new("b")?, ready_at: pushed_at }];
    let remaining = vec![(again.reservation, vec![])];
    let charged_less = vec![Retried { attempts: 2, ..kept[0].clone() }];
    next.settle(&Settlement { returned, kept: charged_less, remaining, ..Settlement::default() }).await?;
    let last = next.reserve(up_to(9)).await?.messages;
    assert_eq!((ids_of(&last), last[0].attempts, last[0].position), (vec!["b", "a"], 2, pushed_at));
    assert_eq!((last[1].attempts, last[1].ready_at), (1, world.now()));
    Ok(())
}

pub(super) async fn rest_of_a_reservation_keeps_its_positions(world: World) -> Result<()> {
    let orders = world.ordered("orders", &["default"]).await?;
    let batch = names("m", 4).iter().map(|id| orders.message(id, 0)).collect::<Result<Vec<_>>>()?;
    orders.push_all(&batch).await?;
    let mut lost = orders.owner().await?;
    let taken = lost.reserve(up_to(9)).await?;
    let left: Vec<&str> = ids_of(&taken.messages)[2..].to_vec();
    let remaining = vec![(Reservation(taken.reservation.0), ids(&left)?)];
    let gone = acks(&ids_of(&taken.messages)[..2])?;
    lost.settle(&Settlement { remaining, ..gone }).await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    assert_eq!(orders.recover(&mut owner).await?, 2);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), [left, vec!["a"]].concat());
    Ok(())
}

pub(super) async fn full_millisecond_overflows_into_the_next(world: World) -> Result<()> {
    let orders = world.ordered("orders", &["default"]).await?;
    let all = names("m", 5_000);
    for page in all.chunks(1_000) {
        let page = page.iter().map(|id| orders.message(id, 20)).collect::<Result<Vec<_>>>()?;
        orders.push_all(&page).await?;
    }
    let mut owner = orders.owner().await?;
    world.pass(19);
    assert_eq!(owner.reserve(up_to(1)).await?.messages, []);
    world.pass(1);
    let mut taken = Vec::new();
    for _ in 0..20 {
        let reserved = owner.reserve(up_to(999)).await?;
        taken.extend(reserved.messages.into_iter().map(|message| message.id.to_string()));
        world.pass(1);
    }
    assert_eq!(taken, all);
    Ok(())
}

pub(super) async fn order_holds_in_each_group(world: World) -> Result<()> {
    let orders = world.ordered("orders", &["default", "audit"]).await?;
    orders.push_all(&[orders.message("c", 5)?, orders.message("b", 5)?]).await?;
    world.pass(5);
    // One group is ahead of the other: what it has taken is not in its zset.
    let mut owner = orders.owner().await?;
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["c", "b"]);
    orders.push_all(&[due_at(&orders, "a", world.now())?]).await?;
    let mut auditor = orders.acquire(&orders.partition_of("audit")?, &member("auditor"), crate::support::LEASE).await?;
    assert_eq!(ids_of(&auditor.reserve(up_to(9)).await?.messages), ["c", "b", "a"]);
    drop(owner);
    let mut owner = orders.owner().await?;
    orders.recover(&mut owner).await?;
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["c", "b", "a"]);
    Ok(())
}

pub(super) async fn repushed_id_has_the_position_of_its_last_push(world: World) -> Result<()> {
    let orders = world.ordered("orders", &["default"]).await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 0)?]).await?;
    let mut lost = orders.owner().await?;
    lost.reserve(up_to(9)).await?;
    // The reservation still names `a`.
    lost.settle(&acks(&["a"])?).await?;
    world.pass(5);
    orders.push("c", 0).await?;
    world.pass(5);
    orders.push("a", 0).await?;
    lost.reserve(up_to(9)).await?;
    let mut owner = orders.owner().await?;
    assert_eq!(orders.recover(&mut owner).await?, 3);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["b", "c", "a"]);
    Ok(())
}
