use std::time::Duration;

use dwell::codec::{DeadLetterReason, DeadLetterRecord, Failure};
use dwell::model::error::Result;
use dwell::model::last_error::LastError;
use dwell::model::limits::{HISTORY_MAX, PAYLOAD_BYTES_MAX, RECOVER_IDS_MAX};
use dwell::model::message::MessageId;
use dwell::model::time::Timestamp;
use dwell::model::version::Version;
use dwell::store::{Buried, Charge, DeadLetterRetention, MessageState, Owner, Pushed, Reserved, Retried, Settlement};

use crate::support::{TestTopic, World, acks, buries, ids, ids_of, no_such_customer, retries, up_to};

/// Pushes so many messages and buries them, all in the same millisecond.
async fn bury_many(orders: &TestTopic, prefix: &str, count: usize) -> Result<()> {
    orders.push_many(prefix, count).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1_000)).await?;
    owner.settle(&buries(taken.reservation, &ids_of(&taken.messages), &[])?).await
}

/// All dead ids, in pages of `limit`, with something done after every page.
async fn list(
    orders: &TestTopic,
    limit: usize,
    mut after: impl AsyncFnMut(&[MessageId]) -> Result<()>,
) -> Result<Vec<MessageId>> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = orders.store.dead_letters.dead(&orders.group_partition(), cursor.as_ref(), limit).await?;
        assert!(page.dead.len() <= limit);
        let ids: Vec<_> = page.dead.into_iter().map(|dead| dead.id).collect();
        after(&ids).await?;
        all.extend(ids);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

pub(super) async fn dead_letter_keeps_its_payload_and_reason(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let pushed = orders.message("a", 0)?;
    orders.push_all(std::slice::from_ref(&pushed)).await?;
    world.pass(7);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    owner.start(&[Charge { id: pushed.id.clone(), attempts: 4 }]).await?;
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    let page = orders.store.dead_letters.dead(&orders.group_partition(), None, 10).await?;
    assert_eq!((page.dead.len(), page.next), (1, None));
    let dead = &page.dead[0];
    let record = DeadLetterRecord::new(DeadLetterReason::Buried, 1, Some(no_such_customer()));
    assert_eq!((&dead.id, dead.died_at, &dead.record), (&pushed.id, world.now(), &record));
    assert_eq!(dead.message, Ok(pushed));
    assert_eq!(orders.stats().await?.in_flight, 0);
    assert!(owner.reserve(up_to(9)).await?.messages.is_empty());
    Ok(())
}

pub(super) async fn dead_letters_are_listed_by_time_and_id(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "z", 2).await?;
    world.pass(1);
    bury_many(&orders, "a", 2).await?;
    let all = ids(&["z000000", "z000001", "a000000", "a000001"])?;
    for limit in 1..=5 {
        assert_eq!(list(&orders, limit, async |_| Ok(())).await?, all, "pages of {limit}");
    }
    Ok(())
}

pub(super) async fn dead_letter_pages_are_stable_under_changes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "m", 1_000).await?;
    let store = orders.store.clone();
    let partition = orders.group_partition();
    // What was listed is purged behind the reader's back, and more dies in the meantime.
    let mut round = 0;
    let listed = list(&orders, 100, async |ids| {
        round += 1;
        if round == 5 {
            world.pass(1);
            bury_many(&orders, "n", 3).await?;
        }
        let purged = store.dead_letters.purge(&partition, ids).await?;
        assert!(purged.iter().all(Option::is_some));
        Ok(())
    })
    .await?;
    let expected = (0..1_000).map(|n| format!("m{n:06}")).chain((0..3).map(|n| format!("n{n:06}")));
    assert_eq!(listed.iter().map(MessageId::to_string).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert_eq!(orders.stats().await?.dead, 0);
    Ok(())
}

pub(super) async fn redriven_message_has_no_attempts(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "m", 2).await?;
    world.pass(60);
    let asked = ids(&["m000001", "unknown", "m000001"])?;
    assert_eq!(orders.store.dead_letters.redrive(&orders.group_partition(), &asked).await?, [true, false, false]);
    let peeked = orders.peek("m000001").await?;
    assert_eq!(peeked.map(|m| (m.state, m.attempts, m.next_at)), Some((MessageState::Ready, 0, Some(world.now()))));
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.dead, stats.oldest_ready_age), (1, 1, Some(Duration::ZERO)));
    let taken = orders.owner().await?.reserve(up_to(9)).await?.messages;
    assert_eq!((ids_of(&taken), taken[0].attempts), (vec!["m000001"], 0));
    assert_eq!(taken[0].message.as_ref().map(|m| m.due_at.plus(Duration::from_millis(60))), Ok(world.now()));
    Ok(())
}

pub(super) async fn purged_dead_letter_is_removed(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "m", 2).await?;
    orders.push("alive", 0).await?;
    let asked = ids(&["m000000", "alive", "unknown", "m000000"])?;
    let version = orders.peek("m000000").await?.map(|peeked| peeked.version);
    assert!(version > Some(Version::default()));
    let (dead_letters, group_partition) = (&orders.store.dead_letters, orders.group_partition());
    assert_eq!(dead_letters.purge(&group_partition, &asked).await?, [version, None, None, None]);
    assert_eq!(dead_letters.purge(&group_partition, &asked).await?, [None; 4]);
    assert_eq!(orders.peek("m000000").await?, None);
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.dead), (1, 1));
    assert_eq!(orders.push("m000000", 0).await?, Pushed::Stored);
    Ok(())
}

pub(super) async fn dead_letter_calls_are_bounded(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "m", RECOVER_IDS_MAX + 1).await?;
    let all = list(&orders, 1_000, async |_| Ok(())).await?;
    let partition = orders.group_partition();
    assert!(orders.store.dead_letters.redrive(&partition, &all).await.is_err());
    assert!(orders.store.dead_letters.purge(&partition, &all).await.is_err());
    assert_eq!(orders.stats().await?.dead, all.len() as u64);
    assert_eq!(orders.store.dead_letters.redrive(&partition, &all[1..]).await?, [true; RECOVER_IDS_MAX]);
    assert_eq!(orders.stats().await?.ready, RECOVER_IDS_MAX as u64);
    Ok(())
}

pub(super) async fn page_of_large_dead_letters_is_bounded_by_bytes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let large = |n: usize| -> Result<_> {
        let mut message = orders.message(&format!("m{n}"), 0)?;
        message.envelope.payload = vec![b'x'; PAYLOAD_BYTES_MAX].into();
        Ok(message)
    };
    for n in 0..10 {
        orders.push_all(&[large(n)?]).await?;
    }
    let mut owner = orders.owner().await?;
    for _ in 0..5 {
        let taken = owner.reserve(up_to(9)).await?;
        owner.settle(&buries(taken.reservation, &ids_of(&taken.messages), &[])?).await?;
        if orders.stats().await?.dead == 10 {
            break;
        }
    }
    let (mut listed, mut after, mut pages) = (0, None, 0);
    loop {
        let page = orders.store.dead_letters.dead(&orders.group_partition(), after.as_ref(), 1_000).await?;
        assert!(page.dead.len() <= 5, "{} MiB in one page", page.dead.len());
        (listed, pages) = (listed + page.dead.len(), pages + 1);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, 10);
    assert!(pages >= 2);
    Ok(())
}

/// The owner says that this attempt at the only message failed, to be tried again at once.
async fn fail(
    world: &World,
    owner: &mut Box<dyn Owner>,
    attempt: u32,
    reason: impl Into<LastError>,
) -> Result<Failure> {
    let taken = owner.reserve(up_to(1)).await?;
    let failure = Failure::new(world.now(), attempt, Some(&reason.into()));
    let id = taken.messages[0].id.clone();
    let retried = Retried { id, next_at: world.now(), attempts: attempt, failure: Some(failure.clone()) };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    Ok(failure)
}

/// A settlement that buries the only message, after an attempt that failed so.
fn bury_after(taken: &Reserved, failure: &Failure) -> Result<Settlement> {
    let record = DeadLetterRecord::new(DeadLetterReason::MaxAttempts, failure.attempt, failure.last_error());
    let buried = vec![Buried { id: taken.messages[0].id.clone(), record, failure: Some(failure.clone()) }];
    Ok(Settlement { buried, remaining: vec![(taken.reservation, vec![])], ..Settlement::default() })
}

async fn history(orders: &TestTopic, id: &str) -> Result<Vec<Failure>> {
    Ok(orders.peek(id).await?.map(|peeked| peeked.history).unwrap_or_default())
}

pub(super) async fn history_records_failed_attempts(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    let first = fail(&world, &mut owner, 1, "smtp: 451\n\"later\"").await?;
    assert_eq!(history(&orders, "a").await?, std::slice::from_ref(&first));
    world.pass(5);
    let second = fail(&world, &mut owner, 2, "smtp: 452").await?;
    world.pass(5);
    let taken = owner.reserve(up_to(1)).await?;
    assert_eq!(
        (taken.messages[0].attempts, taken.messages[0].ready_at),
        (2, Timestamp::from_ms(world.now().as_ms() - 5))
    );
    let third = Failure::new(world.now(), 3, None);
    owner.settle(&bury_after(&taken, &third)?).await?;
    let dead = orders.store.dead_letters.dead(&orders.group_partition(), None, 1).await?.dead;
    assert_eq!(dead[0].record.history, [first, second, third]);
    assert_eq!(dead[0].message.as_ref().map(|message| message.id.as_str()), Ok("a"));
    // What is made ready again begins anew.
    orders.store.dead_letters.redrive(&orders.group_partition(), &ids(&["a"])?).await?;
    assert_eq!(history(&orders, "a").await?, []);
    Ok(())
}

pub(super) async fn a_history_keeps_the_newest_sixteen(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    let longest = "\u{1}".repeat(5_000);
    let mut all = Vec::new();
    for attempt in 1..=20 {
        all.iter_mut().for_each(|failure: &mut Failure| failure.error = None);
        all.push(fail(&world, &mut owner, attempt, &*longest).await?);
        assert_eq!(history(&orders, "a").await?, all[all.len().saturating_sub(HISTORY_MAX)..]);
    }
    all.iter_mut().for_each(|failure| failure.error = None);
    let taken = owner.reserve(up_to(1)).await?;
    let last = Failure::new(world.now(), 21, Some(&"x".into()));
    owner.settle(&bury_after(&taken, &last)?).await?;
    all.push(last);
    let dead = orders.store.dead_letters.dead(&orders.group_partition(), None, 1).await?.dead;
    assert_eq!(dead[0].record.history, all[all.len() - HISTORY_MAX..]);
    Ok(())
}

/// An error of which nothing is cut, and one that is as long as one may be.
fn whole_errors() -> [LastError; 2] {
    let long = |text: &str| text.repeat(5_000);
    [no_such_customer(), LastError::new(Some(long("é")), long("\u{1}"), Some(long("at \"x\"\n")))]
}

pub(super) async fn the_last_attempt_keeps_its_whole_error(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for (id, error) in ["a", "b"].into_iter().zip(whole_errors()) {
        orders.push(id, 0).await?;
        let mut owner = orders.owner().await?;
        let error_of = async || {
            Ok::<_, dwell::model::error::Error>(history(&orders, id).await?.pop().and_then(|last| last.last_error()))
        };
        fail(&world, &mut owner, 1, error.clone()).await?;
        assert_eq!(error_of().await?, Some(error.clone()));
        // Another attempt leaves it until that has ended, and a release leaves it too.
        let taken = owner.reserve(up_to(1)).await?;
        owner.start(&[Charge { id: MessageId::new(id)?, attempts: 2 }]).await?;
        let released = Retried { id: MessageId::new(id)?, next_at: world.now(), attempts: 1, failure: None };
        owner.settle(&retries(taken.reservation, released, &[])?).await?;
        let mut next = orders.owner().await?;
        assert_eq!(error_of().await?, Some(error.clone()));
        fail(&world, &mut next, 2, "smtp: 451").await?;
        let failures = history(&orders, id).await?;
        assert_eq!(
            (failures.len(), &failures[0].error, failures[1].last_error()),
            (2, &None, Some("smtp: 451".into()))
        );
        fail(&world, &mut next, 3, error.clone()).await?;
        assert_eq!(error_of().await?, Some(error.clone()));
        // It expires: its record has no error of its own.
        let taken = next.reserve(up_to(1)).await?;
        let record = DeadLetterRecord::new(DeadLetterReason::Expired, 3, None);
        let buried = vec![Buried { id: MessageId::new(id)?, record, failure: None }];
        let remaining = vec![(taken.reservation, vec![])];
        next.settle(&Settlement { buried, remaining, ..Settlement::default() }).await?;
        let dead = orders.store.dead_letters.dead(&orders.group_partition(), None, 1).await?.dead;
        assert_eq!((dead[0].id.as_str(), &dead[0].record.last_error), (id, &Some(error.clone())));
        orders.store.dead_letters.redrive(&orders.group_partition(), &ids(&[id])?).await?;
        assert_eq!(error_of().await?, None, "as if it was never tried");
        let taken = next.reserve(up_to(1)).await?;
        let failure = Failure::new(world.now(), 1, Some(&error));
        next.settle(&bury_after(&taken, &failure)?).await?;
        let dead = orders.store.dead_letters.dead(&orders.group_partition(), None, 1).await?.dead;
        assert_eq!(dead[0].record.last_error, Some(error));
        orders.store.dead_letters.purge(&orders.group_partition(), &ids(&[id])?).await?;
        // Another message of the id has nothing of it.
        orders.push(id, 0).await?;
        fail(&world, &mut next, 1, "busy").await?;
        let taken = next.reserve(up_to(1)).await?;
        assert_eq!(error_of().await?, Some("busy".into()));
        next.settle(&acks(&[id])?).await?;
        drop(taken);
    }
    Ok(())
}

pub(super) async fn recovery_and_charges_keep_the_history(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    let failure = fail(&world, &mut owner, 1, "no").await?;
    owner.reserve(up_to(1)).await?;
    owner.start(&[Charge { id: failure_id()?, attempts: 2 }]).await?;
    assert_eq!(history(&orders, "a").await?, std::slice::from_ref(&failure));
    let mut next = orders.owner().await?;
    assert_eq!(orders.recover(&mut next).await?, 1);
    assert_eq!(history(&orders, "a").await?, std::slice::from_ref(&failure));
    let taken = next.reserve(up_to(1)).await?;
    assert_eq!((taken.messages[0].attempts, taken.messages[0].ready_at), (2, world.now()));
    Ok(())
}

fn failure_id() -> Result<MessageId> {
    MessageId::new("a")
}

pub(super) async fn retention_drops_the_oldest_dead_letters(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for prefix in ["z", "y", "x"] {
        bury_many(&orders, prefix, 2).await?;
        world.pass(10);
    }
    let (store, partition) = (orders.store.clone(), orders.group_partition());
    let none = store.dead_letters.drop_dead(&partition, DeadLetterRetention::default()).await?;
    let begun = world.now().as_ms() - 30;
    assert_eq!((none.aged, none.surplus, none.more, none.oldest), (0, 0, false, Some(Timestamp::from_ms(begun))));
    // A message that died just then is not older.
    let bounds = DeadLetterRetention { died_before: Some(Timestamp::from_ms(begun)), count: Some(6) };
    assert_eq!(store.dead_letters.drop_dead(&partition, bounds).await?, none);
    let bounds = DeadLetterRetention { died_before: Some(Timestamp::from_ms(begun + 1)), count: Some(3) };
    let dropped = store.dead_letters.drop_dead(&partition, bounds).await?;
    let oldest = Some(Timestamp::from_ms(begun + 10));
    assert_eq!((dropped.aged, dropped.surplus, dropped.more, dropped.oldest), (2, 1, false, oldest));
    assert_eq!(list(&orders, 10, async |_| Ok(())).await?, ids(&["y000001", "x000000", "x000001"])?);
    assert_eq!(orders.stats().await?.dead, 3);
    let all =
        store.dead_letters.drop_dead(&partition, DeadLetterRetention { died_before: None, count: Some(0) }).await?;
    assert_eq!((all.aged, all.surplus, all.more, all.oldest), (0, 3, false, None));
    Ok(())
}

pub(super) async fn retention_drops_in_pages(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "m", RECOVER_IDS_MAX + 1).await?;
    let bounds = DeadLetterRetention { died_before: None, count: Some(0) };
    let first = orders.store.dead_letters.drop_dead(&orders.group_partition(), bounds).await?;
    assert_eq!((first.surplus, first.more), (RECOVER_IDS_MAX as u64, true));
    let second = orders.store.dead_letters.drop_dead(&orders.group_partition(), bounds).await?;
    assert_eq!((second.surplus, second.more, second.oldest), (1, false, None));
    Ok(())
}
