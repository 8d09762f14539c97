//! The messages of a key one after the other, in the memory of a partition whose topic has an ordering.
//!
//! Of each key one message is the *current* one: ready, with a consumer, waiting for its next attempt, or decided about and
//! not settled yet. Reserved messages of the same key stand behind it, by position, and the next one is current only when the
//! store has answered that the current one is gone or dead: so the next owner finds nothing that was overtaken.
//! A current message that fails stays reserved, with its payload in memory, so that nothing has to make room for it.
//!
//! A consumer may ask for several of a key: then all that it has are current. If one fails, it comes back together with
//! those that follow it, in front of what no consumer had, and the key continues once none is current.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{APPETITE_FIRST, Fate, Held, Now, Out, Slot, Table};
use crate::delivery::verdict::StaleReason;
use crate::model::limits::{ORDERED_BYTES_MAX, PARKED_MESSAGES_MAX, PER_KEY_MAX};
use crate::model::message::{Message, MessageId};
use crate::model::time::Timestamp;
use crate::store::{Reservation, ReserveLimit, Retried};

/// A key, or the id of a message without one.
pub(super) type Lane = Arc<str>;

#[derive(Debug)]
struct Line {
    slot: Slot,
    position: Timestamp,
    started: bool,
    /// How many messages are current.
    current: usize,
    /// How many of those behind came back: they are in front, by their rank.
    returned: usize,
    behind: VecDeque<Held>,
}

#[derive(Debug)]
struct Waiting {
    held: Held,
    /// The draft with this ticket has the charge of its last attempt.
    ticket: u64,
}

#[derive(Debug)]
pub(super) struct OrderedDelivery {
    lane: Lane,
    held: Held,
}

impl OrderedDelivery {
    pub(super) fn is_of(&self, lane: &Lane) -> bool {
        self.lane == *lane
    }
}

/// A key of which a consumer gets several messages, and how many more.
#[derive(Debug)]
pub(super) struct Batch {
    lane: Lane,
    more: usize,
}

impl Batch {
    /// After the hand-out of a message: of the same key one more, and of another key the first one.
    pub(super) fn follow(batch: Option<Batch>, held: &Held, per_key: usize) -> Option<Batch> {
        if per_key <= 1 {
            return None;
        }
        let lane = lane_of(&held.message);
        match batch {
            Some(Batch { lane: same, more }) if same == lane => Some(Batch { lane, more: more.saturating_sub(1) }),
            _ => Some(Batch { lane, more: per_key - 1 }),
        }
    }
}

/// The order of messages of a key that are reserved: those of one millisecond are reserved in their order.
fn rank(held: &Held) -> (Timestamp, Reservation, usize) {
    (held.position, held.slot.reservation, held.slot.index)
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
    /// Messages on their way back into the zset: nothing is reserved meanwhile, since it may stand before that.
    returning: usize,
}

impl Order {
    /// The part of a reservation that there is room for. At a bound nothing is reserved until something is settled: so what is
    /// behind in the zset, also of other keys, waits there in its order.
    pub(super) fn room(&self, limit: ReserveLimit) -> Option<ReserveLimit> {
        let space = PARKED_MESSAGES_MAX - self.parked.min(PARKED_MESSAGES_MAX);
        if self.returning > 0 || space < APPETITE_FIRST || self.bytes >= ORDERED_BYTES_MAX {
            return None;
        }
        Some(ReserveLimit { messages: limit.messages.min(space), ..limit })
    }

    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn hand_out(&mut self, held: &Held) -> OrderedDelivery {
        let lane = lane_of(&held.message);
        if let Some(line) = self.lines.get_mut(&lane) {
            line.started = true;
        }
        self.bytes += held.bytes;
        OrderedDelivery { lane, held: held.clone() }
    }

    /// A current message of a key goes back, in front of those that no consumer had. Its bytes stay counted.
    fn come_back(&mut self, lane: &Lane, held: Held) {
        let Some(line) = self.lines.get_mut(lane) else { return };
        let at = line.behind.range(..line.returned).filter(|before| rank(before) < rank(&held)).count();
        line.behind.insert(at, held);
        line.returned += 1;
        line.current -= 1;
        self.parked += 1;
    }

    /// A current message is gone. True if none is current any more.
    fn end_current(&mut self, lane: &Lane) -> bool {
        let Some(line) = self.lines.get_mut(lane) else { return false };
        line.current = line.current.saturating_sub(1);
        line.current == 0
    }

    /// Takes a message that no consumer has and that is not ready out of its line, with whether it was current.
    pub(super) fn pull(&mut self, lane: &Lane, slot: Slot) -> Option<(Held, bool)> {
        if let Some(held) = self.pull_waiting(slot) {
            return Some((held, true));
        }
        let line = self.lines.get_mut(lane)?;
        let at = line.behind.iter().position(|held| held.slot == slot)?;
        let held = line.behind.remove(at)?;
        line.returned -= usize::from(at < line.returned);
        self.parked -= 1;
        self.bytes -= held.bytes;
        Some((held, false))
    }

    pub(super) fn pull_waiting(&mut self, slot: Slot) -> Option<Held> {
        let key = self.waiting.iter().find(|(_, waiting)| waiting.held.slot == slot).map(|(key, _)| *key)?;
        let held = self.waiting.remove(&key)?.held;
        self.bytes -= held.bytes;
        Some(held)
    }

    /// Takes what is behind in a key, from this message on. Without one all of it, and the key is over: its current message
    /// has left before.
    pub(super) fn cut(&mut self, lane: &Lane, from: Option<Slot>) -> Vec<Held> {
        let Some(line) = self.lines.get_mut(lane) else { return Vec::new() };
        let at = match from {
            None => 0,
            Some(slot) => match line.behind.iter().position(|held| held.slot == slot) {
                Some(at) => at,
                None => return Vec::new(),
            },
        };
        let cut: Vec<Held> = line.behind.drain(at..).collect();
        line.returned = line.returned.min(at);
        if from.is_none() {
            self.lines.remove(lane);
        }
        self.parked -= cut.len();
        self.bytes -= cut.iter().map(|held| held.bytes).sum::<usize>();
        cut
    }

    /// A message is on its way back into the zset.
    pub(super) fn expect_back(&mut self) {
        self.returning += 1;
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Held> {
        self.waiting.values().map(|waiting| &waiting.held)
    }

    pub(super) fn behind_all(&self) -> impl Iterator<Item = &Held> {
        self.lines.values().flat_map(|line| &line.behind)
    }

    /// The first of those behind in a key.
    pub(super) fn first_id(&self, lane: &Lane) -> Option<MessageId> {
        self.lines.get(lane)?.behind.front().map(|held| held.message.id.clone())
    }

    pub(super) fn behind(&mut self, lane: &Lane, slot: Slot) -> Option<&mut Held> {
        self.lines.get_mut(lane)?.behind.iter_mut().find(|held| held.slot == slot)
    }

    pub(super) fn in_line(&self) -> impl Iterator<Item = &Held> {
        self.behind_all().chain(self.waiting())
    }

    pub(super) fn wait(&mut self, held: Held, ticket: u64) {
        self.number += 1;
        self.bytes += held.bytes;
        self.waiting.insert((held.ready_at, self.number), Waiting { held, ticket });
    }

    fn park(line: &mut Line, held: Held) {
        let later =
            line.behind.range(line.returned..).rev().take_while(|behind| behind.position > held.position).count();
        line.behind.insert(line.behind.len() - later, held);
    }

    /// The next one of a key becomes current. With whether a consumer had it.
    fn next(&mut self, lane: &Lane) -> Option<(Held, bool)> {
        let line = self.lines.get_mut(lane)?;
        let Some(next) = line.behind.pop_front() else {
            self.lines.remove(lane);
            return None;
        };
        let was_out = line.returned > 0;
        (line.slot, line.position, line.started, line.current) = (next.slot, next.position, was_out, 1);
        line.returned -= usize::from(was_out);
        self.parked -= 1;
        self.bytes -= next.bytes;
        Some((next, was_out))
    }

    /// Everything that nobody has and that is not ready: those that wait, and those behind. Keys whose current messages
    /// are out, or not settled, keep these.
    fn drain(&mut self) -> (Vec<Held>, Vec<Held>) {
        let waiting = std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.held).collect::<Vec<_>>();
        let mut behind = Vec::new();
        for line in self.lines.values_mut() {
            line.returned = 0;
            behind.extend(line.behind.drain(..));
        }
        self.parked = 0;
        waiting.iter().chain(&behind).for_each(|held| self.bytes -= held.bytes);
        (waiting, behind)
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
                let (slot, position) = (held.slot, held.position);
                let (started, current, returned, behind) = (false, 1, 0, VecDeque::new());
                free.insert(Line { slot, position, started, current, returned, behind });
                return self.take_turn(held, now);
            }
            Entry::Occupied(line) => line.into_mut(),
        };
        order.parked += 1;
        order.bytes += held.bytes;
        let overtakes = !current.started && held.position < current.position;
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
            let at = line.behind.partition_point(|before| before.position < later.position);
            line.behind.insert(at, later);
        }
        if let Some((first, _)) = first {
            self.take_turn(first, now);
        }
    }

    pub(super) fn withdraw(&mut self, slot: Slot) -> Option<Held> {
        let position = |line: &VecDeque<Held>| line.iter().position(|held| held.slot == slot);
        let found = match position(&self.ready) {
            Some(at) => self.ready.remove(at),
            None => position(&self.uncharged).and_then(|at| self.uncharged.remove(at)),
        };
        self.held_bytes -= found.as_ref().map_or(0, |held| held.bytes);
        found
    }

    /// It is the turn of a message, at once or when its next attempt is due.
    fn take_turn(&mut self, held: Held, now: Now) {
        match &mut self.order {
            Some(order) if held.ready_at > now.store => order.wait(held, self.tickets),
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
        let (order, ordered) = (self.order.as_mut()?, out.ordered.take()?);
        order.bytes -= ordered.held.bytes;
        Some(ordered.lane)
    }

    pub(super) fn note_draft(&mut self, lane: Option<Lane>, fate: &Fate) {
        let Some(order) = &mut self.order else { return };
        order.leaving.extend(lane);
        order.returning -= usize::from(matches!(fate, Fate::Back(_)));
    }

    /// The next message of the key of a batch, for the same consumer. One that was charged before has its turn alone.
    pub(super) fn successor(&mut self, batch: &mut Batch, min_age: Duration, now: Now) -> Option<Held> {
        let order = self.order.as_mut().filter(|_| batch.more > 0)?;
        let line = order.lines.get_mut(&batch.lane)?;
        let may = |held: &&Held| {
            let ripe_at = held.message.envelope.pushed_at.plus(min_age);
            held.charged == 0 && held.ready_at.max(ripe_at) <= now.store
        };
        line.behind.front().filter(may)?;
        let next = line.behind.pop_front()?;
        line.returned = line.returned.saturating_sub(1);
        line.current += 1;
        order.parked -= 1;
        order.bytes -= next.bytes;
        Some(next)
    }

    /// A delivery failed and is tried again: it stays reserved, and only its charge goes to the store.
    pub(super) fn fail_in_order(&mut self, serial: u64, ordered: OrderedDelivery, retried: Retried, now: Now) {
        let OrderedDelivery { lane, held } = ordered;
        let (next_at, attempts) = (retried.next_at, retried.attempts);
        self.decide_fate(retried.id.clone(), held.slot, None, Fate::Kept(retried));
        let failed = Held { ready_at: next_at, charged: attempts, charged_before: attempts, ..held };
        if let Some(order) = &mut self.order {
            order.come_back(&lane, failed);
        }
        for later in serial + 1..serial + PER_KEY_MAX as u64 {
            self.recall(later, &lane, now);
        }
        if self.order.as_ref().is_some_and(|order| order.lines.get(&lane).is_some_and(|line| line.current == 0)) {
            self.go_on(&lane, now);
        }
    }

    /// Ends a delivery of this key as if it had not been made. One whose own deadline has passed fails itself.
    fn recall(&mut self, serial: u64, lane: &Lane, now: Now) {
        let is_of_key = |out: &Out| out.ordered.as_ref().is_some_and(|ordered| ordered.lane == *lane);
        if !self.out.get(&serial).is_some_and(|out| out.deadline > now.elapsed && is_of_key(out)) {
            return;
        }
        let Some(Out { deadline, ordered: Some(ordered), .. }) = self.out.remove(&serial) else { return };
        let held = ordered.held;
        self.deadlines.remove(&(deadline, serial));
        self.recent.get_or_insert_default().ended(serial, StaleReason::Returned);
        let (id, attempts, next_at) = (held.message.id.clone(), held.charged_before, held.ready_at);
        if held.charged != attempts {
            let kept = Retried { id: id.clone(), next_at, attempts, failure: None };
            self.decide_fate(id, held.slot, None, Fate::Kept(kept));
        }
        if let Some(order) = &mut self.order {
            order.come_back(lane, Held { charged: attempts, ..held });
        }
    }

    fn go_on(&mut self, lane: &Lane, now: Now) {
        let Some(order) = &mut self.order else { return };
        match order.next(lane) {
            // Its next attempt has to follow what was decided about it.
            Some((next, true)) => order.wait(next, self.tickets),
            Some((next, false)) => self.take_turn(next, now),
            None => {}
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
            if self.order.as_mut().is_some_and(|order| order.end_current(&lane)) {
                self.go_on(&lane, now);
            }
        }
        self.ready.len() > before
    }

    pub(super) fn give_back_in_order(&mut self, ready: Vec<Held>) {
        let Some(order) = &mut self.order else { return };
        let (waiting, behind) = order.drain();
        ready.iter().chain(&waiting).for_each(|held| order.leave(held));
        let all: Vec<Held> = ready.into_iter().chain(waiting).chain(behind).collect();
        order.returning += all.len();
        for held in all {
            self.put_back_in_order(held, false);
        }
    }
}
