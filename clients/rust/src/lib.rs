//! The requests of an application to a dwell broker, and the answers to them.

#[cfg(feature = "wire")]
pub mod wire;
