//! The verdict on a decision about a delivery, with the reason of a refusal.

use std::collections::VecDeque;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use super::receipt::Decision;
use crate::model::limits::RECENT_DECISIONS_MAX;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::version::Version;
use crate::store::LateSettlement;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// Settled once [`super::table::Table::draft`] has handed out this ticket and the store has answered.
    pub ticket: u64,
    pub handling: Duration,
    pub dead: bool,
    pub again: bool,
}

/// The outcome of a decision, or of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The message is gone for good.
    Acked,
    /// The message is scheduled again.
    Nacked,
    /// The message is due again, and the delivery counts as no attempt.
    Released,
    /// The message is dead: buried, or nacked on its last attempt.
    Buried,
    /// The deadline is later now.
    Extended(Timestamp),
    /// The delivery is over. This decision changed nothing.
    Stale(StaleReason),
    /// The store did not answer before the owner lost the partition: the message is settled, or is delivered again.
    UnknownOutcome,
    Unknown(UnknownReason),
    /// The store did not answer in time: the decision stands and is being repeated, the outcome is not known yet.
    Pending,
    /// Another broker owns the partition and did not answer in time. The same decision may be made again.
    Unreachable,
}

/// Why a delivery can no longer be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleReason {
    /// Its visibility timeout passed.
    DeadlinePassed,
    /// It was decided otherwise before, or its stream was closed.
    AlreadySettled,
    DeliveryEnded,
    /// An earlier message of its key failed, in the same batch.
    Returned,
    /// The owner that handed it out lost the partition or gave it up.
    LostPartition,
}

/// Why a receipt is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownReason {
    /// The text is no receipt of this store: it was made up or changed, or is of a dwell that did not sign its receipts.
    Invalid,
    /// It is a receipt of another topic or group.
    NotIssued,
}

impl StaleReason {
    fn name(self) -> &'static str {
        match self {
            StaleReason::DeadlinePassed => "deadline_passed",
            StaleReason::AlreadySettled => "already_settled",
            StaleReason::DeliveryEnded => "delivery_ended",
            StaleReason::Returned => "returned",
            StaleReason::LostPartition => "lost_partition",
        }
    }
}

impl UnknownReason {
    fn name(self) -> &'static str {
        match self {
            UnknownReason::Invalid => "invalid",
            UnknownReason::NotIssued => "unknown",
        }
    }
}

impl Verdict {
    /// Every verdict with which a decision does not count.
    pub const REFUSALS: [Verdict; 9] = [
        Verdict::Stale(StaleReason::DeadlinePassed),
        Verdict::Stale(StaleReason::AlreadySettled),
        Verdict::Stale(StaleReason::DeliveryEnded),
        Verdict::Stale(StaleReason::Returned),
        Verdict::Stale(StaleReason::LostPartition),
        Verdict::Unknown(UnknownReason::NotIssued),
        Verdict::Unknown(UnknownReason::Invalid),
        Verdict::UnknownOutcome,
        Verdict::Unreachable,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Acked => "acked",
            Verdict::Nacked => "nacked",
            Verdict::Released => "released",
            Verdict::Buried => "buried",
            Verdict::Extended(_) => "extended",
            Verdict::Stale(_) => "stale",
            Verdict::UnknownOutcome => "unknown_outcome",
            Verdict::Unknown(_) => "unknown",
            Verdict::Pending => "pending",
            Verdict::Unreachable => "unreachable",
        }
    }

    /// Whether the decision counts, or will: all that is not an answer of failure.
    pub fn is_applied(self) -> bool {
        self.reason().is_none()
    }

    /// Why the decision does not count, as in the API; `None` if it does, or will.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Verdict::Acked | Verdict::Nacked | Verdict::Released | Verdict::Buried => None,
            Verdict::Extended(_) | Verdict::Pending => None,
            Verdict::Stale(reason) => Some(reason.name()),
            Verdict::Unknown(reason) => Some(reason.name()),
            Verdict::UnknownOutcome | Verdict::Unreachable => Some(self.name()),
        }
    }

    pub fn detail(self) -> &'static str {
        match self {
            Verdict::Acked => "the message is done",
            Verdict::Nacked => "the message is scheduled again",
            Verdict::Released => "the message is due again; the delivery counts as no attempt",
            Verdict::Buried => "the message is dead",
            Verdict::Extended(_) => "the deadline is later now",
            Verdict::Pending => "the store has not answered; the decision stands and is repeated",
            Verdict::Stale(StaleReason::DeadlinePassed) => {
                "the visibility timeout passed before this request: the message is delivered again, unless it is out of \
                 attempts"
            }
            Verdict::Stale(StaleReason::AlreadySettled) => {
                "the delivery was settled otherwise before, or its stream was closed"
            }
            Verdict::Stale(StaleReason::DeliveryEnded) => {
                "the delivery was settled, or its visibility timeout passed, too long ago to know which"
            }
            Verdict::Stale(StaleReason::Returned) => {
                "an earlier message of its key failed, in the same batch: both are delivered again, in order"
            }
            Verdict::Stale(StaleReason::LostPartition) => {
                "the broker that delivered the message no longer owns its partition: the message is delivered again, unless it \
                 was settled before, or its topic or group was deleted"
            }
            Verdict::Unknown(UnknownReason::Invalid) => {
                "this text is no receipt of these brokers: it was changed or made up, or is of an older version of dwell"
            }
            Verdict::Unknown(UnknownReason::NotIssued) => "the receipt is of another topic or group",
            Verdict::UnknownOutcome => {
                "the broker that delivered the message lost the partition before it answered: the message is settled, or it is \
                 delivered again"
            }
            Verdict::Unreachable => {
                "the broker that owns the partition did not answer: perhaps the delivery was settled; repeat the request"
            }
        }
    }

    /// As another broker answers; a reason that is not known here becomes the vague one.
    pub fn named(name: &str, reason: Option<&str>, deadline: Option<Timestamp>) -> Option<Verdict> {
        let plain = [Verdict::Acked, Verdict::Nacked, Verdict::Released, Verdict::Buried, Verdict::Pending];
        let refusals = Verdict::REFUSALS.into_iter().filter(|refusal| refusal.reason() == reason);
        let vague = [
            Verdict::Stale(StaleReason::DeliveryEnded),
            Verdict::Unknown(UnknownReason::NotIssued),
            Verdict::UnknownOutcome,
            Verdict::Unreachable,
        ];
        let known = plain.into_iter().chain(deadline.map(Verdict::Extended)).chain(refusals);
        known.chain(vague).find(|verdict| verdict.name() == name)
    }
}

/// A decision without its details: the first ones stand.
type DecisionKind = Discriminant<Decision>;

/// The last ends of deliveries of one epoch: a repeated decision gets the same answer, and a late one learns the
/// reason.
#[derive(Debug, Default)]
pub(super) struct VerdictCache {
    decisions: Newest<u64, (DecisionKind, Decided)>,
    /// Deliveries that ended otherwise, and why.
    ended: Newest<u64, StaleReason>,
    /// Messages that were acknowledged after their delivery had ended.
    acked_late: Newest<(MessageId, Version), Decided>,
}

/// The newest entries, the last one at the end. Every decision adds one and hardly any is looked for, so finding one may
/// take longer than adding one.
#[derive(Debug)]
struct Newest<K, V>(VecDeque<(K, V)>);

impl<K, V> Default for Newest<K, V> {
    fn default() -> Newest<K, V> {
        Newest(VecDeque::new())
    }
}

impl<K, V> Newest<K, V> {
    fn insert(&mut self, key: K, entry: V) {
        if self.0.len() == RECENT_DECISIONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((key, entry));
    }

    fn get(&self, is: impl Fn(&K) -> bool) -> Option<&V> {
        self.0.iter().rev().find(|(key, _)| is(key)).map(|(_, entry)| entry)
    }
}

pub(super) fn kind_of(decision: &Decision) -> DecisionKind {
    discriminant(decision)
}

impl VerdictCache {
    pub(super) fn remember(&mut self, serial: u64, kind: DecisionKind, decided: Decided) {
        self.decisions.insert(serial, (kind, decided));
    }

    pub(super) fn ended(&mut self, serial: u64, why: StaleReason) {
        self.ended.insert(serial, why);
    }

    pub(super) fn remember_late(&mut self, late: &LateSettlement, decided: Decided) {
        self.acked_late.insert((late.id.clone(), late.version), decided);
    }

    /// The outcome of a late ack the first time.
    pub(super) fn again_late(&self, late: &LateSettlement) -> Option<Decided> {
        let decided = self.acked_late.get(|(id, version)| *version == late.version && *id == late.id)?;
        Some(Decided { again: true, ..*decided })
    }

    /// The outcome of the same decision the first time. `None` for another one, and when that is forgotten.
    pub(super) fn again(&self, serial: u64, kind: DecisionKind) -> Option<Decided> {
        let (first, decided) = self.decisions.get(|decided| *decided == serial)?;
        (*first == kind).then_some(Decided { again: true, ..*decided })
    }

    pub(super) fn end(&self, serial: u64) -> StaleReason {
        if self.decisions.get(|decided| *decided == serial).is_some() {
            StaleReason::AlreadySettled
        } else {
            self.ended.get(|ended| *ended == serial).copied().unwrap_or(StaleReason::DeliveryEnded)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn verdict_and_reason_round_trip() {
        let plain = [Verdict::Acked, Verdict::Nacked, Verdict::Released, Verdict::Buried, Verdict::Pending];
        for verdict in plain.into_iter().chain(Verdict::REFUSALS) {
            assert_eq!(Verdict::named(verdict.name(), verdict.reason(), None), Some(verdict));
        }
        for reason in [None, Some("boredom")] {
            let over = Verdict::Stale(StaleReason::DeliveryEnded);
            assert_eq!(Verdict::named("stale", reason, None), Some(over), "a broker of another version");
        }
        assert_eq!(Verdict::named("extended", None, None), None);
    }

    fn decided(ticket: u64) -> Decided {
        Decided { ticket, handling: Duration::ZERO, dead: false, again: false }
    }

    #[test]
    fn verdict_cache_is_bounded() {
        let (ack, bury) = (kind_of(&Decision::Ack), kind_of(&Decision::Bury { reason: None }));
        let (mut recent, most) = (VerdictCache::default(), RECENT_DECISIONS_MAX as u64);
        for serial in 0..most {
            recent.remember(serial, ack, decided(serial + 1));
        }
        assert_eq!(recent.again(0, ack), Some(Decided { again: true, ..decided(1) }));
        assert_eq!(recent.again(0, bury), None);
        recent.remember(most, bury, decided(most + 1));
        assert_eq!(recent.again(0, ack), None);
        assert_eq!(recent.again(1, ack), Some(Decided { again: true, ..decided(2) }));
        assert_eq!(recent.decisions.0.len(), RECENT_DECISIONS_MAX);
    }

    #[test]
    fn delivery_outcome_is_known_until_evicted() {
        let (mut recent, most) = (VerdictCache::default(), RECENT_DECISIONS_MAX as u64);
        recent.remember(0, kind_of(&Decision::Ack), decided(1));
        for serial in 1..=most {
            recent.ended(serial, StaleReason::DeadlinePassed);
        }
        assert_eq!(recent.end(0), StaleReason::AlreadySettled, "deadlines do not push decisions out");
        assert_eq!(recent.end(1), StaleReason::DeadlinePassed);
        recent.ended(most + 1, StaleReason::Returned);
        assert_eq!(recent.end(1), StaleReason::DeliveryEnded, "nobody knows any more");
    }
}
