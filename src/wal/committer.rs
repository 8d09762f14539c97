//! The committer, which alone touches the files of a log, one command after the other.
//!
//! While it makes a group of records durable the next ones gather: the slower the disk, the larger the group. When nobody
//! wanted anything for a while it closes the files, so an idle log is a thread that waits.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::WalOptions;
use super::command::{Addition, Command, ReplyTo};
use super::directory::{Directory, Note};
use super::log::{Log, again};
use super::record_batch::Depth;
use super::segment::Segment;
use crate::codec::UnnumberedRecord;
use crate::model::error::{Error, Kind, Result};
use crate::platform::clock::Instant;
use crate::platform::disk::check_room;
use crate::telemetry::metrics::WalMetrics;

/// Bytes of the records that are made durable together, but for the last ones.
const GROUP_BYTES_MAX: u64 = 8 * 1024 * 1024;

pub(super) const REST_AFTER: Duration = Duration::from_secs(30);

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

pub(super) fn check_limit(options: &WalOptions, depth: Depth) -> Result<()> {
    if depth.bytes < options.limit_bytes { Ok(()) } else { Err(full(options, depth.bytes)) }
}

#[derive(Debug)]
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

    /// Runs until a command closes the log, or nobody can give one any more.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        while let Some(command) = self.wait(commands) {
            if let Some(answer) = self.obey(command, commands) {
                drop(self);
                let _ = answer.send(Ok(()));
                return;
            }
        }
    }

    fn wait(&mut self, commands: &Receiver<Command>) -> Option<Command> {
        if !self.log.is_resting() {
            match commands.recv_timeout(REST_AFTER) {
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.rest(),
            }
        }
        commands.recv().ok()
    }

    pub(super) fn now(&self) -> Instant {
        self.log.options.clock.instant()
    }

    /// Closes the files until they are needed.
    pub(super) fn rest(&mut self) {
        self.log.rest();
        self.show();
    }

    /// Does this, with what has gathered behind it. Answers who waits for the files to be closed, if that is the command.
    pub(super) fn obey(&mut self, command: Command, commands: &Receiver<Command>) -> Option<ReplyTo<()>> {
        let mut next = Some(command);
        while let Some(command) = next.take() {
            match command {
                Command::Append(addition, answer) => next = self.append(addition, answer, commands),
                Command::Close(answer) => {
                    self.log.leave();
                    return Some(answer);
                }
                command => self.act(command),
            }
        }
        None
    }

    /// Appends all that has gathered, and answers the command behind it.
    fn append(&mut self, addition: Addition, answer: ReplyTo<()>, commands: &Receiver<Command>) -> Option<Command> {
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
            Command::RetryDisk => {
                let _ = self.log.retry_disk();
                self.show_notes();
                self.show();
            }
            Command::Append(..) | Command::Close(_) => {}
        }
    }

    fn reply<T>(&mut self, answer: ReplyTo<T>, outcome: Result<T>) {
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

/// How long a failed disk is left alone before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Log {
    /// Appends additions, each for itself, and makes them durable together.
    pub(super) fn append(&mut self, additions: Vec<Addition>) -> Vec<Result<()>> {
        if let Err(error) = self.retry_disk().and_then(|()| self.check_room()) {
            return additions.iter().map(|_| Err(error.clone())).collect();
        }
        let (mut bytes, mut records) = (self.bytes(), Vec::new());
        let room: Vec<Result<()>> = additions
            .into_iter()
            .map(|addition| {
                bytes = self.fits(bytes, &addition)?;
                records.extend(addition.records);
                Ok(())
            })
            .collect();
        if records.is_empty() {
            return room;
        }
        let written = self.write(records);
        room.into_iter().map(|room| room.and(written.clone())).collect()
    }

    fn fits(&self, bytes: u64, addition: &Addition) -> Result<u64> {
        let with = bytes.saturating_add(addition.bytes());
        if with <= self.options.limit_bytes {
            return Ok(with);
        }
        Err(full(&self.options, bytes))
    }

    fn write(&mut self, records: Vec<UnnumberedRecord>) -> Result<()> {
        if let Err(error) = self.begin() {
            return Err(self.fail(Error::unavailable(error.detail().to_owned())));
        }
        let count = records.len() as u64;
        let Some(segment) = self.segments.back_mut() else { return Err(Error::bug("no segment was begun")) };
        let began = self.options.clock.instant();
        match segment.append(records) {
            Ok(()) => {
                self.next += count;
                self.metrics.fsync.observe(self.options.clock.instant().since(began).as_secs_f64());
                Ok(())
            }
            Err(error) => {
                // Nothing behind a durable seal counts, so what may have been written of these records never returns.
                segment.distrust();
                let sealed = segment.seal();
                let detail = error.detail().to_owned();
                Err(self.fail(sealed.map_or(Error::outcome_unknown(detail.clone()), |()| Error::unavailable(detail))))
            }
        }
    }

    fn begin(&mut self) -> Result<()> {
        self.place.as_mut().map_or(Ok(()), Directory::write_format)?;
        if self.segments.back().is_some_and(|segment| !segment.is_open() && !segment.is_sealed())
            && let Err(error) = self.open_segment(self.segments.len() - 1)
            && self.segments.back().is_some_and(|segment| !segment.is_end_known())
        {
            // Where it ends nobody knows, so nothing can be appended behind it.
            return Err(error);
        }
        if let Some(segment) = self.segments.back_mut()
            && !segment.is_sealed()
        {
            let is_room = segment.bytes() < self.options.segment_bytes;
            if segment.is_open() && is_room && !segment.is_damaged() && segment.end() == self.next {
                return Ok(());
            }
            segment.seal()?;
        }
        self.remove_empty()?;
        let Some(place) = &self.place else { return Err(Error::bug("the log has no place")) };
        place.keep_reserve(self.options.disk_reserve_bytes);
        let new = place.dir().join(Segment::name(self.next));
        if new.exists() {
            // None of ours, or one that could not be set aside before. Nothing is written into it.
            place.set_aside(&new)?;
        }
        match Segment::begin(place.dir(), self.next) {
            Ok(segment) => {
                tracing::info!(segment = %new.display(), first = self.next, "segment begun");
                self.segments.push_back(segment);
                Ok(())
            }
            Err(error) => {
                // It was made just now, so nothing is lost with it.
                let _ = std::fs::remove_dir_all(new);
                Err(error)
            }
        }
    }

    /// Closes the last segment, and removes it if it was sealed while empty: the next one has the same first number.
    fn remove_empty(&mut self) -> Result<()> {
        let Some(segment) = self.segments.back_mut() else { return Ok(()) };
        segment.close();
        if segment.end() > segment.first() {
            return Ok(());
        }
        let place = self.place.as_ref().ok_or_else(|| Error::bug("the log has no place"))?;
        if segment.is_damaged() {
            place.set_aside(segment.dir())?;
        } else {
            place.delete(segment.dir())?;
        }
        self.segments.truncate(self.segments.len() - 1);
        Ok(())
    }

    /// Tries a failed disk again, when it is time. Errors: Why it failed, or fails.
    fn retry_disk(&mut self) -> Result<()> {
        let Some((error, since)) = &self.failed else { return Ok(()) };
        if self.options.clock.instant().since(*since) < RETRY_AFTER {
            return Err(again(error));
        }
        let tried = self.take_place().and_then(|()| self.check_room()).and_then(|()| self.begin());
        match tried {
            Ok(()) => {
                if self.unwritten.is_over() {
                    tracing::info!(dir = %self.options.dir.display(), "log can be written again");
                }
                self.failed = None;
                Ok(())
            }
            Err(error) => Err(again(&self.fail(error))),
        }
    }

    pub(super) fn fail(&mut self, error: Error) -> Error {
        let now = self.options.clock.instant();
        if self.unwritten.is_due(now) {
            tracing::error!(dir = %self.options.dir.display(), %error, "log cannot be written");
        }
        self.failed = Some((error.clone(), now));
        error
    }

    fn check_room(&self) -> Result<()> {
        check_room(&self.options.dir, self.options.disk_reserve_bytes)
    }
}

pub(super) fn full(options: &WalOptions, bytes: u64) -> Error {
    let detail = format!(
        "the log in {} has {bytes} bytes, at most {}: it has to be replayed first",
        options.dir.display(),
        options.limit_bytes
    );
    Error::new(Kind::Full, detail)
}
