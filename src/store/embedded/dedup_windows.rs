//! The memory of dedup keys of a partition: which push of a key was the first within its window.

use std::collections::HashMap;

use sled::{Batch, Tree};

use super::commit::broken;
use super::keys::{KeyPrefix, Kind as KeyKind, read_id, read_time};
use crate::model::error::{Error, Result};
use crate::model::message::{DedupKey, Envelope, Message, MessageId};
use crate::model::time::Timestamp;

/// Windows of the past that one push forgets: more than it adds.
const FORGOTTEN_MAX: usize = 2;

/// The windows in which another push of a key is a duplicate.
pub(super) struct DedupWindows<'a> {
    tree: &'a Tree,
    place: KeyPrefix,
    /// Those that the batch adds, which the tree has not got yet.
    added: HashMap<&'a DedupKey, Vec<&'a Message>>,
}

impl<'a> DedupWindows<'a> {
    pub(super) fn new(tree: &'a Tree, place: KeyPrefix) -> DedupWindows<'a> {
        DedupWindows { tree, place: place.shared(), added: HashMap::new() }
    }

    /// The id of the message with the same dedup key whose window meets that of this message. Windows of one key never
    /// meet, so of those that begin before its end the last one ends last.
    pub(super) fn first_of(&self, message: &Message) -> Result<Option<MessageId>> {
        let Some((key, from, until)) = message.envelope.dedup_window() else { return Ok(None) };
        let meets = |other: &&&Message| meets(&message.envelope, &other.envelope);
        if let Some(added) = self.added.get(key).and_then(|added| added.iter().find(meets)) {
            return Ok(Some(added.id.clone()));
        }
        let range = self.by_key(key, Timestamp::ZERO)..self.by_key(key, until);
        let Some(last) = self.tree.range(range).values().next_back() else { return Ok(None) };
        let last = last.map_err(broken)?;
        let (ended, id) = last.split_first_chunk::<8>().ok_or_else(wrong)?;
        if Timestamp::from_ms(u64::from_be_bytes(*ended)) <= from { Ok(None) } else { read_id(id).map(Some) }
    }

    /// Remembers the window of a message that is stored, and forgets some that have ended.
    pub(super) fn add(&mut self, batch: &mut Batch, message: &'a Message, now: Timestamp) -> Result<()> {
        let Some((key, from, until)) = message.envelope.dedup_window() else { return Ok(()) };
        for past in self.tree.scan_prefix(self.place.of(KeyKind::DedupByEnd)).keys().take(FORGOTTEN_MAX) {
            let past = past.map_err(broken)?;
            let (ended, name) =
                past[self.place.of(KeyKind::DedupByEnd).len()..].split_at_checked(8).ok_or_else(wrong)?;
            if read_time(ended)? <= now {
                batch.remove(self.place.named(KeyKind::DedupByKey, name));
                batch.remove(&*past);
            }
        }
        let by_key = self.by_key(key, from);
        let name = &by_key[self.place.of(KeyKind::DedupByKey).len()..];
        let ended = until.as_ms().to_be_bytes();
        batch.insert(self.place.named(KeyKind::DedupByEnd, &[&ended, name].concat()), b"");
        batch.insert(by_key.clone(), [&ended, message.id.as_str().as_bytes()].concat());
        self.added.entry(key).or_default().push(message);
        Ok(())
    }

    /// No dedup key has a zero byte.
    fn by_key(&self, key: &DedupKey, from: Timestamp) -> Vec<u8> {
        let name = [key.as_str().as_bytes(), b"\0", &from.as_ms().to_be_bytes()].concat();
        self.place.named(KeyKind::DedupByKey, &name)
    }
}

fn meets(one: &Envelope, other: &Envelope) -> bool {
    match (one.dedup_window(), other.dedup_window()) {
        (Some((_, from, until)), Some((_, other_from, other_until))) => from < other_until && other_from < until,
        _ => false,
    }
}

fn wrong() -> Error {
    Error::corrupt("the store holds an unreadable note of a dedup key")
}
