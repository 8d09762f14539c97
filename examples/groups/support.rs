//! What the test suite waits and starts servers with, and how long to wait here.

#[path = "../../tests/suite/support/eventually.rs"]
mod patience;
#[path = "../../tests/suite/support/redis.rs"]
#[allow(dead_code, reason = "the suite needs more of it")]
mod redis;

use std::time::Duration;

use dwell::model::error::Result;
use tempfile::TempDir;

pub(crate) use self::patience::{eventually, failed, repeatedly};
pub(crate) use self::redis::RedisServer;

/// How long something may take before a story fails: long enough for leases of 10 s to lapse.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that is removed when dropped.
pub(crate) fn scratch() -> Result<TempDir> {
    tempfile::tempdir().map_err(failed("a scratch directory"))
}
