//! Deduplication counted from the push: a second push of a dedup key within the window of the first is a duplicate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Conflict, check_printable};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{DEDUP_FOR_MAX, DEDUP_FOR_MIN, DEDUP_KEY_BYTES_MAX};

text_type! {
    /// A dedup key: 1 to 128 bytes of UTF-8 without control characters.
    DedupKey, "dedup_key", check_dedup_key
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
    use crate::model::time::Timestamp;

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
