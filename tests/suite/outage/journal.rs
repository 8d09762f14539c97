//! Redis loses what it had taken, and the journal gives it back.

use std::time::Duration;

use dwell::error::Result;
use dwell::store::Pushed;

use super::Outage;
use crate::support::{RedisServer, eventually};

const WINDOW: Duration = Duration::from_secs(60);

async fn journaled() -> Result<Outage> {
    Ok(Outage { journal: Some(WINDOW), ..Outage::with(RedisServer::start().await?)? })
}

#[tokio::test]
async fn a_redis_that_comes_back_empty_gets_everything_again() -> Result<()> {
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
async fn a_redis_that_lost_its_last_moments_gets_those_again_and_what_was_consumed_stays_away() -> Result<()> {
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
async fn what_came_out_of_the_wal_is_in_the_journal_too() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    outage.redis.kill()?;
    assert_eq!(dwell.push_one("orders", "b").await?.pushed, Pushed::Buffered);
    outage.redis.restart().await?;
    dwell.recovered().await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    eventually("the journal was offered twice", async || {
        dwell.broker().health().await;
        Ok((dwell.metric("dwell_wal_replayed_total{log=\"journal\"}")? >= 4.0).then_some(()))
    })
    .await?;
    dwell.delivers("orders", &["a", "b"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn the_journal_forgets_after_its_window() -> Result<()> {
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
