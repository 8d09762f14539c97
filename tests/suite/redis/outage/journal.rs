//! Redis loses what it had taken, and the journal gives it back.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::message::{Conflict, MessageId, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::platform::clock::Clock;
use dwell::store::Pushed;
use serde_json::json;

use super::Outage;
use crate::support::{Mode, Process, Proxy, RedisServer, Watched, empty, eventually, scratch};

pub(super) const WINDOW: Duration = Duration::from_secs(60);

pub(super) async fn journaled() -> Result<Outage> {
    Ok(Outage { journal: Some(WINDOW), ..Outage::with(RedisServer::start().await?)? })
}

#[tokio::test]
async fn emptied_redis_is_restored_from_the_journal() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let ids: Vec<String> = (0..1_200).map(|n| format!("m{n:04}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for ids in ids.chunks(400) {
        let outcomes = dwell.push("orders", ids, Duration::from_millis(50)).await?;
        assert!(outcomes.iter().all(|outcome| outcome.pushed == Pushed::Journaled), "{outcomes:?}");
    }
    outage.redis.kill()?;
    outage.redis.restart().await?;
    eventually("the journal was offered", async || {
        dwell.broker().health().await;
        Ok((dwell.metric("dwell_wal_replayed_total{log=\"journal\"}")? >= 1_200.0).then_some(()))
    })
    .await?;
    dwell.delivers("orders", &ids).await?;
    dwell.close().await
}

#[tokio::test]
async fn replaced_messages_are_read_back_together() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let orders = TopicName::new("orders")?;
    let settings = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
    dwell.broker().declare(orders.clone(), settings).await?;
    let batch = |conflict| -> Result<Vec<NewMessage>> {
        let message = |n: usize| {
            let message = NewMessage::new("x").id(MessageId::new(format!("m{n}"))?).after(Duration::from_secs(600));
            Ok(NewMessage { conflict, ..message })
        };
        (0..250).map(message).collect()
    };
    dwell.broker().push_batch(&orders, batch(Conflict::Keep)?).await?;
    outage.proxy.set(Mode::Delay(Duration::from_millis(50)));
    let began = Clock::System.instant();
    let outcomes = dwell.broker().push_batch(&orders, batch(Conflict::Replace)?).await?;
    let took = Clock::System.instant().since(began);
    assert!(
        outcomes.iter().flatten().filter(|outcome| outcome.pushed == Pushed::Replaced).count() == 250,
        "{outcomes:?}"
    );
    // One after the other takes 250 times the delay.
    assert!(took < Duration::from_secs(5), "{took:?}");
    outage.proxy.set(Mode::Pass);
    dwell.close().await
}

#[tokio::test]
async fn rewound_redis_is_restored_without_consumed_messages() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["a", "b"], Duration::ZERO).await?;
    dwell.delivers("orders", &["a", "b"]).await?;
    let snapshot = outage.redis.snapshot().await?;
    dwell.push("orders", &["c", "d"], Duration::from_millis(50)).await?;
    dwell.close().await?;
    outage.redis.rewind(&snapshot).await?;
    // Nobody watched while it happened, so the next process offers the window as well.
    let dwell = outage.dwell().await?;
    dwell.delivers("orders", &["c", "d"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn replayed_records_are_journaled() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    outage.redis.kill()?;
    assert_eq!(dwell.push_one("orders", "b").await?.pushed, Pushed::Buffered);
    outage.redis.restart().await?;
    dwell.recovered().await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    eventually("the journal was offered twice, the second time with both", async || {
        dwell.broker().health().await;
        Ok((dwell.metric("dwell_wal_replayed_total{log=\"journal\"}")? >= 3.0).then_some(()))
    })
    .await?;
    dwell.delivers("orders", &["a", "b"]).await?;
    dwell.close().await
}

/// The replay of the WAL is the first to reach a Redis that lost everything. If it went ahead of the journal, the partition
/// would remember the numbers of the new records, and the older ones of the same log would count as kept.
#[tokio::test]
async fn journal_is_restored_before_the_wal_is_replayed() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let ids: Vec<String> = (0..60).map(|n| format!("m{n:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for ids in ids.chunks(20) {
        outage.redis.kill()?;
        let outcomes = dwell.push("orders", ids, Duration::ZERO).await?;
        assert!(outcomes.iter().all(|outcome| outcome.pushed == Pushed::Buffered), "{outcomes:?}");
        outage.redis.restart().await?;
        dwell.recovered().await?;
    }
    dwell.delivers("orders", &ids).await?;
    dwell.close().await
}

#[tokio::test]
async fn journal_records_expire_after_its_window() -> Result<()> {
    let outage = Outage { journal: Some(Duration::from_millis(300)), ..journaled().await? };
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["a", "b", "c"], Duration::from_secs(60)).await?;
    eventually("the journal is empty", async || {
        Ok((dwell.metric("dwell_wal_records{log=\"journal\"}")? == 0.0).then_some(()))
    })
    .await?;
    assert_eq!(dwell.metric("dwell_wal_replayed_total{log=\"journal\"}")?, 0.0);
    dwell.close().await
}

/// Redis A is cut off from its replica B and goes on, with dwell on its side. Then B is the primary, and the way leads
/// there. Returns what A took after the cut, and B.
async fn split(outage: &Outage, dwell: &super::Dwell, status: Pushed) -> Result<(Vec<String>, RedisServer)> {
    dwell.push_one("orders", "before").await?;
    let replica = RedisServer::start().await?;
    outage.redis.copy_to(&replica).await?;
    let after: Vec<String> = (0..300).map(|n| format!("m{n:03}")).collect();
    for ids in after.chunks(100) {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let outcomes = dwell.push("orders", &ids, Duration::ZERO).await?;
        assert!(outcomes.iter().all(|outcome| outcome.pushed == status), "{outcomes:?}");
    }
    outage.proxy.lead_to(&replica);
    dwell.push_one("orders", "promoted").await?;
    dwell.recovered().await?;
    Ok((after, replica))
}

#[tokio::test]
async fn writes_of_a_cut_off_primary_reach_its_successor() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let (after, _replica) = split(&outage, &dwell, Pushed::Journaled).await?;
    let mut all: Vec<&str> = after.iter().map(String::as_str).collect();
    all.extend(["before", "promoted"]);
    dwell.delivers("orders", &all).await?;
    dwell.close().await
}

/// What the brokers push meanwhile goes to two primaries.
#[tokio::test]
async fn brokers_that_move_to_a_new_primary_one_by_one_lose_nothing() -> Result<()> {
    let outage = journaled().await?;
    let (dir, way) = (scratch()?, Proxy::before(&outage.redis)?);
    let (first, last) = (outage.dwell().await?, outage.dwell_in(dir.path(), way.url(), false).await?);
    first.push_one("orders", "before").await?;
    let replica = RedisServer::start().await?;
    outage.redis.copy_to(&replica).await?;
    first.push_one("orders", "a").await?;
    last.push_one("orders", "b").await?;
    outage.proxy.lead_to(&replica);
    first.push_one("orders", "c").await?;
    last.push_one("orders", "d").await?;
    way.lead_to(&replica);
    last.push_one("orders", "e").await?;
    first.recovered().await?;
    last.recovered().await?;
    first.delivers("orders", &["a", "b", "before", "c", "d", "e"]).await?;
    first.close().await?;
    last.close().await
}

/// A push and an ack that only the killed primary had.
#[tokio::test]
async fn failover_to_a_replica_without_the_last_writes_loses_and_repeats_nothing() -> Result<()> {
    let mut watched = Watched::start().await?;
    let outage = Outage { timeout: Duration::from_secs(1), ..journaled().await? };
    let dwell = outage.dwell_on(watched.url(), false).await?;
    dwell.push_one("orders", "acked").await?;
    watched.primary.ask::<u64>("WAIT 1 1000").await?;
    watched.primary.leave_behind(&watched.replica).await?;
    dwell.delivers("orders", &["acked"]).await?;
    dwell.push_one("orders", "pushed").await?;
    watched.primary.kill()?;
    dwell.push_one("orders", "meanwhile").await?;
    watched.promoted().await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["meanwhile", "pushed"]).await?;
    dwell.close().await
}

/// A broker starts again without its directory. Redis keeps its data, and then it does not: the other broker has a journal.
#[tokio::test]
async fn broker_without_its_directory_loses_nothing_that_another_one_has() -> Result<()> {
    let mut outage = journaled().await?;
    let (stays, dir, url) = (outage.dwell().await?, scratch()?, outage.redis.url());
    let more = [("DURABILITY", "journal"), ("LEASE_TTL", "1s"), ("REDIS_TIMEOUT", "300ms")];
    let settings = [&[("REDIS_URL", url.as_str())], &more[..]].concat();
    let mut other = Process::serve(dir.path(), &settings).await?;
    stays.push_one("orders", "acked").await?;
    let pushed = other.client.post("/v1/topics/orders/messages?id=stored&raw=true", &json!("x")).await;
    assert_eq!(pushed.map(|(status, _)| status), Some(201));
    other.kill()?;
    empty(dir.path())?;
    let mut other = Process::serve(dir.path(), &settings).await?;
    stays.delivers("orders", &["acked", "stored"]).await?;

    stays.push_one("orders", "kept").await?;
    other.kill()?;
    empty(dir.path())?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let _other = Process::serve(dir.path(), &settings).await?;
    let noticed = async || Ok((stays.metric("dwell_redis_losses_total")? > 0.0).then_some(()));
    eventually("the loss is noticed", noticed).await?;
    stays.recovered().await?;
    stays.delivers("orders", &["kept"]).await?;
    stays.close().await
}

#[tokio::test]
async fn without_a_journal_only_unreplicated_writes_are_lost() -> Result<()> {
    let outage = Outage::with(RedisServer::start().await?)?;
    let dwell = outage.dwell().await?;
    let (after, _replica) = split(&outage, &dwell, Pushed::Stored).await?;
    dwell.delivers("orders", &["before", "promoted"]).await?;
    // It is where docs/concepts/durability.md says that it was lost: at the old primary.
    assert_eq!(outage.stored("orders").await?, after.len() + 1);
    assert!(dwell.metric("dwell_redis_losses_total")? >= 1.0);
    dwell.close().await
}

#[tokio::test]
async fn unrestorable_journal_records_wait_in_the_wal() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    outage.proxy.set(Mode::Refuse);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    for key in Outage::hashes("orders") {
        outage.redis.ask::<String>(&format!("SET {key} something")).await?;
    }
    outage.proxy.set(Mode::Pass);
    eventually("it is in the WAL", async || {
        dwell.broker().health().await;
        Ok((dwell.metric("dwell_wal_records{log=\"wal\"}")? == 1.0).then_some(()))
    })
    .await?;
    for key in Outage::hashes("orders") {
        outage.redis.ask::<i64>(&format!("DEL {key}")).await?;
    }
    dwell.recovered().await?;
    dwell.delivers("orders", &["a"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn new_group_is_restored_after_broker_and_redis_loss() -> Result<()> {
    let (dir, mut redis) = (scratch()?, RedisServer::start().await?);
    let settings =
        [("REDIS_URL", &*redis.url()), ("DURABILITY", "journal")].map(|(name, value)| (name, value.to_owned()));
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut broker = Process::serve(dir.path(), &settings).await?;
    for path in ["/v1/topics/orders", "/v1/topics/orders/groups/audit"] {
        assert_eq!(broker.client.put(path, &json!({})).await.map(|(status, _)| status), Some(201), "{path}");
    }
    broker.kill()?;
    redis.kill()?;
    redis.restart().await?;
    let broker = Process::serve(dir.path(), &settings).await?;
    // A topic that Redis lost is created again by its next push, as it was.
    let pushed = eventually("a push is taken", async || {
        let answer = broker.client.post("/v1/topics/orders/messages?raw=true", &json!("x")).await;
        Ok(answer.filter(|(status, _)| *status == 201))
    });
    pushed.await?;
    let group = broker.client.get("/v1/topics/orders/groups/audit").await;
    assert_eq!(group.map(|(status, _)| status), Some(200));
    Ok(())
}
