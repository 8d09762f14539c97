//! The barrier after a loss: no broker delivers until those that may know more have given it back.

use std::fs::remove_file;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Conflict, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::platform::clock::Clock;
use dwell::store::redis::{Redis, RedisOptions};
use dwell::store::{LogTarget, Progress, Pushed};
use dwell::telemetry::metrics::Metrics;

use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::{Mode, RedisServer, eventually, failed, kind_of, scratch};

/// A broker that reports within this time is not silent; four times within it each broker looks at the others.
const SILENCE: Duration = Duration::from_secs(16);

/// A broker that delivers, and the reports of others.
async fn begin() -> Result<(Outage, Dwell, Redis)> {
    let outage = Outage { silence: SILENCE, ..journaled().await? };
    let options = RedisOptions::new(outage.redis.url());
    let others = Redis::open(options, Clock::System, Arc::new(Metrics::new()?)).await?;
    let now = others.report("x", Progress::Look).await?.now;
    others.report("x", Progress::Settled(now)).await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    dwell.delivers("orders", &["a"]).await?;
    Ok((outage, dwell, others))
}

impl Dwell {
    /// Nothing of what is due is delivered for a while.
    async fn holds(&self) -> Result<()> {
        let request = ReserveRequest { max: 1, wait: Duration::from_millis(300), visibility_timeout: None };
        let deliveries = self.broker().reserve(&TopicName::new("orders")?, &GroupName::standard(), request).await?;
        assert!(deliveries.is_empty(), "{deliveries:?}");
        Ok(())
    }
}

/// A message is pushed, and not delivered while another broker is waited for.
async fn holds_for_another(dwell: &Dwell, id: &str) -> Result<()> {
    eventually("it waits for another broker", async || {
        let detail = dwell.broker().health().await.detail.unwrap_or_default();
        Ok(detail.contains("waiting for 1 other broker").then_some(()))
    })
    .await?;
    dwell.push_one("orders", id).await?;
    dwell.holds().await
}

#[tokio::test]
async fn no_delivery_before_the_detecting_broker_has_restored() -> Result<()> {
    let (_outage, dwell, others) = begin().await?;
    let lost = others.report("x", Progress::Lost).await?;
    holds_for_another(&dwell, "b").await?;
    others.report("x", Progress::Settled(lost.now)).await?;
    dwell.delivers("orders", &["b"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn restore_barrier_includes_brokers_redis_forgot() -> Result<()> {
    let (outage, dwell, others) = begin().await?;
    outage.redis.ask::<u64>("HDEL dwell:brokers x").await?;
    let lost = others.report("y", Progress::Lost).await?;
    others.report("y", Progress::Settled(lost.now)).await?;
    holds_for_another(&dwell, "b").await?;
    others.report("x", Progress::Settled(lost.now)).await?;
    dwell.delivers("orders", &["b"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn restore_barrier_includes_a_broker_that_joined_just_before() -> Result<()> {
    let (outage, dwell, others) = begin().await?;
    outage.redis.ask::<String>("FLUSHALL").await?;
    dwell.push_one("orders", "b").await?;
    // It joined, and acked something, after the broker had looked who is there; and reports next a quarter of the silence later.
    let now = others.report("x", Progress::Look).await?.now;
    others.report("x", Progress::Settled(now)).await?;
    dwell.holds().await?;
    others.report("joined", Progress::Busy).await?;
    holds_for_another(&dwell, "c").await?;
    let now = others.report("joined", Progress::Look).await?.now;
    others.report("joined", Progress::Settled(now)).await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["b", "c"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn restore_barrier_holds_for_a_starting_broker() -> Result<()> {
    let (outage, dwell, others) = begin().await?;
    dwell.push_one("orders", "b").await?;
    dwell.close().await?;
    // Another broker has acked it, and has not noticed yet that Redis lost everything.
    outage.redis.ask::<String>("FLUSHALL").await?;
    let dwell = outage.dwell().await?;
    eventually("it has given back what it has", async || {
        Ok((dwell.metric("dwell_wal_replayed_total{log=\"journal\"}")? >= 1.0).then_some(()))
    })
    .await?;
    dwell.holds().await?;
    others.report("x", Progress::Busy).await?;
    holds_for_another(&dwell, "c").await?;
    let now = others.report("x", Progress::Look).await?.now;
    others.report("x", Progress::Settled(now)).await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["b", "c"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn lost_topic_comes_back_from_the_broker_that_knows_it() -> Result<()> {
    let (orders, dir) = (TopicName::new("orders")?, scratch()?);
    let mut outage = Outage { silence: SILENCE, ..Outage::with(RedisServer::start().await?)? };
    outage.journal = Some(Duration::from_secs(3_600));
    let listed = || outage.redis.ask::<usize>("HLEN dwell:brokers");
    let knows = outage.dwell().await?;
    // The other one learns at its start of those that are listed, and next a quarter of the silence later.
    eventually("the first one is listed", async || Ok((listed().await? == 1).then_some(()))).await?;
    let other = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    let settings = Settings { partitions: NonZeroU16::MIN.saturating_add(4), ..Settings::default() };
    knows.broker().declare(orders.clone(), settings.clone()).await?;
    eventually("both are listed", async || Ok((listed().await? == 2).then_some(()))).await?;
    // The other one hears first that Redis has lost everything, and asks for the topic.
    outage.proxy.set(Mode::Refuse);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let pushed = other.push_one("orders", "a").await?;
    outage.proxy.set(Mode::Pass);
    other.recovered().await?;
    knows.recovered().await?;
    other.delivers("orders", &["a"]).await?;
    assert_eq!(pushed.pushed, Pushed::Buffered);
    assert_eq!(other.broker().topic(&orders).await?.settings, settings);
    other.close().await?;
    knows.close().await
}

#[tokio::test]
async fn restore_of_a_topic_that_only_another_broker_knows_waits_for_that_one() -> Result<()> {
    let (orders, dir) = (TopicName::new("orders")?, scratch()?);
    let mut outage = Outage { silence: SILENCE, ..Outage::with(RedisServer::start().await?)? };
    outage.journal = Some(Duration::from_secs(3_600));
    let knows = outage.dwell().await?;
    let settings = Settings { partitions: NonZeroU16::MIN.saturating_add(4), ..Settings::default() };
    knows.broker().declare(orders.clone(), settings.clone()).await?;
    let other = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    other.push_one("orders", "a").await?;
    other.close().await?;
    // It has a journal, and no longer knows the topic.
    remove_file(dir.path().join("topics")).map_err(failed("the known topics"))?;
    outage.proxy.set(Mode::Refuse);
    outage.redis.ask::<usize>("CLIENT KILL TYPE normal SKIPME yes").await?;
    outage.redis.ask::<String>("FLUSHALL").await?;
    let other = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    let offers = async || Ok((outage.redis.ask::<usize>("HLEN dwell:brokers").await? > 0).then_some(()));
    eventually("it offers its journal", offers).await?;
    outage.proxy.set(Mode::Pass);
    knows.recovered().await?;
    other.recovered().await?;
    assert_eq!(other.broker().topic(&orders).await?.settings, settings);
    other.delivers("orders", &["a"]).await?;
    other.close().await?;
    knows.close().await
}

/// A delete by SQS asks this, and answers success for what is gone.
#[tokio::test]
async fn nobody_says_that_a_message_is_gone_while_it_may_come_back() -> Result<()> {
    let (orders, dir) = (TopicName::new("orders")?, scratch()?);
    let mut outage = Outage { silence: SILENCE, ..Outage::with(RedisServer::start().await?)? };
    outage.journal = Some(Duration::from_secs(3_600));
    let (pushes, other) = (outage.dwell().await?, outage.dwell_in(dir.path(), outage.redis.url(), false).await?);
    pushes.push_one("orders", "a").await?;
    let request = ReserveRequest { max: 10, wait: Duration::from_secs(20), visibility_timeout: None };
    let deliveries = other.broker().reserve(&orders, &GroupName::standard(), request).await?;
    let receipt = deliveries.first().map(|delivery| delivery.receipt.to_string()).ok_or_else(|| Error::bug("none"))?;
    assert!(other.broker().is_there(&orders, &GroupName::standard(), &receipt).await?);
    outage.proxy.set(Mode::Refuse);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    eventually("the journal with the message is waited for", async || {
        let detail = other.broker().health().await.detail.unwrap_or_default();
        Ok(detail.contains("waiting for 1 other broker").then_some(()))
    })
    .await?;
    let answer = other.broker().is_there(&orders, &GroupName::standard(), &receipt).await;
    assert_eq!(kind_of(answer), Some(Kind::Unavailable));
    // Nor is a topic deleted that may come back, or changed to what it was before a loss.
    assert_eq!(kind_of(other.broker().delete_topic(&orders).await), Some(Kind::Unavailable));
    outage.proxy.set(Mode::Pass);
    eventually("it is there again", async || {
        let answer = other.broker().is_there(&orders, &GroupName::standard(), &receipt).await;
        Ok(answer.ok().filter(|is_there| *is_there))
    })
    .await?;
    pushes.close().await?;
    other.close().await
}

#[tokio::test]
async fn nobody_says_that_a_message_is_gone_from_a_redis_that_was_just_emptied() -> Result<()> {
    let orders = TopicName::new("orders")?;
    let mut outage = Outage { silence: SILENCE, ..Outage::with(RedisServer::start().await?)? };
    outage.journal = Some(Duration::from_secs(3_600));
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    let request = ReserveRequest { max: 10, wait: Duration::from_secs(20), visibility_timeout: None };
    let deliveries = dwell.broker().reserve(&orders, &GroupName::standard(), request).await?;
    let receipt = deliveries.first().map(|delivery| delivery.receipt.to_string()).ok_or_else(|| Error::bug("none"))?;
    // Nothing has noticed it yet.
    outage.redis.ask::<String>("FLUSHALL").await?;
    let answer = dwell.broker().is_there(&orders, &GroupName::standard(), &receipt).await;
    assert_eq!(kind_of(answer), Some(Kind::Unavailable));
    dwell.close().await
}

/// One broker has the push in its journal, and another one the ack, of which the emptied Redis hears later.
#[tokio::test]
async fn push_during_a_restore_comes_after_what_was_acked_before() -> Result<()> {
    let (orders, dir) = (TopicName::new("orders")?, scratch()?);
    let mut outage = Outage { silence: SILENCE, ..Outage::with(RedisServer::start().await?)? };
    outage.journal = Some(Duration::from_secs(3_600));
    let (acks, pushes) = (outage.dwell().await?, outage.dwell_in(dir.path(), outage.redis.url(), false).await?);
    pushes.push_one("orders", "a").await?;
    acks.delivers("orders", &["a"]).await?;
    outage.proxy.set(Mode::Refuse);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    eventually("the push is back, and the other broker is waited for", async || {
        let detail = pushes.broker().health().await.detail.unwrap_or_default();
        Ok((detail.contains("waiting for 1 other broker") && outage.stored("orders").await? == 1).then_some(()))
    })
    .await?;
    let again = NewMessage::new("again").id(MessageId::new("a")?).on_conflict(Conflict::Debounce);
    assert_eq!(pushes.broker().push(&orders, again).await?.pushed, Pushed::Buffered);
    outage.proxy.set(Mode::Pass);
    acks.recovered().await?;
    pushes.recovered().await?;
    let request = ReserveRequest { max: 10, wait: Duration::from_secs(20), visibility_timeout: None };
    let deliveries = acks.broker().reserve(&orders, &GroupName::standard(), request).await?;
    let payloads: Vec<_> = deliveries.iter().map(|delivery| delivery.message.envelope.payload.to_vec()).collect();
    assert_eq!(payloads, [b"again"]);
    acks.close().await?;
    pushes.close().await
}
