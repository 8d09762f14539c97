//! Decisions about deliveries: what consumers say, deadlines that pass, and settlements that come late: after their deliveries
//! ended, of messages that are in memory again and that nobody has had since.

use std::collections::BTreeSet;
use std::time::Duration;

use super::order::{Lane, lane_of};
use super::{DeliveryEnd, Held, Now, Out, Slot, Table, Undrafted};
use crate::codec::{DeadLetterReason, DeadLetterRecord, Failure};
use crate::delivery::receipt::Decision;
use crate::delivery::verdict::{Decided, StaleReason, UnknownReason, Verdict, kind_of};
use crate::model::last_error::LastError;
use crate::model::limits::CALL_IDS_MAX;
use crate::model::message::MessageId;
use crate::platform::clock::Instant;
use crate::store::{Buried, LateSettlement, Reservation, Retried, Settlement};

const REWRITTEN_MAX: usize = 64;

/// The outcome of a late settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateOutcome {
    Decided(Decided),
    /// Somebody has it or has had it since, or it was changed.
    Over,
    /// It is not here, or a decision about it is on its way to the store.
    Elsewhere,
}

impl Table {
    /// The first decision stands; a repeated one gets the same answer while it is remembered. Errors: why it cannot be
    /// settled.
    pub fn decide(&mut self, serial: u64, decision: Decision, now: Now) -> Result<Decided, Verdict> {
        let kind = kind_of(&decision);
        let Some(out) = self.out.remove(&serial) else { return self.decided_before(serial, &decision) };
        let decided = self.conclude(serial, out, decision, now);
        self.recent.get_or_insert_default().remember(serial, kind, decided);
        Ok(decided)
    }

    fn decided_before(&self, serial: u64, decision: &Decision) -> Result<Decided, Verdict> {
        if let Some(again) = self.recent.as_ref().and_then(|recent| recent.again(serial, kind_of(decision))) {
            return Ok(again);
        }
        match (self.refusal(serial), decision) {
            // An earlier one of its key took it along: it has ended as a release ends it.
            (Verdict::Stale(StaleReason::Returned), Decision::Release) => {
                Ok(Decided { ticket: self.tickets, handling: Duration::ZERO, dead: false, again: true })
            }
            (refusal, _) => Err(refusal),
        }
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
        if let Some(fair) = &mut self.fair {
            fair.ended(&out.key);
        }
        let handling = now.instant.since(out.handed_at);
        let decision = self.with_its_key(&out, decision, now);
        let dead = match decision {
            Decision::Ack => {
                let lane = self.freed(&mut out);
                self.decide_end(out.id, out.slot, lane, DeliveryEnd::Gone);
                false
            }
            Decision::Bury { reason } => {
                self.bury_out(out, DeadLetterReason::Buried, reason, now);
                true
            }
            Decision::Nack { reason, .. } if out.attempt >= out.max_attempts => {
                self.bury_out(out, DeadLetterReason::MaxAttempts, reason, now);
                true
            }
            Decision::Nack { delay, reason } | Decision::NackKey { delay, reason } => {
                let failure = Some(Failure::new(now.store, out.attempt, reason.as_ref()));
                let delay = delay.unwrap_or_else(|| self.policy.backoff.delay(out.attempt, now.chance));
                let (next_at, attempts) = (now.store.plus(delay), out.attempt);
                let retried = Retried { id: out.id.clone(), next_at, attempts, failure };
                self.try_again(serial, out, retried, now);
                false
            }
            Decision::Release => {
                let (next_at, attempts) = (now.store, out.attempt.saturating_sub(1));
                let retried = Retried { id: out.id.clone(), next_at, attempts, failure: None };
                self.try_again(serial, out, retried, now);
                false
            }
        };
        Decided { ticket: self.tickets, handling, dead, again: false }
    }

    /// The nack of a message whose key waits with it.
    fn with_its_key(&mut self, out: &Out, decision: Decision, now: Now) -> Decision {
        let Decision::NackKey { delay, reason } = decision else { return decision };
        let delay = delay.unwrap_or_else(|| self.policy.backoff.delay(out.attempt, now.chance));
        if let Some(key) = &out.key {
            self.pause_key(key, now.store.plus(delay), now);
        }
        Decision::Nack { delay: Some(delay), reason }
    }

    fn try_again(&mut self, serial: u64, mut out: Out, retried: Retried, now: Now) {
        match out.ordered.take() {
            Some(ordered) => self.try_again_in_order(serial, *ordered, retried, now),
            None => self.decide_end(out.id, out.slot, None, DeliveryEnd::Again(retried)),
        }
    }

    pub fn extend(&mut self, serial: u64, deadline: Instant) -> Result<(), Verdict> {
        let Some(out) = self.out.get_mut(&serial) else { return Err(self.refusal(serial)) };
        self.deadlines.remove(&(out.deadline, serial));
        out.deadline = deadline;
        if let Some(ordered) = &mut out.ordered {
            ordered.extend();
        }
        self.deadlines.insert((deadline, serial));
        Ok(())
    }

    pub fn time_out(&mut self, now: Now) -> usize {
        let mut count = 0;
        while let Some((deadline, serial)) = self.deadlines.first().copied() {
            if deadline > now.elapsed {
                break;
            }
            let reason = Some("not settled within the visibility timeout".into());
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

    fn bury_out(&mut self, mut out: Out, reason: DeadLetterReason, error: Option<LastError>, now: Now) {
        let failure = Some(Failure::new(now.store, out.attempt, error.as_ref()));
        let record = DeadLetterRecord::new(reason, out.attempt, error);
        let lane = self.freed(&mut out);
        self.decide_end(out.id.clone(), out.slot, lane, DeliveryEnd::Dead(Buried { id: out.id, record, failure }));
    }

    /// The next decisions for the store, at most one call of them, with the ticket of the last.
    pub fn draft(&mut self) -> Option<(Settlement, u64)> {
        if self.decided.is_empty() {
            return None;
        }
        let mut settlement = Settlement { dedup_window: self.policy.dedup_window, ..Settlement::default() };
        let mut rewritten = BTreeSet::new();
        while settlement.len() < CALL_IDS_MAX && rewritten.len() < REWRITTEN_MAX {
            let Some(Undrafted { id, slot, lane, end }) = self.decided.pop_front() else { break };
            self.drafted += 1;
            self.note_draft(lane, slot, &end);
            // An acked id may stay in its reservation: without a body it is nothing. Any other may not.
            let mut rewrite = true;
            match end {
                DeliveryEnd::Gone => {
                    settlement.acked.push(id);
                    rewrite = false;
                }
                DeliveryEnd::Again(retried) => settlement.retried.push(retried),
                DeliveryEnd::Kept(retried) => {
                    settlement.kept.push(retried);
                    continue;
                }
                DeliveryEnd::Back(returned) => settlement.returned.push(returned),
                DeliveryEnd::Sorted(sorted) => {
                    self.fair.iter_mut().for_each(|fair| fair.draft(&sorted));
                    settlement.sorted.push(sorted);
                }
                DeliveryEnd::Dead(buried) => settlement.buried.push(buried),
            }
            let Some(unsettled) = self.reservations.get_mut(&slot.reservation) else { continue };
            unsettled.ids[slot.index] = None;
            unsettled.left -= 1;
            self.unsettled -= 1;
            if rewrite || unsettled.left == 0 {
                rewritten.insert(slot.reservation);
            }
        }
        settlement.paused = self.fair.as_mut().map(|fair| fair.draft_pauses()).unwrap_or_default();
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

impl Table {
    /// A late ack that is repeated gets the same answer while it is remembered. One that is for later deliveries too ends
    /// the one that is out: its consumer finds it acked.
    pub fn settle_late(&mut self, late: &LateSettlement, now: Now) -> LateOutcome {
        let is_ack = late.next_at.is_none();
        if is_ack && let Some(again) = self.recent.as_ref().and_then(|recent| recent.again_late(late)) {
            return LateOutcome::Decided(again);
        }
        if self.decided.iter().any(|decided| decided.id == late.id) {
            return LateOutcome::Elsewhere;
        }
        if let Some((serial, out)) = self.out.iter().find(|(_, out)| out.id == late.id) {
            if !late.redelivered || !is_ack || out.version != late.version || !late.is_for(out.attempt) {
                return LateOutcome::Over;
            }
            let Ok(decided) = self.decide(*serial, Decision::Ack, now) else { return LateOutcome::Over };
            self.recent.get_or_insert_default().remember_late(late, decided);
            return LateOutcome::Decided(decided);
        }
        let Some(held) = self.find_held(&late.id) else { return LateOutcome::Elsewhere };
        // An attempt that is charged and not handed out yet does not count.
        if held.version != late.version || !late.is_for(held.charged_before) {
            return LateOutcome::Over;
        }
        let (slot, lane) = (held.slot, lane_of(&held.message));
        match late.next_at {
            None => self.end_late(slot, lane, late),
            Some(next_at) => {
                let (id, attempts, failure) = (late.id.clone(), late.attempt, late.failure.clone());
                let key = held.message.envelope.key.clone().filter(|_| late.pauses_key);
                self.postpone(slot, &lane, Retried { id, next_at, attempts, failure });
                if let Some(key) = key {
                    self.pause_key(&key, next_at, now);
                }
            }
        }
        let decided = Decided { ticket: self.tickets, handling: Duration::ZERO, dead: false, again: false };
        if is_ack {
            self.recent.get_or_insert_default().remember_late(late, decided);
        }
        LateOutcome::Decided(decided)
    }

    pub(super) fn find_held(&self, id: &MessageId) -> Option<&Held> {
        let in_line = self.order.iter().flat_map(|order| order.in_line());
        let mut held = self.offered().chain(in_line);
        held.find(|held| held.message.id == *id)
    }

    /// Takes a message that no consumer has out of memory, with whether it is the current one of its key.
    pub(super) fn pull(&mut self, slot: Slot, lane: &Lane) -> Option<(Held, bool)> {
        self.fair.iter_mut().for_each(|fair| fair.open_all());
        if let Some(held) = self.withdraw(slot) {
            return Some((held, true));
        }
        match self.charging.iter().position(|held| held.slot == slot) {
            Some(at) => Some((self.charging.remove(at), true)),
            None => self.order.as_mut()?.pull(lane, slot),
        }
    }

    fn end_late(&mut self, slot: Slot, lane: Lane, late: &LateSettlement) {
        let Some((_, is_current)) = self.pull(slot, &lane) else { return };
        let lane = (is_current && self.order.is_some()).then_some(lane);
        self.decide_end(late.id.clone(), slot, lane, DeliveryEnd::Gone);
    }

    /// With ordering it keeps its position and stays reserved.
    fn postpone(&mut self, slot: Slot, lane: &Lane, retried: Retried) {
        let (id, next_at, attempts) = (retried.id.clone(), retried.next_at, retried.attempts);
        if self.order.is_none() {
            self.pull(slot, lane);
            return self.decide_end(id, slot, None, DeliveryEnd::Again(retried));
        }
        self.decide_end(id, slot, None, DeliveryEnd::Kept(retried));
        let (charged, charged_before, ticket) = (attempts, attempts, self.tickets);
        if let Some(held) = self.order.as_mut().and_then(|order| order.behind(lane, slot)) {
            (held.ready_at, held.charged, held.charged_before, held.ticket) =
                (next_at, charged, charged_before, ticket);
        } else if let Some((held, _)) = self.pull(slot, lane)
            && let Some(order) = &mut self.order
        {
            order.wait(Held { ready_at: next_at, charged, charged_before, ticket, ..held });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::table::testing::{policy, table};
    use crate::delivery::table::{Gather, Now, Policy, Want};
    use crate::model::error::Result;
    use crate::model::message::{Key, MessageId, NewMessage};
    use crate::model::retry::OnFailure;
    use crate::model::time::Timestamp;
    use crate::model::version::Version;
    use crate::platform::clock::Instant;
    use crate::store::{Reservation, Reserved, ReservedMessage};

    const VERSION: Version = Version::from_us(7);
    const DUE: Timestamp = Timestamp::from_ms(1_000);

    fn now() -> Now {
        Now { store: Timestamp::from_ms(2_000), elapsed: Instant::default(), instant: Instant::default(), chance: 0.0 }
    }

    /// Takes in messages of one key that were delivered once each.
    fn with_retries(ordered: bool, ids: &[&str]) -> Result<Table> {
        let mut table = table(Policy { ordered, ..policy() })?;
        let mut messages = Vec::new();
        for (n, id) in (0..).zip(ids) {
            let mut message = NewMessage::new("x").id(MessageId::new(*id)?);
            message.key = Some(Key::new("k")?);
            let (id, at) = (MessageId::new(*id)?, DUE.plus(Duration::from_millis(n)));
            let message = Ok(message.accept(at)?);
            let reserved =
                ReservedMessage { id, ready_at: at, position: at, attempts: 1, bytes: 100, version: VERSION, message };
            messages.push(reserved);
        }
        let unsettled = messages.len() as u64;
        table.reserved(
            Reserved {
                reservation: Reservation(1),
                messages,
                head: None,
                sorted_left: Vec::new(),
                sorted: Vec::new(),
                paused: Vec::new(),
                dropped: 0,
                unsettled,
            },
            now(),
        );
        Ok(table)
    }

    fn late(id: &str) -> Result<LateSettlement> {
        Ok(LateSettlement {
            id: MessageId::new(id)?,
            version: VERSION,
            pauses_key: false,
            attempt: 1,
            redelivered: false,
            next_at: None,
            failure: None,
        })
    }

    /// The ids that a consumer gets, once their attempts are charged.
    fn take(table: &mut Table) -> Vec<String> {
        if !table.charges(9, now()).is_empty() {
            table.charged();
        }
        let visibility_timeout = Duration::from_secs(30);
        let (min_age, on_failure, gather) = (Duration::ZERO, OnFailure::default(), Gather::default());
        let want = Want { max: 9, visibility_timeout, min_age, per_key: 1, on_failure, gather };
        let mut deliveries = Vec::new();
        table.take(None, want, now(), &mut deliveries);
        deliveries.into_iter().map(|delivery| delivery.message.id.to_string()).collect()
    }

    fn is_done(outcome: LateOutcome) -> bool {
        matches!(outcome, LateOutcome::Decided(decided) if !decided.again)
    }

    #[test]
    fn late_ack_removes_a_message_anywhere_in_memory() -> Result<()> {
        for charges in 0..3 {
            let mut table = with_retries(false, &["a"])?;
            if charges > 0 {
                assert_eq!(table.charges(1, now()).len(), 1);
            }
            if charges > 1 {
                table.charged();
            }
            assert!(is_done(table.settle_late(&late("a")?, now())), "{charges}");
            let (settlement, _) = table.draft().unwrap_or_default();
            assert_eq!(settlement.acked, [MessageId::new("a")?]);
            table.charged();
            assert_eq!((take(&mut table).len(), table.held(), table.prefetched_bytes()), (0, 0, 0));
        }
        Ok(())
    }

    #[test]
    fn a_repeated_late_ack_gets_the_first_answer() -> Result<()> {
        let mut table = with_retries(false, &["a"])?;
        assert!(is_done(table.settle_late(&late("a")?, now())));
        let again = table.settle_late(&late("a")?, now());
        assert!(matches!(again, LateOutcome::Decided(decided) if decided.again), "{again:?}");
        assert_eq!(table.draft().map(|(settlement, _)| settlement.acked.len()), Some(1));
        Ok(())
    }

    #[test]
    fn late_settlement_of_an_older_delivery_is_stale() -> Result<()> {
        let mut table = with_retries(false, &["a"])?;
        for other in [
            LateSettlement { version: Version::from_us(8), ..late("a")? },
            LateSettlement { attempt: 2, ..late("a")? },
            LateSettlement { attempt: 0, ..late("a")? },
        ] {
            assert_eq!(table.settle_late(&other, now()), LateOutcome::Over, "{other:?}");
        }
        assert_eq!(take(&mut table), ["a"]);
        assert_eq!(table.settle_late(&late("a")?, now()), LateOutcome::Over, "a consumer has it");
        Ok(())
    }

    /// As DeleteMessage of SQS with an older handle.
    #[test]
    fn an_ack_for_later_deliveries_ends_the_one_that_is_out() -> Result<()> {
        let mut table = with_retries(false, &["a", "b"])?;
        assert_eq!(take(&mut table), ["a", "b"]);
        let older = LateSettlement { redelivered: true, ..late("a")? };
        for other in [
            LateSettlement { version: Version::from_us(8), ..older.clone() },
            LateSettlement { attempt: 3, ..older.clone() },
            LateSettlement { next_at: Some(DUE), ..older.clone() },
        ] {
            assert_eq!(table.settle_late(&other, now()), LateOutcome::Over, "{other:?}");
        }
        assert!(is_done(table.settle_late(&older, now())));
        let repeated = table.settle_late(&older, now());
        assert!(matches!(repeated, LateOutcome::Decided(decided) if decided.again), "{repeated:?}");
        assert!(
            table.decide(0, Decision::Ack, now()).is_ok_and(|decided| decided.again),
            "its consumer deletes it, too"
        );
        let nack = Decision::Nack { delay: None, reason: None };
        assert_eq!(table.decide(0, nack, now()).err(), Some(Verdict::Stale(StaleReason::AlreadySettled)));
        let (settlement, _) = table.draft().unwrap_or_default();
        assert_eq!(settlement.acked, [MessageId::new("a")?]);
        assert!(table.decide(1, Decision::Ack, now()).is_ok_and(|decided| !decided.again));
        Ok(())
    }

    #[test]
    fn absent_or_settled_message_is_looked_up_in_the_store() -> Result<()> {
        let mut table = with_retries(false, &["a"])?;
        assert_eq!(table.settle_late(&late("b")?, now()), LateOutcome::Elsewhere);
        table.give_back();
        assert_eq!(table.settle_late(&late("a")?, now()), LateOutcome::Elsewhere);
        Ok(())
    }

    #[test]
    fn what_is_given_back_while_charges_are_on_their_way_leaves_their_bytes() -> Result<()> {
        let mut table = with_retries(false, &["a", "b"])?;
        assert_eq!(table.charges(1, now()).len(), 1);
        table.give_back();
        table.charged();
        assert_eq!(table.prefetched_bytes(), 100);
        assert_eq!((take(&mut table), table.prefetched_bytes()), (vec!["a".to_owned()], 0));
        Ok(())
    }

    #[test]
    fn a_late_extend_schedules_the_message_again_with_its_attempt() -> Result<()> {
        let mut table = with_retries(false, &["a"])?;
        let next_at = Some(DUE.plus(Duration::from_secs(60)));
        assert!(is_done(table.settle_late(&LateSettlement { next_at, ..late("a")? }, now())));
        let (settlement, _) = table.draft().unwrap_or_default();
        assert_eq!(
            settlement.retried.iter().map(|retried| (Some(retried.next_at), retried.attempts)).collect::<Vec<_>>(),
            [(next_at, 1)]
        );
        assert_eq!((take(&mut table).len(), table.unsettled()), (0, 0));
        Ok(())
    }

    #[test]
    fn with_ordering_a_late_ack_of_a_message_behind_leaves_the_first_one() -> Result<()> {
        let mut table = with_retries(true, &["a", "b", "c"])?;
        assert!(is_done(table.settle_late(&late("b")?, now())));
        assert_eq!(take(&mut table), ["a"]);
        assert_eq!(table.draft().map(|(settlement, _)| settlement.acked), Some(vec![MessageId::new("b")?]));
        Ok(())
    }

    #[test]
    fn with_ordering_a_late_extend_of_the_first_message_holds_its_key() -> Result<()> {
        let mut table = with_retries(true, &["a", "b"])?;
        let next_at = Some(DUE.plus(Duration::from_secs(60)));
        assert!(is_done(table.settle_late(&LateSettlement { next_at, ..late("a")? }, now())));
        let (settlement, _) = table.draft().unwrap_or_default();
        assert_eq!((settlement.kept.len(), settlement.remaining.len()), (1, 0), "it stays reserved");
        assert_eq!((take(&mut table).len(), table.unsettled()), (0, 2));
        Ok(())
    }
}
