//! What a store keeps of recurring messages, and what goes into its verbs about them.

use crate::model::error::{Error, Result};
use crate::model::message::{Message, ScheduleName};
use crate::model::schedule::Schedule;
use crate::model::time::Timestamp;

/// A schedule as the store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRecord {
    /// What is pushed, and when.
    pub schedule: Schedule,
    /// The name of this version of it: another one after every change.
    pub revision: String,
    /// Every occurrence up to here is done with, for good.
    pub last: Timestamp,
}

impl ScheduleRecord {
    /// `<revision> <done up to, ms> <definition>`, as both stores keep it.
    pub fn to_text(&self) -> Result<String> {
        Ok(format!("{} {} {}", self.revision, self.last.as_ms(), self.schedule.to_json()?))
    }

    /// The record of its text. # Errors: [`crate::model::error::Kind::Corrupt`].
    pub fn from_text(text: &str) -> Result<ScheduleRecord> {
        let corrupt = || Error::corrupt("a cron job is not what dwell wrote");
        let mut parts = text.splitn(3, ' ');
        let (Some(revision), Some(last), Some(json)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(corrupt());
        };
        let last = Timestamp::from_ms(last.parse().map_err(|_| corrupt())?);
        Ok(ScheduleRecord { schedule: Schedule::from_json(json)?, revision: revision.to_owned(), last })
    }
}

/// A change of a schedule, made only if it is still what its author saw.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleChange {
    /// What it is to be.
    pub schedule: Schedule,
    /// The revision that its author saw; `None` when there was none.
    pub seen: Option<String>,
    /// The revision that it becomes. Never used twice.
    pub revision: String,
    /// Up to where occurrences are done with; `None` keeps what the store has.
    pub last: Option<Timestamp>,
}

/// Occurrences of a schedule to be fired: pushed and marked as done, all or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Firing {
    /// Of this schedule.
    pub name: ScheduleName,
    /// In this version.
    pub revision: String,
    /// If the store has done with occurrences up to here.
    pub last: Timestamp,
    /// Then it is done with those up to here,
    pub done: Timestamp,
    /// and these are pushed. Perhaps none.
    pub messages: Vec<Message>,
}

/// What became of a firing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fired {
    /// It was done by this call; so many messages are new.
    Done(usize),
    /// By the store's clock nothing has occurred yet.
    Early,
    /// Someone was faster: the same version is done up to there.
    Before(Timestamp),
    /// There is another version of the schedule, or none.
    Changed,
}
