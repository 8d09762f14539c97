//! Redis dies, and comes back.

use std::time::{Duration, Instant};

use dwell::model::error::{Error, Kind, Result};
use dwell::model::topic::Settings;
use dwell::store::Pushed;

use super::{Outage, TIMEOUT};
use crate::support::{Mode, Strike, eventually, kind_of};

#[tokio::test]
async fn push_during_an_outage_is_delivered_after_it() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push_one("orders", "before").await?.pushed, Pushed::Stored);
    outage.redis.kill()?;
    let promised = dwell.push("orders", &["a", "b", "c"], Duration::from_millis(10)).await?;
    assert!(promised.iter().all(|outcome| outcome.pushed == Pushed::Buffered), "{promised:?}");
    let health = dwell.broker().health().await;
    assert!(
        health.ready && health.detail.as_deref().is_some_and(|why| why.contains("buffered on disk, 3 records so far"))
    );
    // A repeat of what may be in Redis already is taken as well: Redis tells them apart.
    assert_eq!(dwell.push_one("orders", "before").await?.pushed, Pushed::Buffered);
    outage.redis.restart().await?;
    dwell.recovered().await?;
    let got = dwell.delivers("orders", &["a", "b", "before", "c"]).await?;
    for outcome in promised {
        assert_eq!(got[outcome.id.as_str()].due_at, outcome.due_at);
    }
    assert_eq!(dwell.metric("dwell_wal_replayed_total{log=\"wal\"}")?, 4.0);
    assert_eq!(dwell.push_one("orders", "after").await?.pushed, Pushed::Stored);
    dwell.close().await
}

#[tokio::test]
async fn start_without_redis_accepts_pushes_to_any_topic() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let settings = Settings { partitions: std::num::NonZeroU16::MIN.saturating_add(2), ..Settings::default() };
    let first = outage.dwell().await?;
    first.broker().declare(dwell::model::message::TopicName::new("known")?, settings.clone()).await?;
    first.push_one("known", "early").await?;
    first.close().await?;
    outage.redis.kill()?;

    let dwell = outage.dwell().await?;
    let delay = Duration::from_millis(700);
    let pushed = Instant::now();
    let known = dwell.push("known", &["k1", "k2", "k3"], delay).await?;
    let new = dwell.push("new", &["n1", "n2", "n3"], delay).await?;
    assert!(known.iter().chain(&new).all(|outcome| outcome.pushed == Pushed::Buffered));
    let is_in_three = |outcome: &dwell::broker::PushOutcome| outcome.partition.is_some_and(|partition| partition.0 < 3);
    assert!(known.iter().all(is_in_three), "the known topic has 3 partitions");
    assert!(new.iter().all(|outcome| outcome.partition.is_none()), "another topic may have any number of them");
    // What cannot be promised is refused: nobody knows whether such a topic exists.
    let declared = dwell.broker().declare(dwell::model::message::TopicName::new("other")?, settings).await;
    assert_eq!(kind_of(declared), Some(Kind::Unavailable));
    dwell.close().await?;

    // The next process knows what the last one promised.
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push("new", &["n4"], delay).await?[0].pushed, Pushed::Buffered);
    outage.redis.restart().await?;
    dwell.recovered().await?;
    let got = dwell.delivers("new", &["n1", "n2", "n3", "n4"]).await?;
    assert!(pushed.elapsed() >= delay, "never early");
    // The delay counts from the push, not from the replay.
    assert!(new.iter().all(|outcome| got[outcome.id.as_str()].due_at == outcome.due_at), "{got:?}");
    dwell.delivers("known", &["early", "k1", "k2", "k3"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn only_the_first_push_waits_for_a_silent_redis() -> Result<()> {
    for mode in [Mode::BlackHole, Mode::Delay(Duration::from_secs(2)), Mode::Refuse] {
        let outage = Outage::begin().await?.hasty();
        let dwell = outage.dwell().await?;
        dwell.push_one("orders", "before").await?;
        outage.proxy.set(mode);
        let began = Instant::now();
        assert_eq!(dwell.push_one("orders", "first").await?.pushed, Pushed::Buffered);
        let first = began.elapsed();
        assert!(first < TIMEOUT * 3, "{mode:?}: {first:?}");
        let mut took = Vec::new();
        for n in 0..100 {
            let began = Instant::now();
            assert_eq!(dwell.push_one("orders", &format!("m{n}")).await?.pushed, Pushed::Buffered, "{mode:?}");
            took.push(began.elapsed());
        }
        took.sort();
        // Far from what it takes, and as far from the time of one call.
        assert!(took[90] < TIMEOUT / 3, "{mode:?}: {took:?}");
        outage.proxy.set(Mode::Pass);
        dwell.recovered().await?;
        let got = dwell.drain("orders", 102).await?;
        assert_eq!(got.len(), 102, "{mode:?}");
        assert!(got.values().all(|got| !got.early), "{mode:?}: {got:?}");
        dwell.close().await?;
    }
    Ok(())
}

#[tokio::test]
async fn cut_reply_causes_no_duplicate_and_no_false_result() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "warm").await?;
    let orders = dwell::model::message::TopicName::new("orders")?;
    let held = |stats: Vec<(dwell::model::topic::GroupPartition, dwell::store::PartitionStats)>| {
        stats.iter().map(|(_, stats)| stats.scheduled + stats.ready + stats.in_flight).sum::<u64>()
    };
    for n in 0..20 {
        // A push that was buffered in place of it would not meet Redis.
        dwell.recovered().await?;
        outage.proxy.next(Strike::Reply);
        let outcome = dwell.push_one("orders", &format!("m{n}")).await?;
        assert!(matches!(outcome.pushed, Pushed::Stored | Pushed::Buffered), "{outcome:?}");
        eventually("a call is struck", async || Ok(outage.proxy.struck().ok())).await?;
    }
    dwell.recovered().await?;
    assert_eq!(held(dwell.broker().stats(&orders).await?), 21);
    dwell.close().await
}

#[tokio::test]
async fn stop_without_redis_is_timely_and_restart_replays() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    outage.redis.kill()?;
    let ids: Vec<String> = (0..2_000).map(|n| format!("m{n}")).collect();
    for ids in ids.chunks(500) {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        dwell.push("orders", &ids, Duration::ZERO).await?;
    }
    let began = Instant::now();
    dwell.close().await?;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    outage.redis.restart().await?;
    let dwell = outage.dwell().await?;
    dwell.recovered().await?;
    let got = dwell.drain("orders", 2_001).await?;
    assert_eq!(got.len(), 2_001);
    assert!(got.values().all(|got| got.times == 1));
    dwell.close().await
}

#[tokio::test]
async fn push_refused_for_its_content_is_not_buffered() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    for key in Outage::hashes("orders") {
        outage.redis.ask::<i64>(&format!("DEL {key}")).await?;
        outage.redis.ask::<String>(&format!("SET {key} something")).await?;
    }
    assert_eq!(dwell.push_one("orders", "b").await.map_err(|error| error.kind()).err(), Some(Kind::Corrupt));
    assert_eq!(dwell.metric("dwell_wal_records{log=\"wal\"}")?, 0.0);
    dwell.close().await?;
    Ok::<(), Error>(())
}
