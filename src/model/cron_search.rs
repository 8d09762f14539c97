//! When a cron expression occurs in a time zone.
//!
//! A time zone is a row of periods with one offset each, and within a period local time advances as absolute time does. The
//! search goes from period to period and so never back. An interval occurs whenever the clock shows one of its minutes. A
//! fixed time occurs when the clock first reaches or passes it: right after a gap that skips it, and once when it is shown
//! twice. This is the rule of Vixie cron, which it has for changes of up to three hours, for changes of any length.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp as Instant};

use crate::model::cron_expression::CronExpression;
use crate::model::time::Timestamp;

/// The Gregorian calendar repeats after this, so what does not occur within it never does.
const YEARS: i16 = 400;
/// Months and periods that a search looks at. The months of 400 years are 4,800, and an interval that is in the gap of each
/// year looks at two periods and a month more in each.
const STEPS_MAX: usize = 10_000;
/// More than two offsets can differ, which is less than 52 hours.
const FAR: SignedDuration = SignedDuration::from_hours(72);

/// A cron expression in a time zone.
#[derive(Debug, Clone)]
pub struct CronTimes {
    expression: CronExpression,
    zone: TimeZone,
}

/// The outcome of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// `None` when it never occurs again.
    pub next: Option<Timestamp>,
    /// Months and periods that it looked at.
    pub steps: usize,
}

/// The zone with this IANA name, of the database that dwell is built with. The machine's own has names that mean something
/// else on each, such as `localtime`, and brokers with different rules would push an occurrence twice. Errors: what to write.
pub fn time_zone(name: &str) -> Result<TimeZone, String> {
    let wrong = |_| format!("{name:?} is not the name of a time zone, such as \"Europe/Berlin\"");
    TimeZoneDatabase::bundled().get(name).map_err(wrong)
}

impl CronTimes {
    pub fn new(expression: CronExpression, zone: TimeZone) -> CronTimes {
        CronTimes { expression, zone }
    }

    /// The first occurrence after `last`.
    pub fn search(&self, last: Timestamp) -> Search {
        let mut steps = 0;
        let next = self.find(last, &mut steps).filter(|next| *next > last);
        Search { next, steps }
    }

    fn find(&self, last: Timestamp, steps: &mut usize) -> Option<Timestamp> {
        // Occurrences are whole seconds.
        let mut from = Instant::from_second(i64::try_from(last.as_ms() / 1_000).ok()? + 1).ok()?;
        let mut period = Period::at(&self.zone, from)?;
        let last_year = period.offset.to_datetime(from).year().saturating_add(YEARS);
        while *steps < STEPS_MAX {
            *steps += 1;
            let local = period.offset.to_datetime(from);
            let earliest = match self.expression.is_interval() {
                true => local,
                // A gap at the beginning of the period: its minutes occur right after it.
                false if from == period.start => period.shown,
                false => local.max(period.shown),
            };
            let minute = self.expression.next_minute(earliest, last_year, steps)?;
            let at = period.offset.to_timestamp(minute).ok()?.max(from);
            if period.end.is_none_or(|end| at < end) {
                return u64::try_from(at.as_millisecond()).ok().map(Timestamp::from_ms);
            }
            let near = at.checked_sub(FAR).ok()?;
            (period, from) = match period.end {
                // No minute before this one is named, so what the periods until then show does not matter.
                Some(end) if near > end => (Period::at(&self.zone, near)?, near),
                Some(end) => (period.following(&self.zone, end), end),
                None => return None,
            };
        }
        None
    }
}

/// A span of time in which the offset stays the same.
struct Period {
    start: Instant,
    end: Option<Instant>,
    offset: Offset,
    /// Every local time before this was shown or skipped when the period began.
    shown: DateTime,
}

impl Period {
    /// The period of an instant. It begins late enough if it is long, and `shown` is right for `at` and all later times.
    fn at(zone: &TimeZone, at: Instant) -> Option<Period> {
        let start = at.checked_sub(FAR).ok()?;
        let offset = zone.to_offset(start);
        let mut period = Period { start, end: end_after(zone, start), offset, shown: offset.to_datetime(start) };
        while let Some(end) = period.end.filter(|end| *end <= at) {
            period = period.following(zone, end);
        }
        Some(period)
    }

    fn following(&self, zone: &TimeZone, start: Instant) -> Period {
        let shown = self.shown.max(self.offset.to_datetime(start));
        Period { start, end: end_after(zone, start), offset: zone.to_offset(start), shown }
    }
}

fn end_after(zone: &TimeZone, start: Instant) -> Option<Instant> {
    zone.following(start).next().map(|change| change.timestamp())
}
