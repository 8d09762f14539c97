//! The commands of a log, and where their answers go.

use tokio::sync::oneshot;

use super::directory::Note;
use super::log::CancelStep;
use super::record_batch::{Entry, Position};
use crate::codec::UnnumberedRecord;
use crate::model::error::Result;
use crate::model::message::{MessageId, TopicName};

/// Sends the outcome of a command to its caller.
pub(super) type ReplyTo<T> = oneshot::Sender<Result<T>>;

pub(super) enum Command {
    Append(Addition, ReplyTo<()>),
    Page {
        after: Option<Position>,
        records_max: usize,
        bytes_max: usize,
        answer: ReplyTo<Vec<Entry>>,
    },
    Peek {
        after: Option<Position>,
        records_max: usize,
        bytes_max: usize,
        answer: ReplyTo<Vec<Entry>>,
    },
    Trim(Position, ReplyTo<()>),
    Cancel {
        topic: TopicName,
        id: MessageId,
        from: u64,
        answer: ReplyTo<CancelStep>,
    },
    TakeBack(ReplyTo<()>),
    SetNote(Note, String, ReplyTo<()>),
    /// Try a failed disk again. Nobody waits.
    RetryDisk,
    Close(ReplyTo<()>),
}

#[derive(Debug)]
pub(super) struct Addition {
    pub(super) records: Vec<UnnumberedRecord>,
}

impl Addition {
    /// Bytes before sled adds its own.
    pub(super) fn bytes(&self) -> u64 {
        self.records.iter().map(|record| record.size() as u64).sum()
    }
}
