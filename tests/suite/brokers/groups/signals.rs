//! Signals to processes, and time that goes by.

use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{eventually, failed};

const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// Sends a signal to a process. After `STOP` it stands still: `kill` returns before its threads have.
pub(crate) fn signal(process: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::bug("a process without a number"))?;
    kill_process(pid, signal).map_err(|error| Error::unavailable(format!("a signal: {error}")))?;
    let since = std::time::Instant::now();
    while signal == Signal::STOP && !stands_still(process)? {
        if since.elapsed() > STOPS_WITHIN {
            return Err(Error::unavailable(format!("process {process} does not stop")));
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Whether all threads of a process are stopped.
fn stands_still(process: u32) -> Result<bool> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).map_err(failed("the threads of a process"))?;
    let is_stopped = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    // A thread that has ended meanwhile is none.
    let stats = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    Ok(stats.into_iter().all(|stat| is_stopped(&stat)))
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
