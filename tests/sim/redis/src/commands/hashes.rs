//! Hashes.

use super::{Args, ScanOptions, cursor, either, scanned, to_int, wrong_arity};
use crate::core::{Core, WRONG_TYPE};
use crate::resp::{OK, Reply};
use crate::value::{Hash, Value, int};

/// Reads a hash; an absent one is empty.
fn read(core: &mut Core, key: &[u8], read: impl FnOnce(Option<&Hash>) -> Reply) -> Reply {
    match core.entry(key).map(|entry| &*entry.value) {
        None => read(None),
        Some(Value::Hash(hash)) => read(Some(hash)),
        Some(_) => WRONG_TYPE,
    }
}

fn change<'a>(core: &'a mut Core, key: &[u8]) -> Result<&'a mut Hash, Reply> {
    core.change(key, || Value::Hash(Hash::default()), Value::hash_mut)
}

pub(super) fn hget(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |hash| Reply::or_nil(hash.and_then(|hash| hash.get(words[2])).cloned()))
}

pub(super) fn hmget(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |hash| {
        let value = |field: &&[u8]| Reply::or_nil(hash.and_then(|hash| hash.get(field)).cloned());
        Reply::Array(words[2..].iter().map(value).collect())
    })
}

pub(super) fn hexists(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |hash| Reply::Int(hash.is_some_and(|hash| hash.has(words[2])).into()))
}

pub(super) fn hlen(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |hash| Reply::count(hash.map_or(0, Hash::len)))
}

pub(super) fn hstrlen(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |hash| Reply::count(hash.and_then(|hash| hash.get(words[2])).map_or(0, |value| value.len())))
}

pub(super) fn hgetall(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |hash| {
        let fields = hash.into_iter().flat_map(Hash::iter);
        Reply::Map(fields.flat_map(|(field, value)| [Reply::Bulk(field.clone()), Reply::Bulk(value.clone())]).collect())
    })
}

pub(super) fn hkeys(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |hash| {
        let fields = hash.into_iter().flat_map(Hash::iter);
        Reply::Array(fields.map(|(field, _)| Reply::Bulk(field.clone())).collect())
    })
}

pub(super) fn hvals(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |hash| {
        let fields = hash.into_iter().flat_map(Hash::iter);
        Reply::Array(fields.map(|(_, value)| Reply::Bulk(value.clone())).collect())
    })
}

pub(super) fn hscan(core: &mut Core, words: Args<'_>) -> Reply {
    let mark = core.mark;
    let cursor = match cursor(words[2]) {
        Ok(cursor) => cursor,
        Err(refused) => return refused,
    };
    read(core, words[1], |hash| {
        let Some(hash) = hash else { return scanned(0, Vec::new()) };
        let options = match ScanOptions::read(&words[3..], false) {
            Ok(options) => options,
            Err(refused) => return refused,
        };
        let (found, next) = hash.scan(cursor, mark, options.count);
        let found = found.into_iter().filter(|(field, _)| options.fits(field));
        let pair = |(field, value): (&crate::resp::Bytes, &crate::resp::Bytes)| {
            [Reply::Bulk(field.clone()), Reply::Bulk(value.clone())]
        };
        scanned(next, found.flat_map(pair).collect())
    })
}

fn set_all(core: &mut Core, words: Args<'_>, name: &str) -> Result<usize, Reply> {
    if !words.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let hash = change(core, words[1])?;
    let new = words[2..].chunks(2).filter(|pair| hash.set(pair[0], pair[1])).count();
    core.dirty += 1;
    Ok(new)
}

pub(super) fn hset(core: &mut Core, words: Args<'_>) -> Reply {
    either(set_all(core, words, "hset").map(Reply::count))
}

pub(super) fn hmset(core: &mut Core, words: Args<'_>) -> Reply {
    either(set_all(core, words, "hmset").map(|_| OK))
}

pub(super) fn hsetnx(core: &mut Core, words: Args<'_>) -> Reply {
    let result = |core: &mut Core| {
        let hash = change(core, words[1])?;
        if hash.has(words[2]) {
            return Ok(Reply::Int(0));
        }
        hash.set(words[2], words[3]);
        core.dirty += 1;
        Ok(Reply::Int(1))
    };
    either(result(core))
}

pub(super) fn hincrby(core: &mut Core, words: Args<'_>) -> Reply {
    let result = |core: &mut Core| {
        let by = to_int(words[3])?;
        let hash = change(core, words[1])?;
        let before = hash.get(words[2]).map_or(Some(0), |value| int(value));
        let before = before.ok_or(Reply::error("ERR hash value is not an integer"))?;
        let after = before.checked_add(by).ok_or(Reply::error("ERR increment or decrement would overflow"))?;
        hash.set(words[2], after.to_string().as_bytes());
        core.dirty += 1;
        Ok(Reply::Int(after))
    };
    either(result(core))
}

pub(super) fn hdel(core: &mut Core, words: Args<'_>) -> Reply {
    if !core.has(words[1]) {
        return Reply::Int(0);
    }
    let result = |core: &mut Core| {
        let hash = change(core, words[1])?;
        let removed = words[2..].iter().filter(|field| hash.remove(field)).count();
        core.dirty += u64::from(removed > 0);
        Ok(Reply::count(removed))
    };
    either(result(core))
}
