//! The committer: the one thread that touches the files of a log, one command after the other.
//!
//! While it makes a group of records durable the next ones gather: the slower the disk, the larger the group. When nobody
//! wanted anything for a while it closes the files, so an idle log is a thread that waits.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::append::{Addition, full};
use super::directory::Note;
use super::entry::{Depth, Entry, Position};
use super::log::Log;
use super::options::WalOptions;
use super::read::Step;
use crate::model::error::{Error, Result};
use crate::model::message::{MessageId, TopicName};
use crate::telemetry::metrics::WalMetrics;

/// Bytes of the records that are made durable together, but for the last ones.
const GROUP_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How long files stay open that nobody uses.
const REST_AFTER: Duration = Duration::from_secs(30);

type Answer<T> = oneshot::Sender<Result<T>>;

/// What callers want.
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
    Mend,
    Close(Answer<()>),
}

/// What everybody may look at at any time.
#[derive(Debug, Default)]
pub(super) struct Shown {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    depth: Depth,
    failed: Option<Error>,
    identity: Option<String>,
    log_id: Option<String>,
    clock: Option<String>,
}

impl Shown {
    pub(super) fn depth(&self) -> Depth {
        self.with(|state| state.depth)
    }

    /// Why nothing can be appended.
    pub(super) fn failed(&self) -> Option<Error> {
        self.with(|state| state.failed.clone())
    }

    pub(super) fn note(&self, note: Note) -> Option<String> {
        self.with(|state| match note {
            Note::StoreIdentity => state.identity.clone(),
            Note::LogId => state.log_id.clone(),
            Note::Clock => state.clock.clone(),
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // A panic of another thread leaves nothing half done.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// # Errors
/// `Full` when the log holds as much as it may.
pub(super) fn check_limit(options: &WalOptions, depth: Depth) -> Result<()> {
    if depth.bytes < options.limit_bytes { Ok(()) } else { Err(full(options, depth.bytes)) }
}

/// What the thread works on.
pub(super) struct Committer {
    log: Log,
    shown: Arc<Shown>,
    metrics: WalMetrics,
}

impl Committer {
    pub(super) fn new(log: Log, shown: Arc<Shown>, metrics: WalMetrics) -> Committer {
        let mut committer = Committer { log, shown, metrics };
        committer.show_notes();
        committer.show();
        committer
    }

    /// Works until it is told to close, or nobody can ask any more.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        let mut ahead = None;
        loop {
            let command = match ahead.take() {
                Some(command) => command,
                None => match self.wait(commands) {
                    Some(command) => command,
                    None => return,
                },
            };
            match command {
                Command::Append(addition, answer) => ahead = self.append(addition, answer, commands),
                Command::Close(answer) => {
                    drop(self);
                    let _ = answer.send(Ok(()));
                    return;
                }
                command => self.act(command),
            }
        }
    }

    fn wait(&mut self, commands: &Receiver<Command>) -> Option<Command> {
        if !self.log.is_resting() {
            match commands.recv_timeout(REST_AFTER) {
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    self.log.rest();
                    self.show();
                }
            }
        }
        commands.recv().ok()
    }

    /// Appends all that has gathered, and answers the command behind it.
    fn append(&mut self, addition: Addition, answer: Answer<()>, commands: &Receiver<Command>) -> Option<Command> {
        let mut bytes = addition.bytes();
        let (mut additions, mut answers, mut behind) = (vec![addition], vec![answer], None);
        while bytes < GROUP_BYTES_MAX {
            match commands.try_recv() {
                Ok(Command::Append(addition, answer)) => {
                    bytes += addition.bytes();
                    additions.push(addition);
                    answers.push(answer);
                }
                Ok(command) => {
                    behind = Some(command);
                    break;
                }
                Err(_) => break,
            }
        }
        let outcomes = self.log.append(additions);
        self.show();
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // Who does not wait any more does not want to know.
            let _ = answer.send(outcome);
        }
        behind
    }

    fn act(&mut self, command: Command) {
        match command {
            Command::Page { after, records_max, bytes_max, answer } => {
                let page = self.log.page(after, records_max, bytes_max);
                self.reply(answer, page);
            }
            Command::Peek { after, records_max, bytes_max, answer } => {
                let page = self.log.peek(after, records_max, bytes_max);
                self.reply(answer, page);
            }
            Command::Trim(through, answer) => {
                let trimmed = self.log.trim(through);
                self.reply(answer, trimmed);
            }
            Command::Cancel { topic, id, from, answer } => {
                let step = self.log.cancel(&topic, &id, from);
                self.reply(answer, step);
            }
            Command::TakeBack(answer) => {
                self.log.handed = 0;
                self.reply(answer, Ok(()));
            }
            Command::SetNote(note, text, answer) => {
                let noted = self.log.set_note(note, &text);
                self.show_notes();
                self.reply(answer, noted);
            }
            Command::Mend => {
                // What is wrong is shown.
                let _ = self.log.mend();
                self.show_notes();
                self.show();
            }
            // These two are seen to where they arrive.
            Command::Append(..) | Command::Close(_) => {}
        }
    }

    fn reply<T>(&mut self, answer: Answer<T>, outcome: Result<T>) {
        self.show();
        let _ = answer.send(outcome);
    }

    fn show(&mut self) {
        let (depth, failed) = (self.log.depth(), self.log.failed.as_ref().map(|(error, _)| error.clone()));
        self.metrics.records.set(i64::try_from(depth.records).unwrap_or(i64::MAX));
        self.metrics.bytes.set(i64::try_from(depth.bytes).unwrap_or(i64::MAX));
        self.shown.with(|state| (state.depth, state.failed) = (depth, failed));
    }

    fn show_notes(&self) {
        let (identity, clock) = (self.log.note(Note::StoreIdentity), self.log.note(Note::Clock));
        let log_id = self.log.note(Note::LogId);
        self.shown.with(|state| {
            (state.identity, state.clock, state.log_id) = (identity, clock, log_id);
        });
    }
}
