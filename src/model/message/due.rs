//! When a message is due, as its producer wrote it.

use std::time::Duration;

use crate::model::error::{Error, Fault, Result};
use crate::model::limits::DELAY_MAX;
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
    /// Fixed when it is accepted. Errors: `Invalid` past [`DELAY_MAX`], and for [`Due::Ahead`] in the past.
    pub fn fix(self, now: Timestamp) -> Result<Timestamp> {
        let (field, at) = match self {
            Due::In(delay) => ("delay", now.plus(delay)),
            Due::Ahead(at) if at < now => {
                return Err(Error::range("due_at", format!("{at} is in the past, and `past` is reject")));
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
