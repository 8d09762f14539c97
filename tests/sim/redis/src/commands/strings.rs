//! Texts.

use super::{Args, NOT_AN_INTEGER, SYNTAX, either, is, places, to_int};
use crate::core::{Core, WRONG_TYPE};
use crate::resp::{Bytes, OK, Reply};
use crate::value::{Value, int};

fn text(core: &mut Core, key: &[u8]) -> Result<Option<Bytes>, Reply> {
    match core.entry(key).map(|entry| &*entry.value) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text.clone())),
        Some(_) => Err(WRONG_TYPE),
    }
}

pub(super) fn get(core: &mut Core, words: Args<'_>) -> Reply {
    either(text(core, words[1]).map(Reply::or_nil))
}

pub(super) fn strlen(core: &mut Core, words: Args<'_>) -> Reply {
    either(text(core, words[1]).map(|text| Reply::count(text.map_or(0, |text| text.len()))))
}

pub(super) fn getrange(core: &mut Core, words: Args<'_>) -> Reply {
    let part = |core: &mut Core| {
        let (start, stop) = (to_int(words[2])?, to_int(words[3])?);
        let text = text(core, words[1])?.unwrap_or_default();
        if start < 0 && stop < 0 && start > stop {
            return Ok(Reply::bulk(b""));
        }
        // Unlike in a list, an end before the beginning is the beginning.
        let count = i64::try_from(text.len()).unwrap_or(i64::MAX);
        let stop = if stop < 0 { (count + stop).max(0) } else { stop };
        Ok(Reply::bulk(&text[places(start, stop, text.len())]))
    };
    either(part(core))
}

pub(super) fn mget(core: &mut Core, words: Args<'_>) -> Reply {
    Reply::Array(words[1..].iter().map(|key| Reply::or_nil(text(core, key).unwrap_or(None))).collect())
}

/// What SET is asked for besides a value.
#[derive(Default)]
struct Options {
    /// Milliseconds since 1970.
    expires_ms: Option<u64>,
    keeps_ttl: bool,
    only_new: bool,
    only_there: bool,
    answers_before: bool,
}

fn options(core: &Core, words: Args<'_>) -> Result<Options, Reply> {
    let (mut options, mut expiring) = (Options::default(), None);
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let has_expiry = expiring.is_some() || options.keeps_ttl;
        if is(word, "NX") && !options.only_there {
            options.only_new = true;
        } else if is(word, "XX") && !options.only_new {
            options.only_there = true;
        } else if is(word, "GET") {
            options.answers_before = true;
        } else if is(word, "KEEPTTL") && !has_expiry {
            options.keeps_ttl = true;
        } else if ["EX", "PX", "EXAT", "PXAT"].iter().any(|name| is(word, name)) && !has_expiry {
            at += 1;
            expiring = Some((*word, *words.get(at).ok_or(SYNTAX)?));
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    if let Some((word, number)) = expiring {
        let is_seconds = is(word, "EX") || is(word, "EXAT");
        let from = if is(word, "EX") || is(word, "PX") { core.now.as_ms() } else { 0 };
        options.expires_ms = Some(expiry(to_int(number)?, is_seconds, from, "set")?);
    }
    Ok(options)
}

fn expiry(number: i64, is_seconds: bool, from_ms: u64, command: &str) -> Result<u64, Reply> {
    let invalid = || Reply::error_of(format!("ERR invalid expire time in '{command}' command"));
    let number = u64::try_from(number).ok().filter(|number| *number > 0).ok_or_else(invalid)?;
    let ms = number.checked_mul(if is_seconds { 1_000 } else { 1 }).ok_or_else(invalid)?;
    from_ms.checked_add(ms).filter(|at| *at <= i64::MAX.unsigned_abs()).ok_or_else(invalid)
}

fn store(core: &mut Core, key: &[u8], value: &[u8], expires_ms: Option<u64>, keeps_ttl: bool) {
    let expires_ms = if keeps_ttl { core.entry(key).and_then(|entry| entry.expires_ms) } else { expires_ms };
    core.data.set(key, Value::Text(value.into()));
    core.data.expire(key, expires_ms);
    core.dirty += 1;
    if let (Some(at), false) = (expires_ms, keeps_ttl)
        && core.keeps_effects()
    {
        let words: [&[u8]; 5] = [b"SET", key, value, b"PXAT", &at.to_string().into_bytes()];
        core.effect = Some(words.iter().map(|word| Bytes::from(*word)).collect());
    }
}

pub(super) fn set(core: &mut Core, words: Args<'_>) -> Reply {
    let result = |core: &mut Core| {
        let options = options(core, &words[3..])?;
        let before = if options.answers_before { text(core, words[1])? } else { None };
        let is_there = (options.only_new || options.only_there) && core.has(words[1]);
        let is_refused = options.only_new && is_there || options.only_there && !is_there;
        if !is_refused {
            store(core, words[1], words[2], options.expires_ms, options.keeps_ttl);
        }
        Ok(match (options.answers_before, is_refused) {
            (true, _) => Reply::or_nil(before),
            (false, true) => Reply::Nil,
            (false, false) => OK,
        })
    };
    either(result(core))
}

pub(super) fn setnx(core: &mut Core, words: Args<'_>) -> Reply {
    if core.has(words[1]) {
        return Reply::Int(0);
    }
    store(core, words[1], words[2], None, false);
    Reply::Int(1)
}

pub(super) fn setex(core: &mut Core, words: Args<'_>) -> Reply {
    let at = to_int(words[2]).and_then(|number| expiry(number, true, core.now.as_ms(), "setex"));
    either(at.map(|at| {
        store(core, words[1], words[3], Some(at), false);
        OK
    }))
}

pub(super) fn psetex(core: &mut Core, words: Args<'_>) -> Reply {
    let at = to_int(words[2]).and_then(|number| expiry(number, false, core.now.as_ms(), "psetex"));
    either(at.map(|at| {
        store(core, words[1], words[3], Some(at), false);
        OK
    }))
}

pub(super) fn getset(core: &mut Core, words: Args<'_>) -> Reply {
    either(text(core, words[1]).map(|before| {
        store(core, words[1], words[2], None, false);
        Reply::or_nil(before)
    }))
}

pub(super) fn getdel(core: &mut Core, words: Args<'_>) -> Reply {
    either(text(core, words[1]).map(|before| {
        core.remove(words[1]);
        Reply::or_nil(before)
    }))
}

pub(super) fn mset(core: &mut Core, words: Args<'_>) -> Reply {
    if words.len().is_multiple_of(2) {
        return super::wrong_arity("mset");
    }
    for pair in words[1..].chunks(2) {
        core.data.set(pair[0], Value::Text(pair[1].into()));
        core.dirty += 1;
    }
    OK
}

pub(super) fn append(core: &mut Core, words: Args<'_>) -> Reply {
    let result = |core: &mut Core| {
        let whole = [&text(core, words[1])?.unwrap_or_default(), words[2]].concat();
        let count = whole.len();
        store(core, words[1], &whole, None, true);
        Ok(Reply::count(count))
    };
    either(result(core))
}

pub(super) fn setrange(core: &mut Core, words: Args<'_>) -> Reply {
    let result = |core: &mut Core| {
        let at = to_int(words[2])?;
        let at = usize::try_from(at).map_err(|_| Reply::error("ERR offset is out of range"))?;
        let there = text(core, words[1])?;
        if words[3].is_empty() {
            return Ok(Reply::count(there.map_or(0, |text| text.len())));
        }
        let mut whole = there.unwrap_or_default().to_vec();
        let end = at + words[3].len();
        if end > PROTO_MAX {
            return Err(Reply::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
        }
        whole.resize(whole.len().max(end), 0);
        whole[at..end].copy_from_slice(words[3]);
        store(core, words[1], &whole, None, true);
        Ok(Reply::count(whole.len()))
    };
    either(result(core))
}

/// Bytes of a text at most.
const PROTO_MAX: usize = 512 * 1024 * 1024;

fn add(core: &mut Core, key: &[u8], by: i64) -> Reply {
    let result = |core: &mut Core| {
        let before = text(core, key)?.map_or(Ok(0), |text| int(&text).ok_or(NOT_AN_INTEGER))?;
        let overflow = Reply::error("ERR increment or decrement would overflow");
        let after = before.checked_add(by).ok_or(overflow)?;
        store(core, key, after.to_string().as_bytes(), None, true);
        Ok(Reply::Int(after))
    };
    either(result(core))
}

pub(super) fn incr(core: &mut Core, words: Args<'_>) -> Reply {
    add(core, words[1], 1)
}

pub(super) fn decr(core: &mut Core, words: Args<'_>) -> Reply {
    add(core, words[1], -1)
}

pub(super) fn incrby(core: &mut Core, words: Args<'_>) -> Reply {
    either(to_int(words[2]).map(|by| add(core, words[1], by)))
}

pub(super) fn decrby(core: &mut Core, words: Args<'_>) -> Reply {
    either(to_int(words[2]).map(|by| add(core, words[1], by.saturating_neg())))
}
