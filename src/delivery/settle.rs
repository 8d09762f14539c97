//! Settling: decisions go into the owners' memories and wait there until the store has answered.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::{join_all, select};

use super::GroupDelivery;
use super::ownership::Owned;
use super::receipt::{Decision, Delivery, GroupTag, Receipt};
use super::table::{LateOutcome, Now};
use super::traces::Settling;
use super::verdict::{Decided, StaleReason, UnknownReason, Verdict};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::store::LateSettlement;

pub(super) struct Made {
    pub(super) partition: Partition,
    pub(super) owned: Arc<Owned>,
    pub(super) decided: Decided,
}

/// The verdict of an owner on a settlement that came after its delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateVerdict {
    Made(Verdict),
    /// Somebody has the message or has had it since, or it was changed.
    Over,
    /// The store knows.
    Elsewhere,
}

struct Unanswered {
    owned: Arc<Owned>,
    last: u64,
    tickets: Vec<(usize, u64)>,
}

/// A receipt that was read, or the verdict on what is none.
pub type Read = Result<Receipt, Verdict>;

/// Checks that it is a receipt of this group. Errors: the verdict on it, if it is not.
pub fn check_receipt(receipt: Read, group: GroupTag, descriptor: &Descriptor) -> Read {
    let receipt = receipt?;
    if is_of(&receipt, group, descriptor) { Ok(receipt) } else { Err(Verdict::Unknown(UnknownReason::NotIssued)) }
}

/// Whether the receipt is of this group, of a partition that the topic has.
pub fn is_of(receipt: &Receipt, group: GroupTag, descriptor: &Descriptor) -> bool {
    receipt.group == group && receipt.partition.0 < descriptor.settings.partitions.get()
}

impl GroupDelivery {
    /// A repeated decision gets its first answer. After `timeout` the unanswered ones are `Pending`.
    pub async fn settle(&self, decisions: Vec<(Read, Decision)>, timeout: Duration) -> Vec<Verdict> {
        let mut verdicts = Vec::with_capacity(decisions.len());
        let mut again = HashSet::new();
        let mut unanswered_by_group: BTreeMap<Partition, Unanswered> = BTreeMap::new();
        let now = self.now();
        let mut spans = Vec::new();
        for (index, (receipt, decision)) in decisions.into_iter().enumerate() {
            let begun = receipt.as_ref().ok().and_then(|receipt| self.begin_span(receipt));
            spans.extend(begun.map(|span| (index, span)));
            let (verdict, made) = self.decide(receipt, decision, now);
            verdicts.push(verdict);
            if let Some(Made { partition, owned, decided }) = made {
                let ticket = decided.ticket;
                if decided.again {
                    again.insert(index);
                }
                let unanswered = unanswered_by_group.entry(partition).or_insert_with(|| Unanswered {
                    owned,
                    last: 0,
                    tickets: Vec::new(),
                });
                unanswered.last = unanswered.last.max(ticket);
                unanswered.tickets.push((index, ticket));
            }
        }
        let waits = unanswered_by_group.values().map(|unanswered| {
            unanswered.owned.signal.notify_one();
            unanswered.owned.settled(unanswered.last)
        });
        let deadline = std::pin::pin!(self.store.backend.clock().local().sleep(timeout));
        let _ = select(join_all(waits), deadline).await;
        for unanswered in unanswered_by_group.values() {
            let progress = unanswered.owned.progress();
            for (index, ticket) in &unanswered.tickets {
                verdicts[*index] = progress.verdict(*ticket, verdicts[*index]);
            }
        }
        for (_, verdict) in verdicts.iter().enumerate().filter(|(index, _)| !again.contains(index)) {
            self.count(*verdict);
        }
        for (index, span) in spans {
            span.end(&self.group, verdicts[index]);
        }
        verdicts
    }

    fn begin_span(&self, receipt: &Receipt) -> Option<Settling> {
        self.tracer.is_on().then(|| self.traces.begin(&self.tracer, &self.descriptor().topic, receipt))?
    }

    pub(super) fn decide(&self, receipt: Read, decision: Decision, now: Now) -> (Verdict, Option<Made>) {
        let (receipt, owned) = match self.find(receipt) {
            Ok(found) => found,
            Err(refusal) => return (refusal, None),
        };
        let verdict = match decision {
            Decision::Ack => Verdict::Acked,
            Decision::Nack { .. } | Decision::NackKey { .. } => Verdict::Nacked,
            Decision::Release => Verdict::Released,
            Decision::Bury { .. } => Verdict::Buried,
        };
        let decided = match owned.table().decide(receipt.serial, decision, now) {
            Ok(decided) => decided,
            Err(refusal) => return (refusal, None),
        };
        if verdict == Verdict::Acked && !decided.again {
            self.counts.handling.observe(decided.handling.as_secs_f64());
        }
        self.demand.settled(now.instant);
        let verdict = if decided.dead { Verdict::Buried } else { verdict };
        (verdict, Some(Made { partition: receipt.partition, owned, decided }))
    }

    pub fn extend(&self, receipts: Vec<Read>, timeout: Duration) -> Vec<Verdict> {
        let now = self.now();
        let extend = |receipt: Read| {
            let (receipt, owned) = self.find(receipt)?;
            let extended = owned.table().extend(receipt.serial, now.elapsed.plus(timeout));
            owned.signal.notify_one();
            // Without a valid lease another broker may deliver the message: the deadline holds if this one keeps the partition.
            let verdict = match owned.lease.is_valid(now.instant) {
                true => Verdict::Extended(now.store.plus(timeout)),
                false => Verdict::Pending,
            };
            extended.map(|()| verdict)
        };
        receipts.into_iter().map(|receipt| extend(receipt).unwrap_or_else(|refusal| refusal)).collect()
    }

    /// Makes deliveries again, all of them or none: [`Table::repeat`](super::Table::repeat).
    pub fn repeat(&self, receipts: Vec<Read>, texts: &[String], timeout: Duration) -> Option<Vec<Delivery>> {
        let now = self.now();
        let found = receipts.into_iter().map(|receipt| self.find(receipt).ok());
        let found: Vec<(Receipt, Arc<Owned>)> = found.collect::<Option<_>>()?;
        let may = |(receipt, owned): &(Receipt, Arc<Owned>)| {
            owned.is_open(now.instant) && owned.table().may_repeat(receipt.serial, now)
        };
        if !found.iter().all(may) {
            return None;
        }
        let repeat = |((receipt, owned), text): ((Receipt, Arc<Owned>), &String)| {
            let delivery = owned.table().repeat(receipt.serial, text, timeout, now);
            owned.signal.notify_one();
            delivery
        };
        Some(found.into_iter().zip(texts).filter_map(repeat).collect())
    }

    /// Settles what the memory of this owner holds, after its deliveries ended; with each settlement comes the verdict
    /// if it counts. `None` if this process does not own the partition. A settlement without an answer after `timeout` is
    /// `Pending`.
    pub async fn settle_late(
        &self,
        partition: Partition,
        settlements: &[(LateSettlement, Verdict)],
        timeout: Duration,
    ) -> Option<Vec<LateVerdict>> {
        let (owned, now) = (self.owned(partition)?, self.now());
        let outcomes: Vec<LateOutcome> = {
            let mut table = owned.table();
            settlements.iter().map(|(late, _)| table.settle_late(late, now)).collect()
        };
        let ticket = |outcome: &LateOutcome| match outcome {
            LateOutcome::Decided(decided) => Some(decided.ticket),
            LateOutcome::Over | LateOutcome::Elsewhere => None,
        };
        if let Some(last) = outcomes.iter().filter_map(ticket).max() {
            owned.signal.notify_one();
            let deadline = std::pin::pin!(self.store.backend.clock().local().sleep(timeout));
            let _ = select(std::pin::pin!(owned.settled(last)), deadline).await;
        }
        let progress = owned.progress();
        let verdict = |(outcome, (_, made)): (LateOutcome, &(LateSettlement, Verdict))| match outcome {
            LateOutcome::Decided(decided) => {
                let verdict = progress.verdict(decided.ticket, *made);
                if !decided.again {
                    self.count(verdict);
                }
                LateVerdict::Made(verdict)
            }
            LateOutcome::Over => LateVerdict::Over,
            LateOutcome::Elsewhere => LateVerdict::Elsewhere,
        };
        Some(outcomes.into_iter().zip(settlements).map(verdict).collect())
    }

    fn find(&self, receipt: Read) -> Result<(Receipt, Arc<Owned>), Verdict> {
        let receipt = check_receipt(receipt, self.tag, &self.descriptor())?;
        let owned = self.owned(receipt.partition).filter(|owned| owned.lease.claim().epoch == receipt.epoch);
        owned.map(|owned| (receipt, owned)).ok_or(Verdict::Stale(StaleReason::LostPartition))
    }

    /// Whether no other broker has to be asked: this process owns the partition, or has lost it since the delivery. If it
    /// has lost it, only another one can settle late.
    pub fn knows(&self, receipt: &Receipt, late: bool) -> bool {
        // A broker that stood still has an older epoch than that of the delivery, and does not know it yet.
        let is_up_to_date = |owned: Arc<Owned>| receipt.epoch.number() <= owned.lease.claim().epoch.number();
        let owns = self.owned(receipt.partition).is_some_and(is_up_to_date);
        // A partition that is lost is in `lost` before it leaves `owned`.
        owns || !late && {
            let lost = self.lost.read().unwrap_or_else(PoisonError::into_inner);
            lost.get(&receipt.partition) == Some(&receipt.epoch)
        }
    }

    pub fn owns(&self, partition: Partition) -> bool {
        self.owned(partition).is_some()
    }

    /// Counts what this owner decided. A verdict on a delivery that has ended is counted where it is answered.
    pub(super) fn count(&self, verdict: Verdict) {
        match verdict {
            Verdict::Acked => self.counts.acked.inc(),
            Verdict::Nacked => self.counts.nacked.inc(),
            Verdict::Released => self.counts.released.inc(),
            Verdict::Buried => self.counts.buried.inc(),
            Verdict::Stale(_) | Verdict::UnknownOutcome => {}
            Verdict::Extended(_) | Verdict::Unknown(_) | Verdict::Pending | Verdict::Unreachable => {}
        }
    }
}
