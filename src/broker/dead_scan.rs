//! Going through the dead messages of a group, page by page, for those that are meant.

use std::sync::Arc;
use std::time::Duration;

use crate::codec::DeadReason;
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{DEAD_TEXT_BYTES_MAX, ID_BYTES_MAX};
use crate::model::message::{GroupName, MessageId};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::store::{Dead, DeadCursor, Store};

/// Which dead messages are meant: those for which all of this holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// They died of this.
    pub reason: Option<DeadReason>,
    /// They died at least so long ago.
    pub older_than: Option<Duration>,
    /// They died at most so long ago.
    pub younger_than: Option<Duration>,
    /// These bytes are in the last error or in the payload, as they are; 1 to 256 bytes.
    pub text: Option<String>,
}

impl DeadFilter {
    /// # Errors
    /// `Invalid` for a text that is too long, or none.
    pub fn check(&self) -> Result<()> {
        let range = 1..=DEAD_TEXT_BYTES_MAX;
        match &self.text {
            Some(text) if !range.contains(&text.len()) => Err(Error::wrong(
                Fault::Range,
                "text",
                format!("has {} bytes, not 1 to {DEAD_TEXT_BYTES_MAX}", text.len()),
            )),
            _ => Ok(()),
        }
    }

    fn matches(&self, dead: &Dead) -> bool {
        let has_text = |text: &String| {
            let error = dead.record.last_error.as_ref().is_some_and(|error| error.contains(text));
            let payload = |payload: &[u8]| payload.windows(text.len()).any(|part| part == text.as_bytes());
            error || dead.message.as_ref().is_ok_and(|message| payload(&message.envelope.payload))
        };
        self.reason.is_none_or(|reason| reason == dead.record.reason) && self.text.as_ref().is_none_or(has_text)
    }
}

/// Where a walk through the dead messages of all partitions stands. What dies after it began is not on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeadPlace {
    pub(super) began: Timestamp,
    pub(super) partition: Partition,
    pub(super) after: Option<DeadCursor>,
}

impl DeadPlace {
    /// The beginning of a walk.
    pub(super) fn first(began: Timestamp) -> DeadPlace {
        DeadPlace { began, partition: Partition(0), after: None }
    }

    /// `<began ms>.<partition>` or `<began ms>.<partition>.<died at ms>.<id>`. Opaque to callers.
    pub(super) fn cursor(&self) -> String {
        let place = format!("{}.{}", self.began.as_ms(), self.partition);
        match &self.after {
            Some(after) => format!("{place}.{}.{}", after.died_at.as_ms(), after.id),
            None => place,
        }
    }

    /// The place that a cursor names. # Errors: `Invalid`.
    pub(super) fn read(cursor: &str) -> Result<DeadPlace> {
        let wrong = || Error::invalid("cursor", "is not one that dwell gave; begin without a cursor");
        let time = |text: &str| text.parse().map(Timestamp::from_ms).map_err(|_| wrong());
        let mut parts = cursor.splitn(4, '.');
        let began = time(parts.next().ok_or_else(wrong)?)?;
        let partition = Partition(parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?);
        let after = match (parts.next(), parts.next()) {
            (None, _) => None,
            (Some(died_at), Some(id)) => {
                Some(DeadCursor { died_at: time(died_at)?, id: MessageId::new(id).map_err(|_| wrong())? })
            }
            (Some(_), None) => return Err(wrong()),
        };
        Ok(DeadPlace { began, partition, after })
    }
}

/// A walk through the dead messages of a group.
pub(super) struct DeadScan {
    pub(super) descriptor: Arc<Descriptor>,
    pub(super) group: GroupName,
    pub(super) filter: DeadFilter,
    pub(super) place: DeadPlace,
}

/// A page of a walk.
pub(super) struct DeadFound {
    pub(super) partition: Partition,
    /// How many messages were looked at.
    pub(super) looked_at: usize,
    /// Those that are meant.
    pub(super) dead: Vec<Dead>,
}

impl DeadScan {
    /// Whether every partition was gone through.
    pub(super) fn is_over(&self) -> bool {
        self.place.partition.0 >= self.descriptor.settings.partitions.get()
    }

    /// Looks at the next `look` messages of one partition at most, for the first `most` that are meant.
    pub(super) async fn page(&mut self, store: &Store, look: usize, most: usize) -> Result<DeadFound> {
        let partition = self.place.partition;
        let pair = self.descriptor.pair(partition, &self.group);
        let after = match self.place.after.take() {
            None => self.before_the_youngest()?,
            after => after,
        };
        let page = store.dead_letters.dead(&pair, after.as_ref(), look).await?;
        let until = self.filter.older_than.map_or(self.place.began, |age| self.place.began.minus(age));
        let looked_at = page.dead.len();
        let in_time = |dead: &Dead| dead.died_at <= until;
        let past = page.dead.last().is_some_and(|last| !in_time(last));
        let mut found = page.dead.into_iter().filter(|dead| in_time(dead) && self.filter.matches(dead));
        let dead: Vec<Dead> = found.by_ref().take(most).collect();
        let left_out = found.next().is_some();
        self.place.after = match dead.last() {
            Some(last) if left_out => Some(DeadCursor { died_at: last.died_at, id: last.id.clone() }),
            _ => page.next.filter(|_| !past),
        };
        if self.place.after.is_none() {
            self.place.partition = Partition(partition.0 + 1);
        }
        Ok(DeadFound { partition, looked_at, dead })
    }

    /// The place in front of the first message that is young enough: behind every id of the millisecond before.
    fn before_the_youngest(&self) -> Result<Option<DeadCursor>> {
        let Some(age) = self.filter.younger_than else { return Ok(None) };
        let died_at = self.place.began.minus(age).minus(Duration::from_millis(1));
        Ok(Some(DeadCursor { died_at, id: MessageId::new("~".repeat(ID_BYTES_MAX))? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_garbage_is_refused() -> Result<()> {
        let after = DeadCursor { died_at: Timestamp::from_ms(5), id: MessageId::new("a.b.c")? };
        for after in [None, Some(after)] {
            let place = DeadPlace { began: Timestamp::from_ms(7), partition: Partition(3), after };
            assert_eq!(DeadPlace::read(&place.cursor())?, place);
        }
        for bad in ["", "x", "7", "7.x", "7.1.2", "7.1.x.y", "7.1.2.a b", "7.70000"] {
            assert!(DeadPlace::read(bad).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
