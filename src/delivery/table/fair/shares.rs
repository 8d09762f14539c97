//! How much of the memory each key has.

use std::collections::HashMap;

use super::MessageKey;
use crate::model::limits::PREFETCH_MESSAGES_MAX;

/// How many messages of each key are in memory, while more come.
pub(super) struct Shares {
    pub(super) held: HashMap<MessageKey, usize>,
    pub(super) all: usize,
    /// Of a key of weight 1.
    pub(super) most: usize,
}

impl Shares {
    pub(super) fn add(&mut self, key: &MessageKey) {
        *self.held.entry(key.clone()).or_default() += 1;
        self.all += 1;
    }

    /// Whether the memory takes one more message of a key of this weight, of which so many may be handed out.
    pub(super) fn take(&mut self, key: &MessageKey, weight: usize, allowance: usize) -> bool {
        let held = self.held.get(key).copied().unwrap_or_default();
        if held >= (self.most * weight).min(allowance) || self.all >= PREFETCH_MESSAGES_MAX {
            return false;
        }
        self.add(key);
        true
    }
}
