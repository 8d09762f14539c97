//! Dedup keys: windows that count from the push.

use std::time::Duration;

use bytes::Bytes;
use dwell::model::error::Result;
use dwell::model::limits::DEDUP_KEPT;
use dwell::model::message::{Dedup, DedupKey, Message, MessageId};
use dwell::store::Pushed::{self, Duplicate, DuplicateOf, Stored};

use crate::support::{TestTopic, World, acks, buries, ids_of, up_to};

const WINDOW_MS: u64 = 2_000;

impl TestTopic {
    /// A message that is due at once, with a dedup key and a window that begins now.
    fn deduped(&self, id: &str, key: &str) -> Result<Message> {
        let mut message = self.message(id, 0)?;
        message.envelope.dedup = Some(Dedup { key: DedupKey::new(key)?, window: Duration::from_millis(WINDOW_MS) });
        Ok(message)
    }

    async fn push_deduped(&self, id: &str, key: &str) -> Result<Pushed> {
        Ok(self.push_all(&[self.deduped(id, key)?]).await?.remove(0))
    }
}

fn of(id: &str) -> Result<Pushed> {
    Ok(DuplicateOf(MessageId::new(id)?))
}

pub(super) async fn seen_dedup_key_is_a_duplicate_within_its_window(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    assert_eq!(orders.push_deduped("a", "k").await?, Stored);
    assert_eq!(orders.push_deduped("b", "k").await?, of("a")?);
    // Neither the beginning of a key nor what begins with it is the same key.
    for (id, key) in [("c", "k "), ("d", "k0"), ("e", "K"), ("f", "é k/=1 2")] {
        assert_eq!(orders.push_deduped(id, key).await?, Stored, "{key:?}");
    }
    world.pass(WINDOW_MS - 1);
    assert_eq!(orders.push_deduped("b", "k").await?, of("a")?);
    assert_eq!(orders.push_deduped("g", "é k/=1 2").await?, of("f")?);
    world.pass(1);
    // The first one still waits.
    assert_eq!(orders.push_deduped("b", "k").await?, Stored);
    assert_eq!(orders.push_deduped("h", "k").await?, of("b")?);
    assert_eq!(orders.stats().await?.ready, 6);
    Ok(())
}

pub(super) async fn dedup_window_outlives_the_first_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for id in ["acked", "buried", "cancelled"] {
        assert_eq!(orders.push_deduped(id, id).await?, Stored);
    }
    assert_eq!(orders.cancel("cancelled").await?, [dwell::store::Fate::Done]);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&taken.messages), ["acked", "buried"]);
    owner.settle(&buries(taken.reservation, &["buried"], &["acked"])?).await?;
    owner.settle(&acks(&["acked"])?).await?;
    for id in ["acked", "buried", "cancelled"] {
        assert_eq!(orders.push_deduped("new", id).await?, of(id)?);
    }
    // The same id again: of the dead one the id is there, the others are only remembered.
    assert_eq!(orders.push_deduped("acked", "acked").await?, of("acked")?);
    assert_eq!(orders.push_deduped("buried", "buried").await?, Duplicate);
    assert_eq!(orders.push_deduped("cancelled", "cancelled").await?, of("cancelled")?);
    world.pass(WINDOW_MS);
    assert_eq!(orders.push_deduped("new", "acked").await?, Stored);
    Ok(())
}

pub(super) async fn equal_dedup_keys_of_one_call_are_resolved_in_order(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_deduped("0", "seen").await?;
    let batch = [
        orders.deduped("a", "k")?,
        orders.deduped("b", "k")?,
        orders.deduped("a", "other")?,
        orders.deduped("c", "seen")?,
        // Its id was not stored just now, so it is no duplicate by its id.
        orders.message("c", 0)?,
        orders.message("c", 5)?,
        orders.message("d", 0)?,
        orders.deduped("e", "other")?,
    ];
    let answers = orders.push_all(&batch).await?;
    assert_eq!(answers, [Stored, of("a")?, Duplicate, of("0")?, Stored, Duplicate, Stored, Stored]);
    assert_eq!(orders.stats().await?.ready, 5);
    Ok(())
}

pub(super) async fn only_stored_messages_record_their_dedup_key(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    assert_eq!(orders.push_deduped("a", "k").await?, Duplicate);
    assert_eq!(orders.push_deduped("b", "k").await?, Stored);
    Ok(())
}

pub(super) async fn expired_dedup_windows_are_removed(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for round in 0..5 {
        let batch: Vec<Message> =
            (0..100).map(|n| orders.deduped(&format!("{round}.{n}"), &n.to_string())).collect::<Result<_>>()?;
        assert_eq!(orders.push_all(&batch).await?, vec![Stored; 100]);
        world.time.advance(DEDUP_KEPT + Duration::from_millis(WINDOW_MS));
    }
    Ok(())
}

pub(super) async fn recreated_topic_has_no_dedup_keys(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_deduped("a", "k").await?;
    world.store.topics.delete(&orders.descriptor).await?;
    let again = world.topic("orders").await?;
    assert_eq!(again.push_deduped("b", "k").await?, Stored);
    Ok(())
}

pub(super) async fn dedup_key_and_attachment_are_stored_with_the_message(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut pushed = orders.deduped("a", "k")?;
    pushed.envelope.attachment = Bytes::from_static(b"\0\xffgateway");
    orders.push_all(std::slice::from_ref(&pushed)).await?;
    assert_eq!(orders.peek("a").await?.map(|peeked| peeked.message), Some(pushed.clone()));
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    let dead = world.store.dead_letters.dead(&orders.group_partition(), None, 1).await?.dead;
    assert_eq!(dead.into_iter().map(|dead| dead.message).collect::<Result<Vec<_>>>()?, [pushed.clone()]);
    world.store.dead_letters.redrive(&orders.group_partition(), &[MessageId::new("a")?]).await?;
    let taken = owner.reserve(up_to(1)).await?;
    assert_eq!(taken.messages.into_iter().map(|taken| taken.message).collect::<Result<Vec<_>>>()?, [pushed]);
    Ok(())
}
