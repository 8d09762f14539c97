//! Sets.

use super::{Args, ScanOptions, cursor, either, scanned};
use crate::core::{Core, WRONG_TYPE};
use crate::resp::Reply;
use crate::value::{Set, Value};

fn read(core: &mut Core, key: &[u8], read: impl FnOnce(Option<&Set>) -> Reply) -> Reply {
    match core.entry(key).map(|entry| &*entry.value) {
        None => read(None),
        Some(Value::Set(set)) => read(Some(set)),
        Some(_) => WRONG_TYPE,
    }
}

fn change<'a>(core: &'a mut Core, key: &[u8]) -> Result<&'a mut Set, Reply> {
    core.change(key, || Value::Set(Set::default()), Value::set_mut)
}

pub(super) fn sadd(core: &mut Core, words: Args<'_>) -> Reply {
    let result = |core: &mut Core| {
        let set = change(core, words[1])?;
        let added = words[2..].iter().filter(|member| set.add(member)).count();
        core.dirty += u64::from(added > 0);
        Ok(Reply::count(added))
    };
    either(result(core))
}

pub(super) fn srem(core: &mut Core, words: Args<'_>) -> Reply {
    if !core.has(words[1]) {
        return Reply::Int(0);
    }
    let result = |core: &mut Core| {
        let set = change(core, words[1])?;
        let removed = words[2..].iter().filter(|member| set.remove(member)).count();
        core.dirty += u64::from(removed > 0);
        Ok(Reply::count(removed))
    };
    either(result(core))
}

pub(super) fn scard(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |set| Reply::count(set.map_or(0, Set::len)))
}

pub(super) fn smembers(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |set| {
        Reply::Set(set.into_iter().flat_map(Set::iter).map(|member| Reply::Bulk(member.clone())).collect())
    })
}

pub(super) fn sismember(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |set| Reply::Int(set.is_some_and(|set| set.has(words[2])).into()))
}

pub(super) fn smismember(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |set| {
        let is = |member: &&[u8]| Reply::Int(set.is_some_and(|set| set.has(member)).into());
        Reply::Array(words[2..].iter().map(is).collect())
    })
}

pub(super) fn sscan(core: &mut Core, words: Args<'_>) -> Reply {
    let mark = core.mark;
    let cursor = match cursor(words[2]) {
        Ok(cursor) => cursor,
        Err(refused) => return refused,
    };
    read(core, words[1], |set| {
        let Some(set) = set else { return scanned(0, Vec::new()) };
        let options = match ScanOptions::read(&words[3..], false) {
            Ok(options) => options,
            Err(refused) => return refused,
        };
        let (found, next) = set.scan(cursor, mark, options.count);
        let found = found.into_iter().filter(|member| options.fits(member));
        scanned(next, found.map(|member| Reply::Bulk(member.clone())).collect())
    })
}
