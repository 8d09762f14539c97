//! Where a message stands in a distributed trace: the context of W3C Trace Context, read, shown, and nothing else.
//!
//! It says who caused a push, in the producer's words. dwell keeps it with the message and hands it on.

use std::fmt;

use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{TRACESTATE_BYTES_MAX, TRACESTATE_ENTRIES_MAX};

const SAMPLED: u8 = 1;
/// Flags that mean something: sampled, and that the trace id is random. Others are not handed on.
const FLAGS: u8 = 3;
/// Characters of a `traceparent` of version 00; later versions may have more behind them.
const TRACEPARENT_CHARS: usize = 55;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// Not zero.
    pub trace_id: [u8; 16],
    /// Not zero.
    pub span_id: [u8; 8],
    flags: u8,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// Errors: `Invalid` for ids that are zero, and for a state that is none.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8, state: Option<&str>) -> Result<TraceContext> {
        if trace_id == [0; 16] || span_id == [0; 8] {
            return Err(Error::wrong(Fault::Format, "traceparent", "has an id that is zero"));
        }
        let state = state.map(str::trim).filter(|state| !state.is_empty());
        state.map_or(Ok(()), check_state).map_err(|why| Error::wrong(Fault::Format, "tracestate", why))?;
        Ok(TraceContext { trace_id, span_id, flags: flags & FLAGS, state: state.map(Box::from) })
    }

    pub fn recorded(trace_id: [u8; 16], span_id: [u8; 8]) -> TraceContext {
        TraceContext { trace_id, span_id, flags: SAMPLED, state: None }
    }

    /// As strictly as the specification. Errors: `Invalid`, naming the header that is wrong.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Result<TraceContext> {
        let wrong = || {
            Error::wrong(
                Fault::Format,
                "traceparent",
                "is not a version, a trace id, a span id and flags, as in 00-<32>-<16>-01",
            )
        };
        let (version, trace_id, span_id, flags) = split(traceparent).ok_or_else(wrong)?;
        if version == 0xff || (version == 0 && traceparent.len() != TRACEPARENT_CHARS) {
            return Err(wrong());
        }
        TraceContext::new(trace_id, span_id, flags, tracestate)
    }

    /// Reads the headers of a request; nothing if they are invalid. A wrong state does not make the rest wrong: it is left out.
    pub fn of_headers(traceparent: &str, tracestate: Option<&str>) -> Option<TraceContext> {
        let context = TraceContext::parse(traceparent, tracestate);
        context.or_else(|_| TraceContext::parse(traceparent, None)).ok()
    }

    pub fn caused_by(&self, span_id: [u8; 8]) -> TraceContext {
        TraceContext { span_id, ..self.clone() }
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    pub fn flags(&self) -> u8 {
        self.flags
    }

    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", Hex(&self.trace_id), Hex(&self.span_id), self.flags)
    }

    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn split(text: &str) -> Option<(u8, [u8; 16], [u8; 8], u8)> {
    let bytes = text.as_bytes();
    if bytes.len() < TRACEPARENT_CHARS || bytes.get(TRACEPARENT_CHARS).is_some_and(|byte| *byte != b'-') {
        return None;
    }
    let separated = [2, 35, 52].iter().all(|at| bytes[*at] == b'-');
    let ([version], [flags]) = (hex(&bytes[..2])?, hex(&bytes[53..55])?);
    separated.then_some((version, hex(&bytes[3..35])?, hex(&bytes[36..52])?, flags))
}

/// Lower-case hexadecimal only, as the specification says.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// A list of `key=value`, each key once; spaces around entries and empty entries do not count.
fn check_state(state: &str) -> Result<(), String> {
    if state.len() > TRACESTATE_BYTES_MAX {
        return Err(format!("has {} bytes, at most {TRACESTATE_BYTES_MAX} are kept", state.len()));
    }
    let entries: Vec<&str> = state.split(',').map(|entry| entry.trim_matches([' ', '\t'])).collect();
    let entries: Vec<&str> = entries.into_iter().filter(|entry| !entry.is_empty()).collect();
    if entries.len() > TRACESTATE_ENTRIES_MAX {
        return Err(format!("has {} entries, at most {TRACESTATE_ENTRIES_MAX}", entries.len()));
    }
    let keys: Option<Vec<&str>> = entries.into_iter().map(key_of).collect();
    let mut keys = keys.ok_or("is not a list of key=value")?;
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair[0] == pair[1]) { Err("has a key twice".to_owned()) } else { Ok(()) }
}

fn key_of(entry: &str) -> Option<&str> {
    let (key, value) = entry.split_once('=')?;
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let rest = |byte: u8| first(byte) || b"_-*/".contains(&byte);
    let part = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && first(text.as_bytes()[0]) && text.bytes().all(rest)
    };
    let key_is_one = match key.split_once('@') {
        Some((tenant, system)) => part(tenant, 241) && part(system, 14),
        None => part(key, 256),
    };
    let visible = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b',' && byte != b'=';
    let value_is_one = (1..=256).contains(&value.len()) && value.bytes().all(visible) && !value.ends_with(' ');
    (key_is_one && value_is_one).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn specification_example_round_trips() -> Result<()> {
        let context = TraceContext::parse(PARENT, Some("congo=t61rcWkgMzE, rojo=00f067aa0ba902b7"))?;
        assert!(context.is_sampled());
        assert_eq!((context.trace_id[0], context.span_id[7]), (0x4b, 0xb7));
        assert_eq!(context.traceparent(), PARENT);
        assert_eq!(context.tracestate(), Some("congo=t61rcWkgMzE, rojo=00f067aa0ba902b7"));
        let child = context.caused_by([1; 8]);
        assert_eq!(child.traceparent(), "00-4bf92f3577b34da6a3ce929d0e0e4736-0101010101010101-01");
        assert_eq!(child.tracestate(), context.tracestate());
        assert_eq!(TraceContext::parse(PARENT, Some(" "))?.tracestate(), None);
        Ok(())
    }

    #[test]
    fn invalid_examples_of_the_specification_are_refused() {
        let zero_trace = PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_span = PARENT.replace("00f067aa0ba902b7", &"0".repeat(16));
        let bad = [
            String::new(),
            PARENT[..54].to_owned(),
            format!("{PARENT}-"),
            format!("{PARENT}-00"),
            format!("{PARENT} "),
            PARENT.to_uppercase(),
            PARENT.replace("00-4", "ff-4"),
            PARENT.replace('-', "_"),
            PARENT.replace("-01", "-0g"),
            PARENT.replace('4', "é"),
            zero_trace,
            zero_span,
        ];
        for bad in bad {
            assert!(TraceContext::parse(&bad, None).is_err(), "{bad:?}");
            assert_eq!(TraceContext::of_headers(&bad, None), None, "{bad:?}");
        }
    }

    #[test]
    fn later_version_is_read_and_unknown_flags_are_dropped() -> Result<()> {
        for later in [
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert_eq!(TraceContext::parse(later, None)?.traceparent(), PARENT);
        }
        assert!(TraceContext::parse(&PARENT.replace("00-4", "01-4").replace("-01", "-01.x"), None).is_err());
        assert_eq!(TraceContext::parse(&PARENT.replace("-01", "-ff"), None)?.flags(), 3);
        assert!(!TraceContext::parse(&PARENT.replace("-01", "-02"), None)?.is_sampled());
        Ok(())
    }

    #[test]
    fn tracestate_form_and_limits_are_enforced() {
        let many = |n: usize| (0..n).map(|i| format!("k{i}=v")).collect::<Vec<_>>().join(",");
        let long = |n: usize| format!("a={},b={}", "v".repeat(256), "v".repeat(n - 261));
        for good in ["a=1", "a=1,,b=2", "tenant@system=1", "0a_-*/=x y", &many(32), &long(512)] {
            assert_eq!(check_state(good), Ok(()), "{good}");
        }
        for bad in [
            "a",
            "=1",
            "a=",
            "A=1",
            "a=1,a=2",
            "a@=1",
            "@a=1",
            "a@b@c=1",
            "a=é",
            "a=b=c",
            "_a=1",
            &many(33),
            &long(513),
            &format!("{}=1", "a".repeat(257)),
            &format!("a={}", "v".repeat(257)),
        ] {
            assert!(check_state(bad).is_err(), "{bad}");
            let context = TraceContext::of_headers(PARENT, Some(bad));
            assert_eq!(context.map(|context| context.state), Some(None), "{bad}");
        }
    }
}
