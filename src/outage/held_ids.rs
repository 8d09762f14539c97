//! Which ids and dedup keys the WAL holds, in pushes and cancels: a later push of one goes behind its record, and not past it.
//!
//! A wrong yes is harmless: that push is buffered, and replayed in its order.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::model::limits::HELD_IDS_MAX;
use crate::model::message::{Message, MessageId, TopicName};
use crate::wal::{Position, Record};

#[derive(Debug)]
pub(super) struct HeldIds {
    marks: RwLock<Marks>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Marks {
    /// Hash of an id or a dedup key in a topic -> the last record with it, or a later one.
    last: HashMap<u64, Position>,
    /// Up to here there may be records that are not listed: any id may be among them.
    unlisted: Option<Position>,
    done: Option<Position>,
}

impl Marks {
    fn has(&self, key: u64) -> bool {
        self.last.get(&key).is_some_and(|last| Some(*last) > self.done)
    }
}

impl HeldIds {
    /// For a log that has records of an earlier process up to `found`, which are listed later, if at all.
    pub(super) fn new(found: Option<Position>) -> HeldIds {
        let marks = Marks { unlisted: found, ..Marks::default() };
        HeldIds { marks: RwLock::new(marks), hasher: RandomState::new() }
    }

    /// For each message whether the log may hold its id or its dedup key; `None` if it holds none of them.
    pub(super) fn among(&self, topic: &TopicName, messages: &[Message]) -> Option<Vec<bool>> {
        let marks = self.read();
        if marks.last.is_empty() && marks.unlisted.is_none() {
            return None;
        }
        let is_held = |message: &Message| {
            marks.unlisted.is_some() || self.keys(topic, message).into_iter().flatten().any(|key| marks.has(key))
        };
        let held: Vec<bool> = messages.iter().map(is_held).collect();
        held.contains(&true).then_some(held)
    }

    /// Lists records that were appended; `end` is the end of the log since.
    pub(super) fn appended<'a>(&self, records: impl IntoIterator<Item = &'a Record>, end: Option<Position>) {
        let Some(end) = end else { return };
        let mut marks = self.write();
        for record in records {
            for key in self.keys_of(record) {
                if marks.last.len() >= HELD_IDS_MAX {
                    let done = marks.done;
                    marks.last.retain(|_, last| Some(*last) > done);
                }
                if marks.last.len() < HELD_IDS_MAX {
                    let last = marks.last.entry(key).or_insert(end);
                    *last = end.max(*last);
                } else {
                    marks.unlisted = marks.unlisted.max(Some(end));
                }
            }
        }
    }

    /// All records of an earlier process are listed.
    pub(super) fn all_found_are_listed(&self, found: Position) {
        let mut marks = self.write();
        marks.unlisted = marks.unlisted.filter(|unlisted| *unlisted > found);
    }

    /// The hashes of what a record holds, to be given to [`HeldIds::done`].
    pub(super) fn keys_of(&self, record: &Record) -> Vec<u64> {
        match record {
            Record::Push { topic, message, .. } => self.keys(topic, message).into_iter().flatten().collect(),
            Record::Cancel { topic, id, .. } => vec![self.key_of_id(topic, id)],
            _ => Vec::new(),
        }
    }

    /// The log is trimmed through a position; the page that was trimmed last had these keys.
    pub(super) fn done(&self, through: Position, keys: &[u64]) {
        let mut marks = self.write();
        marks.done = marks.done.max(Some(through));
        marks.unlisted = marks.unlisted.filter(|unlisted| *unlisted > through);
        for key in keys {
            if !marks.has(*key) {
                marks.last.remove(key);
            }
        }
    }

    /// Nothing is left in the log through a position.
    pub(super) fn empty(&self, through: Position) {
        let mut marks = self.write();
        marks.done = marks.done.max(Some(through));
        marks.unlisted = marks.unlisted.filter(|unlisted| *unlisted > through);
        if !marks.last.is_empty() {
            let done = marks.done;
            marks.last.retain(|_, last| Some(*last) > done);
        }
    }

    fn keys(&self, topic: &TopicName, message: &Message) -> [Option<u64>; 2] {
        let dedup = message.envelope.dedup_window();
        [
            Some(self.key_of_id(topic, &message.id)),
            dedup.map(|(key, ..)| self.hasher.hash_one((topic.as_str(), 'd', key.as_str()))),
        ]
    }

    fn key_of_id(&self, topic: &TopicName, id: &MessageId) -> u64 {
        self.hasher.hash_one((topic.as_str(), 'i', id.as_str()))
    }

    fn read(&self) -> RwLockReadGuard<'_, Marks> {
        self.marks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Marks> {
        self.marks.write().unwrap_or_else(PoisonError::into_inner)
    }
}
