//! The protocol: commands out of a stream of bytes, and answers into one.

use std::borrow::Cow;
use std::sync::Arc;

/// Bytes that are shared, not copied, between data, answers and effects.
pub(crate) type Bytes = Arc<[u8]>;

/// The longest bulk string, and the most words of a command, as Redis limits them.
const BULK_MAX: i64 = 512 * 1024 * 1024;
const WORDS_MAX: i64 = 1024 * 1024;

#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Status(Cow<'static, str>),
    /// With its code in front, without the `-`.
    Error(Cow<'static, str>),
    Int(i64),
    /// With the text that RESP2 has for it.
    Double(f64, String),
    Bulk(Bytes),
    Verbatim(String),
    Nil,
    NilArray,
    Bool(bool),
    Array(Vec<Reply>),
    /// Keys and values in turn.
    Map(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    /// Several answers of one command, such as those of SUBSCRIBE; or none.
    Several(Vec<Reply>),
}

pub(crate) const OK: Reply = Reply::Status(Cow::Borrowed("OK"));

impl Reply {
    pub(crate) fn error(text: &'static str) -> Reply {
        Reply::Error(Cow::Borrowed(text))
    }

    pub(crate) fn error_of(text: String) -> Reply {
        Reply::Error(Cow::Owned(text))
    }

    pub(crate) fn status(text: &'static str) -> Reply {
        Reply::Status(Cow::Borrowed(text))
    }

    pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().into())
    }

    pub(crate) fn count(count: usize) -> Reply {
        Reply::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(crate) fn or_nil(bytes: Option<Bytes>) -> Reply {
        bytes.map_or(Reply::Nil, Reply::Bulk)
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    pub(crate) fn write(&self, protocol: u8, out: &mut Vec<u8>) {
        match self {
            Reply::Status(text) => line(b'+', text.as_bytes(), out),
            Reply::Error(text) => line(b'-', text.as_bytes(), out),
            Reply::Int(number) => header(b':', *number, out),
            Reply::Double(_, text) if protocol == 3 => line(b',', text.as_bytes(), out),
            Reply::Double(_, text) => bulk(text.as_bytes(), out),
            Reply::Bulk(bytes) => bulk(bytes, out),
            Reply::Verbatim(text) if protocol == 3 => {
                header(b'=', len(text.len() + 4), out);
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Reply::Verbatim(text) => bulk(text.as_bytes(), out),
            Reply::Nil | Reply::NilArray if protocol == 3 => out.extend_from_slice(b"_\r\n"),
            Reply::Nil => out.extend_from_slice(b"$-1\r\n"),
            Reply::NilArray => out.extend_from_slice(b"*-1\r\n"),
            Reply::Bool(is) if protocol == 3 => out.extend_from_slice(if *is { b"#t\r\n" } else { b"#f\r\n" }),
            Reply::Bool(is) => header(b':', i64::from(*is), out),
            Reply::Map(entries) if protocol == 3 => {
                header(b'%', len(entries.len() / 2), out);
                entries.iter().for_each(|entry| entry.write(protocol, out));
            }
            Reply::Set(entries) if protocol == 3 => {
                header(b'~', len(entries.len()), out);
                entries.iter().for_each(|entry| entry.write(protocol, out));
            }
            Reply::Push(entries) if protocol == 3 => {
                header(b'>', len(entries.len()), out);
                entries.iter().for_each(|entry| entry.write(protocol, out));
            }
            Reply::Array(entries) | Reply::Map(entries) | Reply::Set(entries) | Reply::Push(entries) => {
                header(b'*', len(entries.len()), out);
                entries.iter().for_each(|entry| entry.write(protocol, out));
            }
            Reply::Several(replies) => replies.iter().for_each(|reply| reply.write(protocol, out)),
        }
    }
}

fn len(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    // A line break would end the line: Redis writes blanks.
    out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

fn header(kind: u8, number: i64, out: &mut Vec<u8>) {
    out.push(kind);
    push_number(number, out);
    out.extend_from_slice(b"\r\n");
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    header(b'$', len(bytes.len()), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn push_number(number: i64, out: &mut Vec<u8>) {
    let (mut digits, mut at, mut rest) = ([0_u8; 20], 20, number.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// The bytes of a client that were not executed yet.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    buffer: Vec<u8>,
    from: usize,
}

pub(crate) type Words = Vec<Vec<u8>>;

impl Requests {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if self.from == self.buffer.len() {
            self.buffer.clear();
            self.from = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next command, if all of it is there. Errors: what Redis says before it closes the connection.
    pub(crate) fn next(&mut self) -> Result<Option<Words>, &'static str> {
        let mut at = self.from;
        let words = match self.buffer.get(at) {
            None => return Ok(None),
            Some(b'*') => self.multi_bulk(&mut at)?,
            Some(_) => self.inline(&mut at)?,
        };
        if words.is_some() {
            self.from = at;
        }
        Ok(words)
    }

    fn multi_bulk(&self, at: &mut usize) -> Result<Option<Words>, &'static str> {
        let wrong = "ERR Protocol error: invalid multibulk length";
        let Some(count) = self.line(at) else { return Ok(None) };
        let count = number(count.get(1..)).filter(|count| *count <= WORDS_MAX).ok_or(wrong)?;
        let mut words = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(1_024));
        for _ in 0..count.max(0) {
            let Some(length) = self.line(at) else { return Ok(None) };
            if length.first() != Some(&b'$') {
                return Err("ERR Protocol error: expected '$'");
            }
            let length = number(length.get(1..)).filter(|length| (0..=BULK_MAX).contains(length));
            let length = length.ok_or("ERR Protocol error: invalid bulk length")?;
            let to = *at + usize::try_from(length).unwrap_or(0);
            if self.buffer.len() < to + 2 {
                return Ok(None);
            }
            words.push(self.buffer[*at..to].to_vec());
            *at = to + 2;
        }
        Ok(Some(words))
    }

    fn inline(&self, at: &mut usize) -> Result<Option<Words>, &'static str> {
        let Some(line) = self.line(at) else { return Ok(None) };
        Ok(Some(line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()))
    }

    fn line(&self, at: &mut usize) -> Option<&[u8]> {
        let rest = self.buffer.get(*at..)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        *at += end + 1;
        let line = &rest[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

fn number(digits: Option<&[u8]>) -> Option<i64> {
    std::str::from_utf8(digits?).ok()?.parse().ok()
}

/// A command as a stream carries it.
pub(crate) fn command<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut out = Vec::new();
    header(b'*', len(words.len()), &mut out);
    words.iter().for_each(|word| bulk(word.as_ref(), &mut out));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_may_come_in_pieces() -> Result<(), &'static str> {
        let bytes = [command(&["SET", "a", "1"]), b"PING  x\r\n".to_vec(), command(&["GET", "a"])].concat();
        let mut requests = Requests::default();
        let mut found = Vec::new();
        for byte in bytes {
            requests.add(&[byte]);
            found.extend(requests.next()?);
        }
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], [b"PING".to_vec(), b"x".to_vec()]);
        requests.add(b"*1\r\n+x\r\n");
        assert!(requests.next().is_err());
        Ok(())
    }
}
