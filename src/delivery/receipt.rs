//! What a consumer gets, and what it may answer.

use std::fmt;
use std::time::Duration;

use crate::model::message::{GroupName, Message, TopicName};
use crate::model::partition::{self, Partition};
use crate::model::time::Timestamp;
use crate::store::Epoch;

/// A message in the hands of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Names this delivery when it is settled.
    pub receipt: Receipt,
    /// The message.
    pub message: Message,
    /// Delivery attempt, starting at 1.
    pub attempt: u32,
    /// The partition it came from.
    pub partition: Partition,
    /// When it became due, or due again after a retry.
    pub ready_at: Timestamp,
    /// On the store's clock: the message is nacked then, unless it was settled or extended.
    pub deadline: Timestamp,
    /// From `ready_at` to the hand-over.
    pub lateness: Duration,
}

/// The name of one delivery: the partition, the epoch of its owner, a number within the epoch, and a tag of the group.
///
/// A text without meaning for consumers. Every delivery has another one, also of the same message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub partition: Partition,
    pub epoch: Epoch,
    pub serial: u64,
    pub group: GroupTag,
}

/// Tells the receipts of one group of a topic from those of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupTag(u32);

impl GroupTag {
    pub fn of(topic: &TopicName, group: &GroupName) -> GroupTag {
        GroupTag(partition::hash(format!("{topic}/{group}").as_bytes()))
    }
}

impl Receipt {
    /// Reads a receipt; `None` for anything that dwell never wrote.
    pub fn parse(text: &str) -> Option<Receipt> {
        if text.len() > 100 {
            return None;
        }
        let (partition, rest) = text.split_once('.')?;
        let (rest, group) = rest.rsplit_once('.')?;
        let (epoch, serial) = rest.rsplit_once('.')?;
        let receipt = Receipt {
            partition: Partition(partition.parse().ok()?),
            epoch: Epoch::parse(epoch)?,
            serial: serial.parse().ok()?,
            group: GroupTag(u32::from_str_radix(group, 16).ok()?),
        };
        (receipt.to_string() == text).then_some(receipt)
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{:08x}", self.partition, self.epoch, self.serial, self.group.0)
    }
}

/// A consumer's decision about a delivery.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    #[test]
    fn a_receipt_is_read_back_and_garbage_is_not() -> Result<()> {
        let group = GroupTag::of(&TopicName::new("orders")?, &GroupName::standard());
        assert_ne!(group, GroupTag::of(&TopicName::new("orders")?, &GroupName::new("audit")?));
        let receipt = Receipt { partition: Partition(3), epoch: Epoch::after(16), serial: 152, group };
        assert_eq!(Receipt::parse(&receipt.to_string()), Some(receipt));
        assert!(Receipt::parse("3.17.tok.1.0000002a").is_some());
        for bad in
            ["", "3", "3.17.tok", "3.17.tok.1", "x.17.tok.1.0000002a", "3.17.tok.x.0000002a", "03.17.tok.1.0000002a"]
        {
            assert_eq!(Receipt::parse(bad), None, "{bad:?}");
        }
        for bad in ["3.17.tok.+1.0000002a", "70000.17.tok.1.0000002a", "3.17.tok.1.2a", "3.17.tok.1.0000002A"] {
            assert_eq!(Receipt::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Receipt::parse(&"1".repeat(10_000)), None);
        Ok(())
    }
}
