//! What a store is, in its simplest form: maps, and no idea of disks, networks or speed.

use std::collections::{BTreeMap, BTreeSet};

use dwell::message::{Message, MessageId};
use dwell::store::{Charge, PairStats, Pushed, Settlement};
use dwell::time::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Place {
    Waiting(Timestamp),
    Held,
    Dead(Timestamp, u32),
}

#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) message: Message,
    pub(super) place: Place,
    pub(super) attempts: Option<u32>,
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
    seen: BTreeMap<MessageId, Timestamp>,
}

impl Model {
    pub(super) fn push(&mut self, messages: &[Message], now: Timestamp) -> Vec<Pushed> {
        let mut answers = Vec::new();
        for message in messages {
            let held = self.groups.iter().any(|group| group.messages.contains_key(&message.id));
            let seen = self.seen.get(&message.id).is_some_and(|until| *until > now);
            answers.push(if held || seen { Pushed::Duplicate } else { Pushed::Stored });
            if !held && !seen {
                let known = Known { message: message.clone(), place: Place::Waiting(message.due_at), attempts: None };
                self.groups.iter_mut().for_each(|group| drop(group.messages.insert(message.id.clone(), known.clone())));
            }
        }
        answers
    }

    /// Gives the second group what the first one has and it has not; answers how many messages that is.
    pub(super) fn copy(&mut self) -> usize {
        let [source, copy] = &mut self.groups;
        let mut copied = 0;
        for (id, known) in &source.messages {
            if matches!(known.place, Place::Dead(..)) {
                continue;
            }
            copy.messages.entry(id.clone()).or_insert_with(|| {
                copied += 1;
                let message = known.message.clone();
                Known { place: Place::Waiting(message.due_at), message, attempts: None }
            });
        }
        copied
    }

    pub(super) fn settle(&mut self, group: usize, epoch: u64, settlement: &Settlement, now: Timestamp) {
        let messages = &mut self.groups[group].messages;
        for id in &settlement.acked {
            messages.remove(id);
            if !settlement.dedup_window.is_zero() {
                self.seen.insert(id.clone(), now.plus(settlement.dedup_window));
            }
        }
        for retried in &settlement.retried {
            messages.entry(retried.id.clone()).and_modify(|known| {
                (known.place, known.attempts) = (Place::Waiting(retried.next_at), Some(retried.attempts));
            });
        }
        for returned in &settlement.returned {
            messages.entry(returned.id.clone()).and_modify(|known| known.place = Place::Waiting(returned.ready_at));
        }
        for buried in &settlement.buried {
            messages.entry(buried.id.clone()).and_modify(|known| {
                (known.place, known.attempts) = (Place::Dead(now, buried.record.attempts), None);
            });
        }
        for (reservation, ids) in &settlement.remaining {
            let name = (epoch, reservation.0);
            self.groups[group].reservations.insert(name, ids.clone());
        }
    }
}

impl Group {
    /// Waiting messages by due time and id.
    fn waiting(&self) -> BTreeSet<(Timestamp, MessageId)> {
        let waiting = self.messages.iter().filter_map(|(id, known)| match known.place {
            Place::Waiting(at) => Some((at, id.clone())),
            _ => None,
        });
        waiting.collect()
    }

    /// The earliest due time after `now`.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.waiting().into_iter().map(|(at, _)| at).find(|at| *at > now)
    }

    /// Id, due time and attempts of what is taken, and the head of the rest.
    pub(super) fn reserve(
        &mut self,
        name: (u64, u64),
        most: usize,
        now: Timestamp,
    ) -> Vec<(MessageId, Timestamp, u32)> {
        let mut taken = Vec::new();
        for (at, id) in self.waiting().into_iter().filter(|(at, _)| *at <= now).take(most) {
            if let Some(known) = self.messages.get_mut(&id) {
                known.place = Place::Held;
                taken.push((id, at, known.attempts.unwrap_or(0)));
            }
        }
        self.reservations.insert(name, taken.iter().map(|(id, _, _)| id.clone()).collect());
        taken
    }

    pub(super) fn start(&mut self, charge: &Charge) {
        self.messages.entry(charge.id.clone()).and_modify(|known| known.attempts = Some(charge.attempts));
    }

    /// Number of messages that are due again.
    pub(super) fn recover(&mut self, now: Timestamp) -> usize {
        let mut recovered = 0;
        for id in std::mem::take(&mut self.reservations).into_values().flatten() {
            let alive = self.messages.get_mut(&id).filter(|known| !matches!(known.place, Place::Dead(..)));
            let Some(known) = alive else { continue };
            if known.place == Place::Held {
                known.place = Place::Waiting(now);
                known.attempts.get_or_insert(1);
                recovered += 1;
            }
        }
        recovered
    }

    /// Takes dead messages out; they are gone, or ready again.
    pub(super) fn take_dead(&mut self, ids: &[MessageId], redrive_at: Option<Timestamp>) -> Vec<bool> {
        let mut take = |id| {
            let dead = self.messages.get_mut(id).filter(|known| matches!(known.place, Place::Dead(..)));
            match (dead, redrive_at) {
                (None, _) => false,
                (Some(known), Some(now)) => {
                    known.place = Place::Waiting(now);
                    true
                }
                (Some(_), None) => self.messages.remove(id).is_some(),
            }
        };
        ids.iter().map(&mut take).collect()
    }

    /// What the store has to count, but for the owner.
    pub(super) fn stats(&self, now: Timestamp) -> PairStats {
        let count = |is: fn(&Place) -> bool| self.messages.values().filter(|known| is(&known.place)).count() as u64;
        let waiting = self.waiting();
        let ready = waiting.iter().filter(|(at, _)| *at <= now).count() as u64;
        let head = waiting.first().map(|(at, _)| *at);
        PairStats {
            scheduled: waiting.len() as u64 - ready,
            ready,
            in_flight: count(|place| *place == Place::Held),
            dead: count(|place| matches!(place, Place::Dead(..))),
            head,
            oldest_ready_age: head.filter(|head| *head <= now).map(|head| now.since(head)),
            owner: None,
        }
    }
}
