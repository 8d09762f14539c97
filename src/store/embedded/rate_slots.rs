//! The slots of groups, in which messages may be handed out: in memory only, since all who ask live in this process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::model::limits::{SLOT_AHEAD_MAX, SLOT_OPEN};
use crate::model::message::{GroupName, TopicName};
use crate::platform::clock::Instant;
use crate::store::{SlotAsk, Slots};

/// When the next slot of each group may begin. A group that is not there holds back for as long as a slot may be open that
/// an earlier process gave.
#[derive(Debug, Default)]
pub(super) struct SlotBook(Mutex<HashMap<(TopicName, GroupName), Instant>>);

impl SlotBook {
    pub(super) fn give(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk, now: Instant) -> Slots {
        // Nothing panics while the lock is held; if it did, the map would still be whole.
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = now.plus(SLOT_AHEAD_MAX + SLOT_OPEN);
        let next = groups.entry((topic.clone(), group.clone())).or_insert(held);
        *next = (*next).max(now);
        let after = next.since(now);
        let room = ask.within.min(SLOT_AHEAD_MAX).checked_sub(after);
        let fitting = room.map_or(0, |room| room.as_nanos() / ask.spacing.as_nanos().max(1) + 1);
        let count = ask.count.min(u32::try_from(fitting).unwrap_or(u32::MAX));
        *next = next.plus(ask.spacing * count);
        Slots { count, after }
    }
}
