//! Records of a log: what is to be done to the store later.
//!
//! A record is `version (1 byte) | crc32 of the rest (4) | number (8, big endian) | appended at, ms (8, big endian) |
//! header (bincode) | the body of a message, or a descriptor (JSON)`.

use bincode::{Decode, Encode};
use bytes::Bytes;

use super::{CONFIG, decode_body, encode_body};
use crate::error::{Error, Result};
use crate::message::{Message, MessageId, TopicName};
use crate::time::Timestamp;
use crate::topic::Descriptor;

const VERSION: u8 = 1;
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
    },
}

impl Record {
    /// The topic that it is about.
    pub fn topic(&self) -> &TopicName {
        match self {
            Record::Create(descriptor) => &descriptor.topic,
            Record::Push { topic, .. } => topic,
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

#[derive(Encode, Decode)]
enum HeaderV1 {
    Create,
    Push { topic: String, incarnation: u64, id: String },
}

/// A record that is encoded but for its number, which only the log knows, at the last moment.
#[derive(Debug, Clone)]
pub struct UnnumberedRecord(Vec<u8>);

impl UnnumberedRecord {
    /// Encodes a record that is appended at this time.
    pub fn new(record: &Record, at: Timestamp) -> Result<UnnumberedRecord> {
        let bug = |why: String| Error::bug(format!("a record did not encode: {why}"));
        let (header, body) = match record {
            Record::Create(descriptor) => {
                let json = serde_json::to_vec(descriptor).map_err(|error| bug(error.to_string()))?;
                (HeaderV1::Create, json)
            }
            Record::Push { topic, incarnation, message } => {
                let (topic, id) = (topic.to_string(), message.id.to_string());
                (HeaderV1::Push { topic, incarnation: *incarnation, id }, encode_body(message)?)
            }
        };
        let mut bytes = Vec::with_capacity(PREFIX + 64 + body.len());
        bytes.resize(NUMBER_END, 0);
        bytes[0] = VERSION;
        bytes.extend_from_slice(&at.as_ms().to_be_bytes());
        bincode::encode_into_std_write(header, &mut bytes, CONFIG).map_err(|error| bug(error.to_string()))?;
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

/// The record of its bytes; the payload shares them.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for anything that [`UnnumberedRecord::numbered`] did not write.
pub fn decode_record(bytes: Bytes) -> Result<NumberedRecord> {
    let corrupt = |why: &str| Error::corrupt(format!("a record of the log {why}"));
    let (Some((&[VERSION], _)), Some(sum), Some(number), Some(at)) =
        (bytes.split_first_chunk::<1>(), chunk(&bytes, 1), chunk(&bytes, SUM_END), chunk(&bytes, NUMBER_END))
    else {
        return Err(corrupt(&format!("has another version than {VERSION}, or is cut")));
    };
    if crc32fast::hash(&bytes[SUM_END..]) != u32::from_be_bytes(sum) {
        return Err(corrupt("does not match its checksum"));
    }
    let (header, read): (HeaderV1, usize) = bincode::decode_from_slice(&bytes[PREFIX..], CONFIG)
        .map_err(|error| corrupt(&format!("has an unreadable header ({error})")))?;
    let body = bytes.slice(PREFIX + read..);
    let record = match header {
        HeaderV1::Create => Record::Create(
            serde_json::from_slice(&body).map_err(|error| corrupt(&format!("has an unreadable topic ({error})")))?,
        ),
        HeaderV1::Push { topic, incarnation, id } => {
            let checked = |error: Error| corrupt(error.detail());
            let id = MessageId::new(id).map_err(checked)?;
            let topic = TopicName::new(topic).map_err(checked)?;
            Record::Push { topic, incarnation, message: decode_body(id, body)? }
        }
    };
    Ok(NumberedRecord { number: u64::from_be_bytes(number), at: Timestamp::from_ms(u64::from_be_bytes(at)), record })
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

    fn samples() -> Result<[Record; 2]> {
        let topic = TopicName::new("orders")?;
        let mut descriptor = Descriptor::new(topic.clone(), Settings::default());
        descriptor.generation = 7;
        let new = NewMessage::new("{\"close\":true}").id(MessageId::new("order-1")?);
        let message = new.accept(Timestamp::from_ms(1_767_323_045_678))?;
        Ok([Record::Create(descriptor), Record::Push { topic, incarnation: 3, message }])
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
        let [_, push] = samples()?;
        assert_eq!(bytes_of(&push)?, written[1]);
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
