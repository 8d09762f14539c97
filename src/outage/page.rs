//! Pages of a log. None has only a part of a call: the store remembers only its number, so it would take the part for all of it.

use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX, ENVELOPE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::model::version::CallPart;
use crate::wal::{Entry, Position, Record};

/// Records of a page that has all of at least one call.
pub(super) const CALL_PAGE_RECORDS: usize = 2 * CALL_IDS_MAX;

/// Bytes of one, likewise: the bodies of a call are counted, and what travels with each is not.
pub(super) const CALL_PAGE_BYTES: usize = CALL_BYTES_MAX + CALL_IDS_MAX * (ENVELOPE_BYTES_MAX - PAYLOAD_BYTES_MAX);

/// Bytes of one that another broker is given: fewer than a request may have.
pub(super) const REQUEST_PAGE_BYTES: usize = CALL_BYTES_MAX + 2 * 1024 * 1024;

pub(super) fn call_of(record: &Record) -> Option<(&str, u64)> {
    match record {
        Record::Set { call, .. } | Record::Push { call: Some(CallPart { call, .. }), .. } => {
            Some((&call.stream, call.seq))
        }
        _ => None,
    }
}

/// Leaves out the end of a page of a log with this end that may have only a part of its last call. Answers false if that
/// would be the whole page, which stays.
pub(super) fn drop_part_of_a_call(page: &mut Vec<Entry>, end: Option<Position>) -> bool {
    if page.last().map(|entry| entry.position) >= end {
        return true;
    }
    let Some(last) = page.last().and_then(|entry| call_of(&entry.record)).map(|(s, n)| (s.to_owned(), n)) else {
        return true;
    };
    let is_other = |entry: &Entry| call_of(&entry.record) != Some((last.0.as_str(), last.1));
    let whole = page.iter().rposition(is_other);
    whole.into_iter().for_each(|whole| page.truncate(whole + 1));
    whole.is_some()
}
