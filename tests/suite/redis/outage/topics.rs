//! What happens to topics while what was promised for them waits.

use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::model::error::{Kind, Result};
use dwell::model::message::{Conflict, GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::store::Pushed;

use super::Outage;
use crate::support::{Mode, eventually, kind_of};

#[tokio::test]
async fn buffered_pushes_to_a_deleted_topic_are_dropped_and_counted() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let orders = TopicName::new("orders")?;
    dwell.push_one("orders", "old").await?;
    outage.proxy.set(Mode::Refuse);
    dwell.push("orders", &["a", "b"], Duration::ZERO).await?;
    // Someone who still reaches Redis deletes the topic, and makes another one of that name.
    let elsewhere = Outage { journal: None, ..Outage::with(crate::support::RedisServer::start().await?)? };
    let other = elsewhere.dwell_on(outage.redis.url(), false).await?;
    other.broker().delete_topic(&orders).await?;
    other.push_one("orders", "new").await?;
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    assert_eq!(dwell.metric("dwell_wal_dropped_total{log=\"wal\"}")?, 2.0);
    other.delivers("orders", &["new"]).await?;
    other.close().await?;
    dwell.close().await
}

/// A broker that remembers a topic that others have deleted and made again deletes the one that is there, or says that it did not.
#[tokio::test]
async fn deletion_by_a_broker_that_remembers_an_earlier_topic_deletes_the_new_one() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let orders = TopicName::new("orders")?;
    dwell.push_one("orders", "old").await?;
    outage.proxy.set(Mode::Refuse);
    dwell.push_one("orders", "buffered").await?;
    let elsewhere = Outage { journal: None, ..Outage::with(crate::support::RedisServer::start().await?)? };
    let other = elsewhere.dwell_on(outage.redis.url(), false).await?;
    other.broker().delete_topic(&orders).await?;
    other.push_one("orders", "new").await?;
    outage.proxy.set(Mode::Pass);
    eventually("the topic is deleted", async || match dwell.broker().delete_topic(&orders).await {
        Err(error) if error.kind() == Kind::Unavailable => Ok(None),
        answer => answer.map(Some),
    })
    .await?;
    assert_eq!(kind_of(other.broker().topic(&orders).await), Some(Kind::NotFound));
    other.close().await?;
    dwell.close().await
}

#[tokio::test]
async fn topic_is_created_in_a_redis_whose_calls_are_slow_but_in_time() -> Result<()> {
    // Together the calls take longer than one may.
    let (timeout, delay) = (Duration::from_secs(3), Duration::from_millis(200));
    let outage = Outage { timeout, ..Outage::begin().await? };
    let dwell = outage.dwell().await?;
    let orders = TopicName::new("orders")?;
    dwell.push_one("orders", "old").await?;
    dwell.broker().delete_topic(&orders).await?;
    // A topic is made by several calls, one after the other.
    outage.proxy.set(Mode::Delay(delay));
    let created = dwell.broker().declare(orders.clone(), Settings::default()).await?.descriptor;
    assert!(!created.is_promised(), "{created:?}");
    outage.proxy.set(Mode::Pass);
    assert_eq!(dwell.push_one("orders", "new").await?.pushed, Pushed::Stored, "nobody took it for an outage");
    dwell.delivers("orders", &["new"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn lost_topic_is_recreated_as_it_was() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let orders = TopicName::new("orders")?;
    let settings =
        Settings { partitions: std::num::NonZeroU16::MIN.saturating_add(4), max_attempts: 7, ..Settings::default() };
    let before = dwell.broker().declare(orders.clone(), settings.clone()).await?.descriptor;
    outage.proxy.set(Mode::Refuse);
    dwell.push("orders", &["a", "b", "c"], Duration::ZERO).await?;
    outage.redis.ask::<String>("FLUSHALL").await?;
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    dwell.delivers("orders", &["a", "b", "c"]).await?;
    let after = dwell.broker().topic(&orders).await?;
    assert_eq!((&after.settings, after.incarnation), (&settings, before.incarnation));
    dwell.close().await
}

#[tokio::test]
async fn lost_topic_keeps_its_settings_after_a_failed_lookup() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let orders = TopicName::new("orders")?;
    let settings = Settings { partitions: std::num::NonZeroU16::MIN.saturating_add(4), ..Settings::default() };
    dwell.broker().declare(orders.clone(), settings.clone()).await?;
    outage.redis.ask::<String>("FLUSHALL").await?;
    assert_eq!(kind_of(dwell.broker().topic(&orders).await), Some(Kind::NotFound));
    dwell.close().await?;
    // Not even the next process takes another number of partitions for it.
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["a", "b"], Duration::ZERO).await?;
    assert_eq!(dwell.broker().topic(&orders).await?.settings, settings);
    dwell.delivers("orders", &["a", "b"]).await?;
    // A topic that was deleted is another one when it is made again.
    dwell.broker().delete_topic(&orders).await?;
    dwell.push_one("orders", "c").await?;
    assert_eq!(dwell.broker().topic(&orders).await?.settings, Settings::default());
    dwell.close().await
}

#[tokio::test]
async fn buffered_topic_adopts_its_partitions_in_redis() -> Result<()> {
    let mut outage = Outage::begin().await?;
    outage.redis.kill()?;
    let dwell = outage.dwell().await?;
    let ids: Vec<String> = (0..50).map(|n| format!("m{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let outcomes = dwell.push("orders", &ids, Duration::ZERO).await?;
    assert!(outcomes.iter().all(|outcome| outcome.pushed == Pushed::Buffered));
    outage.redis.restart().await?;
    // Another sidecar declares it before this one is there again.
    let elsewhere = Outage::with(crate::support::RedisServer::start().await?)?;
    let other = elsewhere.dwell_on(outage.redis.url(), false).await?;
    let settings = Settings { partitions: std::num::NonZeroU16::MIN.saturating_add(1), ..Settings::default() };
    let declared = other.broker().declare(TopicName::new("orders")?, settings).await;
    dwell.recovered().await?;
    // Whoever came first decided, and nobody's messages are elsewhere than where they are looked for.
    let partitions = other.broker().topic(&TopicName::new("orders")?).await?.settings.partitions.get();
    assert_eq!(partitions, if declared.is_ok() { 2 } else { 8 });
    other.delivers("orders", &ids).await?;
    eventually("pushes go to Redis", async || {
        Ok((dwell.push_one("orders", "later").await?.pushed != Pushed::Buffered).then_some(()))
    })
    .await?;
    other.close().await?;
    dwell.close().await
}

/// Two messages of one id with different keys that share a partition: the second one was accepted while nobody could compare.
#[tokio::test]
async fn buffered_id_conflict_is_delivered_under_a_new_id() -> Result<()> {
    for (first_is_buffered, conflict) in
        [(false, Conflict::Keep), (true, Conflict::Keep), (false, Conflict::Replace), (false, Conflict::Debounce)]
    {
        let outage = Outage::begin().await?;
        let dwell = outage.dwell().await?;
        let orders = TopicName::new("orders")?;
        let partitions = std::num::NonZeroU16::MIN;
        dwell.broker().declare(orders.clone(), Settings { partitions, ..Settings::default() }).await?;
        let push = async |key: &str, conflict: Conflict| {
            let message = NewMessage::new(key.to_owned()).id(MessageId::new("reminder")?).key(Key::new(key)?);
            dwell.broker().push(&orders, NewMessage { conflict, ..message }).await
        };
        if first_is_buffered {
            outage.proxy.set(Mode::Refuse);
        }
        push("anna", Conflict::Keep).await?;
        outage.proxy.set(Mode::Refuse);
        let second = push("bert", conflict).await?;
        assert_eq!(second.pushed, Pushed::Buffered);
        outage.proxy.set(Mode::Pass);
        dwell.recovered().await?;
        let got = dwell.drain("orders", 2).await?;
        let ids: Vec<&str> = got.keys().map(String::as_str).collect();
        assert!(matches!(ids[..], ["reminder", new] if new.starts_with("reminder~")), "{conflict:?}: {ids:?}");
        dwell.close().await?;
    }
    Ok(())
}

/// Another broker may have made the topic with them.
#[tokio::test]
async fn groups_of_a_promised_topic_are_not_known() -> Result<()> {
    let outage = Outage::begin().await?;
    outage.dwell().await?.close().await?;
    outage.proxy.set(Mode::Refuse);
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push_one("orders", "a").await?.pushed, Pushed::Buffered);
    let (orders, audit) = (TopicName::new("orders")?, GroupName::new("audit")?);
    let broker = dwell.broker();
    assert_eq!(kind_of(broker.cached_topic_with(&orders, &audit).await), Some(Kind::Unavailable));
    assert_eq!(kind_of(broker.delete_group(&orders, &audit).await), Some(Kind::Unavailable));
    assert_eq!(kind_of(broker.resume_group(&orders, &audit).await), Some(Kind::Unavailable));
    let request = ReserveRequest { max: 1, wait: Duration::ZERO, visibility_timeout: None };
    assert_eq!(kind_of(broker.reserve(&orders, &audit, request).await), Some(Kind::Unavailable));
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    assert_eq!(kind_of(broker.delete_group(&orders, &audit).await), Some(Kind::NotFound));
    dwell.close().await
}
