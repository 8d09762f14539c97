//! UUIDs of messages and requests, and sequence numbers: many clients take nothing but UUIDs.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::error::Result;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::platform::signing_key;

/// Bits of a sequence number below the milliseconds.
const COUNTER_BITS: u32 = 20;

pub(crate) fn uuid(bits: u128) -> String {
    let hex = format!("{bits:032x}");
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

fn versioned(bits: u128, version: u128) -> u128 {
    let bits = bits & !(0xf << 76) & !(0b11 << 62);
    bits | version << 76 | 0b10 << 62
}

pub(crate) fn random() -> String {
    uuid(versioned(fastrand::u128(..), 4))
}

/// For what may be done by whoever knows it. Errors: when the operating system has no random numbers.
pub(crate) fn unguessable() -> Result<String> {
    Ok(uuid(versioned(u128::from_be_bytes(signing_key::random()?), 4)))
}

/// An id (version 5) that depends on the parts alone: equal parts have equal ids.
pub(crate) fn of_parts(parts: &[&[u8]]) -> String {
    let mut digest = sha1_smol::Sha1::new();
    for part in parts {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let digest = digest.digest().bytes();
    let bits = digest[..16].iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    uuid(versioned(bits, 5))
}

/// An id (version 8) that depends on the request, the parts and the number of the message in the request. Ids of one request are in
/// its order, so that messages of a batch, which are due at the same time, are received in it.
pub(crate) fn of_entry(request: &[u8], index: usize, parts: &[&[u8]]) -> String {
    let bits = |parts: &[&[u8]]| parse(&of_parts(parts)).unwrap_or_default();
    let order = (bits(&[request]) >> 80 << 80) | (index as u128 & 0xfff) << 64;
    uuid(versioned(order | bits(parts) & u128::from(u64::MAX), 8))
}

/// The bits of a text that is a UUID.
pub(crate) fn parse(text: &str) -> Option<u128> {
    let dashes = [8, 13, 18, 23];
    let is_dash = |(at, byte): (usize, u8)| (byte == b'-') == dashes.contains(&at);
    if text.len() != 36 || !text.bytes().enumerate().all(is_dash) {
        return None;
    }
    u128::from_str_radix(&text.replace('-', ""), 16).ok()
}

/// The id of any message as a UUID, also of one that was pushed without SQS.
pub(crate) fn of_message(id: &str) -> String {
    if parse(id).is_some() {
        return id.to_owned();
    }
    match ulid::Ulid::from_string(id) {
        Ok(ulid) => uuid(ulid.0),
        Err(_) => of_parts(&[b"dwell", id.as_bytes()]),
    }
}

/// Sequence numbers of the messages of this broker. They are part of the message's id, so that the first message's number
/// can be told from its id when a duplicate is sent.
#[derive(Debug, Default)]
pub(crate) struct Sequence(AtomicU64);

impl Sequence {
    /// An id that has the next number. Errors: none but a defect.
    pub(crate) fn id(&self, now: Timestamp) -> Result<MessageId> {
        let next = |last: u64| Some((now.as_ms() << COUNTER_BITS).max(last + 1));
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        let number = u128::from((now.as_ms() << COUNTER_BITS).max(last + 1));
        // Version 7: 48 bits of milliseconds, 12 of the counter, and 8 more of it behind the variant.
        let (ms, counter) = (number >> COUNTER_BITS, number & ((1 << COUNTER_BITS) - 1));
        let bits = ms << 80 | (counter >> 8) << 64 | (counter & 0xff) << 54 | u128::from(fastrand::u64(..1 << 54));
        MessageId::new(uuid(versioned(bits, 7)))
    }
}

/// The number in an id, as 20 digits; for an id without one a number from the time of the push.
pub(crate) fn sequence_number(id: &str, pushed_at: Timestamp) -> String {
    let number = match parse(id).filter(|bits| bits >> 76 & 0xf == 7) {
        Some(bits) => bits >> 80 << COUNTER_BITS | (bits >> 64 & 0xfff) << 8 | bits >> 54 & 0xff,
        None => u128::from(pushed_at.as_ms()) << COUNTER_BITS,
    };
    format!("{number:020}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_uuid_is_deterministic() {
        let own = "0197a6f3-6a2f-7b00-8123-456789abcdef";
        assert_eq!(of_message(own), own);
        assert_eq!(of_message("01JGZK3W8M5T0000000000000A"), of_message("01JGZK3W8M5T0000000000000A"));
        for id in ["01JGZK3W8M5T0000000000000A", "order-4711", "x", &"y".repeat(36)] {
            let shown = of_message(id);
            assert!(parse(&shown).is_some(), "{shown}");
            assert_eq!(of_message(&shown), shown);
        }
        let entries: Vec<_> = (0..10).map(|index| of_entry(b"r", index, &[b"a"])).collect();
        assert!(entries.is_sorted() && entries.iter().all(|id| parse(id).is_some()), "{entries:?}");
        assert_eq!(entries[3], of_entry(b"r", 3, &[b"a"]));
        assert_ne!(entries[3], of_entry(b"r", 3, &[b"b"]));
        assert_ne!(of_message("a"), of_message("b"));
        assert_ne!(of_parts(&[b"a", b"b"]), of_parts(&[b"ab"]));
        assert!(parse(&random()).is_some_and(|bits| bits >> 76 & 0xf == 4 && bits >> 62 & 0b11 == 0b10));
        for wrong in ["", "0197a6f36a2f7b008123456789abcdef", "0197a6f3-6a2f-7b00-8123-456789abcdeg"] {
            assert_eq!(parse(wrong), None);
        }
    }

    #[test]
    fn sequence_numbers_increase_and_derive_from_the_id() -> Result<()> {
        let (sequence, now) = (Sequence::default(), Timestamp::from_ms(1_767_323_045_000));
        let number = |id: &MessageId| sequence_number(id.as_str(), Timestamp::from_ms(0));
        let mut last = String::new();
        for n in 0..5_000 {
            let at = if n % 7 == 0 { now.minus(std::time::Duration::from_secs(1)) } else { now };
            let id = sequence.id(at)?;
            assert!(parse(id.as_str()).is_some());
            let next = number(&id);
            assert!(next > last && next.len() == 20, "{last} {next}");
            last = next;
        }
        assert_eq!(sequence_number("order-4711", now), format!("{:020}", now.as_ms() << 20));
        Ok(())
    }
}
