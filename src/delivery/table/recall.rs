//! Giving single messages back to the store, and saying where a message is: the owner's part of a change of a message that it
//! holds and that no consumer has.
//!
//! A message that is recalled leaves the memory in one step, so it is not handed out afterwards; with it go the messages
//! behind it in its key, so that none overtakes it. Until the recall ends, or its time is over, nothing is reserved: so the
//! store can change the message before it comes back.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::order::Lane;
use super::{DeliveryEnd, Held, Now, Slot, Table, lane_of};
use crate::model::limits::RECALL_HOLD_MAX;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;
use crate::store::{Retried, Returned};

/// The answer to a recall of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recalled {
    /// A consumer has it.
    Out,
    /// The memory does not have it any more, and the store knows once the last ticket is settled.
    Free,
    /// Nothing was reserved since the last recall: ask again.
    Busy,
}

/// The messages of a partition that its owner has reserved, by what they wait for. Times are on the store's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldCounts {
    /// With a consumer, or decided and not yet in the store.
    pub out: u64,
    /// The next consumer may have them.
    pub ready: u64,
    /// Behind an earlier message of their key.
    pub blocked: u64,
    /// The first of their key, until their next attempt.
    pub backoff: u64,
    /// Since when the oldest of those that are ready or blocked is due.
    pub oldest: Option<Timestamp>,
}

/// Where a message is in the memory of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageLocation {
    Out {
        attempt: u32,
        /// In the scale of [`Now::elapsed`].
        deadline: Instant,
    },
    /// A consumer has decided about it, and the store has not answered yet.
    Decided,
    Held,
    /// The first of its key, until its next attempt.
    Backoff {
        next_at: Timestamp,
        attempts: u32,
    },
    /// Behind earlier messages of its key.
    Behind(Blocker),
}

/// The first message of a key, and why it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    pub id: MessageId,
    pub state: BlockerState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockerState {
    /// A consumer has it until then, in the scale of [`Now::elapsed`].
    Out {
        deadline: Instant,
    },
    Backoff {
        next_at: Timestamp,
    },
    /// Ready for the next consumer, or decided and not yet in the store.
    Passing,
}

/// A time in which nothing is reserved.
#[derive(Debug)]
pub(super) struct Hold {
    until: Instant,
    number: u64,
    recalls: usize,
}

#[derive(Debug, Default)]
pub(super) struct Recalls {
    /// Rare, so an idle partition has no room for it.
    hold: Option<Box<Hold>>,
    number: u64,
    /// A hold has ended, and nothing was reserved since: no other one begins.
    owes_turn: bool,
    wishes_refresh: bool,
    /// How many there were, around the end of the numbers.
    refreshes: u32,
}

impl Recalls {
    pub(super) fn is_holding(&self) -> bool {
        self.hold.is_some()
    }

    /// Joins the hold, or begins one. `None` if it is the turn of the reservations.
    fn join(&mut self, now: Instant) -> Option<u64> {
        self.expire(now);
        if self.owes_turn {
            return None;
        }
        let hold = self.hold.get_or_insert_with(|| {
            self.number += 1;
            Box::new(Hold { until: now.plus(RECALL_HOLD_MAX), number: self.number, recalls: 0 })
        });
        hold.recalls += 1;
        Some(hold.number)
    }

    fn leave(&mut self, number: u64) {
        let Some(hold) = self.hold.as_mut().filter(|hold| hold.number == number) else { return };
        hold.recalls -= 1;
        if hold.recalls == 0 {
            self.end();
        }
    }

    fn expire(&mut self, now: Instant) {
        if self.hold.as_ref().is_some_and(|hold| hold.until <= now) {
            self.end();
        }
    }

    fn end(&mut self) {
        (self.hold, self.owes_turn) = (None, true);
    }
}

impl Table {
    /// Wishes that all that no consumer has goes back, and the store is asked anew; until then nothing is handed out. It is for the loop, since an answer that is on its way says
    /// what the store had before. The number is for [`Table::is_refreshed`].
    pub fn wish_refresh(&mut self) -> u32 {
        self.recalls.wishes_refresh = true;
        self.recalls.refreshes
    }

    /// Whether nothing is handed out. A message that is about to go back may be of a paused key.
    pub(super) fn is_shut(&self) -> bool {
        self.is_full() || self.recalls.wishes_refresh
    }

    pub fn is_refreshed(&self, number: u32) -> bool {
        self.recalls.refreshes != number
    }

    /// Fulfils the wishes. Only while no call is out.
    pub fn refresh(&mut self) {
        if std::mem::take(&mut self.recalls.wishes_refresh) {
            self.recalls.refreshes = self.recalls.refreshes.wrapping_add(1);
            self.give_back();
        }
    }

    /// Recalls messages, and answers for each. The number is that of the hold, which ends with [`Table::end_recall`] or by
    /// itself; none if every message is with a consumer, or it is not the turn of a recall.
    pub fn recall_held(&mut self, ids: &[MessageId], now: Now) -> (Vec<Recalled>, Option<u64>) {
        if !ids.is_empty() && ids.iter().all(|id| self.is_with_consumer(id)) {
            return (vec![Recalled::Out; ids.len()], None);
        }
        let Some(hold) = self.recalls.join(now.instant) else {
            let answer = |id| if self.is_with_consumer(id) { Recalled::Out } else { Recalled::Busy };
            return (ids.iter().map(answer).collect(), None);
        };
        let answers = ids.iter().map(|id| {
            if self.is_with_consumer(id) {
                return Recalled::Out;
            }
            if let Some(found) = self.find_held(id).map(|held| (held.slot, lane_of(&held.message))) {
                self.give_one_back(found);
            }
            Recalled::Free
        });
        (answers.collect(), Some(hold))
    }

    /// Recalls all that no consumer has.
    pub fn recall_all(&mut self, now: Now) -> Option<u64> {
        let hold = self.recalls.join(now.instant)?;
        self.give_back();
        Some(hold)
    }

    pub fn end_recall(&mut self, hold: u64) {
        self.recalls.leave(hold);
    }

    /// When the hold ends by itself. Looks whether it has ended.
    pub fn held_until(&mut self, now: Now) -> Option<Instant> {
        self.recalls.expire(now.instant);
        self.recalls.hold.as_ref().map(|hold| hold.until)
    }

    /// The loop has looked what to reserve: the next recall may hold it up.
    pub fn had_turn(&mut self) {
        if !self.recalls.is_holding() {
            self.recalls.owes_turn = false;
        }
    }

    fn is_with_consumer(&self, id: &MessageId) -> bool {
        self.out.values().any(|out| out.id == *id)
    }

    fn give_one_back(&mut self, (slot, lane): (Slot, Lane)) {
        // Its charge is perhaps on its way to the store.
        let is_charging = self.charging.iter().any(|held| held.slot == slot);
        if self.order.is_none() {
            if let Some((held, _)) = self.pull(slot, &lane) {
                self.return_unordered(held, is_charging);
            }
            return;
        }
        let mut returned: Vec<(Held, bool)> =
            self.pull_first(slot).map(|first| (first, is_charging)).into_iter().collect();
        returned.extend(self.order.as_mut().map(|order| order.cut(&lane, slot)).unwrap_or_default());
        for (held, is_charging) in returned {
            self.return_ordered(held, is_charging);
        }
    }

    /// Takes the first message of a key out of memory, if this is one that no consumer has.
    fn pull_first(&mut self, slot: Slot) -> Option<Held> {
        if let Some(held) = self.withdraw(slot) {
            return Some(held);
        }
        if let Some(at) = self.charging.iter().position(|held| held.slot == slot) {
            return Some(self.charging.remove(at));
        }
        self.order.as_mut()?.pull_waiting(slot)
    }

    pub(super) fn return_unordered(&mut self, held: Held, is_charging: bool) {
        let Held { slot, ready_at, charged, charged_before, message, .. } = held;
        let id = message.id;
        let end = if charged == charged_before && !is_charging {
            DeliveryEnd::Back(Returned { id: id.clone(), ready_at })
        } else {
            // Charged to be handed out, and then not handed out: the charge is taken back.
            DeliveryEnd::Again(Retried { id: id.clone(), next_at: ready_at, attempts: charged_before, failure: None })
        };
        self.decide_end(id, slot, None, end);
    }

    fn return_ordered(&mut self, held: Held, is_charging: bool) {
        if let Some(order) = &mut self.order {
            order.expect_back();
        }
        self.put_back_in_order(held, is_charging);
    }

    pub(super) fn put_back_in_order(&mut self, held: Held, is_charging: bool) {
        let Held { slot, ready_at, position, charged, charged_before, message, .. } = held;
        let id = message.id;
        if charged != charged_before || is_charging {
            let kept = Retried { id: id.clone(), next_at: ready_at, attempts: charged_before, failure: None };
            self.decide_end(id.clone(), slot, None, DeliveryEnd::Kept(kept));
        }
        self.decide_end(id.clone(), slot, None, DeliveryEnd::Back(Returned { id, ready_at: position }));
    }
}

impl Table {
    /// Where messages are, in the order asked; `None` for one that is not here.
    pub fn locate(&self, ids: &[MessageId]) -> Vec<Option<MessageLocation>> {
        let wanted: HashSet<&MessageId> = ids.iter().collect();
        let mut found = HashMap::new();
        // A message may be in several of these: what is said last counts.
        for held in self.offered() {
            if wanted.contains(&held.message.id) {
                found.insert(&held.message.id, MessageLocation::Held);
            }
        }
        for decided in self.decided.iter().filter(|decided| wanted.contains(&decided.id)) {
            found.insert(&decided.id, MessageLocation::Decided);
        }
        let mut blockers = HashMap::<Lane, Blocker>::new();
        for held in self.order.iter().flat_map(|order| order.behind_all()) {
            let id = &held.message.id;
            if wanted.contains(id) {
                let lane = lane_of(&held.message);
                let blocker = blockers.entry(lane.clone()).or_insert_with(|| self.blocker_of(&lane, id)).clone();
                found.insert(id, MessageLocation::Behind(blocker));
            }
        }
        for held in self.order.iter().flat_map(|order| order.waiting()) {
            if wanted.contains(&held.message.id) {
                let (next_at, attempts) = (held.ready_at, held.charged);
                found.insert(&held.message.id, MessageLocation::Backoff { next_at, attempts });
            }
        }
        for out in self.out.values().filter(|out| wanted.contains(&out.id)) {
            found.insert(&out.id, MessageLocation::Out { attempt: out.attempt, deadline: out.deadline });
        }
        ids.iter().map(|id| found.get(id).cloned()).collect()
    }

    /// The first message of a key, which those behind it wait for.
    fn blocker_of(&self, lane: &Lane, behind: &MessageId) -> Blocker {
        let is_of_lane = |held: &&Held| lane_of(&held.message) == *lane;
        let out = self.out.values().filter(|out| out.ordered.as_ref().is_some_and(|ordered| ordered.is_of(lane)));
        // Of several that a consumer has, the one that it may keep for longest.
        if let Some(out) = out.max_by_key(|out| (out.deadline, Reverse(out.id.clone()))) {
            let state = BlockerState::Out { deadline: out.deadline };
            return Blocker { id: out.id.clone(), state };
        }
        let order = self.order.as_ref();
        if let Some(held) = order.and_then(|order| order.waiting().find(is_of_lane)) {
            return Blocker { id: held.message.id.clone(), state: BlockerState::Backoff { next_at: held.ready_at } };
        }
        let mut held = self.offered();
        let first = held.find(is_of_lane).map(|held| held.message.id.clone());
        // Or it is settled, and the store has not answered yet.
        let first = first.or_else(|| order.and_then(|order| order.first_id(lane)));
        Blocker { id: first.unwrap_or_else(|| behind.clone()), state: BlockerState::Passing }
    }

    pub fn counts(&self, now: Now) -> HeldCounts {
        let (mut blocked, mut backoff, mut oldest_behind) = (0, 0, None);
        if let Some(order) = &self.order {
            (backoff, oldest_behind) =
                (order.waiting().count() as u64, order.behind_all().map(|held| held.ready_at).min());
            blocked = order.parked() as u64;
        }
        let held = self.offered().count() as u64;
        let oldest = self.offered().map(|held| held.ready_at).min().into_iter().chain(oldest_behind).min();
        let oldest = oldest.filter(|oldest| *oldest <= now.store);
        let out = (self.unsettled as u64).saturating_sub(held + blocked + backoff);
        HeldCounts { out, ready: held, blocked, backoff, oldest }
    }
}

impl HeldCounts {
    pub fn oldest_age(&self, now: Timestamp) -> Option<Duration> {
        self.oldest.map(|oldest| now.since(oldest))
    }
}
