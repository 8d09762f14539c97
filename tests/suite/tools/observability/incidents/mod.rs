//! Incidents, played on real brokers, a real Redis and a real Prometheus under a load: each fires exactly the alerts that
//! it should, once. `make incidents` runs them.
//!
//! Time runs ten times as fast for the alerts: what has to last for a minute lasts for six seconds, and what has to last for an hour
//! for half a minute. Ages of messages are real: what has waited for minutes was pushed to a Redis whose clock was behind.
//! rules.rs has the alerts that no incident plays, each with the reason, and sees that each command of a runbook is typed.

mod brokers;
mod consumers;
mod cron;
mod fleet;
mod losses;
pub(super) mod moments;
mod operator;
mod redis;
mod topics;

/// How many times as fast as in the rules time passes for the alerts here.
const PACE: u32 = 10;
