//! Deliveries to a consumer, and its decisions about them.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::model::limits::ID_BYTES_MAX;
use crate::model::message::{GroupName, Message, MessageId, TopicName};
use crate::model::partition::{self, Partition};
use crate::model::time::Timestamp;
use crate::model::version::Version;
use crate::store::Epoch;

pub(super) const RECEIPT_BYTES_MAX: usize = 150 + ID_BYTES_MAX;

/// The tag of a group is written with leading zeros.
const GROUP_TAG_DIGITS: usize = 8;

/// Bytes of most receipts, beside the id.
const RECEIPT_BYTES_USUAL: usize = 64;

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
/// Attempt, version and id of the message say what was delivered, for settlements that come after the deadline.
///
/// A text without meaning for consumers. Every delivery has another one, also of the same message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub partition: Partition,
    pub epoch: Epoch,
    pub serial: u64,
    pub group: GroupTag,
    pub attempt: u32,
    pub version: Version,
    pub id: MessageId,
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
        if text.len() > RECEIPT_BYTES_MAX {
            return None;
        }
        // The id comes last, since it may have dots.
        let mut parts = text.splitn(8, '.');
        let mut next = || parts.next();
        let (partition, number, token) = (decimal(next()?)?, next()?, next()?);
        decimal::<u64>(number)?;
        Some(Receipt {
            partition: Partition(partition),
            epoch: Epoch::of(number, token)?,
            serial: decimal(next()?)?,
            group: GroupTag(next().filter(|tag| tag.len() == GROUP_TAG_DIGITS).and_then(hex)?.try_into().ok()?),
            attempt: decimal(next()?)?,
            version: Version::from_us(next().filter(|version| !has_leading_zero(version)).and_then(hex)?),
            id: MessageId::new(next()?).ok()?,
        })
    }

    /// Its text, written into memory that is large enough from the start.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(RECEIPT_BYTES_USUAL + self.id.as_str().len());
        // Writing to memory cannot fail.
        let _ = write!(text, "{self}");
        text
    }
}

/// A number as dwell writes it: no sign, no leading zero.
fn decimal<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !has_leading_zero(text);
    text.parse().ok().filter(|_| is_plain)
}

/// A hexadecimal number as dwell writes it: no sign, small letters.
fn hex(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(text, 16).ok().filter(|_| is_plain)
}

fn has_leading_zero(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Receipt { partition, epoch, serial, group, attempt, version, id } = self;
        write!(f, "{partition}.{epoch}.{serial}.{:08x}.{attempt}.{:x}.{id}", group.0, version.as_us())
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
        /// The reason of the failure, kept as the last error.
        reason: Option<String>,
    },
    /// It can never succeed: dead at once.
    Bury {
        /// The reason of the failure, kept as the last error.
        reason: Option<String>,
    },
}

#[derive(Debug, Default)]
pub struct SessionReceipts {
    receipts: Mutex<HashSet<Receipt>>,
    pub(super) freed: Notify,
}

impl SessionReceipts {
    pub(super) fn hold(self: &Arc<SessionReceipts>, receipt: Receipt) -> ReceiptGuard {
        self.receipts().insert(receipt.clone());
        ReceiptGuard { session_receipts: self.clone(), receipt }
    }

    pub(super) fn count(&self) -> usize {
        self.receipts().len()
    }

    pub(super) fn receipts(&self) -> MutexGuard<'_, HashSet<Receipt>> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kept in the owner's memory while the delivery is undecided: a decision, a deadline and the loss of the partition free it.
#[derive(Debug)]
pub(super) struct ReceiptGuard {
    session_receipts: Arc<SessionReceipts>,
    receipt: Receipt,
}

impl Drop for ReceiptGuard {
    fn drop(&mut self) {
        self.session_receipts.receipts().remove(&self.receipt);
        self.session_receipts.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    #[test]
    fn receipt_round_trips_and_garbage_is_refused() -> Result<()> {
        let group = GroupTag::of(&TopicName::new("orders")?, &GroupName::standard());
        assert_ne!(group, GroupTag::of(&TopicName::new("orders")?, &GroupName::new("audit")?));
        for id in ["order-4711", "a.b..c", ".a"] {
            let (version, id) = (Version::from_us(1_767_323_045_678_901), MessageId::new(id)?);
            let epoch = Epoch::after(16);
            let receipt = Receipt { partition: Partition(3), epoch, serial: 152, group, attempt: 2, version, id };
            assert_eq!(Receipt::parse(&receipt.to_string()), Some(receipt));
        }
        let good = "3.17.tok.1.0000002a.1.6475f6b8e0c1d.a";
        assert!(Receipt::parse(good).is_some_and(|receipt| receipt.to_string() == good));
        assert!(Receipt::parse("0.0.tok.0.00000000.0.0.a").is_some());
        for end in 0..good.len() {
            assert_eq!(Receipt::parse(&good[..end]), None, "{}", &good[..end]);
        }
        for bad in [
            "x.17.tok.1.0000002a.1.1.a",
            "03.17.tok.1.0000002a.1.1.a",
            "70000.17.tok.1.0000002a.1.1.a",
            "3.17.tok.x.0000002a.1.1.a",
            "3.17.tok.+1.0000002a.1.1.a",
            "3.17.tok.1.2a.1.1.a",
            "3.017.tok.1.0000002a.1.1.a",
            "3.+17.tok.1.0000002a.1.1.a",
            "3.17.tok.01.0000002a.1.1.a",
            "3.17.tok.1.00000002a.1.1.a",
            "3.17.tok.1.+000002a.1.1.a",
            "3.17.tok.1.0000002a.1.01.a",
            "3.17.tok.1.0000002a.01.1.a",
            "3.17.tok.1.0000002a.1.A.a",
            "3.17.tok.1.0000002a.1.+1.a",
            "3.17.tok.1.0000002A.1.1.a",
            "3.17.tok.1.0000002a.-1.1.a",
            "3.17.tok.1.0000002a.1.01.a",
            "3.17.tok.1.0000002a.1.1.a b",
        ] {
            assert_eq!(Receipt::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Receipt::parse(&"1".repeat(10_000)), None);
        Ok(())
    }
}
