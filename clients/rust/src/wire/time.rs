//! Points in time and spans of time, and how people write them. This module reads no clock.

use std::fmt;
use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;
use jiff::{SignedDuration, SpanRelativeTo};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Integers below this are taken for seconds: as milliseconds they are before March 1973, as seconds before the year 5138.
const SECONDS_BELOW: u64 = 100_000_000_000;

/// A point in time: whole milliseconds since the Unix epoch, never negative.
///
/// Written as RFC 3339 in UTC with milliseconds, read as RFC 3339 with any offset or as integer milliseconds. Integers
/// that look like seconds are refused.
///
/// ```
/// use dwell_client::wire::time::Timestamp;
/// let t: Timestamp = "2026-01-02T03:04:05.678Z".parse()?;
/// assert_eq!(t, "1767323045678".parse()?);
/// assert_eq!(t.to_string(), "2026-01-02T03:04:05.678Z");
/// # Ok::<(), dwell_client::wire::time::NoTime>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

/// The last time dwell can write, the last millisecond of the year 9999.
const LAST_MS: u64 = 253_402_300_799_999;
/// 1970-01-01T00:00:00 in UTC. Dates reach further than jiff's timestamps, which end a day before the year 9999.
const EPOCH: DateTime = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);

impl Timestamp {
    pub const ZERO: Timestamp = Timestamp(0);

    /// From milliseconds since the Unix epoch; values past the year 9999 become its end.
    pub const fn from_ms(ms: u64) -> Timestamp {
        Timestamp(if ms > LAST_MS { LAST_MS } else { ms })
    }

    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// This time plus a span, rounded **up** to the millisecond: a delay never shrinks.
    pub fn plus(self, span: Duration) -> Timestamp {
        Timestamp::from_ms(self.0.saturating_add(ms_up(span)))
    }

    pub fn minus(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(ms_up(span)))
    }

    pub fn halfway(self, other: Timestamp) -> Timestamp {
        Timestamp(self.0.midpoint(other.0))
    }

    /// Digit by digit: each delivery is written with three times, and a formatter takes several times as long.
    fn written(self) -> Written {
        let ms = i64::try_from(self.0).unwrap_or(i64::MAX);
        let at = match jiff::Timestamp::from_millisecond(ms) {
            Ok(at) => Offset::UTC.to_datetime(at),
            Err(_) => EPOCH.checked_add(SignedDuration::from_millis(ms)).unwrap_or(DateTime::MAX),
        };
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |first: usize, last: usize, number: i32| {
            let mut left = number.unsigned_abs();
            for digit in text[first..=last].iter_mut().rev() {
                *digit = b'0' + (left % 10) as u8;
                left /= 10;
            }
        };
        put(0, 3, at.year().into());
        put(5, 6, at.month().into());
        put(8, 9, at.day().into());
        put(11, 12, at.hour().into());
        put(14, 15, at.minute().into());
        put(17, 18, at.second().into());
        put(20, 22, at.millisecond().into());
        Written(text)
    }

    /// The span since an earlier time; zero when `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Rounded **up** to the millisecond; a time before 1970 becomes 1970.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        Timestamp::ZERO.plus(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(time.0)
    }
}

pub fn ms_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.written().as_str())
    }
}

/// A time as text, without an allocation.
struct Written([u8; 24]);

impl Written {
    fn as_str(&self) -> &str {
        // Digits and signs are UTF-8.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Why a text is no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoTime(pub String);

impl fmt::Display for NoTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoTime {}

impl std::str::FromStr for Timestamp {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_timestamp(text).map_err(NoTime)
    }
}

/// Errors: neither RFC 3339 nor an integer, before 1970, past the year 9999, or an integer that looks like Unix
/// seconds.
pub fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    let wanted = "a time like 2026-01-02T03:04:05Z or integer Unix milliseconds";
    if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        return match text.parse() {
            Ok(ms) if ms < SECONDS_BELOW => Err(format!("{ms} looks like seconds; this takes milliseconds")),
            Ok(ms) if ms <= LAST_MS => Ok(Timestamp(ms)),
            _ => Err(format!("{} is past the year 9999; expected {wanted}", quoted(text))),
        };
    }
    let mut nanos = nanos_since_epoch(text)
        .ok_or_else(|| incomplete(text).unwrap_or_else(|| format!("{} is not {wanted}", quoted(text))))?;
    if is_leap_second(text) {
        // It was read as the second before, and a due time is never early.
        nanos += 1_000_000_000;
    }
    // Rounded up, so that a due time with microseconds is never early.
    let ms = nanos.div_euclid(1_000_000) + i128::from(nanos % 1_000_000 > 0);
    match u64::try_from(ms) {
        Ok(ms) if ms <= LAST_MS => Ok(Timestamp(ms)),
        _ => Err(format!("{} is before 1970 or past the year 9999", quoted(text))),
    }
}

/// Whether the second of a time is 60, as in `2016-12-31T23:59:60Z` or `20161231T235960Z`.
fn is_leap_second(text: &str) -> bool {
    let time = text.split_once(['T', 't', ' ']).map_or("", |(_, time)| time);
    let digits: Vec<u8> = time.bytes().filter(|byte| *byte != b':').take(6).collect();
    digits.iter().all(u8::is_ascii_digit) && digits.ends_with(b"60") && digits.len() == 6
}

fn nanos_since_epoch(text: &str) -> Option<i128> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(at.as_nanosecond());
    }
    // Perhaps it is in the last day of the year 9999.
    let pieces = Pieces::parse(text).ok()?;
    let offset = i128::from(pieces.to_numeric_offset()?.seconds());
    let at = pieces.date().to_datetime(pieces.time()?);
    Some(at.duration_since(EPOCH).as_nanos() - offset * 1_000_000_000)
}

fn incomplete(text: &str) -> Option<String> {
    let pieces = Pieces::parse(text).ok()?;
    let (date, shown) = (pieces.date(), quoted(text));
    match (pieces.time(), pieces.to_numeric_offset()) {
        (None, _) => Some(format!("{shown} needs a time and a zone; write {date}T09:00:00Z")),
        (Some(time), None) => Some(format!("{shown} needs a zone; write {date}T{time}Z, or {date}T{time}+02:00")),
        (Some(_), Some(_)) => None,
    }
}

/// Reads `30s`, `1h30m`, `30d` or `PT30M`, rounded **up** to the millisecond; the error says what is accepted.
///
/// # Errors
///
/// A number without a unit (also 0), a negative duration, and years and months, which have no fixed length.
///
/// ```
/// use dwell_client::wire::time::parse_span;
/// use std::time::Duration;
/// assert_eq!(parse_span("1h30m"), Ok(Duration::from_secs(5_400)));
/// assert_eq!(parse_span("PT30M"), Ok(Duration::from_secs(1_800)));
/// assert_eq!(parse_span("30").unwrap_err(), "30 has no unit; write \"30s\" or \"30ms\"");
/// assert!(parse_span("-5s").unwrap_err().contains("negative"));
/// ```
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let wanted = "a duration like \"30s\", \"1h30m\", \"30d\" or \"PT30M\"";
    if is_bare_number(text) {
        let number = cut(text.trim());
        return Err(format!("{number} has no unit; write \"{number}s\" or \"{number}ms\""));
    }
    if text.trim_start().starts_with('-') {
        return Err(format!("{} is negative; expected {wanted}", quoted(text)));
    }
    let span: jiff::Span = text.parse().map_err(|_| format!("{} is not {wanted}", quoted(text)))?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(format!("{}: years and months have no fixed length; use days, as in \"30d\"", quoted(text)));
    }
    let length: SignedDuration =
        span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| format!("{} is too long", quoted(text)))?;
    let length = Duration::try_from(length).map_err(|_| format!("{} is negative; expected {wanted}", quoted(text)))?;
    Ok(Duration::from_millis(ms_up(length)))
}

/// Reads a whole number of milliseconds, for a name that ends with `_ms`.
///
/// ```
/// use dwell_client::wire::time::parse_millis;
/// use std::time::Duration;
/// assert_eq!(parse_millis("30000"), Ok(Duration::from_secs(30)));
/// assert!(parse_millis("30s").is_err());
/// ```
pub fn parse_millis(text: &str) -> Result<Duration, String> {
    let ms = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let wanted = "a whole number of milliseconds, as in 30000";
    ms.filter(|ms| i64::try_from(*ms).is_ok())
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{} is not {wanted}", quoted(text)))
}

/// Also with a fraction or an exponent.
fn is_bare_number(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(|c: char| c.is_ascii_digit() || c == '.') && text.parse::<f64>().is_ok()
}

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A span as people write it, exact to the millisecond (rounded **up**): `1h30m`, `30d`, `250ms`; zero is `0s`.
/// [`parse_span`] reads it back.
pub fn show_span(span: Duration) -> String {
    let (mut left, mut text) = (ms_up(span), String::new());
    for (name, unit) in UNITS {
        if left >= unit {
            text.push_str(&format!("{}{name}", left / unit));
            left %= unit;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// A span that was measured, cut to what people read: `684ms`, `3.6s`, and from a minute the two largest units, `2h5m`.
///
/// ```
/// use dwell_client::wire::time::short_span;
/// use std::time::Duration;
/// assert_eq!(short_span(Duration::from_nanos(3_684_164_955)), "3.6s");
/// assert_eq!(short_span(Duration::from_secs(3_725)), "1h2m");
/// ```
pub fn short_span(span: Duration) -> String {
    let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    match UNITS.iter().position(|(_, unit)| ms >= *unit) {
        None | Some(4) => show_span(Duration::from_millis(ms)),
        Some(3) if ms % 1_000 < 100 => format!("{}s", ms / 1_000),
        Some(3) => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        Some(largest) => show_span(Duration::from_millis(ms - ms % UNITS[largest + 1].1)),
    }
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

fn cut(text: &str) -> String {
    if text.len() <= 30 { text.to_owned() } else { text.chars().take(30).chain("…".chars()).collect() }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.written().as_str())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrNumber {
            wanted: "a time (RFC 3339 text or integer Unix milliseconds)",
            parse: parse_timestamp,
        })
    }
}

/// A module `optional` beside `serialize` and `deserialize`, for `#[serde(default, with = "span::optional")]`: the field may
/// be absent, but not `null`.
macro_rules! optional {
    () => {
        pub mod optional {
            use super::*;

            pub fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
                match span {
                    Some(span) => super::serialize(span, serializer),
                    None => serializer.serialize_none(),
                }
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
                super::deserialize(deserializer).map(Some)
            }
        }
    };
}

/// `#[serde(with = "span")]` for a [`Duration`] that people write.
pub mod span {
    use super::*;

    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show_span(*span))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_any(TextOrNumber { wanted: "a duration (text like \"30s\")", parse: parse_span })
    }

    optional!();
}

/// `#[serde(with = "millis")]` for a [`Duration`] as a whole number of milliseconds. The name of the field ends with `_ms`.
pub mod millis {
    use super::*;

    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(ms_up(*span))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_any(Millis)
    }

    optional!();
}

struct Millis;

impl de::Visitor<'_> for Millis {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of milliseconds, as in 30000")
    }

    fn visit_u64<E: de::Error>(self, ms: u64) -> Result<Duration, E> {
        match i64::try_from(ms) {
            Ok(_) => Ok(Duration::from_millis(ms)),
            Err(_) => Err(E::invalid_value(de::Unexpected::Unsigned(ms), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, ms: i64) -> Result<Duration, E> {
        let negative = de::Unexpected::Signed(ms);
        u64::try_from(ms).map(Duration::from_millis).map_err(|_| E::invalid_value(negative, &self))
    }
}

/// Accepts what [`parse_timestamp`] or [`parse_span`] accepts. A number is read as its text is.
struct TextOrNumber<T> {
    wanted: &'static str,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> de::Visitor<'_> for TextOrNumber<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, ms: u64) -> Result<T, E> {
        (self.parse)(&ms.to_string()).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, ms: i64) -> Result<T, E> {
        (self.parse)(&ms.to_string()).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, ms: f64) -> Result<T, E> {
        (self.parse)(&ms.to_string()).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_jiff_writes_it() {
        let days = (0..400 * 366).map(|day| day * 86_400_000 + day * 12_345 % 86_400_000);
        for ms in days.chain([0, 1, 999, 951_782_400_000, LAST_MS - 1, LAST_MS, u64::MAX]) {
            let ms = Timestamp::from_ms(ms).as_ms();
            let at = EPOCH.checked_add(SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX)));
            let expected = at.map(|at| format!("{at:.3}Z")).unwrap_or_default();
            assert_eq!(Timestamp::from_ms(ms).to_string(), expected, "{ms}");
        }
    }

    #[test]
    fn common_duration_forms_are_parsed() {
        let accepted = [
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("PT30M", 1_800_000),
            ("P30D", 2_592_000_000),
            ("30d", 2_592_000_000),
            ("2w", 1_209_600_000),
            ("0s", 0),
            ("1.5s", 1_500),
            ("PT0.0001S", 1),
            ("1500ms", 1_500),
        ];
        for (text, ms) in accepted {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "s",
            "30 parsecs",
            "-1",
            "-1s",
            "1mo",
            "1y",
            "99999999999999999999ms",
            "0",
            "30",
            " 30 ",
            "1.5",
            "1e3",
            "\u{0}",
        ] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn number_without_unit_is_refused_as_text_and_as_number() {
        #[derive(Debug, Deserialize)]
        struct Asked {
            #[serde(with = "span")]
            delay: Duration,
        }
        let read = |json: &str| serde_json::from_str::<Asked>(json).map(|asked| asked.delay);
        for number in ["0", "30", "1.5", "1e3"] {
            assert!(parse_span(number).is_err_and(|why| why.contains("has no unit; write")), "{number}");
            let said = read(&format!("{{\"delay\": {number}}}")).map_err(|error| error.to_string());
            assert!(said.is_err_and(|why| why.contains("has no unit; write")), "{number}");
        }
        assert_eq!(read("{\"delay\": \"30s\"}").ok(), Some(Duration::from_secs(30)));
        let long = "9".repeat(1_000);
        assert!(parse_span(&long).is_err_and(|why| why.len() < 200));
    }

    #[test]
    fn integer_that_looks_like_seconds_is_refused() {
        for seconds in ["0", "7", "1800000000", "99999999999"] {
            let said = format!("{seconds} looks like seconds; this takes milliseconds");
            assert_eq!(parse_timestamp(seconds), Err(said));
        }
        assert_eq!(parse_timestamp("100000000000"), Ok(Timestamp(100_000_000_000)));
    }

    #[test]
    fn display_form_round_trips() {
        for ms in [0, 1, 250, 1_000, 61_001, 86_400_000, 2_592_000_000] {
            let span = Duration::from_millis(ms);
            assert_eq!(parse_span(&show_span(span)), Ok(span), "{}", show_span(span));
        }
    }

    #[test]
    fn a_measured_span_has_at_most_two_units() {
        let cases = [
            (0, "0s"),
            (999, "0s"),
            (12_900, "12ms"),
            (999_999, "999ms"),
            (3_000_000, "3s"),
            (3_684_164, "3.6s"),
            (59_999_999, "59.9s"),
            (60_000_000, "1m"),
            (134_500_000, "2m14s"),
            (3_605_000_000, "1h"),
            (86_400_000_000 * 3 + 3_600_000_000 * 4 + 60_000_000, "3d4h"),
        ];
        for (us, text) in cases {
            assert_eq!(short_span(Duration::from_micros(us)), text);
        }
        assert_eq!(show_span(Duration::from_nanos(1)), "1ms");
    }

    #[test]
    fn incomplete_time_error_says_what_is_missing() {
        let said = |text| parse_timestamp(text).err().unwrap_or_default();
        assert_eq!(said("2026-12-24"), "\"2026-12-24\" needs a time and a zone; write 2026-12-24T09:00:00Z");
        let zone = "needs a zone; write 2026-12-24T18:30:00Z, or 2026-12-24T18:30:00+02:00";
        assert_eq!(said("2026-12-24T18:30"), format!("\"2026-12-24T18:30\" {zone}"));
        assert_eq!(said("2026-12-24 18:30:00"), format!("\"2026-12-24 18:30:00\" {zone}"));
        assert!(said("tomorrow").contains("is not a time like"));
    }

    #[test]
    fn times_round_up_and_stay_in_range() {
        assert_eq!(parse_timestamp("1970-01-01T00:00:00.0001Z"), Ok(Timestamp(1)));
        assert_eq!(parse_timestamp("1970-01-01T01:00:00+01:00"), Ok(Timestamp(0)));
        assert!(parse_timestamp("1969-12-31T23:59:59Z").is_err());
        assert!(parse_timestamp("2026-01-02").is_err());
        let last = "9999-12-31T23:59:59.999Z";
        assert_eq!(Timestamp::from_ms(u64::MAX).to_string(), last);
        let same = ["253402300799999", last, "9999-12-31T22:59:59.999-01:00", "9999-12-31T23:59:59.9989999Z"];
        assert!(same.iter().all(|text| parse_timestamp(text) == Ok(Timestamp(LAST_MS))));
        for day in ["9999-12-30T21:59:59.000Z", "9999-12-30T22:00:01.000Z", "9999-12-31T00:00:00.000Z"] {
            assert_eq!(parse_timestamp(day).map(|time| time.to_string()).as_deref(), Ok(day));
        }
        for past in ["253402300800000", "9999-12-31T23:59:59.9991Z", "9999-12-31T23:59:59Z[", "9999-12-31T23:59:59"] {
            assert!(parse_timestamp(past).is_err(), "{past}");
        }
        assert!(parse_timestamp("9999-12-31T23:59:59-01:00").is_err());
        assert_eq!(parse_timestamp("2026-01-02T03:04:05-06:00").map(|at| at.as_ms() % 60_000), Ok(5_000));
        for leap in ["2016-12-31T23:59:60Z", "20161231T235960Z", "2017-01-01 00:59:60+01:00"] {
            assert_eq!(parse_timestamp(leap).map(|at| at.to_string()).as_deref(), Ok("2017-01-01T00:00:00.000Z"));
        }
        assert_eq!(Timestamp(5).plus(Duration::from_nanos(1)), Timestamp(6));
    }
}
