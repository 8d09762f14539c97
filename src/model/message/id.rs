//! Ids that dwell creates, and the forms of ids.

use super::{MessageId, check_name};
use crate::model::limits::ID_BYTES_MAX;
use crate::model::time::Timestamp;

/// How many ids are tried for one that fits; they differ in their last bits.
const FRESH_TRIES: u128 = 64;

impl MessageId {
    /// A new id, sortable by the time it was made.
    pub fn fresh() -> MessageId {
        MessageId(ulid::Ulid::new().to_string().into())
    }

    /// The id under which a message is stored whose own id another message of its partition has.
    ///
    /// ```
    /// use dwell::model::message::MessageId;
    ///
    /// let id = MessageId::new("reminder")?;
    /// assert_eq!(id.beside(1_764_000_000_000_000).as_str(), "reminder~1764000000000000");
    /// # Ok::<(), dwell::model::error::Error>(())
    /// ```
    pub fn beside(&self, number: u64) -> MessageId {
        let suffix = format!("~{number}");
        // Ids are ASCII.
        let kept = &self.0[..self.0.len().min(ID_BYTES_MAX - suffix.len())];
        MessageId(format!("{kept}{suffix}").into())
    }

    /// Whether it has the form of the id of an occurrence of a cron job, `<name>@<time>`: only the cron job pushes those.
    pub fn is_occurrence(&self) -> bool {
        let of_schedule = |(name, at): (&str, &str)| {
            check_name(name).is_ok() && at.parse::<Timestamp>().is_ok_and(|time| time.to_string() == at)
        };
        self.0.split_once('@').is_some_and(of_schedule)
    }

    /// A new id that fits, if one is found in 64 tries; otherwise one that does not.
    pub fn fresh_where(fits: impl Fn(&str) -> bool) -> MessageId {
        let random = ulid::Ulid::new().0 & !(FRESH_TRIES - 1);
        let mut text = [0; ulid::ULID_LEN];
        for n in 0..FRESH_TRIES {
            let id = ulid::Ulid(random | n).array_to_str(&mut text);
            if fits(id) {
                return MessageId((*id).into());
            }
        }
        MessageId::fresh()
    }
}
