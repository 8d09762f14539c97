//! Bytes that outlive a process: versioned, checksummed or signed. The only user of bincode.
//!
//! A body is `due_at (6 bytes, big endian) | version (7, big endian) | format (1) | crc32 of the rest (4) | pushed at (6, big endian) |
//! header (bincode) | payload`; between the last two stands what few messages have, and a bare message has no header. Due time and
//! version stand in front, outside the checksum, so that the store can change them without decoding the rest. The header begins
//! with the key and the expiry, which scripts read. Redis keeps a value in steps of 16 and 32 bytes, so each byte counts.
//! A new format gets a new number and a new decoder; the old decoders stay.

mod last_error;
mod receipt;
mod dead_letter;
mod successor;
mod record;

use std::time::Duration;

use bincode::de::BorrowDecoder;
use bincode::error::DecodeError;
use bincode::{BorrowDecode, Encode};
use bytes::{Buf as _, Bytes};

pub use self::dead_letter::{
    DeadLetterReason, DeadLetterRecord, Failure, decode_dead, decode_history, encode_attempt, encode_dead,
    encode_failure, extend_history,
};
use self::last_error::LastErrorV1;
pub use self::last_error::{decode_last_error, encode_last_error, read_last_error, write_last_error};
pub use self::receipt::{ReceiptBody, decode_receipt, encode_receipt};
pub use self::record::{LOG_FORMAT, NumberedRecord, Record, UnnumberedRecord, decode_page, decode_record, encode_page};
use self::successor::FOLLOWED;
pub use self::successor::{
    Followed, decode_body, decode_first, encode_body, follow, is_followed, newest_version, take_apart,
};
use crate::model::error::{Error, Result};
use crate::model::limits::{ENVELOPE_BYTES_MAX, PRIORITY_MAX};
use crate::model::message::{
    DeadLetterSource, Dedup, DedupKey, Envelope, GroupName, Key, Message, MessageId, TopicName,
};
use crate::model::time::Timestamp;
use crate::model::trace::TraceContext;
use crate::model::version::Version;

const FORMAT: u8 = 1;
/// A body with a priority behind the header. Only those that have one, so that the others can be read by an older dwell.
const FORMAT_PRIORITY: u8 = 2;
/// A body with a priority and a place in a trace behind the header; only those that have one, too. Numbers of versions differ
/// in two bits, since the checksum does not cover them: so 3 is none.
const FORMAT_TRACE: u8 = 4;
/// A body with a priority, and then a trace, a dedup key and an attachment, each if it has one; only those with one of the last
/// two. Earlier also those that were dead letters, without their hops.
const FORMAT_MORE: u8 = 7;
/// A body as in `FORMAT_MORE`, of a message that was a dead letter in another topic.
const FORMAT_FORWARDED: u8 = 11;
/// A body of a message that has nothing but a payload, without a header.
const FORMAT_BARE: u8 = 8;
const FORMATS: [u8; 6] = [FORMAT, FORMAT_PRIORITY, FORMAT_TRACE, FORMAT_MORE, FORMAT_BARE, FORMAT_FORWARDED];
const DUE_BYTES: usize = 6;
const VERSION_BYTES: usize = 7;
const PUSHED_BYTES: usize = 6;
const FORMAT_AT: usize = DUE_BYTES + VERSION_BYTES;
/// Bytes before the time of the push: due time, version, format, checksum.
const PREFIX: usize = FORMAT_AT + 1 + 4;
const HEADER_AT: usize = PREFIX + PUSHED_BYTES;

/// bincode without a limit panics on a hostile length; every decoder here has one. It also makes room for as many bytes or
/// items as a length claims, up to that limit, before it reads the first: so texts are borrowed, and lists are [`List`].
const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<ENVELOPE_BYTES_MAX>,
> = bincode::config::standard().with_limit::<ENVELOPE_BYTES_MAX>();

#[derive(Encode, BorrowDecode, Default, PartialEq)]
struct HeaderV1<'a> {
    key: Option<&'a str>,
    expires_at_ms: Option<u64>,
    max_attempts: Option<u32>,
    content_type: Option<&'a str>,
    meta: List<(&'a str, &'a str)>,
}

/// A list as bincode writes a `Vec`; read item by item, whatever its length claims to be.
#[derive(Encode, PartialEq)]
struct List<T>(Vec<T>);

impl<'de, Context, T: BorrowDecode<'de, Context>> BorrowDecode<'de, Context> for List<T> {
    fn borrow_decode<D: BorrowDecoder<'de, Context = Context>>(
        decoder: &mut D,
    ) -> std::result::Result<Self, DecodeError> {
        let count = u64::borrow_decode(decoder)?;
        (0..count).map(|_| T::borrow_decode(decoder)).collect::<std::result::Result<_, _>>().map(List)
    }
}

#[derive(Encode, BorrowDecode)]
struct TraceV4<'a> {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
    state: Option<&'a str>,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

/// Behind it stands the attachment.
#[derive(Encode, BorrowDecode)]
struct MoreV7<'a> {
    trace: Option<TraceV4<'a>>,
    dedup: Option<DedupV7<'a>>,
    source: Option<SourceV7<'a>>,
    attachment_bytes: u32,
}

/// Behind it stands the attachment.
#[derive(Encode, BorrowDecode)]
struct ForwardedV11<'a> {
    trace: Option<TraceV4<'a>>,
    dedup: Option<DedupV7<'a>>,
    source: SourceV7<'a>,
    hops: u32,
    attachment_bytes: u32,
}

#[derive(Encode, BorrowDecode)]
struct DedupV7<'a> {
    key: &'a str,
    window_ms: u64,
}

#[derive(Encode, BorrowDecode)]
struct SourceV7<'a> {
    topic: &'a str,
    group: &'a str,
    id: &'a str,
    reason: &'a str,
    attempts: u32,
    died_at_ms: u64,
    last_error: Option<LastErrorV1<'a>>,
}

impl<'a> From<&'a DeadLetterSource> for SourceV7<'a> {
    fn from(source: &'a DeadLetterSource) -> SourceV7<'a> {
        SourceV7 {
            topic: source.topic.as_str(),
            group: source.group.as_str(),
            id: source.id.as_str(),
            reason: &source.reason,
            attempts: source.attempts,
            died_at_ms: source.died_at.as_ms(),
            last_error: source.last_error.as_ref().map(LastErrorV1::from),
        }
    }
}

impl TryFrom<SourceV7<'_>> for DeadLetterSource {
    type Error = Error;
    fn try_from(source: SourceV7<'_>) -> Result<DeadLetterSource> {
        Ok(DeadLetterSource {
            topic: TopicName::new(source.topic)?,
            group: GroupName::new(source.group)?,
            id: MessageId::new(source.id)?,
            reason: source.reason.to_owned(),
            attempts: source.attempts,
            died_at: Timestamp::from_ms(source.died_at_ms),
            last_error: source.last_error.map(TryInto::try_into).transpose()?,
            hops: 1,
        })
    }
}

impl<'a> From<&'a TraceContext> for TraceV4<'a> {
    fn from(trace: &'a TraceContext) -> TraceV4<'a> {
        let (trace_id, span_id, flags) = (trace.trace_id, trace.span_id, trace.flags());
        TraceV4 { trace_id, span_id, flags, state: trace.tracestate() }
    }
}

impl TryFrom<TraceV4<'_>> for TraceContext {
    type Error = Error;
    fn try_from(trace: TraceV4<'_>) -> Result<TraceContext> {
        TraceContext::new(trace.trace_id, trace.span_id, trace.flags, trace.state)
    }
}

/// A message without its successor.
fn encode_alone(message: &Message, version: Version) -> Result<Vec<u8>> {
    let envelope = &message.envelope;
    let header = HeaderV1 {
        key: envelope.key.as_ref().map(Key::as_str),
        expires_at_ms: envelope.expires_at.map(Timestamp::as_ms),
        max_attempts: envelope.max_attempts,
        content_type: envelope.content_type.as_deref(),
        meta: List(envelope.meta.iter().map(|(name, value)| (&**name, &**value)).collect()),
    };
    let mut body = Vec::with_capacity(PREFIX + 64 + envelope.size());
    body.extend_from_slice(&front(message.due_at, version));
    let has_more = envelope.dedup.is_some() || !envelope.attachment.is_empty();
    let format = match (&envelope.trace, envelope.priority) {
        _ if envelope.dead_letter_source.is_some() => FORMAT_FORWARDED,
        _ if has_more => FORMAT_MORE,
        (Some(_), _) => FORMAT_TRACE,
        (None, 1..) => FORMAT_PRIORITY,
        (None, 0) if header == HeaderV1::default() => FORMAT_BARE,
        (None, 0) => FORMAT,
    };
    body.push(format);
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&low_bytes::<PUSHED_BYTES>(envelope.pushed_at.as_ms()));
    let failed = |error| Error::bug(format!("a header did not encode: {error}"));
    if format != FORMAT_BARE {
        bincode::encode_into_std_write(header, &mut body, CONFIG).map_err(failed)?;
    }
    if ![FORMAT, FORMAT_BARE].contains(&format) {
        body.push(envelope.priority);
    }
    let trace = envelope.trace.as_ref().map(TraceV4::from);
    let dedup = envelope.dedup.as_ref();
    let dedup = dedup.map(|dedup| DedupV7 { key: dedup.key.as_str(), window_ms: ms(dedup.window) });
    let attachment_bytes = u32::try_from(envelope.attachment.len()).unwrap_or(u32::MAX);
    match (&envelope.dead_letter_source, trace) {
        (Some(source), trace) => {
            let (source, hops) = (SourceV7::from(source.as_ref()), source.hops);
            let forwarded = ForwardedV11 { trace, dedup, source, hops, attachment_bytes };
            bincode::encode_into_std_write(forwarded, &mut body, CONFIG).map_err(failed)?;
        }
        (None, trace) if has_more => {
            let more = MoreV7 { trace, dedup, source: None, attachment_bytes };
            bincode::encode_into_std_write(more, &mut body, CONFIG).map_err(failed)?;
        }
        (None, Some(trace)) => drop(bincode::encode_into_std_write(trace, &mut body, CONFIG).map_err(failed)?),
        (None, None) => {}
    }
    body.extend_from_slice(&envelope.attachment);
    body.extend_from_slice(&envelope.payload);
    let sum = crc32fast::hash(&body[PREFIX..]).to_be_bytes();
    body[FORMAT_AT + 1..PREFIX].copy_from_slice(&sum);
    Ok(body)
}

/// The message of a body that has no successor, or of which that was cut off.
fn decode_alone(id: MessageId, body: Bytes) -> Result<Message> {
    let corrupt = |why: &str| Error::corrupt(format!("the body of message {id}: {why}"));
    let due_at = body_due_at(&body).ok_or_else(|| corrupt("is too short"))?;
    if body.len() < HEADER_AT {
        return Err(corrupt("is too short"));
    }
    let format = body[FORMAT_AT] & !FOLLOWED;
    if !FORMATS.contains(&format) {
        return Err(corrupt(&format!("has format {format}, this dwell reads {FORMATS:?}")));
    }
    let mut sum = [0; 4];
    sum.copy_from_slice(&body[FORMAT_AT + 1..PREFIX]);
    if crc32fast::hash(&body[PREFIX..]) != u32::from_be_bytes(sum) {
        return Err(corrupt("does not match its checksum"));
    }
    let pushed_at = Timestamp::from_ms(number(&body[PREFIX..HEADER_AT]));
    if format == FORMAT_BARE {
        // Most messages: without a second handle to the bytes, which would be an allocation.
        let mut payload = body;
        payload.advance(HEADER_AT);
        return Ok(Message {
            id,
            due_at,
            debounce_max: None,
            envelope: Envelope::bare(pushed_at, payload),
            successor: None,
        });
    }
    let (header, mut read): (HeaderV1<'_>, usize) =
        decode_front(&body[HEADER_AT..], "header").map_err(|error| corrupt(error.detail()))?;
    let mut priority = 0;
    if format != FORMAT {
        let least = if format == FORMAT_PRIORITY { 1 } else { 0 };
        let valid = body.get(HEADER_AT + read).filter(|priority| (least..=PRIORITY_MAX).contains(*priority));
        priority = *valid.ok_or_else(|| corrupt("has no valid priority"))?;
        read += 1;
    }
    let more = Extra::decode(format, body.slice(HEADER_AT + read..)).map_err(|error| corrupt(error.detail()))?;
    let Extra { trace, dedup, dead_letter_source, attachment, payload } = more;
    let key = header.key.map(Key::new).transpose().map_err(|error| corrupt(error.detail()))?;
    let envelope = Envelope {
        key,
        dedup,
        pushed_at,
        expires_at: header.expires_at_ms.map(Timestamp::from_ms),
        max_attempts: header.max_attempts,
        priority,
        content_type: header.content_type.map(str::to_owned),
        meta: header.meta.0.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        dead_letter_source,
        trace,
        attachment,
        payload,
    };
    Ok(Message { id, due_at, debounce_max: None, envelope, successor: None })
}

#[derive(Default)]
struct Extra {
    trace: Option<TraceContext>,
    dedup: Option<Dedup>,
    dead_letter_source: Option<Box<DeadLetterSource>>,
    attachment: Bytes,
    payload: Bytes,
}

impl Extra {
    /// The rest behind the header and the priority.
    fn decode(format: u8, bytes: Bytes) -> Result<Extra> {
        match format {
            FORMAT_TRACE => {
                let (trace, read): (TraceV4<'_>, usize) = decode_front(&bytes, "place in a trace")?;
                Ok(Extra { trace: Some(trace.try_into()?), payload: bytes.slice(read..), ..Extra::default() })
            }
            FORMAT_MORE => {
                let (more, read): (MoreV7<'_>, usize) = decode_front(&bytes, "dedup key or attachment")?;
                let MoreV7 { trace, dedup, source, attachment_bytes } = more;
                if dedup.is_none() && source.is_none() && attachment_bytes == 0 {
                    return Err(Error::corrupt("has no valid attachment"));
                }
                let source = source.map(DeadLetterSource::try_from).transpose()?;
                Extra::of(trace, dedup, source, &bytes, (read, attachment_bytes))
            }
            FORMAT_FORWARDED => {
                let (forwarded, read): (ForwardedV11<'_>, usize) = decode_front(&bytes, "dead letter")?;
                let ForwardedV11 { trace, dedup, source, hops, attachment_bytes } = forwarded;
                let source = DeadLetterSource { hops, ..source.try_into()? };
                Extra::of(trace, dedup, Some(source), &bytes, (read, attachment_bytes))
            }
            _ => Ok(Extra { payload: bytes, ..Extra::default() }),
        }
    }

    /// The attachment begins at `read`, and the payload behind it.
    fn of(
        trace: Option<TraceV4<'_>>,
        dedup: Option<DedupV7<'_>>,
        source: Option<DeadLetterSource>,
        bytes: &Bytes,
        (read, attachment_bytes): (usize, u32),
    ) -> Result<Extra> {
        let end = read.saturating_add(attachment_bytes as usize);
        if end > bytes.len() {
            return Err(Error::corrupt("has no valid attachment"));
        }
        let dedup = dedup.map(|dedup| (DedupKey::new(dedup.key), Duration::from_millis(dedup.window_ms)));
        let dedup = dedup.map(|(key, window)| Dedup::of(Some(key?), Some(window))).transpose()?.flatten();
        let trace = trace.map(TraceContext::try_from).transpose()?;
        let (attachment, payload) = (bytes.slice(read..end), bytes.slice(end..));
        Ok(Extra { trace, dedup, dead_letter_source: source.map(Box::new), attachment, payload })
    }
}

fn decode_front<'a, T: BorrowDecode<'a, ()>>(bytes: &'a [u8], what: &str) -> Result<(T, usize)> {
    let unreadable = |error| Error::corrupt(format!("has an unreadable {what} ({error})"));
    bincode::borrow_decode_from_slice(bytes, CONFIG).map_err(unreadable)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub fn body_due_at(body: &[u8]) -> Option<Timestamp> {
    body.get(..DUE_BYTES).map(|bytes| Timestamp::from_ms(number(bytes)))
}

pub fn body_pushed_at(body: &[u8]) -> Option<Timestamp> {
    body.get(PREFIX..HEADER_AT).map(|bytes| Timestamp::from_ms(number(bytes)))
}

pub fn body_version(body: &[u8]) -> Version {
    Version::from_us(body.get(DUE_BYTES..FORMAT_AT).map_or(0, number))
}

pub fn set_body_due_at(body: &mut [u8], due_at: Timestamp, version: Version) {
    if let Some(there) = body.first_chunk_mut::<FORMAT_AT>() {
        *there = front(due_at, version);
    }
}

fn front(due_at: Timestamp, version: Version) -> [u8; FORMAT_AT] {
    let mut front = [0; FORMAT_AT];
    front[..DUE_BYTES].copy_from_slice(&low_bytes::<DUE_BYTES>(due_at.as_ms()));
    front[DUE_BYTES..].copy_from_slice(&low_bytes::<VERSION_BYTES>(version.as_us()));
    front
}

/// The last bytes of a number, or the largest number that they hold: times end in the year 10,889, and versions in 4,253.
fn low_bytes<const N: usize>(number: u64) -> [u8; N] {
    let bytes = number.min(u64::MAX >> (64 - 8 * N)).to_be_bytes();
    std::array::from_fn(|at| bytes[bytes.len() - N + at])
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::last_error::LastError;

    const VERSION: Version = Version::from_us(1_767_323_045_678_901);

    fn sample() -> Result<Message> {
        Ok(Message {
            id: MessageId::new("order-1")?,
            due_at: Timestamp::from_ms(1_767_323_045_678),
            debounce_max: None,
            envelope: Envelope {
                key: Some(Key::new("customer-7")?),
                dedup: None,
                pushed_at: Timestamp::from_ms(1_767_323_040_000),
                expires_at: Some(Timestamp::from_ms(1_767_323_999_999)),
                max_attempts: Some(3),
                priority: 0,
                content_type: Some("application/json".into()),
                meta: vec![("trace".into(), "abc".into())],
                dead_letter_source: None,
                trace: None,
                attachment: Bytes::new(),
                payload: Bytes::from_static(b"{\"close\":true}"),
            },
            successor: None,
        })
    }

    fn bare() -> Result<Message> {
        let message = sample()?;
        let envelope = Envelope {
            key: None,
            expires_at: None,
            max_attempts: None,
            content_type: None,
            meta: Vec::new(),
            ..message.envelope
        };
        Ok(Message { envelope, ..message })
    }

    fn source(last_error: Option<&str>) -> Result<Option<Box<DeadLetterSource>>> {
        Ok(Some(Box::new(DeadLetterSource {
            topic: TopicName::new("orders")?,
            group: GroupName::new("default")?,
            id: MessageId::new("order-1")?,
            reason: "max_attempts".into(),
            attempts: 16,
            died_at: Timestamp::from_ms(1_767_323_045_000),
            last_error: last_error.map(|stack| LastError::new(Some("E".into()), "smtp".into(), Some(stack.into()))),
            hops: 1,
        })))
    }

    /// If this fails the format changed: give it a new version instead.
    #[test]
    fn every_format_version_is_frozen_and_readable() -> Result<()> {
        let traced = |state| TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", state);
        let frozen = [
            (include_str!("codec/body.v1.hex"), vec![(0, None)]),
            (include_str!("codec/body.v2.hex"), vec![(7, None)]),
            (
                include_str!("codec/body.v4.hex"),
                vec![(0, Some(traced(None)?)), (7, Some(traced(Some("congo=t61rcWkgMzE"))?))],
            ),
        ];
        for (bodies, messages) in frozen {
            let mut lines = Vec::new();
            for (priority, trace) in messages {
                let mut message = sample()?;
                (message.envelope.priority, message.envelope.trace) = (priority, trace);
                let body = encode_body(&message, VERSION)?;
                lines.push(body.iter().map(|b| format!("{b:02x}")).collect::<String>());
                assert_eq!(decode_body(message.id.clone(), body.into())?, message);
            }
            assert_eq!(lines.join("\n"), bodies.trim());
        }
        Ok(())
    }

    #[test]
    fn minimal_message_has_24_bytes_overhead_and_round_trips() -> Result<()> {
        let message = bare()?;
        let body = encode_body(&message, VERSION)?;
        assert_eq!(body.len(), 24 + message.envelope.payload.len());
        let line: String = body.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(line, include_str!("codec/body.v8.hex").trim());
        every_damage_is_noticed(&body);
        assert_eq!(decode_body(message.id.clone(), body.into())?, message);
        Ok(())
    }

    #[test]
    fn times_beyond_the_format_are_clamped() -> Result<()> {
        let mut message = bare()?;
        message.due_at = Timestamp::from_ms(u64::MAX);
        let body = encode_body(&message, Version::from_us(u64::MAX))?;
        assert_eq!(body_due_at(&body), Some(Timestamp::from_ms((1 << 48) - 1)));
        assert_eq!(body_version(&body), Version::from_us((1 << 56) - 1));
        Ok(())
    }

    fn hex(body: &[u8]) -> String {
        body.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn optional_fields_are_frozen_and_round_trip() -> Result<()> {
        let (mut plain, mut forwarded) = (Vec::new(), Vec::new());
        let cases = [
            (false, true, &b""[..], None),
            (false, false, b"\0gateway", None),
            (true, true, b"x", None),
            (false, false, b"", source(None)?),
            (true, true, b"x", source(Some("smtp: 550"))?),
        ];
        for (trace, dedup, attachment, source) in cases {
            let mut message = sample()?;
            let dedup =
                dedup.then(|| Ok(Dedup { key: DedupKey::new("close 4711")?, window: Duration::from_secs(300) }));
            message.envelope.dedup = dedup.transpose()?;
            message.envelope.attachment = Bytes::from_static(attachment);
            message.envelope.trace = trace.then(|| TraceContext::new([1; 16], [2; 8], 1, Some("a=b"))).transpose()?;
            message.envelope.dead_letter_source = source;
            let is_forwarded = message.envelope.dead_letter_source.is_some();
            let body = encode_body(&message, VERSION)?;
            every_damage_is_noticed(&body);
            assert_eq!(decode_body(message.id.clone(), body.clone().into())?, message);
            match is_forwarded {
                false => plain.push(hex(&body)),
                true => {
                    message.envelope.dead_letter_source.iter_mut().for_each(|source| source.hops = 300);
                    let body = encode_body(&message, VERSION)?;
                    assert_eq!(decode_body(message.id.clone(), body.clone().into())?, message);
                    forwarded.push(hex(&body));
                }
            }
        }
        assert_eq!(plain.join("\n"), include_str!("codec/body.v7.hex").trim());
        assert_eq!(forwarded.join("\n"), include_str!("codec/body.v11.hex").trim());
        Ok(())
    }

    fn every_damage_is_noticed(body: &[u8]) {
        let is_refused = |body: Vec<u8>| MessageId::new("x").is_ok_and(|id| decode_body(id, body.into()).is_err());
        for bit in FORMAT_AT * 8..body.len() * 8 {
            let mut bad = body.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(is_refused(bad), "version {}: bit {bit}", body[FORMAT_AT]);
        }
        for end in 0..body.len() {
            assert!(is_refused(body[..end].to_vec()), "version {}: cut at {end}", body[FORMAT_AT]);
        }
    }

    #[test]
    fn bit_flips_after_the_due_time_and_truncation_are_detected() -> Result<()> {
        let trace = TraceContext::new([1; 16], [2; 8], 1, Some("a=b"))?;
        for (priority, trace) in [(0, None), (7, None), (0, Some(trace))] {
            let mut message = sample()?;
            (message.envelope.priority, message.envelope.trace) = (priority, trace);
            every_damage_is_noticed(&encode_body(&message, VERSION)?);
        }
        Ok(())
    }

    #[test]
    fn a_hostile_length_is_an_error_not_a_panic() -> Result<()> {
        let mut body = vec![0; HEADER_AT];
        body[FORMAT_AT] = FORMAT;
        body.extend_from_slice(&[1, 253, 255, 255, 255, 255, 255, 255, 255, 255]);
        let sum = crc32fast::hash(&body[PREFIX..]).to_be_bytes();
        body[FORMAT_AT + 1..PREFIX].copy_from_slice(&sum);
        assert!(decode_body(MessageId::new("x")?, body.into()).is_err());
        assert!(decode_dead(&[FORMAT, 0, 1, 1, 253, 255, 255, 255, 255, 255, 255, 255, 255]).is_err());
        Ok(())
    }
}
