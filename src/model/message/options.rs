//! Options of a push: the due time, and deduplication, whose window begins with the push: a second push of a dedup key within
//! the window of the first is a duplicate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Conflict, check_printable};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{DEDUP_FOR_MAX, DEDUP_FOR_MIN, DEDUP_KEY_BYTES_MAX, DELAY_MAX};
use crate::model::spelling::names;
use crate::model::time::Timestamp;

/// The due time of a push or a reschedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    In(Duration),
    /// At this time; a time in the past is due at once.
    At(Timestamp),
    /// At this time; a time in the past is refused.
    Ahead(Timestamp),
}

/// Policy of a push or a reschedule with a due time in the past.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Past {
    #[default]
    Now,
    Reject,
}

names! { Past::name:
    Now => "now",
    Reject => "reject",
}

impl Past {
    pub fn due(self, at: Timestamp) -> Due {
        match self {
            Past::Now => Due::At(at),
            Past::Reject => Due::Ahead(at),
        }
    }
}

impl std::str::FromStr for Past {
    type Err = Error;

    fn from_str(text: &str) -> Result<Past> {
        let known = Past::ALL.into_iter().find(|past| past.name() == text);
        known.ok_or_else(|| Error::wrong(Fault::Choice, "past", format!("{text:?} is none of now, reject")))
    }
}

impl Due {
    pub fn later(self, by: Duration) -> Due {
        match self {
            Due::In(delay) => Due::In(delay.saturating_add(by)),
            Due::At(at) => Due::At(at.plus(by)),
            Due::Ahead(at) => Due::Ahead(at.plus(by)),
        }
    }

    /// Fixed when it is accepted. Errors: `Invalid` past [`DELAY_MAX`], and for [`Due::Ahead`] in the past.
    pub fn fix(self, now: Timestamp) -> Result<Timestamp> {
        let (field, at) = match self {
            Due::In(delay) => ("delay", now.plus(delay)),
            Due::Ahead(at) if at < now => {
                return Err(Error::range(
                    "due_at",
                    format!("{at} is in the past; `past` as \"now\" makes it due at once"),
                ));
            }
            Due::At(at) | Due::Ahead(at) => ("due_at", at.max(now)),
        };
        if at > now.plus(DELAY_MAX) {
            let days = DELAY_MAX.as_secs() / 86_400;
            return Err(Error::range(field, format!("a message is due at most {days} days ahead")));
        }
        Ok(at)
    }
}

text_type! {
    /// A dedup key: 1 to 128 bytes of UTF-8 without control characters.
    DedupKey, "dedup_key", check_dedup_key
}

/// The beginning of the dedup keys of gateways: those of a producer are others, so that no push takes the place of a message that a
/// client of another protocol sends.
pub const GATEWAY_DEDUP_PREFIX: &str = "sqs/";

impl DedupKey {
    /// The key of a producer. Errors: `Invalid`, also for one that only a gateway makes.
    pub fn of_producer(text: impl Into<String>) -> Result<DedupKey> {
        let key = DedupKey::new(text.into())?;
        match key.as_str().starts_with(GATEWAY_DEDUP_PREFIX) {
            true => {
                let why = format!("{:?} begins with {GATEWAY_DEDUP_PREFIX:?}, which is reserved", key.as_str());
                Err(Error::wrong(Fault::Format, "dedup_key", why))
            }
            false => Ok(key),
        }
    }
}

/// A dedup key, and how long from its push on it makes other pushes duplicates: 1 s to 7 days.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedup {
    pub key: DedupKey,
    pub window: Duration,
}

impl Dedup {
    /// Of a request that gives both or neither. Errors: `Invalid` for one without the other, or a window out of range.
    pub fn of(key: Option<DedupKey>, window: Option<Duration>) -> Result<Option<Dedup>> {
        match (key, window) {
            (None, None) => Ok(None),
            (Some(key), Some(window)) => {
                let dedup = Dedup { key, window };
                dedup.check(Conflict::Keep)?;
                Ok(Some(dedup))
            }
            (Some(_), None) => Err(Error::wrong(Fault::Missing, "dedup_for", "is missing, and `dedup_key` needs it")),
            (None, Some(_)) => Err(Error::wrong(Fault::Exclusive, "dedup_for", "is given without `dedup_key`")),
        }
    }

    pub(super) fn check(&self, conflict: Conflict) -> Result<()> {
        if conflict != Conflict::Keep {
            let why = format!("is given together with conflict={}; it goes only with keep", conflict.name());
            return Err(Error::wrong(Fault::Exclusive, "dedup_key", why));
        }
        match (DEDUP_FOR_MIN..=DEDUP_FOR_MAX).contains(&self.window) {
            true => Ok(()),
            false => Err(Error::range("dedup_for", "is not in 1 s to 7 days")),
        }
    }
}

fn check_dedup_key(text: &str) -> Result<(), String> {
    check_printable("a dedup key", text, DEDUP_KEY_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::NewMessage;

    #[test]
    fn past_due_time_is_now_and_a_distant_one_is_refused() {
        let now = Timestamp::from_ms(1_000);
        assert_eq!(Due::At(Timestamp::ZERO).fix(now), Ok(now));
        assert_eq!(Due::Ahead(now).fix(now), Ok(now));
        assert!(
            Due::Ahead(Timestamp::from_ms(999)).fix(now).is_err_and(|error| error.detail().contains("in the past"))
        );
        assert_eq!(Due::In(DELAY_MAX).fix(now), Ok(now.plus(DELAY_MAX)));
        assert!(Due::In(DELAY_MAX + Duration::from_millis(1)).fix(now).is_err());
    }

    #[test]
    fn dedup_key_needs_a_window_and_excludes_a_conflict_policy() -> Result<()> {
        let (key, now) = (DedupKey::new("order 4711/é")?, Timestamp::from_ms(1));
        assert!(DedupKey::new("").is_err() && DedupKey::new("a\u{0}").is_err());
        assert!(DedupKey::new("a".repeat(DEDUP_KEY_BYTES_MAX)).is_ok());
        assert!(DedupKey::new("a".repeat(DEDUP_KEY_BYTES_MAX + 1)).is_err());
        assert_eq!(Dedup::of(None, None)?, None);
        for (key, window) in [(Some(key.clone()), None), (None, Some(DEDUP_FOR_MIN))] {
            let error = Dedup::of(key, window).map_err(|error| error.field().map(|(field, ..)| field.to_owned()));
            assert_eq!(error, Err(Some("dedup_for".to_owned())));
        }
        let push = |window| NewMessage::new("x").dedup(key.clone(), window);
        for window in [DEDUP_FOR_MIN, DEDUP_FOR_MAX] {
            assert!(push(window).accept(now).is_ok());
        }
        for window in [DEDUP_FOR_MIN - Duration::from_millis(1), DEDUP_FOR_MAX + Duration::from_millis(1)] {
            assert!(push(window).accept(now).is_err());
        }
        for conflict in Conflict::ALL {
            assert_eq!(push(DEDUP_FOR_MIN).on_conflict(conflict).accept(now).is_ok(), conflict == Conflict::Keep);
        }
        Ok(())
    }
}
