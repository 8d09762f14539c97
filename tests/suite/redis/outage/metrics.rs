//! What the metrics show of an outage, to somebody who only looks at them.

use dwell::model::error::Result;

use super::{Dwell, Outage};
use crate::support::{Mode, eventually};

/// A look at the metrics, and what it shows of one series.
fn look(dwell: &Dwell, series: &str) -> Result<Option<f64>> {
    let text = dwell.broker().scrape()?;
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    Ok(text.lines().find_map(value))
}

async fn until(dwell: &Dwell, series: &str, is: Option<f64>) -> Result<()> {
    eventually(&format!("{series} is {is:?}"), async || Ok((look(dwell, series)? == is).then_some(()))).await
}

const READY: &str = "dwell_messages{group=\"default\",state=\"ready\",topic=\"orders\"}";

#[tokio::test]
async fn totals_are_hidden_during_an_outage_and_right_after_it() -> Result<()> {
    let outage = Outage::begin().await?.hasty();
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    for mode in [Mode::Refuse, Mode::BlackHole] {
        until(&dwell, READY, Some(1.0)).await?;
        assert_eq!(look(&dwell, "dwell_stats_collector")?, Some(1.0));
        outage.proxy.set(mode);
        until(&dwell, READY, None).await?;
        assert_eq!(look(&dwell, "dwell_stats_collector")?, Some(0.0));
        outage.proxy.set(Mode::Pass);
    }
    until(&dwell, READY, Some(1.0)).await?;
    dwell.close().await
}

/// Nobody pushes, nobody consumes and nobody asks whether dwell is ready.
#[tokio::test]
async fn idle_broker_reports_redis_down_and_up() -> Result<()> {
    let outage = Outage::begin().await?.hasty();
    let dwell = outage.dwell().await?;
    for mode in [Mode::Refuse, Mode::BlackHole] {
        until(&dwell, "dwell_redis_up", Some(1.0)).await?;
        outage.proxy.set(mode);
        until(&dwell, "dwell_redis_up", Some(0.0)).await?;
        outage.proxy.set(Mode::Pass);
    }
    until(&dwell, "dwell_redis_up", Some(1.0)).await?;
    dwell.close().await
}

#[tokio::test]
async fn breaker_is_open_until_the_buffer_is_replayed() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    // Then only the message waits, and not its topic as well: the breaker closes once Redis takes one of the two.
    dwell.push_one("orders", "before").await?;
    assert_eq!(look(&dwell, "dwell_breaker_open")?, Some(0.0));
    outage.proxy.set(Mode::Refuse);
    dwell.push_one("orders", "a").await?;
    assert_eq!(look(&dwell, "dwell_breaker_open")?, Some(1.0));
    outage.proxy.set(Mode::Pass);
    until(&dwell, "dwell_breaker_open", Some(0.0)).await?;
    assert_eq!(outage.stored("orders").await?, 2, "Redis has it when the breaker closes");
    // The page is trimmed from the WAL after the store has answered.
    until(&dwell, "dwell_wal_records{log=\"wal\"}", Some(0.0)).await?;
    dwell.close().await
}
