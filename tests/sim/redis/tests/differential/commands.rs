//! Random commands, right and wrong ones, on a few keys.

use fastrand::Rng;

fn pick<'a>(random: &mut Rng, from: &[&'a str]) -> &'a str {
    from[random.usize(..from.len())]
}

/// Commands with the kinds of their words: k key, K key of members with equal scores, f field, s score, n number, v value, b score bound, l lexical bound, and
/// words of their own; the words behind `|` repeat.
const COMMANDS: [&str; 100] = [
    "GET k",
    "SET k v",
    "SET k v NX",
    "SET k v XX",
    "SET k v GET",
    "SET k v PX 100000",
    "SET k v EX 1000 NX GET",
    "SET k v KEEPTTL",
    "SET k v PX n",
    "SET k v PX 100000 KEEPTTL",
    "SETNX k v",
    "GETDEL k",
    "GETSET k v",
    "STRLEN k",
    "APPEND k v",
    "GETRANGE k n n",
    "SETRANGE k 7 v",
    "SETRANGE k -1 v",
    "INCR k",
    "DECR k",
    "INCRBY k n",
    "DECRBY k n",
    "MGET | k",
    "MSET | k v",
    "SETEX k 1000 v",
    "PSETEX k 100000 v",
    "DEL | k",
    "UNLINK | k",
    "EXISTS | k",
    "TYPE k",
    "PTTL k",
    "TTL k",
    "PERSIST k",
    "PEXPIRE k 100000",
    "PEXPIRE k n",
    "EXPIRE k 1000 NX",
    "EXPIRE k 500 GT",
    "PEXPIRE k 200000 LT",
    "PEXPIRE k 300000 XX",
    "PEXPIREAT k n",
    "RENAME k k",
    "HSET k | f v",
    "HSET k f",
    "HMSET k | f v",
    "HSETNX k f v",
    "HGET k f",
    "HMGET k | f",
    "HGETALL k",
    "HKEYS k",
    "HVALS k",
    "HLEN k",
    "HEXISTS k f",
    "HDEL k | f",
    "HINCRBY k f n",
    "HSTRLEN k f",
    "HSCAN k 0 COUNT 1000",
    "HSCAN k 0 MATCH f1* COUNT 1000",
    "SADD k | f",
    "SREM k | f",
    "SCARD k",
    "SMEMBERS k",
    "SISMEMBER k f",
    "SMISMEMBER k | f",
    "ZADD k | s f",
    "ZADD k NX | s f",
    "ZADD k XX CH | s f",
    "ZADD k GT CH s f",
    "ZADD k LT s f",
    "ZADD k INCR s f",
    "ZADD k GT LT s f",
    "ZINCRBY k s f",
    "ZREM k | f",
    "ZSCORE k f",
    "ZMSCORE k | f",
    "ZCARD k",
    "ZRANK k f",
    "ZREVRANK k f",
    "ZCOUNT k b b",
    "ZLEXCOUNT K l l",
    "ZRANGE k n n",
    "ZRANGE k n n WITHSCORES",
    "ZRANGE k n n REV WITHSCORES",
    "ZRANGE k b b BYSCORE WITHSCORES",
    "ZRANGE k b b BYSCORE REV LIMIT n n",
    "ZRANGE K l l BYLEX LIMIT n n",
    "ZRANGE K l l BYLEX REV",
    "ZRANGEBYSCORE k b b WITHSCORES LIMIT n n",
    "ZREVRANGEBYSCORE k b b",
    "ZREVRANGE k n n",
    "ZRANGEBYLEX K l l",
    "ZREMRANGEBYRANK k n n",
    "ZREMRANGEBYSCORE k b b",
    "ZREMRANGEBYLEX K l l",
    "ZPOPMIN k n",
    "ZPOPMAX k",
    "ZSCAN k 0 COUNT 1000",
    "ECHO v",
    "LUA",
    "ZADD K | 0 f",
    "ZADD K | 0 f",
];

const LUA: [&str; 30] = [
    "return redis.call('GET', KEYS[1])",
    "return {redis.call('SET', KEYS[1], ARGV[1]), 1.9, -1.9, true, false, nil, 3}",
    "return redis.call('HGETALL', KEYS[1])[1] == nil",
    "return redis.pcall('ZSCORE', KEYS[1], ARGV[1])",
    "return redis.call('ZADD', KEYS[1], 1 / 2048, ARGV[1])",
    "return redis.call('ZADD', KEYS[1], 1700000000000 + 5 / 2048, ARGV[1], 1e15, 'a', 0.1, 'b', 3.0, 'c')",
    "return redis.error_reply('My error')",
    "return redis.error_reply('-MYERR')",
    "return redis.error_reply('MYERR')",
    "return redis.status_reply('FINE')",
    "return redis.sha1hex('a')",
    "return {err='TABLE text'}",
    "return {ok='TABLE'}",
    "error('a thrown text')",
    "error({err='ERR a thrown table'})",
    "return nothing",
    "nothing = 1",
    "local a = nil; return a.b",
    "return redis.call('NOSUCH', 1)",
    "return redis.call('GET')",
    "return redis.call('GET', KEYS[1], {})",
    "return redis.call()",
    "return redis.call('SUBSCRIBE', 'a')",
    "#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 1)",
    "#!lua flags=no-writes\nreturn redis.pcall('SPUBLISH', KEYS[1], 1)",
    "#!lua flags=wrong\nreturn 1",
    "#!python\nreturn 1",
    "return {struct.pack('>I6', 1700000000000), struct.pack('<i2', -2), struct.unpack('>I7', '\\0\\1\\2\\3\\4\\5\\6')}",
    "local t = cjson.decode('{\"a\": [1, 2.5, null, true], \"b\": {\"c\": \"d\"}}'); return {t.a[1], t.a[2] * 10, t.a[4], t.b.c, #t.a}",
    "redis.setresp(3); local t = redis.call('HGETALL', KEYS[1]); return {type(t), redis.call('ZSCORE', KEYS[1], 'f1')}",
];

pub(crate) fn any(random: &mut Rng) -> Vec<Vec<u8>> {
    let template = pick(random, &COMMANDS);
    if template == "LUA" {
        let count = random.usize(1..3).to_string();
        let mut words = vec!["EVAL", pick(random, &LUA), &count];
        let more: Vec<String> = (0..4).map(|_| word(random, "k")).collect();
        words.extend(more.iter().map(String::as_str));
        return words.into_iter().map(|word| word.as_bytes().to_vec()).collect();
    }
    let (once, repeated) = template.split_once('|').unwrap_or((template, ""));
    let mut words: Vec<String> = once.split_ascii_whitespace().map(|kind| word(random, kind)).collect();
    if !repeated.is_empty() {
        for _ in 0..random.usize(1..4) {
            words.extend(repeated.split_ascii_whitespace().map(|kind| word(random, kind)));
        }
    }
    match random.u32(..60) {
        0 => words.push("extra".to_owned()),
        1 => drop(words.pop()),
        2 => words[0] = words[0].to_lowercase(),
        _ => {}
    }
    if words.is_empty() {
        words.push("PING".to_owned());
    }
    words.into_iter().map(String::into_bytes).collect()
}

fn word(random: &mut Rng, kind: &str) -> String {
    match kind {
        "k" => format!("k{}", random.u32(..12)),
        // All scores of these are equal.
        "K" => format!("l{}", random.u32(..3)),
        "f" => match random.u32(..20) {
            0 => String::new(),
            1 => "x".repeat(70),
            _ => format!("f{}", random.u32(..30)),
        },
        "v" => match random.u32(..12) {
            0 => String::new(),
            1 => "long ".repeat(20),
            2..6 => random.i32(-20..20).to_string(),
            _ => format!("value{}", random.u32(..9)),
        },
        "s" => match random.u32(..16) {
            0 => "inf".to_owned(),
            1 => "-inf".to_owned(),
            2 => "nan".to_owned(),
            3 => "word".to_owned(),
            4 => format!("{}", random.f64()),
            5 => format!("{}.5", random.u32(..9)),
            6 => format!("17000000000{}.00048828125", random.u32(10..99)),
            7 => "1e3".to_owned(),
            _ => random.i32(-5..10).to_string(),
        },
        "n" => match random.u32(..16) {
            0 => "word".to_owned(),
            1 => "9223372036854775807".to_owned(),
            2 => "007".to_owned(),
            3 => "".to_owned(),
            _ => random.i32(-6..8).to_string(),
        },
        "b" => match random.u32(..9) {
            0 => "-inf".to_owned(),
            1 => "+inf".to_owned(),
            2 => "word".to_owned(),
            3..5 => format!("({}", random.i32(-5..10)),
            _ => random.i32(-5..10).to_string(),
        },
        "l" => match random.u32(..9) {
            0 => "-".to_owned(),
            1 => "+".to_owned(),
            2 => "word".to_owned(),
            3..6 => format!("(f{}", random.u32(..30)),
            _ => format!("[f{}", random.u32(..30)),
        },
        other => other.to_owned(),
    }
}
