//! Settlements that came after their deliveries ended: they count if the message waits and nobody has had it since.
//!
//! A message is in the memory of its owner, or it waits in the store; each decides for itself in one step. It may move
//! from one to the other while they are asked, so both are asked until one of them knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Broker;
use crate::codec::Failure;
use crate::delivery::remote::{Ask, TopicGroup, What};
use crate::delivery::{Decision, Late, LateVerdict, Read, Receipt, Verdict};
use crate::model::error::{Kind, Result};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::platform::clock::Instant;
use crate::store::{Call, LateFate, LateSettlement};

/// The pause before owner and store are asked again.
const PAUSE: Duration = Duration::from_millis(25);

/// A late settlement that nobody has decided about yet.
struct Undecided {
    /// The number of its receipt in the request.
    at: usize,
    settlement: LateSettlement,
    /// The verdict for the client if the settlement counts.
    verdict: Verdict,
}

impl Broker {
    /// Decides again about deliveries that had ended. A verdict stays if the settlement does not count; it is
    /// `Unreachable` if it is not known whether it does.
    pub(super) async fn settle_late(
        &self,
        place: TopicGroup<'_>,
        ask: &Ask,
        receipts: &[Read],
        verdicts: &mut [Verdict],
        until: Instant,
    ) -> Result<()> {
        let has_ended = |verdict: &Verdict| matches!(verdict, Verdict::Stale(_) | Verdict::UnknownOutcome);
        let ended = verdicts.iter().enumerate().filter(|(_, verdict)| has_ended(verdict)).map(|(at, _)| at);
        let ended: Vec<usize> = ended.collect();
        if ended.is_empty() {
            return Ok(());
        }
        let descriptor = self.topics.group(place.0, place.1).await?;
        let mut by_partition: BTreeMap<Partition, Vec<Undecided>> = BTreeMap::new();
        for at in ended {
            if let Some((partition, undecided)) = self.late((&descriptor, place.1), ask, receipts, at) {
                by_partition.entry(partition).or_default().push(undecided);
            }
        }
        let settled =
            by_partition.into_iter().map(|(partition, late)| self.settle_late_in(place, partition, late, until));
        for (at, verdict) in join_all(settled).await.into_iter().flatten() {
            verdicts[at] = verdict;
        }
        Ok(())
    }

    /// A burial is never late: it would hide a message that another consumer may finish. Nor is a release: the message waits.
    fn late(
        &self,
        (descriptor, group): (&Descriptor, &GroupName),
        ask: &Ask,
        receipts: &[Read],
        at: usize,
    ) -> Option<(Partition, Undecided)> {
        let now = self.now();
        let decision = match &ask.what {
            What::Settle(decisions) => Some(&decisions.get(at)?.1),
            What::Extend(..) => None,
        };
        let Receipt { partition, attempt, version, id, .. } = receipts.get(at)?.clone().ok()?;
        let (next_at, failure, verdict) = match (decision, &ask.what) {
            (Some(Decision::Ack), _) => (None, None, Verdict::Acked),
            (Some(Decision::Nack { delay, reason } | Decision::NackKey { delay, reason }), _) => {
                let backoff = || descriptor.settings.backoff.delay(attempt, fastrand::f64());
                let failure = reason.as_ref().map(|reason| Failure::new(now, attempt, Some(reason)));
                (Some(now.plus(delay.unwrap_or_else(backoff))), failure, Verdict::Nacked)
            }
            (None, What::Extend(_, timeout)) => {
                let deadline = now.plus(*timeout);
                (Some(deadline), None, Verdict::Extended(deadline))
            }
            (Some(Decision::Bury { .. } | Decision::Release) | None, _) => return None,
        };
        let redelivered = ask.late == Late::Redelivered;
        let pauses_key = descriptor.is_fair(group) && matches!(decision, Some(Decision::NackKey { .. }));
        let settlement = LateSettlement { pauses_key, id, version, attempt, redelivered, next_at, failure };
        Some((partition, Undecided { at, settlement, verdict }))
    }

    async fn settle_late_in(
        &self,
        place: TopicGroup<'_>,
        partition: Partition,
        mut open: Vec<Undecided>,
        until: Instant,
    ) -> Vec<(usize, Verdict)> {
        let mut made = Vec::new();
        loop {
            let is_owner = self.ask_memory(place, partition, &mut open, &mut made, until).await;
            let is_answered = self.ask_store(place, partition, &mut open, &mut made).await;
            let waits = is_owner || !is_answered;
            let clock = self.clock();
            if open.is_empty() || !waits || clock.instant() >= until {
                break;
            }
            clock.sleep_until(clock.instant().plus(PAUSE).min(until)).await;
        }
        made.extend(open.into_iter().map(|undecided| (undecided.at, Verdict::Unreachable)));
        made
    }

    /// False if this process does not own the partition.
    async fn ask_memory(
        &self,
        (topic, group): TopicGroup<'_>,
        partition: Partition,
        open: &mut Vec<Undecided>,
        made: &mut Vec<(usize, Verdict)>,
        until: Instant,
    ) -> bool {
        let delivery = match self.topics.group(topic, group).await {
            Ok(descriptor) => self.groups.find(&descriptor, group).ok().flatten(),
            Err(_) => None,
        };
        let Some(delivery) = delivery else { return false };
        let settlements: Vec<(LateSettlement, Verdict)> =
            open.iter().map(|undecided| (undecided.settlement.clone(), undecided.verdict)).collect();
        let timeout = until.since(self.clock().instant());
        let Some(verdicts) = delivery.settle_late(partition, &settlements, timeout).await else { return false };
        let mut verdicts = verdicts.into_iter();
        open.retain(|undecided| match verdicts.next() {
            Some(LateVerdict::Made(verdict)) => {
                made.push((undecided.at, verdict));
                false
            }
            Some(LateVerdict::Over) => false,
            Some(LateVerdict::Elsewhere) | None => true,
        });
        true
    }

    /// False if the store did not answer.
    async fn ask_store(
        &self,
        (topic, group): TopicGroup<'_>,
        partition: Partition,
        open: &mut Vec<Undecided>,
        made: &mut Vec<(usize, Verdict)>,
    ) -> bool {
        if open.is_empty() {
            return true;
        }
        let settlements: Vec<LateSettlement> = open.iter().map(|undecided| undecided.settlement.clone()).collect();
        let fates = match self.late_fates(topic, group, partition, &settlements).await {
            Ok(fates) => fates,
            Err(error) if error.kind() == Kind::NotFound => {
                open.clear();
                return true;
            }
            Err(error) => {
                tracing::debug!(%topic, %group, partition = partition.0, %error, "late settlements are not settled yet");
                return false;
            }
        };
        let mut fates = fates.into_iter();
        let mut pauses = false;
        open.retain(|undecided| match fates.next() {
            Some(fate @ (LateFate::Done | LateFate::Repeated | LateFate::Gone)) => {
                made.push((undecided.at, undecided.verdict));
                if fate == LateFate::Done {
                    pauses |= undecided.settlement.pauses_key;
                    self.count_late((topic, group), undecided.verdict);
                }
                false
            }
            Some(LateFate::Over) => false,
            Some(LateFate::InFlight) | None => true,
        });
        if pauses && let Err(error) = self.refresh_after_pause((topic, group), partition).await {
            tracing::debug!(%topic, %group, partition = partition.0, %error, "the owner does not know of a paused key");
        }
        true
    }

    /// The owner may hold messages of the keys that late settlements paused.
    async fn refresh_after_pause(&self, (topic, group): TopicGroup<'_>, partition: Partition) -> Result<()> {
        self.refresh(&*self.topics.group(topic, group).await?, partition, group).await
    }

    async fn late_fates(
        &self,
        topic: &TopicName,
        group: &GroupName,
        partition: Partition,
        settlements: &[LateSettlement],
    ) -> Result<Vec<LateFate>> {
        let settle = |descriptor: Arc<Descriptor>| async move {
            let make = async |call: &Call| {
                self.store.messages.settle_late(&descriptor, partition, group, call, settlements).await
            };
            self.topics.call(topic, partition, settlements.len(), make, |_| true).await
        };
        self.topics.with_descriptor(topic, settle).await
    }

    /// Counts what the store decided; an owner counts what it decides in memory.
    fn count_late(&self, (topic, group): TopicGroup<'_>, verdict: Verdict) {
        let counts = self.metrics.group(topic, group);
        match verdict {
            Verdict::Acked => counts.acked.inc(),
            Verdict::Nacked => counts.nacked.inc(),
            _ => {}
        }
    }
}
