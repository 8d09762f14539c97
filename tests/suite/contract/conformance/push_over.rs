use std::time::Duration;

use bytes::Bytes;
use dwell::model::error::{Error, Result};
use dwell::model::limits::POLICY_IDS_MAX;
use dwell::model::message::{Conflict, Key, Message, MessageId};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::store::{Expected, PushVerdict, Pushed, Refused, Rescheduled, Retried, Settlement};

use crate::support::{LEASE, TestTopic, World, acks, buries, ids_of, member, new_call, retries, up_to};

const POLICIES: [Conflict; 3] = [Conflict::Reject, Conflict::Replace, Conflict::Debounce];

const STORED: Result<Pushed, Refused> = Ok(Pushed::Stored);
const DUPLICATE: Result<Pushed, Refused> = Ok(Pushed::Duplicate);
const REPLACED: Result<Pushed, Refused> = Ok(Pushed::Replaced);
const DEBOUNCED: Result<Pushed, Refused> = Ok(Pushed::Debounced);

async fn push(orders: &TestTopic, conflict: Conflict, message: &Message) -> Result<Result<Pushed, Refused>> {
    Ok(orders.push_over(conflict, std::slice::from_ref(message)).await?.remove(0))
}

/// A message of another payload than its id.
fn other(orders: &TestTopic, id: &str, delay_ms: u64) -> Result<Message> {
    let mut message = orders.message(id, delay_ms)?;
    message.envelope.payload = Bytes::from_static(b"another payload");
    Ok(message)
}

pub(super) async fn new_id_is_stored_under_every_policy(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    for conflict in POLICIES {
        assert_eq!(push(&orders, conflict, &orders.message(conflict.name(), 5)?).await?, STORED);
    }
    world.pass(5);
    for group in ["default", "audit"] {
        let mut owner = orders.acquire(&orders.partition_of(group)?, &member("m"), LEASE).await?;
        assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["debounce", "reject", "replace"]);
    }
    Ok(())
}

pub(super) async fn reject_policy_changes_nothing(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let message = orders.message("a", 5)?;
    assert_eq!(push(&orders, Conflict::Reject, &message).await?, STORED);
    let before = orders.peek("a").await?;
    assert_eq!(push(&orders, Conflict::Reject, &other(&orders, "a", 9)?).await?, DUPLICATE);
    assert_eq!(orders.peek("a").await?, before);
    Ok(())
}

pub(super) async fn replace_policy_stores_a_new_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    orders.push("a", 0).await?;
    let taken = owner.reserve(up_to(1)).await?;
    let retried = Retried {
        id: MessageId::new("a")?,
        next_at: world.now().plus(Duration::from_secs(9)),
        attempts: 3,
        failure: None,
    };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    let new = other(&orders, "a", 50)?;
    assert_eq!(push(&orders, Conflict::Replace, &new).await?, REPLACED);
    let peeked = orders.peek("a").await?;
    let found = peeked.as_ref().map(|peeked| (&peeked.message, peeked.attempts, peeked.next_at));
    assert_eq!(found, Some((&new, 0, Some(new.due_at))));
    world.pass(50);
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!(taken.messages[0].message, Ok(new));
    assert_eq!((taken.messages.len(), taken.unsettled), (1, 1));
    Ok(())
}

pub(super) async fn debounce_policy_changes_only_the_due_time(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let first = orders.message("a", 10)?;
    orders.push_all(std::slice::from_ref(&first)).await?;
    for delay in [500, 100] {
        let again = other(&orders, "a", delay)?;
        assert_eq!(push(&orders, Conflict::Debounce, &again).await?, DEBOUNCED);
        assert_eq!(push(&orders, Conflict::Debounce, &again).await?, DUPLICATE, "said again");
        let expected = Message { due_at: again.due_at, ..first.clone() };
        assert_eq!(orders.peek("a").await?.map(|peeked| peeked.message), Some(expected));
    }
    world.pass(99);
    let mut owner = orders.owner().await?;
    assert!(owner.reserve(up_to(1)).await?.messages.is_empty());
    world.pass(1);
    assert_eq!(ids_of(&owner.reserve(up_to(1)).await?.messages), ["a"]);
    Ok(())
}

/// A debounce of so many ms, at most so many after the first push.
async fn debounce(orders: &TestTopic, id: &str, delay_ms: u64, max_ms: Option<u64>) -> Result<PushVerdict> {
    let messages = [Message { debounce_max: max_ms.map(Duration::from_millis), ..other(orders, id, delay_ms)? }];
    let call = new_call(&*orders.store.backend, 1);
    let push = orders.store.messages.push(&orders.descriptor, Partition(0), &call, Conflict::Debounce, &messages);
    push.await?.pop().ok_or_else(|| Error::bug("a push without a verdict"))
}

pub(super) async fn debounce_goes_no_further_than_its_bound_from_the_first_push(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let (first, audit, begun) = (orders.message("a", 10)?, orders.partition_of("audit")?, world.now());
    let after = |ms| begun.plus(Duration::from_millis(ms));
    orders.push_all(std::slice::from_ref(&first)).await?;
    let due = async |at: Timestamp| -> Result<()> {
        let expected = Some(Message { due_at: at, ..first.clone() });
        assert_eq!(orders.peek("a").await?.map(|peeked| peeked.message), expected);
        assert_eq!(orders.store.reads.peek(&audit, &first.id).await?.map(|peeked| peeked.message), expected);
        Ok(())
    };
    let (moved, same) = (PushVerdict::from(Pushed::Debounced), PushVerdict::from(Pushed::Duplicate));
    let bounded = |verdict: &PushVerdict, ms| PushVerdict { bounded: Some(after(ms)), ..verdict.clone() };
    world.pass(5);
    assert_eq!(debounce(&orders, "a", 50, Some(100)).await?, moved, "within the bound");
    due(after(55)).await?;
    world.pass(30);
    assert_eq!(debounce(&orders, "a", 80, Some(100)).await?, bounded(&moved, 100));
    due(after(100)).await?;
    world.pass(20);
    assert_eq!(debounce(&orders, "a", 80, Some(100)).await?, bounded(&same, 100), "it is there already");
    assert_eq!(debounce(&orders, "a", 80, None).await?, moved, "without a bound");
    due(after(135)).await?;
    assert_eq!(debounce(&orders, "a", 80, Some(70)).await?, bounded(&moved, 70), "it waited beyond the bound");
    assert_eq!(debounce(&orders, "a", 80, Some(20)).await?, bounded(&moved, 20), "the bound has passed");
    due(after(20)).await?;
    let mut owner = orders.owner().await?;
    assert_eq!(ids_of(&owner.reserve(up_to(1)).await?.messages), ["a"], "it is due at once");
    let refused = PushVerdict::from(Err(Refused::InFlight));
    assert_eq!(debounce(&orders, "a", 80, Some(70)).await?, refused);
    Ok(())
}

pub(super) async fn bound_of_a_debounce_begins_anew_with_a_replacement(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 10).await?;
    world.pass(200);
    let mut new = other(&orders, "a", 10)?;
    let after = |ms| world.now().plus(Duration::from_millis(ms));
    let (bound, expires_at) = (after(100), after(150));
    new.envelope.expires_at = Some(expires_at);
    assert_eq!(push(&orders, Conflict::Replace, &new).await?, REPLACED);
    world.pass(50);
    assert_eq!(debounce(&orders, "a", 200, None).await?, Err(Refused::Expires).into());
    let moved = PushVerdict { bounded: Some(bound), ..Pushed::Debounced.into() };
    assert_eq!(debounce(&orders, "a", 200, Some(100)).await?, moved, "it does not expire before the bound");
    orders.reschedule_if("a", after(5), Expected::default()).await?;
    assert_eq!(debounce(&orders, "a", 200, Some(100)).await?, moved, "a reschedule is no push");
    Ok(())
}

pub(super) async fn in_flight_or_dead_message_is_unchanged_by_policies(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let first = orders.message("a", 0)?;
    orders.push_all(std::slice::from_ref(&first)).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    let audit = orders.partition_of("audit")?;
    let refused = async |expected: Refused| -> Result<()> {
        for conflict in [Conflict::Replace, Conflict::Debounce] {
            assert_eq!(push(&orders, conflict, &other(&orders, "a", 50)?).await?, Err(expected));
        }
        // Not in the other group either, where it waits.
        let there = orders.store.reads.peek(&audit, &first.id).await?;
        assert_eq!(there.map(|peeked| (peeked.message, peeked.next_at)), Some((first.clone(), Some(first.due_at))));
        Ok(())
    };
    refused(Refused::InFlight).await?;
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    refused(Refused::Dead).await?;
    assert_eq!(orders.peek("a").await?.map(|peeked| peeked.message), Some(first.clone()));
    Ok(())
}

pub(super) async fn policies_do_not_repeat_settled_messages(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let mut owner = orders.owner().await?;
    orders.push("a", 0).await?;
    owner.reserve(up_to(1)).await?;
    let dedup_window = Duration::from_millis(100);
    owner.settle(&Settlement { dedup_window, ..acks(&["a"])? }).await?;
    assert_eq!(push(&orders, Conflict::Replace, &other(&orders, "a", 0)?).await?, REPLACED);
    assert!(owner.reserve(up_to(1)).await?.messages.is_empty(), "this group has settled it");
    let mut audit = orders.acquire(&orders.partition_of("audit")?, &member("m"), LEASE).await?;
    audit.reserve(up_to(1)).await?;
    audit.settle(&acks(&["a"])?).await?;
    for conflict in POLICIES {
        assert_eq!(push(&orders, conflict, &other(&orders, "a", 0)?).await?, DUPLICATE);
    }
    world.pass(100);
    assert_eq!(push(&orders, Conflict::Debounce, &other(&orders, "a", 0)?).await?, STORED);
    Ok(())
}

pub(super) async fn debounce_does_not_pass_the_expiry(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let of_key = |mut message: Message| -> Result<Message> {
        message.envelope.key = Some(Key::new("k".repeat(256))?);
        Ok(message)
    };
    let mut message = of_key(orders.message("a", 10)?)?;
    let expires_at = world.now().plus(Duration::from_millis(100));
    message.envelope.expires_at = Some(expires_at);
    orders.push_all(std::slice::from_ref(&message)).await?;
    assert_eq!(push(&orders, Conflict::Debounce, &of_key(other(&orders, "a", 100)?)?).await?, Err(Refused::Expires));
    assert_eq!(orders.reschedule_if("a", expires_at, Expected::default()).await?, Rescheduled::Expires);
    assert_eq!(orders.peek("a").await?.map(|peeked| peeked.message), Some(message));
    assert_eq!(push(&orders, Conflict::Debounce, &of_key(other(&orders, "a", 99)?)?).await?, DEBOUNCED);
    Ok(())
}

pub(super) async fn same_id_with_another_key_is_another_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut message = orders.message("a", 10)?;
    message.envelope.key = Some(Key::new("k")?);
    orders.push_all(std::slice::from_ref(&message)).await?;
    for key in [None, Some(Key::new("kk")?), Some(Key::new("l")?)] {
        for conflict in [Conflict::Replace, Conflict::Debounce] {
            let mut other = other(&orders, "a", 20)?;
            other.envelope.key = key.clone();
            assert_eq!(push(&orders, conflict, &other).await?, Err(Refused::OtherKey), "{conflict:?} {key:?}");
        }
    }
    assert_eq!(orders.peek("a").await?.map(|peeked| peeked.message), Some(message));
    Ok(())
}

pub(super) async fn policies_resolve_conflicts_within_a_call_in_order(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let batch = [orders.message("a", 5)?, orders.message("b", 5)?, other(&orders, "a", 9)?];
    assert_eq!(orders.push_over(Conflict::Replace, &batch).await?, [STORED, STORED, REPLACED]);
    assert_eq!(orders.peek("a").await?.map(|peeked| peeked.message), Some(batch[2].clone()));
    assert_eq!(orders.stats().await?.scheduled, 2);
    Ok(())
}

pub(super) async fn policy_call_size_is_bounded(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut all = (0..POLICY_IDS_MAX).map(|n| orders.message(&n.to_string(), 5)).collect::<Result<Vec<_>>>()?;
    let answers = orders.push_over(Conflict::Replace, &all).await?;
    assert_eq!(answers, vec![STORED; POLICY_IDS_MAX]);
    assert_eq!(orders.push_over(Conflict::Replace, &[]).await?, []);
    all.push(orders.message("more", 5)?);
    assert!(orders.push_over(Conflict::Replace, &all).await.is_err());
    Ok(())
}
