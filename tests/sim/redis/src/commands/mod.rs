//! The commands: their table, and how one is executed on the data.

mod hashes;
mod keys;
mod server;
mod sets;
mod strings;
mod zsets;

use std::collections::HashMap;
use std::sync::LazyLock;

use rustc_hash::FxBuildHasher;

use crate::core::Core;
use crate::resp::{Bytes, Reply};
use crate::value::int;

pub(crate) type Args<'a> = &'a [&'a [u8]];
pub(crate) type Handler = fn(&mut Core, Args<'_>) -> Reply;

#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// On the data alone: scripts may call it.
    Data(Handler),
    /// On the session: the server does it.
    Session,
}

pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Words with the name; at least so many if negative.
    arity: i32,
    flags: u16,
    /// The first key, the last one (negative: from the end), and the step between them; 0 for none.
    keys: (usize, i32, usize),
    pub(crate) run: Run,
}

pub(crate) const WRITE: u16 = 1;
pub(crate) const DENY_OOM: u16 = 2;
pub(crate) const NO_SCRIPT: u16 = 4;
pub(crate) const LOADING: u16 = 8;
pub(crate) const STALE: u16 = 16;
pub(crate) const ALLOW_BUSY: u16 = 32;
pub(crate) const NO_AUTH: u16 = 64;
/// Refused to scripts that only read, like a write.
pub(crate) const MAY_REPLICATE: u16 = 128;

const FULL: u16 = WRITE | DENY_OOM;
const ALWAYS: u16 = LOADING | STALE;

type Row = (&'static str, i32, u16, (usize, i32, usize), Run);

const DATA: &[Row] = &[
    ("APPEND", 3, FULL, (1, 1, 1), Run::Data(strings::append)),
    ("DBSIZE", 1, 0, (0, 0, 0), Run::Data(keys::dbsize)),
    ("DECR", 2, FULL, (1, 1, 1), Run::Data(strings::decr)),
    ("DECRBY", 3, FULL, (1, 1, 1), Run::Data(strings::decrby)),
    ("DEL", -2, WRITE, (1, -1, 1), Run::Data(keys::del)),
    ("DUMP", 2, 0, (1, 1, 1), Run::Data(keys::dump)),
    ("ECHO", 2, ALWAYS, (0, 0, 0), Run::Data(server::echo)),
    ("EXISTS", -2, 0, (1, -1, 1), Run::Data(keys::exists)),
    ("EXPIRE", -3, WRITE, (1, 1, 1), Run::Data(keys::expire)),
    ("EXPIREAT", -3, WRITE, (1, 1, 1), Run::Data(keys::expireat)),
    ("EXPIRETIME", 2, 0, (1, 1, 1), Run::Data(keys::expiretime)),
    ("FLUSHALL", -1, WRITE, (0, 0, 0), Run::Data(keys::flushall)),
    ("FLUSHDB", -1, WRITE, (0, 0, 0), Run::Data(keys::flushall)),
    ("GET", 2, 0, (1, 1, 1), Run::Data(strings::get)),
    ("GETDEL", 2, WRITE, (1, 1, 1), Run::Data(strings::getdel)),
    ("GETRANGE", 4, 0, (1, 1, 1), Run::Data(strings::getrange)),
    ("GETSET", 3, FULL, (1, 1, 1), Run::Data(strings::getset)),
    ("HDEL", -3, WRITE, (1, 1, 1), Run::Data(hashes::hdel)),
    ("HEXISTS", 3, 0, (1, 1, 1), Run::Data(hashes::hexists)),
    ("HGET", 3, 0, (1, 1, 1), Run::Data(hashes::hget)),
    ("HGETALL", 2, 0, (1, 1, 1), Run::Data(hashes::hgetall)),
    ("HINCRBY", 4, FULL, (1, 1, 1), Run::Data(hashes::hincrby)),
    ("HKEYS", 2, 0, (1, 1, 1), Run::Data(hashes::hkeys)),
    ("HLEN", 2, 0, (1, 1, 1), Run::Data(hashes::hlen)),
    ("HMGET", -3, 0, (1, 1, 1), Run::Data(hashes::hmget)),
    ("HMSET", -4, FULL, (1, 1, 1), Run::Data(hashes::hmset)),
    ("HSCAN", -3, 0, (1, 1, 1), Run::Data(hashes::hscan)),
    ("HSET", -4, FULL, (1, 1, 1), Run::Data(hashes::hset)),
    ("HSETNX", 4, FULL, (1, 1, 1), Run::Data(hashes::hsetnx)),
    ("HSTRLEN", 3, 0, (1, 1, 1), Run::Data(hashes::hstrlen)),
    ("HVALS", 2, 0, (1, 1, 1), Run::Data(hashes::hvals)),
    ("INCR", 2, FULL, (1, 1, 1), Run::Data(strings::incr)),
    ("INCRBY", 3, FULL, (1, 1, 1), Run::Data(strings::incrby)),
    ("INFO", -1, ALWAYS, (0, 0, 0), Run::Data(server::info)),
    ("KEYS", 2, 0, (0, 0, 0), Run::Data(keys::keys)),
    ("LASTSAVE", 1, ALWAYS, (0, 0, 0), Run::Data(server::lastsave)),
    ("MGET", -2, 0, (1, -1, 1), Run::Data(strings::mget)),
    ("MSET", -3, FULL, (1, -1, 2), Run::Data(strings::mset)),
    ("PERSIST", 2, WRITE, (1, 1, 1), Run::Data(keys::persist)),
    ("PEXPIRE", -3, WRITE, (1, 1, 1), Run::Data(keys::pexpire)),
    ("PEXPIREAT", -3, WRITE, (1, 1, 1), Run::Data(keys::pexpireat)),
    ("PEXPIRETIME", 2, 0, (1, 1, 1), Run::Data(keys::pexpiretime)),
    ("PSETEX", 4, FULL, (1, 1, 1), Run::Data(strings::psetex)),
    ("PTTL", 2, 0, (1, 1, 1), Run::Data(keys::pttl)),
    ("PUBLISH", 3, ALWAYS | MAY_REPLICATE, (0, 0, 0), Run::Data(server::publish)),
    ("PUBSUB", -2, ALWAYS, (0, 0, 0), Run::Data(server::pubsub)),
    ("RENAME", 3, WRITE, (1, 2, 1), Run::Data(keys::rename)),
    ("RESTORE", -4, FULL, (1, 1, 1), Run::Data(keys::restore)),
    ("ROLE", 1, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Data(server::role)),
    ("SADD", -3, FULL, (1, 1, 1), Run::Data(sets::sadd)),
    ("SCAN", -2, 0, (0, 0, 0), Run::Data(keys::scan)),
    ("SCARD", 2, 0, (1, 1, 1), Run::Data(sets::scard)),
    ("SET", -3, FULL, (1, 1, 1), Run::Data(strings::set)),
    ("SETEX", 4, FULL, (1, 1, 1), Run::Data(strings::setex)),
    ("SETNX", 3, FULL, (1, 1, 1), Run::Data(strings::setnx)),
    ("SETRANGE", 4, FULL, (1, 1, 1), Run::Data(strings::setrange)),
    ("SISMEMBER", 3, 0, (1, 1, 1), Run::Data(sets::sismember)),
    ("SMEMBERS", 2, 0, (1, 1, 1), Run::Data(sets::smembers)),
    ("SMISMEMBER", -3, 0, (1, 1, 1), Run::Data(sets::smismember)),
    ("SPUBLISH", 3, ALWAYS | MAY_REPLICATE, (1, 1, 1), Run::Data(server::spublish)),
    ("SREM", -3, WRITE, (1, 1, 1), Run::Data(sets::srem)),
    ("SSCAN", -3, 0, (1, 1, 1), Run::Data(sets::sscan)),
    ("STRLEN", 2, 0, (1, 1, 1), Run::Data(strings::strlen)),
    ("TIME", 1, ALWAYS, (0, 0, 0), Run::Data(server::time)),
    ("TTL", 2, 0, (1, 1, 1), Run::Data(keys::ttl)),
    ("TYPE", 2, 0, (1, 1, 1), Run::Data(keys::kind)),
    ("UNLINK", -2, WRITE, (1, -1, 1), Run::Data(keys::del)),
    ("ZADD", -4, FULL, (1, 1, 1), Run::Data(zsets::zadd)),
    ("ZCARD", 2, 0, (1, 1, 1), Run::Data(zsets::zcard)),
    ("ZCOUNT", 4, 0, (1, 1, 1), Run::Data(zsets::zcount)),
    ("ZINCRBY", 4, FULL, (1, 1, 1), Run::Data(zsets::zincrby)),
    ("ZLEXCOUNT", 4, 0, (1, 1, 1), Run::Data(zsets::zlexcount)),
    ("ZMSCORE", -3, 0, (1, 1, 1), Run::Data(zsets::zmscore)),
    ("ZPOPMAX", -2, WRITE, (1, 1, 1), Run::Data(zsets::zpopmax)),
    ("ZPOPMIN", -2, WRITE, (1, 1, 1), Run::Data(zsets::zpopmin)),
    ("ZRANGE", -4, 0, (1, 1, 1), Run::Data(zsets::zrange)),
    ("ZRANGEBYLEX", -4, 0, (1, 1, 1), Run::Data(zsets::zrangebylex)),
    ("ZRANGEBYSCORE", -4, 0, (1, 1, 1), Run::Data(zsets::zrangebyscore)),
    ("ZRANK", -3, 0, (1, 1, 1), Run::Data(zsets::zrank)),
    ("ZREM", -3, WRITE, (1, 1, 1), Run::Data(zsets::zrem)),
    ("ZREMRANGEBYLEX", 4, WRITE, (1, 1, 1), Run::Data(zsets::zremrangebylex)),
    ("ZREMRANGEBYRANK", 4, WRITE, (1, 1, 1), Run::Data(zsets::zremrangebyrank)),
    ("ZREMRANGEBYSCORE", 4, WRITE, (1, 1, 1), Run::Data(zsets::zremrangebyscore)),
    ("ZREVRANGE", -4, 0, (1, 1, 1), Run::Data(zsets::zrevrange)),
    ("ZREVRANGEBYSCORE", -4, 0, (1, 1, 1), Run::Data(zsets::zrevrangebyscore)),
    ("ZREVRANK", -3, 0, (1, 1, 1), Run::Data(zsets::zrevrank)),
    ("ZSCAN", -3, 0, (1, 1, 1), Run::Data(zsets::zscan)),
    ("ZSCORE", 3, 0, (1, 1, 1), Run::Data(zsets::zscore)),
];

const SESSION: &[Row] = &[
    ("ACL", -2, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("ASKING", 1, NO_SCRIPT, (0, 0, 0), Run::Session),
    ("AUTH", -2, ALWAYS | NO_SCRIPT | ALLOW_BUSY | NO_AUTH, (0, 0, 0), Run::Session),
    ("BGREWRITEAOF", 1, NO_SCRIPT, (0, 0, 0), Run::Session),
    ("BGSAVE", -1, NO_SCRIPT, (0, 0, 0), Run::Session),
    ("CLIENT", -2, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("CLUSTER", -2, STALE | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("COMMAND", -1, ALWAYS, (0, 0, 0), Run::Session),
    ("CONFIG", -2, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("DISCARD", 1, ALWAYS | NO_SCRIPT | ALLOW_BUSY, (0, 0, 0), Run::Session),
    ("EVAL", -3, STALE | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("EVALSHA", -3, STALE | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("EVALSHA_RO", -3, STALE | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("EVAL_RO", -3, STALE | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("EXEC", 1, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("HELLO", -1, ALWAYS | NO_SCRIPT | ALLOW_BUSY | NO_AUTH, (0, 0, 0), Run::Session),
    ("LATENCY", -2, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("MEMORY", -2, 0, (0, 0, 0), Run::Session),
    ("MULTI", 1, ALWAYS | NO_SCRIPT | ALLOW_BUSY, (0, 0, 0), Run::Session),
    ("PING", -1, 0, (0, 0, 0), Run::Session),
    ("PSUBSCRIBE", -2, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("PUNSUBSCRIBE", -1, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("QUIT", -1, ALWAYS | NO_SCRIPT | ALLOW_BUSY | NO_AUTH, (0, 0, 0), Run::Session),
    ("READONLY", 1, ALWAYS, (0, 0, 0), Run::Session),
    ("READWRITE", 1, ALWAYS, (0, 0, 0), Run::Session),
    ("REPLICAOF", 3, STALE | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("RESET", 1, ALWAYS | NO_SCRIPT | ALLOW_BUSY | NO_AUTH, (0, 0, 0), Run::Session),
    ("SCRIPT", -2, NO_SCRIPT, (0, 0, 0), Run::Session),
    ("SELECT", 2, ALWAYS, (0, 0, 0), Run::Session),
    ("SENTINEL", -2, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("SLOWLOG", -2, ALWAYS, (0, 0, 0), Run::Session),
    ("SSUBSCRIBE", -2, ALWAYS | NO_SCRIPT, (1, -1, 1), Run::Session),
    ("SUBSCRIBE", -2, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("SUNSUBSCRIBE", -1, ALWAYS | NO_SCRIPT, (1, -1, 1), Run::Session),
    ("UNSUBSCRIBE", -1, ALWAYS | NO_SCRIPT, (0, 0, 0), Run::Session),
    ("UNWATCH", 1, ALWAYS | NO_SCRIPT | ALLOW_BUSY, (0, 0, 0), Run::Session),
    ("WAIT", 3, NO_SCRIPT, (0, 0, 0), Run::Session),
    ("WAITAOF", 4, NO_SCRIPT, (0, 0, 0), Run::Session),
    ("WATCH", -2, ALWAYS | NO_SCRIPT | ALLOW_BUSY, (1, -1, 1), Run::Session),
];

static COMMANDS: LazyLock<HashMap<&'static [u8], Spec, FxBuildHasher>> = LazyLock::new(|| {
    let spec = |(name, arity, flags, keys, run): &Row| {
        (name.as_bytes(), Spec { name, arity: *arity, flags: *flags, keys: *keys, run: *run })
    };
    DATA.iter().chain(SESSION).map(spec).collect()
});

impl Spec {
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn flags(&self) -> u16 {
        self.flags
    }

    pub(crate) fn fits(&self, words: usize) -> bool {
        let words = i32::try_from(words).unwrap_or(i32::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// The keys among the words of a command.
    pub(crate) fn keys<'a>(&self, words: Args<'a>) -> Vec<&'a [u8]> {
        if matches!(self.name, "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO") {
            let count = words.get(2).and_then(|count| int(count)).and_then(|count| usize::try_from(count).ok());
            return words.iter().skip(3).take(count.unwrap_or(0)).copied().collect();
        }
        let (first, last, step) = self.keys;
        if first == 0 {
            return Vec::new();
        }
        let end = match usize::try_from(last) {
            Ok(last) => last + 1,
            Err(_) => words.len(),
        };
        words.iter().take(end).skip(first).step_by(step).copied().collect()
    }
}

/// The command of a name, in whatever case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    if let Some(spec) = COMMANDS.get(name) {
        return Some(spec);
    }
    COMMANDS.get(&*name.to_ascii_uppercase())
}

/// Executes a command that the state of the server does not refuse.
pub(crate) fn execute(core: &mut Core, spec: &Spec, handler: Handler, words: Args<'_>) -> Reply {
    core.stats.commands += 1;
    let before = core.dirty;
    let reply = handler(core, words);
    if spec.flags & WRITE != 0 {
        let (first, last, step) = spec.keys;
        if first == 1 && last == 1 {
            core.data.account(words[1]);
        } else if first > 0 {
            let _ = (last, step);
            spec.keys(words).iter().for_each(|key| core.data.account(key));
        }
    }
    if core.dirty != before {
        core.record(words);
    } else {
        core.effect = None;
    }
    reply
}

/// Executes an effect of the primary, or of the append-only file.
pub(crate) fn apply(core: &mut Core, words: &[Bytes]) {
    let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
    let Some((spec, Run::Data(handler))) = words.first().and_then(|name| find(name)).map(|spec| (spec, spec.run))
    else {
        return;
    };
    let was = std::mem::replace(&mut core.is_applying, true);
    execute(core, spec, handler, &words);
    core.is_applying = was;
}

/// What DUMP answers for a key.
pub(crate) fn dump_of(core: &mut Core, key: &[u8]) -> Reply {
    keys::dump(core, &[b"DUMP", key])
}

pub(crate) const NOT_AN_INTEGER: Reply =
    Reply::Error(std::borrow::Cow::Borrowed("ERR value is not an integer or out of range"));
pub(crate) const NOT_A_FLOAT: Reply = Reply::Error(std::borrow::Cow::Borrowed("ERR value is not a valid float"));
pub(crate) const SYNTAX: Reply = Reply::Error(std::borrow::Cow::Borrowed("ERR syntax error"));

pub(crate) fn wrong_arity(name: &str) -> Reply {
    Reply::error_of(format!("ERR wrong number of arguments for '{}' command", name.to_lowercase()))
}

/// Either of a result.
pub(crate) fn either(result: Result<Reply, Reply>) -> Reply {
    result.unwrap_or_else(|refused| refused)
}

pub(crate) fn is(word: &[u8], text: &str) -> bool {
    word.eq_ignore_ascii_case(text.as_bytes())
}

pub(crate) fn to_int(word: &[u8]) -> Result<i64, Reply> {
    int(word).ok_or(NOT_AN_INTEGER)
}

/// The part of a row of `count` that Redis means by two places, of which negative ones count from the end.
pub(crate) fn places(start: i64, stop: i64, count: usize) -> std::ops::Range<usize> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let from_end = |place: i64| if place < 0 { (count + place).max(0) } else { place };
    let (start, stop) = (from_end(start), if stop < 0 { count + stop } else { stop.min(count - 1) });
    if start > stop || start >= count {
        return 0..0;
    }
    usize::try_from(start).unwrap_or(0)..usize::try_from(stop + 1).unwrap_or(0)
}

/// The options of a scan behind the cursor: pattern and count.
pub(crate) struct ScanOptions<'a> {
    pub(crate) pattern: Option<&'a [u8]>,
    pub(crate) count: usize,
    pub(crate) kind: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    pub(crate) fn read(words: Args<'a>, allows_kind: bool) -> Result<ScanOptions<'a>, Reply> {
        let mut options = ScanOptions { pattern: None, count: 10, kind: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or(SYNTAX)?;
            if is(word, "MATCH") {
                options.pattern = Some(value);
            } else if is(word, "COUNT") {
                let count = to_int(value)?;
                options.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            } else if is(word, "TYPE") && allows_kind {
                options.kind = Some(value);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    pub(crate) fn fits(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| crate::pubsub::matches(pattern, name))
    }
}

pub(crate) fn cursor(word: &[u8]) -> Result<u64, Reply> {
    let text = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    text.ok_or(Reply::error("ERR invalid cursor"))
}

pub(crate) fn scanned(next: u64, found: Vec<Reply>) -> Reply {
    Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(found)])
}
