//! Requests of SQS clients: a protocol and an action, a line feed, and the body; or a signature.

use dwell::sqs::fuzzing::{read, signature};
use libfuzzer_sys::Corpus;

use crate::kept;
use crate::memory::bounded;

pub(crate) fn run(data: &[u8]) -> Corpus {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let (Some(head), Some(body)) = (lines.next(), lines.next()) else { return Corpus::Reject };
    let Ok(head) = std::str::from_utf8(head) else { return Corpus::Reject };
    let (kind, rest) = head.split_once(' ').unwrap_or((head, ""));
    match (kind, std::str::from_utf8(body)) {
        ("json", _) => kept(bounded(data, || read(rest, true, body))),
        ("query", _) => kept(bounded(data, || read(rest, false, body))),
        ("header", Ok(text)) => unsigned(bounded(data, || signature(Some(text), rest, None))),
        ("url", Ok(text)) => unsigned(bounded(data, || signature(None, rest, Some(text)))),
        _ => Corpus::Reject,
    }
}

/// No input knows the secret.
fn unsigned((is_read, is_valid): (bool, bool)) -> Corpus {
    assert!(!is_valid);
    kept(is_read)
}
