//! Base64, percent-encoding, headers of traces, dates of `Retry-After`, and texts in XML: a letter, and the text. Each is
//! compared with another program's reading.

use std::time::Duration;

use data_encoding::BASE64;
use dwell::api::http::fuzzing::{base64, percent_decoded, trace};
use dwell::api::webhook::fuzzing::{encoded, retry_after};
use dwell::model::limits::RETRY_AFTER_MAX;
use dwell::model::time::Timestamp;
use dwell::sqs::fuzzing::{percent_decoded as decoded_by_sqs, xml};
use libfuzzer_sys::Corpus;

use crate::kept;
use crate::memory::bounded;

const NOW: Timestamp = Timestamp::from_ms(1_767_323_045_000);

pub(crate) fn run(data: &[u8]) -> Corpus {
    let Some((letter, text)) = data.split_first() else { return Corpus::Reject };
    let Ok(text) = std::str::from_utf8(text) else { return Corpus::Reject };
    match letter {
        b'b' => {
            let read = bounded(data, || base64(text));
            // It also takes several texts in a row, each with its padding.
            let other = BASE64.decode(text.as_bytes()).ok().filter(|other| BASE64.encode(other) == text);
            assert_eq!(read.as_deref(), other.as_deref());
            kept(read.is_some())
        }
        b'p' => percent(data, text),
        b't' => {
            let (parent, state) = text.split_once('\n').map_or((text, None), |(parent, state)| (parent, Some(state)));
            let read = bounded(data, || trace(parent, state));
            if let Some((parent, state)) = &read {
                assert_eq!(trace(parent, state.as_deref()).as_ref(), read.as_ref(), "what is sent on is read again");
            }
            kept(read.is_some())
        }
        b'r' => {
            let read = bounded(data, || retry_after(text, NOW));
            assert!(read.is_none_or(|wait| wait <= RETRY_AFTER_MAX));
            if let Ok(seconds) = text.trim().parse::<u32>()
                && !text.contains('+')
            {
                assert_eq!(read, Some(Duration::from_secs(seconds.into()).min(RETRY_AFTER_MAX)));
            }
            kept(read.is_some())
        }
        b'x' => {
            let made = xml(text);
            let made = std::str::from_utf8(&made).expect("XML is text");
            let tree = roxmltree::Document::parse(made).unwrap_or_else(|error| panic!("{error}: {made}"));
            let message = tree
                .descendants()
                .find(|node| node.has_tag_name(("Message", "")))
                .or_else(|| tree.descendants().find(|node| node.tag_name().name() == "Message"));
            assert!(message.is_some(), "{made}");
            Corpus::Keep
        }
        _ => Corpus::Reject,
    }
}

/// One value of a form or a query, and a value in a header.
fn percent(data: &[u8], text: &str) -> Corpus {
    let in_header = bounded(data, || encoded(text));
    assert!(in_header.bytes().all(|byte| byte.is_ascii_graphic()));
    // A plus is a plus there, and a space in a form.
    let reread = form_urlencoded::parse(format!("a={}", in_header.replace('+', "%2B").replace('&', "%26")).as_bytes())
        .next()
        .map(|(_, value)| value.into_owned());
    assert_eq!(reread.as_deref(), Some(text));
    if text.contains('&') {
        return Corpus::Reject;
    }
    let read = bounded(data, || percent_decoded(text));
    assert_eq!(decoded_by_sqs(text), read, "both protocols read the same");
    if let Some(read) = &read {
        let pair = format!("a={text}");
        let other = form_urlencoded::parse(pair.as_bytes()).next().map(|(_, value)| value.into_owned());
        assert_eq!(other.as_ref(), Some(read));
    }
    kept(read.is_some())
}
