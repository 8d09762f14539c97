//! The two servers, and how their answers are compared.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use dwell_simulated_redis::{Config, Time};

use crate::Failure;

/// A real server on a socket of its own, ended with this.
pub(crate) struct Server {
    process: Child,
    dir: PathBuf,
}

impl Server {
    pub(crate) fn start(program: &str) -> Result<Server, Failure> {
        let dir = std::env::temp_dir().join(format!("differential-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let mut command = Command::new(program);
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(dir.join("socket"));
        let process = command.args(["--dir"]).arg(&dir).stdout(Stdio::null()).spawn()?;
        let server = Server { process, dir };
        for _ in 0..200 {
            if UnixStream::connect(server.socket()).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        Err("the server does not answer".into())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[derive(Clone, PartialEq)]
pub(crate) enum Answer {
    Line(char, String),
    Bulk(Vec<u8>),
    Nil(char),
    List(char, Vec<Answer>),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Line(kind, text) => write!(f, "{kind}{text}"),
            Answer::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Answer::Nil(kind) => write!(f, "{kind}nil"),
            Answer::List(kind, entries) => write!(f, "{kind}{entries:?}"),
        }
    }
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        match self {
            Answer::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Answer::Line(_, text) => text.clone(),
            _ => String::new(),
        }
    }

    pub(crate) fn list(&self) -> &[Answer] {
        if let Answer::List(_, entries) = self { entries } else { &[] }
    }
}

/// Reads one answer; nothing if it is not all there.
fn parse(bytes: &[u8], at: &mut usize) -> Option<Answer> {
    let end = *at + bytes.get(*at..)?.iter().position(|byte| *byte == b'\n')?;
    let (kind, text) = (char::from(bytes[*at]), String::from_utf8_lossy(&bytes[*at + 1..end - 1]).into_owned());
    *at = end + 1;
    let count = || text.parse::<i64>().unwrap_or(0);
    Some(match kind {
        '$' | '=' if count() >= 0 => {
            let from = *at;
            *at += usize::try_from(count()).ok()? + 2;
            Answer::Bulk(bytes.get(from..*at - 2).filter(|_| bytes.len() >= *at)?.to_vec())
        }
        '*' | '~' | '>' | '%' if count() >= 0 => {
            let entries = count() * if kind == '%' { 2 } else { 1 };
            Answer::List(kind, (0..entries).map(|_| parse(bytes, at)).collect::<Option<_>>()?)
        }
        '$' | '*' | '_' => Answer::Nil(kind),
        _ => Answer::Line(kind, text),
    })
}

fn pack(words: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
    out
}

pub(crate) fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

pub(crate) struct Version {
    pub(crate) number: String,
    pub(crate) is_valkey: bool,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_valkey { "Valkey " } else { "Redis " }, self.number)
    }
}

pub(crate) struct Real {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Real {
    pub(crate) fn connect(socket: impl AsRef<Path>) -> Result<Real, Failure> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Real { stream, buffer: Vec::new() })
    }

    pub(crate) fn version(&mut self) -> Result<Version, Failure> {
        let info = self.call(&words(&["INFO", "server"]))?.text();
        let say = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned());
        // Valkey says as `redis_version` with which Redis it is compatible; how it answers depends on its own.
        let valkey = say("valkey_version:");
        let is_valkey = valkey.is_some();
        Ok(Version { number: valkey.or_else(|| say("redis_version:")).ok_or("no version")?, is_valkey })
    }

    fn next(&mut self) -> Result<Answer, Failure> {
        loop {
            let mut at = 0;
            if let Some(answer) = parse(&self.buffer, &mut at) {
                self.buffer.drain(..at);
                return Ok(answer);
            }
            let mut some = [0; 65_536];
            let count = self.stream.read(&mut some)?;
            if count == 0 {
                return Err("the server closed the connection".into());
            }
            self.buffer.extend_from_slice(&some[..count]);
        }
    }

    pub(crate) fn call(&mut self, words: &[Vec<u8>]) -> Result<Answer, Failure> {
        self.stream.write_all(&pack(words))?;
        self.next()
    }
}

pub(crate) struct Fake {
    server: dwell_simulated_redis::Server,
    session: dwell_simulated_redis::SessionId,
    listener: dwell_simulated_redis::SessionId,
    pieces: fastrand::Rng,
    is_valkey: bool,
}

/// Errors in which Valkey does not call itself Redis, as Redis and Valkey say them. The simulated one is a Redis.
const OF_VALKEY: [(&str, &str); 4] = [
    ("at least one argument for this redis lib call", "at least one argument for this call"),
    ("Unknown Redis command called", "Unknown command called"),
    ("Wrong number of args calling Redis command", "Wrong number of args calling command"),
    ("Lua redis lib command arguments must be", "Command arguments must be"),
];

fn in_words_of_valkey(answer: Answer) -> Answer {
    match answer {
        Answer::Line('-', text) => {
            Answer::Line('-', OF_VALKEY.iter().fold(text, |text, (redis, valkey)| text.replace(redis, valkey)))
        }
        other => other,
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_micros()).unwrap_or(0))
}

impl Fake {
    pub(crate) fn new(version: &Version, seed: u64) -> Fake {
        let config = Config { version: version.number.clone(), aof: None, ..Config::default() };
        let mut server = dwell_simulated_redis::Server::new(config, seed);
        let (session, listener) = (server.open(now()), server.open(now()));
        Fake { server, session, listener, pieces: fastrand::Rng::with_seed(seed), is_valkey: version.is_valkey }
    }

    fn call_as(&mut self, session: dwell_simulated_redis::SessionId, words: &[Vec<u8>]) -> Result<Answer, Failure> {
        let bytes = pack(words);
        let now = now();
        self.server.tick(now);
        // Sometimes it comes in two pieces.
        let cut = if self.pieces.u8(..10) == 0 { self.pieces.usize(..bytes.len()) } else { bytes.len() };
        self.server.receive(session, &bytes[..cut], now);
        self.server.receive(session, &bytes[cut..], now);
        let out = self.server.take_output(session);
        let mut at = 0;
        let answer = parse(&out, &mut at).ok_or("the simulated server does not answer")?;
        if at == out.len() { Ok(answer) } else { Err("more than one answer".into()) }
    }

    pub(crate) fn call(&mut self, words: &[Vec<u8>]) -> Result<Answer, Failure> {
        let answer = self.call_as(self.session, words)?;
        Ok(if self.is_valkey { in_words_of_valkey(answer) } else { answer })
    }
}

/// Both servers, with a listener at each.
pub(crate) struct Pair {
    pub(crate) real: Real,
    pub(crate) fake: Fake,
    listener: Real,
}

impl Pair {
    pub(crate) fn new(real: Real, fake: Fake, socket: PathBuf) -> Result<Pair, Failure> {
        Ok(Pair { real, fake, listener: Real::connect(socket)? })
    }

    /// Sends something to both, and does not compare.
    pub(crate) fn both(&mut self, words: &[Vec<u8>]) -> Result<Answer, Failure> {
        self.fake.call(words)?;
        self.real.call(words)
    }

    pub(crate) fn listen(&mut self, channels: &[String]) -> Result<(), Failure> {
        let hello = words(&["HELLO", "3"]);
        self.listener.call(&hello)?;
        self.fake.call_as(self.fake.listener, &hello)?;
        for channel in channels {
            let subscribe = words(&["SSUBSCRIBE", channel]);
            let (real, fake) = (self.listener.call(&subscribe)?, self.fake.call_as(self.fake.listener, &subscribe)?);
            if real != fake {
                return Err(format!("{real:?} and {fake:?}").into());
            }
        }
        Ok(())
    }

    pub(crate) fn compare(&mut self, words: &[Vec<u8>]) -> Result<(Answer, Option<String>), Failure> {
        let real = self.real.call(words)?;
        let fake = self.fake.call(words)?;
        let tolerates_time = tolerates_time(words);
        if same(&normal(words, &real), &normal(words, &fake), tolerates_time) {
            return Ok((real, None));
        }
        let shown: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        let text = format!("{shown:?}\n  real {real:?}\n  fake {fake:?}");
        Ok((real, Some(text)))
    }

    pub(crate) fn compare_announcements(&mut self) -> Result<Option<String>, Failure> {
        let ping = words(&["PING"]);
        self.listener.stream.write_all(&pack(&ping))?;
        let mut real = Vec::new();
        loop {
            match self.listener.next()? {
                Answer::Line('+', _) => break,
                heard => real.push(heard),
            }
        }
        let out = self.fake.server.take_output(self.fake.listener);
        let (mut fake, mut at) = (Vec::new(), 0);
        while let Some(heard) = parse(&out, &mut at) {
            fake.push(heard);
        }
        Ok((real != fake).then(|| format!("heard of real {real:?}\n  fake {fake:?}")))
    }

    pub(crate) fn compare_dumps(&mut self) -> Result<Option<String>, Failure> {
        let real = dump(&mut |words| self.real.call(words))?;
        let fake = dump(&mut |words| self.fake.call(words))?;
        let keys: std::collections::BTreeSet<_> = real.keys().chain(fake.keys()).collect();
        let differ = keys.into_iter().find(|key| real.get(*key) != fake.get(*key));
        Ok(differ.map(|key| format!("key {key}\n  real {:?}\n  fake {:?}", real.get(key), fake.get(key))))
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.both(&words(&["FLUSHALL"])).map(drop)
    }
}

fn dump(call: &mut impl FnMut(&[Vec<u8>]) -> Result<Answer, Failure>) -> Result<BTreeMap<String, String>, Failure> {
    let mut found = BTreeMap::new();
    for key in call(&words(&["KEYS", "*"]))?.list() {
        let key = key.text();
        let kind = call(&words(&["TYPE", &key]))?.text();
        let read: &[&str] = match &*kind {
            "string" => &["GET", &key],
            "hash" => &["HGETALL", &key],
            "set" => &["SMEMBERS", &key],
            "zset" => &["ZRANGE", &key, "0", "-1", "WITHSCORES"],
            _ => continue,
        };
        let content = normal(&words(read), &call(&words(read))?);
        let expires = call(&words(&["PTTL", &key]))?.text() != "-1";
        // A scan meets everything.
        let mut scanned = Vec::new();
        if let Some(scan) =
            ["hash", "set", "zset"].iter().zip(["HSCAN", "SSCAN", "ZSCAN"]).find(|(name, _)| **name == kind)
        {
            let mut cursor = "0".to_owned();
            loop {
                let page = call(&words(&[scan.1, &key, &cursor, "COUNT", "7"]))?;
                scanned.extend(
                    page.list()
                        .get(1)
                        .map(Answer::list)
                        .unwrap_or_default()
                        .chunks(if kind == "set" { 1 } else { 2 })
                        .map(|entry| format!("{entry:?}")),
                );
                cursor = page.list().first().map(Answer::text).unwrap_or_default();
                if cursor == "0" {
                    break;
                }
            }
            scanned.sort();
            scanned.dedup();
        }
        found.insert(key, format!("{kind} {expires} {content:?} {scanned:?}"));
    }
    Ok(found)
}

fn tolerates_time(words: &[Vec<u8>]) -> bool {
    let name = words[0].to_ascii_uppercase();
    name.ends_with(b"TTL") || name.ends_with(b"TIME") || name.starts_with(b"EVAL")
}

/// Without what is not specified: the order of sets and hashes, and cursors other than 0.
fn normal(words: &[Vec<u8>], answer: &Answer) -> Answer {
    let name = String::from_utf8_lossy(&words[0]).to_uppercase();
    let sorted = |entries: &[Answer], step: usize| {
        let mut groups: Vec<String> = entries.chunks(step).map(|group| format!("{group:?}")).collect();
        groups.sort();
        groups.into_iter().map(|group| Answer::Bulk(group.into_bytes())).collect::<Vec<_>>()
    };
    match (&*name, answer) {
        ("SMEMBERS" | "HKEYS" | "HVALS" | "KEYS", Answer::List(kind, entries)) => {
            Answer::List(*kind, sorted(entries, 1))
        }
        ("HGETALL", Answer::List(kind, entries)) => Answer::List(*kind, sorted(entries, 2)),
        ("HSCAN" | "ZSCAN", Answer::List(kind, entries)) if entries.len() == 2 => {
            Answer::List(*kind, sorted(entries[1].list(), 2))
        }
        ("SSCAN" | "SCAN", Answer::List(kind, entries)) if entries.len() == 2 => {
            Answer::List(*kind, sorted(entries[1].list(), 1))
        }
        _ => answer.clone(),
    }
}

fn same(real: &Answer, fake: &Answer, tolerates_time: bool) -> bool {
    match (real, fake) {
        (Answer::List(kind, some), Answer::List(other, others)) => {
            kind == other
                && some.len() == others.len()
                && some.iter().zip(others).all(|(real, fake)| same(real, fake, tolerates_time))
        }
        (Answer::Line(':', real), Answer::Line(':', fake)) if tolerates_time && real != fake => {
            let (real, fake) = (real.parse().unwrap_or(0_i64), fake.parse().unwrap_or(0_i64));
            real > 100 && (real - fake).abs() < 1_500
        }
        _ => real == fake,
    }
}
