//! Keys, whatever they hold.

use std::collections::BTreeMap;

use super::{Args, SYNTAX, ScanOptions, cursor, either, is, scanned, to_int};
use crate::core::Core;
use crate::resp::{Bytes, OK, Reply};
use crate::value::{Hash, Set, Value, Zset, double, float};

pub(super) fn dbsize(core: &mut Core, _: Args<'_>) -> Reply {
    Reply::count(core.data.len())
}

pub(super) fn del(core: &mut Core, words: Args<'_>) -> Reply {
    Reply::count(words[1..].iter().filter(|key| core.remove(key)).count())
}

pub(super) fn exists(core: &mut Core, words: Args<'_>) -> Reply {
    Reply::count(words[1..].iter().filter(|key| core.has(key)).count())
}

pub(super) fn kind(core: &mut Core, words: Args<'_>) -> Reply {
    Reply::status(core.entry(words[1]).map_or("none", |entry| entry.value.kind()))
}

pub(super) fn flushall(core: &mut Core, _: Args<'_>) -> Reply {
    core.data = crate::keyspace::Keyspace::default();
    core.dirty += 1;
    OK
}

pub(super) fn keys(core: &mut Core, words: Args<'_>) -> Reply {
    let (now, applies) = (core.now.as_ms(), |key: &Bytes| crate::pubsub::matches(words[1], key));
    let is_there = |expires_ms: Option<u64>| expires_ms.is_none_or(|at| now <= at);
    let found = core.data.iter().filter(|(key, entry)| applies(key) && is_there(entry.expires_ms));
    Reply::Array(found.map(|(key, _)| Reply::Bulk(key.clone())).collect())
}

pub(super) fn scan(core: &mut Core, words: Args<'_>) -> Reply {
    let result = |core: &mut Core| {
        let cursor = cursor(words[1])?;
        let options = ScanOptions::read(&words[2..], true)?;
        let now = core.now.as_ms();
        let (found, next) = core.data.scan(cursor, core.mark, options.count);
        let found = found.into_iter().filter(|(key, entry)| {
            options.fits(key)
                && entry.expires_ms.is_none_or(|at| now <= at)
                && options.kind.is_none_or(|kind| is(kind, entry.value.kind()))
        });
        Ok(scanned(next, found.map(|(key, _)| Reply::Bulk(key.clone())).collect()))
    };
    either(result(core))
}

fn expire_at(core: &mut Core, words: Args<'_>, unit: i64, is_relative: bool) -> Reply {
    let result = |core: &mut Core| {
        let name = String::from_utf8_lossy(words[0]).to_lowercase();
        let invalid = || Reply::error_of(format!("ERR invalid expire time in '{name}' command"));
        let now = i64::try_from(core.now.as_ms()).unwrap_or(i64::MAX);
        let (mut only_new, mut only_there, mut only_later, mut only_earlier) = (false, false, false, false);
        for word in &words[3..] {
            match () {
                () if is(word, "NX") => only_new = true,
                () if is(word, "XX") => only_there = true,
                () if is(word, "GT") => only_later = true,
                () if is(word, "LT") => only_earlier = true,
                () => return Err(Reply::error_of(format!("ERR Unsupported option {}", String::from_utf8_lossy(word)))),
            }
        }
        if only_new && (only_there || only_later || only_earlier) {
            return Err(Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if only_later && only_earlier {
            return Err(Reply::error("ERR GT and LT options at the same time are not compatible"));
        }
        let at = to_int(words[2])?.checked_mul(unit).ok_or_else(invalid)?;
        let at = at.checked_add(if is_relative { now } else { 0 }).ok_or_else(invalid)?;
        let Some(before) = core.entry(words[1]).map(|entry| entry.expires_ms) else { return Ok(Reply::Int(0)) };
        let before = before.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        let is_refused = only_new && before.is_some()
            || only_there && before.is_none()
            || only_later && before.is_none_or(|before| at <= before)
            || only_earlier && before.is_some_and(|before| at >= before);
        if is_refused {
            return Ok(Reply::Int(0));
        }
        if at <= now && !core.is_applying {
            core.remove(words[1]);
            core.effect = Some(vec![Bytes::from(&b"DEL"[..]), words[1].into()]);
        } else {
            core.data.expire(words[1], Some(at.unsigned_abs()));
            core.dirty += 1;
            if core.keeps_effects() {
                let at = at.to_string().into_bytes();
                core.effect = Some(vec![Bytes::from(&b"PEXPIREAT"[..]), words[1].into(), at.into()]);
            }
        }
        Ok(Reply::Int(1))
    };
    either(result(core))
}

pub(super) fn expire(core: &mut Core, words: Args<'_>) -> Reply {
    expire_at(core, words, 1_000, true)
}

pub(super) fn pexpire(core: &mut Core, words: Args<'_>) -> Reply {
    expire_at(core, words, 1, true)
}

pub(super) fn expireat(core: &mut Core, words: Args<'_>) -> Reply {
    expire_at(core, words, 1_000, false)
}

pub(super) fn pexpireat(core: &mut Core, words: Args<'_>) -> Reply {
    expire_at(core, words, 1, false)
}

pub(super) fn persist(core: &mut Core, words: Args<'_>) -> Reply {
    if core.entry(words[1]).is_none_or(|entry| entry.expires_ms.is_none()) {
        return Reply::Int(0);
    }
    core.data.expire(words[1], None);
    core.dirty += 1;
    Reply::Int(1)
}

fn left(core: &mut Core, key: &[u8], read: impl FnOnce(u64, u64) -> u64) -> Reply {
    let now = core.now.as_ms();
    match core.entry(key).map(|entry| entry.expires_ms) {
        None => Reply::Int(-2),
        Some(None) => Reply::Int(-1),
        Some(Some(at)) => Reply::Int(i64::try_from(read(at, now)).unwrap_or(i64::MAX)),
    }
}

pub(super) fn pttl(core: &mut Core, words: Args<'_>) -> Reply {
    left(core, words[1], u64::saturating_sub)
}

pub(super) fn ttl(core: &mut Core, words: Args<'_>) -> Reply {
    left(core, words[1], |at, now| (at.saturating_sub(now) + 500) / 1_000)
}

pub(super) fn expiretime(core: &mut Core, words: Args<'_>) -> Reply {
    left(core, words[1], |at, _| (at + 500) / 1_000)
}

pub(super) fn pexpiretime(core: &mut Core, words: Args<'_>) -> Reply {
    left(core, words[1], |at, _| at)
}

pub(super) fn rename(core: &mut Core, words: Args<'_>) -> Reply {
    if !core.has(words[1]) {
        return Reply::error("ERR no such key");
    }
    if let Some(entry) = core.data.remove(words[1]) {
        core.data.set_shared(words[2], entry.value, entry.expires_ms);
        core.dirty += 1;
    }
    OK
}

// What DUMP answers is read by RESTORE of this server alone.

const MARK: &[u8] = b"dwell-simulated-redis\0";

pub(super) fn dump(core: &mut Core, words: Args<'_>) -> Reply {
    let Some(entry) = core.entry(words[1]) else { return Reply::Nil };
    let mut parts: Vec<Vec<u8>> = vec![entry.value.kind().as_bytes().to_vec()];
    match &*entry.value {
        Value::Text(text) => parts.push(text.to_vec()),
        Value::Hash(hash) => {
            let fields: BTreeMap<_, _> = hash.iter().collect();
            parts.extend(fields.into_iter().flat_map(|(field, value)| [field.to_vec(), value.to_vec()]));
        }
        Value::Set(set) => {
            parts.extend(set.iter().map(|member| member.to_vec()));
            parts[1..].sort();
        }
        Value::Zset(zset) => {
            parts.extend(zset.iter().flat_map(|(member, score)| [member.to_vec(), double(score).into_bytes()]));
        }
    }
    Reply::bulk([MARK, &crate::resp::command(&parts)].concat())
}

/// The value in an answer of DUMP.
fn restore_value(dump: &[u8]) -> Option<Value> {
    let mut parts = crate::resp::Requests::default();
    parts.add(dump.strip_prefix(MARK)?);
    let parts = parts.next().ok()??;
    let (kind, parts) = parts.split_first()?;
    match &**kind {
        b"string" => Some(Value::Text(parts.first()?.as_slice().into())),
        b"hash" => {
            let mut hash = Hash::default();
            for pair in parts.chunks_exact(2) {
                hash.set(&pair[0], &pair[1]);
            }
            Some(Value::Hash(hash))
        }
        b"set" => {
            let mut set = Set::default();
            for member in parts {
                set.add(member);
            }
            Some(Value::Set(set))
        }
        b"zset" => {
            let mut zset = Zset::default();
            for pair in parts.chunks_exact(2) {
                zset.set(&pair[0], float(&pair[1]).unwrap_or(0.0));
            }
            Some(Value::Zset(zset))
        }
        _ => None,
    }
}

pub(super) fn restore(core: &mut Core, words: Args<'_>) -> Reply {
    let result = |core: &mut Core| {
        let (mut replaces, mut is_absolute) = (false, false);
        for word in &words[4..] {
            match () {
                () if is(word, "REPLACE") => replaces = true,
                () if is(word, "ABSTTL") => is_absolute = true,
                () => return Err(SYNTAX),
            }
        }
        if !replaces && core.has(words[1]) {
            return Err(Reply::error("BUSYKEY Target key name already exists."));
        }
        let ttl = u64::try_from(to_int(words[2])?).map_err(|_| Reply::error("ERR Invalid TTL value, must be >= 0"))?;
        let value = restore_value(words[3]).ok_or(Reply::error("ERR DUMP payload version or checksum are wrong"))?;
        let at = (ttl > 0).then(|| if is_absolute { ttl } else { core.now.as_ms() + ttl });
        core.data.set(words[1], value);
        core.data.expire(words[1], at);
        core.dirty += 1;
        if core.keeps_effects() {
            let at = at.unwrap_or(0).to_string().into_bytes();
            let words: [&[u8]; 6] = [b"RESTORE", words[1], &at, words[3], b"REPLACE", b"ABSTTL"];
            core.effect = Some(words.iter().map(|word| Bytes::from(*word)).collect());
        }
        Ok(OK)
    };
    either(result(core))
}
