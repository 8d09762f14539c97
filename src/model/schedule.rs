//! Recurring messages: when the occurrences of a schedule are, and which of them are to be fired. Pure: time comes in as
//! a value.

mod stored;
mod timing;

use std::time::Duration;

use bytes::Bytes;

pub use self::timing::Timing;
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{SCHEDULE_FIRES_MAX, SCHEDULE_PAYLOAD_BYTES_MAX};
use crate::model::message::{Due, Key, Message, MessageId, NewMessage, ScheduleName};
use crate::model::time::Timestamp;

/// An occurrence that was not fired for so long was missed.
pub const MISSED_AFTER: Duration = Duration::from_secs(60);

/// What is done about occurrences that were missed, because no broker ran or the store was away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missed {
    /// Nothing.
    Skip,
    /// The last one is fired.
    #[default]
    Last,
    /// All are fired, but no more than the last [`SCHEDULE_FIRES_MAX`].
    All,
}

impl Missed {
    /// All of them.
    pub const ALL: [Missed; 3] = [Missed::Skip, Missed::Last, Missed::All];

    /// The stable name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Missed::Skip => "skip",
            Missed::Last => "last",
            Missed::All => "all",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Missed> {
        Missed::ALL.into_iter().find(|missed| missed.name() == name)
    }
}

/// A message that is pushed again and again.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Its name, which is also the key of its messages.
    pub name: ScheduleName,
    /// When it occurs.
    pub timing: Timing,
    /// What is done about occurrences that were missed.
    pub missed: Missed,
    /// Whether nothing is fired. What occurs meanwhile is not made up for.
    pub paused: bool,
    /// How long after its occurrence a message is still worth delivering; `None` is for ever.
    pub ttl: Option<Duration>,
    /// Overrides the topic's number of attempts.
    pub max_attempts: Option<u32>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Names and values that travel with the payload.
    pub meta: Vec<(String, String)>,
    /// The payload.
    pub payload: Bytes,
}

/// Which occurrences are to be fired now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fires {
    /// They are fired, oldest first; perhaps none.
    pub occurrences: Vec<Timestamp>,
    /// Everything up to here is done with then.
    pub done: Timestamp,
    /// How many are passed over; of more than 100 not all are counted.
    pub passed_over: u64,
}

impl Schedule {
    /// # Errors
    /// `Invalid` for a timing without occurrences, and what is wrong with the message; `TooLarge`.
    pub fn check(&self, now: Timestamp) -> Result<()> {
        if self.payload.len() > SCHEDULE_PAYLOAD_BYTES_MAX {
            let size = self.payload.len();
            let why = format!("{size} bytes, that of a cron job has at most {SCHEDULE_PAYLOAD_BYTES_MAX}");
            return Err(Error::wrong(Fault::TooLarge, "payload", why));
        }
        self.timing.check(now)?;
        self.message(now, now).map(drop)
    }

    /// The first occurrence after `last`.
    pub fn next(&self, last: Timestamp) -> Option<Timestamp> {
        if self.paused { None } else { self.timing.next(last) }
    }

    /// What is to be fired at `now`, when everything up to `last` is done with; `None` when nothing has occurred.
    pub fn fires(&self, last: Timestamp, now: Timestamp) -> Option<Fires> {
        if self.paused {
            return None;
        }
        let mut occurrences = self.timing.newest(last, now, SCHEDULE_FIRES_MAX + 1);
        let done = *occurrences.last()?;
        let all = occurrences.len();
        let in_time = now.since(done) <= MISSED_AFTER;
        let kept = match self.missed {
            Missed::Skip => usize::from(in_time),
            Missed::Last => 1,
            Missed::All => SCHEDULE_FIRES_MAX,
        };
        let occurrences = occurrences.split_off(all.saturating_sub(kept));
        let passed_over = (all - occurrences.len()) as u64;
        Some(Fires { occurrences, done, passed_over })
    }

    /// The message of an occurrence. Its id follows from the occurrence.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`.
    pub fn message(&self, occurrence: Timestamp, now: Timestamp) -> Result<Message> {
        let new = NewMessage {
            key: Some(Key::new(self.name.as_str())?),
            due: Due::At(occurrence),
            ttl: self.ttl,
            max_attempts: self.max_attempts,
            content_type: self.content_type.clone(),
            meta: self.meta.clone(),
            ..NewMessage::new(self.payload.clone())
        };
        let mut message = new.accept(now)?;
        message.id = MessageId::new(format!("{}@{occurrence}", self.name))?;
        // It was due then, however late it is fired.
        message.due_at = occurrence;
        message.envelope.expires_at = self.ttl.map(|ttl| occurrence.plus(ttl));
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_minute(missed: Missed) -> Result<Schedule> {
        Ok(Schedule {
            name: ScheduleName::new("pulse")?,
            timing: Timing::Every { every: Duration::from_secs(60), from: Timestamp::ZERO },
            missed,
            paused: false,
            ttl: Some(Duration::from_secs(5)),
            max_attempts: None,
            content_type: None,
            meta: vec![],
            payload: Bytes::from_static(b"beat"),
        })
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_ms(seconds * 1_000)
    }

    #[test]
    fn what_occurs_in_time_is_fired_whatever_the_policy() -> Result<()> {
        for missed in Missed::ALL {
            let schedule = every_minute(missed)?;
            assert_eq!(schedule.fires(at(60), at(119)), None);
            for now in [at(120), at(179)] {
                let fires = Fires { occurrences: vec![at(120)], done: at(120), passed_over: 0 };
                assert_eq!(schedule.fires(at(60), now), Some(fires), "{missed:?}");
            }
            assert_eq!(Schedule { paused: true, ..schedule }.fires(at(60), at(120)), None);
        }
        Ok(())
    }

    #[test]
    fn what_was_missed_is_skipped_or_made_up_for() -> Result<()> {
        let fires = |missed, last, now| Result::Ok(every_minute(missed)?.fires(last, now));
        let hourly = Schedule {
            timing: Timing::Every { every: Duration::from_secs(3_600), from: Timestamp::ZERO },
            ..every_minute(Missed::Skip)?
        };
        let late = hourly.fires(Timestamp::ZERO, at(3_600 + 61));
        assert_eq!(late, Some(Fires { occurrences: vec![], done: at(3_600), passed_over: 1 }));
        let last = fires(Missed::Last, at(60), at(310))?;
        assert_eq!(last, Some(Fires { occurrences: vec![at(300)], done: at(300), passed_over: 3 }));
        let skip = fires(Missed::Skip, at(60), at(310))?;
        assert_eq!(skip, Some(Fires { occurrences: vec![at(300)], done: at(300), passed_over: 3 }));
        let all = fires(Missed::All, at(60), at(310))?;
        let four = [120, 180, 240, 300].map(at).to_vec();
        assert_eq!(all, Some(Fires { occurrences: four, done: at(300), passed_over: 0 }));
        // A year.
        let all = fires(Missed::All, at(60), at(31_536_000))?.map(|fires| (fires.occurrences.len(), fires.passed_over));
        assert_eq!(all, Some((SCHEDULE_FIRES_MAX, 1)));
        Ok(())
    }

    #[test]
    fn the_message_of_an_occurrence_is_always_the_same() -> Result<()> {
        let message = every_minute(Missed::All)?.message(at(60), at(500))?;
        assert_eq!((message.id.as_str(), message.routing_key()), ("pulse@1970-01-01T00:01:00.000Z", "pulse"));
        assert_eq!((message.due_at, message.envelope.expires_at), (at(60), Some(at(65))));
        let long = Schedule { name: ScheduleName::new("x".repeat(100))?, ..every_minute(Missed::All)? };
        assert!(long.check(at(60)).is_ok());
        let large = Schedule { payload: vec![0; SCHEDULE_PAYLOAD_BYTES_MAX + 1].into(), ..long };
        assert!(large.check(at(60)).is_err());
        Ok(())
    }
}
