use std::time::Duration;

use dwell::codec::{DeadLetterReason, DeadLetterRecord, Failure};
use dwell::model::error::{Kind, Result};
use dwell::model::limits::CANCELLED_KEPT;
use dwell::model::message::{Message, MessageId};
use dwell::store::Fate::{Absent, Dead, Done, InFlight};
use dwell::store::{Buried, Expected, Owner, Pushed, Rescheduled, Retried, Settlement};

use crate::support::{LEASE, TestTopic, World, acks, ids_of, kind_of, member, retries, up_to};

async fn two_groups(world: &World) -> Result<(TestTopic, Box<dyn Owner>)> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let audit = orders.acquire(&orders.partition_of("audit")?, &member("audit"), LEASE).await?;
    Ok((orders, audit))
}

fn bury(id: &str) -> Result<Settlement> {
    let record = DeadLetterRecord::new(DeadLetterReason::Buried, 1, None);
    Ok(Settlement { buried: vec![Buried { id: MessageId::new(id)?, record, failure: None }], ..Settlement::default() })
}

pub(super) async fn waiting_message_is_cancelled_in_every_group(world: World) -> Result<()> {
    let (orders, mut audit) = two_groups(&world).await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 10)?, orders.message("c", 10)?]).await?;
    assert_eq!(orders.cancel("a").await?, [Done, Done]); // ready
    assert_eq!(orders.cancel("b").await?, [Done, Done]); // scheduled
    for partition in [orders.group_partition(), orders.partition_of("audit")?] {
        let stats = orders.stats_of(&partition).await?;
        assert_eq!((stats.ready, stats.scheduled, stats.in_flight, stats.dead), (0, 1, 0, 0));
        assert_eq!(orders.store.reads.peek(&partition, &MessageId::new("a")?).await?, None);
    }
    world.pass(10);
    assert_eq!(ids_of(&orders.owner().await?.reserve(up_to(9)).await?.messages), ["c"]);
    let reserved = audit.reserve(up_to(9)).await?;
    assert_eq!((ids_of(&reserved.messages), reserved.dropped, reserved.unsettled), (vec!["c"], 0, 1));
    Ok(())
}

pub(super) async fn in_flight_message_is_not_cancelled(world: World) -> Result<()> {
    let (orders, mut audit) = two_groups(&world).await?;
    orders.push("a", 0).await?;
    let taken = audit.reserve(up_to(1)).await?;
    assert_eq!(orders.cancel("a").await?, [Done, InFlight]);
    assert_eq!(orders.stats().await?.ready, 0);
    assert_eq!(orders.cancel("a").await?, [Done, InFlight], "and again");
    // It waits again: now it can be cancelled there too.
    let retried = Retried {
        id: MessageId::new("a")?,
        next_at: world.now().plus(Duration::from_secs(1)),
        attempts: 1,
        failure: None,
    };
    audit.settle(&retries(taken.reservation, retried, &[])?).await?;
    assert_eq!(orders.cancel("a").await?, [Done, Done]);
    world.pass(2_000);
    assert!(audit.reserve(up_to(1)).await?.messages.is_empty());
    Ok(())
}

pub(super) async fn dead_or_absent_message_is_not_cancelled(world: World) -> Result<()> {
    let (orders, mut audit) = two_groups(&world).await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(1)).await?;
    owner.settle(&bury("a")?).await?;
    audit.reserve(up_to(1)).await?;
    audit.settle(&acks(&["a"])?).await?;
    assert_eq!(orders.cancel("a").await?, [Dead, Absent]);
    assert_eq!(orders.cancel("never").await?, [Absent, Absent]);
    assert_eq!(orders.stats().await?.dead, 1);
    Ok(())
}

pub(super) async fn repeated_cancel_gets_the_same_result(world: World) -> Result<()> {
    let (orders, mut audit) = two_groups(&world).await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 5)?]).await?;
    audit.reserve(up_to(1)).await?;
    for _ in 0..2 {
        assert_eq!(orders.cancel("a").await?, [Done, InFlight]);
        assert_eq!(orders.cancel("b").await?, [Done, Done]);
    }
    audit.settle(&acks(&["a"])?).await?;
    // That group got it: nobody may be told that it was cancelled there.
    assert_eq!(orders.cancel("a").await?, [Done, Absent]);
    Ok(())
}

pub(super) async fn cancelled_id_can_be_pushed_again(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let first = orders.message("a", 10)?;
    orders.push_all(std::slice::from_ref(&first)).await?;
    assert_eq!(orders.cancel("a").await?, [Done]);
    world.pass(1);
    assert_eq!(orders.push_all(&[orders.message("b", 0)?, orders.message("a", 20)?]).await?, vec![Pushed::Stored; 2]);
    world.pass(20);
    let mut owner = orders.owner().await?;
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["b", "a"]);
    owner.settle(&acks(&["a"])?).await?;
    // The second one was delivered, so nobody is told that it was cancelled.
    assert_eq!(orders.cancel("a").await?, [Absent]);
    Ok(())
}

pub(super) async fn a_cancel_is_remembered_for_a_day(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let message = orders.message("a", 10)?;
    orders.push_all(std::slice::from_ref(&message)).await?;
    orders.cancel("a").await?;
    world.time.advance(CANCELLED_KEPT);
    assert_eq!(orders.cancel("a").await?, [Done]);
    world.pass(2);
    // Another cancel sweeps.
    orders.push("b", 0).await?;
    orders.cancel("b").await?;
    assert_eq!(orders.cancel("a").await?, [Absent]);
    Ok(())
}

pub(super) async fn rescheduled_message_is_due_at_the_new_time(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    orders.push_all(&[orders.message("later", 10)?, orders.message("sooner", 1_000)?]).await?;
    assert_eq!(orders.reschedule("later", 500).await?, [Done]);
    assert_eq!(orders.reschedule("sooner", 20).await?, [Done]);
    world.pass(19);
    assert!(owner.reserve(up_to(9)).await?.messages.is_empty());
    world.pass(1);
    let due_at = world.now();
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&taken.messages), ["sooner"]);
    assert_eq!(taken.messages[0].ready_at, due_at);
    assert_eq!(taken.messages[0].message.as_ref().ok().map(|message| message.due_at), Some(due_at));
    world.pass(479);
    assert!(owner.reserve(up_to(9)).await?.messages.is_empty());
    world.pass(1);
    // What is ready may be put off, as long as nobody has it.
    assert_eq!(orders.stats().await?.ready, 1);
    assert_eq!(orders.reschedule("later", 5).await?, [Done]);
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.scheduled), (0, 1));
    world.pass(5);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["later"]);
    Ok(())
}

pub(super) async fn reschedule_keeps_attempts_and_payload(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    let mut message = orders.message("a", 0)?;
    message.envelope.payload = vec![7; 20_000].into();
    orders.push_all(std::slice::from_ref(&message)).await?;
    let taken = owner.reserve(up_to(1)).await?;
    let (failure, next_at) =
        (Failure::new(world.now(), 3, Some(&"no paper".into())), world.now().plus(Duration::from_secs(9)));
    let retried = Retried { id: message.id.clone(), next_at, attempts: 3, failure: Some(failure.clone()) };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    assert_eq!(orders.reschedule("a", 100).await?, [Done]);
    world.pass(100);
    assert_eq!(orders.peek("a").await?.map(|peeked| (peeked.attempts, peeked.history)), Some((3, vec![failure])));
    let (found, now) = (owner.reserve(up_to(1)).await?, world.now());
    let expected = Message { due_at: now, ..message };
    assert_eq!((found.messages[0].attempts, found.messages[0].ready_at), (3, now));
    assert_eq!(found.messages[0].message, Ok(expected));
    Ok(())
}

pub(super) async fn only_waiting_messages_are_rescheduled(world: World) -> Result<()> {
    let (orders, mut audit) = two_groups(&world).await?;
    orders.push("a", 0).await?;
    let taken = audit.reserve(up_to(1)).await?;
    assert_eq!(orders.reschedule("a", 50).await?, [Done, InFlight]);
    audit.settle(&bury("a")?).await?;
    assert_eq!(orders.reschedule("a", 60).await?, [Done, Dead]);
    assert_eq!(orders.reschedule("never", 60).await?, [Absent, Absent]);
    assert_eq!(taken.messages[0].ready_at, world.now());
    Ok(())
}

pub(super) async fn reschedule_honours_its_expected_state(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    let message = orders.message("a", 0)?;
    orders.push_all(std::slice::from_ref(&message)).await?;
    let (first, second) = (world.now().plus(Duration::from_secs(1)), world.now().plus(Duration::from_secs(2)));
    let expected = |due_at, attempts| Expected { due_at: Some(due_at), attempts: Some(attempts) };
    let changed = Rescheduled::Changed(orders.group_partition().group);
    for wrong in [expected(first, 0), expected(message.due_at, 1)] {
        assert_eq!(orders.reschedule_if("a", first, wrong).await?, changed);
    }
    assert_eq!(orders.stats().await?.ready, 1, "nothing was changed");
    let done = orders.reschedule_if("a", first, expected(message.due_at, 0)).await?;
    assert!(matches!(&done, Rescheduled::Done(_)), "{done:?}");
    // Said again it is what is asked for already; asking for something else it is not.
    let again = orders.reschedule_if("a", first, expected(message.due_at, 0)).await?;
    assert!(matches!(again, Rescheduled::Done(_)), "{again:?}");
    assert_eq!(orders.reschedule_if("a", second, expected(message.due_at, 0)).await?, changed);
    world.pass(1_000);
    let taken = owner.reserve(up_to(1)).await?;
    let retried = Retried { id: message.id, next_at: world.now(), attempts: 1, failure: None };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    assert_eq!(orders.reschedule_if("a", second, expected(first, 0)).await?, changed, "it was tried meanwhile");
    Ok(())
}

pub(super) async fn reschedule_is_atomic_over_groups(world: World) -> Result<()> {
    let (orders, mut audit) = two_groups(&world).await?;
    let message = orders.message("a", 0)?;
    orders.push_all(std::slice::from_ref(&message)).await?;
    let taken = audit.reserve(up_to(1)).await?;
    let retried = Retried { id: message.id.clone(), next_at: world.now(), attempts: 1, failure: None };
    audit.settle(&retries(taken.reservation, retried, &[])?).await?;
    let expected = Expected { due_at: Some(message.due_at), attempts: Some(0) };
    let rescheduled = orders.reschedule_if("a", world.now().plus(Duration::from_secs(9)), expected).await?;
    assert_eq!(rescheduled, Rescheduled::Changed(orders.partition_of("audit")?.group));
    assert_eq!(orders.peek("a").await?.and_then(|peeked| peeked.next_at), Some(message.due_at));
    Ok(())
}

pub(super) async fn cancels_and_reschedules_need_the_current_descriptor(world: World) -> Result<()> {
    let old = world.topic("orders").await?;
    old.push("a", 100).await?;
    let mut wanted = old.descriptor.clone();
    wanted.settings.max_attempts += 1;
    let orders = world.existing(world.store.topics.update(&wanted).await?);
    // A partition that has not seen the new one learns of it from who knows it; after that the old one is refused.
    assert_eq!(orders.reschedule("a", 50).await?, [Done]);
    assert_eq!(kind_of(old.reschedule("a", 70).await), Some(Kind::Stale));
    assert_eq!(kind_of(old.cancel("a").await), Some(Kind::Stale));
    assert_eq!(orders.cancel("a").await?, [Done]);
    Ok(())
}
