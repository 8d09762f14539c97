//! The keys of which the store has sorted messages, in the order in which it is asked for them.

use std::collections::VecDeque;

use super::MessageKey;
use crate::model::topic::KeySettings;

/// Sorted messages of a key.
#[derive(Debug, Default)]
pub(super) struct SortedCount {
    /// Those that the store has.
    pub(super) stored: u64,
    /// Those that were decided, and the store has not answered yet.
    pub(super) coming: u64,
    /// How many it has yet to get of its share, for which there was no room: it is the next one then.
    pub(super) owed: usize,
}

/// Keys one behind the other, and the sum of their weights.
#[derive(Debug, Default)]
pub(super) struct Line {
    keys: VecDeque<MessageKey>,
    weight: usize,
}

impl Line {
    pub(super) fn push_back(&mut self, key: MessageKey, settings: &KeySettings) {
        self.weight += weight_of(&key, settings);
        self.keys.push_back(key);
    }

    pub(super) fn push_front(&mut self, key: MessageKey, settings: &KeySettings) {
        self.weight += weight_of(&key, settings);
        self.keys.push_front(key);
    }

    pub(super) fn pop_front(&mut self, settings: &KeySettings) -> Option<MessageKey> {
        let key = self.keys.pop_front()?;
        self.weight -= weight_of(&key, settings);
        Some(key)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Other weights count from now on.
    pub(super) fn weigh(&mut self, settings: &KeySettings) {
        self.weight = self.keys.iter().map(|key| weight_of(key, settings)).sum();
    }
}

pub(super) fn weight_of(key: &MessageKey, settings: &KeySettings) -> usize {
    usize::try_from(settings.weight_of(key.as_ref()).get()).unwrap_or(1)
}
