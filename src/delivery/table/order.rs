//! The messages of a key one after the other, in the memory of a pair whose topic has an ordering.
//!
//! Of each key one message is the *current* one: ready, with a consumer, waiting for its next attempt, or decided about and
//! not settled yet. What is reserved of the same key stands behind it, by place, and the next one is current only when the
//! store has answered that the current one is gone or dead: so the next owner finds nothing that was overtaken.
//! A current message that fails stays reserved, with its payload in memory, so that nothing has to make room for it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::{APPETITE_FIRST, Fate, Held, Now, Out, Slot, Table};
use crate::codec::Failure;
use crate::model::limits::{ORDERED_BYTES_MAX, PARKED_MESSAGES_MAX};
use crate::model::message::{Message, MessageId};
use crate::model::time::Timestamp;
use crate::store::{ReserveLimit, Retried, Returned};

/// A key, or the id of a message without one.
pub(super) type Lane = Arc<str>;

#[derive(Debug)]
struct Line {
    slot: Slot,
    place: Timestamp,
    started: bool,
    behind: VecDeque<Held>,
}

#[derive(Debug)]
struct Waiting {
    held: Held,
    /// The draft with this ticket has the charge of its last attempt.
    ticket: u64,
}

#[derive(Debug)]
pub(super) struct Keepsake {
    lane: Lane,
    place: Timestamp,
    bytes: usize,
    message: Message,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    lines: HashMap<Lane, Line>,
    parked: usize,
    /// Current ones that wait for their next attempt, by its time and a number that tells them apart.
    waiting: BTreeMap<(Timestamp, u64), Waiting>,
    number: u64,
    bytes: usize,
    /// Keys whose current message is gone once the store has answered the draft that is out.
    leaving: Vec<Lane>,
    /// What is on its way back into the zset: nothing is reserved meanwhile, since it may stand before that.
    returning: usize,
}

impl Order {
    /// What of a reservation there is room for. At a bound nothing is reserved until something is settled: so what is
    /// behind in the zset, also of other keys, waits there in its order.
    pub(super) fn room(&self, limit: ReserveLimit) -> Option<ReserveLimit> {
        let space = PARKED_MESSAGES_MAX - self.parked.min(PARKED_MESSAGES_MAX);
        if self.returning > 0 || space < APPETITE_FIRST || self.bytes >= ORDERED_BYTES_MAX {
            return None;
        }
        Some(ReserveLimit { messages: limit.messages.min(space), ..limit })
    }

    pub(super) fn has_in_line(&self, id: &MessageId) -> bool {
        let is = |held: &Held| held.message.id == *id;
        self.lines.values().any(|line| line.behind.iter().any(is))
            || self.waiting.values().any(|waiting| is(&waiting.held))
    }

    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn hand_out(&mut self, held: &Held) -> Keepsake {
        let lane = lane_of(&held.message);
        if let Some(line) = self.lines.get_mut(&lane) {
            line.started = true;
        }
        self.bytes += held.bytes;
        Keepsake { lane, place: held.place, bytes: held.bytes, message: held.message.clone() }
    }

    fn wait(&mut self, held: Held, ticket: u64) {
        self.number += 1;
        self.bytes += held.bytes;
        self.waiting.insert((held.ready_at, self.number), Waiting { held, ticket });
    }

    fn park(line: &mut Line, held: Held) {
        let at = line.behind.partition_point(|before| before.place <= held.place);
        line.behind.insert(at, held);
    }

    fn next(&mut self, lane: &Lane) -> Option<Held> {
        let line = self.lines.get_mut(lane)?;
        let Some(next) = line.behind.pop_front() else {
            self.lines.remove(lane);
            return None;
        };
        (line.slot, line.place, line.started) = (next.slot, next.place, false);
        self.parked -= 1;
        self.bytes -= next.bytes;
        Some(next)
    }

    /// Everything that nobody has and that is not ready: waiting ones first, then those behind. Keys whose current message
    /// is out, or not settled, keep it.
    fn drain(&mut self) -> Vec<Held> {
        let mut held: Vec<Held> = std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.held).collect();
        self.lines.values_mut().for_each(|line| held.extend(line.behind.drain(..)));
        self.parked = 0;
        held.iter().for_each(|held| self.bytes -= held.bytes);
        held
    }

    fn leave(&mut self, held: &Held) {
        let lane = lane_of(&held.message);
        if self.lines.get(&lane).is_some_and(|line| line.slot == held.slot) {
            self.lines.remove(&lane);
        }
    }
}

pub(super) fn lane_of(message: &Message) -> Lane {
    message.routing_key().into()
}

impl Table {
    /// Puts a message where it stands: at its turn, behind the current one of its key, or before one that is not with a
    /// consumer yet and due later.
    pub(super) fn line_up(&mut self, held: Held, now: Now) {
        let Some(order) = &mut self.order else { return self.present(held) };
        let lane = lane_of(&held.message);
        let current = match order.lines.entry(lane.clone()) {
            Entry::Vacant(free) => {
                let (slot, place) = (held.slot, held.place);
                free.insert(Line { slot, place, started: false, behind: VecDeque::new() });
                return self.take_turn(held, now);
            }
            Entry::Occupied(line) => line.into_mut(),
        };
        order.parked += 1;
        order.bytes += held.bytes;
        let overtakes = !current.started && held.place < current.place;
        let slot = current.slot;
        Order::park(current, held);
        if overtakes && let Some(later) = self.withdraw(slot) {
            self.replace_current(&lane, later, now);
        }
    }

    /// The first of those behind becomes the current one, and the current one goes behind.
    fn replace_current(&mut self, lane: &Lane, later: Held, now: Now) {
        let Some(order) = &mut self.order else { return };
        let first = order.next(lane);
        if let Some(line) = order.lines.get_mut(lane) {
            order.parked += 1;
            order.bytes += later.bytes;
            // Before those of its millisecond, which came behind it.
            let at = line.behind.partition_point(|before| before.place < later.place);
            line.behind.insert(at, later);
        }
        if let Some(first) = first {
            self.take_turn(first, now);
        }
    }

    fn withdraw(&mut self, slot: Slot) -> Option<Held> {
        let place = |line: &VecDeque<Held>| line.iter().position(|held| held.slot == slot);
        let found = match place(&self.ready) {
            Some(at) => self.ready.remove(at),
            None => place(&self.uncharged).and_then(|at| self.uncharged.remove(at)),
        };
        self.held_bytes -= found.as_ref().map_or(0, |held| held.bytes);
        found
    }

    /// It is the turn of a message, at once or when its next attempt is due.
    fn take_turn(&mut self, held: Held, now: Now) {
        match &mut self.order {
            Some(order) if held.ready_at > now.store => {
                // Its charge is in the store.
                order.wait(held, 0);
            }
            _ => self.present(held),
        }
    }

    /// Offers a message to consumers, among others by the time since when it could have been handed out.
    fn present(&mut self, held: Held) {
        self.held_bytes += held.bytes;
        let line = if held.charged == 0 { &mut self.ready } else { &mut self.uncharged };
        if self.order.is_none() {
            return line.push_back(held);
        }
        let at = line.partition_point(|before| before.ready_at <= held.ready_at);
        line.insert(at, held);
    }

    pub(super) fn freed(&mut self, out: &mut Out) -> Option<Lane> {
        let (order, keepsake) = (self.order.as_mut()?, out.keepsake.take()?);
        order.bytes -= keepsake.bytes;
        Some(keepsake.lane)
    }

    pub(super) fn note_draft(&mut self, lane: Option<Lane>, fate: &Fate) {
        let Some(order) = &mut self.order else { return };
        order.leaving.extend(lane);
        order.returning -= usize::from(matches!(fate, Fate::Back(_)));
    }

    /// A delivery failed and is tried again: it stays reserved and current, and only its charge goes to the store.
    pub(super) fn keep(&mut self, out: Out, keepsake: Keepsake, next_at: Timestamp, failure: Option<Failure>) {
        let Out { slot, id, attempt, .. } = out;
        let Keepsake { place, bytes, message, .. } = keepsake;
        self.decide_fate(id.clone(), slot, None, Fate::Kept(Retried { id, next_at, attempts: attempt, failure }));
        let held = Held { slot, ready_at: next_at, place, charged: attempt, charged_before: attempt, bytes, message };
        if let Some(order) = &mut self.order {
            order.bytes -= bytes;
            order.wait(held, self.tickets);
        }
    }

    pub fn bytes(&self) -> usize {
        self.prefetched_bytes() + self.order.as_ref().map_or(0, |order| order.bytes)
    }

    pub fn next_attempt(&self) -> Option<Timestamp> {
        self.order.as_ref()?.waiting.keys().next().map(|(at, _)| *at)
    }

    /// Presents those whose next attempt is due. Not before their charge is drafted: the next one has to follow it.
    pub fn resume(&mut self, now: Now) {
        let Some(order) = &mut self.order else { return };
        let due = order.waiting.range(..=(now.store, u64::MAX));
        let due: Vec<_> = due.filter(|(_, waiting)| waiting.ticket <= self.drafted).map(|(key, _)| *key).collect();
        for Waiting { held, .. } in due.iter().filter_map(|key| order.waiting.remove(key)).collect::<Vec<_>>() {
            self.end_of_wait(held);
        }
    }

    fn end_of_wait(&mut self, held: Held) {
        if let Some(order) = &mut self.order {
            order.bytes -= held.bytes;
        }
        self.present(held);
    }

    /// The store has answered the draft: the keys whose current message is gone go on. True if something is ready now.
    pub fn settled(&mut self, now: Now) -> bool {
        let before = self.ready.len();
        let leaving = self.order.as_mut().map(|order| std::mem::take(&mut order.leaving)).unwrap_or_default();
        for lane in leaving {
            if let Some(next) = self.order.as_mut().and_then(|order| order.next(&lane)) {
                self.take_turn(next, now);
            }
        }
        self.ready.len() > before
    }

    pub(super) fn give_back_in_order(&mut self, ready: Vec<Held>) {
        let Some(order) = &mut self.order else { return };
        let waiting: Vec<Held> = order.drain();
        ready.iter().chain(&waiting).for_each(|held| order.leave(held));
        order.returning += ready.len() + waiting.len();
        for Held { slot, ready_at, place, charged, charged_before, message, .. } in ready.into_iter().chain(waiting) {
            let id = message.id;
            if charged != charged_before {
                let kept = Retried { id: id.clone(), next_at: ready_at, attempts: charged_before, failure: None };
                self.decide_fate(id.clone(), slot, None, Fate::Kept(kept));
            }
            self.decide_fate(id.clone(), slot, None, Fate::Back(Returned { id, ready_at: place }));
        }
    }
}
