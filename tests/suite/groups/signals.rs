//! Signals to processes, and time that goes by.

use std::time::{Duration, Instant};

use dwell::model::error::Result;
use rustix::process::Signal;

use crate::support::{eventually, signal_to};

/// Sends a signal to a process.
pub(super) fn signal(process: u32, signal: Signal) -> Result<()> {
    signal_to(process, signal)
}

/// Returns once so much time has gone by since then. Only where time itself is the story: a lease that has to lapse.
pub(super) async fn passed(since: Instant, span: Duration) -> Result<()> {
    while since.elapsed() < span {
        let part = Instant::now() + Duration::from_secs(1);
        let over = || since.elapsed() >= span || Instant::now() >= part;
        eventually("time goes by", async || Ok(over().then_some(()))).await?;
    }
    Ok(())
}
