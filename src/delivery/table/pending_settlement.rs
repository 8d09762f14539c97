//! What the owner's memory has decided, as the next call to the store.

use std::collections::BTreeSet;

use super::{Fate, Table};
use crate::model::limits::CALL_IDS_MAX;
use crate::model::message::MessageId;
use crate::store::{Reservation, Settlement};

/// Reservations that one settlement rewrites: each may list a thousand ids.
const REWRITTEN_MAX: usize = 64;

impl Table {
    /// The next decisions for the store, at most one call of them, with the ticket of the last.
    pub fn draft(&mut self) -> Option<(Settlement, u64)> {
        if self.decided.is_empty() {
            return None;
        }
        let mut settlement = Settlement { dedup_window: self.policy.dedup_window, ..Settlement::default() };
        let mut rewritten = BTreeSet::new();
        while settlement.len() < CALL_IDS_MAX && rewritten.len() < REWRITTEN_MAX {
            let Some((id, slot, lane, fate)) = self.decided.pop_front() else { break };
            self.drafted += 1;
            self.note_draft(lane, &fate);
            // An acked id may stay in its reservation: without a body it is nothing. Any other may not.
            let mut rewrite = true;
            match fate {
                Fate::Gone => {
                    settlement.acked.push(id);
                    rewrite = false;
                }
                Fate::Again(retried) => settlement.retried.push(retried),
                Fate::Kept(retried) => {
                    settlement.kept.push(retried);
                    continue;
                }
                Fate::Back(returned) => settlement.returned.push(returned),
                Fate::Dead(buried) => settlement.buried.push(buried),
            }
            let Some(unsettled) = self.reservations.get_mut(&slot.reservation) else { continue };
            unsettled.ids[slot.index] = None;
            unsettled.left -= 1;
            self.unsettled -= 1;
            if rewrite || unsettled.left == 0 {
                rewritten.insert(slot.reservation);
            }
        }
        for reservation in rewritten {
            settlement.remaining.push((reservation, self.remaining(reservation)));
        }
        Some((settlement, self.drafted))
    }

    /// The unsettled ids of a reservation; one without any is forgotten.
    fn remaining(&mut self, reservation: Reservation) -> Vec<MessageId> {
        match self.reservations.get(&reservation) {
            Some(unsettled) if unsettled.left > 0 => unsettled.ids.iter().flatten().cloned().collect(),
            _ => {
                self.reservations.remove(&reservation);
                Vec::new()
            }
        }
    }
}
