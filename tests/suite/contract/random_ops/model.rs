//! What a store is, in its simplest form: maps, and no idea of disks, networks or speed.

use std::collections::{BTreeMap, BTreeSet};

use dwell::model::message::{Conflict, Key, Message, MessageId};
use dwell::model::time::Timestamp;
use dwell::store::{
    Charge, Expected, Fate, KeyCount, LateFate, LateSettlement, PartitionStats, Pushed, Refused, Settlement, Sorted,
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Place {
    Waiting(Timestamp),
    Held,
    Dead(Timestamp, u32),
}

#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) message: Message,
    pub(super) state: Place,
    pub(super) attempts: Option<u32>,
    /// Where it stands: kept by a topic with ordering, also while it is held.
    place: Timestamp,
    /// How many were pushed before it; all the same in a topic without ordering, and once it was dead.
    turn: u64,
    /// When it is tried again, if that is not its place.
    retry_at: Option<Timestamp>,
    /// Whether it waits among the sorted ones of its key.
    sorted: bool,
    /// What takes its place, with its id as a dead letter then.
    successor: Option<(Message, MessageId)>,
}

/// One group: its messages, and the ids in its reservations by epoch and number.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) messages: BTreeMap<MessageId, Known>,
    reservations: BTreeMap<(u64, u64), Vec<MessageId>>,
}

/// A partition: its groups, and the settled ids it remembers.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) groups: [Group; 2],
    /// Whether the topic has an ordering.
    pub(super) ordered: bool,
    turns: u64,
    seen: BTreeMap<MessageId, Timestamp>,
    /// All that was stored, for its dedup keys.
    pushed: Vec<Message>,
    /// Cancelled ids, with the groups of which they were not taken.
    cancelled: BTreeMap<MessageId, BTreeSet<usize>>,
}

fn windows_meet(one: &Message, other: &Message) -> bool {
    match (one.envelope.dedup_window(), other.envelope.dedup_window()) {
        (Some((key, from, until)), Some((other_key, other_from, other_until))) => {
            key == other_key && from < other_until && other_from < until
        }
        _ => false,
    }
}

impl Model {
    pub(super) fn push(&mut self, messages: &[Message], now: Timestamp) -> Vec<Pushed> {
        let mut answers = Vec::new();
        for message in messages {
            let held = self.groups.iter().any(|group| group.messages.contains_key(&message.id));
            let seen = self.seen.get(&message.id).is_some_and(|until| *until > now);
            let first = self.pushed.iter().find(|other| windows_meet(other, message)).map(|other| other.id.clone());
            answers.push(match first {
                _ if held || seen => Pushed::Duplicate,
                Some(first) => Pushed::DuplicateOf(first),
                None => Pushed::Stored,
            });
            if answers.last() == Some(&Pushed::Stored) {
                self.pushed.push(message.clone());
                self.cancelled.remove(&message.id);
                self.turns += u64::from(self.ordered);
                let known = Known {
                    message: message.clone(),
                    state: Place::Waiting(message.due_at),
                    attempts: None,
                    place: message.due_at,
                    turn: self.turns,
                    retry_at: None,
                    sorted: false,
                    successor: None,
                };
                self.groups.iter_mut().for_each(|group| drop(group.messages.insert(message.id.clone(), known.clone())));
            }
        }
        answers
    }

    /// What becomes of a message in each group.
    pub(super) fn cancel(&mut self, id: &MessageId) -> Vec<Fate> {
        let (mut fates, mut taken) = (Vec::new(), false);
        for (number, group) in self.groups.iter_mut().enumerate() {
            let spared = self.cancelled.get(id).map(|spared| spared.contains(&number));
            fates.push(match group.messages.get(id).map(|known| known.state) {
                Some(Place::Waiting(_)) => {
                    group.messages.remove(id);
                    taken = true;
                    Fate::Done
                }
                None if spared == Some(false) => Fate::Done,
                place => fate_of(place),
            });
        }
        if taken {
            let spared = fates.iter().enumerate().filter(|(_, fate)| **fate != Fate::Done).map(|(number, _)| number);
            self.cancelled.insert(id.clone(), spared.collect());
        }
        fates
    }

    /// The same for another due time, unless a group expects another message.
    pub(super) fn reschedule(&mut self, id: &MessageId, due_at: Timestamp, expected: Expected) -> Option<Vec<Fate>> {
        let is_other = |known: &Known| {
            let now_expected = expected.due_at.is_none_or(|at| at == known.message.due_at)
                && expected.attempts.is_none_or(|attempts| attempts == known.attempts.unwrap_or(0));
            let is_there = known.state == Place::Waiting(due_at) && known.message.due_at == due_at;
            matches!(known.state, Place::Waiting(_)) && !now_expected && !is_there
        };
        if self.groups.iter().any(|group| group.messages.get(id).is_some_and(is_other)) {
            return None;
        }
        let mut fates = Vec::new();
        for group in &mut self.groups {
            let known = group.messages.get_mut(id);
            let place = known.as_ref().map(|known| known.state);
            fates.push(if matches!(place, Some(Place::Waiting(_))) { Fate::Done } else { fate_of(place) });
            if let Some(known) = known.filter(|known| matches!(known.state, Place::Waiting(_))) {
                (known.state, known.message.due_at) = (Place::Waiting(due_at), due_at);
                // It stands first in its millisecond.
                (known.place, known.turn, known.retry_at, known.sorted) = (due_at, 0, None, false);
            }
        }
        Some(fates)
    }

    /// A push with a policy about ids that are there.
    pub(super) fn push_over(
        &mut self,
        conflict: Conflict,
        message: &Message,
        now: Timestamp,
    ) -> Result<Pushed, Refused> {
        let found: Vec<Known> =
            self.groups.iter().filter_map(|group| group.messages.get(&message.id)).cloned().collect();
        let is_living = |known: &&Known| !matches!(known.state, Place::Dead(..));
        let first_pushes = found.iter().filter(is_living).map(|known| known.message.envelope.pushed_at);
        let due_at = first_pushes.map(|first| message.due_after(first)).min().unwrap_or(message.due_at);
        let message = &Message { due_at, debounce_max: None, ..message.clone() };
        if found.is_empty() {
            return Ok(self.push(std::slice::from_ref(message), now).remove(0));
        }
        let mut living = found.iter().filter(is_living);
        if conflict == Conflict::Debounce && living.any(|known| known.message.due_at == message.due_at) {
            return Ok(Pushed::Duplicate);
        }
        if conflict == Conflict::Reject {
            return Ok(Pushed::Duplicate);
        }
        if found.iter().any(|known| matches!(known.state, Place::Dead(..))) {
            return Err(Refused::Dead);
        }
        if found.iter().any(|known| known.state == Place::Held) {
            return Err(Refused::InFlight);
        }
        self.turns += u64::from(self.ordered);
        let turn = self.turns;
        for known in self.groups.iter_mut().filter_map(|group| group.messages.get_mut(&message.id)) {
            known.state = Place::Waiting(message.due_at);
            (known.place, known.turn, known.retry_at, known.sorted) = (message.due_at, turn, None, false);
            if conflict == Conflict::Replace {
                (known.message, known.attempts, known.successor) = (message.clone(), None, None);
            } else {
                known.message.due_at = message.due_at;
            }
        }
        Ok(if conflict == Conflict::Replace { Pushed::Replaced } else { Pushed::Debounced })
    }

    /// A push that follows what is there: each group decides for itself.
    pub(super) fn push_after(&mut self, message: &Message, dead_id: &MessageId, now: Timestamp) -> Pushed {
        if self.groups.iter().all(|group| !group.messages.contains_key(&message.id)) {
            return self.push(std::slice::from_ref(message), now).remove(0);
        }
        let is_seen = self.seen.get(&message.id).is_some_and(|until| *until > now);
        let (mut replaced, mut behind) = (false, false);
        for group in &mut self.groups {
            match group.messages.get_mut(&message.id) {
                Some(known) if matches!(known.state, Place::Dead(..)) => {}
                Some(known) => {
                    let had_one = known.successor.is_some();
                    if had_one || known.state == Place::Held {
                        known.successor = Some((message.clone(), dead_id.clone()));
                        (replaced, behind) = (replaced || had_one, behind || !had_one);
                    }
                }
                None if is_seen => {}
                None => {
                    self.cancelled.remove(&message.id);
                    group.messages.insert(message.id.clone(), Known::waiting(message.clone()));
                    behind = true;
                }
            }
        }
        match (behind, replaced) {
            (true, _) => Pushed::Behind,
            (false, true) => Pushed::Replaced,
            (false, false) => Pushed::Duplicate,
        }
    }

    /// Gives the second group what the first one has and it has not; answers how many messages that is.
    pub(super) fn copy(&mut self) -> usize {
        let [source, copy] = &mut self.groups;
        let mut copied = 0;
        for (id, known) in &source.messages {
            if matches!(known.state, Place::Dead(..)) {
                continue;
            }
            copy.messages.entry(id.clone()).or_insert_with(|| {
                copied += 1;
                let message = known.message.clone();
                // What was tried, and what is held, has lost its place.
                let untouched = matches!(known.state, Place::Waiting(_)) && known.attempts.is_none() && known.turn > 0;
                let (place, turn) = if untouched { (known.place, known.turn) } else { (message.due_at, 0) };
                let state = Place::Waiting(place);
                let successor = known.successor.clone();
                Known { state, message, attempts: None, place, turn, retry_at: None, sorted: false, successor }
            });
        }
        copied
    }

    pub(super) fn settle(&mut self, group: usize, epoch: u64, settlement: &Settlement, now: Timestamp) {
        let messages = &mut self.groups[group].messages;
        for id in &settlement.acked {
            end(messages, id);
            if !settlement.dedup_window.is_zero() {
                self.seen.insert(id.clone(), now.plus(settlement.dedup_window));
            }
        }
        for retried in &settlement.retried {
            messages.entry(retried.id.clone()).and_modify(|known| {
                (known.state, known.attempts) = (Place::Waiting(retried.next_at), Some(retried.attempts));
                known.place = retried.next_at;
            });
        }
        for returned in &settlement.returned {
            messages.entry(returned.id.clone()).and_modify(|known| known.state = Place::Waiting(known.place));
        }
        for Sorted { id, ready_at, .. } in &settlement.sorted {
            messages.entry(id.clone()).and_modify(|known| {
                (known.state, known.place, known.sorted) = (Place::Waiting(*ready_at), *ready_at, true);
            });
        }
        for kept in &settlement.kept {
            messages.entry(kept.id.clone()).and_modify(|known| {
                (known.attempts, known.retry_at) = (Some(kept.attempts), Some(kept.next_at));
            });
        }
        for buried in &settlement.buried {
            let Some(mut known) = messages.remove(&buried.id) else { continue };
            (known.state, known.attempts) = (Place::Dead(now, buried.record.attempts), None);
            let dead_id = match known.successor.take() {
                Some((successor, dead_id)) => {
                    messages.insert(buried.id.clone(), Known::waiting(successor));
                    dead_id
                }
                None => buried.id.clone(),
            };
            known.message.id = dead_id.clone();
            messages.insert(dead_id, known);
        }
        for (reservation, ids) in &settlement.remaining {
            let name = (epoch, reservation.0);
            self.groups[group].reservations.insert(name, ids.clone());
        }
    }
}

/// What follows a message takes its place.
fn end(messages: &mut BTreeMap<MessageId, Known>, id: &MessageId) {
    if let Some((successor, _)) = messages.remove(id).and_then(|known| known.successor) {
        messages.insert(id.clone(), Known::waiting(successor));
    }
}

impl Known {
    /// In a topic without an ordering.
    fn waiting(message: Message) -> Known {
        let due_at = message.due_at;
        Known {
            message,
            state: Place::Waiting(due_at),
            attempts: None,
            place: due_at,
            turn: 0,
            retry_at: None,
            sorted: false,
            successor: None,
        }
    }
}

/// What is not taken.
fn fate_of(place: Option<Place>) -> Fate {
    match place {
        Some(Place::Dead(..)) => Fate::Dead,
        Some(Place::Held | Place::Waiting(_)) => Fate::InFlight,
        None => Fate::Absent,
    }
}

impl Group {
    /// Waiting messages by due time, turn and id.
    pub(super) fn waiting(&self) -> BTreeSet<(Timestamp, u64, MessageId)> {
        let waiting = self.messages.iter().filter_map(|(id, known)| match known.state {
            Place::Waiting(at) => Some((at, known.turn, id.clone())),
            _ => None,
        });
        waiting.collect()
    }

    /// The earliest due time after `now`.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.waiting().into_iter().map(|(at, ..)| at).find(|at| *at > now)
    }

    fn is_sorted(&self, id: &MessageId) -> bool {
        self.messages.get(id).is_some_and(|known| known.sorted)
    }

    /// The earliest due time, but for sorted messages.
    pub(super) fn head(&self) -> Option<Timestamp> {
        self.waiting().into_iter().find(|(_, _, id)| !self.is_sorted(id)).map(|(at, ..)| at)
    }

    /// Sorted messages of a key, oldest first.
    fn sorted_of(&self, key: Option<&Key>) -> Vec<(Timestamp, u64, MessageId)> {
        let is_of_key = |id: &MessageId| {
            self.messages.get(id).is_some_and(|known| known.sorted && known.message.envelope.key.as_ref() == key)
        };
        self.waiting().into_iter().filter(|(_, _, id)| is_of_key(id)).collect()
    }

    /// How many sorted messages there are of each key.
    pub(super) fn sorted_keys(&self) -> Vec<KeyCount> {
        let mut keys: BTreeMap<Option<Key>, u64> = BTreeMap::new();
        for known in self.messages.values().filter(|known| known.sorted) {
            *keys.entry(known.message.envelope.key.clone()).or_default() += 1;
        }
        keys.into_iter().map(|(key, messages)| KeyCount { key, messages }).collect()
    }

    /// Id, due time and attempts of what is taken.
    pub(super) fn reserve(
        &mut self,
        name: (u64, u64),
        most: usize,
        keys: &[KeyCount],
        now: Timestamp,
    ) -> Vec<(MessageId, Timestamp, u32)> {
        let due = self.waiting().into_iter().filter(|(at, _, id)| *at <= now && !self.is_sorted(id)).take(most);
        let count = |asked: &KeyCount| usize::try_from(asked.messages).unwrap_or(usize::MAX);
        let first_due = self.head().filter(|head| *head <= now);
        let is_before = |(at, ..): &(Timestamp, u64, MessageId)| first_due.is_some_and(|first_due| *at < first_due);
        let sorted = keys.iter().flat_map(|asked| {
            let of_key = self.sorted_of(asked.key.as_ref());
            let has_before = of_key.first().is_some_and(is_before);
            of_key.into_iter().take(count(asked)).take_while(move |place| !has_before || is_before(place))
        });
        let all: Vec<_> = sorted.chain(due).collect();
        self.hold(name, all)
    }

    /// The same in a fair group, where these keys have entries of sorted messages. Sorts what it does not take.
    pub(super) fn reserve_fairly(
        &mut self,
        name: (u64, u64),
        most: usize,
        share: usize,
        entries: &[KeyCount],
        now: Timestamp,
    ) -> Vec<(MessageId, Timestamp, u32)> {
        let due: Vec<_> = self.waiting().into_iter().filter(|(at, _, id)| *at <= now && !self.is_sorted(id)).collect();
        let (mut all, mut counts) = (Vec::new(), BTreeMap::<Option<Key>, usize>::new());
        for place in due {
            let Some(known) = self.messages.get_mut(&place.2) else { continue };
            let key = &known.message.envelope.key;
            let is_behind = entries.iter().any(|entry| entry.key == *key);
            let count = counts.entry(key.clone()).or_default();
            if is_behind || *count >= share || all.len() >= most {
                *count = share;
                known.sorted = true;
            } else {
                *count += 1;
                all.push(place);
            }
        }
        self.hold(name, all)
    }

    fn hold(&mut self, name: (u64, u64), all: Vec<(Timestamp, u64, MessageId)>) -> Vec<(MessageId, Timestamp, u32)> {
        let mut taken = Vec::new();
        for (at, _, id) in all {
            if let Some(known) = self.messages.get_mut(&id) {
                (known.state, known.sorted) = (Place::Held, false);
                taken.push((id, known.retry_at.unwrap_or(at), known.attempts.unwrap_or(0)));
            }
        }
        self.reservations.insert(name, taken.iter().map(|(id, _, _)| id.clone()).collect());
        taken
    }

    pub(super) fn start(&mut self, charge: &Charge) {
        self.messages.entry(charge.id.clone()).and_modify(|known| known.attempts = Some(charge.attempts));
    }

    /// Number of messages that are due again.
    pub(super) fn recover(&mut self, now: Timestamp, ordered: bool) -> usize {
        let mut recovered = 0;
        for id in std::mem::take(&mut self.reservations).into_values().flatten() {
            let alive = self.messages.get_mut(&id).filter(|known| !matches!(known.state, Place::Dead(..)));
            let Some(known) = alive else { continue };
            if known.state == Place::Held {
                let attempts = known.attempts.unwrap_or(0);
                if attempts == 0 && ordered {
                    known.retry_at = Some(now);
                }
                if !ordered {
                    known.place = now;
                }
                known.state = Place::Waiting(known.place);
                known.attempts = Some(attempts.max(1));
                recovered += 1;
            }
        }
        recovered
    }

    /// What a settlement does that comes after a delivery of this version ended.
    pub(super) fn settle_late(&mut self, late: &LateSettlement, ordered: bool) -> LateFate {
        let Some(known) = self.messages.get_mut(&late.id) else { return LateFate::Over };
        let attempts = known.attempts.unwrap_or(0);
        let is_later = late.redelivered && late.next_at.is_none() && attempts > late.attempt;
        match (known.state, late.next_at) {
            (Place::Dead(..), _) => return LateFate::Over,
            (Place::Held, _) => return LateFate::InFlight,
            (Place::Waiting(_), _) if attempts != late.attempt && !is_later => return LateFate::Over,
            (Place::Waiting(_), None) => end(&mut self.messages, &late.id),
            (Place::Waiting(_), Some(next_at)) if ordered => known.retry_at = Some(next_at),
            (Place::Waiting(_), Some(next_at)) => {
                (known.state, known.place, known.sorted) = (Place::Waiting(next_at), next_at, false);
            }
        }
        LateFate::Done
    }

    /// Takes dead messages out; they are gone, or ready again.
    pub(super) fn take_dead(&mut self, ids: &[MessageId], redrive_at: Option<Timestamp>) -> Vec<bool> {
        let mut take = |id| {
            let dead = self.messages.get_mut(id).filter(|known| matches!(known.state, Place::Dead(..)));
            match (dead, redrive_at) {
                (None, _) => false,
                (Some(known), Some(now)) => {
                    (known.state, known.place, known.turn, known.retry_at) = (Place::Waiting(now), now, 0, None);
                    true
                }
                (Some(_), None) => self.messages.remove(id).is_some(),
            }
        };
        ids.iter().map(&mut take).collect()
    }

    /// What the store has to count, but for the owner.
    pub(super) fn stats(&self, now: Timestamp) -> PartitionStats {
        let count = |is: fn(&Place) -> bool| self.messages.values().filter(|known| is(&known.state)).count() as u64;
        let waiting = self.waiting();
        let ready = waiting.iter().filter(|(at, ..)| *at <= now).count() as u64;
        let head = waiting.first().map(|(at, ..)| *at);
        PartitionStats {
            scheduled: waiting.len() as u64 - ready,
            ready,
            in_flight: count(|place| *place == Place::Held),
            dead: count(|place| matches!(place, Place::Dead(..))),
            head,
            oldest_ready_age: head.filter(|head| *head <= now).map(|head| now.since(head)),
            owner: None,
            ..PartitionStats::default()
        }
    }
}
