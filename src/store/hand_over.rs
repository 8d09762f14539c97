//! What a broker that stops gives to another one.

use crate::codec::NumberedRecord;
use crate::time::Timestamp;

/// Which log of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// Requests that the store has yet to take.
    Wal,
    /// What the store answered lately.
    Journal,
}

impl LogKind {
    /// Both.
    pub const ALL: [LogKind; 2] = [LogKind::Wal, LogKind::Journal];

    /// The name, as in metrics and in a request.
    pub fn name(self) -> &'static str {
        match self {
            LogKind::Wal => "wal",
            LogKind::Journal => "journal",
        }
    }
}

/// A page of a log, for another broker.
#[derive(Debug, Clone, PartialEq)]
pub struct HandedOver {
    /// The name of the store that the records are for.
    pub store: String,
    /// When the store was last heard of, by the broker that hands over: one that is named later is the same one, emptied.
    pub heard: Option<Timestamp>,
    /// The log that they stood in.
    pub kind: LogKind,
    /// The name of that log.
    pub log: String,
    /// The records, each with its number in that log.
    pub records: Vec<NumberedRecord>,
}
