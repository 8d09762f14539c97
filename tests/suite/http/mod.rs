//! A served broker: its routes, who may use them, and the console.

mod access;
pub(crate) mod api;
mod console;
