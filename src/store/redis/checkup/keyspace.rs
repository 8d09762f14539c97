//! What is in the keys of dwell: a sample of topics, and whether each key is of the type that dwell gives it.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};

use super::super::keys::Keys;
use super::super::reply::{Reply, maybe_text};
use super::super::{RedisOptions, failure, hash_slot, topics};
use crate::model::error::{Error, Result};
use crate::model::message::TopicName;
use crate::platform::clock::Clock;

/// Topics that are looked at.
const TOPICS_LOOKED_AT: usize = 20;

/// Partitions of each of them.
const PARTITIONS_LOOKED_AT: usize = 4;

/// Members of a group that are read.
const MEMBERS_READ: usize = 1_000;

/// What is in the keys of dwell.
#[derive(Debug, Default)]
pub struct KeysCheckup {
    /// Which data this is, as a WAL remembers it; absent before the first broker was there.
    pub identity: Option<String>,
    /// Topics that are listed.
    pub topics: usize,
    /// Topics that were looked at.
    pub looked_at: usize,
    /// Keys that hold another type than dwell gives them, or what dwell cannot read, with what they hold.
    pub foreign: Vec<String>,
    /// Members of the groups that were looked at, which said of late that they live.
    pub members: BTreeSet<String>,
    /// Why no more was looked at, if so.
    pub failure: Option<Error>,
}

/// Connections by the slots that they lead to.
#[derive(Default)]
pub(super) struct Ways(Vec<(Vec<(u16, u16)>, MultiplexedConnection)>);

impl Ways {
    pub(super) fn add(&mut self, slots: Vec<(u16, u16)>, connection: Option<MultiplexedConnection>) {
        self.0.extend(connection.map(|connection| (slots, connection)));
    }

    /// Sends commands that all belong where a key does.
    async fn ask(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>> {
        let slot = hash_slot::of_key(key.as_bytes());
        let leads = |slots: &[(u16, u16)]| slots.iter().any(|(first, last)| (*first..=*last).contains(&slot));
        let way = self.0.iter().find(|(slots, _)| leads(slots)).ok_or_else(failure::nowhere)?;
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        commands.into_iter().for_each(|command| {
            pipeline.add_command(command);
        });
        way.1.clone().send_packed_commands(&pipeline, 0, count).await.map_err(|error| failure::of_greeting(&error))
    }

    /// Sends one command. What is refused is `None`; the wrong type is noted.
    async fn one(&self, found: &mut KeysCheckup, key: &str, command: Cmd) -> Result<Option<Value>> {
        let answer = self.ask(key, vec![command]).await?.pop();
        Ok(answer.filter(|answer| !found.note(key, answer)))
    }
}

impl KeysCheckup {
    /// Notes a key of another type. Answers whether the command was refused.
    fn note(&mut self, key: &str, answer: &Value) -> bool {
        let Value::ServerError(error) = answer else { return false };
        if error.code() == "WRONGTYPE" {
            self.foreign.push(format!("{key} (of another type)"));
        }
        true
    }
}

/// Looks at a sample, as long as one call may take; `None` when there is no way to any node.
pub(super) async fn look(ways: &Ways, options: &RedisOptions, lease_ttl: Duration) -> Option<KeysCheckup> {
    if ways.0.is_empty() {
        return None;
    }
    let (mut found, keys) = (KeysCheckup::default(), Keys::new(&options.prefix));
    let looked = tokio::select! {
        looked = sample(ways, &keys, lease_ttl, &mut found) => looked,
        () = Clock::System.sleep(options.timeout) => Err(Error::unavailable("the rest took longer than one call may")),
    };
    found.failure = looked.err();
    Some(found)
}

async fn sample(ways: &Ways, keys: &Keys, lease_ttl: Duration, found: &mut KeysCheckup) -> Result<()> {
    let (identity, topics) = (keys.store_id(), keys.topics());
    if let Some(value) = ways.one(found, &identity, command("GET", &identity)).await? {
        found.identity = maybe_text(value)?;
    }
    ways.one(found, &keys.schedules(), command("SCARD", &keys.schedules())).await?;
    ways.one(found, &keys.history(), command("GET", &keys.history())).await?;
    let Some(listed) = ways.one(found, &topics, command("SMEMBERS", &topics)).await? else { return Ok(()) };
    let mut listed = Reply::of(listed)?;
    found.topics = listed.left();
    while listed.left() > 0 && found.looked_at < TOPICS_LOOKED_AT {
        let name = listed.text()?;
        match TopicName::new(&name) {
            Ok(topic) => topic_keys(ways, keys, &topic, lease_ttl, found).await?,
            Err(_) => found.foreign.push(format!("{topics} (lists {name:?}, which is no name of a topic)")),
        }
        found.looked_at += 1;
    }
    Ok(())
}

async fn topic_keys(
    ways: &Ways,
    keys: &Keys,
    topic: &TopicName,
    lease_ttl: Duration,
    found: &mut KeysCheckup,
) -> Result<()> {
    let key = keys.topic(topic);
    let Some(value) = ways.one(found, &key, command("GET", &key)).await? else { return Ok(()) };
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
        let answers = ways.ask(&key, vec![redis::cmd("TIME"), range]).await?;
        heard(found, &key, answers, lease_ttl)?;
    }
    for partition in descriptor.partitions().take(PARTITIONS_LOOKED_AT) {
        let shared = keys.partition(topic, partition);
        let mut asked = vec![
            ("GET", shared.generation.clone()),
            ("ZCARD", shared.seen),
            ("ZCARD", shared.cancelled),
            ("HLEN", shared.schedules),
            ("HLEN", shared.moved),
            ("ZCARD", shared.order),
        ];
        for group in descriptor.groups.iter() {
            let pair = keys.group(topic, partition, group);
            let zsets = [pair.zset, pair.dead_zset].map(|key| ("ZCARD", key));
            let hashes = [pair.hash, pair.reservations, pair.attempts, pair.dead_hash, pair.moving];
            asked.extend(zsets.into_iter().chain(hashes.map(|key| ("HLEN", key))).chain([("GET", pair.lease)]));
        }
        let commands = asked.iter().map(|(name, key)| command(name, key)).collect();
        let answers = ways.ask(&shared.generation, commands).await?;
        for ((_, key), answer) in asked.iter().zip(&answers) {
            found.note(key, answer);
        }
    }
    Ok(())
}

/// Reads who said of late, by the clock of Redis, that it lives.
fn heard(found: &mut KeysCheckup, key: &str, answers: Vec<Value>, lease_ttl: Duration) -> Result<()> {
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
