//! The one integration binary: every test against real stores, none of which waits or skips.

mod support;

mod conformance;
mod embedded;
mod embedded_loss;
mod random_ops;
mod wal;
mod volume;
mod crash;
mod faults;
mod crash_embedded;
mod chain;
mod coalescing;
mod outage;
mod ownership_model;
mod simulation;
mod delivery;
mod ordered;
mod redis_keys;
mod redis_faults;
mod redis_sentinel;
mod redis_cluster;
mod shape;
mod idle;
mod sessions;
mod webhooks;
mod groups;
mod http;
mod cli;
mod readme;
mod tidy;
mod tidy_protocol;
mod tidy_groups;
