//! A machine whose clock is off by minutes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock::Clock;
use dwell::error::Result;
use dwell::failover::{Failover, FailoverOptions};
use dwell::metrics::Metrics;
use dwell::store::Store;
use dwell::store::redis::{Redis, RedisOptions};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::TIMEOUT;
use crate::support::{eventually, scratch};

const OFF: Duration = Duration::from_secs(300);

/// A store that answers nothing by itself, behind what keeps pushes in a directory.
async fn store(dir: &Path) -> Result<(Arc<Failover<Redis>>, Arc<Metrics>)> {
    let metrics = Arc::new(Metrics::new()?);
    let nowhere = RedisOptions::new(format!("redis+unix://{}/none", dir.display()));
    let store = Redis::open(nowhere, Clock::System, metrics.clone()).await?;
    Ok((Arc::new(Failover::open(store, FailoverOptions::new(dir), TIMEOUT, metrics.clone()).await?), metrics))
}

/// An answer of a store whose clock is that much ahead of this machine's.
fn answer(store: &impl Store, ahead: Duration) {
    let us = (Clock::System.now().as_ms() + ahead.as_millis() as u64) * 1_000;
    store.clock().observe(Clock::System.instant(), us);
}

fn ahead(store: &impl Store) -> Duration {
    store.clock().now().since(Clock::System.now())
}

fn is_about(found: Duration, expected: Duration) -> bool {
    found.abs_diff(expected) < Duration::from_secs(2)
}

#[tokio::test]
async fn a_clock_that_is_off_is_shown_and_a_process_that_was_killed_finds_it_without_the_store() -> Result<()> {
    let dir = scratch()?;
    let (failover, metrics) = store(dir.path()).await?;
    let (running, stop) = (failover.clone(), CancellationToken::new());
    let run = AbortOnDropHandle::new(tokio::spawn(async move { running.run(stop).await }));
    assert!(is_about(ahead(&*failover), Duration::ZERO));
    answer(&*failover, OFF);
    assert!(is_about(ahead(&*failover), OFF));
    let note = dir.path().join("wal").join("clock-offset");
    eventually("it is noted", async || Ok(std::fs::metadata(&note).ok().map(drop))).await?;
    let shown = metrics.text()?;
    assert!(
        shown.lines().any(|line| line.starts_with("dwell_clock_offset_seconds -300")
            || line.starts_with("dwell_clock_offset_seconds -299")),
        "{shown}"
    );
    // It dies, and does not close.
    run.abort();
    drop((run, failover));
    let (failover, _) = eventually("its directory is free", async || Ok(store(dir.path()).await.ok())).await?;
    assert!(is_about(ahead(&*failover), OFF), "{:?}", ahead(&*failover));
    failover.close().await
}
