//! Values of the command line, checked with the same limits as everywhere.

use std::sync::LazyLock;
use std::time::Duration;

use clap::Args;
use dwell_client::wire::groups;
use dwell_client::wire::topics::DeadLetter;
use serde::de::DeserializeOwned;

use crate::model::limits::{VISIBILITY_TIMEOUT_MAX, VISIBILITY_TIMEOUT_MIN};
use crate::model::message::{Conflict, CronJobName, DedupKey, GroupName, Key, MessageId, Past, TopicName};
use crate::model::retry::{Backoff, LadderStep, OnFailure};
use crate::model::time::{Timestamp, parse_span, parse_timestamp, show_span};
use crate::model::topic::{Expiry, Fairness, Ordering, Rate};
use crate::model::trace::TraceContext;
use crate::model::window::DeliveryWindow;
use crate::platform::clock::Clock;

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// The topic
    #[arg(value_parser = topic)]
    pub(crate) topic: TopicName,
    /// The group
    #[arg(long, default_value = "default", value_parser = group)]
    pub(crate) group: GroupName,
}

impl GroupArgs {
    pub(crate) fn names(&self) -> (&str, &str) {
        (self.topic.as_str(), self.group.as_str())
    }
}

/// The time that all relative times of a command line start from: the hour from `now` to `+1h` is no longer than that.
static NOW: LazyLock<Timestamp> = LazyLock::new(|| Clock::System.now());

/// The detail of an error alone, since clap names the argument.
fn detail<T>(result: crate::model::error::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.detail().to_owned())
}

macro_rules! parsers {
    ($($name:ident: $kind:ty = $read:expr,)*) => {
        $(pub(crate) fn $name(text: &str) -> Result<$kind, String> {
            detail($read(text))
        })*
    };
}

parsers! {
    topic: TopicName = TopicName::new,
    group: GroupName = GroupName::new,
    cron_name: CronJobName = CronJobName::new,
    id: MessageId = MessageId::new,
    key: Key = Key::new,
    dedup_key: DedupKey = DedupKey::new,
    conflict: Conflict = str::parse,
    on_failure: OnFailure = str::parse,
    past: Past = str::parse,
}

/// The name of a context: as that of a topic.
pub(crate) fn context(text: &str) -> Result<String, String> {
    topic(text).map(|name| name.to_string())
}

pub(crate) fn traceparent(text: &str) -> Result<TraceContext, String> {
    detail(TraceContext::parse(text, None))
}

/// A time as the API takes it, or one relative to now: `now`, `+1h`, `-30m`.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    time_at(text, *NOW)
}

fn time_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if text == "now" {
        return Ok(now);
    }
    if let Some(span) = text.strip_prefix('+') {
        return parse_span(span).map(|span| now.plus(span));
    }
    if let Some(span) = text.strip_prefix('-') {
        return parse_span(span).map(|span| now.minus(span));
    }
    let is_date = text.starts_with(|c: char| c.is_ascii_digit());
    parse_timestamp(text).map_err(|why| if is_date { why } else { format!("{why}, nor now, +1h or -1h") })
}

pub(crate) fn visibility_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_span(text)?;
    if (VISIBILITY_TIMEOUT_MIN..=VISIBILITY_TIMEOUT_MAX).contains(&timeout) {
        return Ok(timeout);
    }
    Err(format!("is not in {} to {}", show_span(VISIBILITY_TIMEOUT_MIN), show_span(VISIBILITY_TIMEOUT_MAX)))
}

pub(crate) fn rate(text: &str) -> Result<f64, String> {
    Rate::read_limit(text).map(|limit| limit.map_or(0.0, f64::from))
}

/// `{}` for `none`.
pub(crate) fn window(text: &str) -> Result<groups::DeliveryWindow, String> {
    match text {
        "none" => Ok(groups::DeliveryWindow::default()),
        _ => text.parse::<DeliveryWindow>().map(Into::into),
    }
}

pub(crate) fn ordering(text: &str) -> Result<Ordering, String> {
    let found = Ordering::ALL.iter().find(|ordering| ordering.name() == text);
    found.copied().ok_or_else(|| "expected none or key".to_owned())
}

pub(crate) fn fairness(text: &str) -> Result<Fairness, String> {
    Fairness::read(text).map_err(|_| "expected none or key".to_owned())
}

/// An object of a request.
pub(crate) fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

pub(crate) fn expiry(text: &str) -> Result<Expiry, String> {
    Expiry::named(text).ok_or_else(|| "expected drop or bury".to_owned())
}

/// `name=value`, the name in lower case as it will be.
pub(crate) fn meta(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_ascii_lowercase(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// `name=text`; an empty text removes the annotation.
pub(crate) fn annotation(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, text)) if !name.is_empty() => Ok((name.to_owned(), text.to_owned())),
        _ => Err("expected NAME=TEXT".to_owned()),
    }
}

/// A topic, or nothing for none.
pub(crate) fn dead_letter(text: &str) -> Result<DeadLetter, String> {
    if !text.is_empty() {
        topic(text)?;
    }
    Ok(DeadLetter { topic: text.to_owned() })
}

/// `1s,10s,1m` is a ladder, `exponential:initial=1s,max=10m,factor=2,jitter=0.2` is exponential; what is left out of
/// the latter has its default.
pub(crate) fn backoff(text: &str) -> Result<Backoff, String> {
    let backoff = match text.split_once(':').map_or((text, ""), |(kind, rest)| (kind, rest)) {
        ("exponential", rest) => exponential(rest)?,
        ("ladder", rest) => ladder(rest)?,
        _ => ladder(text)?,
    };
    detail(backoff.check()).map(|()| backoff)
}

fn ladder(text: &str) -> Result<Backoff, String> {
    let steps = text.split(',').map(|step| parse_span(step.trim()).map(LadderStep)).collect::<Result<_, _>>()?;
    Ok(Backoff::Ladder { steps })
}

fn exponential(text: &str) -> Result<Backoff, String> {
    let mut backoff = Backoff::default();
    let Backoff::Exponential { initial, max, factor, jitter } = &mut backoff else { return Ok(backoff) };
    let number = |text: &str| text.parse::<f64>().map_err(|_| format!("{text:?} is not a number"));
    for part in text.split(',').filter(|part| !part.is_empty()) {
        match part.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
            Some(("initial", value)) => *initial = parse_span(value)?,
            Some(("max", value)) => *max = parse_span(value)?,
            Some(("factor", value)) => *factor = number(value)?,
            Some(("jitter", value)) => *jitter = number(value)?,
            _ => return Err(format!("{part:?} is none of initial=, max=, factor=, jitter=")),
        }
    }
    Ok(backoff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_backoff_forms_are_parsed() {
        let secs = Duration::from_secs;
        assert_eq!(backoff("1s, 1m"), Ok(Backoff::Ladder { steps: vec![LadderStep(secs(1)), LadderStep(secs(60))] }));
        assert_eq!(backoff("ladder:5s"), Ok(Backoff::Ladder { steps: vec![LadderStep(secs(5))] }));
        assert_eq!(backoff("exponential"), Ok(Backoff::default()));
        let half = Backoff::Exponential { initial: secs(2), max: secs(600), factor: 1.5, jitter: 0.2 };
        assert_eq!(backoff("exponential:initial=2s,factor=1.5"), Ok(half));
        for bad in ["", "x", "exponential:min=1s", "exponential:factor=0", "exponential:initial=1h,max=1s"] {
            assert!(backoff(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_absolute_or_relative_to_now() {
        let now = Timestamp::from_ms(1_767_323_045_000);
        let cases = [("now", 0), ("+1h", 3_600_000), ("-1h30m", -5_400_000), ("1767323046000", 1_000)];
        for (text, ahead) in cases {
            let expected = Timestamp::from_ms(now.as_ms().saturating_add_signed(ahead));
            assert_eq!(time_at(text, now), Ok(expected), "{text}");
        }
        assert!(time_at("+1", now).is_err_and(|why| why.contains("has no unit")));
        assert!(time_at("tomorrow", now).is_err_and(|why| why.ends_with("nor now, +1h or -1h")));
        assert!(time_at("2026-12-24", now).is_err_and(|why| why.ends_with("write 2026-12-24T09:00:00Z")));
    }

    #[test]
    fn meta_has_a_name_in_lower_case_and_any_value() {
        assert_eq!(meta("Trace=a=b"), Ok(("trace".to_owned(), "a=b".to_owned())));
        assert!(meta("trace").is_err() && meta("=x").is_err());
    }
}
