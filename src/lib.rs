//! dwell: a Kafka-style partitioned delay broker that runs as a sidecar over Redis.
//!
//! [`app::embed`] runs the broker inside a Rust program, and begins with an example; it is the part that stays stable. The other
//! modules are those of the program `dwell`.
//!
//! The modules are listed bottom-up: a module uses only those above it. docs/internals/architecture.md explains the whole.

pub mod model;
pub mod platform;
pub mod codec;
pub mod telemetry;
pub mod store;
pub mod wal;
pub mod outage;
pub mod coordination;
pub mod delivery;
pub mod gate;
pub mod broker;
pub mod api;
pub mod sqs;
pub mod app;
pub mod cli;
pub mod measure;
pub mod command_line;
