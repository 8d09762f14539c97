//! Cron expressions: how they are written, and which minutes of a calendar they name. Knows no time zone.

use jiff::civil::{Date, DateTime};

/// Names that stand for an expression.
const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];
const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const MINUTE: Field = Field { name: "minute", first: 0, last: 59, names: &[], example: "0, 0,30 or */15" };
const HOUR: Field = Field { name: "hour", first: 0, last: 23, names: &[], example: "3, 9-17 or */2" };
const DAY: Field = Field { name: "day of month", first: 1, last: 31, names: &[], example: "1, 1-7, 15W or L" };
const MONTH: Field = Field { name: "month", first: 1, last: 12, names: &MONTHS, example: "1, JAN-MAR or */3" };
const WEEKDAY: Field =
    Field { name: "day of week", first: 0, last: 7, names: &WEEKDAYS, example: "MON-FRI, 5L or 5#3" };

/// A cron expression. A set has the bit `1 << n` for the number `n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronExpression {
    minutes: u64,
    hours: u64,
    months: u64,
    days: u64,
    /// `L`
    last_day: bool,
    /// `15W`: the day from Monday to Friday of the same month that is nearest to that day.
    nearest: u64,
    /// Sunday is 0.
    weekdays: u64,
    /// `5L`
    last_weekdays: u64,
    /// `5#3`: for each weekday the set of 1 to 5.
    nth_weekdays: [u8; 7],
    /// A day has to be in both fields of days; else in one of them.
    both: bool,
    /// Its minute or hour begins with `*`.
    wildcard: bool,
}

struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    /// Of the numbers from `first` on.
    names: &'static [&'static str],
    example: &'static str,
}

impl CronExpression {
    /// Five fields, or a nickname such as `@daily`. Errors: what is wrong and what to write, in one line.
    pub fn parse(text: &str) -> Result<CronExpression, String> {
        let nickname = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text.trim_ascii()));
        let fields: Vec<&str> = nickname.map_or(text, |(_, fields)| fields).split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else { return Err(not_five(text, fields.len())) };
        let wrong = |why: String| format!("{text:?}: {why}");
        let (mut last_day, mut nearest, mut last_weekdays, mut nth_weekdays) = (false, 0, 0, [0; 7]);
        let plain = |_: &str| Ok(false);
        Ok(CronExpression {
            minutes: MINUTE.set(minute, plain).map_err(wrong)?,
            hours: HOUR.set(hour, plain).map_err(wrong)?,
            months: MONTH.set(month, plain).map_err(wrong)?,
            days: DAY
                .set(day, |item| {
                    match item.strip_suffix('W') {
                        _ if item == "L" => last_day = true,
                        Some(day) => nearest |= 1 << DAY.number(day)?,
                        None => return Ok(false),
                    }
                    Ok(true)
                })
                .map_err(wrong)?,
            weekdays: WEEKDAY
                .set(weekday, |item| {
                    match (item.strip_suffix('L'), item.split_once('#')) {
                        (Some(day), _) => last_weekdays |= 1 << (WEEKDAY.number(day)? % 7),
                        (None, Some((day, nth))) => {
                            let nth = number(nth).filter(|nth| (1..=5).contains(nth));
                            let nth = nth.ok_or("what follows # is not in 1 to 5")?;
                            nth_weekdays[WEEKDAY.number(day)? as usize % 7] |= 1 << nth;
                        }
                        (None, None) => return Ok(false),
                    }
                    Ok(true)
                })
                .map(|set| (set | set >> 7) & 0x7f)
                .map_err(wrong)?,
            last_day,
            nearest,
            last_weekdays,
            nth_weekdays,
            both: day.starts_with('*') || weekday.starts_with('*'),
            wildcard: minute.starts_with('*') || hour.starts_with('*'),
        })
    }

    /// Whether it runs at each of its minutes that the clock shows, also at those that it shows twice. One that is not
    /// an interval has fixed times.
    pub(super) fn is_interval(&self) -> bool {
        self.wildcard
    }

    /// The first minute that it names, at or after `from`; none in a year after `last_year`. Adds the months that were
    /// looked at to `steps`.
    pub(super) fn next_minute(&self, from: DateTime, last_year: i16, steps: &mut usize) -> Option<DateTime> {
        let late = u32::from(from.second() > 0 || from.subsec_nanosecond() > 0);
        let minute = u32::from(from.hour().unsigned_abs()) * 60 + u32::from(from.minute().unsigned_abs()) + late;
        let (mut first, mut day) = (from.date().first_of_month(), u32::from(from.day().unsigned_abs()));
        let mut days = self.days_of(first);
        if days & 1 << day != 0
            && let Some((hour, minute)) = self.minute_of_day(minute)
        {
            return at(first, day, hour, minute);
        }
        let (hour, minute) = self.minute_of_day(0)?;
        loop {
            *steps += 1;
            if let Some(day) = first_from(days, day + 1) {
                return at(first, day, hour, minute);
            }
            first = first.last_of_month().tomorrow().ok().filter(|first| first.year() <= last_year)?;
            (days, day) = (self.days_of(first), 0);
        }
    }

    /// The hour and minute of the first of its minutes of a day, from the given minute of the day on.
    fn minute_of_day(&self, from: u32) -> Option<(u32, u32)> {
        let (hour, minute) = (from / 60, from % 60);
        let in_hour = first_from(self.minutes, minute).filter(|_| hour < 24 && self.hours & 1 << hour != 0);
        in_hour
            .map(|minute| (hour, minute))
            .or_else(|| first_from(self.hours, hour + 1).zip(first_from(self.minutes, 0)))
    }

    /// Its days of the month that begins on `first`.
    fn days_of(&self, first: Date) -> u64 {
        if self.months & 1 << first.month() == 0 {
            return 0;
        }
        let length = u32::from(first.days_in_month().unsigned_abs());
        let month = (1 << (length + 1)) - 2;
        let first_weekday = u32::from(first.weekday().to_sunday_zero_offset().unsigned_abs());
        let (mut days, mut by_weekday) = (self.days & month, 0);
        if self.last_day {
            days |= 1 << length;
        }
        let mut left = self.nearest & month;
        while left != 0 {
            days |= 1 << nearest_workday(left.trailing_zeros(), first_weekday, length);
            left &= left - 1;
        }
        for weekday in 0..7 {
            let earliest = 1 + (7 + weekday - first_weekday) % 7;
            if self.weekdays & 1 << weekday != 0 {
                by_weekday |= (0..5).fold(0, |days, week| days | 1 << (earliest + 7 * week));
            }
            if self.last_weekdays & 1 << weekday != 0 {
                by_weekday |= 1 << (earliest + (length - earliest) / 7 * 7);
            }
            let mut nth = self.nth_weekdays[weekday as usize];
            while nth != 0 {
                by_weekday |= 1 << (earliest + 7 * (nth.trailing_zeros() - 1));
                nth &= nth - 1;
            }
        }
        (if self.both { days & by_weekday } else { days | by_weekday }) & month
    }
}

/// The day from Monday to Friday of the month that is nearest to this day of it.
fn nearest_workday(day: u32, first_weekday: u32, length: u32) -> u32 {
    match (first_weekday + day - 1) % 7 {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == length => day - 2,
        0 => day + 1,
        _ => day,
    }
}

fn at(first: Date, day: u32, hour: u32, minute: u32) -> Option<DateTime> {
    let small = |number: u32| i8::try_from(number).ok();
    DateTime::new(first.year(), first.month(), small(day)?, small(hour)?, small(minute)?, 0, 0).ok()
}

/// The smallest number of a set, from `from` on.
fn first_from(set: u64, from: u32) -> Option<u32> {
    let left = u64::MAX.checked_shl(from).unwrap_or(0) & set;
    (left != 0).then(|| left.trailing_zeros())
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// So that what to write is not cut off.
fn cut(text: &str) -> String {
    if text.len() <= 30 { text.to_owned() } else { text.chars().take(30).chain("…".chars()).collect() }
}

impl Field {
    /// `special` takes in an item that only this field has, and says whether it was one.
    fn set(&self, text: &str, mut special: impl FnMut(&str) -> Result<bool, String>) -> Result<u64, String> {
        let mut set = 0;
        for item in text.split(',') {
            let wrong = |why| format!("{} {:?}: {why}; write {}", self.name, cut(item), self.example);
            if !special(item).map_err(wrong)? {
                set |= self.range(item).map_err(wrong)?;
            }
        }
        Ok(set)
    }

    /// `*`, `5`, `1-5`, each perhaps with a step: `*/15`, `5/15`, `1-30/2`.
    fn range(&self, item: &str) -> Result<u64, String> {
        let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.first, self.last),
            Some((from, to)) => (self.number(from)?, self.number(to)?),
            None => (self.number(range)?, if step.is_some() { self.last } else { self.number(range)? }),
        };
        if from > to {
            return Err(format!("{} ends before it begins", cut(range)));
        }
        let steps = self.first.max(1)..=self.last;
        let step = match step {
            None => 1,
            Some(step) => number(step)
                .filter(|step| steps.contains(step))
                .ok_or_else(|| format!("the step is not in {} to {}", steps.start(), steps.end()))?,
        };
        Ok((from..=to).step_by(step as usize).fold(0, |set, number| set | 1 << number))
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        if let Some(at) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(self.first + at as u32);
        }
        let range = || match self.names {
            [] => format!("{} to {}", self.first, self.last),
            [first, .., last] => format!("{} to {} or {first} to {last}", self.first, self.last),
            [only] => (*only).to_owned(),
        };
        match number(text) {
            Some(number) if (self.first..=self.last).contains(&number) => Ok(number),
            _ if text.is_empty() => Err(format!("something is missing, {}", range())),
            _ => Err(format!("{} is not in {}", cut(text), range())),
        }
    }
}

fn not_five(text: &str, fields: usize) -> String {
    if text.trim_ascii().starts_with('@') {
        let names: Vec<&str> = NICKNAMES.iter().map(|(name, _)| *name).collect();
        return format!("{text:?} is none of {}; for equal intervals write \"every\": \"5m\"", names.join(", "));
    }
    let order = "minute, hour, day of month, month, day of week";
    let rest = match fields {
        6.. => "for seconds write \"every\": \"10s\"",
        _ => "write \"0 3 * * *\" for every day at 03:00",
    };
    format!("{text:?} has {fields} fields, not 5: {order}; {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_field_and_says_what_to_write() {
        for (text, said) in [
            ("0 24 * * *", r#""0 24 * * *": hour "24": 24 is not in 0 to 23; write 3, 9-17 or */2"#),
            ("x * * * *", r#""x * * * *": minute "x": x is not in 0 to 59; write 0, 0,30 or */15"#),
            ("*/0 * * * *", r#""*/0 * * * *": minute "*/0": the step is not in 1 to 59; write 0, 0,30 or */15"#),
            ("* 9- * * *", r#""* 9- * * *": hour "9-": something is missing, 0 to 23; write 3, 9-17 or */2"#),
            ("* * 0 * *", r#""* * 0 * *": day of month "0": 0 is not in 1 to 31; write 1, 1-7, 15W or L"#),
            (
                "* * * FOO *",
                r#""* * * FOO *": month "FOO": FOO is not in 1 to 12 or JAN to DEC; write 1, JAN-MAR or */3"#,
            ),
            (
                "* * * * FRI-SUN",
                r#""* * * * FRI-SUN": day of week "FRI-SUN": FRI-SUN ends before it begins; write MON-FRI, 5L or 5#3"#,
            ),
            (
                "* * * * 5#6",
                r#""* * * * 5#6": day of week "5#6": what follows # is not in 1 to 5; write MON-FRI, 5L or 5#3"#,
            ),
            (
                "0 3 * *",
                r#""0 3 * *" has 4 fields, not 5: minute, hour, day of month, month, day of week; write "0 3 * * *" for every day at 03:00"#,
            ),
            (
                "0 0 3 * * *",
                r#""0 0 3 * * *" has 6 fields, not 5: minute, hour, day of month, month, day of week; for seconds write "every": "10s""#,
            ),
            (
                "@every 5m",
                r#""@every 5m" is none of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually; for equal intervals write "every": "5m""#,
            ),
        ] {
            assert_eq!(CronExpression::parse(text), Err(said.to_owned()));
        }
    }

    #[test]
    fn error_about_a_long_item_still_says_what_to_write() {
        let said = CronExpression::parse(&format!("{} * * * *", "7".repeat(240)));
        assert!(said.is_err_and(|why| why.len() < 450 && why.ends_with("write 0, 0,30 or */15")));
    }

    #[test]
    fn spellings_of_one_expression_are_equal() {
        for (one, other) in [
            ("@daily", "0 0 * * *"),
            (" @MIDNIGHT ", "0 0 * * *"),
            ("@hourly", "0 * * * *"),
            ("@weekly", "0 0 * * SUN"),
            ("@weekly", "0 0 * * 7"),
            ("@annually", "0 0 1 JAN *"),
            ("\t0  03 *\n* mon-FRI", "0 3 * * 1-5"),
            ("0 0 * * 0L", "0 0 * * sunL"),
            ("0 0 * * 7#2", "0 0 * * Sun#2"),
            ("10/20 * * * *", "10-59/20 * * * *"),
            ("0 0 * * 5-7", "0 0 * * 5,6,0"),
            ("0 0 * * */7", "0 0 * * */7,7"),
        ] {
            assert_eq!(CronExpression::parse(one), CronExpression::parse(other));
            assert!(CronExpression::parse(one).is_ok(), "{one}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for wrong in [
            "",
            "@",
            "@reboot",
            "* * * * * UTC",
            "60 * * * *",
            ", * * * *",
            "1,,2 * * * *",
            "1, * * * *",
            "** * * * *",
            "*5 * * * *",
            "*-5 * * * *",
            "1-2-3 * * * *",
            "1/2/3 * * * *",
            "/5 * * * *",
            "*/60 * * * *",
            "+5 * * * *",
            "-5 * * * *",
            "99999999999999999999 * * * *",
            "5L * * * *",
            "* * LW * *",
            "* * L-3 * *",
            "* * W * *",
            "* * 32W * *",
            "* * 1-5W * *",
            "* * 15w * *",
            "* * ? * *",
            "* * * 0 *",
            "* * * 13 *",
            "* * * JANUARY *",
            "* * * * 8",
            "* * * * L",
            "* * * * #1",
            "* * * * 5#",
            "* * * * 5#0",
            "* * * * 5L/2",
            "H * * * *",
            "\u{660} * * * *",
            "*\u{a0}* * * *",
        ] {
            assert!(CronExpression::parse(wrong).is_err(), "{wrong}");
        }
    }
}
