//! Settlements that come after their deliveries ended, of messages that are in memory again and that nobody has had since.

use std::time::Duration;

use super::order::{Lane, lane_of};
use super::{Fate, Held, Slot, Table};
use crate::delivery::verdict::Decided;
use crate::store::{LateSettlement, Retried};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateOutcome {
    Decided(Decided),
    /// Somebody has it or has had it since, or it was changed.
    Over,
    /// It is not here, or a decision about it is on its way to the store.
    Elsewhere,
}

impl Table {
    /// A late ack that is repeated gets the same answer while it is remembered.
    pub fn settle_late(&mut self, late: &LateSettlement) -> LateOutcome {
        let is_ack = late.next_at.is_none();
        if is_ack && let Some(again) = self.recent.as_ref().and_then(|recent| recent.again_late(late)) {
            return LateOutcome::Decided(again);
        }
        if self.decided.iter().any(|(id, ..)| *id == late.id) {
            return LateOutcome::Elsewhere;
        }
        if self.out.values().any(|out| out.id == late.id) {
            return LateOutcome::Over;
        }
        let Some(held) = self.find_held(late) else { return LateOutcome::Elsewhere };
        // An attempt that is charged and not handed out yet does not count.
        if held.version != late.version || held.charged_before != late.attempt {
            return LateOutcome::Over;
        }
        let (slot, lane) = (held.slot, lane_of(&held.message));
        match late.next_at {
            None => self.end_late(slot, lane, late),
            Some(next_at) => {
                let (id, attempts, failure) = (late.id.clone(), late.attempt, late.failure.clone());
                self.postpone(slot, &lane, Retried { id, next_at, attempts, failure });
            }
        }
        let decided = Decided { ticket: self.tickets, handling: Duration::ZERO, dead: false, again: false };
        if is_ack {
            self.recent.get_or_insert_default().remember_late(late, decided);
        }
        LateOutcome::Decided(decided)
    }

    fn find_held(&self, late: &LateSettlement) -> Option<&Held> {
        let in_line = self.order.iter().flat_map(|order| order.in_line());
        let mut held = self.ready.iter().chain(&self.uncharged).chain(&self.charging).chain(in_line);
        held.find(|held| held.message.id == late.id)
    }

    /// Takes a message that no consumer has out of memory, with whether it is the current one of its key.
    fn pull(&mut self, slot: Slot, lane: &Lane) -> Option<(Held, bool)> {
        if let Some(held) = self.withdraw(slot) {
            return Some((held, true));
        }
        match self.charging.iter().position(|held| held.slot == slot) {
            Some(at) => {
                let held = self.charging.remove(at);
                self.held_bytes -= held.bytes;
                Some((held, true))
            }
            None => self.order.as_mut()?.pull(lane, slot),
        }
    }

    fn end_late(&mut self, slot: Slot, lane: Lane, late: &LateSettlement) {
        let Some((_, is_current)) = self.pull(slot, &lane) else { return };
        let lane = (is_current && self.order.is_some()).then_some(lane);
        self.decide_fate(late.id.clone(), slot, lane, Fate::Gone);
    }

    /// With ordering it keeps its position and stays reserved.
    fn postpone(&mut self, slot: Slot, lane: &Lane, retried: Retried) {
        let (id, next_at, attempts) = (retried.id.clone(), retried.next_at, retried.attempts);
        if self.order.is_none() {
            self.pull(slot, lane);
            return self.decide_fate(id, slot, None, Fate::Again(retried));
        }
        self.decide_fate(id, slot, None, Fate::Kept(retried));
        if let Some(held) = self.order.as_mut().and_then(|order| order.behind(lane, slot)) {
            (held.ready_at, held.charged, held.charged_before) = (next_at, attempts, attempts);
        } else if let Some((held, _)) = self.pull(slot, lane)
            && let Some(order) = &mut self.order
        {
            let held = Held { ready_at: next_at, charged: attempts, charged_before: attempts, ..held };
            order.wait(held, self.tickets);
        }
    }
}
