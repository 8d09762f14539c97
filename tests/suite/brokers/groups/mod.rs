//! Groups of several members: real processes that share the partitions of a topic through one real Redis.
//!
//! Every story prints what it measured. What it asserts of time is generous, for it runs unoptimised beside others. The
//! long form is an example, `cargo run --release --example groups`: it shares the words of these stories.

mod fleet;
mod ledger;
mod load;
mod printer;
mod sidecar;
pub(crate) mod signals;

mod settle_chaos;
mod settle_anywhere;
mod verdicts;
mod foreign_datagrams;
mod receipt_keys;
mod rebalance;
mod restart;
mod killed_owner;
mod frozen_owner;
mod outage;
mod lateness;
mod standby;
mod backlog;
mod group_changes;
mod held;
mod paused_keys;
mod demand;

use std::path::PathBuf;
use std::time::Duration;

use dwell::model::error::Result;

use self::signals::{passed, signal};

/// How long a lease runs in these stories.
const TTL: Duration = Duration::from_secs(2);

/// What is set otherwise than by default: leases that lapse soon enough for a story.
const SETTINGS: [(&str, &str); 6] = [
    ("DWELL_LEASE_TTL", "2s"),
    ("DWELL_GROUP_HEARTBEAT", "200ms"),
    ("DWELL_GROUP_DRAIN_TIMEOUT", "5s"),
    ("DWELL_GROUP_IDLE_TIMEOUT", "60s"),
    ("DWELL_REDIS_TIMEOUT", "1s"),
    ("DWELL_LOG_LEVEL", "info"),
];

/// How often a story with rounds repeats itself: `DWELL_ROUNDS`, or this.
fn rounds(default: usize) -> usize {
    std::env::var("DWELL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(default)
}

/// The program that the stories run.
fn dwell() -> Result<PathBuf> {
    Ok(env!("CARGO_BIN_EXE_dwell").into())
}
