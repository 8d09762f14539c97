//! Deliveries to a consumer, and its decisions about them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use crate::codec::{ReceiptBody, decode_receipt, encode_receipt};
use crate::model::last_error::LastError;
use crate::model::limits::RECEIPT_BYTES_MAX;
use crate::model::message::{GroupName, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::version::Version;
use crate::platform::signing_key::{SIGNATURE_BYTES, SigningKey};
use crate::store::{Claim, Epoch, MemberId};

/// The first byte of a receipt. An SQS handle of before receipts were signed began with 1.
const FORMAT: u8 = 2;

const GROUP_TAG_BYTES: usize = 8;

/// A message in the hands of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Names this delivery when it is settled: the text of a [`Receipt`].
    pub receipt: String,
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
    /// Whether it waited for an earlier message of its key.
    pub stood_behind: bool,
}

/// The name of one delivery, and what was delivered. A process has one only of a delivery that it made itself, or from a text
/// that [`Receipt::read`] found signed.
///
/// Consumers get a text without meaning to them. Every delivery has another one, also of the same message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub group: GroupTag,
    /// That of the topic: one that was deleted and created again has another.
    pub incarnation: u64,
    pub partition: Partition,
    pub epoch: Epoch,
    /// The broker that made the delivery: an epoch never changes hands.
    pub owner: MemberId,
    /// The number of the delivery within the epoch.
    pub serial: u64,
    pub attempt: u32,
    pub version: Version,
    pub id: MessageId,
}

/// Tells the receipts of one group of a topic from those of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupTag([u8; GROUP_TAG_BYTES]);

impl GroupTag {
    pub fn of(topic: &TopicName, group: &GroupName) -> GroupTag {
        let digest = Sha256::digest(format!("{topic}/{group}"));
        GroupTag(std::array::from_fn(|at| digest[at]))
    }
}

/// Why a text gives no receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReceipt {
    /// It cannot be one.
    Garbage,
    /// It is signed with none of the keys: it was changed or made up, or is of another store.
    Unsigned,
}

impl Receipt {
    /// Its text: the format, a signature, and what is signed.
    pub fn signed(&self, key: &SigningKey) -> String {
        let Receipt { group, incarnation, partition, epoch, owner, serial, attempt, version, id } = self;
        let epoch = epoch.to_string();
        let body = encode_receipt(&ReceiptBody {
            group: group.0,
            incarnation: *incarnation,
            partition: partition.0,
            epoch: &epoch,
            owner: owner.as_str(),
            serial: *serial,
            attempt: *attempt,
            version: version.as_us(),
            id: id.as_str(),
        });
        URL_SAFE_NO_PAD.encode([&[FORMAT][..], &key.sign(&body), &body].concat())
    }

    /// Reads what one of these keys has signed. Nothing else of a text is looked at.
    pub fn read(text: &str, keys: &[SigningKey]) -> Result<Receipt, NoReceipt> {
        let bytes = Some(text).filter(|text| text.len() <= RECEIPT_BYTES_MAX);
        let bytes = bytes.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).ok_or(NoReceipt::Garbage)?;
        let Some((&FORMAT, rest)) = bytes.split_first() else { return Err(NoReceipt::Garbage) };
        let (signature, body) = rest.split_at_checked(SIGNATURE_BYTES).ok_or(NoReceipt::Garbage)?;
        if !keys.iter().any(|key| key.has_signed(body, signature)) {
            return Err(NoReceipt::Unsigned);
        }
        Receipt::of_body(body).ok_or(NoReceipt::Unsigned)
    }

    /// Decodes bytes without a signature.
    #[cfg(feature = "fuzzing")]
    pub fn of_signed(body: &[u8]) -> Option<Receipt> {
        Receipt::of_body(body)
    }

    fn of_body(body: &[u8]) -> Option<Receipt> {
        let body = decode_receipt(body)?;
        let ReceiptBody { group, incarnation, partition, epoch, owner, serial, attempt, version, id } = body;
        Some(Receipt {
            group: GroupTag(group),
            incarnation,
            partition: Partition(partition),
            epoch: Epoch::parse(epoch)?,
            owner: Some(MemberId::from_store(owner)).filter(MemberId::is_plausible)?,
            serial,
            attempt,
            version: Version::from_us(version),
            id: MessageId::new(id).ok()?,
        })
    }
}

/// Makes the receipts of one epoch.
#[derive(Debug)]
pub struct ReceiptMaker {
    group: GroupTag,
    incarnation: u64,
    partition: Partition,
    epoch: Epoch,
    owner: MemberId,
    key: SigningKey,
}

impl ReceiptMaker {
    pub fn new(claim: &Claim, incarnation: u64, owner: MemberId, key: SigningKey) -> ReceiptMaker {
        let Claim { group_partition, epoch } = claim;
        let group = GroupTag::of(&group_partition.topic, &group_partition.group);
        let (partition, epoch) = (group_partition.partition, epoch.clone());
        ReceiptMaker { group, incarnation, partition, epoch, owner, key }
    }

    pub(super) fn partition(&self) -> Partition {
        self.partition
    }

    pub(super) fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    pub(super) fn receipt(&self, serial: u64, attempt: u32, version: Version, id: MessageId) -> Receipt {
        let ReceiptMaker { group, incarnation, partition, epoch, owner, .. } = self;
        let (group, incarnation, partition) = (*group, *incarnation, *partition);
        let (epoch, owner) = (epoch.clone(), owner.clone());
        Receipt { group, incarnation, partition, epoch, owner, serial, attempt, version, id }
    }

    pub(super) fn text(&self, receipt: &Receipt) -> String {
        receipt.signed(&self.key)
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
        reason: Option<LastError>,
    },
    /// Failed, as each message of its key would: in a fair group all of them wait as long as this one, and no attempt of theirs is charged.
    /// Elsewhere it is a nack.
    NackKey {
        /// As that of a nack.
        delay: Option<Duration>,
        /// As that of a nack.
        reason: Option<LastError>,
    },
    /// Given back unhandled: due again at once, and this delivery counts as no attempt.
    Release,
    /// It can never succeed: dead at once.
    Bury {
        /// The reason of the failure, kept as the last error.
        reason: Option<LastError>,
    },
}

/// Whether a decision counts after its delivery ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Late {
    #[default]
    No,
    /// If the message waits and nobody has had it since.
    Waiting,
    /// An ack also if the message was delivered again since, even to a consumer that still has it; everything else as
    /// [`Late::Waiting`].
    Redelivered,
}

impl Late {
    pub fn counts(self) -> bool {
        self != Late::No
    }
}

impl From<bool> for Late {
    fn from(late: bool) -> Late {
        if late { Late::Waiting } else { Late::No }
    }
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
    use crate::model::error;

    fn receipt(id: &str) -> error::Result<Receipt> {
        Ok(Receipt {
            group: GroupTag::of(&TopicName::new("orders")?, &GroupName::standard()),
            incarnation: 1_767_323_045_678,
            partition: Partition(3),
            epoch: Epoch::after(16),
            owner: MemberId::fresh("host"),
            serial: 152,
            attempt: 2,
            version: Version::from_us(1_767_323_045_678_901),
            id: MessageId::new(id)?,
        })
    }

    #[test]
    fn receipt_is_read_with_the_key_that_signed_it() -> error::Result<()> {
        let (key, other) = (SigningKey::fresh()?, SigningKey::fresh()?);
        for id in ["order-4711", "a.b..c", "~"] {
            let receipt = receipt(id)?;
            let text = receipt.signed(&key);
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
            assert_eq!(Receipt::read(&text, &[other.clone(), key.clone()]), Ok(receipt));
            assert_eq!(Receipt::read(&text, std::slice::from_ref(&other)), Err(NoReceipt::Unsigned));
            assert_eq!(Receipt::read(&text, &[]), Err(NoReceipt::Unsigned));
        }
        Ok(())
    }

    #[test]
    fn every_field_is_signed() -> error::Result<()> {
        let key = SigningKey::fresh()?;
        let first = receipt("order-4711")?;
        let others = [
            Receipt { group: GroupTag::of(&TopicName::new("orders")?, &GroupName::new("audit")?), ..first.clone() },
            Receipt { incarnation: first.incarnation + 1, ..first.clone() },
            Receipt { partition: Partition(4), ..first.clone() },
            Receipt { epoch: Epoch::after(16), ..first.clone() },
            Receipt { owner: MemberId::fresh("host"), ..first.clone() },
            Receipt { serial: 153, ..first.clone() },
            Receipt { attempt: 0, ..first.clone() },
            Receipt { version: first.version.plus(1), ..first.clone() },
            Receipt { id: MessageId::new("order-4712")?, ..first.clone() },
        ];
        let bytes = |receipt: &Receipt| URL_SAFE_NO_PAD.decode(receipt.signed(&key)).unwrap_or_default();
        for other in &others {
            let forged = [&bytes(&first)[..1 + SIGNATURE_BYTES], &bytes(other)[1 + SIGNATURE_BYTES..]].concat();
            let forged = Receipt::read(&URL_SAFE_NO_PAD.encode(forged), std::slice::from_ref(&key));
            assert_eq!(forged, Err(NoReceipt::Unsigned), "{other:?}");
        }
        Ok(())
    }

    #[test]
    fn a_changed_cut_or_longer_text_is_no_receipt() -> error::Result<()> {
        let key = SigningKey::fresh()?;
        let read = |text: &str| Receipt::read(text, std::slice::from_ref(&key));
        let text = receipt("order-4711")?.signed(&key);
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap_or_default();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&URL_SAFE_NO_PAD.encode(changed)).is_err(), "bit {bit}");
        }
        for length in 0..text.len() {
            assert!(read(&text[..length]).is_err(), "{length}");
        }
        for garbage in [format!("{text}A"), format!("{text}="), format!(" {text}"), "A".repeat(10_000), "é".to_owned()]
        {
            assert!(read(&garbage).is_err(), "{garbage}");
        }
        let before = "3.17.k3Zq9xT0aB1c.152.9f3a1c2e.1.6475f6b8e0c1d.order-4711";
        assert_eq!(read(before), Err(NoReceipt::Garbage), "of before receipts were signed");
        Ok(())
    }

    #[test]
    fn the_longest_receipt_fits() -> error::Result<()> {
        let longest = Receipt {
            incarnation: u64::MAX,
            partition: Partition(u16::MAX),
            epoch: Epoch::after(u64::MAX),
            owner: MemberId::from_store(&"h".repeat(crate::model::limits::MEMBER_BYTES_MAX)),
            serial: u64::MAX,
            attempt: u32::MAX,
            version: Version::from_us(u64::MAX),
            ..receipt(&"i".repeat(crate::model::limits::ID_BYTES_MAX))?
        };
        let key = SigningKey::fresh()?;
        let text = longest.signed(&key);
        assert_eq!(text.len(), 427);
        assert_eq!(Receipt::read(&text, &[key]), Ok(longest));
        Ok(())
    }
}
