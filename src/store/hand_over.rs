//! What a broker that stops gives to another one.

use crate::codec::NumberedRecord;
use crate::model::time::Timestamp;

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
    /// The number of the last record before these that has to be taken by the same broker: a journal is given from its
    /// beginning. 0 at the beginning, and always of a write-ahead log.
    pub after: u64,
    /// The records, each with its number in that log.
    pub records: Vec<NumberedRecord>,
}

/// What a broker did with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenOver {
    /// It keeps so many records, and not the others, for which the token is not good.
    Kept {
        /// Records that are fsynced.
        taken: u64,
        /// Deletions of topics that were left out.
        refused: u64,
    },
    /// It lacks the records before these, and keeps nothing.
    LacksEarlier,
}
