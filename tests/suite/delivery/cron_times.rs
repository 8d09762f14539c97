//! When cron expressions occur, compared with a naive second implementation that walks the clock, in every time zone.
//!
//! The long form, `make cron`, has all changes of all zones from 1970 to 2100, and what croniter says.

mod walker;

use std::collections::HashMap;
use std::fmt::Write as _;

use dwell::model::cron_expression::CronExpression;
use dwell::model::cron_search::{CronTimes, time_zone};
use dwell::model::error::{Error, Result};
use dwell::model::schedule::Timing;
use dwell::model::time::{Timestamp, parse_timestamp};
use jiff::tz::TimeZoneDatabase;

use self::walker::{Naive, Wall, instant};

/// What a search may look at; dwell gives up above 10,000.
const STEPS: usize = 7_000;
const DAY: i64 = 86_400;
const YEAR: i64 = 365 * DAY;
/// 1970, and the end of 2100.
const CHANGES: (i64, i64) = (0, 4_133_980_800);

/// Tried at each change: fixed times and intervals around midnight and the usual hours, and each rule for days.
const EXPRESSIONS: [&str; 50] = [
    "* * * * *",
    "*/5 * * * *",
    "*/7 * * * *",
    "0 * * * *",
    "30 * * * *",
    "15,45 * * * *",
    "0 */2 * * *",
    "0 */3 * * *",
    "20 */5 * * *",
    "* 2 * * *",
    "*/10 1-3 * * *",
    "* 0 * * *",
    "*/30 23 * * *",
    "*,5 1 * * *",
    "0 0 * * *",
    "15 0 * * *",
    "30 0 * * *",
    "45 0 * * *",
    "0 1 * * *",
    "30 1 * * *",
    "59 1 * * *",
    "0 2 * * *",
    "15 2 * * *",
    "30 2 * * *",
    "45 2 * * *",
    "0 3 * * *",
    "1 3 * * *",
    "30 3 * * *",
    "0 9 * * *",
    "59 23 * * *",
    "0 12 * * *",
    "30 1,2,3 * * *",
    "0,30 0-4 * * *",
    "5/10 0-23 * * *",
    "0-59 0-23 * * *",
    "0 0-23/6 * * *",
    "17 1/3 * * *",
    "0 2 * * SUN",
    "30 2 * * 0L",
    "30 1 * 3,4,9,10,11 0#1",
    "0 3 * MAR-NOV 7",
    "0 0 L * *",
    "0 2 15W * *",
    "30 2 1-7 * SUN",
    "30 2 */2 * *",
    "30 2 * * */2",
    "45 23 1,L * MON-FRI",
    "0 4 30,31 * *",
    "@daily",
    "@hourly",
];

/// Zones with their changes of offset, each set of changes once.
fn zones() -> Result<Vec<(String, Vec<i64>)>> {
    let mut all: HashMap<Vec<(i64, i32)>, String> = HashMap::new();
    for name in TimeZoneDatabase::bundled().available().map(|name| name.to_string()) {
        // Names that stand for no rules.
        let Ok(zone) = time_zone(&name) else { continue };
        let changes = zone
            .following(instant(CHANGES.0))
            .map(|change| (change.timestamp().as_second(), change.offset().seconds()));
        all.entry(changes.take_while(|(at, _)| *at < CHANGES.1).collect()).or_insert(name);
    }
    let mut zones: Vec<_> =
        all.into_iter().map(|(changes, name)| (name, changes.into_iter().map(|(at, _)| at).collect())).collect();
    zones.sort();
    Ok(zones)
}

fn times(expression: &str, zone: &str) -> Result<CronTimes> {
    let expression = CronExpression::parse(expression).map_err(Error::bug)?;
    Ok(CronTimes::new(expression, time_zone(zone).map_err(Error::bug)?))
}

/// What dwell and the walker found, if that differs.
struct Comparison {
    compared: usize,
    steps: usize,
    differ: String,
}

impl Comparison {
    fn new() -> Comparison {
        Comparison { compared: 0, steps: 0, differ: String::new() }
    }

    /// The first occurrence after `last`.
    fn next(&mut self, times: &CronTimes, last: i64) -> Option<i64> {
        let search = times.search(Timestamp::from_ms(last.max(0).unsigned_abs() * 1_000));
        self.steps = self.steps.max(search.steps);
        search.next.map(|at| (at.as_ms() / 1_000) as i64)
    }

    fn expect(&mut self, place: &str, last: i64, found: Option<i64>, expected: Option<i64>) {
        self.compared += 1;
        if found != expected && self.differ.len() < 4_000 {
            let show = |at: Option<i64>| at.map_or("never".to_owned(), |at| instant(at).to_string());
            let (found, expected) = (show(found), show(expected));
            let _ = writeln!(self.differ, "{place} after {}: {found}, not {expected}", instant(last));
        }
    }

    /// All occurrences around a change, one after the other, and the next from each of some times between.
    fn around(&mut self, expression: &str, (zone, times): (&str, &CronTimes), wall: &Wall, span: (i64, i64)) {
        let place = format!("{expression} {zone}");
        let expected = Naive::new(expression).occurrences(wall);
        let mut last = span.0;
        for at in expected.iter().copied() {
            let found = self.next(times, last);
            self.expect(&place, last, found, Some(at));
            last = at;
        }
        let found = self.next(times, last).filter(|at| *at <= span.1);
        self.expect(&place, last, found, None);
        for n in 0..40 {
            let last = span.0 + n * (span.1 - span.0) / 40 + n * 17 % 60;
            let next = expected.iter().copied().find(|at| *at > last);
            let found = self.next(times, last).filter(|at| *at <= span.1);
            self.expect(&place, last, found, next);
        }
    }

    fn holds(self) -> Result<()> {
        println!("{} occurrences compared, at most {} steps", self.compared, self.steps);
        assert_eq!(self.differ, "");
        assert!(self.steps <= STEPS, "{} steps", self.steps);
        Ok(())
    }
}

fn is_long() -> bool {
    std::env::var_os("DWELL_CRON").is_some()
}

#[test]
fn occurrences_around_every_change_of_offset_are_those_of_the_clock() -> Result<()> {
    let (mut random, mut comparison) = (fastrand::Rng::with_seed(20_261_126), Comparison::new());
    for (name, changes) in zones()? {
        let zone = time_zone(&name).map_err(Error::bug)?;
        let every: Vec<(&str, CronTimes)> =
            EXPRESSIONS.iter().map(|text| Ok((*text, times(text, &name)?))).collect::<Result<_>>()?;
        // Some of each zone, and those of these years, which are unusual.
        let some = if is_long() { changes.len() } else { 2 };
        for change in if is_long() {
            changes.clone()
        } else {
            random.choose_multiple(&changes, some).into_iter().copied().collect()
        } {
            let span = (change - 2 * DAY - change.rem_euclid(60), change + 2 * DAY);
            let wall = Wall::new(&zone, span.0, span.1);
            let chosen = if is_long() { EXPRESSIONS.len() } else { 4 };
            for (expression, times) in random.choose_multiple(&every, chosen) {
                comparison.around(expression, (&name, times), &wall, span);
            }
        }
    }
    comparison.holds()
}

/// Half an hour, at midnight, a whole day, back in summer, offsets with quarters and with seconds.
#[test]
fn unusual_changes_of_offset_are_those_of_the_clock() -> Result<()> {
    let mut comparison = Comparison::new();
    for (name, from) in [
        ("Australia/Lord_Howe", "2026-12-01T00:00:00Z"),
        ("Pacific/Apia", "2011-12-01T00:00:00Z"),
        ("Pacific/Kwajalein", "1993-08-01T00:00:00Z"),
        ("America/Havana", "2026-01-01T00:00:00Z"),
        ("America/Sao_Paulo", "2018-01-01T00:00:00Z"),
        ("Asia/Beirut", "2026-01-01T00:00:00Z"),
        ("Africa/Casablanca", "2026-01-01T00:00:00Z"),
        ("Europe/Dublin", "2026-01-01T00:00:00Z"),
        ("Africa/Monrovia", "1972-01-01T00:00:00Z"),
        ("Asia/Kathmandu", "1985-12-01T00:00:00Z"),
        ("Pacific/Chatham", "2026-01-01T00:00:00Z"),
        ("America/Caracas", "2007-12-01T00:00:00Z"),
        ("America/St_Johns", "1988-01-01T00:00:00Z"),
        ("Antarctica/Troll", "2026-01-01T00:00:00Z"),
        ("Antarctica/Casey", "2018-01-01T00:00:00Z"),
        ("Asia/Pyongyang", "2015-01-01T00:00:00Z"),
        ("America/Nuuk", "2026-01-01T00:00:00Z"),
    ] {
        let zone = time_zone(name).map_err(Error::bug)?;
        let from = parse_timestamp(from).map_err(Error::bug)?;
        let changes = zone.following(instant((from.as_ms() / 1_000) as i64)).take(2);
        for change in changes.map(|change| change.timestamp().as_second()) {
            let span = (change - 2 * DAY - change.rem_euclid(60), change + 2 * DAY);
            let wall = Wall::new(&zone, span.0, span.1);
            for expression in EXPRESSIONS {
                comparison.around(expression, (name, &times(expression, name)?), &wall, span);
            }
        }
    }
    comparison.holds()
}

/// A field as people write them, and as they do not.
fn field(random: &mut fastrand::Rng, first: u32, last: u32) -> String {
    let mut number = || random.u32(first..=last);
    let (a, b) = (number(), number());
    let (a, b) = (a.min(b), a.max(b));
    match random.u32(0..100) {
        0..35 => "*".to_owned(),
        35..55 => a.to_string(),
        55..68 => format!("{a}-{b}"),
        68..80 => format!("*/{}", random.u32(1..=(last / 2).max(2))),
        80..88 => format!("{a}-{b}/{}", random.u32(1..=5)),
        88..92 => format!("{a}/{}", random.u32(1..=7)),
        92..94 => format!("*,{a}"),
        _ => format!("{a},{b},{}", random.u32(first..=last)),
    }
}

fn expression(random: &mut fastrand::Rng) -> String {
    let (minute, hour) = (field(random, 0, 59), field(random, 0, 23));
    let (mut day, month, mut weekday) = (field(random, 1, 31), field(random, 1, 12), field(random, 0, 7));
    match random.u32(0..10) {
        0 => day = "L".to_owned(),
        1 => day = format!("{}W", random.u32(1..=31)),
        2 => day = format!("{day},L,{}W", random.u32(1..=31)),
        3 => weekday = format!("{}L", random.u32(0..=7)),
        4 => weekday = format!("{}#{}", random.u32(0..=7), random.u32(1..=5)),
        5 => weekday = format!("{weekday},{}#{},{}L", random.u32(0..=7), random.u32(1..=5), random.u32(0..=7)),
        _ => {}
    }
    format!("{minute} {hour} {day} {month} {weekday}")
}

#[test]
fn random_expressions_in_random_zones_occur_when_the_clock_shows_them() -> Result<()> {
    let (mut random, mut comparison) = (fastrand::Rng::with_seed(7), Comparison::new());
    let zones = zones()?;
    let (expressions, probes) = if is_long() { (2_000, 100) } else { (150, 4) };
    for _ in 0..expressions {
        let (expression, name) = (expression(&mut random), &zones[random.usize(..zones.len())].0);
        let (zone, times) = (time_zone(name).map_err(Error::bug)?, times(&expression, name)?);
        let naive = Naive::new(&expression);
        for _ in 0..probes {
            // From 1990 to 2030, and what follows within 45 years.
            let last = 20 * YEAR + random.i64(0..40 * YEAR);
            let expected = naive.next(&zone, last, 45 * 366);
            let found = comparison.next(&times, last).filter(|at| expected.is_some() || *at < last + 45 * YEAR);
            comparison.expect(&format!("{expression} {name}"), last, found, expected);
        }
    }
    comparison.holds()
}

/// Each line: expression, zone, the time after which, and the occurrences that croniter found, in seconds since 1970.
#[test]
fn occurrences_are_those_of_croniter() -> Result<()> {
    const SOME: &str = include_str!("../../cron/croniter.txt");
    let generated = std::env::var_os("DWELL_CRONITER").map(std::fs::read_to_string).transpose();
    let generated = generated.map_err(|error| Error::bug(error.to_string()))?;
    let mut comparison = Comparison::new();
    for line in generated.as_deref().unwrap_or(SOME).lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [expression, zone, last, expected] = cells[..] else { return Err(Error::bug(line.to_owned())) };
        let mut last: i64 = last.parse().map_err(|_| Error::bug(line.to_owned()))?;
        let times = times(expression, zone)?;
        for at in expected.split(' ').filter(|at| !at.is_empty()) {
            let at = at.parse().map_err(|_| Error::bug(line.to_owned()))?;
            let found = comparison.next(&times, last);
            comparison.expect(&format!("{expression} {zone}"), last, found, Some(at));
            last = at;
        }
    }
    assert!(comparison.compared > 400);
    comparison.holds()
}

#[test]
fn search_ends_also_where_nothing_occurs() -> Result<()> {
    let (mut comparison, now) = (Comparison::new(), 56 * YEAR);
    for (expression, zone) in [
        ("0 0 30 2 *", "UTC"),
        ("0 0 31 2,4,6,9,11 *", "Europe/Berlin"),
        ("0 0 31W 11 *", "Australia/Lord_Howe"),
        ("0 0 30 FEB */7", "America/New_York"),
        ("* * 31 2,4,6 *", "Pacific/Apia"),
        // Minutes of an hour that the clock skips on that day of every year.
        ("* 0 * 3 0#2", "America/Havana"),
        ("*/15 2 * 3 0L", "Europe/Berlin"),
    ] {
        let (found, last) = (comparison.next(&times(expression, zone)?, now), now);
        // Berlin changes its clocks on that day as long as its rules stay, and Havana too.
        comparison.expect(&format!("{expression} {zone}"), last, found, None);
    }
    // On a Sunday, 29 February.
    let rare = comparison.next(&times("0 0 29 2 */7", "Asia/Tokyo")?, now);
    comparison.expect("a rare day", now, rare, Some(instant_of("2032-02-28T15:00:00Z")?));
    for timing in ["0 0 30 2 *", "0 0 31 4 */2"] {
        let timing = Timing::Cron { cron: timing.to_owned(), time_zone: "UTC".to_owned() };
        assert!(timing.check(Timestamp::ZERO).is_err_and(|error| error.detail().ends_with("never occurs")));
    }
    // The end of time.
    let end = times("* * * * *", "Pacific/Apia")?.search(Timestamp::from_ms(u64::MAX));
    assert_eq!(end.next, None);
    comparison.holds()
}

fn instant_of(text: &str) -> Result<i64> {
    Ok((parse_timestamp(text).map_err(Error::bug)?.as_ms() / 1_000) as i64)
}
