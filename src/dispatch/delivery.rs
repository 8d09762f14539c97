//! What a consumer gets, and what it may answer.

use std::fmt;
use std::time::Duration;

use crate::message::Message;
use crate::partition::Partition;
use crate::store::Epoch;
use crate::time::Timestamp;

/// A message in the hands of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Names this delivery when it is settled.
    pub receipt: Receipt,
    /// The message.
    pub message: Message,
    /// The how-manieth attempt this is, from 1 on.
    pub attempt: u32,
    /// The partition it came from.
    pub partition: Partition,
    /// When it became due, or due again after a retry.
    pub ready_at: Timestamp,
    /// When it is nacked unless it was settled or extended, on the store's clock.
    pub deadline: Timestamp,
    /// From `ready_at` to the hand-over.
    pub lateness: Duration,
}

/// The name of one delivery: the partition, the epoch of its owner, and a number within the epoch.
///
/// A text without meaning for consumers. Every delivery has another one, also of the same message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// Where the message lives.
    pub partition: Partition,
    /// The epoch that handed it out.
    pub epoch: Epoch,
    /// The number of the delivery within the epoch.
    pub serial: u64,
}

impl Receipt {
    /// Reads a receipt; `None` for anything that dwell never wrote.
    pub fn parse(text: &str) -> Option<Receipt> {
        if text.len() > 100 {
            return None;
        }
        let (partition, rest) = text.split_once('.')?;
        let (epoch, serial) = rest.rsplit_once('.')?;
        let receipt = Receipt {
            partition: Partition(partition.parse().ok()?),
            epoch: Epoch::parse(epoch)?,
            serial: serial.parse().ok()?,
        };
        (receipt.to_string() == text).then_some(receipt)
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.partition, self.epoch, self.serial)
    }
}

/// What a consumer says of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Done.
    Ack,
    /// Failed: try again after `delay`, or after the backoff of the topic.
    Nack {
        /// Overrides the backoff.
        delay: Option<Duration>,
        /// What went wrong, kept as the last error.
        reason: Option<String>,
    },
    /// It can never succeed: dead at once.
    Bury {
        /// What went wrong, kept as the last error.
        reason: Option<String>,
    },
}

/// What became of a decision, or of an extension.
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
    /// The delivery was decided otherwise before, its deadline has passed, or its owner lost the partition. This decision
    /// changed nothing.
    Stale,
    /// The decision was sent to the store, which did not answer before the owner lost the partition: perhaps it counts,
    /// perhaps the message is delivered again.
    UnknownOutcome,
    /// dwell never wrote this receipt for this topic and group.
    Unknown,
    /// The store did not answer in time: the decision stands and is being repeated, the outcome is not known yet.
    Pending,
    /// Another broker owns the partition and was not reached, or did not answer in time: perhaps it was settled there.
    /// The same decision may be made again.
    Unreachable,
}

impl Verdict {
    /// The stable name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Acked => "acked",
            Verdict::Nacked => "nacked",
            Verdict::Buried => "buried",
            Verdict::Extended(_) => "extended",
            Verdict::Stale => "stale",
            Verdict::UnknownOutcome => "unknown_outcome",
            Verdict::Unknown => "unknown",
            Verdict::Pending => "pending",
            Verdict::Unreachable => "unreachable",
        }
    }

    /// Whether the decision counts, or will: all that is not an answer of failure.
    pub fn stands(self) -> bool {
        match self {
            Verdict::Acked | Verdict::Nacked | Verdict::Buried | Verdict::Extended(_) | Verdict::Pending => true,
            Verdict::Stale | Verdict::UnknownOutcome | Verdict::Unknown | Verdict::Unreachable => false,
        }
    }

    /// The verdict of a name, as another broker answers; an extension comes with its deadline.
    pub fn named(name: &str, deadline: Option<Timestamp>) -> Option<Verdict> {
        let plain = [
            Verdict::Acked,
            Verdict::Nacked,
            Verdict::Buried,
            Verdict::Stale,
            Verdict::UnknownOutcome,
            Verdict::Unknown,
            Verdict::Pending,
            Verdict::Unreachable,
        ];
        plain.into_iter().chain(deadline.map(Verdict::Extended)).find(|verdict| verdict.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_back_and_garbage_is_not() {
        let receipt = Receipt { partition: Partition(3), epoch: Epoch::after(16), serial: 152 };
        assert_eq!(Receipt::parse(&receipt.to_string()), Some(receipt));
        for bad in ["", "3", "3.17.tok", "x.17.tok.1", "3.17.tok.x", "03.17.tok.1", "3.17.tok.+1", "70000.17.tok.1"] {
            assert_eq!(Receipt::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Receipt::parse(&"1".repeat(10_000)), None);
    }
}
