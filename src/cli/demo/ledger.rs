//! Pushes, deliveries and verdicts: by our own clock, whatever the broker claims. And how
//! far the store's clock is ahead.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::orders::{Kind, Planned};
use crate::cli::api::{Delivery, Pushed};
use crate::model::time::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    messages: HashMap<String, Life>,
    pub(super) strangers: Vec<String>,
    pub(super) refused: Vec<String>,
    pub(super) closed: u64,
    pub(super) paid: u64,
}

#[derive(Debug)]
pub(super) struct Life {
    pub(super) kind: Kind,
    /// The due time in the answer to the push; nothing when it was not stored.
    pub(super) due_at: Option<Timestamp>,
    pub(super) seen: Vec<Seen>,
    pub(super) acked: bool,
    /// The consumer has given it up: it nacked its last attempt.
    pub(super) given_up: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) attempt: u32,
    pub(super) at: Timestamp,
    pub(super) due_at: Timestamp,
    pub(super) lateness: Duration,
    pub(super) nacked: Option<(Timestamp, Duration)>,
}

impl Life {
    fn is_over(&self) -> bool {
        self.acked || self.given_up
    }

    /// The earliest time, by our clock, at which each delivery may come. A message that was never stored may never be delivered.
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
            self.messages.insert(message.id.clone(), life);
        }
    }

    pub(super) fn pushed(&mut self, results: &[Pushed]) {
        for result in results.iter().filter(|result| result.is_accepted()) {
            if let Some(life) = result.id.as_ref().and_then(|id| self.messages.get_mut(id)) {
                life.due_at = result.due_at;
            }
        }
    }

    pub(super) fn delivered(&mut self, delivery: &Delivery, at: Timestamp) {
        let lateness = Duration::from_millis(delivery.lateness_ms);
        let seen = Seen { attempt: delivery.attempt, at, due_at: delivery.due_at, lateness, nacked: None };
        match self.messages.get_mut(&delivery.id) {
            Some(life) => life.seen.push(seen),
            None => self.strangers.push(delivery.id.clone()),
        }
    }

    /// Notes that a delivery is about to be nacked, and when it may come again; nothing when it must not.
    pub(super) fn nacking(&mut self, id: &str, at: Timestamp, again: Option<Duration>) {
        if let Some(seen) = self.messages.get_mut(id).and_then(|life| life.seen.last_mut()) {
            seen.nacked = again.map(|delay| (at, delay));
        }
    }

    pub(super) fn settled(&mut self, id: &str, wanted: &str, status: &str) {
        // Pending is a promise to do it; whether it was kept shows at the end, when nothing may be left.
        let expected = match status {
            "acked" | "nacked" => status == wanted,
            // The status of the nack of a last attempt.
            "buried" => wanted == "nacked",
            other => other == "pending",
        };
        match self.messages.get_mut(id) {
            Some(life) if expected => {
                life.acked = wanted == "acked";
                life.given_up = !life.acked && life.seen.last().is_some_and(|seen| seen.nacked.is_none());
            }
            _ => self.refused.push(format!("{id} {status}")),
        }
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = (&str, &Life)> {
        self.messages.iter().map(|(id, life)| (id.as_str(), life))
    }

    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Life> {
        self.messages.values().filter(move |life| life.kind == kind)
    }

    pub(super) fn open(&self) -> usize {
        self.messages.values().filter(|life| !life.is_over()).count()
    }

    /// For each kind: messages that are over, and deliveries.
    pub(super) fn counts(&self) -> BTreeMap<Kind, (u64, u64)> {
        let mut counts = BTreeMap::new();
        for life in self.messages.values() {
            let (over, deliveries) = counts.entry(life.kind).or_insert((0, 0));
            *over += u64::from(life.is_over());
            *deliveries += life.seen.len() as u64;
        }
        counts
    }
}

/// The offset of the store's clock, from the answers to pushes: a due time is the store's time at accept plus the delay, and
/// accept lies between sending and answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offset {
    at_least_ms: i64,
    at_most_ms: i64,
}

impl Default for Offset {
    fn default() -> Offset {
        Offset { at_least_ms: i64::MIN, at_most_ms: i64::MAX }
    }
}

impl Offset {
    pub(super) fn observe(&mut self, due_at: Timestamp, delay: Duration, sent_at: Timestamp, answered_at: Timestamp) {
        let ms = |at: Timestamp| i64::try_from(at.as_ms()).unwrap_or(i64::MAX);
        let accepted = ms(due_at) - i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        // The store rounds its time up to the millisecond, we cut ours down: one of each.
        self.at_least_ms = self.at_least_ms.max(accepted - ms(answered_at) - 2);
        self.at_most_ms = self.at_most_ms.min(accepted - ms(sent_at));
    }

    /// How far the store's clock is ahead of ours at most; zero when it may well be the same clock.
    pub(super) fn ahead(&self) -> Duration {
        match (self.at_least_ms, self.at_most_ms) {
            (..=0, 0..) => Duration::ZERO,
            (_, at_most) => Duration::from_millis(u64::try_from(at_most).unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offset_is_zero_locally_and_measured_otherwise() {
        let at = Timestamp::from_ms;
        let delay = Duration::from_secs(1);
        let with = |store_ms: u64| {
            let mut offset = Offset::default();
            offset.observe(at(store_ms + 1_000), delay, at(500), at(510));
            offset.observe(at(store_ms + 1_004), delay, at(504), at(507));
            offset.ahead().as_millis()
        };
        assert_eq!(with(500), 0);
        assert_eq!(with(503), 0);
        assert_eq!(with(700), 200);
        assert_eq!(with(300), 0, "a store behind us delivers late by our clock, never early");
    }
}
