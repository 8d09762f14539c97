//! A body with another one behind it: that of the message which takes its place once it has ended.
//!
//! It is `the message | its successor | the id of a dead letter | length of the id (1 byte) | length of the successor (4, big
//! endian)`, and the format of the message has [`FOLLOWED`] added. `_successor.lua` reads the same. The checksums cover the two
//! bodies, and not the id.

use bytes::Bytes;

use super::{FORMAT_AT, HEADER_AT, body_due_at, body_version, decode_alone, encode_alone, set_body_due_at};
use crate::model::error::{Error, Result};
use crate::model::message::{Message, MessageId, Successor};
use crate::model::version::Version;

/// Added to the format of a message that has a successor.
pub(super) const FOLLOWED: u8 = 0x80;
const LENGTHS: usize = 1 + 4;

/// A stored message taken apart from its successor.
#[derive(Debug, PartialEq, Eq)]
pub struct Followed {
    pub first: Vec<u8>,
    /// As it is stored once the first one has ended.
    pub successor: Vec<u8>,
    /// The id of the first one as a dead letter: its own is that of the successor then.
    pub dead_id: MessageId,
}

/// Where the parts begin: the successor, and the id.
fn places(body: &[u8]) -> Option<(usize, usize)> {
    let (rest, lengths) = body.split_last_chunk::<LENGTHS>()?;
    let [id, length @ ..] = *lengths;
    let id_at = rest.len().checked_sub(usize::from(id))?;
    let successor_at = id_at.checked_sub(usize::try_from(u32::from_be_bytes(length)).ok()?)?;
    (successor_at >= HEADER_AT && id_at - successor_at >= HEADER_AT).then_some((successor_at, id_at))
}

/// Whether a body, or the beginning of one, is of a message with a successor.
pub fn is_followed(body: &[u8]) -> bool {
    body.get(FORMAT_AT).is_some_and(|format| format & FOLLOWED != 0)
}

/// `None` for a message without a successor, and for one whose bytes are damaged.
pub fn take_apart(body: &[u8]) -> Option<Followed> {
    let (successor_at, id_at) = places(body).filter(|_| is_followed(body))?;
    let dead_id = MessageId::new(std::str::from_utf8(&body[id_at..body.len() - LENGTHS]).ok()?).ok()?;
    let (mut first, mut successor) = (body[..successor_at].to_vec(), body[successor_at..id_at].to_vec());
    first[FORMAT_AT] &= !FOLLOWED;
    let due_at = body_due_at(&successor).unwrap_or_default();
    set_body_due_at(&mut successor, due_at, successor_version(body, successor_at));
    Some(Followed { first, successor, dead_id })
}

/// The version of the last change of a stored message or of its successor, which is always above that of the message.
pub fn newest_version(body: &[u8]) -> Version {
    match places(body).filter(|_| is_followed(body)) {
        Some((successor_at, _)) => successor_version(body, successor_at),
        None => body_version(body),
    }
}

fn successor_version(body: &[u8], successor_at: usize) -> Version {
    body_version(&body[successor_at..]).max(body_version(body).plus(1))
}

/// Puts a successor behind a stored message, instead of the one that it has.
pub fn follow(body: &[u8], successor: &[u8], dead_id: &MessageId) -> Vec<u8> {
    let first = places(body).filter(|_| is_followed(body)).map_or(body, |(successor_at, _)| &body[..successor_at]);
    let mut followed = Vec::with_capacity(first.len() + successor.len() + dead_id.as_str().len() + LENGTHS);
    followed.extend_from_slice(first);
    if let Some(format) = followed.get_mut(FORMAT_AT) {
        *format |= FOLLOWED;
    }
    followed.extend_from_slice(successor);
    followed.extend_from_slice(dead_id.as_str().as_bytes());
    // An id has at most 128 bytes, and a body far less than 4 GiB.
    followed.push(u8::try_from(dead_id.as_str().len()).unwrap_or(u8::MAX));
    followed.extend_from_slice(&u32::try_from(successor.len()).unwrap_or(u32::MAX).to_be_bytes());
    followed
}

pub fn encode_body(message: &Message, version: Version) -> Result<Vec<u8>> {
    let body = encode_alone(message, version)?;
    match message.successor.as_deref() {
        None => Ok(body),
        Some(Successor { message, version, dead_id }) => Ok(follow(&body, &encode_alone(message, *version)?, dead_id)),
    }
}

/// The message of a body, with its successor; payloads share its bytes. Errors: [`crate::model::error::Kind::Corrupt`] for
/// anything that [`encode_body`] did not write.
pub fn decode_body(id: MessageId, body: Bytes) -> Result<Message> {
    if !is_followed(&body) {
        return decode_alone(id, body);
    }
    let (successor_at, id_at) = places_in(&id, &body)?;
    let message = decode_alone(id.clone(), body.slice(..successor_at))?;
    let corrupt = || Error::corrupt(format!("the body of message {id}: has an unreadable id of a dead letter"));
    let dead_id = std::str::from_utf8(&body[id_at..body.len() - LENGTHS]).map_err(|_| corrupt())?;
    let dead_id = MessageId::new(dead_id).map_err(|_| corrupt())?;
    let version = successor_version(&body, successor_at);
    let successor = Successor { message: decode_alone(id, body.slice(successor_at..id_at))?, version, dead_id };
    Ok(Message { successor: Some(Box::new(successor)), ..message })
}

/// The message of a body without its successor: what its owner holds. Errors: as [`decode_body`].
pub fn decode_first(id: MessageId, body: Bytes) -> Result<Message> {
    if !is_followed(&body) {
        return decode_alone(id, body);
    }
    let (successor_at, _) = places_in(&id, &body)?;
    decode_alone(id, body.slice(..successor_at))
}

fn places_in(id: &MessageId, body: &[u8]) -> Result<(usize, usize)> {
    places(body).ok_or_else(|| Error::corrupt(format!("the body of message {id}: has no valid successor")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::message::NewMessage;
    use crate::model::time::Timestamp;

    const FIRST: Version = Version::from_us(1_767_323_045_678_901);
    const SECOND: Version = Version::from_us(1_767_323_045_999_999);

    fn message(payload: &'static str, delay: u64) -> Result<Message> {
        let message = NewMessage::new(payload).id(MessageId::new("reindex-7")?).after(Duration::from_millis(delay));
        message.accept(Timestamp::from_ms(1_767_323_045_000))
    }

    fn followed() -> Result<(Message, Vec<u8>)> {
        let dead_id = MessageId::new("reindex-7~1")?;
        let successor = Successor { message: message("second", 700)?, version: SECOND, dead_id };
        let first = Message { successor: Some(Box::new(successor)), ..message("first", 0)? };
        let body = encode_body(&first, FIRST)?;
        Ok((first, body))
    }

    #[test]
    fn message_and_its_successor_come_back() -> Result<()> {
        let (first, body) = followed()?;
        let id = first.id.clone();
        assert_eq!(decode_body(id.clone(), body.clone().into())?, first);
        assert_eq!(decode_first(id.clone(), body.clone().into())?, message("first", 0)?);
        assert_eq!((body_version(&body), newest_version(&body)), (FIRST, SECOND));
        let Followed { first, successor, dead_id } = take_apart(&body).ok_or_else(|| Error::bug("no successor"))?;
        assert_eq!(first, encode_alone(&message("first", 0)?, FIRST)?);
        assert_eq!(successor, encode_alone(&message("second", 700)?, SECOND)?);
        assert_eq!(dead_id.as_str(), "reindex-7~1");
        assert_eq!(take_apart(&first), None);
        Ok(())
    }

    #[test]
    fn later_successor_takes_the_place_of_an_earlier_one() -> Result<()> {
        let (first, body) = followed()?;
        let third = encode_alone(&message("third", 5)?, SECOND.plus(1))?;
        let body = follow(&body, &third, &MessageId::new("reindex-7~2")?);
        let found = decode_body(first.id, body.into())?.successor.ok_or_else(|| Error::bug("no successor"))?;
        assert_eq!((&*found.message.envelope.payload, found.version), (&b"third"[..], SECOND.plus(1)));
        Ok(())
    }

    /// A reschedule gives the first one a later version than its successor has.
    #[test]
    fn successor_is_always_later_than_its_message() -> Result<()> {
        let (_, mut body) = followed()?;
        let later = SECOND.plus(1_000);
        set_body_due_at(&mut body, Timestamp::from_ms(5), later);
        assert_eq!(newest_version(&body), later.plus(1));
        let Followed { successor, .. } = take_apart(&body).ok_or_else(|| Error::bug("no successor"))?;
        assert_eq!(body_version(&successor), later.plus(1));
        Ok(())
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_found_or_harmless() -> Result<()> {
        let (first, body) = followed()?;
        for end in 0..body.len() {
            let cut = decode_body(first.id.clone(), body[..end].to_vec().into());
            assert!(cut.is_err(), "{end} of {} bytes", body.len());
        }
        for at in FORMAT_AT..body.len() {
            for bit in 0..8 {
                let mut flipped = body.clone();
                flipped[at] ^= 1 << bit;
                // Due times and versions stand outside of the checksums, and so does the id of a dead letter.
                let is_outside = decode_body(first.id.clone(), flipped.into()).is_ok_and(|read| {
                    let envelopes = |message: &Message| {
                        let successor = message.successor.as_ref().map(|successor| successor.message.envelope.clone());
                        (message.envelope.clone(), successor)
                    };
                    envelopes(&read) != envelopes(&first)
                });
                assert!(!is_outside, "bit {bit} of byte {at}");
            }
        }
        Ok(())
    }
}
