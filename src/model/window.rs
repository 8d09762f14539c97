//! The window of a group: the days and the time of day outside of which it hands nothing out. Pure: time comes in as a value.
//!
//! A window belongs to the day on which it begins, and may end on the next one. It opens and closes when the clock of its time
//! zone first reaches or passes the time, as a cron job occurs: right after a gap that skips the time, and at the first of two.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use dwell_client::wire::groups as wire;
use jiff::Timestamp as Instant;
use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::{Deserialize, Serialize};

use crate::model::cron_search::time_zone;
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::SCHEDULE_CRON_BYTES_MAX;
use crate::model::time::Timestamp;

/// Days that are searched for the next opening: the only day of a week may lose its window three times, in gaps of the clock.
const DAYS_AHEAD: i64 = 29;
/// A window of the day before may still be open, and a time zone may have skipped a day.
const DAYS_BACK: i64 = 2;
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// The zone of a window that names none.
const UTC: &str = "UTC";
const EXAMPLE: &str = "\"mon-fri 09:00-17:30 Europe/Berlin\"";

const WEEKDAYS: [(Weekday, &str); 7] = [
    (Weekday::Monday, "mon"),
    (Weekday::Tuesday, "tue"),
    (Weekday::Wednesday, "wed"),
    (Weekday::Thursday, "thu"),
    (Weekday::Friday, "fri"),
    (Weekday::Saturday, "sat"),
    (Weekday::Sunday, "sun"),
];

pub fn weekdays() -> impl Iterator<Item = &'static str> {
    WEEKDAYS.into_iter().map(|(_, name)| name)
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub struct DeliveryWindow {
    days: Days,
    from: Time,
    to: Time,
    zone: Zone,
}

/// Whether a window is open at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Open {
        since: Timestamp,
        until: Timestamp,
    },
    Closed {
        /// `None` if this version does not know its time zone.
        opens_at: Option<Timestamp>,
    },
}

/// One bit for each day on which a window begins, from Monday on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Days(u8);

#[derive(Debug, Clone)]
struct Zone {
    name: String,
    /// `None`: a later version stored a name that this one does not know. Then the window stays closed: a message may wait, but is
    /// never handed out outside of it.
    rules: Option<TimeZone>,
}

impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.name == other.name
    }
}

impl Days {
    const ALL: Days = Days(0b111_1111);

    /// Errors: `Invalid` for a word that is no day, a day that is given twice, and none.
    fn read<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Days> {
        let mut days = Days(0);
        for name in names {
            let bit = 1 << number_of(name)?;
            if days.0 & bit != 0 {
                return Err(Error::wrong(Fault::Repeated, "days", format!("{name} is given twice")));
            }
            days.0 |= bit;
        }
        match days.0 {
            0 => Err(Error::range("days", "the list is empty; leave it out for every day")),
            _ => Ok(days),
        }
    }

    fn has(self, number: usize) -> bool {
        self.0 & (1 << number) != 0
    }

    fn names(self) -> Vec<&'static str> {
        let on = WEEKDAYS.iter().enumerate().filter(|(number, _)| self.has(*number));
        on.map(|(_, (_, name))| *name).collect()
    }

    /// With spans of three days and more, such as `mon-wed,sat`.
    fn spelled(self) -> String {
        let mut parts = Vec::new();
        let mut first = 0;
        while first < WEEKDAYS.len() {
            let length = (first..WEEKDAYS.len()).take_while(|number| self.has(*number)).count();
            let name = |number: usize| WEEKDAYS[number].1;
            match length {
                0 => {}
                1 | 2 => parts.extend((first..first + length).map(|number| name(number).to_owned())),
                _ => parts.push(format!("{}-{}", name(first), name(first + length - 1))),
            }
            first += length + 1;
        }
        parts.join(",")
    }

    /// Errors: `Invalid`, as [`Days::read`].
    fn parse(text: &str) -> Result<Days> {
        let mut names = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number_of(first)?, number_of(last)?);
            let count = (last + WEEKDAYS.len() - first) % WEEKDAYS.len();
            names.extend((first..=first + count).map(|number| WEEKDAYS[number % WEEKDAYS.len()].1));
        }
        Days::read(names)
    }
}

fn number_of(name: &str) -> Result<usize> {
    let number = weekdays().position(|known| known == name);
    number.ok_or_else(|| {
        let all = weekdays().collect::<Vec<_>>().join(", ");
        Error::wrong(Fault::Choice, "days", format!("{name:?} is none of {all}"))
    })
}

/// Errors: what to write.
pub fn time_of_day(text: &str) -> Result<Time, String> {
    let wrong = || format!("{text:?} is not a time of day; write two digits of hours and of minutes, 00:00 to 23:59");
    let number = |digits: &str| (digits.len() == 2).then(|| digits.parse::<i8>().ok()).flatten();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    let (hour, minute) = text.split_once(':').filter(|_| is_plain).ok_or_else(wrong)?;
    let (hour, minute) = number(hour).zip(number(minute)).ok_or_else(wrong)?;
    Time::new(hour, minute, 0, 0).map_err(|_| wrong())
}

fn clock(time: Time) -> String {
    format!("{:02}:{:02}", time.hour(), time.minute())
}

impl Zone {
    /// Errors: `Invalid` for a name that is unknown.
    fn named(name: String) -> Result<Zone> {
        if name.len() > SCHEDULE_CRON_BYTES_MAX {
            return Err(Error::range("time_zone", format!("has at most {SCHEDULE_CRON_BYTES_MAX} bytes")));
        }
        let rules = time_zone(&name).map_err(|why| Error::wrong(Fault::Format, "time_zone", why))?;
        Ok(Zone { name, rules: Some(rules) })
    }
}

impl DeliveryWindow {
    /// `None` for `{}`, which is always open. Errors: `Invalid` about a field of the window.
    pub fn read(wire: wire::DeliveryWindow) -> Result<Option<DeliveryWindow>> {
        if wire == wire::DeliveryWindow::default() {
            return Ok(None);
        }
        let wire::DeliveryWindow { days, from, to, time_zone } = wire;
        let time = |name: &str, given: Option<String>| {
            let missing = || Error::wrong(Fault::Missing, name, "is missing; `{}` is a window that is always open");
            time_of_day(&given.ok_or_else(missing)?).map_err(|why| Error::wrong(Fault::Format, name, why))
        };
        let days = days.map_or(Ok(Days::ALL), |days| Days::read(days.iter().map(|day| &**day)))?;
        let zone = Zone::named(time_zone.unwrap_or_else(|| UTC.to_owned()))?;
        DeliveryWindow { days, from: time("from", from)?, to: time("to", to)?, zone }.checked().map(Some)
    }

    fn checked(self) -> Result<DeliveryWindow> {
        if self.from != self.to {
            return Ok(self);
        }
        let why = format!(
            "{} is `from` too: a window of no minutes; write another time, or `\"window\": {{}}` for a group that is always open",
            clock(self.to)
        );
        Err(Error::range("to", why))
    }

    pub fn phase(&self, now: Timestamp) -> Phase {
        let next = self.windows(now, DAYS_AHEAD).find(|(_, closes)| *closes > now);
        match next {
            Some((since, until)) if since <= now => Phase::Open { since, until },
            next => Phase::Closed { opens_at: next.map(|(opens, _)| opens) },
        }
    }

    /// For how much of a span before `now` it was open. Whole weeks of a long span count as long as the clock says: an hour that
    /// does not exist in one of them does not matter.
    pub fn open_within(&self, span: Duration, now: Timestamp) -> Duration {
        let span = span.min(now.since(Timestamp::from_ms(0)));
        let from = Timestamp::from_ms(now.as_ms().saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)));
        if matches!(self.phase(now), Phase::Open { since, .. } if since <= from) {
            return span;
        }
        // One week is looked at day by day, so that what became due just before now counts exactly.
        let weeks = u32::try_from(span.as_secs() / WEEK.as_secs()).unwrap_or(u32::MAX).saturating_sub(1);
        let from = from.plus(WEEK * weeks);
        let days = i64::try_from(now.since(from).as_secs() / 86_400).unwrap_or(i64::MAX).saturating_add(2);
        let open = self.windows(from, days).map(|(opens, closes)| closes.min(now).since(opens.max(from)));
        self.in_a_week() * weeks + open.sum::<Duration>()
    }

    fn in_a_week(&self) -> Duration {
        let seconds =
            |time: Time| u64::from(time.hour().unsigned_abs()) * 3_600 + u64::from(time.minute().unsigned_abs()) * 60;
        let (from, to) = (seconds(self.from), seconds(self.to));
        let length = if from < to { to - from } else { 86_400 + to - from };
        Duration::from_secs(length) * self.days.0.count_ones()
    }

    /// Its openings and closings, from some that are over at `at` on.
    fn windows(&self, at: Timestamp, days: i64) -> impl Iterator<Item = (Timestamp, Timestamp)> + '_ {
        let today = i64::try_from(at.as_ms()).ok().and_then(|ms| Instant::from_millisecond(ms).ok());
        let today = today.zip(self.zone.rules.as_ref()).map(|(at, rules)| rules.to_datetime(at).date());
        let date = move |days: i64| today?.checked_add(days.days()).ok();
        (-DAYS_BACK..=days).filter_map(date).filter_map(|date| self.of_date(date))
    }

    /// The window that begins on this day, if one does: a gap of the clock may take all of it.
    fn of_date(&self, date: Date) -> Option<(Timestamp, Timestamp)> {
        let number = WEEKDAYS.iter().position(|(day, _)| *day == date.weekday())?;
        let rules = self.zone.rules.as_ref().filter(|_| self.days.has(number))?;
        let last = if self.from < self.to { date } else { date.tomorrow().ok()? };
        let at = |date: Date, time| reached(rules, date.to_datetime(time));
        let (opens, closes) = (at(date, self.from)?, at(last, self.to)?);
        (opens < closes).then_some((opens, closes))
    }
}

/// When the clock first shows this time, or passes it.
fn reached(rules: &TimeZone, shown: DateTime) -> Option<Timestamp> {
    let at = match rules.to_ambiguous_timestamp(shown).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok()?,
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(shown).ok()?,
        // Read with the offset after the gap, the time lies before it.
        AmbiguousOffset::Gap { after, .. } => rules.following(after.to_timestamp(shown).ok()?).next()?.timestamp(),
    };
    // Times before 1970 are over.
    Some(Timestamp::from_ms(u64::try_from(at.as_millisecond()).unwrap_or(0)))
}

impl From<DeliveryWindow> for wire::DeliveryWindow {
    fn from(window: DeliveryWindow) -> wire::DeliveryWindow {
        wire::DeliveryWindow {
            days: Some(window.days.names().into_iter().map(Into::into).collect()),
            from: Some(clock(window.from)),
            to: Some(clock(window.to)),
            time_zone: Some(window.zone.name),
        }
    }
}

/// As the command line writes it: `mon-fri 09:00-17:30 Europe/Berlin`.
impl fmt::Display for DeliveryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != Days::ALL {
            write!(f, "{} ", self.days.spelled())?;
        }
        write!(f, "{}-{} {}", clock(self.from), clock(self.to), self.zone.name)
    }
}

impl FromStr for DeliveryWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<DeliveryWindow, String> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let is_time = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
        let at = words.iter().position(is_time).filter(|at| *at <= 1 && words.len() <= at + 2);
        let at = at.ok_or_else(|| {
            format!("{text:?} is not a window, such as {EXAMPLE}; days and time zone may be left out")
        })?;
        let zone = words.split_off(at + 1);
        let plain =
            |error: Error| error.field().map_or_else(|| error.detail().to_owned(), |(_, _, why)| why.to_owned());
        let (from, to) = words[at]
            .split_once('-')
            .ok_or_else(|| format!("{:?} is not a span of two times, such as 09:00-17:30", words[at]))?;
        let (from, to) = (time_of_day(from)?, time_of_day(to)?);
        let days = if at == 0 { Days::ALL } else { Days::parse(words[0]).map_err(plain)? };
        let zone = Zone::named(zone.first().map_or(UTC, |name| name).to_owned()).map_err(plain)?;
        if from == to {
            return Err(format!(
                "{} to {0} is a window of no minutes; write another time, or none for a group that is always open",
                clock(to)
            ));
        }
        Ok(DeliveryWindow { days, from, to, zone })
    }
}

/// In the descriptor. Fields that this version does not know are left alone.
#[derive(Serialize, Deserialize)]
struct Stored {
    days: Vec<String>,
    from: String,
    to: String,
    time_zone: String,
}

impl From<DeliveryWindow> for Stored {
    fn from(window: DeliveryWindow) -> Stored {
        Stored {
            days: window.days.names().into_iter().map(str::to_owned).collect(),
            from: clock(window.from),
            to: clock(window.to),
            time_zone: window.zone.name,
        }
    }
}

impl TryFrom<Stored> for DeliveryWindow {
    type Error = String;

    fn try_from(stored: Stored) -> Result<DeliveryWindow, String> {
        let days = Days::read(stored.days.iter().map(String::as_str)).map_err(|error| error.detail().to_owned())?;
        let zone = Zone { rules: time_zone(&stored.time_zone).ok(), name: stored.time_zone };
        Ok(DeliveryWindow { days, from: time_of_day(&stored.from)?, to: time_of_day(&stored.to)?, zone })
    }
}

#[cfg(test)]
mod tests;
