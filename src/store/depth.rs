//! Counting for everybody who shares a store: who does it, and what is counted.

use std::time::Duration;

use super::PartitionStats;

/// Whether a member is the one that counts for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CensusClaim {
    /// It is the only one there can be: the store is of one process.
    Alone,
    /// It is, and nobody else was since it said so last.
    Kept,
    /// It is from now on; another one may have been until now.
    Taken,
    /// Another one is.
    Held {
        /// How long that runs, if it is not prolonged.
        expires_in: Duration,
    },
}

/// What a pair holds, and how much of it becomes due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionDepth {
    /// What it holds.
    pub stats: PartitionStats,
    /// What is scheduled and becomes due within each of the spans that were asked for.
    pub due: Vec<u64>,
}

/// What a process knows of its store without asking it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HealthSnapshot {
    /// Bytes that are free on the disk that it writes to; `None` when that cannot be told.
    pub free_bytes: Option<u64>,
    /// Whether pushes are buffered because the store is away.
    pub is_away: bool,
}
