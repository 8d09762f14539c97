//! Spreading: a push may move its due time by a value that its id decides, so that a repeat of the push gets the same.
//!
//! The rule is public, so that a program in another language can compute it: murmur3 x64_128 with seed 0 over the bytes of the id, of
//! which the first 64 bits are an unsigned number, modulo the spread in milliseconds. The partition comes from another function, so
//! the messages of a partition spread as evenly as all others. Of a ULID all characters count.

use std::io::Cursor;
use std::time::Duration;

use super::{Due, MessageId, NewMessage, check_span};
use crate::model::error::{Error, Result};
use crate::model::time::{Timestamp, ms_up};

/// How much later a message of this id is due: from 0 on, and less than the spread.
///
/// ```
/// use dwell::model::message::{MessageId, spread_of};
/// use std::time::Duration;
///
/// let id = MessageId::new("close-4711")?;
/// assert_eq!(spread_of(&id, Duration::from_secs(600)), Duration::from_millis(229_296));
/// # Ok::<(), dwell::model::error::Error>(())
/// ```
pub fn spread_of(id: &MessageId, spread: Duration) -> Duration {
    Duration::from_millis(hash(id.as_str().as_bytes()) % ms_up(spread).max(1))
}

/// The first 64 bits of murmur3 x64_128 with seed 0.
fn hash(bytes: &[u8]) -> u64 {
    let both = murmur3::murmur3_x64_128(&mut Cursor::new(bytes), 0).unwrap_or_default();
    both as u64
}

impl NewMessage {
    /// Its due time, moved by its spread as the id decides.
    pub fn due_of(&self, id: &MessageId) -> Due {
        self.spread.map_or(self.due, |spread| self.due.later(spread_of(id, spread)))
    }

    /// Errors: `Invalid` for a spread of nothing, or one after which a message of any id would be due too far ahead: it does not depend
    /// on the id whether a push is refused.
    pub(super) fn check_spread(&self, now: Timestamp) -> Result<()> {
        let Some(spread) = self.spread else { return Ok(()) };
        check_span("spread", spread)?;
        let latest = self.due.later(spread).fix(now).map(drop);
        latest.map_err(|error| Error::range("spread", error.field().map_or("", |(_, _, why)| why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::limits::DELAY_MAX;
    use crate::model::message::Past;

    /// Published vectors of murmur3 x64_128 with seed 0.
    #[test]
    fn published_hash_vectors_match() {
        for (text, expected) in [
            ("", 0),
            ("hello", 0xcbd8_a7b3_41bd_9b02),
            ("The quick brown fox jumps over the lazy dog", 0xe34b_bc7b_bc07_1b6c),
        ] {
            assert_eq!(hash(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn repeat_has_the_same_due_time_and_the_longest_spread_counts() -> Result<()> {
        let (now, hour, minute) = (Timestamp::from_ms(1_000_000), Duration::from_secs(3_600), Duration::from_secs(60));
        let id = MessageId::new("close-4711")?;
        let offset = spread_of(&id, hour);
        let push = |message: NewMessage, spread| NewMessage { spread: Some(spread), ..message.id(id.clone()) };
        let at = |at, now| push(NewMessage::new("x").at(at), hour).accept(now).map(|message| message.due_at);
        assert_eq!(push(NewMessage::new("x").after(minute), hour).accept(now)?.due_at, now.plus(minute).plus(offset));
        // Also when the due time has passed meanwhile, and the moved one has not.
        assert_eq!(at(now, now)?, now.plus(offset));
        assert_eq!(at(now, now.plus(minute))?, now.plus(offset));
        assert_eq!(at(now, now.plus(hour))?, now.plus(hour));
        let ahead = NewMessage { due: Past::Reject.due(now.minus(minute)), ..NewMessage::new("x") };
        assert!(push(ahead, hour).accept(now).is_err_and(|error| error.detail().contains("`due_at`")));

        let field = |message: NewMessage, spread| {
            let error =
                push(message, spread).accept(now).map_err(|error| error.field().map(|(field, ..)| field.to_owned()));
            error.map(drop)
        };
        let wrong = Err(Some("spread".to_owned()));
        assert_eq!(field(NewMessage::new("x"), Duration::ZERO), wrong);
        assert_eq!(field(NewMessage::new("x"), DELAY_MAX), Ok(()));
        assert_eq!(field(NewMessage::new("x"), DELAY_MAX + Duration::from_millis(1)), wrong);
        assert_eq!(field(NewMessage::new("x").after(DELAY_MAX - minute), minute), Ok(()));
        assert_eq!(field(NewMessage::new("x").after(DELAY_MAX - minute), minute * 2), wrong);
        Ok(())
    }
}
