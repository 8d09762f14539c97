//! Many members of a group in one thread: no sockets, no clock, chance from a seed.

mod calls;
mod random;
mod demand;
mod incidents;
mod large;
mod network;
mod process;
mod record;
mod convergence;
mod settled;
mod store;
mod time;
mod world;

use dwell::model::error::{Error, Result};

/// The seeds to try: one by `DWELL_SEED`, as many as `DWELL_SIM_SEEDS` says, or so many.
fn seeds(count: u64) -> Result<Vec<u64>> {
    let number = |name| match std::env::var(name) {
        Ok(text) => text.parse().map(Some).map_err(|error| Error::invalid(name, error)),
        Err(_) => Ok(None),
    };
    match (number("DWELL_SEED")?, number("DWELL_SIM_SEEDS")?) {
        (Some(seed), _) => Ok(vec![seed]),
        (None, many) => Ok((0..many.unwrap_or(count)).map(|_| fastrand::u64(..)).collect()),
    }
}

/// Whether it may take longer than a few seconds.
fn is_long() -> bool {
    std::env::var_os("DWELL_SIM_SEEDS").is_some()
}

/// Names the seed when its story fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("DWELL_SEED={} tells this story again", self.0);
        }
    }
}
