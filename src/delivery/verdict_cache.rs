//! How the last deliveries ended: a consumer that repeats a decision, because its answer was lost, gets the same answer, and
//! one that comes too late learns the reason.

use std::collections::{HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};

use super::receipt::Decision;
use super::table::Decided;
use super::verdict::StaleReason;
use crate::model::limits::RECENT_DECISIONS_MAX;

/// What a consumer said, without the details: the first ones stand.
pub(super) type Said = Discriminant<Decision>;

/// The last ends of deliveries of one epoch. Decisions do not push out deadlines that passed, nor the other way round.
#[derive(Debug, Default)]
pub(super) struct VerdictCache {
    decisions: Newest<(Said, Decided)>,
    timed_out: Newest<()>,
}

/// The newest entries, by serial.
#[derive(Debug)]
struct Newest<V> {
    entries: HashMap<u64, V>,
    /// Their serials, oldest entry first.
    order: VecDeque<u64>,
}

impl<V> Default for Newest<V> {
    fn default() -> Newest<V> {
        Newest { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<V> Newest<V> {
    fn insert(&mut self, serial: u64, entry: V) {
        if self.order.len() == RECENT_DECISIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.order.push_back(serial);
        self.entries.insert(serial, entry);
    }
}

/// What was said by a decision.
pub(super) fn said(decision: &Decision) -> Said {
    discriminant(decision)
}

impl VerdictCache {
    /// Remembers the first decision about a delivery, in place of the oldest one.
    pub(super) fn remember(&mut self, serial: u64, said: Said, decided: Decided) {
        self.decisions.insert(serial, (said, decided));
    }

    /// Remembers that the deadline of a delivery passed.
    pub(super) fn timed_out(&mut self, serial: u64) {
        self.timed_out.insert(serial, ());
    }

    /// What the same decision did the first time. `None` for another one, and when that is forgotten.
    pub(super) fn again(&self, serial: u64, said: Said) -> Option<Decided> {
        let (first, decided) = self.decisions.entries.get(&serial)?;
        (*first == said).then_some(Decided { again: true, ..*decided })
    }

    /// How a delivery ended, which is over.
    pub(super) fn end(&self, serial: u64) -> StaleReason {
        if self.decisions.entries.contains_key(&serial) {
            StaleReason::AlreadySettled
        } else if self.timed_out.entries.contains_key(&serial) {
            StaleReason::DeadlinePassed
        } else {
            StaleReason::DeliveryEnded
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn decided(ticket: u64) -> Decided {
        Decided { ticket, handling: Duration::ZERO, dead: false, again: false }
    }

    #[test]
    fn so_many_are_remembered_and_not_one_more() {
        let (ack, bury) = (said(&Decision::Ack), said(&Decision::Bury { reason: None }));
        let (mut recent, most) = (VerdictCache::default(), RECENT_DECISIONS_MAX as u64);
        for serial in 0..most {
            recent.remember(serial, ack, decided(serial + 1));
        }
        assert_eq!(recent.again(0, ack), Some(Decided { again: true, ..decided(1) }));
        assert_eq!(recent.again(0, bury), None);
        recent.remember(most, bury, decided(most + 1));
        assert_eq!(recent.again(0, ack), None);
        assert_eq!(recent.again(1, ack), Some(Decided { again: true, ..decided(2) }));
        let Newest { entries, order } = &recent.decisions;
        assert_eq!((entries.len(), order.len()), (RECENT_DECISIONS_MAX, RECENT_DECISIONS_MAX));
    }

    #[test]
    fn how_a_delivery_ended_is_known_until_it_is_forgotten() {
        let (mut recent, most) = (VerdictCache::default(), RECENT_DECISIONS_MAX as u64);
        recent.remember(0, said(&Decision::Ack), decided(1));
        for serial in 1..=most {
            recent.timed_out(serial);
        }
        assert_eq!(recent.end(0), StaleReason::AlreadySettled, "deadlines do not push decisions out");
        assert_eq!(recent.end(1), StaleReason::DeadlinePassed);
        recent.timed_out(most + 1);
        assert_eq!(recent.end(1), StaleReason::DeliveryEnded, "nobody knows any more");
    }
}
