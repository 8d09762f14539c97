//! The commands of a log, and where their answers go.

use tokio::sync::oneshot;

use super::directory::Note;
use super::log::Step;
use super::record_batch::{Entry, Position};
use crate::codec::UnnumberedRecord;
use crate::model::error::Result;
use crate::model::message::{MessageId, TopicName};

pub(super) type Answer<T> = oneshot::Sender<Result<T>>;

pub(super) enum Command {
    Append(Addition, Answer<()>),
    Page {
        after: Option<Position>,
        records_max: usize,
        bytes_max: usize,
        answer: Answer<Vec<Entry>>,
    },
    Peek {
        after: Option<Position>,
        records_max: usize,
        bytes_max: usize,
        answer: Answer<Vec<Entry>>,
    },
    Trim(Position, Answer<()>),
    Cancel {
        topic: TopicName,
        id: MessageId,
        from: u64,
        answer: Answer<Step>,
    },
    TakeBack(Answer<()>),
    SetNote(Note, String, Answer<()>),
    /// Try a failed disk again. Nobody waits.
    RetryDisk,
    Close(Answer<()>),
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
