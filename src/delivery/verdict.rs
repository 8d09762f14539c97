//! The verdict on a decision about a delivery, with the reason of a refusal.

use crate::model::time::Timestamp;

/// The outcome of a decision, or of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The message is gone for good.
    Acked,
    /// The message is scheduled again.
    Nacked,
    /// The message is dead: buried, or nacked on its last attempt.
    Buried,
    /// The deadline is later now.
    Extended(Timestamp),
    /// The delivery is over. This decision changed nothing.
    Stale(StaleReason),
    /// The decision was sent to the store, which did not answer before the owner lost the partition: perhaps it counts,
    /// perhaps the message is delivered again.
    UnknownOutcome,
    /// dwell never wrote this receipt for this topic and group.
    Unknown(UnknownReason),
    /// The store did not answer in time: the decision stands and is being repeated, the outcome is not known yet.
    Pending,
    /// Another broker owns the partition and did not answer in time: perhaps it was settled there.
    /// The same decision may be made again.
    Unreachable,
}

/// Why a delivery can no longer be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleReason {
    /// Its visibility timeout passed.
    DeadlinePassed,
    /// It was decided otherwise before, or its stream was closed.
    AlreadySettled,
    /// It was decided, or its deadline passed, longer ago than the owner remembers.
    DeliveryEnded,
    /// The owner that handed it out lost the partition or gave it up.
    LostPartition,
}

/// Why a receipt is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownReason {
    /// The text is no receipt.
    Malformed,
    /// It is a receipt of another topic or group, or of a delivery that was never made.
    NotIssued,
}

impl StaleReason {
    fn name(self) -> &'static str {
        match self {
            StaleReason::DeadlinePassed => "deadline_passed",
            StaleReason::AlreadySettled => "already_settled",
            StaleReason::DeliveryEnded => "delivery_ended",
            StaleReason::LostPartition => "lost_partition",
        }
    }
}

impl UnknownReason {
    fn name(self) -> &'static str {
        match self {
            UnknownReason::Malformed => "malformed",
            UnknownReason::NotIssued => "unknown",
        }
    }
}

impl Verdict {
    /// Every verdict with which a decision does not count.
    pub const REFUSALS: [Verdict; 8] = [
        Verdict::Stale(StaleReason::DeadlinePassed),
        Verdict::Stale(StaleReason::AlreadySettled),
        Verdict::Stale(StaleReason::DeliveryEnded),
        Verdict::Stale(StaleReason::LostPartition),
        Verdict::Unknown(UnknownReason::NotIssued),
        Verdict::Unknown(UnknownReason::Malformed),
        Verdict::UnknownOutcome,
        Verdict::Unreachable,
    ];

    /// The stable name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Acked => "acked",
            Verdict::Nacked => "nacked",
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
    pub fn stands(self) -> bool {
        self.reason().is_none()
    }

    /// Why the decision does not count, as in the API; `None` if it does, or will.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Verdict::Acked | Verdict::Nacked | Verdict::Buried | Verdict::Extended(_) | Verdict::Pending => None,
            Verdict::Stale(reason) => Some(reason.name()),
            Verdict::Unknown(reason) => Some(reason.name()),
            Verdict::UnknownOutcome | Verdict::Unreachable => Some(self.name()),
        }
    }

    /// The verdict as a sentence for people.
    pub fn detail(self) -> &'static str {
        match self {
            Verdict::Acked => "the message is done",
            Verdict::Nacked => "the message is scheduled again",
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
            Verdict::Stale(StaleReason::LostPartition) => {
                "the broker that delivered the message no longer owns its partition: the message is delivered again, unless it \
                 was settled before, or its topic or group was deleted"
            }
            Verdict::Unknown(UnknownReason::Malformed) => "this text is no receipt",
            Verdict::Unknown(UnknownReason::NotIssued) => {
                "the receipt is of another topic or group, or of a delivery that was never made"
            }
            Verdict::UnknownOutcome => {
                "the broker that delivered the message lost the partition before it answered: the message is settled, or it is \
                 delivered again"
            }
            Verdict::Unreachable => {
                "the broker that owns the partition did not answer: perhaps the delivery was settled; repeat the request"
            }
        }
    }

    /// The verdict of a name, as another broker answers: an extension comes with its deadline, a failure with its reason.
    /// Without one that is known here, a stale delivery is only known to be over.
    pub fn named(name: &str, reason: Option<&str>, deadline: Option<Timestamp>) -> Option<Verdict> {
        let plain = [Verdict::Acked, Verdict::Nacked, Verdict::Buried, Verdict::Pending];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_survives_the_wire_with_its_reason() {
        let plain = [Verdict::Acked, Verdict::Nacked, Verdict::Buried, Verdict::Pending];
        for verdict in plain.into_iter().chain(Verdict::REFUSALS) {
            assert_eq!(Verdict::named(verdict.name(), verdict.reason(), None), Some(verdict));
        }
        for reason in [None, Some("boredom")] {
            let over = Verdict::Stale(StaleReason::DeliveryEnded);
            assert_eq!(Verdict::named("stale", reason, None), Some(over), "a broker of another version");
        }
        assert_eq!(Verdict::named("extended", None, None), None);
    }
}
