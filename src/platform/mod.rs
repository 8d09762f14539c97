//! What dwell stands on: the clock, tasks, files and the disk, TLS clients, throttled logging.

pub mod secret;
pub mod bearer;
pub mod clock;
pub mod token_file;
pub mod log_throttle;
pub mod request_id;
pub mod tasks;
pub mod https;
pub mod disk;
pub mod files;
