//! Dedup keys while Redis is away, while answers are lost, and after it lost what it had.

use std::time::Duration;

use dwell::broker::PushOutcome;
use dwell::model::error::Result;
use dwell::model::message::{DedupKey, MessageId, NewMessage, TopicName};
use dwell::store::Pushed;

use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::{Mode, Proxy, Strike, eventually, scratch};

const WINDOW: Duration = Duration::from_secs(3_600);

impl Dwell {
    /// Pushes a message that is due, with a dedup key. Its id decides nothing: the dedup key decides the partition.
    async fn push_deduped(&self, id: &str, key: &str) -> Result<PushOutcome> {
        let message = NewMessage::new(id.to_owned()).id(MessageId::new(id)?).dedup(DedupKey::new(key)?, WINDOW);
        self.broker().push(&TopicName::new("orders")?, message).await
    }

    /// Waits until nothing is buffered, and every broker has restored what Redis perhaps lost.
    async fn restored(&self) -> Result<()> {
        self.recovered().await?;
        eventually("everything is restored", async || Ok((self.metric("dwell_restoring")? == 0.0).then_some(()))).await
    }
}

#[tokio::test]
async fn dedup_key_buffered_by_two_brokers_is_stored_once() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dir = scratch()?;
    let (one, other) = (outage.dwell().await?, outage.dwell_in(dir.path(), outage.proxy.url(), false).await?);
    one.restored().await?;
    assert_eq!(one.push_deduped("before", "seen").await?.pushed, Pushed::Stored);
    outage.redis.kill()?;
    for (dwell, id) in [(&one, "a"), (&one, "b"), (&other, "c")] {
        assert_eq!(dwell.push_deduped(id, "k").await?.pushed, Pushed::Buffered);
    }
    assert_eq!(other.push_deduped("d", "seen").await?.pushed, Pushed::Buffered);
    outage.redis.restart().await?;
    one.restored().await?;
    other.restored().await?;
    let first = one.push_deduped("e", "k").await?.duplicate_of.map_or(String::new(), |id| id.to_string());
    assert!(["a", "c"].contains(&first.as_str()), "{first}");
    one.delivers("orders", &[&first, "before"]).await?;
    one.close().await?;
    other.close().await
}

#[tokio::test]
async fn dedup_push_with_a_lost_reply_is_stored_once() -> Result<()> {
    let outage = Outage::begin().await?.hasty();
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "warm").await?;
    outage.proxy.set(Mode::BlackHole);
    assert_eq!(dwell.push_deduped("a", "k").await?.pushed, Pushed::Buffered);
    assert_eq!(dwell.push_deduped("b", "k").await?.pushed, Pushed::Buffered);
    outage.proxy.set(Mode::Pass);
    dwell.restored().await?;
    assert_eq!(dwell.push_deduped("c", "k").await?.duplicate_of, Some(MessageId::new("a")?));
    // The same push again: its id is there.
    assert_eq!(dwell.push_deduped("a", "k").await?.pushed, Pushed::Duplicate);
    dwell.delivers("orders", &["a", "warm"]).await?;
    let again = dwell.push_deduped("a", "k").await?;
    assert_eq!((again.pushed, again.duplicate_of), (Pushed::DuplicateOf(MessageId::new("a")?), None));
    dwell.close().await
}

#[tokio::test]
async fn buffered_dedup_message_is_cancelled_in_the_wal() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "warm").await?;
    outage.redis.kill()?;
    for (id, key) in [("first", "f"), ("a", "k"), ("b", "k")] {
        dwell.push_deduped(id, key).await?;
    }
    let (topic, a) = (TopicName::new("orders")?, MessageId::new("a")?);
    let cancelled =
        eventually("no page is on its way", async || Ok(dwell.broker().cancel(&topic, &a, None).await.ok()));
    assert!(cancelled.await?.1.buffered);
    outage.redis.restart().await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["b", "first", "warm"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn emptied_redis_gets_its_dedup_keys_back() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.restored().await?;
    assert_eq!(dwell.push_deduped("consumed", "gone").await?.pushed, Pushed::Journaled);
    dwell.delivers("orders", &["consumed"]).await?;
    assert_eq!(dwell.push_deduped("a", "k").await?.pushed, Pushed::Journaled);
    assert_eq!(dwell.push_deduped("b", "k").await?.duplicate_of, Some(MessageId::new("a")?));
    dwell.close().await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let dwell = outage.dwell().await?;
    dwell.restored().await?;
    for (id, key, first) in [("c", "k", "a"), ("d", "gone", "consumed")] {
        assert_eq!(dwell.push_deduped(id, key).await?.duplicate_of, Some(MessageId::new(first)?));
    }
    dwell.delivers("orders", &["a"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn push_is_buffered_until_others_have_restored() -> Result<()> {
    let mut outage = Outage { silence: Duration::from_secs(30), ..journaled().await? };
    let (proxy, dir) = (Proxy::before(&outage.redis)?, scratch()?);
    let (first, other) = (outage.dwell().await?, outage.dwell_in(dir.path(), proxy.url(), false).await?);
    for dwell in [&first, &other] {
        dwell.restored().await?;
        dwell.push_one("orders", "warm").await?;
    }
    assert_eq!(first.push_deduped("a", "k").await?.pushed, Pushed::Journaled);
    outage.proxy.set(Mode::Refuse);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    eventually("one broker restored, and waits for the other one", async || {
        let detail = other.broker().health().await.detail.unwrap_or_default();
        Ok(detail.contains("waiting for 1 other broker").then_some(()))
    })
    .await?;
    assert_eq!(other.push_deduped("b", "k").await?.pushed, Pushed::Buffered);
    assert_eq!(other.push_one("orders", "plain").await?.pushed, Pushed::Buffered);
    outage.proxy.set(Mode::Pass);
    for dwell in [&first, &other] {
        dwell.restored().await?;
    }
    assert_eq!(other.push_deduped("c", "k").await?.duplicate_of, Some(MessageId::new("a")?));
    other.delivers("orders", &["a", "plain", "warm"]).await?;
    first.close().await?;
    other.close().await
}

#[tokio::test]
async fn dedup_push_waits_for_a_starting_broker_to_restore() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.restored().await?;
    let filler: Vec<String> = (0..1_000).map(|n| format!("m{n:04}")).collect();
    dwell.push("orders", &filler.iter().map(String::as_str).collect::<Vec<_>>(), WINDOW).await?;
    assert_eq!(dwell.push_deduped("a", "k").await?.pushed, Pushed::Journaled);
    dwell.close().await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let dwell = outage.dwell().await?;
    dwell.push_deduped("b", "k").await?;
    dwell.restored().await?;
    dwell.delivers("orders", &["a"]).await?;
    dwell.close().await
}

/// A broker that said that a message is safe has it in its journal, also if another broker had taken it: when it answered
/// `duplicate`, when it had buffered its push and never sent it, and when the answer to its push was lost.
#[tokio::test]
async fn dedup_original_is_journaled_by_each_acknowledging_broker() -> Result<()> {
    let mut outage = journaled().await?;
    let (proxy, dir) = (Proxy::before(&outage.redis)?, scratch()?);
    let (dwell, other) = (outage.dwell().await?, outage.dwell_in(dir.path(), proxy.url(), false).await?);
    for dwell in [&dwell, &other] {
        dwell.restored().await?;
    }
    for (id, key) in [("a", "live"), ("b", "unsent"), ("c", "unanswered")] {
        assert_eq!(other.push_deduped(id, key).await?.pushed, Pushed::Journaled);
    }
    assert_eq!(dwell.push_deduped("second-a", "live").await?.duplicate_of, Some(MessageId::new("a")?));
    outage.proxy.next_with(Strike::Outage, "second-c");
    assert_eq!(dwell.push_deduped("second-c", "unanswered").await?.pushed, Pushed::Buffered);
    assert_eq!(dwell.push_deduped("second-b", "unsent").await?.pushed, Pushed::Buffered);
    outage.proxy.set(Mode::Pass);
    dwell.restored().await?;
    // The disk of the other one is lost, and so is all that Redis has.
    for dwell in [dwell, other] {
        dwell.close().await?;
    }
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let dwell = outage.dwell().await?;
    dwell.restored().await?;
    dwell.delivers("orders", &["a", "b", "c"]).await?;
    dwell.close().await
}
