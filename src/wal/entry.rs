//! What the log answers.

use crate::codec::Record;
use crate::model::time::Timestamp;

/// The place of a record in the log. Later records have greater positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(super) u64);

impl Position {
    /// The number of the record, from 1.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A record that was read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Where it stands.
    pub position: Position,
    /// When it was appended, by the clock of this machine.
    pub at: Timestamp,
    /// The record.
    pub record: Record,
}

/// What came of cancelling a message in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was there, was not handed out, and is gone, durably.
    Removed,
    /// The same, but its record says that the store was sent it, or is of an earlier process, which may have sent it.
    RemovedSent,
    /// A page handed it out and it is not trimmed: perhaps the store has it. Nothing was removed, no later record of it either.
    Replaying,
    /// It is not there.
    Absent,
}

impl Cancelled {
    /// What came of two parts of the log together.
    pub(super) fn and(self, other: Cancelled) -> Cancelled {
        match (self, other) {
            (Cancelled::Replaying, _) | (_, Cancelled::Replaying) => Cancelled::Replaying,
            (Cancelled::RemovedSent, _) | (_, Cancelled::RemovedSent) => Cancelled::RemovedSent,
            (Cancelled::Removed, _) | (_, Cancelled::Removed) => Cancelled::Removed,
            (Cancelled::Absent, Cancelled::Absent) => Cancelled::Absent,
        }
    }
}

/// What waits in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Records that are not trimmed, not cancelled and not known to be lost.
    pub records: u64,
    /// Bytes of all segments on disk, trimmed records in them included.
    pub bytes: u64,
    /// Where the newest record stands, trimmed or not; `None` when there never was any.
    pub end: Option<Position>,
    /// When the oldest of the records was appended, or a little earlier.
    pub oldest: Option<Timestamp>,
    /// Damages found since the log was opened: unreadable records, gaps, and segments that were set aside.
    pub damaged: u64,
    /// Records that damage took, found since the log was opened.
    pub lost: u64,
}
