//! Facts about a Redis that an operator checks before trusting it with messages: plain findings, without a judgement.
//!
//! No key is written, and nothing that serves messages uses it. Each call ends within `options.timeout`, on separate
//! connections, so it may look while brokers work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, PushInfo, Value};

use super::address::Address;
use super::cluster::{Range, read_ranges};
use super::info::{has_waitaof, is_new_enough, memory_of, refused_commands};
use super::keys::{Keys, SLOTS, slot_of_key};
use super::scripts::{Reply, SCRIPTS, ScriptCall, maybe_text, text};
pub use super::sentinel::Quorum;
use super::sentinel::{Parts, PrimaryDiscovery};
use super::{RedisOptions, failure, topics};
use crate::model::error::{Error, Result};
use crate::model::message::TopicName;
use crate::model::partition::Partition;
use crate::platform::clock::Clock;
use crate::store::NodeMemory;

#[derive(Debug)]
pub struct Diagnostics {
    /// The Redis, or the primaries of a cluster. Never empty: one that was not reached stands for what was asked for.
    pub nodes: Vec<NodeDiagnostics>,
    /// The answer of each sentinel, by its address. Empty without sentinels.
    pub sentinels: Vec<(String, Result<Quorum>)>,
    /// Slots without a node, of a cluster whose map was seen.
    pub unserved_slots: Option<u16>,
    pub keys: Option<KeyDiagnostics>,
}

#[derive(Debug)]
pub struct NodeDiagnostics {
    pub location: String,
    pub outcome: Outcome,
}

#[derive(Debug)]
pub enum Outcome {
    Unreachable(Error),
    /// It answers, and lets nobody in, or says nothing about itself.
    Refused(Error),
    Answered(Box<NodeFacts>),
}

impl Diagnostics {
    /// Looks at the Redis that these options lead to. Members of groups count as alive for `lease_ttl` after a
    /// heartbeat. Errors: `Invalid` for a wrong URL, which is not quoted, and for certificates that cannot be read.
    /// Later errors are findings.
    pub async fn of(options: &RedisOptions, lease_ttl: Duration) -> Result<Diagnostics> {
        match Parts::of(options.url.expose())? {
            Some(parts) if parts.is_cluster => Diagnostics::of_cluster(options, &parts, lease_ttl).await,
            _ => Diagnostics::of_one(options, lease_ttl).await,
        }
    }

    async fn of_one(options: &RedisOptions, lease_ttl: Duration) -> Result<Diagnostics> {
        let place = PrimaryDiscovery::new(options)?;
        let sentinels = match &place {
            PrimaryDiscovery::Watched(sentinels) => sentinels.quorums().await,
            PrimaryDiscovery::Fixed(_) => Vec::new(),
        };
        let mut diagnostics = Diagnostics { nodes: Vec::new(), sentinels, unserved_slots: None, keys: None };
        let address = match place.candidates().await {
            Ok(candidates) => candidates.into_iter().next(),
            Err(error) => {
                let outcome = Outcome::Unreachable(error);
                diagnostics.nodes.push(NodeDiagnostics { location: place.location(), outcome });
                None
            }
        };
        let mut connections = NodeConnections::default();
        if let Some(address) = address {
            let (node, connection) = diagnose_node(&address, options).await;
            diagnostics.nodes.push(node);
            connections.add(vec![(0, SLOTS)], connection);
        }
        diagnostics.keys = diagnose_keys(&connections, options, lease_ttl).await;
        Ok(diagnostics)
    }

    async fn of_cluster(options: &RedisOptions, parts: &Parts<'_>, lease_ttl: Duration) -> Result<Diagnostics> {
        let Parts { scheme, login, .. } = parts;
        let seeds: Vec<Address> = parts
            .hosts
            .iter()
            .map(|host| Address::new(options, &format!("{scheme}://{login}{host}")))
            .collect::<Result<_>>()?;
        let mut diagnostics =
            Diagnostics { nodes: Vec::new(), sentinels: Vec::new(), unserved_slots: None, keys: None };
        let Some((seed, ranges)) = map_of(&seeds, &mut diagnostics.nodes).await else { return Ok(diagnostics) };
        // An unavailable seed does not matter as long as another one answers.
        diagnostics.nodes.clear();
        let served: u32 = ranges.iter().map(|range| u32::from(range.last.saturating_sub(range.first)) + 1).sum();
        diagnostics.unserved_slots = u16::try_from(u32::from(SLOTS).saturating_sub(served)).ok();
        let mut by_node: BTreeMap<(String, u16), Vec<(u16, u16)>> = BTreeMap::new();
        for range in ranges {
            by_node.entry(range.node).or_default().push((range.first, range.last));
        }
        let mut connections = NodeConnections::default();
        for ((host, port), slots) in by_node {
            let (node, connection) = diagnose_node(&seed.at(&host, port), options).await;
            diagnostics.nodes.push(node);
            connections.add(slots, connection);
        }
        diagnostics.keys = diagnose_keys(&connections, options, lease_ttl).await;
        Ok(diagnostics)
    }
}

/// The map of a cluster, from the first seed that knows it; those that do not are noted.
async fn map_of(seeds: &[Address], nodes: &mut Vec<NodeDiagnostics>) -> Option<(Address, Vec<Range>)> {
    for seed in seeds {
        let outcome = match enter(seed).await {
            Ok(mut connection) => match answer(&mut connection, redis::cmd("CLUSTER").arg("SLOTS")).await {
                Ok(map) => match read_ranges(map, seed.host()) {
                    Ok(ranges) => return Some((seed.clone(), ranges)),
                    Err(error) => Outcome::Refused(error),
                },
                Err(outcome) => outcome,
            },
            Err(outcome) => outcome,
        };
        nodes.push(NodeDiagnostics { location: seed.location(), outcome });
    }
    None
}

async fn diagnose_node(address: &Address, options: &RedisOptions) -> (NodeDiagnostics, Option<MultiplexedConnection>) {
    let location = address.location();
    let looked = async {
        let mut connection = enter(address).await?;
        let facts = NodeFacts::of(address, &mut connection, options).await?;
        Ok((facts, connection))
    };
    match looked.await {
        Ok((facts, connection)) => {
            (NodeDiagnostics { location, outcome: Outcome::Answered(Box::new(facts)) }, Some(connection))
        }
        Err(outcome) => (NodeDiagnostics { location, outcome }, None),
    }
}

async fn enter(address: &Address) -> std::result::Result<MultiplexedConnection, Outcome> {
    let (mut connection, login) = address.connect().await.map_err(Outcome::Unreachable)?;
    for command in &login {
        answer(&mut connection, command).await?;
    }
    Ok(connection)
}

async fn answer(connection: &mut MultiplexedConnection, command: &redis::Cmd) -> std::result::Result<Value, Outcome> {
    match connection.send_packed_command(command).await {
        Ok(Value::ServerError(error)) => Err(Outcome::Refused(failure::of_connecting(&error.into()))),
        Ok(value) => Ok(value),
        Err(error) => Err(Outcome::Unreachable(failure::of_greeting(&error))),
    }
}

const TOPICS_LOOKED_AT: usize = 20;

const PARTITIONS_LOOKED_AT: usize = 4;

const MEMBERS_READ: usize = 1_000;

#[derive(Debug, Default)]
pub struct KeyDiagnostics {
    /// Which data this is, as a WAL remembers it; absent before the first broker was there.
    pub identity: Option<String>,
    pub topics: usize,
    pub looked_at: usize,
    /// Keys that hold another type than dwell gives them, or what dwell cannot read, with what they hold.
    pub foreign: Vec<String>,
    pub members: BTreeSet<String>,
    /// Why no more was looked at, if so.
    pub failure: Option<Error>,
}

#[derive(Default)]
pub(super) struct NodeConnections(Vec<(Vec<(u16, u16)>, MultiplexedConnection)>);

impl NodeConnections {
    fn add(&mut self, slots: Vec<(u16, u16)>, connection: Option<MultiplexedConnection>) {
        self.0.extend(connection.map(|connection| (slots, connection)));
    }

    async fn ask(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>> {
        let slot = slot_of_key(key.as_bytes());
        let leads = |slots: &[(u16, u16)]| slots.iter().any(|(first, last)| (*first..=*last).contains(&slot));
        let way = self.0.iter().find(|(slots, _)| leads(slots)).ok_or_else(failure::nowhere)?;
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        commands.into_iter().for_each(|command| {
            pipeline.add_command(command);
        });
        way.1.clone().send_packed_commands(&pipeline, 0, count).await.map_err(|error| failure::of_greeting(&error))
    }

    /// Sends one command. A refusal is `None`; the wrong type is noted.
    async fn one(&self, found: &mut KeyDiagnostics, key: &str, command: Cmd) -> Result<Option<Value>> {
        let answer = self.ask(key, vec![command]).await?.pop();
        Ok(answer.filter(|answer| !found.note(key, answer)))
    }
}

impl KeyDiagnostics {
    fn note(&mut self, key: &str, answer: &Value) -> bool {
        let Value::ServerError(error) = answer else { return false };
        if error.code() == "WRONGTYPE" {
            self.foreign.push(format!("{key} (of another type)"));
        }
        true
    }
}

/// Looks at a sample, as long as one call may take; `None` when there is no way to any node.
async fn diagnose_keys(
    connections: &NodeConnections,
    options: &RedisOptions,
    lease_ttl: Duration,
) -> Option<KeyDiagnostics> {
    if connections.0.is_empty() {
        return None;
    }
    let (mut found, keys) = (KeyDiagnostics::default(), Keys::new(&options.prefix));
    let looked = tokio::select! {
        looked = sample(connections, &keys, lease_ttl, &mut found) => looked,
        () = Clock::System.sleep(options.timeout) => Err(Error::unavailable("the rest took longer than one call may")),
    };
    found.failure = looked.err();
    Some(found)
}

async fn sample(
    connections: &NodeConnections,
    keys: &Keys,
    lease_ttl: Duration,
    found: &mut KeyDiagnostics,
) -> Result<()> {
    let (identity, topics) = (keys.store_id(), keys.topics());
    if let Some(value) = connections.one(found, &identity, command("GET", &identity)).await? {
        found.identity = maybe_text(value)?;
    }
    connections.one(found, &keys.cron_partitions(), command("SCARD", &keys.cron_partitions())).await?;
    connections.one(found, &keys.history(), command("GET", &keys.history())).await?;
    let Some(listed) = connections.one(found, &topics, command("SMEMBERS", &topics)).await? else { return Ok(()) };
    let mut listed = Reply::of(listed)?;
    found.topics = listed.left();
    while listed.left() > 0 && found.looked_at < TOPICS_LOOKED_AT {
        let name = listed.text()?;
        match TopicName::new(&name) {
            Ok(topic) => topic_keys(connections, keys, &topic, lease_ttl, found).await?,
            Err(_) => found.foreign.push(format!("{topics} (lists {name:?}, which is no name of a topic)")),
        }
        found.looked_at += 1;
    }
    Ok(())
}

async fn topic_keys(
    connections: &NodeConnections,
    keys: &Keys,
    topic: &TopicName,
    lease_ttl: Duration,
    found: &mut KeyDiagnostics,
) -> Result<()> {
    let key = keys.partition(topic, Partition(0)).generation;
    let Some(value) = connections.one(found, &key, command("GET", &key)).await? else { return Ok(()) };
    // A name without a descriptor is harmless: it was being made, or deleted.
    let Some(text) = maybe_text(value)? else { return Ok(()) };
    let descriptor = match topics::read(&text) {
        Ok(descriptor) => descriptor,
        Err(error) => {
            found.foreign.push(format!("{key} ({})", error.detail()));
            return Ok(());
        }
    };
    for group in descriptor.groups.iter() {
        let key = keys.members(topic, group).members;
        let mut range = command("ZRANGE", &key);
        range.arg(0).arg(MEMBERS_READ - 1).arg("WITHSCORES");
        let answers = connections.ask(&key, vec![redis::cmd("TIME"), range]).await?;
        read_key_replies(found, &key, answers, lease_ttl)?;
    }
    for partition in descriptor.partitions().take(PARTITIONS_LOOKED_AT) {
        let shared = keys.partition(topic, partition);
        let mut asked = vec![
            ("GET", shared.generation.clone()),
            ("ZCARD", shared.seen),
            ("ZCARD", shared.cancelled),
            ("ZCARD", shared.dedup),
            ("ZCARD", shared.dedup_end),
            ("HLEN", shared.cron_jobs),
            ("HLEN", shared.moved),
            ("HLEN", shared.purged),
            ("ZCARD", shared.order),
        ];
        for group in descriptor.groups.iter() {
            let group_partition = keys.group(topic, partition, group);
            let zsets =
                [group_partition.zset, group_partition.dead_zset, group_partition.by_key].map(|key| ("ZCARD", key));
            let hashes = [
                group_partition.hash,
                group_partition.reservations,
                group_partition.attempts,
                group_partition.dead_hash,
                group_partition.moving,
            ];
            asked.extend(
                zsets.into_iter().chain(hashes.map(|key| ("HLEN", key))).chain([("GET", group_partition.lease)]),
            );
        }
        let commands = asked.iter().map(|(name, key)| command(name, key)).collect();
        let answers = connections.ask(&shared.generation, commands).await?;
        for ((_, key), answer) in asked.iter().zip(&answers) {
            found.note(key, answer);
        }
    }
    Ok(())
}

/// Reads the members with a recent heartbeat, by the clock of Redis.
fn read_key_replies(found: &mut KeyDiagnostics, key: &str, answers: Vec<Value>, lease_ttl: Duration) -> Result<()> {
    let mut answers = answers.into_iter();
    let (Some(time), Some(members)) = (answers.next(), answers.next()) else { return Ok(()) };
    if found.note(key, &time) || found.note(key, &members) {
        return Ok(());
    }
    let (mut time, mut members) = (Reply::of(time)?, Reply::of(members)?);
    let since = (time.number()? * 1_000).saturating_sub(u64::try_from(lease_ttl.as_millis()).unwrap_or(u64::MAX));
    while members.left() > 1 {
        let (member, at) = (members.text()?, members.time()?);
        if at.is_some_and(|at| at.as_ms() >= since) {
            found.members.insert(member);
        }
    }
    Ok(())
}

fn command(name: &str, key: &str) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}

const PINGS: usize = 50;

/// Times that the clock is asked for; the one with the shortest way counts.
const CLOCK_LOOKS: usize = 5;

const SLOW_MAX: usize = 128;

const COMMAND_BYTES: usize = 120;

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

/// Facts about a Redis. Those that its user may not read are absent.
#[derive(Debug)]
pub struct NodeFacts {
    pub info: BTreeMap<String, String>,
    pub settings: Option<BTreeMap<String, String>>,
    /// Whether the user `default` may do everything: Redis reads its append-only file as this user.
    pub reads_all: Option<bool>,
    /// Permissions that are missing, as in `hset on dwell:id`; or why that cannot be seen.
    pub refused: Result<Vec<String>>,
    pub deaf: Option<Error>,
    pub pings: Vec<Duration>,
    /// Microseconds by which its clock is ahead of this machine's; 0 within the round trip.
    pub ahead_us: Option<i64>,
    /// Its time, Unix seconds.
    pub now_s: Option<u64>,
    pub stalls: Option<Vec<Stall>>,
    pub slow: Option<Vec<SlowCall>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The event that stalled, as in `aof-fsync-always`.
    pub event: String,
    pub at_s: u64,
    pub last_ms: u64,
    pub max_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowCall {
    pub at_s: u64,
    /// How long, microseconds; nothing else ran meanwhile.
    pub took_us: u64,
    pub command: String,
}

impl NodeFacts {
    /// Looks at a Redis that let somebody in. Errors: it does not even answer INFO.
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
            deaf: check_subscribe(address, &keys).await.err(),
            pings: pings(connection, options.timeout).await,
            ahead_us,
            now_s,
            stalls: stalls(connection).await.ok(),
            slow: slow_calls(connection).await.ok(),
        })
    }

    pub fn is_new_enough(&self) -> bool {
        is_new_enough(self.field("redis_version"))
    }

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

    pub fn memory(&self) -> NodeMemory {
        memory_of(|name| self.field(name))
    }

    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }
}

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

async fn refused(connection: &mut MultiplexedConnection, keys: &Keys) -> Result<Vec<String>> {
    let check = ScriptCall::new(&SCRIPTS.check_permissions, &[]).arg(keys.store_id()).arg(keys.any_of_a_partition());
    ask(connection, &SCRIPTS.check_permissions.load()).await?;
    let mut refused = refused_commands(ask(connection, &check.command).await?)?;
    for name in ["PING", "TIME", "DBSIZE"] {
        if ask(connection, &redis::cmd(name)).await.is_err_and(|error| error.detail().contains("NOPERM")) {
            refused.push(name.to_lowercase());
        }
    }
    Ok(refused)
}

/// Listens for a moment where announcements come from. Errors: that is not permitted, or fails.
async fn check_subscribe(address: &Address, keys: &Keys) -> Result<()> {
    let ignore = |_: PushInfo| -> Result<()> { Ok(()) };
    let mut subscriber = address.subscribe(ignore).await?;
    match ask(&mut subscriber, redis::cmd("SSUBSCRIBE").arg(keys.cron_partitions())).await {
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
    Reply::of(ask(connection, redis::cmd("LATENCY").arg("LATEST")).await?)?.each(|reply| {
        let mut one = reply.list()?;
        let (event, at_s) = (one.text()?, one.number()?);
        Ok(Stall { event, at_s, last_ms: one.number()?, max_ms: one.number()? })
    })
}

async fn slow_calls(connection: &mut MultiplexedConnection) -> Result<Vec<SlowCall>> {
    Reply::of(ask(connection, redis::cmd("SLOWLOG").arg("GET").arg(SLOW_MAX)).await?)?.each(|reply| {
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
        Ok(SlowCall { at_s, took_us, command })
    })
}
