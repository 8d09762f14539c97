//! Records of a log: what is to be done to the store later, or what it answered.
//!
//! A record is `format (1 byte) | crc32 of the rest (4) | number (8, big endian) | appended at, ms (8, big endian) |
//! header (bincode) | the body of a message, or a descriptor (JSON)`. A page is a list of records, as one broker gives it
//! to another: for each its length (4 bytes, big endian) and its bytes.

use std::time::Duration;

use bincode::{BorrowDecode, Encode};
use bytes::{Buf, Bytes};

use super::{CONFIG, List, body_version, decode_body, encode_body};
use crate::model::error::{Error, Result};
use crate::model::limits::ENVELOPE_BYTES_MAX;
use crate::model::message::{Conflict, CronJobName, GroupName, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::schedule::Schedule;
use crate::model::time::{Timestamp, ms_up};
use crate::model::topic::Descriptor;
use crate::model::version::{CallId, CallPart, Version};

const FORMAT: u8 = 1;
/// The format of a log. Raise it with everything new that an earlier version cannot read: a format of records or of messages, or
/// a kind of record. An earlier version then refuses the log, and skips nothing in it.
pub const LOG_FORMAT: u32 = 1;
/// Where the checksum ends and what it covers begins.
const SUM_END: usize = 5;
const NUMBER_END: usize = SUM_END + 8;
const PREFIX: usize = NUMBER_END + 8;
/// Bytes of one record: a message and its successor, or the settings of a topic, and what stands before them.
const RECORD_BYTES_MAX: usize = 2 * ENVELOPE_BYTES_MAX + 64 * 1024;

/// A record of a log. The WAL keeps requests: [`Record::Create`], [`Record::Push`] and [`Record::Cancel`], to be replayed.
/// The journal keeps answers: [`Record::Set`], [`Record::End`], [`Record::Purge`], [`Record::CronJob`] and
/// [`Record::Delete`], to be restored.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    Create(Descriptor),
    Push {
        topic: TopicName,
        message: Message,
        version: Version,
        conflict: Conflict,
        /// The call that was sent to the store and not answered: perhaps it was applied.
        call: Option<CallPart>,
        /// Its place in the log of the broker that handed it over, which perhaps replayed it: the name of the log, and the
        /// number of the record.
        origin: Option<CallId>,
    },
    /// Cancel what has a lower version.
    Cancel {
        topic: TopicName,
        partition: Partition,
        id: MessageId,
        version: Version,
    },
    /// The store answered that the message is this one now.
    Set {
        topic: TopicName,
        message: Message,
        version: Version,
        /// Empty means all groups.
        groups: Vec<GroupName>,
        /// The call that set it.
        call: CallId,
    },
    Delete(Descriptor),
    /// The store answered that the message is cancelled or settled.
    End {
        topic: TopicName,
        partition: Partition,
        id: MessageId,
        /// The version of the cancel, or the one that was settled: it ends messages of this version or a lower one.
        version: Version,
        /// Empty means all groups.
        groups: Vec<GroupName>,
        /// A consumer acknowledged it: a repeat of that may be told so.
        is_acked: bool,
    },
    /// The store answered that a group was purged in a partition: messages of this version or a lower one are gone.
    Purge {
        topic: TopicName,
        partition: Partition,
        group: GroupName,
        dead_letters: bool,
        version: Version,
    },
    /// The store answered that a cron job is this one now, and that its occurrences up to `last` are done; or that it was deleted, if it
    /// has no schedule.
    CronJob {
        topic: TopicName,
        name: CronJobName,
        revision: Version,
        last: Timestamp,
        schedule: Option<Schedule>,
    },
}

impl Record {
    pub fn topic(&self) -> &TopicName {
        match self {
            Record::Create(descriptor) | Record::Delete(descriptor) => &descriptor.topic,
            Record::Push { topic, .. }
            | Record::Cancel { topic, .. }
            | Record::Set { topic, .. }
            | Record::End { topic, .. }
            | Record::Purge { topic, .. }
            | Record::CronJob { topic, .. } => topic,
        }
    }

    /// The partition of the topic as it is now; of a topic the first.
    pub fn partition_in(&self, descriptor: &Descriptor) -> Partition {
        match self {
            Record::Create(_) | Record::Delete(_) => Partition(0),
            Record::Push { message, .. } | Record::Set { message, .. } => {
                descriptor.partition_of(message.routing_key())
            }
            Record::CronJob { name, .. } => descriptor.partition_of(name.as_str()),
            Record::Cancel { partition, .. } | Record::End { partition, .. } | Record::Purge { partition, .. } => {
                Partition(partition.0.min(descriptor.settings.partitions.get() - 1))
            }
        }
    }

    /// The version of the operation; nothing for a topic.
    pub fn version(&self) -> Option<Version> {
        match self {
            Record::Create(_) | Record::Delete(_) => None,
            Record::Push { version, .. }
            | Record::Cancel { version, .. }
            | Record::Set { version, .. }
            | Record::End { version, .. }
            | Record::Purge { version, .. }
            | Record::CronJob { revision: version, .. } => Some(*version),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct NumberedRecord {
    pub number: u64,
    /// When it was appended, by the clock of this machine.
    pub at: Timestamp,
    pub record: Record,
}

#[derive(Encode, BorrowDecode)]
enum Header<'a> {
    Create,
    Push {
        topic: &'a str,
        id: &'a str,
        conflict: u8,
        call: Option<(CallHeader<'a>, u32)>,
    },
    Cancel {
        topic: &'a str,
        partition: u16,
        id: &'a str,
        version: u64,
    },
    Set {
        topic: &'a str,
        id: &'a str,
        groups: List<&'a str>,
        call: CallHeader<'a>,
    },
    End {
        topic: &'a str,
        partition: u16,
        id: &'a str,
        version: u64,
        groups: List<&'a str>,
    },
    Delete,
    HandedOver {
        topic: &'a str,
        id: &'a str,
        conflict: u8,
        call: Option<(CallHeader<'a>, u32)>,
        origin: CallHeader<'a>,
    },
    Purge {
        topic: &'a str,
        partition: u16,
        group: &'a str,
        dead_letters: bool,
        version: u64,
    },
    Acked {
        topic: &'a str,
        partition: u16,
        id: &'a str,
        version: u64,
        groups: List<&'a str>,
    },
    CronJob {
        topic: &'a str,
        name: &'a str,
        revision: u64,
        last: u64,
    },
    /// A push that moves a message no further from its first push than so many milliseconds.
    Bounded {
        topic: &'a str,
        id: &'a str,
        conflict: u8,
        call: Option<(CallHeader<'a>, u32)>,
        origin: Option<CallHeader<'a>>,
        debounce_max: u64,
    },
}

#[derive(Encode, BorrowDecode)]
struct CallHeader<'a> {
    stream: &'a str,
    seq: u64,
}

impl<'a> From<&'a CallId> for CallHeader<'a> {
    fn from(call: &'a CallId) -> CallHeader<'a> {
        CallHeader { stream: &call.stream, seq: call.seq }
    }
}

impl From<CallHeader<'_>> for CallId {
    fn from(call: CallHeader<'_>) -> CallId {
        CallId { stream: call.stream.to_owned(), seq: call.seq }
    }
}

/// A record that is encoded but for its number, which only the log knows, at the last moment.
#[derive(Debug, Clone)]
pub struct UnnumberedRecord(Vec<u8>);

impl UnnumberedRecord {
    pub fn new(record: &Record, at: Timestamp) -> Result<UnnumberedRecord> {
        let (header, body) = parts(record)?;
        let mut bytes = Vec::with_capacity(PREFIX + header.len() + body.len());
        bytes.resize(NUMBER_END, 0);
        bytes[0] = FORMAT;
        bytes.extend_from_slice(&at.as_ms().to_be_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&body);
        Ok(UnnumberedRecord(bytes))
    }

    pub fn size(&self) -> usize {
        self.0.len()
    }

    pub fn numbered(mut self, number: u64) -> Vec<u8> {
        self.0[SUM_END..NUMBER_END].copy_from_slice(&number.to_be_bytes());
        let sum = crc32fast::hash(&self.0[SUM_END..]).to_be_bytes();
        self.0[1..SUM_END].copy_from_slice(&sum);
        self.0
    }
}

fn parts(record: &Record) -> Result<(Vec<u8>, Vec<u8>)> {
    let topic = record.topic().as_str();
    let (header, body) = match record {
        Record::Create(descriptor) => (Header::Create, json(descriptor)?),
        Record::Delete(descriptor) => (Header::Delete, json(descriptor)?),
        Record::Push { message, version, conflict, call, origin, .. } => {
            let (id, conflict) = (message.id.as_str(), number_of(*conflict));
            let call = call.as_ref().map(|part| (CallHeader::from(&part.call), part.at));
            let origin = origin.as_ref().map(CallHeader::from);
            let header = match (message.debounce_max.map(ms_up), origin) {
                (None, None) => Header::Push { topic, id, conflict, call },
                (None, Some(origin)) => Header::HandedOver { topic, id, conflict, call, origin },
                (Some(debounce_max), origin) => Header::Bounded { topic, id, conflict, call, origin, debounce_max },
            };
            (header, encode_body(message, *version)?)
        }
        Record::Cancel { partition, id, version, .. } => {
            let (partition, id, version) = (partition.0, id.as_str(), version.as_us());
            (Header::Cancel { topic, partition, id, version }, Vec::new())
        }
        Record::Set { message, version, groups, call, .. } => {
            let (id, groups) = (message.id.as_str(), names(groups));
            (Header::Set { topic, id, groups, call: call.into() }, encode_body(message, *version)?)
        }
        Record::End { partition, id, version, groups, is_acked, .. } => {
            let (partition, id, version, groups) = (partition.0, id.as_str(), version.as_us(), names(groups));
            let header = match is_acked {
                true => Header::Acked { topic, partition, id, version, groups },
                false => Header::End { topic, partition, id, version, groups },
            };
            (header, Vec::new())
        }
        Record::Purge { partition, group, dead_letters, version, .. } => {
            let (partition, group, version) = (partition.0, group.as_str(), version.as_us());
            (Header::Purge { topic, partition, group, dead_letters: *dead_letters, version }, Vec::new())
        }
        Record::CronJob { name, revision, last, schedule, .. } => {
            let (name, revision, last) = (name.as_str(), revision.as_us(), last.as_ms());
            let definition = schedule.as_ref().map(Schedule::to_json).transpose()?.unwrap_or_default();
            (Header::CronJob { topic, name, revision, last }, definition.into_bytes())
        }
    };
    Ok((bincode::encode_to_vec(header, CONFIG).map_err(|error| bug(&error))?, body))
}

fn json(descriptor: &Descriptor) -> Result<Vec<u8>> {
    serde_json::to_vec(descriptor).map_err(|error| bug(&error))
}

fn names(groups: &[GroupName]) -> List<&str> {
    List(groups.iter().map(GroupName::as_str).collect())
}

/// The place in [`Conflict::ALL`], which therefore never changes.
fn number_of(conflict: Conflict) -> u8 {
    match conflict {
        Conflict::Keep => 0,
        Conflict::Reject => 1,
        Conflict::Replace => 2,
        Conflict::Debounce => 3,
        Conflict::After => 4,
    }
}

fn bug(why: &dyn std::error::Error) -> Error {
    Error::bug(format!("a record did not encode: {why}"))
}

/// The record of its bytes; the payload shares them. Errors: [`crate::model::error::Kind::Corrupt`] for anything that
/// [`UnnumberedRecord::numbered`] did not write.
pub fn decode_record(bytes: Bytes) -> Result<NumberedRecord> {
    let corrupt = |why: &str| Error::corrupt(format!("a record of the log {why}"));
    let (Some(&FORMAT), Some(sum), Some(number), Some(at)) =
        (bytes.first(), chunk(&bytes, 1), chunk(&bytes, SUM_END), chunk(&bytes, NUMBER_END))
    else {
        return Err(corrupt(&format!("has another format than {FORMAT}, or is cut")));
    };
    if crc32fast::hash(&bytes[SUM_END..]) != u32::from_be_bytes(sum) {
        return Err(corrupt("does not match its checksum"));
    }
    let record = decode(&bytes).map_err(|error| corrupt(error.detail()))?;
    Ok(NumberedRecord { number: u64::from_be_bytes(number), at: Timestamp::from_ms(u64::from_be_bytes(at)), record })
}

fn end((topic, partition): (&str, u16), id: &str, version: u64, groups: List<&str>, is_acked: bool) -> Result<Record> {
    Ok(Record::End {
        topic: TopicName::new(topic)?,
        partition: Partition(partition),
        id: MessageId::new(id)?,
        version: Version::from_us(version),
        groups: groups.0.into_iter().map(GroupName::new).collect::<Result<_>>()?,
        is_acked,
    })
}

fn decode(bytes: &Bytes) -> Result<Record> {
    let (header, body) = header_of(bytes)?;
    let version = body_version(&body);
    Ok(match header {
        Header::Create => Record::Create(descriptor_of(&body)?),
        Header::Delete => Record::Delete(descriptor_of(&body)?),
        Header::Push { topic, id, conflict, call } => push_of(topic, id, conflict, call, None, None, body)?,
        Header::Bounded { topic, id, conflict, call, origin, debounce_max } => {
            push_of(topic, id, conflict, call, origin, Some(Duration::from_millis(debounce_max)), body)?
        }
        Header::HandedOver { topic, id, conflict, call, origin } => {
            push_of(topic, id, conflict, call, Some(origin), None, body)?
        }
        Header::Cancel { topic, partition, id, version } => Record::Cancel {
            topic: TopicName::new(topic)?,
            partition: Partition(partition),
            id: MessageId::new(id)?,
            version: Version::from_us(version),
        },
        Header::Set { topic, id, groups, call } => Record::Set {
            topic: TopicName::new(topic)?,
            message: decode_body(MessageId::new(id)?, body)?,
            version,
            groups: groups.0.into_iter().map(GroupName::new).collect::<Result<_>>()?,
            call: call.into(),
        },
        Header::End { topic, partition, id, version, groups } => end((topic, partition), id, version, groups, false)?,
        Header::Acked { topic, partition, id, version, groups } => end((topic, partition), id, version, groups, true)?,
        Header::Purge { topic, partition, group, dead_letters, version } => Record::Purge {
            topic: TopicName::new(topic)?,
            partition: Partition(partition),
            group: GroupName::new(group)?,
            dead_letters,
            version: Version::from_us(version),
        },
        Header::CronJob { topic, name, revision, last } => Record::CronJob {
            topic: TopicName::new(topic)?,
            name: CronJobName::new(name)?,
            revision: Version::from_us(revision),
            last: Timestamp::from_ms(last),
            schedule: schedule_of(&body)?,
        },
    })
}

fn push_of(
    topic: &str,
    id: &str,
    conflict: u8,
    call: Option<(CallHeader<'_>, u32)>,
    origin: Option<CallHeader<'_>>,
    debounce_max: Option<Duration>,
    body: Bytes,
) -> Result<Record> {
    let unknown = || Error::corrupt(format!("has an unknown policy of conflict ({conflict})"));
    let conflict = Conflict::ALL.get(usize::from(conflict)).copied().ok_or_else(unknown)?;
    let version = body_version(&body);
    let topic = TopicName::new(topic)?;
    let message = Message { debounce_max, ..decode_body(MessageId::new(id)?, body)? };
    let call = call.map(|(call, at)| CallPart { call: call.into(), at });
    Ok(Record::Push { topic, message, version, conflict, call, origin: origin.map(CallId::from) })
}

fn descriptor_of(json: &[u8]) -> Result<Descriptor> {
    serde_json::from_slice(json).map_err(|error| Error::corrupt(format!("has an unreadable topic ({error})")))
}

/// The definition of a cron job; `None` of one that was deleted.
fn schedule_of(json: &[u8]) -> Result<Option<Schedule>> {
    let json = std::str::from_utf8(json).map_err(|_| Error::corrupt("has an unreadable cron job"))?;
    if json.is_empty() { Ok(None) } else { Schedule::from_json(json).map(Some) }
}

fn header_of<'a, H: BorrowDecode<'a, ()>>(bytes: &'a Bytes) -> Result<(H, Bytes)> {
    let (header, read) = bincode::borrow_decode_from_slice(&bytes[PREFIX..], CONFIG)
        .map_err(|error| Error::corrupt(format!("has an unreadable header ({error})")))?;
    Ok((header, bytes.slice(PREFIX + read..)))
}

fn chunk<const N: usize>(bytes: &[u8], from: usize) -> Option<[u8; N]> {
    bytes.get(from..)?.first_chunk().copied()
}

pub fn encode_page(records: &[NumberedRecord]) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    for NumberedRecord { number, at, record } in records {
        let bytes = UnnumberedRecord::new(record, *at)?.numbered(*number);
        let length = u32::try_from(bytes.len()).map_err(|_| Error::bug("a record of 4 GiB"))?;
        page.extend_from_slice(&length.to_be_bytes());
        page.extend_from_slice(&bytes);
    }
    Ok(page)
}

/// The records of their bytes; payloads share them. Errors: `Corrupt` for anything that [`encode_page`] did not write.
pub fn decode_page(mut page: Bytes) -> Result<Vec<NumberedRecord>> {
    let mut records = Vec::new();
    while !page.is_empty() {
        let length = page.first_chunk().map(|length| u32::from_be_bytes(*length));
        let length = length
            .and_then(|length| usize::try_from(length).ok())
            .filter(|length| *length <= (page.len() - 4).min(RECORD_BYTES_MAX));
        let length = length.ok_or_else(|| Error::corrupt("a page of records is cut"))?;
        page.advance(4);
        records.push(decode_record(page.split_to(length))?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::NewMessage;
    use crate::model::topic::Settings;

    fn bounded(push: Record, max: Duration) -> Record {
        match push {
            Record::Push { topic, message, version, conflict, call, origin } => {
                let message = Message { debounce_max: Some(max), ..message };
                Record::Push { topic, message, version, conflict, call, origin }
            }
            other => other,
        }
    }

    fn samples() -> Result<[Record; 11]> {
        let topic = TopicName::new("orders")?;
        let mut descriptor = Descriptor::new(topic.clone(), Settings::default());
        descriptor.generation = 7;
        let new = NewMessage::new("{\"close\":true}").id(MessageId::new("order-1")?);
        let message = new.accept(Timestamp::from_ms(1_767_323_045_678))?;
        let (id, partition) = (message.id.clone(), Partition(2));
        let version = Version::from_us(1_767_323_045_678_901);
        let call = CallId { stream: "01JZ.4".into(), seq: 300 };
        let (groups, handed) = (vec![GroupName::new("billing")?], call.clone());
        let push = |conflict, call, origin| {
            let (topic, message) = (topic.clone(), message.clone());
            Record::Push { topic, message, version, conflict, call, origin }
        };
        Ok([
            Record::Create(descriptor),
            push(Conflict::Keep, None, None),
            push(Conflict::Debounce, Some(CallPart { call: call.clone(), at: 2 }), None),
            Record::Cancel { topic: topic.clone(), partition, id: id.clone(), version },
            Record::Set {
                topic: topic.clone(),
                message: message.clone(),
                version,
                groups: groups.clone(),
                call: call.clone(),
            },
            Record::End {
                topic: topic.clone(),
                partition,
                id: id.clone(),
                version,
                groups: groups.clone(),
                is_acked: false,
            },
            push(Conflict::Replace, None, Some(call.clone())),
            Record::Purge {
                topic: topic.clone(),
                partition,
                group: GroupName::new("billing")?,
                dead_letters: true,
                version,
            },
            Record::End { topic: topic.clone(), partition, id, version, groups, is_acked: true },
            bounded(push(Conflict::Debounce, None, None), Duration::from_secs(300)),
            bounded(push(Conflict::Debounce, None, Some(handed)), Duration::from_secs(300)),
        ])
    }

    fn bytes_of(record: &Record) -> Result<Vec<u8>> {
        Ok(UnnumberedRecord::new(record, Timestamp::from_ms(1_767_323_045_679))?.numbered(258))
    }

    /// Bytes written by format 1, one record a line. If this fails the format changed: give it a new number instead.
    #[test]
    fn format_1_is_frozen() -> Result<()> {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // A descriptor may get further fields.
        let written: Vec<String> =
            samples()?[1..].iter().map(|record| Ok(hex(bytes_of(record)?))).collect::<Result<_>>()?;
        assert_eq!(written.join("\n"), include_str!("record.v1.hex").trim());
        Ok(())
    }

    #[test]
    fn written_form_round_trips() -> Result<()> {
        for record in samples()? {
            let read = decode_record(bytes_of(&record)?.into())?;
            assert_eq!(read, NumberedRecord { number: 258, at: Timestamp::from_ms(1_767_323_045_679), record });
        }
        Ok(())
    }

    #[test]
    fn every_bit_flip_and_truncation_is_detected() -> Result<()> {
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
        let mut bytes = vec![FORMAT; PREFIX];
        bytes.extend_from_slice(&[1, 253, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert!(decode_record(UnnumberedRecord(bytes).numbered(1).into()).is_err());
    }

    #[test]
    fn page_round_trips_and_a_truncated_one_is_refused() -> Result<()> {
        let record = |number: u64| {
            let message = NewMessage::new("x").accept(Timestamp::from_ms(1))?;
            let origin = Some(CallId { stream: "01JZ".to_owned(), seq: number });
            let topic = TopicName::new("orders")?;
            let (version, conflict, call) = (Version::from_us(7), Conflict::Keep, None);
            let record = Record::Push { topic, message, version, conflict, call, origin };
            Ok(NumberedRecord { number, at: Timestamp::from_ms(2), record })
        };
        let records = (1..4).map(record).collect::<Result<Vec<_>>>()?;
        let page = encode_page(&records)?;
        assert_eq!(decode_page(page.clone().into())?, records);
        assert_eq!(decode_page(Bytes::new())?, []);
        for end in 1..page.len() {
            let read = decode_page(page[..end].to_vec().into());
            assert!(read.is_err() || read.is_ok_and(|read| read.len() < records.len()), "cut at {end}");
        }
        assert!(decode_page(vec![255; 64].into()).is_err());
        Ok(())
    }
}
