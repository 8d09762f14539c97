//! The messages of a key one after the other, in the memory of a partition whose topic has an ordering.
//!
//! Of each key one message is the *current* one: ready, with a consumer, waiting for its next attempt, or decided about and
//! not settled yet. Reserved messages of the same key stand behind it, by position, and the next one is current only when the
//! store has answered that the current one is gone or dead: so the next owner finds nothing that was overtaken.
//! A current message that fails stays reserved, with its payload in memory, so that nothing has to make room for it.
//!
//! A consumer may ask for several of a key: then all that it has are current. If one fails, it comes back, alone or with
//! those that follow it, in front of what no consumer had. It is current again once no earlier one is; what no consumer
//! had is current once nothing is.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{APPETITE_FIRST, DeliveryEnd, Held, Now, Out, Slot, Table};
use crate::delivery::verdict::StaleReason;
use crate::model::limits::{ORDERED_BYTES_MAX, PARKED_MESSAGES_MAX, PER_KEY_MAX};
use crate::model::message::{Message, MessageId};
use crate::model::retry::OnFailure;
use crate::model::time::Timestamp;
use crate::store::{Charge, ReserveLimit, Retried};

/// A key, or the id of a message without one.
pub(super) type Lane = Arc<str>;

/// The order of messages of a key that are reserved: those of one millisecond are reserved in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    position: Timestamp,
    slot: Slot,
}

fn rank(held: &Held) -> Rank {
    Rank { position: held.position, slot: held.slot }
}

#[derive(Debug)]
struct Line {
    current: Vec<Rank>,
    /// Whether a consumer had one of the current ones.
    started: bool,
    /// How many of those behind came back: they are in front, by their rank.
    returned: usize,
    behind: VecDeque<Held>,
}

impl Line {
    fn of(first: &Held) -> Line {
        Line { current: vec![rank(first)], started: false, returned: 0, behind: VecDeque::new() }
    }

    /// Whether a message behind has to wait for a current one: for an earlier one if it came back, and else for any. A
    /// message in `batch` goes to the same consumer before it.
    fn is_blocked(&self, at: usize, batch: &[Rank]) -> bool {
        let Some(held) = self.behind.get(at) else { return true };
        let waits_for = |current: &&Rank| at >= self.returned || **current < rank(held);
        !self.current.iter().filter(waits_for).all(|current| batch.contains(current))
    }

    fn end(&mut self, slot: Slot) {
        self.current.retain(|current| current.slot != slot);
    }
}

#[derive(Debug)]
pub(super) struct OrderedDelivery {
    lane: Lane,
    held: Held,
    on_failure: OnFailure,
    /// Whether its consumer asked for another deadline.
    extended: bool,
}

impl OrderedDelivery {
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    pub(super) fn extend(&mut self) {
        self.extended = true;
    }

    pub(super) fn is_extended(&self) -> bool {
        self.extended
    }
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
    taken: Vec<Rank>,
}

impl Batch {
    /// After the hand-out of a message: of the same key one more, and of another key the first one.
    pub(super) fn follow(batch: Option<Batch>, held: &Held, per_key: usize) -> Option<Batch> {
        if per_key <= 1 {
            return None;
        }
        let lane = lane_of(&held.message);
        let batch = batch.filter(|batch| batch.lane == lane);
        let mut batch = batch.unwrap_or_else(|| Batch { lane, more: per_key, taken: Vec::new() });
        batch.more = batch.more.saturating_sub(1);
        batch.taken.push(rank(held));
        Some(batch)
    }

    /// A message of the key that goes to nobody: those behind it need not wait until the store knows.
    pub(super) fn pass_over(&mut self, held: &Held) {
        if self.lane == lane_of(&held.message) {
            self.taken.push(rank(held));
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Order {
    lines: HashMap<Lane, Line>,
    parked: usize,
    /// Current ones that wait for their next attempt, by its time and a number that tells them apart.
    waiting: BTreeMap<(Timestamp, u64), Held>,
    number: u64,
    bytes: usize,
    /// Current messages that are gone once the store has answered the draft that is out.
    leaving: Vec<(Lane, Slot)>,
    /// Messages on their way back into the zset: nothing is reserved meanwhile, since it may stand before that.
    returning: usize,
    /// Messages behind that are being charged, to be handed out with the one before them.
    charging: Vec<(Lane, Slot)>,
    /// How many successive messages of a key the last consumer wanted.
    pub(super) per_key: usize,
    /// How many stayed at the last giving back, since a consumer has others of their keys; zero once that may have changed.
    kept: usize,
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

    /// How many can be given back, of `prefetched` ready ones and the others of these lines.
    pub(super) fn holds(&self, prefetched: usize) -> usize {
        (prefetched + self.parked + self.waiting.len()).saturating_sub(self.kept)
    }

    pub(super) fn hand_out(&mut self, held: &Held, on_failure: OnFailure) -> OrderedDelivery {
        let lane = lane_of(&held.message);
        if let Some(line) = self.lines.get_mut(&lane) {
            line.started = true;
        }
        self.bytes += held.bytes;
        self.kept = 0;
        OrderedDelivery { lane, held: held.clone(), on_failure, extended: false }
    }

    /// A current message of a key goes back, in front of those that no consumer had. Its bytes stay counted.
    fn come_back(&mut self, lane: &Lane, held: Held) {
        self.kept = 0;
        let Some(line) = self.lines.get_mut(lane) else { return };
        let at = line.behind.range(..line.returned).filter(|before| rank(before) < rank(&held)).count();
        line.end(held.slot);
        line.behind.insert(at, held);
        line.returned += 1;
        self.parked += 1;
    }

    /// Takes a message that no consumer has and that is not ready out of its line, with whether it was current.
    pub(super) fn pull(&mut self, lane: &Lane, slot: Slot) -> Option<(Held, bool)> {
        if let Some(held) = self.pull_waiting(slot) {
            return Some((held, true));
        }
        self.stop_charging(slot);
        let line = self.lines.get_mut(lane)?;
        let at = line.behind.iter().position(|held| held.slot == slot)?;
        let held = line.behind.remove(at)?;
        line.returned -= usize::from(at < line.returned);
        self.parked -= 1;
        self.bytes -= held.bytes;
        Some((held, false))
    }

    pub(super) fn pull_waiting(&mut self, slot: Slot) -> Option<Held> {
        self.kept = 0;
        let key = self.waiting.iter().find(|(_, waiting)| waiting.slot == slot).map(|(key, _)| *key)?;
        let held = self.waiting.remove(&key)?;
        self.bytes -= held.bytes;
        Some(held)
    }

    /// Takes what is behind in a key, from this message on, or all of it if this is a current one, which has left before. With
    /// each whether its charge is perhaps on its way to the store. The key is over if no consumer has another one of it.
    pub(super) fn cut(&mut self, lane: &Lane, slot: Slot) -> Vec<(Held, bool)> {
        self.kept = 0;
        let Some(line) = self.lines.get_mut(lane) else { return Vec::new() };
        let at = match line.behind.iter().position(|held| held.slot == slot) {
            Some(at) => at,
            None if line.current.iter().any(|current| current.slot == slot) => 0,
            None => return Vec::new(),
        };
        line.end(slot);
        let cut: Vec<Held> = line.behind.drain(at..).collect();
        line.returned = line.returned.min(at);
        if line.current.is_empty() && line.behind.is_empty() {
            self.lines.remove(lane);
        }
        self.parked -= cut.len();
        self.bytes -= cut.iter().map(|held| held.bytes).sum::<usize>();
        cut.into_iter()
            .map(|held| (self.stop_charging(held.slot), held))
            .map(|(is_charging, held)| (held, is_charging))
            .collect()
    }

    /// Whether a message behind was being charged.
    fn stop_charging(&mut self, slot: Slot) -> bool {
        let before = self.charging.len();
        self.charging.retain(|(_, charging)| *charging != slot);
        self.charging.len() < before
    }

    /// A message is on its way back into the zset.
    pub(super) fn expect_back(&mut self) {
        self.returning += 1;
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Held> {
        self.waiting.values()
    }

    pub(super) fn behind_all(&self) -> impl Iterator<Item = &Held> {
        self.lines.values().flat_map(|line| &line.behind)
    }

    /// The first of those behind in a key.
    pub(super) fn first_id(&self, lane: &Lane) -> Option<MessageId> {
        self.lines.get(lane)?.behind.front().map(|held| held.message.id.clone())
    }

    /// A message that is changed where it stands: a charge that is on its way to the store does not count for it any more.
    pub(super) fn behind(&mut self, lane: &Lane, slot: Slot) -> Option<&mut Held> {
        self.stop_charging(slot);
        self.lines.get_mut(lane)?.behind.iter_mut().find(|held| held.slot == slot)
    }

    pub(super) fn in_line(&self) -> impl Iterator<Item = &Held> {
        self.behind_all().chain(self.waiting())
    }

    pub(super) fn wait(&mut self, held: Held) {
        self.number += 1;
        self.bytes += held.bytes;
        self.waiting.insert((held.ready_at, self.number), held);
    }

    /// The messages behind `first` that a consumer may get in the same batch, and that have to be charged before: at most
    /// `max`.
    pub(super) fn charge_followers(&mut self, first: &Held, max: usize, drafted: u64, now: Timestamp) -> Vec<Charge> {
        let lane = lane_of(&first.message);
        let Some(line) = self.lines.get(&lane) else { return Vec::new() };
        let mut charges = Vec::new();
        for (at, held) in line.behind.iter().enumerate().take(self.per_key.saturating_sub(1)) {
            // The charge has to follow what was decided about it.
            let may = held.ready_at <= now && held.ticket <= drafted && !line.is_blocked(at, &[rank(first)]);
            if !may || charges.len() >= max {
                break;
            }
            if !held.can_be_handed_out() {
                charges.push(Charge { id: held.message.id.clone(), attempts: held.charged + 1 });
                self.charging.push((lane.clone(), held.slot));
            }
        }
        charges
    }

    /// The store has the charges.
    pub(super) fn charged(&mut self) {
        for (lane, slot) in std::mem::take(&mut self.charging) {
            let line = self.lines.get_mut(&lane);
            if let Some(held) = line.and_then(|line| line.behind.iter_mut().find(|held| held.slot == slot)) {
                held.charged += 1;
            }
        }
    }

    fn park(line: &mut Line, held: Held) {
        let later =
            line.behind.range(line.returned..).rev().take_while(|behind| behind.position > held.position).count();
        line.behind.insert(line.behind.len() - later, held);
    }

    /// The next one of a key becomes current, unless it has to wait for another one.
    fn next(&mut self, lane: &Lane) -> Option<Held> {
        let line = self.lines.get_mut(lane)?;
        if line.current.is_empty() && line.behind.is_empty() {
            self.lines.remove(lane);
            return None;
        }
        if line.is_blocked(0, &[]) {
            return None;
        }
        let next = Held { stood_behind: true, ..line.behind.pop_front()? };
        let was_out = line.returned > 0;
        line.started = was_out || !line.current.is_empty();
        line.current.push(rank(&next));
        line.returned -= usize::from(was_out);
        self.parked -= 1;
        self.bytes -= next.bytes;
        Some(next)
    }

    /// Takes what nobody has out of these lines, with `ready`. Of a key that has others with a consumer, or not settled,
    /// what came back stays: it has to be delivered before them. The second list is what stays of `ready`.
    fn drain(&mut self, ready: Vec<Held>) -> (Vec<Held>, Vec<Held>) {
        let idle: HashSet<Slot> = ready.iter().chain(self.waiting.values()).map(|held| held.slot).collect();
        let is_busy = |line: &Line| line.current.iter().any(|current| !idle.contains(&current.slot));
        let busy: HashSet<Lane> =
            self.lines.iter().filter(|(_, line)| is_busy(line)).map(|(lane, _)| lane.clone()).collect();
        let stays = |held: &Held| busy.contains(&*lane_of(&held.message));
        let (keep, mut gone): (Vec<Held>, Vec<Held>) = ready.into_iter().partition(stays);
        let (waiting, over): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(_, held)| stays(held));
        self.waiting = waiting;
        let over = over.into_values().collect::<Vec<_>>();
        over.iter().for_each(|held| self.bytes -= held.bytes);
        gone.extend(over);
        let mut parked = 0;
        self.lines.retain(|lane, line| {
            let staying = if busy.contains(lane) { line.returned } else { 0 };
            line.returned = staying;
            parked += staying;
            for held in line.behind.drain(staying..) {
                self.bytes -= held.bytes;
                gone.push(held);
            }
            busy.contains(lane)
        });
        self.parked = parked;
        self.kept = keep.len() + self.waiting.len() + parked;
        (gone, keep)
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
                free.insert(Line::of(&held));
                return self.take_turn(held, now);
            }
            Entry::Occupied(line) => line.into_mut(),
        };
        order.parked += 1;
        order.bytes += held.bytes;
        let later = current.current.first().filter(|later| !current.started && held.position < later.position).copied();
        Order::park(current, held);
        if let Some(later) = later.and_then(|later| self.withdraw(later.slot)) {
            self.replace_current(&lane, later, now);
        }
    }

    /// The first of those behind becomes the current one, and the current one goes behind.
    fn replace_current(&mut self, lane: &Lane, later: Held, now: Now) {
        let Some(order) = &mut self.order else { return };
        if let Some(line) = order.lines.get_mut(lane) {
            line.end(later.slot);
            order.parked += 1;
            order.bytes += later.bytes;
            // Before those of its millisecond, which came behind it.
            let at = line.behind.partition_point(|before| before.position < later.position);
            line.behind.insert(at, later);
        }
        self.go_on(lane, now);
    }

    pub(super) fn withdraw(&mut self, slot: Slot) -> Option<Held> {
        let position = |line: &VecDeque<Held>| line.iter().position(|held| held.slot == slot);
        match position(&self.ready) {
            Some(at) => self.ready.remove(at),
            None => position(&self.uncharged).and_then(|at| self.uncharged.remove(at)),
        }
    }

    /// It is the turn of a message, at once or when its next attempt is due. That has to follow what was decided about it.
    fn take_turn(&mut self, held: Held, now: Now) {
        match &mut self.order {
            Some(order) if held.ready_at > now.store || held.ticket > self.drafted => order.wait(held),
            _ => self.present(held),
        }
    }

    /// Offers a message to consumers, among others by the time since when it could have been handed out.
    fn present(&mut self, held: Held) {
        let line = if held.can_be_handed_out() { &mut self.ready } else { &mut self.uncharged };
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

    pub(super) fn note_draft(&mut self, lane: Option<Lane>, slot: Slot, end: &DeliveryEnd) {
        let Some(order) = &mut self.order else { return };
        order.leaving.extend(lane.map(|lane| (lane, slot)));
        order.returning -= usize::from(matches!(end, DeliveryEnd::Back(_)));
    }

    /// The next message of the key of a batch, for the same consumer. One whose attempt is not charged yet comes later.
    pub(super) fn successor(&mut self, batch: &mut Batch, min_age: Duration, now: Now) -> Option<Held> {
        let order = self.order.as_mut().filter(|_| batch.more > 0)?;
        let line = order.lines.get_mut(&batch.lane)?;
        let may = |held: &&Held| {
            let ripe_at = held.message.envelope.pushed_at.plus(min_age);
            held.can_be_handed_out() && held.ready_at.max(ripe_at) <= now.store
        };
        line.behind.front().filter(may)?;
        if line.is_blocked(0, &batch.taken) {
            return None;
        }
        let next = Held { stood_behind: true, ..line.behind.pop_front()? };
        line.returned = line.returned.saturating_sub(1);
        line.current.push(rank(&next));
        order.parked -= 1;
        order.bytes -= next.bytes;
        Some(next)
    }

    /// A delivery failed, or was released: its message stays reserved, and only its charge goes to the store.
    pub(super) fn try_again_in_order(&mut self, serial: u64, ordered: OrderedDelivery, retried: Retried, now: Now) {
        let OrderedDelivery { lane, held, on_failure, .. } = ordered;
        let (next_at, attempts) = (retried.next_at, retried.attempts);
        self.decide_end(retried.id.clone(), held.slot, None, DeliveryEnd::Kept(retried));
        let (charged, charged_before, ticket) = (attempts, attempts, self.tickets);
        let failed = Held { ready_at: next_at, charged, charged_before, ticket, ..held };
        if let Some(order) = &mut self.order {
            order.come_back(&lane, failed);
        }
        if on_failure == OnFailure::ReturnRest {
            for later in serial + 1..serial + PER_KEY_MAX as u64 {
                self.recall(later, &lane, now);
            }
        }
        self.go_on(&lane, now);
    }

    /// Ends a delivery of this key as if it had not been made. One whose own deadline has passed fails itself.
    fn recall(&mut self, serial: u64, lane: &Lane, now: Now) {
        let is_of_batch =
            |ordered: &OrderedDelivery| ordered.lane == *lane && ordered.on_failure == OnFailure::ReturnRest;
        let is_of_key = |out: &Out| out.ordered.as_deref().is_some_and(is_of_batch);
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
            self.decide_end(id, held.slot, None, DeliveryEnd::Kept(kept));
        }
        let ticket = self.tickets;
        if let Some(order) = &mut self.order {
            order.come_back(lane, Held { charged: attempts, ticket, ..held });
        }
    }

    fn go_on(&mut self, lane: &Lane, now: Now) {
        if let Some(next) = self.order.as_mut().and_then(|order| order.next(lane)) {
            self.take_turn(next, now);
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
        self.fair.iter_mut().for_each(|fair| fair.resume(now));
        let Some(order) = &mut self.order else { return };
        let due = order.waiting.range(..=(now.store, u64::MAX));
        let due: Vec<_> = due.filter(|(_, held)| held.ticket <= self.drafted).map(|(key, _)| *key).collect();
        for held in due.iter().filter_map(|key| order.waiting.remove(key)).collect::<Vec<_>>() {
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
        self.fair.iter_mut().for_each(|fair| fair.settled());
        let before = self.ready.len();
        let leaving = self.order.as_mut().map(|order| std::mem::take(&mut order.leaving)).unwrap_or_default();
        for (lane, slot) in leaving {
            if let Some(order) = &mut self.order {
                order.kept = 0;
                order.lines.get_mut(&lane).into_iter().for_each(|line| line.end(slot));
            }
            self.go_on(&lane, now);
        }
        self.ready.len() > before
    }

    pub(super) fn give_back_in_order(&mut self) {
        let Some(order) = &mut self.order else { return };
        let ready: Vec<Held> = self.ready.drain(..).chain(self.uncharged.drain(..)).collect();
        let (all, keep) = order.drain(ready);
        order.returning += all.len();
        keep.into_iter().for_each(|held| self.present(held));
        for held in all {
            let is_charging = self.order.as_mut().is_some_and(|order| order.stop_charging(held.slot));
            self.put_back_in_order(held, is_charging);
        }
    }
}
