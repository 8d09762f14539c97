//! A second implementation of cron, to compare dwell's with: naive, slow and written without looking at it. It reads the wall
//! clock of a time zone tick by tick and asks of each minute whether the expression names it. The fuzzer has it too.

use jiff::civil::{Date, DateTime, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

const DAY: i64 = 86_400;
const NAMES: [(&str, &str); 19] = [
    ("JAN", "1"),
    ("FEB", "2"),
    ("MAR", "3"),
    ("APR", "4"),
    ("MAY", "5"),
    ("JUN", "6"),
    ("JUL", "7"),
    ("AUG", "8"),
    ("SEP", "9"),
    ("OCT", "10"),
    ("NOV", "11"),
    ("DEC", "12"),
    ("SUN", "0"),
    ("MON", "1"),
    ("TUE", "2"),
    ("WED", "3"),
    ("THU", "4"),
    ("FRI", "5"),
    ("SAT", "6"),
];

/// An expression that dwell has accepted.
pub(crate) struct Naive {
    fields: Vec<String>,
    minutes: Vec<bool>,
    hours: Vec<bool>,
    wildcard: bool,
}

impl Naive {
    pub(crate) fn new(expression: &str) -> Naive {
        let text = match expression.trim().to_uppercase().as_str() {
            "@HOURLY" => "0 * * * *".to_owned(),
            "@DAILY" | "@MIDNIGHT" => "0 0 * * *".to_owned(),
            "@WEEKLY" => "0 0 * * 0".to_owned(),
            "@MONTHLY" => "0 0 1 * *".to_owned(),
            "@YEARLY" | "@ANNUALLY" => "0 0 1 1 *".to_owned(),
            other => NAMES.iter().fold(other.to_owned(), |text, (name, number)| text.replace(name, number)),
        };
        let fields: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let all = |field: usize, count: i64| (0..count).map(|n| names(&fields[field], n, 0, count - 1)).collect();
        let (minutes, hours) = (all(0, 60), all(1, 24));
        let wildcard = fields[0].starts_with('*') || fields[1].starts_with('*');
        Naive { fields, minutes, hours, wildcard }
    }

    pub(crate) fn has_day(&self, day: Date) -> bool {
        let (days, weekdays) = (&self.fields[2], &self.fields[4]);
        let either = [self.has_day_of_month(day), self.has_weekday(day)];
        let both = days.starts_with('*') || weekdays.starts_with('*');
        names(&self.fields[3], day.month().into(), 1, 12)
            && if both { either == [true; 2] } else { either != [false; 2] }
    }

    fn has_day_of_month(&self, day: Date) -> bool {
        self.fields[2].split(',').any(|item| match item.strip_suffix('W') {
            _ if item == "L" => is_last(day, 1),
            Some(wanted) => {
                let of_month = (1..=day.days_in_month()).map(|n| date(day.year(), day.month(), n));
                let workdays = of_month.filter(|day| !matches!(day.weekday().to_monday_one_offset(), 6 | 7));
                let nearest = workdays.min_by_key(|day| (i64::from(day.day()) - number(wanted)).abs());
                number(wanted) <= i64::from(day.days_in_month()) && nearest == Some(day)
            }
            None => item_names(item, day.day().into(), 1, 31),
        })
    }

    fn has_weekday(&self, day: Date) -> bool {
        let weekday = i64::from(day.weekday().to_sunday_zero_offset());
        self.fields[4].split(',').any(|item| match (item.strip_suffix('L'), item.split_once('#')) {
            (Some(wanted), _) => number(wanted) % 7 == weekday && is_last(day, 7),
            (None, Some((wanted, nth))) => {
                number(wanted) % 7 == weekday && number(nth) == i64::from((day.day() - 1) / 7 + 1)
            }
            (None, None) => item_names(item, weekday, 0, 7) || weekday == 0 && item_names(item, 7, 0, 7),
        })
    }

    /// In seconds since 1970, those after the first tick.
    pub(crate) fn occurrences(&self, wall: &Wall) -> Vec<i64> {
        let (mut found, mut known) = (Vec::new(), (i64::MIN, false));
        let mut is_named = |local: i64| {
            let (day, minute) = (local.div_euclid(DAY), (local.rem_euclid(DAY) / 60) as usize);
            self.minutes[minute % 60] && self.hours[minute / 60] && {
                if known.0 != day {
                    known = (day, self.has_day(date_of(day)));
                }
                known.1
            }
        };
        let Some((_, mut shown)) = wall.ticks.first().copied() else { return found };
        for (at, local) in wall.ticks.iter().copied().skip(1) {
            let occurs = match self.wildcard {
                true => local % 60 == 0 && is_named(local),
                false => (shown.div_euclid(60) + 1..=local.div_euclid(60)).any(|minute| is_named(minute * 60)),
            };
            if occurs {
                found.push(at);
            }
            shown = shown.max(local);
        }
        found
    }

    /// The first occurrence after a time; `None` when there is none within so many days.
    pub(crate) fn next(&self, zone: &TimeZone, after: i64, days: i64) -> Option<i64> {
        let today = zone.to_datetime(instant(after)).date();
        let first = i64::from((today - date(1970, 1, 1)).get_days()) - 2;
        let named = (first..first + days).filter(|day| self.has_day(date_of(*day)));
        named.into_iter().find_map(|day| {
            let noon = day * DAY + DAY / 2;
            let wall = Wall::new(zone, noon - 2 * DAY, noon + 3 * DAY);
            self.occurrences(&wall).into_iter().find(|at| *at > after)
        })
    }
}

/// What the wall clock shows from tick to tick, as seconds since 1970 and as local seconds since 1970.
pub(crate) struct Wall {
    ticks: Vec<(i64, i64)>,
}

impl Wall {
    /// The ticks are close enough that none of the changes, nor a whole minute of the clock, is between two.
    pub(crate) fn new(zone: &TimeZone, from: i64, to: i64) -> Wall {
        let shows = |at: i64| at + i64::from(zone.to_offset(instant(at)).seconds());
        let mut tick = divisor(60, shows(from) - from);
        for change in zone.following(instant(from)).take_while(|change| change.timestamp() < instant(to)) {
            let at = change.timestamp().as_second();
            tick = divisor(divisor(tick, at), shows(at) - at);
        }
        let from = from - from.rem_euclid(60);
        Wall { ticks: (0..=(to - from) / tick).map(|n| from + n * tick).map(|at| (at, shows(at))).collect() }
    }
}

fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { divisor(b, a % b) }
}

pub(crate) fn instant(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

fn date_of(day: i64) -> Date {
    let noon: DateTime = date(1970, 1, 1).at(12, 0, 0, 0).saturating_add(SignedDuration::from_hours(24 * day));
    noon.date()
}

/// Whether so many days later it is another month.
fn is_last(day: Date, days: i64) -> bool {
    day.saturating_add(days.days()).month() != day.month()
}

fn names(field: &str, wanted: i64, first: i64, last: i64) -> bool {
    field.split(',').any(|item| item_names(item, wanted, first, last))
}

fn item_names(item: &str, wanted: i64, first: i64, last: i64) -> bool {
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, number(step)),
        None => (item, 1),
    };
    let (from, to) = match range.split_once('-') {
        Some((from, to)) => (number(from), number(to)),
        None if range == "*" => (first, last),
        None if item.contains('/') => (number(range), last),
        None => (number(range), number(range)),
    };
    (from..=to).contains(&wanted) && (wanted - from) % step == 0
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or(i64::MIN / 4)
}
