//! The simulator: brokers, their clients and Redis in one thread, on simulated time, from a seed.
//!
//! docs/internals/simulation.md explains it. `make sim` searches longer.

mod admin;
mod broker_log;
mod client;
mod courier;
mod coverage;
mod errors;
mod host;
mod ledger;
mod nameless;
mod network;
mod numbers;
mod operation;
mod pipe;
mod plan;
mod run;
mod shrink;
mod spread;
mod sqs;
mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What it holds, also after a panic: then the panic is what is reported.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What it does is in the environment, where the arguments of the suite's test runner do not reach.
fn main() -> Result<(), run::Failure> {
    match std::env::var("SIM").as_deref() {
        Ok("search") => run::search(&run::Settings::from_environment()?),
        Ok("history") => run::one(&run::Settings::from_environment()?),
        _ => run::suite(),
    }
}
