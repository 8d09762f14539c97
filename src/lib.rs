//! dwell: a Kafka-style partitioned delay broker that runs as a sidecar over Redis.
//!
//! [`Dwell`] runs the broker inside a Rust program; [`app::embed`] begins with an example. The names at the root of the crate are
//! the part that stays stable. The modules are those of the program `dwell`.
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

pub use app::embed::{Consumer, Dwell, Producer, Received, TestTime, Unsettled};
pub use app::engine::StoreOptions;
pub use broker::{Moved, Options, PushOutcome, RescheduleOutcome};
pub use delivery::Delivery;
pub use model::error::{Error, Result};
pub use model::last_error::LastError;
pub use model::message::{Due, Key, MessageId, NewMessage};
pub use model::time::Timestamp;
pub use store::Cancelled;
