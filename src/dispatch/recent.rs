//! The decisions that were made last: who makes the same one again, because its answer was lost, gets the same answer.

use std::collections::{HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};

use super::delivery::Decision;
use super::table::Decided;
use crate::limits::RECENT_DECISIONS_MAX;

/// What a consumer said, without the details: the first ones stand.
pub(super) type Said = Discriminant<Decision>;

/// The last decisions of consumers about deliveries of one epoch; deadlines that passed are none.
#[derive(Debug, Default)]
pub(super) struct Recent {
    decisions: HashMap<u64, (Said, Decided)>,
    /// Their serials, oldest decision first.
    order: VecDeque<u64>,
}

/// What was said by a decision.
pub(super) fn said(decision: &Decision) -> Said {
    discriminant(decision)
}

impl Recent {
    /// Remembers the first decision about a delivery, in place of the oldest one.
    pub(super) fn remember(&mut self, serial: u64, said: Said, decided: Decided) {
        if self.order.len() == RECENT_DECISIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.decisions.remove(&oldest);
        }
        self.order.push_back(serial);
        self.decisions.insert(serial, (said, decided));
    }

    /// What the same decision did the first time. `None` for another one, and when that is forgotten.
    pub(super) fn again(&self, serial: u64, said: Said) -> Option<Decided> {
        let (first, decided) = self.decisions.get(&serial)?;
        (*first == said).then_some(Decided { again: true, ..*decided })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn so_many_are_remembered_and_not_one_more() {
        let decided = |ticket| Decided { ticket, handling: Duration::ZERO, dead: false, again: false };
        let (ack, bury) = (said(&Decision::Ack), said(&Decision::Bury { reason: None }));
        let (mut recent, most) = (Recent::default(), RECENT_DECISIONS_MAX as u64);
        for serial in 0..most {
            recent.remember(serial, ack, decided(serial + 1));
        }
        assert_eq!(recent.again(0, ack), Some(Decided { again: true, ..decided(1) }));
        assert_eq!(recent.again(0, bury), None);
        recent.remember(most, bury, decided(most + 1));
        assert_eq!(recent.again(0, ack), None);
        assert_eq!(recent.again(1, ack), Some(Decided { again: true, ..decided(2) }));
        assert_eq!((recent.decisions.len(), recent.order.len()), (RECENT_DECISIONS_MAX, RECENT_DECISIONS_MAX));
    }
}
