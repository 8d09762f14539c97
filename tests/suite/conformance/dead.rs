use std::time::Duration;

use dwell::codec::{DeadReason, DeadRecord};
use dwell::error::Result;
use dwell::limits::{PAYLOAD_BYTES_MAX, RECOVER_IDS_MAX};
use dwell::message::MessageId;
use dwell::store::{Charge, Pushed, State};

use crate::support::{TestTopic, World, buries, ids, ids_of, up_to};

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
        let page = orders.store.dead(&orders.pair(), cursor.as_ref(), limit).await?;
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

pub(super) async fn a_dead_message_keeps_its_body_and_its_reason(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let pushed = orders.message("a", 0)?;
    orders.push_all(std::slice::from_ref(&pushed)).await?;
    world.pass(7);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    owner.start(&[Charge { id: pushed.id.clone(), attempts: 4 }]).await?;
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    let page = orders.store.dead(&orders.pair(), None, 10).await?;
    assert_eq!((page.dead.len(), page.next), (1, None));
    let dead = &page.dead[0];
    let record = DeadRecord::new(DeadReason::Buried, 1, Some("no such customer".into()));
    assert_eq!((&dead.id, dead.died_at, &dead.record), (&pushed.id, world.now(), &record));
    assert_eq!(dead.message, Ok(pushed));
    assert_eq!(orders.stats().await?.in_flight, 0);
    assert!(owner.reserve(up_to(9)).await?.messages.is_empty());
    Ok(())
}

pub(super) async fn dead_messages_are_listed_by_death_and_id(world: World) -> Result<()> {
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

pub(super) async fn pages_hold_still_while_the_list_changes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "m", 1_000).await?;
    let store = orders.store.clone();
    let pair = orders.pair();
    // What was listed is purged behind the reader's back, and more dies in the meantime.
    let mut round = 0;
    let listed = list(&orders, 100, async |ids| {
        round += 1;
        if round == 5 {
            world.pass(1);
            bury_many(&orders, "n", 3).await?;
        }
        let purged = store.purge(&pair, ids).await?;
        assert!(purged.iter().all(|purged| *purged));
        Ok(())
    })
    .await?;
    let expected = (0..1_000).map(|n| format!("m{n:06}")).chain((0..3).map(|n| format!("n{n:06}")));
    assert_eq!(listed.iter().map(MessageId::to_string).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert_eq!(orders.stats().await?.dead, 0);
    Ok(())
}

pub(super) async fn a_redriven_message_begins_anew(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "m", 2).await?;
    world.pass(60);
    let asked = ids(&["m000001", "unknown", "m000001"])?;
    assert_eq!(orders.store.redrive(&orders.pair(), &asked).await?, [true, false, false]);
    let peeked = orders.peek("m000001").await?;
    assert_eq!(peeked.map(|m| (m.state, m.attempts, m.next_at)), Some((State::Ready, 0, Some(world.now()))));
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.dead, stats.oldest_ready_age), (1, 1, Some(Duration::ZERO)));
    let taken = orders.owner().await?.reserve(up_to(9)).await?.messages;
    assert_eq!((ids_of(&taken), taken[0].attempts), (vec!["m000001"], 0));
    assert_eq!(taken[0].message.as_ref().map(|m| m.due_at.plus(Duration::from_millis(60))), Ok(world.now()));
    Ok(())
}

pub(super) async fn a_purged_message_is_gone(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "m", 2).await?;
    orders.push("alive", 0).await?;
    let asked = ids(&["m000000", "alive", "unknown"])?;
    assert_eq!(orders.store.purge(&orders.pair(), &asked).await?, [true, false, false]);
    assert_eq!(orders.store.purge(&orders.pair(), &asked).await?, [false, false, false]);
    assert_eq!(orders.peek("m000000").await?, None);
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.dead), (1, 1));
    assert_eq!(orders.push("m000000", 0).await?, Pushed::Stored);
    Ok(())
}

pub(super) async fn a_call_takes_so_many_dead_messages_and_not_one_more(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    bury_many(&orders, "m", RECOVER_IDS_MAX + 1).await?;
    let all = list(&orders, 1_000, async |_| Ok(())).await?;
    let pair = orders.pair();
    assert!(orders.store.redrive(&pair, &all).await.is_err());
    assert!(orders.store.purge(&pair, &all).await.is_err());
    assert_eq!(orders.stats().await?.dead, all.len() as u64);
    assert_eq!(orders.store.redrive(&pair, &all[1..]).await?, [true; RECOVER_IDS_MAX]);
    assert_eq!(orders.stats().await?.ready, RECOVER_IDS_MAX as u64);
    Ok(())
}

pub(super) async fn a_page_of_large_dead_messages_is_short(world: World) -> Result<()> {
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
        let page = orders.store.dead(&orders.pair(), after.as_ref(), 1_000).await?;
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
