//! Durations and times.

use std::time::Duration;

use dwell::model::limits::DELAY_MAX;
use dwell::model::time::{Timestamp, ms_up, parse_millis, parse_span, parse_timestamp, show_span};
use libfuzzer_sys::Corpus;

use crate::kept;
use crate::memory::bounded;

pub(crate) fn run(data: &[u8]) -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let (span, at) = bounded(data, || (parse_span(text), parse_timestamp(text)));
    if let Ok(span) = span {
        check_span(span);
    }
    if let Ok(at) = at {
        assert_eq!(parse_timestamp(&at.to_string()), Ok(at));
        // Earlier ones look like seconds.
        assert_eq!(parse_timestamp(&at.as_ms().to_string()).is_ok(), at.as_ms() >= 100_000_000_000);
        assert_eq!(Timestamp::from_ms(at.as_ms()), at);
    }
    kept(span.is_ok() || at.is_ok())
}

fn check_span(span: Duration) {
    let (now, ms) = (Timestamp::from_ms(1_767_323_045_678), ms_up(span));
    assert!(Duration::from_millis(ms) >= span || ms == u64::MAX, "a delay never shrinks");
    assert!(now.plus(span) >= now && now.minus(span) <= now);
    // Nothing longer is accepted anywhere, and so is shown.
    if span <= DELAY_MAX {
        assert_eq!(parse_span(&show_span(span)), Ok(span));
        assert_eq!(parse_millis(&ms.to_string()), Ok(Duration::from_millis(ms)));
    }
}
