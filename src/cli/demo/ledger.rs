//! What was pushed, what came, and what was said of it: by our own clock, whatever the broker claims.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::orders::{Kind, Planned};
use crate::cli::api::{Delivery, Pushed};
use crate::model::time::Timestamp;

/// The life of every message of the demo.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    lives: HashMap<String, Life>,
    /// Deliveries of messages that nobody pushed.
    pub(super) strangers: Vec<String>,
    /// Settlements that were not answered as they should.
    pub(super) refused: Vec<String>,
    /// Orders that were closed, and that were paid in time.
    pub(super) closed: u64,
    pub(super) paid: u64,
}

/// The life of one message.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) kind: Kind,
    /// What the push was answered with; nothing when it was not stored.
    pub(super) due_at: Option<Timestamp>,
    pub(super) seen: Vec<Seen>,
    pub(super) acked: bool,
    /// The consumer has given it up: it nacked its last attempt.
    pub(super) given_up: bool,
}

/// One delivery.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) attempt: u32,
    /// When we got it.
    pub(super) at: Timestamp,
    /// When it was due, as the delivery says.
    pub(super) due_at: Timestamp,
    /// How late the broker says it handed it over.
    pub(super) lateness: Duration,
    /// When we sent the nack, and after how long it may come again.
    pub(super) nacked: Option<(Timestamp, Duration)>,
}

impl Life {
    /// Whether nothing more has to happen to it.
    fn is_over(&self) -> bool {
        self.acked || self.given_up
    }

    /// The earliest time, by our clock, at which each delivery may come. What was never stored may never come.
    pub(super) fn not_before(&self) -> impl Iterator<Item = (Timestamp, &Seen)> {
        let retries = self.seen.iter().map(|seen| {
            let never = Timestamp::from_ms(u64::MAX);
            seen.nacked.map_or(never, |(at, delay)| at.plus(delay))
        });
        std::iter::once(self.due_at.unwrap_or(Timestamp::from_ms(u64::MAX))).chain(retries).zip(&self.seen)
    }
}

impl Ledger {
    /// Notes what is about to be pushed: a delivery may be faster than the answer to the push.
    pub(super) fn expect(&mut self, planned: &[Planned]) {
        for message in planned {
            let life = Life { kind: message.kind, due_at: None, seen: Vec::new(), acked: false, given_up: false };
            self.lives.insert(message.id.clone(), life);
        }
    }

    /// Notes what pushes were answered with.
    pub(super) fn pushed(&mut self, results: &[Pushed]) {
        for result in results.iter().filter(|result| result.is_accepted()) {
            if let Some(life) = result.id.as_ref().and_then(|id| self.lives.get_mut(id)) {
                life.due_at = result.due_at;
            }
        }
    }

    /// Notes a delivery.
    pub(super) fn delivered(&mut self, delivery: &Delivery, at: Timestamp) {
        let lateness = Duration::from_millis(delivery.lateness_ms);
        let seen = Seen { attempt: delivery.attempt, at, due_at: delivery.due_at, lateness, nacked: None };
        match self.lives.get_mut(&delivery.id) {
            Some(life) => life.seen.push(seen),
            None => self.strangers.push(delivery.id.clone()),
        }
    }

    /// Notes that a delivery is about to be nacked, and when it may come again; nothing when it must not.
    pub(super) fn nacking(&mut self, id: &str, at: Timestamp, again: Option<Duration>) {
        if let Some(seen) = self.lives.get_mut(id).and_then(|life| life.seen.last_mut()) {
            seen.nacked = again.map(|delay| (at, delay));
        }
    }

    /// Notes what a settlement was answered with.
    pub(super) fn settled(&mut self, id: &str, wanted: &str, status: &str) {
        // Pending is a promise to do it; whether it was kept shows at the end, when nothing may be left.
        let expected = match status {
            "acked" | "nacked" => status == wanted,
            // What the nack of a last attempt comes to.
            "buried" => wanted == "nacked",
            other => other == "pending",
        };
        match self.lives.get_mut(id) {
            Some(life) if expected => {
                life.acked = wanted == "acked";
                life.given_up = !life.acked && life.seen.last().is_some_and(|seen| seen.nacked.is_none());
            }
            _ => self.refused.push(format!("{id} {status}")),
        }
    }

    /// All lives.
    pub(super) fn lives(&self) -> impl Iterator<Item = (&str, &Life)> {
        self.lives.iter().map(|(id, life)| (id.as_str(), life))
    }

    /// Lives of one kind.
    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Life> {
        self.lives.values().filter(move |life| life.kind == kind)
    }

    /// Messages that were pushed and are neither acked nor given up.
    pub(super) fn open(&self) -> usize {
        self.lives.values().filter(|life| !life.is_over()).count()
    }

    /// For each kind: messages that are over, and deliveries.
    pub(super) fn counts(&self) -> BTreeMap<Kind, (u64, u64)> {
        let mut counts = BTreeMap::new();
        for life in self.lives.values() {
            let (over, deliveries) = counts.entry(life.kind).or_insert((0, 0));
            *over += u64::from(life.is_over());
            *deliveries += life.seen.len() as u64;
        }
        counts
    }
}
