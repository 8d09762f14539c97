//! Receipt handles: dwell's receipts with a digest, so that a text that dwell did not write is told from one it did.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

use super::errors::{Failure, Result};
use super::queue::Queue;
use super::sigv4::hmac;
use crate::delivery::{GroupTag, Receipt};

const VERSION: u8 = 1;
const DIGEST_BYTES: usize = 8;
/// Characters of the longest handle that AWS allows.
const HANDLE_MAX: usize = 1_024;

pub(crate) fn encode(queue: &Queue, receipt: &Receipt) -> String {
    let receipt = receipt.to_string();
    let mut bytes = vec![VERSION];
    bytes.extend(digest(queue, &receipt));
    bytes.extend(receipt.bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Errors: `ReceiptHandleIsInvalid`; `InvalidParameterValue` for one of another queue.
pub(crate) fn decode(queue: &Queue, handle: &str) -> Result<String> {
    let invalid = || Failure::receipt(handle);
    let bytes = Some(handle).filter(|handle| handle.len() <= HANDLE_MAX);
    let bytes = bytes.and_then(|handle| URL_SAFE_NO_PAD.decode(handle).ok()).ok_or_else(invalid)?;
    let Some((&VERSION, rest)) = bytes.split_first() else { return Err(invalid()) };
    let (given, receipt) = rest.split_at_checked(DIGEST_BYTES).ok_or_else(invalid)?;
    let receipt = str::from_utf8(receipt).map_err(|_| invalid())?;
    let parsed = Receipt::parse(receipt).ok_or_else(invalid)?;
    if parsed.group != GroupTag::of(&queue.topic, &queue.group) {
        let why = "Reason: The receipt handle is not valid for this queue.";
        return Err(Failure::invalid(format!("Value {handle} for parameter ReceiptHandle is invalid. {why}")));
    }
    match bool::from(given.ct_eq(&digest(queue, receipt))) {
        true => Ok(receipt.to_owned()),
        false => Err(invalid()),
    }
}

/// The key is the same at every broker, and another one when a queue is deleted and created again.
fn digest(queue: &Queue, receipt: &str) -> [u8; DIGEST_BYTES] {
    let key = format!("{} {} {}", queue.topic, queue.group, queue.descriptor.incarnation);
    let mac = hmac(key.as_bytes(), receipt.as_bytes());
    std::array::from_fn(|at| mac[at])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::message::{GroupName, TopicName};
    use crate::model::topic::{Descriptor, Settings};
    use crate::sqs::errors::{INVALID_PARAMETER, INVALID_RECEIPT};

    fn queue(name: &str, incarnation: u64) -> crate::model::error::Result<Queue> {
        let topic = TopicName::new(name)?;
        let descriptor = Descriptor { incarnation, ..Descriptor::new(topic.clone(), Settings::default()) };
        Ok(Queue { name: name.to_owned(), topic, group: GroupName::standard(), descriptor: Arc::new(descriptor) })
    }

    #[test]
    fn receipt_handle_round_trips_and_forged_ones_are_refused() -> crate::model::error::Result<()> {
        let orders = queue("orders", 7)?;
        let tag = format!("{:08x}", crate::model::partition::hash(b"orders/default"));
        let receipt = Receipt::parse(&RECEIPT.replace("TAG", &tag));
        let receipt = receipt.ok_or_else(|| crate::model::error::Error::bug("no receipt"))?;
        let handle = encode(&orders, &receipt);
        assert!(handle.len() < 300);
        assert_eq!(decode(&orders, &handle), Ok(receipt.to_string()));
        let class = |queue: &Queue, handle: &str| decode(queue, handle).err().map(|failure| failure.class);
        for at in 0..handle.len() {
            let mut forged = handle.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap_or_default();
            assert!(class(&orders, &forged).is_some(), "{forged}");
        }
        for garbage in ["", "garbage", "AQ", "é", &"A".repeat(1_025), &handle[..handle.len() - 1]] {
            assert_eq!(class(&orders, garbage), Some(INVALID_RECEIPT), "{garbage}");
        }
        assert_eq!(class(&queue("orders", 8)?, &handle), Some(INVALID_RECEIPT));
        assert_eq!(class(&queue("other", 7)?, &handle), Some(INVALID_PARAMETER));
        Ok(())
    }

    const RECEIPT: &str = "3.17.tok.152.TAG.1.1.order-4711";
}
