//! Bytes that outlive a process: the first byte chooses what they are taken for. Checksums are made right, so that what is
//! behind them is reached.

use bytes::Bytes;
use dwell::codec::{
    Failure, UnnumberedRecord, body_due_at, decode_last_error, decode_record, encode_attempt, encode_last_error,
};
use dwell::codec::{body_version, decode_body, decode_dead, decode_history, encode_body, encode_dead, encode_failure};
use dwell::codec::{extend_history, read_last_error, write_last_error};
use dwell::model::limits::HISTORY_MAX;
use dwell::model::message::MessageId;
use dwell::model::topic::Descriptor;
use dwell::store::embedded::reservation_rewritten;
use libfuzzer_sys::Corpus;

use crate::kept;
use crate::memory::bounded;

pub(crate) fn run(data: &[u8]) -> Corpus {
    let Some((kind, bytes)) = data.split_first() else { return Corpus::Reject };
    kept(match kind {
        b'b' => body(bytes),
        b'd' => dead(bytes),
        b'e' => error(bytes),
        b'h' => history(bytes),
        b'r' => record(bytes),
        b't' => topic(bytes),
        b'v' => reservation(bytes),
        _ => false,
    })
}

fn body(bytes: &[u8]) -> bool {
    let id = MessageId::new("order-1").expect("an id");
    let _ = decode_body(id.clone(), bytes.to_vec().into());
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 18 {
        let sum = crc32fast::hash(&bytes[18..]).to_be_bytes();
        bytes[14..18].copy_from_slice(&sum);
    }
    let Ok(message) = bounded(&bytes, || decode_body(id.clone(), bytes.clone().into())) else { return false };
    assert_eq!(body_due_at(&bytes), Some(message.due_at));
    let again = encode_body(&message, body_version(&bytes)).expect("what was read is written");
    assert_eq!(decode_body(id, again.into()).as_ref(), Ok(&message));
    true
}

fn dead(bytes: &[u8]) -> bool {
    let Ok(record) = bounded(bytes, || decode_dead(bytes)) else { return false };
    let again = encode_dead(&record).expect("what was read is written");
    assert_eq!(decode_dead(&again).as_ref(), Ok(&record));
    true
}

fn history(bytes: &[u8]) -> bool {
    let Ok(failures) = bounded(bytes, || decode_history(bytes)) else { return false };
    let lines: String = failures.iter().map(encode_attempt).collect();
    assert_eq!(decode_history(lines.as_bytes()).as_ref(), Ok(&failures));
    let lines: String = failures.iter().map(encode_failure).collect();
    if let Some(last) = failures.last() {
        let last = Failure { error: None, ..last.clone() };
        let longer = decode_history(&extend_history(lines.as_bytes(), &last)).expect("a history");
        assert!(longer.len() <= HISTORY_MAX && longer.last() == Some(&last));
    }
    true
}

fn error(bytes: &[u8]) -> bool {
    let Ok(error) = bounded(bytes, || decode_last_error(bytes)) else { return false };
    assert_eq!(decode_last_error(&encode_last_error(&error)).as_ref(), Ok(&error));
    assert_eq!(read_last_error(write_last_error(&error)).as_ref(), Ok(&error));
    true
}

/// Also a part of what [`crate::wal`] reads.
pub(crate) fn record(bytes: &[u8]) -> bool {
    let _ = decode_record(bytes.to_vec().into());
    let mut bytes = bytes.to_vec();
    mend_record(&mut bytes);
    let Ok(read) = bounded(&bytes, || decode_record(bytes.clone().into())) else { return false };
    let again = UnnumberedRecord::new(&read.record, read.at).expect("what was read is written").numbered(read.number);
    assert_eq!(decode_record(Bytes::from(again)).as_ref(), Ok(&read));
    true
}

/// Gives a record its checksum.
pub(crate) fn mend_record(bytes: &mut [u8]) {
    if bytes.len() >= 5 {
        let sum = crc32fast::hash(&bytes[5..]).to_be_bytes();
        bytes[1..5].copy_from_slice(&sum);
    }
}

fn topic(bytes: &[u8]) -> bool {
    let Ok(topic) = bounded(bytes, || serde_json::from_slice::<Descriptor>(bytes)) else { return false };
    let _ = topic.check();
    let again = serde_json::to_vec(&topic).expect("what was read is written");
    assert_eq!(serde_json::from_slice::<Descriptor>(&again).ok(), Some(topic));
    true
}

fn reservation(bytes: &[u8]) -> bool {
    let Ok(entries) = bounded(bytes, || reservation_rewritten(bytes)) else { return false };
    assert_eq!(reservation_rewritten(&entries).as_ref(), Ok(&entries));
    true
}
