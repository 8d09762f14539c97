//! What a reservation holds: ids, and in a topic with ordering the place that each came from and goes back to.

use super::keys::{Score, read_id};
use crate::model::error::{Error, Result};
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::platform::disk::ChunkedValue;
use crate::store::{Epoch, Reservation};

/// One message of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: MessageId,
    /// Where it stood; only with an ordering.
    pub(super) place: Option<Score>,
}

impl Entry {
    /// `id`, or `id ms tie`: no id has a space.
    fn write(&self) -> String {
        match self.place {
            Some(place) => format!("{} {} {}", self.id, place.at.as_ms(), place.tie),
            None => self.id.to_string(),
        }
    }

    fn read(line: &[u8]) -> Result<Entry> {
        let mut words = line.split(|byte| *byte == b' ');
        let id = read_id(words.next().unwrap_or_default())?;
        let Some(at) = words.next() else { return Ok(Entry { id, place: None }) };
        let wrong = || Error::corrupt("the store holds a reservation with an unreadable place");
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| wrong());
        let at = text(at)?.parse().map_err(|_| wrong())?;
        let tie = text(words.next().unwrap_or_default())?.parse().map_err(|_| wrong())?;
        Ok(Entry { id, place: Some(Score { at: Timestamp::from_ms(at), tie }) })
    }
}

/// The name under which a reservation is kept. Names sort by epoch.
pub(super) fn reservation_name(epoch: &Epoch, reservation: Reservation) -> Vec<u8> {
    [epoch.number().to_be_bytes(), reservation.0.to_be_bytes()].concat()
}

/// The value of a reservation, an entry a line: ids have no line breaks.
pub(super) fn reservation_value<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<ChunkedValue> {
    let lines: Vec<String> = entries.into_iter().map(Entry::write).collect();
    ChunkedValue::cut(lines.join("\n").as_bytes())
}

/// The entries of a value.
pub(super) fn reservation_entries(value: &[u8]) -> Result<Vec<Entry>> {
    value.split(|byte| *byte == b'\n').map(Entry::read).collect()
}

/// For fuzz/ alone: the entries of a value, written again.
#[cfg(feature = "fuzzing")]
pub fn rewritten(value: &[u8]) -> Result<Vec<u8>> {
    let lines: Vec<String> = reservation_entries(value)?.iter().map(Entry::write).collect();
    Ok(lines.join("\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_back_with_and_without_its_place() -> Result<()> {
        let place = Some(Score { at: Timestamp::from_ms(1_767_323_045_678), tie: 32_767 });
        for entry in [None, place].map(|place| Ok(Entry { id: MessageId::new("a")?, place })) {
            let entry: Entry = entry?;
            assert_eq!(Entry::read(entry.write().as_bytes())?, entry);
        }
        for bad in ["", "a b", "a 1", "a 1 x", "a 1 99999"] {
            assert!(Entry::read(bad.as_bytes()).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
