//! Decisions about deliveries: what consumers say, and deadlines that pass.

use std::collections::BTreeSet;

use super::{Fate, Now, Out, Table};
use crate::codec::{DeadReason, DeadRecord, Failure};
use crate::delivery::receipt::Decision;
use crate::delivery::verdict::{Decided, StaleReason, UnknownReason, Verdict, kind_of};
use crate::model::limits::CALL_IDS_MAX;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;
use crate::store::{Buried, Reservation, Retried, Settlement};

const REWRITTEN_MAX: usize = 64;

impl Table {
    /// The first decision stands; a repeated one gets the same answer while it is remembered. Errors: why it cannot be
    /// settled.
    pub fn decide(&mut self, serial: u64, decision: Decision, now: Now) -> Result<Decided, Verdict> {
        let kind = kind_of(&decision);
        let Some(out) = self.out.remove(&serial) else {
            return self
                .recent
                .as_ref()
                .and_then(|recent| recent.again(serial, kind))
                .ok_or_else(|| self.refusal(serial));
        };
        let decided = self.conclude(serial, out, decision, now);
        self.recent.get_or_insert_default().remember(serial, kind, decided);
        Ok(decided)
    }

    fn refusal(&self, serial: u64) -> Verdict {
        if serial < self.serial {
            Verdict::Stale(self.recent.as_ref().map_or(StaleReason::DeliveryEnded, |recent| recent.end(serial)))
        } else {
            Verdict::Unknown(UnknownReason::NotIssued)
        }
    }

    fn conclude(&mut self, serial: u64, mut out: Out, decision: Decision, now: Now) -> Decided {
        self.deadlines.remove(&(out.deadline, serial));
        let handling = now.instant.since(out.handed_at);
        let dead = match decision {
            Decision::Ack => {
                let lane = self.freed(&mut out);
                self.decide_fate(out.id, out.slot, lane, Fate::Gone);
                false
            }
            Decision::Bury { reason } => {
                self.bury_out(out, DeadReason::Buried, reason, now);
                true
            }
            Decision::Nack { reason, .. } if out.attempt >= out.max_attempts => {
                self.bury_out(out, DeadReason::MaxAttempts, reason, now);
                true
            }
            Decision::Nack { delay, reason } => {
                let failure = Some(Failure::new(now.store, out.attempt, reason.as_deref()));
                let delay = delay.unwrap_or_else(|| self.policy.backoff.delay(out.attempt, now.chance));
                self.try_again(serial, out, now.store.plus(delay), failure, now);
                false
            }
        };
        Decided { ticket: self.tickets, handling, dead, again: false }
    }

    fn try_again(&mut self, serial: u64, mut out: Out, next_at: Timestamp, failure: Option<Failure>, now: Now) {
        let retried = Retried { id: out.id.clone(), next_at, attempts: out.attempt, failure };
        match out.ordered.take() {
            Some(ordered) => self.fail_in_order(serial, ordered, retried, now),
            None => self.decide_fate(out.id, out.slot, None, Fate::Again(retried)),
        }
    }

    pub fn extend(&mut self, serial: u64, deadline: Instant) -> Result<(), Verdict> {
        let Some(out) = self.out.get_mut(&serial) else { return Err(self.refusal(serial)) };
        self.deadlines.remove(&(out.deadline, serial));
        out.deadline = deadline;
        self.deadlines.insert((deadline, serial));
        Ok(())
    }

    pub fn time_out(&mut self, now: Now) -> usize {
        let mut count = 0;
        while let Some((deadline, serial)) = self.deadlines.first().copied() {
            if deadline > now.elapsed {
                break;
            }
            let reason = Some("not settled within the visibility timeout".to_owned());
            match self.out.remove(&serial) {
                Some(out) => {
                    self.conclude(serial, out, Decision::Nack { delay: None, reason }, now);
                    self.recent.get_or_insert_default().ended(serial, StaleReason::DeadlinePassed);
                }
                None => drop(self.deadlines.pop_first()),
            }
            count += 1;
        }
        count
    }

    /// The ticket of the latest decision.
    pub fn last_ticket(&self) -> u64 {
        self.tickets
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn bury_out(&mut self, mut out: Out, reason: DeadReason, error: Option<String>, now: Now) {
        let failure = Some(Failure::new(now.store, out.attempt, error.as_deref()));
        let record = DeadRecord::new(reason, out.attempt, error);
        let lane = self.freed(&mut out);
        self.decide_fate(out.id.clone(), out.slot, lane, Fate::Dead(Buried { id: out.id, record, failure }));
    }

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
