//! Decisions about deliveries: what consumers say, and deadlines that pass.

use std::time::Duration;

use super::{Fate, Now, Out, Table};
use crate::codec::{DeadReason, DeadRecord, Failure};
use crate::delivery::receipt::Decision;
use crate::delivery::verdict::{StaleReason, UnknownReason, Verdict};
use crate::delivery::verdict_cache::said;
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;
use crate::store::{Buried, Retried};

/// What a decision means for the delivery it was made about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// Settled once [`Table::draft`] has handed out this ticket and the store has answered.
    pub ticket: u64,
    /// From hand-over to the decision.
    pub handling: Duration,
    /// Whether the message died of it.
    pub dead: bool,
    /// Whether the same was decided before: this changed nothing.
    pub again: bool,
}

impl Table {
    /// Decides about a delivery. The first decision stands: the same one again is answered as the first was, as long as
    /// that is remembered.
    ///
    /// # Errors
    /// Why the delivery cannot be settled: it is over, or never was.
    pub fn decide(&mut self, serial: u64, decision: Decision, now: Now) -> Result<Decided, Verdict> {
        let said = said(&decision);
        let Some(out) = self.out.remove(&serial) else {
            return self
                .recent
                .as_ref()
                .and_then(|recent| recent.again(serial, said))
                .ok_or_else(|| self.refusal(serial));
        };
        let decided = self.conclude(serial, out, decision, now);
        self.recent.get_or_insert_default().remember(serial, said, decided);
        Ok(decided)
    }

    /// Why a delivery that is not in flight cannot be settled.
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
                self.try_again(out, now.store.plus(delay), failure);
                false
            }
        };
        Decided { ticket: self.tickets, handling, dead, again: false }
    }

    fn try_again(&mut self, mut out: Out, next_at: Timestamp, failure: Option<Failure>) {
        match out.keepsake.take() {
            Some(keepsake) => self.keep(out, keepsake, next_at, failure),
            None => {
                let retried = Retried { id: out.id.clone(), next_at, attempts: out.attempt, failure };
                self.decide_fate(out.id, out.slot, None, Fate::Again(retried));
            }
        }
    }

    /// Moves the deadline of a delivery.
    ///
    /// # Errors
    /// Why it has none: the delivery is over, or never was.
    pub fn extend(&mut self, serial: u64, deadline: Instant) -> Result<(), Verdict> {
        let Some(out) = self.out.get_mut(&serial) else { return Err(self.refusal(serial)) };
        self.deadlines.remove(&(out.deadline, serial));
        out.deadline = deadline;
        self.deadlines.insert((deadline, serial));
        Ok(())
    }

    /// Nacks the deliveries whose deadline has passed, and counts them.
    pub fn time_out(&mut self, now: Now) -> usize {
        let mut count = 0;
        while let Some((deadline, serial)) = self.deadlines.first().copied() {
            if deadline > now.instant {
                break;
            }
            let reason = Some("not settled within the visibility timeout".to_owned());
            match self.out.remove(&serial) {
                Some(out) => {
                    self.conclude(serial, out, Decision::Nack { delay: None, reason }, now);
                    self.recent.get_or_insert_default().timed_out(serial);
                }
                None => drop(self.deadlines.pop_first()),
            }
            count += 1;
        }
        count
    }

    /// When the next delivery times out.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A delivery that its message dies of.
    fn bury_out(&mut self, mut out: Out, reason: DeadReason, error: Option<String>, now: Now) {
        let failure = Some(Failure::new(now.store, out.attempt, error.as_deref()));
        let record = DeadRecord::new(reason, out.attempt, error);
        let lane = self.freed(&mut out);
        self.decide_fate(out.id.clone(), out.slot, lane, Fate::Dead(Buried { id: out.id, record, failure }));
    }
}
