//! Signals to processes, and time that goes by.

use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{eventually, failed};

/// Sends a signal to a process.
pub(super) fn signal(process: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or_else(|| Error::bug("no process id"))?;
    kill_process(pid, signal).map_err(|error| failed("a signal")(error.into()))
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
