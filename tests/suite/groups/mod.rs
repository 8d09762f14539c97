//! Groups of several members: real processes that share the partitions of a topic through one real Redis.
//!
//! Every story prints what it measured. What it asserts of time is generous, for it runs unoptimised beside others.

mod fleet;
mod ledger;
mod load;
mod sidecar;

mod forwarding;
mod strangers;
mod rebalance;
mod restart;
mod dead;
mod frozen;
mod outage;
mod lateness;
mod waiting;

use std::time::{Duration, Instant};

use dwell::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{eventually, failed};

/// How long a lease runs in these stories.
const TTL: Duration = Duration::from_secs(2);

/// How often a story with rounds repeats itself: `DWELL_ROUNDS`, or this.
fn rounds(default: usize) -> usize {
    std::env::var("DWELL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(default)
}

/// Sends a signal to a process.
fn signal(process: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or_else(|| Error::bug("no process id"))?;
    kill_process(pid, signal).map_err(|error| failed("a signal")(error.into()))
}

/// Returns once so much time has gone by since then. Only where time itself is the story: a lease that has to lapse.
async fn passed(since: Instant, span: Duration) -> Result<()> {
    while since.elapsed() < span {
        let part = Instant::now() + Duration::from_secs(1);
        let over = || since.elapsed() >= span || Instant::now() >= part;
        eventually("time goes by", async || Ok(over().then_some(()))).await?;
    }
    Ok(())
}
