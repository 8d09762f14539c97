use super::*;
use crate::model::time::parse_timestamp;

type Outcome = std::result::Result<(), String>;

fn at(text: &str) -> Result<Timestamp, String> {
    parse_timestamp(text)
}

fn phase(window: &str, now: &str) -> Result<Phase, String> {
    Ok(window.parse::<DeliveryWindow>()?.phase(at(now)?))
}

fn open(since: &str, until: &str) -> Result<Phase, String> {
    Ok(Phase::Open { since: at(since)?, until: at(until)? })
}

fn closed(opens_at: &str) -> Result<Phase, String> {
    Ok(Phase::Closed { opens_at: Some(at(opens_at)?) })
}

#[test]
fn window_is_open_from_its_opening_up_to_its_closing() -> Outcome {
    let office = "mon-fri 09:00-17:30 Europe/Berlin";
    // A Wednesday in winter.
    let wednesday = open("2026-01-14T08:00:00Z", "2026-01-14T16:30:00Z")?;
    assert_eq!(phase(office, "2026-01-14T07:59:59.999Z")?, closed("2026-01-14T08:00:00Z")?);
    assert_eq!(phase(office, "2026-01-14T08:00:00Z")?, wednesday);
    assert_eq!(phase(office, "2026-01-14T16:29:59.999Z")?, wednesday);
    assert_eq!(phase(office, "2026-01-14T16:30:00Z")?, closed("2026-01-15T08:00:00Z")?);
    // From Friday to Monday.
    assert_eq!(phase(office, "2026-01-16T16:30:00Z")?, closed("2026-01-19T08:00:00Z")?);
    Ok(())
}

#[test]
fn window_over_midnight_belongs_to_the_day_on_which_it_begins() -> Outcome {
    let night = "fri 22:00-06:00";
    assert_eq!(phase(night, "2026-01-16T05:00:00Z")?, closed("2026-01-16T22:00:00Z")?);
    assert_eq!(phase(night, "2026-01-17T05:59:00Z")?, open("2026-01-16T22:00:00Z", "2026-01-17T06:00:00Z")?);
    assert_eq!(phase(night, "2026-01-17T22:30:00Z")?, closed("2026-01-23T22:00:00Z")?);
    Ok(())
}

#[test]
fn time_in_a_gap_of_the_clock_is_right_after_it() -> Outcome {
    // On 2026-03-29 the clock goes from 02:00 to 03:00, at 01:00 UTC.
    let (opens, closes) = ("02:30-04:00 Europe/Berlin", "01:00-02:30 Europe/Berlin");
    assert_eq!(phase(opens, "2026-03-29T00:59:59Z")?, closed("2026-03-29T01:00:00Z")?);
    assert_eq!(phase(opens, "2026-03-29T01:00:00Z")?, open("2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z")?);
    assert_eq!(phase(closes, "2026-03-29T00:59:59Z")?, open("2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z")?);
    assert_eq!(phase(closes, "2026-03-29T01:00:00Z")?, closed("2026-03-29T23:00:00Z")?);
    // One that the gap takes as a whole is not open on that day.
    let gone = "sun 02:10-02:50 Europe/Berlin";
    assert_eq!(phase(gone, "2026-03-29T00:30:00Z")?, closed("2026-04-05T00:10:00Z")?);
    Ok(())
}

#[test]
fn time_that_comes_twice_counts_once_at_the_first() -> Outcome {
    // On 2026-10-25 the clock goes from 03:00 back to 02:00, at 01:00 UTC.
    let (opens, closes) = ("02:30-04:00 Europe/Berlin", "01:00-02:30 Europe/Berlin");
    let long = open("2026-10-25T00:30:00Z", "2026-10-25T03:00:00Z")?;
    assert_eq!(phase(opens, "2026-10-25T00:30:00Z")?, long);
    // The clock shows 02:10 for the second time.
    assert_eq!(phase(opens, "2026-10-25T01:10:00Z")?, long);
    assert_eq!(phase(closes, "2026-10-25T00:29:59Z")?, open("2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z")?);
    assert_eq!(phase(closes, "2026-10-25T01:10:00Z")?, closed("2026-10-26T00:00:00Z")?);
    Ok(())
}

#[test]
fn day_that_a_time_zone_skips_has_no_window() -> Outcome {
    // Samoa went from Thursday 2011-12-29 to Saturday 2011-12-31, at 10:00 UTC.
    assert_eq!(phase("fri 09:00-17:00 Pacific/Apia", "2011-12-30T09:00:00Z")?, closed("2012-01-05T19:00:00Z")?);
    let night = phase("thu 20:00-10:00 Pacific/Apia", "2011-12-30T08:00:00Z")?;
    assert_eq!(night, open("2011-12-30T06:00:00Z", "2011-12-30T10:00:00Z")?);
    Ok(())
}

#[test]
fn every_minute_of_two_weeks_is_as_the_clock_says() -> Outcome {
    let monday = at("2026-01-12T00:00:00Z")?;
    for text in ["mon,wed 09:00-17:30", "22:00-06:00", "sat-sun 00:00-23:59", "sun 23:00-01:00", "12:00-11:59"] {
        let window: DeliveryWindow = text.parse()?;
        let minutes = |time: Time| i64::from(time.hour()) * 60 + i64::from(time.minute());
        let (from, to) = (minutes(window.from), minutes(window.to));
        let length = (to - from).rem_euclid(1_440);
        let is_open = |minute: u64| {
            (0..7).filter(|day| window.days.has(*day)).any(|day| {
                let begins = i64::try_from(day).unwrap_or(0) * 1_440 + from;
                (i64::try_from(minute).unwrap_or(0) - begins).rem_euclid(7 * 1_440) < length
            })
        };
        for minute in 0..14 * 1_440 {
            let now = monday.plus(Duration::from_secs(minute * 60));
            let phase = window.phase(now);
            assert_eq!(matches!(phase, Phase::Open { .. }), is_open(minute), "{text}, minute {minute}");
            let changes = match phase {
                Phase::Open { until, .. } => until,
                Phase::Closed { opens_at } => opens_at.ok_or("it never opens")?,
            };
            assert!(changes > now && changes.since(now) <= WEEK, "{text}, minute {minute}");
        }
        let open_of = |from: u64, to: u64| (from..to).filter(|minute| is_open(*minute)).count();
        for (from, to) in [(0, 13), (600, 1_000), (17, 9_000), (600, 14 * 1_440), (1, 33 * 1_440 + 611)] {
            let (span, now) = (Duration::from_secs((to - from) * 60), monday.plus(Duration::from_secs(to * 60)));
            let expected = Duration::from_secs(open_of(from, to) as u64 * 60);
            assert_eq!(window.open_within(span, now), expected, "{text}, {from} to {to}");
        }
    }
    Ok(())
}

#[test]
fn closed_time_is_left_out_of_a_span() -> Outcome {
    let office: DeliveryWindow = "mon-fri 09:00-17:30 Europe/Berlin".parse()?;
    let within = |from: &str, to: &str| Ok::<_, String>(office.open_within(at(to)?.since(at(from)?), at(to)?));
    let opened = "2026-01-19T08:00:05Z";
    assert_eq!(within("2026-01-16T19:00:00Z", opened)?, Duration::from_secs(5));
    assert_eq!(within("2026-01-16T16:00:00Z", opened)?, Duration::from_secs(30 * 60 + 5));
    assert_eq!(within("2026-01-19T08:00:01Z", opened)?, Duration::from_secs(4));
    // While it is closed nothing becomes later.
    assert_eq!(within("2026-01-16T16:00:00Z", "2026-01-18T12:00:00Z")?, Duration::from_secs(30 * 60));
    // A year is computed, not walked through.
    let day = 8 * 3_600 + 1_800;
    assert_eq!(within("2025-01-20T07:00:00Z", "2026-01-19T07:00:00Z")?, Duration::from_secs(52 * 5 * day));
    assert_eq!(office.open_within(Duration::MAX, Timestamp::from_ms(0)), Duration::ZERO);
    Ok(())
}

#[test]
fn spelling_is_read_and_printed() -> Outcome {
    let same = ["mon-fri 09:00-17:30 Europe/Berlin", "22:00-06:00 UTC", "mon,tue,thu-sun 00:00-23:59 Asia/Tokyo"];
    for text in same {
        assert_eq!(text.parse::<DeliveryWindow>()?.to_string(), text);
    }
    let others = [
        ("09:00-17:30", "09:00-17:30 UTC"),
        ("fri-mon 09:00-17:30", "mon,fri-sun 09:00-17:30 UTC"),
        ("mon-sun  09:00-17:30 UTC", "09:00-17:30 UTC"),
        ("tue,mon 09:00-17:30", "mon,tue 09:00-17:30 UTC"),
    ];
    for (text, printed) in others {
        assert_eq!(text.parse::<DeliveryWindow>()?.to_string(), printed);
    }
    let refused = [
        ("", "is not a window"),
        ("mon-fri", "is not a window"),
        ("mon fri 09:00-17:00", "is not a window"),
        ("09:00-17:00 Europe Berlin", "is not a window"),
        ("09:00", "not a span of two times"),
        ("9:00-17:00", "two digits"),
        ("09:00-24:00", "00:00 to 23:59"),
        ("09:00-+1:00", "two digits"),
        ("monday 09:00-17:00", "\"monday\" is none of mon, tue"),
        ("mon,mon 09:00-17:00", "mon is given twice"),
        ("mon-wed,tue 09:00-17:00", "tue is given twice"),
        ("09:00-09:00", "a window of no minutes"),
        ("09:00-17:00 Europe/Berlim", "time zone"),
    ];
    for (text, why) in refused {
        let error = text.parse::<DeliveryWindow>().err().ok_or_else(|| format!("{text} is read"))?;
        assert!(error.contains(why), "{text}: {error}");
    }
    Ok(())
}

#[test]
fn wrong_field_of_a_window_is_named() -> serde_json::Result<()> {
    let read = |json: &str| serde_json::from_str(json).map(DeliveryWindow::read);
    assert_eq!(read("{}")?, Ok(None));
    let window = read(r#"{"from": "22:00", "to": "06:00"}"#)?;
    assert_eq!(window.map(|window| window.map(|window| window.to_string())), Ok(Some("22:00-06:00 UTC".to_owned())));
    let cases = [
        (r#"{"days": ["mon"], "to": "06:00"}"#, "from", Fault::Missing),
        (r#"{"from": "06:00"}"#, "to", Fault::Missing),
        (r#"{"from": "06:00", "to": "06:00"}"#, "to", Fault::Range),
        (r#"{"from": "6:00", "to": "06:00"}"#, "from", Fault::Format),
        (r#"{"from": "06:00", "to": "24:00"}"#, "to", Fault::Format),
        (r#"{"days": [], "from": "06:00", "to": "07:00"}"#, "days", Fault::Range),
        (r#"{"days": ["Mon"], "from": "06:00", "to": "07:00"}"#, "days", Fault::Choice),
        (r#"{"days": ["mon", "mon"], "from": "06:00", "to": "07:00"}"#, "days", Fault::Repeated),
        (r#"{"from": "06:00", "to": "07:00", "time_zone": "Europe/Berlim"}"#, "time_zone", Fault::Format),
    ];
    for (json, name, fault) in cases {
        let error = read(json)?.err();
        let field = error.as_ref().and_then(|error| error.field().map(|(name, fault, _)| (name, fault)));
        assert_eq!(field, Some((name, fault)), "{json}: {error:?}");
    }
    Ok(())
}

#[test]
fn window_with_a_time_zone_of_a_later_version_stays_closed() -> serde_json::Result<()> {
    let stored = r#"{"days":["mon"],"from":"09:00","to":"17:30","time_zone":"Mars/Olympus"}"#;
    let window: DeliveryWindow = serde_json::from_str(stored)?;
    assert_eq!(window.phase(Timestamp::from_ms(1_800_000_000_000)), Phase::Closed { opens_at: None });
    assert_eq!(serde_json::to_string(&window)?, stored);
    Ok(())
}
