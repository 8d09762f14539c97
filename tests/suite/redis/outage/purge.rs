//! Purging a group while Redis is away, while answers are lost, and when logs have what was purged.

use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::message::{GroupName, TopicName};
use dwell::store::{Purge, Pushed};

use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::{Mode, Proxy, Strike, eventually, kind_of, scratch};

const HOUR: Duration = Duration::from_secs(3_600);

impl Dwell {
    async fn purge(&self) -> Result<u64> {
        let purge = Purge { group: GroupName::standard(), dead_letters: false };
        Ok(self.broker().purge_group(&TopicName::new("orders")?, &purge).await?.messages)
    }

    async fn take(&self, max: usize) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait: Duration::from_secs(5), visibility_timeout: None };
        self.broker().reserve(&TopicName::new("orders")?, &GroupName::standard(), request).await
    }

    async fn ack(&self, delivery: &Delivery) -> Result<Verdict> {
        let decisions = vec![(delivery.receipt.to_string(), Decision::Ack)];
        Ok(self.broker().settle(&TopicName::new("orders")?, &GroupName::standard(), decisions).await?.remove(0))
    }
}

#[tokio::test]
async fn journal_does_not_restore_purged_messages() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["a", "b", "c"], Duration::from_millis(50)).await?;
    assert_eq!(dwell.purge().await?, 3);
    dwell.push("orders", &["c", "d"], Duration::from_millis(50)).await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    eventually("the journal was offered", async || {
        dwell.broker().health().await;
        Ok((dwell.metric("dwell_wal_replayed_total{log=\"journal\"}")? >= 2.0).then_some(()))
    })
    .await?;
    dwell.delivers("orders", &["c", "d"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn lost_purge_is_repeated() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let ids: Vec<String> = (0..1_000).map(|n| format!("m{n:04}")).collect();
    dwell.push("orders", &ids.iter().map(String::as_str).collect::<Vec<_>>(), Duration::ZERO).await?;
    let snapshot = outage.redis.snapshot().await?;
    assert_eq!(dwell.purge().await?, 1_000);
    dwell.push_one("orders", "after").await?;
    dwell.close().await?;
    outage.redis.rewind(&snapshot).await?;
    let dwell = outage.dwell().await?;
    dwell.delivers("orders", &["after"]).await?;
    assert_eq!(outage.stored("orders").await?, 0);
    dwell.close().await
}

#[tokio::test]
async fn purge_covers_earlier_buffered_messages_of_other_brokers() -> Result<()> {
    let outage = Outage::begin().await?;
    let (proxy, dir) = (Proxy::before(&outage.redis)?, scratch()?);
    let (dwell, beside) = (outage.dwell().await?, outage.dwell_in(dir.path(), proxy.url(), false).await?);
    dwell.push_one("orders", "stored").await?;
    beside.push_one("orders", "beside").await?;
    proxy.set(Mode::Refuse);
    for id in ["m1", "m2", "m3"] {
        assert_eq!(beside.push_one("orders", id).await?.pushed, Pushed::Buffered);
    }
    assert_eq!(dwell.purge().await?, 2);
    assert_eq!(beside.push_one("orders", "later").await?.pushed, Pushed::Buffered);
    dwell.push_one("orders", "after").await?;
    proxy.set(Mode::Pass);
    beside.recovered().await?;
    dwell.delivers("orders", &["after", "later"]).await?;
    beside.close().await?;
    dwell.close().await
}

#[tokio::test]
async fn purge_is_refused_during_an_outage() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    outage.redis.kill()?;
    assert_eq!(dwell.push_one("orders", "b").await?.pushed, Pushed::Buffered);
    assert_eq!(kind_of(dwell.purge().await), Some(Kind::Unavailable));
    outage.redis.restart().await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["a", "b"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn purge_with_a_lost_reply_deletes_once_and_counts_right() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    for n in 0..5 {
        let id = format!("m{n}");
        dwell.recovered().await?;
        dwell.push("orders", &[&id], HOUR).await?;
        outage.proxy.next(Strike::Reply);
        let purged = dwell.purge().await;
        outage.proxy.struck()?;
        match purged {
            Ok(purged) => assert_eq!(purged, 1),
            // On a machine that has more to do the time may be up before the repeat is answered.
            Err(error) => assert_eq!(error.kind(), Kind::OutcomeUnknown),
        }
        assert_eq!(outage.stored("orders").await?, 0);
    }
    dwell.close().await
}

#[tokio::test]
async fn remote_purge_clears_prefetched_messages() -> Result<()> {
    let outage = Outage::begin().await?;
    let (proxy, dir) = (Proxy::before(&outage.redis)?, scratch()?);
    let (dwell, owner) = (outage.dwell().await?, outage.dwell_in(dir.path(), proxy.url(), false).await?);
    let ids: Vec<String> = (0..100).map(|n| format!("m{n}")).collect();
    owner.push("orders", &ids.iter().map(String::as_str).collect::<Vec<_>>(), Duration::ZERO).await?;
    // Some of every partition, and some are left.
    let mut taken = owner.take(95).await?;
    while taken.len() < 95 {
        let more = owner.take(95 - taken.len()).await?;
        assert!(!more.is_empty(), "{} of 95", taken.len());
        taken.extend(more);
    }
    assert_eq!(dwell.purge().await?, 100);
    for delivery in &taken {
        eventually("the ack of a purged message is stale", async || {
            Ok(matches!(owner.ack(delivery).await?, Verdict::Stale(_)).then_some(()))
        })
        .await?;
    }
    dwell.push_one("orders", "after").await?;
    owner.delivers("orders", &["after"]).await?;
    owner.close().await?;
    dwell.close().await
}
