//! Cron jobs: when they fire, which occurrences are to be fired, and the JSON in which they are stored.
//! Pure: time comes in as a value.
//!
//! Fields that are absent from the JSON have their defaults, so that a later dwell can add some.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::cron_expression::CronExpression;
use crate::model::cron_search::{CronTimes, time_zone as zone_named};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{
    CRON_JOB_FIRES_MAX, SCHEDULE_CRON_BYTES_MAX, SCHEDULE_EVERY_MAX, SCHEDULE_EVERY_MIN, SCHEDULE_PAYLOAD_BYTES_MAX,
};
use crate::model::message::{CronJobName, Due, Key, Message, MessageId, NewMessage};
use crate::model::spelling::names;
use crate::model::time::{Timestamp, ms_up, show_span};

/// An occurrence that is not fired within this time is missed.
pub const MISSED_AFTER: Duration = Duration::from_secs(60);
/// The first span that is looked back for the newest occurrences of a cron expression; then twice as far.
const LOOK_BACK: Duration = Duration::from_secs(3_600);

/// Policy for occurrences that were missed because no broker ran or the store was unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missed {
    Skip,
    #[default]
    Last,
    /// All are fired, but no more than the last [`CRON_JOB_FIRES_MAX`].
    All,
}

names! { Missed::name:
    Skip => "skip",
    Last => "last",
    All => "all",
}

impl Missed {
    pub fn named(name: &str) -> Option<Missed> {
        Missed::ALL.into_iter().find(|missed| missed.name() == name)
    }
}

/// The definition of a cron job: when it fires, and which message it pushes then.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Its name, which is also the key of its messages.
    pub name: CronJobName,
    pub timing: Timing,
    pub missed: Missed,
    /// Nothing is fired, and what occurs meanwhile is not made up for.
    pub paused: bool,
    /// How long after its occurrence a message is still delivered; `None` is without end.
    pub ttl: Option<Duration>,
    pub max_attempts: Option<u32>,
    pub content_type: Option<String>,
    pub meta: Vec<(String, String)>,
    pub payload: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fires {
    /// Oldest first; may be empty.
    pub occurrences: Vec<Timestamp>,
    /// Everything up to here is done with.
    pub done: Timestamp,
    /// How many are passed over; of more than 100 not all are counted.
    pub passed_over: u64,
}

impl Schedule {
    /// Errors: `Invalid` for a timing without occurrences, and what is wrong with the message; `TooLarge`.
    pub fn check(&self, now: Timestamp) -> Result<()> {
        if self.payload.len() > SCHEDULE_PAYLOAD_BYTES_MAX {
            let size = self.payload.len();
            let why = format!("{size} bytes, that of a cron job has at most {SCHEDULE_PAYLOAD_BYTES_MAX}");
            return Err(Error::wrong(Fault::TooLarge, "payload", why));
        }
        self.timing.check(now)?;
        self.message(now, now).map(drop)
    }

    pub fn next(&self, last: Timestamp) -> Option<Timestamp> {
        self.expect(last).ok().flatten()
    }

    /// The next occurrence after `last`; `None` while it is paused. Errors: `Invalid`, `Corrupt` when it has failed: when it
    /// cannot be read or computed, or never occurs again.
    pub fn expect(&self, last: Timestamp) -> Result<Option<Timestamp>> {
        if self.paused {
            return Ok(None);
        }
        let next = self.timing.occurrences()?.next(last);
        next.map(Some).ok_or_else(|| Error::range("cron", self.timing.never()))
    }

    /// The occurrences to fire at `now`, when everything up to `last` is done with; `None` when nothing has occurred.
    pub fn fires(&self, last: Timestamp, now: Timestamp) -> Option<Fires> {
        if self.paused {
            return None;
        }
        let mut occurrences = self.timing.occurrences().ok()?.newest(last, now, CRON_JOB_FIRES_MAX + 1);
        let done = *occurrences.last()?;
        let all = occurrences.len();
        let in_time = now.since(done) <= MISSED_AFTER;
        let kept = match self.missed {
            Missed::Skip => usize::from(in_time),
            Missed::Last => 1,
            Missed::All => CRON_JOB_FIRES_MAX,
        };
        let occurrences = occurrences.split_off(all.saturating_sub(kept));
        let passed_over = (all - occurrences.len()) as u64;
        Some(Fires { occurrences, done, passed_over })
    }

    /// The message of an occurrence. Its id follows from the occurrence. Errors: `Invalid`, `TooLarge`.
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

#[derive(Serialize, Deserialize)]
struct Stored {
    name: CronJobName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_ms: Option<u64>,
    missed: String,
    #[serde(default)]
    paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default)]
    meta: Vec<(String, String)>,
    payload_base64: String,
}

impl Schedule {
    pub fn to_json(&self) -> Result<String> {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let (cron, every) = match &self.timing {
            Timing::Cron { cron, time_zone } => (Some((cron.clone(), time_zone.clone())), None),
            Timing::Every { every, from } => (None, Some((ms(*every), from.as_ms()))),
            Timing::Unreadable { stored, .. } => return Ok(stored.clone()),
        };
        let (cron, time_zone) = cron.unzip();
        let (every_ms, from_ms) = every.unzip();
        let stored = Stored {
            name: self.name.clone(),
            cron,
            time_zone,
            every_ms,
            from_ms,
            missed: self.missed.name().to_owned(),
            paused: self.paused,
            ttl_ms: self.ttl.map(ms),
            max_attempts: self.max_attempts,
            content_type: self.content_type.clone(),
            meta: self.meta.clone(),
            payload_base64: STANDARD.encode(&self.payload),
        };
        serde_json::to_string(&stored).map_err(|error| Error::bug(format!("a cron job did not encode: {error}")))
    }

    /// One that this version cannot read, so that it is listed, replaced and deleted as any other, and stops no other.
    pub fn unreadable(name: CronJobName, stored: &str, why: &Error) -> Schedule {
        Schedule {
            name,
            timing: Timing::Unreadable { stored: stored.to_owned(), why: why.detail().to_owned() },
            missed: Missed::default(),
            paused: false,
            ttl: None,
            max_attempts: None,
            content_type: None,
            meta: Vec::new(),
            payload: Bytes::new(),
        }
    }

    pub fn from_json(json: &str) -> Result<Schedule> {
        let corrupt = |why: String| Error::corrupt(format!("a cron job is unreadable ({why})"));
        let stored: Stored = serde_json::from_str(json).map_err(|error| corrupt(error.to_string()))?;
        let timing = match (stored.cron, stored.every_ms) {
            (Some(cron), None) => {
                Timing::Cron { cron, time_zone: stored.time_zone.unwrap_or_else(|| "UTC".to_owned()) }
            }
            (None, Some(every)) => Timing::Every {
                every: Duration::from_millis(every),
                from: Timestamp::from_ms(stored.from_ms.unwrap_or_default()),
            },
            _ => return Err(corrupt("it says not once when it occurs".to_owned())),
        };
        let missed = Missed::named(&stored.missed).ok_or_else(|| corrupt(format!("missed is {:?}", stored.missed)))?;
        let payload = STANDARD.decode(&stored.payload_base64).map_err(|error| corrupt(error.to_string()))?;
        Ok(Schedule {
            name: stored.name,
            timing,
            missed,
            paused: stored.paused,
            ttl: stored.ttl_ms.map(Duration::from_millis),
            max_attempts: stored.max_attempts,
            content_type: stored.content_type,
            meta: stored.meta,
            payload: payload.into(),
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Timing {
    /// By a cron expression: minute, hour, day of month, month, day of week.
    Cron {
        cron: String,
        /// An IANA name, such as `Europe/Berlin`.
        time_zone: String,
    },
    Every {
        every: Duration,
        /// The occurrences are whole spans after this.
        from: Timestamp,
    },
    /// The definition in the store, which this version cannot read. It never occurs, and stays as it is until it is replaced or
    /// deleted.
    Unreadable { stored: String, why: String },
}

impl Timing {
    /// Errors: `Invalid` when it is malformed, out of range, or never occurs after `now`.
    pub fn check(&self, now: Timestamp) -> Result<()> {
        match self {
            Timing::Cron { .. } => match self.occurrences()?.next(now) {
                Some(_) => Ok(()),
                None => Err(Error::range("cron", self.never())),
            },
            Timing::Every { every, .. } if !(SCHEDULE_EVERY_MIN..=SCHEDULE_EVERY_MAX).contains(every) => {
                let range = format!("{} to {}", show_span(SCHEDULE_EVERY_MIN), show_span(SCHEDULE_EVERY_MAX));
                Err(Error::range("every", format!("{} is not in {range}", show_span(*every))))
            }
            Timing::Every { .. } => Ok(()),
            Timing::Unreadable { why, .. } => Err(Error::corrupt(why.clone())),
        }
    }

    /// Errors: `Invalid` for an expression or a time zone that this version does not know, `Corrupt` when it is unreadable.
    pub fn occurrences(&self) -> Result<Occurrences> {
        match self {
            Timing::Cron { cron, time_zone } => {
                if cron.len() > SCHEDULE_CRON_BYTES_MAX || time_zone.len() > SCHEDULE_CRON_BYTES_MAX {
                    return Err(Error::range("cron", format!("has at most {SCHEDULE_CRON_BYTES_MAX} bytes")));
                }
                let zone = zone_named(time_zone).map_err(|why| Error::wrong(Fault::Format, "time_zone", why))?;
                let expression = CronExpression::parse(cron).map_err(|why| Error::wrong(Fault::Format, "cron", why))?;
                Ok(Occurrences::Cron(CronTimes::new(expression, zone)))
            }
            Timing::Every { every, from } => Ok(Occurrences::Every { every: ms_up(*every).max(1), from: from.as_ms() }),
            Timing::Unreadable { why, .. } => Err(Error::corrupt(why.clone())),
        }
    }

    /// The first occurrence after `last`; `None` when there is none, or it cannot be computed.
    pub fn next(&self, last: Timestamp) -> Option<Timestamp> {
        self.occurrences().ok()?.next(last)
    }

    fn never(&self) -> String {
        match self {
            Timing::Cron { cron, .. } => format!("{cron:?} never occurs"),
            Timing::Every { .. } | Timing::Unreadable { .. } => "it never occurs again".to_owned(),
        }
    }
}

/// The times of a [`Timing`], ready to be computed. Computing one takes a bounded number of steps: less than a millisecond.
#[derive(Debug, Clone)]
pub enum Occurrences {
    Cron(CronTimes),
    /// In milliseconds.
    Every {
        every: u64,
        from: u64,
    },
}

impl Occurrences {
    pub fn next(&self, last: Timestamp) -> Option<Timestamp> {
        match self {
            Occurrences::Cron(times) => times.search(last).next,
            Occurrences::Every { every, from } => {
                let spans = last.as_ms().checked_sub(*from).map_or(0, |ahead| ahead / every + 1);
                Some(Timestamp::from_ms(from.saturating_add(spans.saturating_mul(*every))))
            }
        }
        .filter(|next| *next > last)
    }

    /// Those after `last`, up to `to`.
    pub fn within(&self, last: Timestamp, to: Timestamp) -> impl Iterator<Item = Timestamp> {
        let after = move |at: &Timestamp| self.next(*at).filter(|next| *next <= to);
        std::iter::successors(after(&last), after)
    }

    /// The last occurrences after `last` and up to `now`, so many at most, oldest first.
    ///
    /// They can only be followed forwards. So it looks twice as far back until there are enough, and then halves the way between
    /// too few and too many: a year of minutes is not gone through for the last hundred.
    pub(super) fn newest(&self, last: Timestamp, now: Timestamp, most: usize) -> Vec<Timestamp> {
        let too_many = most.saturating_mul(2).max(2);
        let (mut back, mut too_near, mut too_far) = (LOOK_BACK, now, None);
        loop {
            let from = match too_far {
                None => last.max(now.minus(back)),
                Some(too_far) => too_near.halfway(too_far),
            };
            let mut found: Vec<Timestamp> = self.within(from, now).take(too_many).collect();
            if found.len() == too_many {
                too_far = Some(from);
            } else if found.len() >= most || from == last {
                return found.split_off(found.len().saturating_sub(most));
            } else {
                too_near = from;
                back = back.saturating_mul(2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::parse_timestamp;

    fn every_minute(missed: Missed) -> Result<Schedule> {
        Ok(Schedule {
            name: CronJobName::new("pulse")?,
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
    fn on_time_occurrence_fires_under_every_policy() -> Result<()> {
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
    fn missed_occurrences_are_skipped_or_caught_up() -> Result<()> {
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
        let all = fires(Missed::All, at(60), at(31_536_000))?.map(|fires| (fires.occurrences.len(), fires.passed_over));
        assert_eq!(all, Some((CRON_JOB_FIRES_MAX, 1)));
        Ok(())
    }

    #[test]
    fn occurrence_message_is_deterministic() -> Result<()> {
        let message = every_minute(Missed::All)?.message(at(60), at(500))?;
        assert_eq!((message.id.as_str(), message.routing_key()), ("pulse@1970-01-01T00:01:00.000Z", "pulse"));
        assert_eq!((message.due_at, message.envelope.expires_at), (at(60), Some(at(65))));
        let long = Schedule { name: CronJobName::new("x".repeat(100))?, ..every_minute(Missed::All)? };
        assert!(long.check(at(60)).is_ok());
        let large = Schedule { payload: vec![0; SCHEDULE_PAYLOAD_BYTES_MAX + 1].into(), ..long };
        assert!(large.check(at(60)).is_err());
        Ok(())
    }

    const FIRST: &str = r#"{"name":"nightly","cron":"0 3 * * *","time_zone":"Europe/Berlin","missed":"last","paused":true,"ttl_ms":3600000,"max_attempts":3,"content_type":"text/plain","meta":[["trace","abc"]],"payload_base64":"/wA="}"#;

    #[test]
    fn cron_record_round_trips_and_stays_readable() -> Result<()> {
        let first = Schedule::from_json(FIRST)?;
        assert_eq!(first.to_json()?, FIRST);
        assert_eq!((&first.payload[..], first.missed, first.paused), (&[0xff, 0][..], Missed::Last, true));
        let timing = Timing::Every { every: Duration::from_secs(90), from: Timestamp::from_ms(7) };
        let every = Schedule { timing, ..first };
        assert_eq!(Schedule::from_json(&every.to_json()?)?, every);
        for wrong in ["", "{}", r#"{"name":"a","missed":"last","payload_base64":""}"#] {
            assert!(Schedule::from_json(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }

    fn cron(text: &str, time_zone: &str) -> Timing {
        Timing::Cron { cron: text.to_owned(), time_zone: time_zone.to_owned() }
    }

    fn read(text: &str) -> Result<Timestamp> {
        parse_timestamp(text).map_err(|why| Error::invalid("time", why))
    }

    fn times(timing: &Timing, from: &str, count: usize) -> Result<Vec<String>> {
        let next = |at: &Timestamp| timing.next(*at);
        Ok(std::iter::successors(next(&read(from)?), next).take(count).map(|at| at.to_string()).collect())
    }

    #[test]
    fn a_cron_expression_occurs_in_its_time_zone() -> Result<()> {
        let mornings = cron("0 9 * * MON-FRI", "Europe/Berlin");
        // A Friday; then the clocks go forward on Sunday.
        let expected = ["2026-03-27T08:00:00.000Z", "2026-03-30T07:00:00.000Z", "2026-03-31T07:00:00.000Z"];
        assert_eq!(times(&mornings, "2026-03-27T07:59:59.999Z", 3)?, expected);
        let utc = cron("*/20 * * * *", "UTC");
        let expected = ["2026-01-01T00:20:00.000Z", "2026-01-01T00:40:00.000Z"];
        assert_eq!(times(&utc, "2026-01-01T00:00:00.000Z", 2)?, expected);
        Ok(())
    }

    /// 02:30 is not there on 29 March 2026 in Berlin, and is there twice on 25 October.
    #[test]
    fn fixed_time_runs_once_a_day_when_clocks_change() -> Result<()> {
        let night = cron("30 2 * * *", "Europe/Berlin");
        let spring = times(&night, "2026-03-28T12:00:00Z", 2)?;
        assert_eq!(spring, ["2026-03-29T01:00:00.000Z", "2026-03-30T00:30:00.000Z"]);
        let autumn = times(&night, "2026-10-24T12:00:00Z", 2)?;
        assert_eq!(autumn, ["2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"]);
        // 03:00 is named as well, and is the same occurrence.
        let both = times(&cron("0 2,3 * * *", "Europe/Berlin"), "2026-03-28T12:00:00Z", 2)?;
        assert_eq!(both, ["2026-03-29T01:00:00.000Z", "2026-03-30T00:00:00.000Z"]);
        Ok(())
    }

    #[test]
    fn interval_keeps_its_distance_when_clocks_change() -> Result<()> {
        let half_hours = cron("*/30 * * * *", "Europe/Berlin");
        for (from, to) in [("2026-03-29T00:00:00Z", 7_200_000), ("2026-10-25T00:00:00Z", 7_200_000)] {
            let from = read(from)?;
            let occurrences = half_hours.occurrences()?;
            let within = occurrences.within(from, from.plus(Duration::from_millis(to)));
            let spans: Vec<u64> = within.map(|at| at.since(from).as_secs() / 60).collect();
            assert_eq!(spans, [30, 60, 90, 120]);
        }
        // Its hour begins with a star, so it has no time that a gap could skip.
        let hourly = times(&cron("30 * * * *", "Europe/Berlin"), "2026-03-29T00:00:00Z", 3)?;
        assert_eq!(hourly, ["2026-03-29T00:30:00.000Z", "2026-03-29T01:30:00.000Z", "2026-03-29T02:30:00.000Z"]);
        Ok(())
    }

    #[test]
    fn unusual_changes_of_the_clock() -> Result<()> {
        for (expression, zone, from, expected) in [
            // Half an hour, from 02:00 to 01:30, in which a search must not go back.
            ("0 3 4 4 *", "Australia/Lord_Howe", "2026-12-01T00:00:00Z", "2027-04-03T16:30:00.000Z"),
            ("45 1 4 4 *", "Australia/Lord_Howe", "2026-12-01T00:00:00Z", "2027-04-03T14:45:00.000Z"),
            ("15 2 3 10 *", "Australia/Lord_Howe", "2026-12-01T00:00:00Z", "2027-10-02T15:30:00.000Z"),
            // At midnight: the day begins at one.
            ("@daily", "America/Havana", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00.000Z"),
            // The day that Samoa did not have.
            ("0 9 30 12 *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-30T10:00:00.000Z"),
            // Offsets with seconds until 1972.
            ("30 0 * * *", "Africa/Monrovia", "1972-01-06T12:00:00Z", "1972-01-07T00:44:30.000Z"),
        ] {
            assert_eq!(times(&cron(expression, zone), from, 1)?, [expected], "{expression} {zone}");
        }
        Ok(())
    }

    #[test]
    fn last_days_include_those_of_december() -> Result<()> {
        let from = "2026-11-30T12:00:00Z";
        assert_eq!(
            times(&cron("0 0 L * *", "UTC"), from, 2)?,
            ["2026-12-31T00:00:00.000Z", "2027-01-31T00:00:00.000Z"]
        );
        assert_eq!(times(&cron("0 0 * * 5L", "UTC"), from, 1)?, ["2026-12-25T00:00:00.000Z"]);
        Ok(())
    }

    #[test]
    fn rare_occurrences_are_found() -> Result<()> {
        // A leap day on a Sunday: the next is 40 years later, since 2100 is no leap year.
        assert_eq!(times(&cron("0 0 29 2 */7", "UTC"), "2088-03-01T00:00:00Z", 1)?, ["2128-02-29T00:00:00.000Z"]);
        assert_eq!(times(&cron("0 0 29 2 *", "UTC"), "2096-03-01T00:00:00Z", 1)?, ["2104-02-29T00:00:00.000Z"]);
        Ok(())
    }

    #[test]
    fn intervals_are_aligned_to_their_start() -> Result<()> {
        let from = read("2026-01-01T00:00:05Z")?;
        let every = Timing::Every { every: Duration::from_secs(90), from };
        let expected = ["2026-01-01T00:00:05.000Z", "2026-01-01T00:01:35.000Z", "2026-01-01T00:03:05.000Z"];
        assert_eq!(times(&every, "2025-12-31T00:00:00Z", 3)?, expected);
        assert_eq!(times(&every, "2026-01-01T00:01:34.999Z", 2)?, expected[1..]);
        assert_eq!(times(&every, "2026-01-01T00:01:35Z", 1)?, expected[2..]);
        Ok(())
    }

    #[test]
    fn newest_occurrences_are_found_without_a_full_scan() -> Result<()> {
        let (last, now) = (read("2025-01-01T00:00:00Z")?, read("2026-01-01T00:00:30Z")?);
        for timing in
            [cron("* * * * *", "UTC"), Timing::Every { every: Duration::from_secs(60), from: Timestamp::ZERO }]
        {
            let newest = timing.occurrences()?.newest(last, now, 3);
            let shown: Vec<String> = newest.iter().map(ToString::to_string).collect();
            assert_eq!(shown, ["2025-12-31T23:58:00.000Z", "2025-12-31T23:59:00.000Z", "2026-01-01T00:00:00.000Z"]);
        }
        assert_eq!(cron("0 0 1 1 *", "UTC").occurrences()?.newest(last, now, 3).len(), 1);
        // A month of minutes, long ago.
        let (last, now) = (read("2020-01-01T00:00:00Z")?, read("2025-12-31T00:00:00Z")?);
        let newest = cron("* * * 1 *", "UTC").occurrences()?.newest(last, now, 101);
        let shown = (newest.len(), newest[0].to_string(), newest[100].to_string());
        assert_eq!(shown, (101, "2025-01-31T22:19:00.000Z".to_owned(), "2025-01-31T23:59:00.000Z".to_owned()));
        Ok(())
    }

    #[test]
    fn malformed_or_never_firing_expression_is_refused() {
        let every = |seconds| Timing::Every { every: Duration::from_millis(seconds), from: Timestamp::ZERO };
        for wrong in [
            cron("0 9 * *", "UTC"),
            cron("0 9 * * * UTC", "UTC"),
            cron("61 * * * *", "UTC"),
            cron("0 0 30 2 *", "UTC"),
            cron("* * * * *", "Mars/Olympus"),
            cron("* * * * *", ""),
            cron("* * * * *", "localtime"),
            cron("* * * * *", "posixrules"),
            cron("* * * * *", "posix/Europe/Berlin"),
            cron("* * * * *", "right/Europe/Berlin"),
            cron("* * * * *", "../../../etc/localtime"),
            cron("", "UTC"),
            every(999),
            every(u64::MAX / 2),
        ] {
            assert!(wrong.check(Timestamp::ZERO).is_err(), "{wrong:?}");
        }
        assert!(every(1_000).check(Timestamp::ZERO).is_ok());
        assert!(cron("0 0 29 2 *", "UTC").check(Timestamp::ZERO).is_ok());
    }
}
