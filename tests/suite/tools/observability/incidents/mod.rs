//! Incidents, played on real brokers, a real Redis and a real Prometheus under a load: each fires exactly the alerts that
//! it should, once. `make incidents` runs them.
//!
//! Time runs ten times as fast for the alerts: what has to last for a minute lasts for six seconds.

mod brokers;
mod consumers;
mod fleet;
mod redis;
mod topics;

/// How many times as fast as in the rules time passes for the alerts here.
const PACE: u32 = 10;
