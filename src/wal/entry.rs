//! What the log keeps, and what it answers.

use crate::message::{Message, TopicName};
use crate::time::Timestamp;
use crate::topic::Descriptor;

/// One thing to be done to the store later.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// Make this topic if it is not there.
    Create(Descriptor),
    /// Store this message.
    Push {
        /// Under this topic.
        topic: TopicName,
        /// The incarnation of it; 0 is whichever topic has the name then.
        incarnation: u64,
        /// The message.
        message: Message,
    },
}

/// The place of a record in the log. Later records have greater positions; none is ever used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(super) u64);

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
    /// It was handed out by a page and is not trimmed: perhaps the store has it.
    Replaying,
    /// It is not there.
    Absent,
}

/// What waits in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Records that are not trimmed, cancelled or known to be lost.
    pub records: u64,
    /// Bytes of all segments on disk.
    pub bytes: u64,
    /// When the oldest of the records was appended.
    pub oldest: Option<Timestamp>,
    /// Damages found since this log was opened: segments or records that cannot be read.
    pub damaged: u64,
    /// Records that damage took, found since this log was opened.
    pub lost: u64,
}
