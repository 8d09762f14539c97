//! How a log is set up.

use std::path::PathBuf;

use crate::model::limits::DISK_RESERVE_BYTES;
use crate::platform::clock::Clock;

/// Where a log lies and how large it may become.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// Its directory, for it alone.
    pub dir: PathBuf,
    /// Bytes on disk past which nothing is appended.
    pub limit_bytes: u64,
    /// Bytes on disk past which a new segment begins.
    pub segment_bytes: u64,
    /// Bytes of the disk that are left free.
    pub disk_reserve_bytes: u64,
    /// Gives records their time.
    pub clock: Clock,
}

/// Bytes of a log that is not told otherwise.
pub const LIMIT_BYTES: u64 = 1024 * 1024 * 1024;

/// Bytes of the smallest segment: opening and deleting one costs a few fsyncs.
const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;

/// Bytes of the largest segment: deleting it is how space comes back.
const SEGMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl WalOptions {
    /// A log in this directory of at most so many bytes, in 16 segments or more.
    pub fn new(dir: PathBuf, limit_bytes: u64, clock: Clock) -> WalOptions {
        let segment_bytes = (limit_bytes / 16).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        WalOptions { dir, limit_bytes, segment_bytes, disk_reserve_bytes: DISK_RESERVE_BYTES, clock }
    }
}
