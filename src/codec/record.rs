//! Records of a log: what is to be done to the store later.
//!
//! A record is `version (1 byte) | crc32 of the rest (4) | number (8, big endian) | appended at, ms (8, big endian) |
//! header (bincode) | the body of a message, or a descriptor (JSON)`.

use bincode::{BorrowDecode, Encode};
use bytes::Bytes;

use super::{CONFIG, decode_body, encode_body};
use crate::error::{Error, Result};
use crate::message::{Conflict, Message, MessageId, TopicName};
use crate::partition::Partition;
use crate::time::Timestamp;
use crate::topic::Descriptor;

/// The version of a topic, and of a message that is neither sent nor has a policy of conflict.
const VERSION: u8 = 1;
/// The version of everything else.
const VERSION_2: u8 = 2;
/// Where the checksum ends and what it covers begins.
const SUM_END: usize = 5;
/// Where the number ends.
const NUMBER_END: usize = SUM_END + 8;
/// Where the header begins.
const PREFIX: usize = NUMBER_END + 8;

/// One thing to be done to the store later.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// Make this topic if it is not there.
    Create(Descriptor),
    /// Store this message.
    Push {
        /// Under this topic.
        topic: TopicName,
        /// The incarnation of it; 0 is whichever topic has the name then.
        incarnation: u64,
        /// The message.
        message: Message,
        /// Whether the store was sent it and did not answer: perhaps it has it.
        sent: bool,
        /// What happens if its id is there already.
        conflict: Conflict,
    },
    /// Cancel what was pushed under this id until then.
    Cancel {
        /// Of this topic.
        topic: TopicName,
        /// The incarnation of it.
        incarnation: u64,
        /// In this partition.
        partition: Partition,
        /// The message.
        id: MessageId,
        /// When it was cancelled, on the store's clock.
        at: Timestamp,
    },
    /// Give a message another due time, if it still has the one it had.
    Reschedule {
        /// Of this topic.
        topic: TopicName,
        /// The incarnation of it.
        incarnation: u64,
        /// In this partition.
        partition: Partition,
        /// The message.
        id: MessageId,
        /// The due time it had.
        was: Timestamp,
        /// The due time it got.
        due_at: Timestamp,
    },
}

impl Record {
    /// The topic that it is about.
    pub fn topic(&self) -> &TopicName {
        match self {
            Record::Create(descriptor) => &descriptor.topic,
            Record::Push { topic, .. } | Record::Cancel { topic, .. } | Record::Reschedule { topic, .. } => topic,
        }
    }
}

/// A record with what the log added.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberedRecord {
    /// Its number in the log.
    pub number: u64,
    /// When it was appended, by the clock of this machine.
    pub at: Timestamp,
    /// The record.
    pub record: Record,
}

#[derive(Encode, BorrowDecode)]
enum HeaderV1<'a> {
    Create,
    Push { topic: &'a str, incarnation: u64, id: &'a str },
}

#[derive(Encode, BorrowDecode)]
enum HeaderV2<'a> {
    Push { topic: &'a str, incarnation: u64, id: &'a str, sent: bool, conflict: u8 },
    Cancel { topic: &'a str, incarnation: u64, partition: u16, id: &'a str, at_ms: u64 },
    Reschedule { topic: &'a str, incarnation: u64, partition: u16, id: &'a str, was_ms: u64, due_at_ms: u64 },
}

/// A record that is encoded but for its number, which only the log knows, at the last moment.
#[derive(Debug, Clone)]
pub struct UnnumberedRecord(Vec<u8>);

impl UnnumberedRecord {
    /// Encodes a record that is appended at this time.
    pub fn new(record: &Record, at: Timestamp) -> Result<UnnumberedRecord> {
        let (version, header, body) = parts(record)?;
        let mut bytes = Vec::with_capacity(PREFIX + header.len() + body.len());
        bytes.resize(NUMBER_END, 0);
        bytes[0] = version;
        bytes.extend_from_slice(&at.as_ms().to_be_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&body);
        Ok(UnnumberedRecord(bytes))
    }

    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// The bytes of the record under this number.
    pub fn numbered(mut self, number: u64) -> Vec<u8> {
        self.0[SUM_END..NUMBER_END].copy_from_slice(&number.to_be_bytes());
        let sum = crc32fast::hash(&self.0[SUM_END..]).to_be_bytes();
        self.0[1..SUM_END].copy_from_slice(&sum);
        self.0
    }
}

/// The version, the header and the body of a record.
fn parts(record: &Record) -> Result<(u8, Vec<u8>, Vec<u8>)> {
    let v2 = |header| Ok::<_, Error>((VERSION_2, encoded(header)?));
    let ((version, header), body) = match record {
        Record::Create(descriptor) => {
            let json = serde_json::to_vec(descriptor).map_err(|error| bug(&error))?;
            ((VERSION, encoded(HeaderV1::Create)?), json)
        }
        Record::Push { topic, incarnation, message, sent, conflict } => {
            let (topic, incarnation, id) = (topic.as_str(), *incarnation, message.id.as_str());
            let header = match (*sent, number_of(*conflict)) {
                (false, 0) => (VERSION, encoded(HeaderV1::Push { topic, incarnation, id })?),
                (sent, conflict) => v2(HeaderV2::Push { topic, incarnation, id, sent, conflict })?,
            };
            (header, encode_body(message)?)
        }
        Record::Cancel { topic, incarnation, partition, id, at } => {
            let (topic, incarnation, partition, id) = (topic.as_str(), *incarnation, partition.0, id.as_str());
            (v2(HeaderV2::Cancel { topic, incarnation, partition, id, at_ms: at.as_ms() })?, Vec::new())
        }
        Record::Reschedule { topic, incarnation, partition, id, was, due_at } => {
            let (topic, incarnation, partition, id) = (topic.as_str(), *incarnation, partition.0, id.as_str());
            let (was_ms, due_at_ms) = (was.as_ms(), due_at.as_ms());
            (v2(HeaderV2::Reschedule { topic, incarnation, partition, id, was_ms, due_at_ms })?, Vec::new())
        }
    };
    Ok((version, header, body))
}

/// The place in [`Conflict::ALL`], which therefore never changes.
fn number_of(conflict: Conflict) -> u8 {
    match conflict {
        Conflict::Keep => 0,
        Conflict::Reject => 1,
        Conflict::Replace => 2,
        Conflict::Debounce => 3,
    }
}

fn encoded(header: impl Encode) -> Result<Vec<u8>> {
    bincode::encode_to_vec(header, CONFIG).map_err(|error| bug(&error))
}

fn bug(why: &dyn std::error::Error) -> Error {
    Error::bug(format!("a record did not encode: {why}"))
}

/// The record of its bytes; the payload shares them.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for anything that [`UnnumberedRecord::numbered`] did not write.
pub fn decode_record(bytes: Bytes) -> Result<NumberedRecord> {
    let corrupt = |why: &str| Error::corrupt(format!("a record of the log {why}"));
    let (Some(&version @ (VERSION | VERSION_2)), Some(sum), Some(number), Some(at)) =
        (bytes.first(), chunk(&bytes, 1), chunk(&bytes, SUM_END), chunk(&bytes, NUMBER_END))
    else {
        return Err(corrupt(&format!("has another version than {VERSION} and {VERSION_2}, or is cut")));
    };
    if crc32fast::hash(&bytes[SUM_END..]) != u32::from_be_bytes(sum) {
        return Err(corrupt("does not match its checksum"));
    }
    let checked = |error: Error| corrupt(error.detail());
    let record = if version == VERSION { decode_v1(&bytes) } else { decode_v2(&bytes) }.map_err(checked)?;
    Ok(NumberedRecord { number: u64::from_be_bytes(number), at: Timestamp::from_ms(u64::from_be_bytes(at)), record })
}

fn decode_v1(bytes: &Bytes) -> Result<Record> {
    let (header, body) = header_of(bytes)?;
    Ok(match header {
        HeaderV1::Create => Record::Create(
            serde_json::from_slice(&body)
                .map_err(|error| Error::corrupt(format!("has an unreadable topic ({error})")))?,
        ),
        HeaderV1::Push { topic, incarnation, id } => {
            let (topic, message) = (TopicName::new(topic)?, decode_body(MessageId::new(id)?, body)?);
            Record::Push { topic, incarnation, message, sent: false, conflict: Conflict::Keep }
        }
    })
}

fn decode_v2(bytes: &Bytes) -> Result<Record> {
    let (header, body) = header_of(bytes)?;
    Ok(match header {
        HeaderV2::Push { topic, incarnation, id, sent, conflict } => {
            let (topic, message) = (TopicName::new(topic)?, decode_body(MessageId::new(id)?, body)?);
            let unknown = || Error::corrupt(format!("has an unknown policy of conflict ({conflict})"));
            let conflict = Conflict::ALL.get(usize::from(conflict)).copied().ok_or_else(unknown)?;
            Record::Push { topic, incarnation, message, sent, conflict }
        }
        HeaderV2::Cancel { topic, incarnation, partition, id, at_ms } => {
            let (topic, id, partition) = (TopicName::new(topic)?, MessageId::new(id)?, Partition(partition));
            Record::Cancel { topic, incarnation, partition, id, at: Timestamp::from_ms(at_ms) }
        }
        HeaderV2::Reschedule { topic, incarnation, partition, id, was_ms, due_at_ms } => {
            let (topic, id, partition) = (TopicName::new(topic)?, MessageId::new(id)?, Partition(partition));
            let (was, due_at) = (Timestamp::from_ms(was_ms), Timestamp::from_ms(due_at_ms));
            Record::Reschedule { topic, incarnation, partition, id, was, due_at }
        }
    })
}

/// The header of a record, and what follows it.
fn header_of<'a, H: BorrowDecode<'a, ()>>(bytes: &'a Bytes) -> Result<(H, Bytes)> {
    let (header, read) = bincode::borrow_decode_from_slice(&bytes[PREFIX..], CONFIG)
        .map_err(|error| Error::corrupt(format!("has an unreadable header ({error})")))?;
    Ok((header, bytes.slice(PREFIX + read..)))
}

/// So many bytes from there on.
fn chunk<const N: usize>(bytes: &[u8], from: usize) -> Option<[u8; N]> {
    bytes.get(from..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::NewMessage;
    use crate::topic::Settings;

    fn samples() -> Result<[Record; 6]> {
        let topic = TopicName::new("orders")?;
        let mut descriptor = Descriptor::new(topic.clone(), Settings::default());
        descriptor.generation = 7;
        let new = NewMessage::new("{\"close\":true}").id(MessageId::new("order-1")?);
        let message = new.accept(Timestamp::from_ms(1_767_323_045_678))?;
        let (incarnation, partition, id) = (3, Partition(2), message.id.clone());
        let push =
            |message, sent, conflict| Record::Push { topic: topic.clone(), incarnation, message, sent, conflict };
        let (was, due_at, at) =
            (message.due_at, Timestamp::from_ms(1_767_323_099_999), Timestamp::from_ms(1_767_323_050_000));
        Ok([
            Record::Create(descriptor),
            push(message.clone(), false, Conflict::Keep),
            push(message.clone(), true, Conflict::Keep),
            push(message, false, Conflict::Debounce),
            Record::Cancel { topic: topic.clone(), incarnation, partition, id: id.clone(), at },
            Record::Reschedule { topic: topic.clone(), incarnation, partition, id, was, due_at },
        ])
    }

    fn bytes_of(record: &Record) -> Result<Vec<u8>> {
        Ok(UnnumberedRecord::new(record, Timestamp::from_ms(1_767_323_045_679))?.numbered(258))
    }

    /// Bytes written by version 1, one record a line. If this fails the format changed: give it a new version instead.
    #[test]
    fn version_1_is_frozen() -> Result<()> {
        let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).unwrap_or_default();
        let lines = include_str!("record.v1.hex").lines().map(|hex| hex.as_bytes().chunks(2).map(byte).collect());
        let written: Vec<Vec<u8>> = lines.collect();
        for (bytes, record) in written.iter().zip(samples()?) {
            assert_eq!(decode_record(bytes.clone().into())?.record, record);
        }
        // A descriptor may get further fields.
        assert_eq!(bytes_of(&samples()?[1])?, written[1]);
        Ok(())
    }

    /// The same for version 2, from the third sample on.
    #[test]
    fn version_2_is_frozen() -> Result<()> {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let written: Vec<String> =
            samples()?[2..].iter().map(|record| Ok(hex(bytes_of(record)?))).collect::<Result<_>>()?;
        assert_eq!(written.join("\n"), include_str!("record.v2.hex").trim());
        Ok(())
    }

    #[test]
    fn what_is_written_is_read_back() -> Result<()> {
        for record in samples()? {
            let read = decode_record(bytes_of(&record)?.into())?;
            assert_eq!(read, NumberedRecord { number: 258, at: Timestamp::from_ms(1_767_323_045_679), record });
        }
        Ok(())
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_noticed() -> Result<()> {
        for record in samples()? {
            let whole = bytes_of(&record)?;
            for bit in 0..whole.len() * 8 {
                let mut bad = whole.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(decode_record(bad.into()).is_err(), "bit {bit}");
            }
            for end in 0..whole.len() {
                assert!(decode_record(whole[..end].to_vec().into()).is_err(), "cut at {end}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_hostile_length_is_an_error_not_a_panic() {
        let mut bytes = vec![VERSION; PREFIX];
        bytes.extend_from_slice(&[1, 253, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert!(decode_record(UnnumberedRecord(bytes).numbered(1).into()).is_err());
    }
}
