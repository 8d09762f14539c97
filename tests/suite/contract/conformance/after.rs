//! A push that follows the message of its id.

use std::time::Duration;

use bytes::Bytes;
use dwell::model::error::{Error, Result};
use dwell::model::message::{Conflict, GroupName, Key, Message, MessageId};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::store::LateFate::Done;
use dwell::store::{Expected, Fate, LateSettlement, MessageState, Owner, Purge, Pushed, Refused, Reserved, Retried};

use super::topic_move::{move_all, wider};
use crate::support::{LEASE, TestTopic, World, acks, buries, ids_of, member, new_call, retries, up_to};

const BEHIND: Result<Pushed, Refused> = Ok(Pushed::Behind);
const DUPLICATE: Result<Pushed, Refused> = Ok(Pushed::Duplicate);
const REPLACED: Result<Pushed, Refused> = Ok(Pushed::Replaced);
const STORED: Result<Pushed, Refused> = Ok(Pushed::Stored);

fn saying(orders: &TestTopic, id: &str, delay_ms: u64, payload: &'static str) -> Result<Message> {
    let mut message = orders.message(id, delay_ms)?;
    message.envelope.payload = Bytes::from_static(payload.as_bytes());
    Ok(message)
}

async fn after(orders: &TestTopic, message: &Message) -> Result<Result<Pushed, Refused>> {
    Ok(orders.push_over(Conflict::After, std::slice::from_ref(message)).await?.remove(0))
}

/// What a reservation has, by id and payload.
fn said(reserved: &Reserved) -> Vec<String> {
    let text = |message: &Message| format!("{}: {}", message.id, String::from_utf8_lossy(&message.envelope.payload));
    let read = reserved.messages.iter().map(|reserved| reserved.message.as_ref().map_or("damaged".to_owned(), text));
    read.collect()
}

/// The payload of a message, and that of its successor.
async fn texts(orders: &TestTopic, id: &str) -> Result<Option<(Bytes, Option<Bytes>)>> {
    let Some(peeked) = orders.peek(id).await? else { return Ok(None) };
    let successor = peeked.message.successor.map(|successor| successor.message.envelope.payload);
    Ok(Some((peeked.message.envelope.payload, successor)))
}

/// A message in flight.
async fn in_flight(orders: &TestTopic, id: &str) -> Result<(Box<dyn Owner>, Reserved)> {
    orders.push_all(&[saying(orders, id, 0, "first")?]).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!(said(&taken), [format!("{id}: first")]);
    Ok((owner, taken))
}

fn retried(world: &World, id: &str) -> Result<Retried> {
    let next_at = world.now().plus(Duration::from_secs(1));
    Ok(Retried { id: MessageId::new(id)?, next_at, attempts: 1, failure: None })
}

pub(super) async fn successor_is_delivered_once_its_message_is_acked(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, taken) = in_flight(&orders, "a").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    assert_eq!(texts(&orders, "a").await?, Some(("first".into(), Some("second".into()))));
    let stats = orders.stats().await?;
    assert_eq!((stats.in_flight, stats.ready, stats.scheduled), (1, 0, 0));
    assert_eq!(owner.reserve(up_to(9)).await?.messages.len(), 0);
    let mut ack = acks(&["a"])?;
    ack.remaining = vec![(taken.reservation, Vec::new())];
    owner.settle(&ack).await?;
    assert_eq!(texts(&orders, "a").await?, Some(("second".into(), None)));
    let again = owner.reserve(up_to(9)).await?;
    assert_eq!(said(&again), ["a: second"]);
    assert!(again.messages[0].version > taken.messages[0].version);
    assert_eq!(again.messages[0].attempts, 0);
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(orders.peek("a").await?, None);
    Ok(())
}

pub(super) async fn successor_waits_for_its_own_due_time(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, _) = in_flight(&orders, "a").await?;
    let second = saying(&orders, "a", 500, "second")?;
    assert_eq!(after(&orders, &second).await?, BEHIND);
    owner.settle(&acks(&["a"])?).await?;
    let peeked = orders.peek("a").await?;
    assert_eq!(
        peeked.map(|peeked| (peeked.state, peeked.next_at)),
        Some((MessageState::Scheduled, Some(second.due_at)))
    );
    assert_eq!(owner.reserve(up_to(9)).await?.head, Some(second.due_at));
    world.pass(500);
    assert_eq!(said(&owner.reserve(up_to(9)).await?), ["a: second"]);
    Ok(())
}

pub(super) async fn later_successor_takes_the_place_of_an_earlier_one(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, _) = in_flight(&orders, "a").await?;
    for (payload, verdict) in [("second", BEHIND), ("third", REPLACED), ("fourth", REPLACED)] {
        assert_eq!(after(&orders, &saying(&orders, "a", 0, payload)?).await?, verdict, "{payload}");
    }
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(said(&owner.reserve(up_to(9)).await?), ["a: fourth"]);
    // It is in flight now, and may have one itself.
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "fifth")?).await?, BEHIND);
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(said(&owner.reserve(up_to(9)).await?), ["a: fifth"]);
    Ok(())
}

pub(super) async fn nothing_follows_a_message_that_waits_or_is_dead(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "first")?).await?, STORED);
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, DUPLICATE);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!(said(&taken), ["a: first"]);
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, DUPLICATE);
    assert_eq!(texts(&orders, "a").await?, Some(("first".into(), None)));
    Ok(())
}

pub(super) async fn retried_message_comes_before_its_successor(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, taken) = in_flight(&orders, "a").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    owner.settle(&retries(taken.reservation, retried(&world, "a")?, &[])?).await?;
    // It has one: a later one takes its place.
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "third")?).await?, REPLACED);
    let later = world.now().plus(Duration::from_secs(3));
    orders.reschedule_if("a", later, Expected::default()).await?;
    world.pass(3_000);
    let again = owner.reserve(up_to(9)).await?;
    assert_eq!((said(&again), again.messages[0].attempts), (vec!["a: first".to_owned()], 1));
    owner.settle(&acks(&["a"])?).await?;
    let last = owner.reserve(up_to(9)).await?;
    assert_eq!(said(&last), ["a: third"]);
    assert!(last.messages[0].version > again.messages[0].version, "also after a reschedule of the first");
    Ok(())
}

pub(super) async fn next_epoch_delivers_a_message_before_its_successor(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (owner, _) = in_flight(&orders, "a").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    drop(owner);
    let mut next = orders.owner().await?;
    while next.recover().await?.more {}
    let again = next.reserve(up_to(9)).await?;
    assert_eq!((said(&again), again.messages[0].attempts), (vec!["a: first".to_owned()], 1));
    next.settle(&acks(&["a"])?).await?;
    assert_eq!(said(&next.reserve(up_to(9)).await?), ["a: second"]);
    Ok(())
}

pub(super) async fn successor_of_a_dead_message_takes_its_id(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, taken) = in_flight(&orders, "a").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    let successor = orders.peek("a").await?.and_then(|peeked| peeked.message.successor);
    let dead_id = successor.ok_or_else(|| Error::bug("no successor"))?.dead_id;
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    let dead = orders.peek(dead_id.as_str()).await?.ok_or_else(|| Error::bug("no dead letter"))?;
    assert_eq!((dead.state.name(), &*dead.message.envelope.payload), ("dead", &b"first"[..]));
    let second = owner.reserve(up_to(9)).await?;
    assert_eq!(said(&second), ["a: second"]);
    // The dead letter is another message now.
    let redriven = orders.store.dead_letters.redrive(&orders.group_partition(), std::slice::from_ref(&dead_id)).await?;
    assert_eq!(redriven, [true]);
    assert_eq!(said(&owner.reserve(up_to(9)).await?), [format!("{dead_id}: first")]);
    owner.settle(&buries(second.reservation, &["a"], &[])?).await?;
    assert_eq!(orders.peek("a").await?.map(|peeked| peeked.state.name()), Some("dead"));
    Ok(())
}

pub(super) async fn each_group_decides_whether_a_push_follows(world: World) -> Result<()> {
    let groups = ["acked", "flying", "waiting"];
    let orders = world.topic_with_groups("orders", &groups).await?;
    orders.push_all(&[saying(&orders, "a", 0, "first")?]).await?;
    let mut owners = Vec::new();
    for group in groups {
        owners.push(orders.acquire(&orders.partition_of(group)?, &member("m"), LEASE).await?);
    }
    owners[0].reserve(up_to(9)).await?;
    owners[0].settle(&acks(&["a"])?).await?;
    owners[1].reserve(up_to(9)).await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    assert_eq!(said(&owners[0].reserve(up_to(9)).await?), ["a: second"], "it had ended there");
    owners[1].settle(&acks(&["a"])?).await?;
    assert_eq!(said(&owners[1].reserve(up_to(9)).await?), ["a: second"], "it follows there");
    assert_eq!(said(&owners[2].reserve(up_to(9)).await?), ["a: first"], "it waits there");
    owners[2].settle(&acks(&["a"])?).await?;
    assert_eq!(owners[2].reserve(up_to(9)).await?.messages.len(), 0);
    Ok(())
}

pub(super) async fn message_with_another_key_is_not_followed(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let _held = in_flight(&orders, "a").await?;
    let mut second = saying(&orders, "a", 0, "second")?;
    second.envelope.key = Some(Key::new("k")?);
    assert_eq!(after(&orders, &second).await?, Err(Refused::OtherKey));
    assert_eq!(texts(&orders, "a").await?, Some(("first".into(), None)));
    Ok(())
}

pub(super) async fn cancel_ends_a_message_and_its_successor(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, taken) = in_flight(&orders, "a").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    assert_eq!(orders.cancel("a").await?, [Fate::InFlight]);
    owner.settle(&retries(taken.reservation, retried(&world, "a")?, &[])?).await?;
    assert_eq!(orders.cancel("a").await?, [Fate::Done]);
    assert_eq!(orders.peek("a").await?, None);
    world.pass(5_000);
    let left = owner.reserve(up_to(9)).await?;
    assert_eq!((left.messages.len(), left.unsettled), (0, 0));
    Ok(())
}

pub(super) async fn replacement_ends_a_message_and_its_successor(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, taken) = in_flight(&orders, "a").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    owner.settle(&retries(taken.reservation, retried(&world, "a")?, &[])?).await?;
    let third = saying(&orders, "a", 0, "third")?;
    assert_eq!(orders.push_over(Conflict::Replace, &[third]).await?, [REPLACED]);
    assert_eq!(said(&owner.reserve(up_to(9)).await?), ["a: third"]);
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(owner.reserve(up_to(9)).await?.messages.len(), 0);
    Ok(())
}

pub(super) async fn late_ack_makes_room_for_the_successor(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, taken) = in_flight(&orders, "a").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    owner.settle(&retries(taken.reservation, retried(&world, "a")?, &[])?).await?;
    let late = LateSettlement {
        pauses_key: false,
        id: MessageId::new("a")?,
        version: taken.messages[0].version,
        attempt: 1,
        redelivered: false,
        next_at: None,
        failure: None,
    };
    let (call, place) = (new_call(&*orders.store.backend, 1), orders.group_partition());
    let messages = &orders.store.messages;
    let fates = messages.settle_late(&orders.descriptor, place.partition, &place.group, &call, &[late]).await?;
    assert_eq!(fates, [Done]);
    assert_eq!(said(&owner.reserve(up_to(9)).await?), ["a: second"]);
    Ok(())
}

pub(super) async fn purge_ends_a_message_and_its_successor(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (_owner, _) = in_flight(&orders, "a").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    let (purge, call) =
        (Purge { group: GroupName::new("default")?, dead_letters: false }, new_call(&*orders.store.backend, 1));
    orders.store.messages.purge_group(&orders.descriptor, Partition(0), &call, &purge).await?;
    assert_eq!(orders.peek("a").await?, None);
    let mut owner = orders.owner().await?;
    assert_eq!(owner.reserve(up_to(9)).await?.messages.len(), 0);
    Ok(())
}

pub(super) async fn moved_message_takes_its_successor_along(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (mut owner, taken) = in_flight(&orders, "a").await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    owner.settle(&retries(taken.reservation, retried(&world, "a")?, &[])?).await?;
    let descriptor = wider(&world, 4, &["default"]).await?;
    assert_eq!(move_all(&orders, "default", &descriptor).await?.waiting, 1);
    assert_eq!(orders.peek("a").await?, None);
    world.pass(1_000);
    let partition = descriptor.partition_of("a");
    let place = descriptor.group_partition(partition, &GroupName::standard());
    let wide = world.existing(descriptor.clone());
    let mut owner = wide.acquire(&place, &member("m"), LEASE).await?;
    let first = owner.reserve(up_to(9)).await?;
    assert_eq!((said(&first), first.messages[0].attempts), (vec!["a: first".to_owned()], 1));
    let peeked = world.store.reads.peek(&place, &MessageId::new("a")?).await?;
    let successor = peeked.and_then(|peeked| peeked.message.successor).ok_or_else(|| Error::bug("no successor"))?;
    assert_eq!(descriptor.partition_of(successor.dead_id.as_str()), partition, "its dead letter is found by its id");
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(said(&owner.reserve(up_to(9)).await?), ["a: second"]);
    Ok(())
}

pub(super) async fn copied_group_gets_a_message_before_its_successor(world: World) -> Result<()> {
    let mut orders = world.topic("orders").await?;
    let _held = in_flight(&orders, "a").await?;
    let audit = GroupName::new("audit")?;
    let mut wanted = orders.descriptor.clone();
    wanted.groups.push(audit.clone());
    wanted.subscription_mut(&audit).copy_of = Some(GroupName::standard());
    orders.descriptor = world.store.topics.update(&wanted).await?;
    assert_eq!(after(&orders, &saying(&orders, "a", 0, "second")?).await?, BEHIND);
    let mut from = None;
    loop {
        let page = world.store.maintenance.copy(&orders.descriptor, Partition(0), &audit, from).await?;
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    let peeked = world.store.reads.peek(&orders.partition_of("audit")?, &MessageId::new("a")?).await?;
    let message = peeked.ok_or_else(|| Error::not_found("a"))?.message;
    let successor = message.successor.map(|successor| successor.message.envelope.payload);
    assert_eq!((message.envelope.payload, successor), ("first".into(), Some("second".into())));
    Ok(())
}

pub(super) async fn messages_of_any_kind_have_successors_of_any_kind(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let kinds = |text: &'static str| -> Result<Vec<Message>> {
        let mut keyed = saying(&orders, "m", 0, text)?;
        keyed.envelope.expires_at = Some(Timestamp::from_ms(world.now().as_ms() + 60_000));
        keyed.envelope.meta = vec![("a".into(), "b".into())];
        let mut first = saying(&orders, "m", 0, text)?;
        first.envelope.priority = 3;
        let mut large = saying(&orders, "m", 0, text)?;
        large.envelope.payload = vec![text.as_bytes()[0]; 200_000].into();
        Ok(vec![saying(&orders, "m", 0, text)?, keyed, first, large])
    };
    let mut owner = orders.owner().await?;
    for first in kinds("one")? {
        for second in kinds("two")? {
            orders.push_all(std::slice::from_ref(&first)).await?;
            assert_eq!(owner.reserve(up_to(9)).await?.messages[0].message, Ok(first.clone()));
            assert_eq!(after(&orders, &second).await?, BEHIND);
            owner.settle(&acks(&["m"])?).await?;
            let taken = owner.reserve(up_to(9)).await?;
            assert_eq!((ids_of(&taken.messages), &taken.messages[0].message), (vec!["m"], &Ok(second.clone())));
            owner.settle(&acks(&["m"])?).await?;
        }
    }
    Ok(())
}
