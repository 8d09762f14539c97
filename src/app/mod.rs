//! Puts the parts together: configuration, the engine, the server, the library.

pub mod engine;
pub mod embed;
pub mod config;
pub mod reload;
pub mod server;
