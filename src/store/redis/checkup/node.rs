//! What one Redis says about itself.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, Value};

use super::super::address::Address;
use super::super::info::{has_waitaof, is_new_enough, refused_commands};
use super::super::keys::Keys;
use super::super::reply::{Reply, text};
use super::super::scripts::{Call, SCRIPTS};
use super::super::{RedisOptions, failure};
use super::{Outcome, answer};
use crate::model::error::{Error, Result};
use crate::platform::clock::Clock;

/// PINGs that are sent, one after the other.
const PINGS: usize = 50;

/// Times that the clock is asked for; the one with the shortest way counts.
const CLOCK_LOOKS: usize = 5;

/// Entries of the slow log that are looked at.
const SLOW_MAX: usize = 128;

/// Bytes of a slow command that are kept.
const COMMAND_BYTES: usize = 120;

/// The settings that matter to dwell.
const SETTINGS: [&str; 10] = [
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "timeout",
    "tcp-keepalive",
    "client-output-buffer-limit",
    "cluster-require-full-coverage",
    "min-replicas-to-write",
    "disable-thp",
    "latency-monitor-threshold",
    "slowlog-log-slower-than",
];

/// What a Redis says about itself. What its user may not ask for is absent.
#[derive(Debug)]
pub struct NodeFacts {
    /// The fields of INFO.
    pub info: BTreeMap<String, String>,
    /// The settings that matter, as CONFIG GET says them.
    pub settings: Option<BTreeMap<String, String>>,
    /// Whether the user `default` may do everything, even if nobody can log in as it: Redis reads its append-only file as
    /// this user, and passes over every script that it may not run.
    pub reads_all: Option<bool>,
    /// What the user may not do and has to, as in `hset on dwell:id`; or why that cannot be seen.
    pub refused: Result<Vec<String>>,
    /// Why announcements are not heard, if they are not.
    pub deaf: Option<Error>,
    /// How long single PINGs took.
    pub pings: Vec<Duration>,
    /// Microseconds by which its clock is ahead of this machine's; zero where the difference may be the way there and back.
    pub ahead_us: Option<i64>,
    /// Its time, Unix seconds.
    pub now_s: Option<u64>,
    /// What its latency monitor saw last, of each kind.
    pub stalls: Option<Vec<Stall>>,
    /// The newest entries of its slow log.
    pub slow: Option<Vec<SlowCall>>,
}

/// What the latency monitor of Redis saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// What stood still, as in `aof-fsync-always`.
    pub event: String,
    /// When it did last, Unix seconds.
    pub at_s: u64,
    /// How long then, ms.
    pub last_ms: u64,
    /// How long at most, ms.
    pub max_ms: u64,
}

/// An entry of the slow log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowCall {
    /// When it ran, Unix seconds.
    pub at_s: u64,
    /// How long, microseconds; nothing else ran meanwhile.
    pub took_us: u64,
    /// Its words, cut.
    pub command: String,
}

impl NodeFacts {
    /// Looks at a Redis that let somebody in. # Errors: it does not even answer INFO.
    pub(super) async fn of(
        address: &Address,
        connection: &mut MultiplexedConnection,
        options: &RedisOptions,
    ) -> std::result::Result<NodeFacts, Outcome> {
        let info = answer(connection, &redis::cmd("INFO")).await?;
        let keys = Keys::new(&options.prefix);
        let (ahead_us, now_s) = clock(connection).await.map_or((None, None), |(us, s)| (Some(us), Some(s)));
        Ok(NodeFacts {
            info: fields(&text(info).map_err(Outcome::Refused)?),
            settings: settings(connection).await,
            reads_all: reads_all(connection).await.ok(),
            refused: refused(connection, &keys).await,
            deaf: hears(address, &keys).await.err(),
            pings: pings(connection, options.timeout).await,
            ahead_us,
            now_s,
            stalls: stalls(connection).await.ok(),
            slow: slow_calls(connection).await.ok(),
        })
    }

    /// Whether it has what dwell needs.
    pub fn is_new_enough(&self) -> bool {
        is_new_enough(self.field("redis_version"))
    }

    /// Whether it can say when it has fsynced a write.
    pub fn has_waitaof(&self) -> bool {
        has_waitaof(self.field("redis_version"))
    }

    /// A field of INFO; empty when it is not there.
    pub fn field(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    /// A field of INFO that is a number; 0 when it is not there.
    pub fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or(0)
    }

    /// A setting, if it may be seen.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }
}

/// What a command is answered. # Errors: it was refused, or not answered.
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value> {
    match connection.send_packed_command(command).await {
        Ok(Value::ServerError(error)) => Err(failure::of_connecting(&error.into())),
        Ok(value) => Ok(value),
        Err(error) => Err(failure::of_greeting(&error)),
    }
}

fn fields(info: &str) -> BTreeMap<String, String> {
    let field = |line: &str| line.trim_end().split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    info.lines().filter_map(field).collect()
}

async fn settings(connection: &mut MultiplexedConnection) -> Option<BTreeMap<String, String>> {
    let mut get = redis::cmd("CONFIG");
    get.arg("GET").arg(&SETTINGS);
    let mut reply = Reply::of(ask(connection, &get).await.ok()?).ok()?;
    let mut settings = BTreeMap::new();
    while reply.left() > 1 {
        settings.insert(reply.text().ok()?, reply.text().ok()?);
    }
    Some(settings)
}

async fn reads_all(connection: &mut MultiplexedConnection) -> Result<bool> {
    let mut reply = Reply::of(ask(connection, redis::cmd("ACL").arg(&["GETUSER", "default"])).await?)?;
    let mut rules = BTreeMap::new();
    while reply.left() > 1 {
        // Flags and passwords are lists.
        if let (name, Ok(rule)) = (reply.text()?, text(reply.value()?)) {
            rules.insert(name, rule);
        }
    }
    let is = |name: &str, all: &str| rules.get(name).is_some_and(|rule| rule == all);
    Ok(is("commands", "+@all") && is("keys", "~*") && is("channels", "&*"))
}

/// Looks with the script that looks on each new connection of a broker.
async fn refused(connection: &mut MultiplexedConnection, keys: &Keys) -> Result<Vec<String>> {
    let permits = Call::new(&SCRIPTS.permits, &[]).arg(keys.store_id()).arg(keys.any_of_a_partition());
    ask(connection, &SCRIPTS.permits.load()).await?;
    let mut refused = refused_commands(ask(connection, &permits.command).await?)?;
    for name in ["PING", "TIME", "DBSIZE"] {
        if ask(connection, &redis::cmd(name)).await.is_err_and(|error| error.detail().contains("NOPERM")) {
            refused.push(name.to_lowercase());
        }
    }
    Ok(refused)
}

/// Listens for a moment where announcements come from. # Errors: that is not permitted, or fails.
async fn hears(address: &Address, keys: &Keys) -> Result<()> {
    let ignore = |_: PushInfo| -> Result<()> { Ok(()) };
    let mut ear = address.hear(ignore).await?;
    match ask(&mut ear, redis::cmd("SSUBSCRIBE").arg(keys.schedules())).await {
        // Where it leads is looked at after what is permitted.
        Err(error) if error.detail().starts_with("Redis: MOVED") => Ok(()),
        heard => heard.map(drop),
    }
}

async fn pings(connection: &mut MultiplexedConnection, at_most: Duration) -> Vec<Duration> {
    let (mut pings, began) = (Vec::with_capacity(PINGS), Clock::System.instant());
    while pings.len() < PINGS && Clock::System.instant().since(began) < at_most {
        let sent = Clock::System.instant();
        if ask(connection, &redis::cmd("PING")).await.is_err() {
            break;
        }
        pings.push(Clock::System.instant().since(sent));
    }
    pings
}

/// How far its clock is ahead, in microseconds, and its Unix time in seconds.
async fn clock(connection: &mut MultiplexedConnection) -> Option<(i64, u64)> {
    let us = || i64::try_from(Clock::System.now().as_ms()).unwrap_or(i64::MAX).saturating_mul(1_000);
    let mut best: Option<(i64, i64, u64)> = None;
    for _ in 0..CLOCK_LOOKS {
        let sent = us();
        let mut time = Reply::of(ask(connection, &redis::cmd("TIME")).await.ok()?).ok()?;
        let answered = us();
        let (seconds, micros) = (time.number().ok()?, time.number().ok()?);
        let there = i64::try_from(seconds * 1_000_000 + micros).ok()?;
        let (way, ahead) = (answered - sent, there - (sent + answered) / 2);
        if best.is_none_or(|(shortest, _, _)| way < shortest) {
            best = Some((way, ahead, seconds));
        }
    }
    // This machine's time is cut to the millisecond.
    best.map(|(way, ahead, s)| (if ahead.abs() <= way / 2 + 1_000 { 0 } else { ahead }, s))
}

async fn stalls(connection: &mut MultiplexedConnection) -> Result<Vec<Stall>> {
    let mut reply = Reply::of(ask(connection, redis::cmd("LATENCY").arg("LATEST")).await?)?;
    let mut stalls = Vec::with_capacity(reply.left());
    while reply.left() > 0 {
        let mut one = reply.list()?;
        let (event, at_s) = (one.text()?, one.number()?);
        stalls.push(Stall { event, at_s, last_ms: one.number()?, max_ms: one.number()? });
    }
    Ok(stalls)
}

async fn slow_calls(connection: &mut MultiplexedConnection) -> Result<Vec<SlowCall>> {
    let mut reply = Reply::of(ask(connection, redis::cmd("SLOWLOG").arg("GET").arg(SLOW_MAX)).await?)?;
    let mut slow = Vec::with_capacity(reply.left());
    while reply.left() > 0 {
        let mut one = reply.list()?;
        one.value()?;
        let (at_s, took_us, mut words) = (one.number()?, one.number()?, one.list()?);
        let mut command = String::new();
        while words.left() > 0 && command.len() < COMMAND_BYTES {
            // An argument may be a payload: what is no text is not shown.
            let word = words.text().unwrap_or_else(|_| "…".to_owned());
            let word: String = word.chars().filter(|c| !c.is_control()).take(COMMAND_BYTES).collect();
            command = if command.is_empty() { word } else { format!("{command} {word}") };
        }
        slow.push(SlowCall { at_s, took_us, command });
    }
    Ok(slow)
}
