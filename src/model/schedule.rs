//! Cron jobs (schedules): when they occur, which occurrences are to be fired, and the JSON in which they are stored.
//! Pure: time comes in as a value.
//!
//! Fields that are absent from the JSON have their defaults, so that a later dwell can add some.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cronexpr::{Crontab, MakeTimestamp};
use jiff::tz::TimeZoneDatabase;
use serde::{Deserialize, Serialize};

use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{
    SCHEDULE_CRON_BYTES_MAX, SCHEDULE_EVERY_MAX, SCHEDULE_EVERY_MIN, SCHEDULE_FIRES_MAX, SCHEDULE_PAYLOAD_BYTES_MAX,
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
    /// All are fired, but no more than the last [`SCHEDULE_FIRES_MAX`].
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
        if self.paused { None } else { self.timing.next(last) }
    }

    /// The occurrences to fire at `now`, when everything up to `last` is done with; `None` when nothing has occurred.
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
}

impl Timing {
    /// Errors: `Invalid` when it is malformed, out of range, or never occurs after `now`.
    pub fn check(&self, now: Timestamp) -> Result<()> {
        match self {
            Timing::Cron { cron, time_zone } => {
                if cron.len() > SCHEDULE_CRON_BYTES_MAX || time_zone.len() > SCHEDULE_CRON_BYTES_MAX {
                    return Err(Error::range("cron", format!("has at most {SCHEDULE_CRON_BYTES_MAX} bytes")));
                }
                // The machine's own list has names that mean something else on each, such as `localtime`.
                if TimeZoneDatabase::bundled().get(time_zone).is_err() {
                    let why = format!("{time_zone:?} is not the name of a time zone, such as \"Europe/Berlin\"");
                    return Err(Error::wrong(Fault::Format, "time_zone", why));
                }
                let parsed = parse(cron, time_zone).map_err(|why| Error::wrong(Fault::Format, "cron", why))?;
                match next(&parsed, now) {
                    Some(_) => Ok(()),
                    None => Err(Error::range("cron", format!("{cron:?} never occurs"))),
                }
            }
            Timing::Every { every, .. } if !(SCHEDULE_EVERY_MIN..=SCHEDULE_EVERY_MAX).contains(every) => {
                let range = format!("{} to {}", show_span(SCHEDULE_EVERY_MIN), show_span(SCHEDULE_EVERY_MAX));
                Err(Error::range("every", format!("{} is not in {range}", show_span(*every))))
            }
            Timing::Every { .. } => Ok(()),
        }
    }

    pub fn next(&self, last: Timestamp) -> Option<Timestamp> {
        match self {
            Timing::Cron { cron, time_zone } => next(&parse(cron, time_zone).ok()?, last),
            Timing::Every { every, from } => {
                let every = ms_up(*every).max(1);
                match last.as_ms().checked_sub(from.as_ms()) {
                    Some(ahead) => Some(Timestamp::from_ms(from.as_ms() + (ahead / every + 1) * every)),
                    None => Some(*from),
                }
            }
        }
        .filter(|next| *next > last)
    }

    /// The last occurrences after `last` and up to `now`, so many at most, oldest first.
    pub(super) fn newest(&self, last: Timestamp, now: Timestamp, most: usize) -> Vec<Timestamp> {
        match self {
            Timing::Cron { cron, time_zone } => {
                parse(cron, time_zone).map_or(Vec::new(), |parsed| newest(&parsed, last, now, most))
            }
            Timing::Every { every, .. } => {
                let span = every.saturating_mul(u32::try_from(most).unwrap_or(u32::MAX));
                self.collect(last.max(now.minus(span)), now, most)
            }
        }
    }

    fn collect(&self, last: Timestamp, now: Timestamp, most: usize) -> Vec<Timestamp> {
        let after = |at: &Timestamp| self.next(*at).filter(|next| *next <= now);
        std::iter::successors(after(&last), after).take(most).collect()
    }
}

fn parse(cron: &str, time_zone: &str) -> Result<Crontab, String> {
    let fields = cron.split_whitespace().count();
    if fields != 5 {
        return Err(format!("{cron:?} has {fields} fields, not 5: minute, hour, day of month, month, day of week"));
    }
    cronexpr::parse_crontab(&format!("{cron} {time_zone}")).map_err(|why| format!("{cron:?} is not understood: {why}"))
}

fn next(cron: &Crontab, last: Timestamp) -> Option<Timestamp> {
    let from = MakeTimestamp::from_millisecond(i64::try_from(last.as_ms()).ok()?).ok()?;
    let next = cron.find_next(from).ok()?.timestamp().as_millisecond();
    Some(Timestamp::from_ms(u64::try_from(next).ok()?)).filter(|next| *next > last)
}

/// A cron expression can only be followed forwards, so it is looked back as far as needed: a year of minutes is not gone
/// through for the last hundred.
fn newest(cron: &Crontab, last: Timestamp, now: Timestamp, most: usize) -> Vec<Timestamp> {
    let mut back = LOOK_BACK;
    loop {
        let from = last.max(now.minus(back));
        let after = |at: &Timestamp| next(cron, *at).filter(|next| *next <= now);
        let mut found: Vec<Timestamp> = std::iter::successors(after(&from), after).collect();
        if found.len() >= most || from == last {
            return found.split_off(found.len().saturating_sub(most));
        }
        back = back.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(all, Some((SCHEDULE_FIRES_MAX, 1)));
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

    fn times(timing: &Timing, from: &str, count: usize) -> Result<Vec<String>> {
        let next = |at: &Timestamp| timing.next(*at);
        Ok(std::iter::successors(next(&from.parse()?), next).take(count).map(|at| at.to_string()).collect())
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
    fn dst_gap_is_skipped_and_dst_overlap_fires_twice() -> Result<()> {
        let night = cron("30 2 * * *", "Europe/Berlin");
        let spring_expected = ["2026-03-30T00:30:00.000Z", "2026-03-31T00:30:00.000Z"].map(str::to_owned).to_vec();
        let autumn_expected = ["2026-10-25T00:30:00.000Z", "2026-10-25T01:30:00.000Z"].map(str::to_owned).to_vec();
        let spring = times(&night, "2026-03-28T12:00:00Z", 2)?;
        let autumn = times(&night, "2026-10-24T12:00:00Z", 2)?;
        assert_eq!((spring, autumn), (spring_expected, autumn_expected));
        Ok(())
    }

    #[test]
    fn intervals_are_aligned_to_their_start() -> Result<()> {
        let from = "2026-01-01T00:00:05Z".parse()?;
        let every = Timing::Every { every: Duration::from_secs(90), from };
        let expected = ["2026-01-01T00:00:05.000Z", "2026-01-01T00:01:35.000Z", "2026-01-01T00:03:05.000Z"];
        assert_eq!(times(&every, "2025-12-31T00:00:00Z", 3)?, expected);
        assert_eq!(times(&every, "2026-01-01T00:01:34.999Z", 2)?, expected[1..]);
        assert_eq!(times(&every, "2026-01-01T00:01:35Z", 1)?, expected[2..]);
        Ok(())
    }

    #[test]
    fn newest_occurrences_are_found_without_a_full_scan() -> Result<()> {
        let (last, now) = ("2025-01-01T00:00:00Z".parse()?, "2026-01-01T00:00:30Z".parse()?);
        for timing in
            [cron("* * * * *", "UTC"), Timing::Every { every: Duration::from_secs(60), from: Timestamp::ZERO }]
        {
            let newest = timing.newest(last, now, 3);
            let shown: Vec<String> = newest.iter().map(ToString::to_string).collect();
            assert_eq!(shown, ["2025-12-31T23:58:00.000Z", "2025-12-31T23:59:00.000Z", "2026-01-01T00:00:00.000Z"]);
        }
        assert_eq!(cron("0 0 1 1 *", "UTC").newest(last, now, 3).len(), 1);
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
