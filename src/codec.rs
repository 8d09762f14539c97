//! Bytes that outlive a process: versioned, checksummed. The only user of bincode.
//!
//! A body is `due_at (8 bytes, big endian) | version (1) | crc32 of the rest (4) | header (bincode) | payload`.
//! The due time stands in front, outside the checksum, so that the store can change it without decoding the rest. The
//! header begins with the time of the push, which scripts of the store read.
//! A new version gets a new number and a new decoder; the old decoders stay.

mod dead;
mod record;

use bincode::{Decode, Encode};
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::limits::{ENVELOPE_BYTES_MAX, PRIORITY_MAX};
use crate::message::{Envelope, Key, Message, MessageId};
use crate::time::Timestamp;

pub use self::dead::{
    DeadReason, DeadRecord, Failure, decode_dead, decode_history, encode_dead, encode_failure, extend_history,
};
pub use self::record::{NumberedRecord, Record, UnnumberedRecord, decode_record};

const VERSION: u8 = 1;
/// A body with a priority behind the header. Only those that have one, so that the others can be read by an older dwell.
const VERSION_PRIORITY: u8 = 2;
/// Bytes before the header: due time, version, checksum.
const PREFIX: usize = 8 + 1 + 4;

/// bincode without a limit panics on a hostile length; every decoder here has one.
const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<ENVELOPE_BYTES_MAX>,
> = bincode::config::standard().with_limit::<ENVELOPE_BYTES_MAX>();

#[derive(Encode, Decode)]
struct HeaderV1 {
    pushed_at_ms: u64,
    key: Option<String>,
    expires_at_ms: Option<u64>,
    max_attempts: Option<u32>,
    content_type: Option<String>,
    meta: Vec<(String, String)>,
}

/// The body of a message.
pub fn encode_body(message: &Message) -> Result<Vec<u8>> {
    let envelope = &message.envelope;
    let header = HeaderV1 {
        pushed_at_ms: envelope.pushed_at.as_ms(),
        key: envelope.key.as_ref().map(|key| key.as_str().to_owned()),
        expires_at_ms: envelope.expires_at.map(Timestamp::as_ms),
        max_attempts: envelope.max_attempts,
        content_type: envelope.content_type.clone(),
        meta: envelope.meta.clone(),
    };
    let mut body = Vec::with_capacity(PREFIX + 64 + envelope.payload.len());
    body.extend_from_slice(&message.due_at.as_ms().to_be_bytes());
    body.push(if envelope.priority == 0 { VERSION } else { VERSION_PRIORITY });
    body.extend_from_slice(&[0; 4]);
    bincode::encode_into_std_write(header, &mut body, CONFIG)
        .map_err(|error| Error::bug(format!("a header did not encode: {error}")))?;
    if envelope.priority > 0 {
        body.push(envelope.priority);
    }
    body.extend_from_slice(&envelope.payload);
    let sum = crc32fast::hash(&body[PREFIX..]).to_be_bytes();
    body[9..PREFIX].copy_from_slice(&sum);
    Ok(body)
}

/// The message of a body; the payload shares its bytes.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for anything that [`encode_body`] did not write.
pub fn decode_body(id: MessageId, body: Bytes) -> Result<Message> {
    let corrupt = |why: &str| Error::corrupt(format!("the body of message {id}: {why}"));
    let due_at = body_due_at(&body).ok_or_else(|| corrupt("is too short"))?;
    if body.len() < PREFIX {
        return Err(corrupt("is too short"));
    }
    if ![VERSION, VERSION_PRIORITY].contains(&body[8]) {
        return Err(corrupt(&format!("has version {}, this dwell reads {VERSION} and {VERSION_PRIORITY}", body[8])));
    }
    let mut sum = [0; 4];
    sum.copy_from_slice(&body[9..PREFIX]);
    if crc32fast::hash(&body[PREFIX..]) != u32::from_be_bytes(sum) {
        return Err(corrupt("does not match its checksum"));
    }
    let (header, mut read): (HeaderV1, usize) = bincode::decode_from_slice(&body[PREFIX..], CONFIG)
        .map_err(|error| corrupt(&format!("has an unreadable header ({error})")))?;
    let mut priority = 0;
    if body[8] == VERSION_PRIORITY {
        let valid = body.get(PREFIX + read).filter(|priority| (1..=PRIORITY_MAX).contains(*priority));
        priority = *valid.ok_or_else(|| corrupt("has no valid priority"))?;
        read += 1;
    }
    let payload = body.slice(PREFIX + read..);
    let key = header.key.map(Key::new).transpose().map_err(|error| corrupt(error.detail()))?;
    let envelope = Envelope {
        key,
        pushed_at: Timestamp::from_ms(header.pushed_at_ms),
        expires_at: header.expires_at_ms.map(Timestamp::from_ms),
        max_attempts: header.max_attempts,
        priority,
        content_type: header.content_type,
        meta: header.meta,
        payload,
    };
    Ok(Message { id, due_at, envelope })
}

/// The due time in front of a body, without decoding the rest.
pub fn body_due_at(body: &[u8]) -> Option<Timestamp> {
    let bytes: [u8; 8] = body.get(..8)?.try_into().ok()?;
    Some(Timestamp::from_ms(u64::from_be_bytes(bytes)))
}

/// Changes the due time in front of a body.
pub fn set_body_due_at(body: &mut [u8], due_at: Timestamp) {
    if let Some(front) = body.first_chunk_mut() {
        *front = due_at.as_ms().to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Result<Message> {
        Ok(Message {
            id: MessageId::new("order-1")?,
            due_at: Timestamp::from_ms(1_767_323_045_678),
            envelope: Envelope {
                key: Some(Key::new("customer-7")?),
                pushed_at: Timestamp::from_ms(1_767_323_040_000),
                expires_at: Some(Timestamp::from_ms(1_767_323_999_999)),
                max_attempts: Some(3),
                priority: 0,
                content_type: Some("application/json".into()),
                meta: vec![("trace".into(), "abc".into())],
                payload: Bytes::from_static(b"{\"close\":true}"),
            },
        })
    }

    /// Bytes written by version 1. If this fails the format changed: give it a new version instead.
    #[test]
    fn version_1_is_frozen() -> Result<()> {
        let hex: String = encode_body(&sample()?)?.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, include_str!("codec/body.v1.hex").trim());
        Ok(())
    }

    /// The same for bodies with a priority.
    #[test]
    fn version_2_is_frozen() -> Result<()> {
        let mut message = sample()?;
        message.envelope.priority = 7;
        let hex: String = encode_body(&message)?.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, include_str!("codec/body.v2.hex").trim());
        assert_eq!(decode_body(message.id.clone(), encode_body(&message)?.into())?, message);
        Ok(())
    }

    #[test]
    fn what_is_written_is_read_back() -> Result<()> {
        let message = sample()?;
        let body = Bytes::from(encode_body(&message)?);
        assert_eq!(decode_body(message.id.clone(), body)?, message);
        Ok(())
    }

    #[test]
    fn every_flipped_bit_behind_the_due_time_and_every_truncation_is_noticed() -> Result<()> {
        let message = sample()?;
        let body = encode_body(&message)?;
        for bit in 8 * 8..body.len() * 8 {
            let mut bad = body.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_body(message.id.clone(), bad.into()).is_err(), "bit {bit}");
        }
        for end in 0..body.len() {
            assert!(decode_body(message.id.clone(), body[..end].to_vec().into()).is_err(), "cut at {end}");
        }
        Ok(())
    }

    #[test]
    fn a_hostile_length_is_an_error_not_a_panic() -> Result<()> {
        let mut body = vec![0; PREFIX];
        body[8] = VERSION;
        body.extend_from_slice(&[0, 1, 253, 255, 255, 255, 255, 255, 255, 255, 255]);
        let sum = crc32fast::hash(&body[PREFIX..]).to_be_bytes();
        body[9..PREFIX].copy_from_slice(&sum);
        assert!(decode_body(MessageId::new("x")?, body.into()).is_err());
        assert!(decode_dead(&[VERSION, 0, 1, 1, 253, 255, 255, 255, 255, 255, 255, 255, 255]).is_err());
        Ok(())
    }
}
