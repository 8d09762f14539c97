//! The barrier after a loss: no broker delivers until those that may know more have given it back.

use std::sync::Arc;
use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::model::error::Result;
use dwell::model::message::{GroupName, TopicName};
use dwell::platform::clock::Clock;
use dwell::store::redis::{Redis, RedisOptions};
use dwell::store::{LogTarget, Progress};
use dwell::telemetry::metrics::Metrics;

use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::eventually;

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
