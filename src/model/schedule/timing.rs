//! When a schedule occurs: by a cron expression in a time zone, or in equal spans.

use std::time::Duration;

use cronexpr::{Crontab, MakeTimestamp};
use jiff::tz::TimeZoneDatabase;

use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{SCHEDULE_CRON_BYTES_MAX, SCHEDULE_EVERY_MAX, SCHEDULE_EVERY_MIN};
use crate::model::time::{Timestamp, ms_up, show_span};

/// The first span that is looked back for the newest occurrences of a cron expression; then twice as far.
const LOOK_BACK: Duration = Duration::from_secs(3_600);

/// When a schedule occurs.
#[derive(Debug, Clone, PartialEq)]
pub enum Timing {
    /// By a cron expression: minute, hour, day of month, month, day of week.
    Cron {
        /// The five fields.
        cron: String,
        /// An IANA name, such as `Europe/Berlin`.
        time_zone: String,
    },
    /// Again and again after the same span.
    Every {
        /// The span, at least a second.
        every: Duration,
        /// The occurrences are whole spans after this.
        from: Timestamp,
    },
}

impl Timing {
    /// # Errors
    /// `Invalid` when it is malformed, out of range, or never occurs after `now`.
    pub fn check(&self, now: Timestamp) -> Result<()> {
        match self {
            Timing::Cron { cron, time_zone } => {
                if cron.len() > SCHEDULE_CRON_BYTES_MAX || time_zone.len() > SCHEDULE_CRON_BYTES_MAX {
                    return Err(Error::wrong(
                        Fault::Range,
                        "cron",
                        format!("has at most {SCHEDULE_CRON_BYTES_MAX} bytes"),
                    ));
                }
                // The machine's own list has names that mean something else on each, such as `localtime`.
                if TimeZoneDatabase::bundled().get(time_zone).is_err() {
                    let why = format!("{time_zone:?} is not the name of a time zone, such as \"Europe/Berlin\"");
                    return Err(Error::wrong(Fault::Format, "time_zone", why));
                }
                let parsed = parse(cron, time_zone).map_err(|why| Error::wrong(Fault::Format, "cron", why))?;
                match next(&parsed, now) {
                    Some(_) => Ok(()),
                    None => Err(Error::wrong(Fault::Range, "cron", format!("{cron:?} never occurs"))),
                }
            }
            Timing::Every { every, .. } if !(SCHEDULE_EVERY_MIN..=SCHEDULE_EVERY_MAX).contains(every) => {
                let range = format!("{} to {}", show_span(SCHEDULE_EVERY_MIN), show_span(SCHEDULE_EVERY_MAX));
                Err(Error::wrong(Fault::Range, "every", format!("{} is not in {range}", show_span(*every))))
            }
            Timing::Every { .. } => Ok(()),
        }
    }

    /// The first occurrence after `last`.
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
    fn a_time_that_is_not_there_is_left_out_and_one_that_is_there_twice_occurs_twice() -> Result<()> {
        let night = cron("30 2 * * *", "Europe/Berlin");
        let spring_expected = ["2026-03-30T00:30:00.000Z", "2026-03-31T00:30:00.000Z"].map(str::to_owned).to_vec();
        let autumn_expected = ["2026-10-25T00:30:00.000Z", "2026-10-25T01:30:00.000Z"].map(str::to_owned).to_vec();
        let spring = times(&night, "2026-03-28T12:00:00Z", 2)?;
        let autumn = times(&night, "2026-10-24T12:00:00Z", 2)?;
        assert_eq!((spring, autumn), (spring_expected, autumn_expected));
        Ok(())
    }

    #[test]
    fn equal_spans_are_counted_from_their_beginning() -> Result<()> {
        let from = "2026-01-01T00:00:05Z".parse()?;
        let every = Timing::Every { every: Duration::from_secs(90), from };
        let expected = ["2026-01-01T00:00:05.000Z", "2026-01-01T00:01:35.000Z", "2026-01-01T00:03:05.000Z"];
        assert_eq!(times(&every, "2025-12-31T00:00:00Z", 3)?, expected);
        assert_eq!(times(&every, "2026-01-01T00:01:34.999Z", 2)?, expected[1..]);
        assert_eq!(times(&every, "2026-01-01T00:01:35Z", 1)?, expected[2..]);
        Ok(())
    }

    #[test]
    fn the_newest_are_found_without_going_through_a_year() -> Result<()> {
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
    fn what_is_malformed_or_never_occurs_is_refused() {
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
