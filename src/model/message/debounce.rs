//! Debouncing with a bound: a message is never moved further than `debounce_max` from its first push.

use super::{Conflict, Message, NewMessage, check_span};
use crate::model::error::{Error, Fault, Result};
use crate::model::time::Timestamp;

impl NewMessage {
    /// Errors: `Invalid` with another policy than [`Conflict::Debounce`], which moves nothing, or out of range.
    pub(super) fn check_debounce_max(&self) -> Result<()> {
        let Some(max) = self.debounce_max else { return Ok(()) };
        if self.conflict != Conflict::Debounce {
            return Err(Error::wrong(Fault::Exclusive, "debounce_max", "is given without `conflict` as \"debounce\""));
        }
        check_span("debounce_max", max)
    }
}

impl Message {
    /// When it is due if the message that waits was pushed first at this time.
    pub fn due_after(&self, first_push: Timestamp) -> Timestamp {
        self.debounce_max.map_or(self.due_at, |max| self.due_at.min(first_push.plus(max)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::limits::DELAY_MAX;

    #[test]
    fn bound_counts_from_the_first_push_and_goes_only_with_debounce() -> Result<()> {
        let (now, second) = (Timestamp::from_ms(1_000_000), Duration::from_secs(1));
        let push = |conflict, max| NewMessage::new("x").after(second * 10).on_conflict(conflict).debounce_max(max);
        let first = push(Conflict::Debounce, second * 4).accept(now)?;
        assert_eq!(first.due_at, now.plus(second * 4));
        let later = push(Conflict::Debounce, second * 12).accept(now.plus(second * 3))?;
        assert_eq!(later.due_at, now.plus(second * 13));
        assert_eq!(later.due_after(now), now.plus(second * 12));
        assert_eq!(later.due_after(now.plus(second * 2)), later.due_at);

        let field = |conflict, max| {
            push(conflict, max).accept(now).map(drop).map_err(|error| error.field().map(|(field, ..)| field.to_owned()))
        };
        let wrong = Err(Some("debounce_max".to_owned()));
        for conflict in [Conflict::Keep, Conflict::Reject, Conflict::Replace] {
            assert_eq!(field(conflict, second), wrong, "{conflict:?}");
        }
        for max in [Duration::ZERO, DELAY_MAX + Duration::from_millis(1)] {
            assert_eq!(field(Conflict::Debounce, max), wrong, "{max:?}");
        }
        assert_eq!(field(Conflict::Debounce, DELAY_MAX), Ok(()));
        Ok(())
    }
}
