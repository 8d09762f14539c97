//! The base layer: clock, secrets and keys, tasks, files and disk, TLS clients, throttled logging.

pub mod clock;
pub mod secret;
pub mod signing_key;
pub mod log_throttle;
pub mod request_id;
pub mod tasks;
pub mod https;
pub mod disk;
pub mod test_clock;
pub mod files;
