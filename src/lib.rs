//! dwell: a Kafka-style partitioned delay broker that runs as a sidecar over Redis.
//!
//! The modules are listed bottom-up: a module uses only those above it. docs/internals/architecture.md explains the whole.

pub mod error;
pub mod spelling;
pub mod limits;
pub mod secret;
pub mod time;
pub mod version;
pub mod clock;
pub mod seldom;
pub mod request_id;
pub mod trace;
pub mod message;
pub mod partition;
pub mod retry;
pub mod topic;
pub mod schedule;
pub mod codec;
pub mod metrics;
pub mod tasks;
pub mod https;
pub mod spans;
pub mod disk;
pub mod files;
pub mod access;
pub mod store;
pub mod hand_over;
pub mod wal;
pub mod failover;
pub mod assignment;
pub mod lease;
pub mod group;
pub mod dispatch;
pub mod remote;
pub mod broker;
pub mod engine;
pub mod embed;
pub mod http;
pub mod webhook;
pub mod config;
pub mod server;
pub mod cli;
