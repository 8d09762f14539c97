//! The state of a Redis when a connection is new: whether messages are safe in it, and whether it is the one it
//! was.
//!
//! Every new connection looks before its first call whether Redis is another run or another replica, which may have lost
//! its last writes. The first broker that finds another Redis notes it in Redis itself, for processes that start later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::watch;

use super::confirmed::Confirmation;
use super::failure;
use super::histories::PROCESS_LENGTH;
use super::keys::{Keys, slot_tag};
use super::scripts::{Reply, SCRIPTS, ScriptCall, text};
use crate::model::error::{Error, Result};
use crate::model::spelling::counted;
use crate::platform::clock::{Clock, Instant};
use crate::store::{Loss, NodeMemory};

const OLDEST_VERSION: (u32, u32) = (7, 0);

const WAITAOF_VERSION: (u32, u32) = (7, 2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Info {
    version: String,
    pub(super) memory: NodeMemory,
    aof: bool,
    /// An ACL may forbid CONFIG; then it stays unknown.
    fsync: Option<String>,
    replicas: u32,
    pub(super) is_primary: bool,
    /// Whether it refuses writes that too few replicas would get.
    waits_for_replicas: bool,
    /// Changes when it may have lost something: see [`identity`].
    pub(super) identity: String,
    pub(super) offset: u64,
    confirmation: Confirmation,
}

/// Logs in, asks Redis about itself, and checks the permissions that dwell needs. Errors: `Unavailable`.
pub(super) async fn greet(
    connection: &mut MultiplexedConnection,
    login: &[Cmd],
    keys: &Keys,
    confirmation: Confirmation,
) -> Result<Info> {
    let mut fsync = redis::cmd("CONFIG");
    fsync.arg("GET").arg("appendfsync");
    let check = ScriptCall::new(&SCRIPTS.check_permissions, &[]).arg(keys.store_id()).arg(keys.any_of_a_partition());
    let commands = [redis::cmd("INFO"), fsync, SCRIPTS.check_permissions.load(), check.command];
    let count = login.len() + commands.len();
    let mut greeting = Pipeline::with_capacity(count);
    for command in login.iter().cloned().chain(commands) {
        greeting.add_command(command);
    }
    let sent = connection.send_packed_commands(&greeting, 0, count).await;
    let mut answers = sent.map_err(|error| failure::of_greeting(&error))?.into_iter();
    for answer in answers.by_ref().take(login.len()) {
        accepted(answer)?;
    }
    let mut next = || answers.next().unwrap_or(Value::Nil);
    let info = text(accepted(next())?)?;
    let fsync = fsync_policy(next());
    accepted(next())?;
    permitted(accepted(next())?)?;
    Ok(Info { confirmation, ..Info::read(&info, fsync) })
}

fn permitted(answer: Value) -> Result<()> {
    let refused = refused_commands(answer)?;
    if refused.is_empty() {
        return Ok(());
    }
    let text = format!("NOPERM the user may not call {}: {}", refused.join(", "), failure::NOPERM_REMEDY);
    Err(failure::refused(&text))
}

/// Whether a version has what dwell needs. Valkey says here with which Redis it is compatible.
pub(super) fn is_new_enough(version: &str) -> bool {
    is_at_least(version, OLDEST_VERSION)
}

pub(super) fn has_waitaof(version: &str) -> bool {
    is_at_least(version, WAITAOF_VERSION)
}

fn is_at_least(version: &str, oldest: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next()) >= oldest
}

pub(super) fn refused_commands(answer: Value) -> Result<Vec<String>> {
    let mut reply = Reply::of(answer)?;
    reply.text()?;
    reply.each(Reply::text)
}

fn accepted(answer: Value) -> Result<Value> {
    match answer {
        Value::ServerError(error) => Err(failure::of_connecting(&error.into())),
        answer => Ok(answer),
    }
}

fn fsync_policy(answer: Value) -> Option<String> {
    let mut reply = Reply::of(answer).ok()?;
    reply.text().ok()?;
    reply.text().ok()
}

fn fields(text: &str) -> HashMap<&str, &str> {
    text.lines().filter_map(|line| line.trim_end().split_once(':')).collect()
}

pub(super) fn memory_of<'a>(field: impl Fn(&str) -> &'a str) -> NodeMemory {
    let number = |name| field(name).parse().unwrap_or(0);
    NodeMemory {
        policy: field("maxmemory_policy").to_owned(),
        evicted_keys: number("evicted_keys"),
        used_bytes: number("used_memory"),
        max_bytes: number("maxmemory"),
        ..NodeMemory::default()
    }
}

/// The run of a Redis and, if it was a replica once, its replication history: then its data was another one's, whatever the run had before.
/// A primary that always was one gets another replication id too, with its first replica and when it has had none for an hour. But
/// it loses nothing with that, and has no second id then.
fn identity<'a>(field: impl Fn(&str) -> &'a str) -> String {
    let (run, second) = (field("run_id"), field("master_replid2"));
    let was_a_replica = second.is_empty() || second.bytes().any(|digit| digit != b'0');
    if was_a_replica { format!("{run}/{}", field("master_replid")) } else { run.to_owned() }
}

/// The name of a process in histories: 12 characters that change with its identity.
fn process_of(identity: &str) -> Arc<str> {
    let digest = sha1_smol::Sha1::from(identity).digest().to_string();
    Arc::from(digest.get(..PROCESS_LENGTH).unwrap_or_default())
}

/// The process that Redis is by now, from what it answers to `INFO server replication`.
pub(super) fn process_in(text: &str) -> Arc<str> {
    let fields = fields(text);
    process_of(&identity(|name| fields.get(name).copied().unwrap_or_default()))
}

impl Info {
    fn read(text: &str, fsync: Option<String>) -> Info {
        let fields = fields(text);
        let field = |name: &str| fields.get(name).copied().unwrap_or_default();
        Info {
            version: field("redis_version").to_owned(),
            memory: memory_of(field),
            aof: field("aof_enabled") == "1",
            fsync,
            is_primary: field("role") == "master",
            replicas: field("connected_slaves").parse().unwrap_or(0),
            // The field is there only if `min-replicas-to-write` is set.
            waits_for_replicas: fields.contains_key("min_slaves_good_slaves"),
            identity: identity(field),
            offset: field("master_repl_offset").parse().unwrap_or(0),
            confirmation: Confirmation::default(),
        }
    }

    pub(super) fn process(&self) -> Arc<str> {
        process_of(&self.identity)
    }

    /// Errors: `Invalid` for one that must not be used.
    pub(super) fn check(&self) -> Result<()> {
        if !is_new_enough(&self.version) {
            let version = &self.version;
            return Err(Error::invalid("redis.url", format!("Redis {version} is too old, dwell needs 7.0 or newer")));
        }
        if self.memory.is_unfit() {
            let policy = &self.memory.policy;
            let why = format!(
                "this Redis has maxmemory-policy {policy} and may delete messages without an error; \
                 set `maxmemory-policy noeviction`, or `redis.allow_eviction = true` to take the risk"
            );
            return Err(Error::invalid("redis.url", why));
        }
        if self.confirmation.fsync && !has_waitaof(&self.version) {
            let version = &self.version;
            return Err(Error::invalid(
                "redis.fsync",
                format!("Redis {version} has no WAITAOF, which needs 7.2 or newer"),
            ));
        }
        if self.confirmation.fsync && !self.aof {
            return Err(Error::invalid("redis.fsync", "this Redis has no append-only file; set `appendonly yes`"));
        }
        Ok(())
    }

    /// It is there, and the configuration accepts that it deletes messages or not.
    pub(super) fn at(mut self, location: String, is_eviction_allowed: bool) -> Info {
        (self.memory.location, self.memory.is_eviction_allowed) = (location, is_eviction_allowed);
        self
    }

    /// Takes in what it says about its memory by now.
    pub(super) fn note_memory(&mut self, text: &str) {
        let fields = fields(text);
        let now = memory_of(|name| fields.get(name).copied().unwrap_or_default());
        let NodeMemory { location, is_eviction_allowed, .. } = std::mem::take(&mut self.memory);
        self.memory = NodeMemory { location, is_eviction_allowed, ..now };
    }

    pub(super) fn warning(&self) -> Option<&'static str> {
        (self.replicas > 0 && !self.waits_for_replicas && self.confirmation.replicas == 0).then_some(
            "Redis has replicas and `min-replicas-to-write` is 0: a primary that is cut off from them accepts pushes \
             that are lost when a replica takes over; set it to 1",
        )
    }

    pub(super) fn missing_replicas(&self) -> Option<String> {
        let (connected, asked) = (self.replicas, self.confirmation.replicas);
        (connected < asked).then(|| {
            format!(
                "connected: {}, and `redis.min_replicas` asks for {asked}: pushes are buffered on disk until they are connected",
                counted(connected, "replica")
            )
        })
    }

    pub(super) fn durability(&self) -> String {
        let persistence = match (self.aof, self.fsync.as_deref()) {
            (false, _) => "no append-only file: a restart of Redis loses messages; set `appendonly yes`".to_owned(),
            (true, Some("always")) => "append-only file, fsync always: survives power loss".to_owned(),
            (true, Some("everysec")) => "append-only file, fsync every second: survives a crash of Redis; \
                 a power cut loses up to 2 s, a failover what was not replicated"
                .to_owned(),
            (true, fsync) => format!("append-only file, fsync {}", fsync.unwrap_or("unknown")),
        };
        let waits = match self.confirmation {
            Confirmation { replicas: 1.., .. } => {
                format!(", and what is answered is on {}", self.confirmation.replicas)
            }
            _ if self.warning().is_some() => ", and writes do not wait for any".to_owned(),
            _ => String::new(),
        };
        let fsync = if self.confirmation.fsync { "; what is answered is fsynced" } else { "" };
        format!("Redis {}, {persistence}; {}{waits}{fsync}", self.version, counted(self.replicas, "replica"))
    }
}

/// A notice older than this is of no interest: no lease runs longer.
const OLD: Duration = Duration::from_secs(3_600);

pub(super) type Losses = watch::Sender<Loss>;

/// Where it is noted which Redis this is, and how it is seen whether there is anything to lose.
pub(super) struct Note {
    key: String,
    evidence: Cmd,
    /// Since when a Redis noted as new is a loss to this process, though it never saw another one there.
    began: Option<Instant>,
}

impl Note {
    /// In a Redis that has everything: it has topics.
    pub(super) fn of_all(keys: &Keys) -> Note {
        let mut evidence = redis::cmd("EXISTS");
        evidence.arg(keys.topics());
        Note { key: keys.history(), evidence, began: None }
    }

    /// In a node of a cluster that has this slot: it has any keys. A replica that is promoted is another node, with
    /// what it knows of the history of the one before it.
    pub(super) fn of_node(keys: &Keys, slot: u16, began: Instant) -> Note {
        let key = format!("{}:{{{}}}", keys.history(), slot_tag(slot));
        Note { key, evidence: redis::cmd("DBSIZE"), began: Some(began) }
    }
}

/// The store that calls are for, once it is known, and whether the Redis that answers has the name of another one.
#[derive(Clone, Default)]
pub(super) struct Belonging(Arc<Mutex<(Option<String>, bool)>>);

impl Belonging {
    /// Another store answers under its own name: it is given nothing until it is accepted. Errors: `Unavailable`.
    pub(super) fn check(&self) -> Result<()> {
        match self.lock().1 {
            true => Err(Error::unavailable("another store answers than before: it is given nothing")),
            false => Ok(()),
        }
    }

    pub(super) fn accept(&self, store: &str) {
        *self.lock() = (Some(store.to_owned()), false);
    }

    /// Answers whether a Redis with this name is another store.
    fn meets(&self, found: Option<String>) -> bool {
        let mut belonging = self.lock();
        belonging.1 = belonging.0.is_some() && found.is_some() && belonging.0 != found;
        belonging.1
    }

    fn lock(&self) -> MutexGuard<'_, (Option<String>, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks each new connection: whether it leads to the same process of Redis as before, and to all that this had. That concerns the
/// whole Redis, or a node of a cluster; the histories of partitions are in `histories`.
pub(super) struct History {
    keys: Keys,
    clock: Clock,
    note: Note,
    met: LastSeen,
    losses: Losses,
    belonging: Belonging,
}

/// A Redis as it was met last, whichever connection met it.
#[derive(Clone)]
pub(super) struct LastSeen {
    seen: Arc<Mutex<Option<Seen>>>,
    /// Whether it joined after this process had found all nodes: then it may have lost something before it was ever met.
    is_later: bool,
}

impl LastSeen {
    pub(super) fn new(is_later: bool) -> LastSeen {
        LastSeen { seen: Arc::default(), is_later }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    identity: String,
    offset: u64,
}

impl Seen {
    /// Whether a Redis may have lost something since: another run, another replication history, or less of the same
    /// one.
    fn lost(&self, now: &Seen) -> bool {
        self.identity != now.identity || now.offset < self.offset
    }
}

impl History {
    pub(super) fn new(keys: Keys, clock: Clock, note: Note, met: LastSeen, losses: Losses) -> History {
        History { keys, clock, note, met, losses, belonging: Belonging::default() }
    }

    pub(super) fn belonging(&self) -> &Belonging {
        &self.belonging
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// String with expiry, in the slot of the note: written before servers are waited for.
    pub(super) fn mark(&self) -> String {
        format!("{}:mark", self.note.key)
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses.borrow().count
    }

    /// Looks at the Redis that a new connection reached. If it may have lost something since it was seen last, that counts as a loss.
    pub(super) async fn look(&self, connection: &mut MultiplexedConnection, info: &Info) -> RedisResult<()> {
        let now = Seen { identity: info.identity.clone(), offset: info.offset };
        let known = self.met.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut lost = known.as_ref().is_some_and(|known| known.lost(&now));
        // A node of a cluster need not have the name.
        if self.note.began.is_none() {
            let found: Option<String> = redis::cmd("GET").arg(self.keys.store_id()).query_async(connection).await?;
            lost |= self.belonging.meets(found);
        }
        if known.is_none() || lost {
            let before = self.clock.instant();
            let rewound = known.as_ref().is_some_and(|known| known.identity == now.identity);
            let age = self.note_process(connection, &now.identity, rewound).await?;
            let since = (age < OLD).then(|| before.minus(age));
            lost |= self.note.began.is_some_and(|began| since > Some(began));
            self.losses.send_modify(|loss| {
                loss.count += u64::from(lost);
                loss.is_restoring |= lost && loss.restores;
                // Another node may have been suspected since.
                loss.since = loss.since.max(since);
            });
        }
        if lost {
            tracing::warn!("another Redis than before, or one that restarted: it is compared with what brokers know");
        }
        *self.met.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(())
    }

    /// Notes in Redis which process it is, and answers for how long that has been noted. `rewound`: it is the process that this
    /// connection knew, with less than it had.
    async fn note_process(
        &self,
        connection: &mut MultiplexedConnection,
        id: &str,
        rewound: bool,
    ) -> RedisResult<Duration> {
        let there: Value = connection.send_packed_command(&self.note.evidence).await?;
        let anything = i32::from(self.met.is_later || matches!(there, Value::Int(1..)));
        let over = self.clock.manual_now().map_or(String::new(), |now| (now.as_ms() * 1_000).to_string());
        let call = ScriptCall::new(&SCRIPTS.note_process, &[&self.note.key]).arg(id).arg(anything).arg(over);
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(SCRIPTS.note_process.load()).ignore().add_command(call.arg(i32::from(rewound)).command);
        let ((_, _, age_ms),): ((String, u64, u64),) = pipeline.query_async(connection).await?;
        Ok(Duration::from_millis(age_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "redis_version:7.2.4\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nrun_id:a\r\n\
                       master_replid:b\r\nmaster_repl_offset:17\r\nconnected_slaves:1\r\n";

    #[test]
    fn unsuitable_redis_is_reported() {
        let fit = Info::read(NEW, Some("always".to_owned()));
        assert_eq!(fit.check(), Ok(()));
        assert_eq!((fit.identity.as_str(), fit.offset), ("a/b", 17));
        let identity = |second: &str| Info::read(&format!("{NEW}master_replid2:{second}\r\n"), None).identity;
        // The first replica, or none for an hour, changes the id of a primary, and leaves no second one.
        assert_eq!((identity("0000"), identity("00c0")), ("a".to_owned(), "a/b".to_owned()));
        for (from, to, says) in
            [("7.2.4", "6.2.14", "6.2.14 is too old"), ("noeviction", "volatile-ttl", "volatile-ttl")]
        {
            let unfit = Info::read(&NEW.replace(from, to), None);
            assert!(unfit.check().is_err_and(|error| error.detail().contains(says)));
        }
        let evicts = Info::read(&NEW.replace("noeviction", "allkeys-lru"), None);
        assert_eq!(evicts.at("h:1".to_owned(), true).check(), Ok(()));
    }

    #[test]
    fn confirmations_need_replicas_and_waitaof() {
        let with = |text: &str, replicas, fsync| Info {
            confirmation: Confirmation { replicas, fsync },
            ..Info::read(text, Some("always".to_owned()))
        };
        assert_eq!((with(NEW, 1, true).check(), with(NEW, 1, false).missing_replicas()), (Ok(()), None));
        assert!(with(NEW, 2, false).missing_replicas().is_some_and(|text| text.contains("asks for 2")));
        let refused = |from: &str, to: &str| with(&NEW.replace(from, to), 0, true).check().err();
        assert!(refused("7.2.4", "7.0.15").is_some_and(|error| error.detail().contains("7.0.15 has no WAITAOF")));
        assert!(
            refused("aof_enabled:1", "aof_enabled:0").is_some_and(|error| error.detail().contains("appendonly yes"))
        );
        assert_eq!(with(NEW, 1, false).warning(), None);
        assert!(with(NEW, 1, false).durability().contains("what is answered is on 1"));
    }

    #[test]
    fn unused_replicas_are_a_warning() {
        assert!(Info::read(NEW, None).warning().is_some());
        assert_eq!(Info::read(&format!("{NEW}min_slaves_good_slaves:1\r\n"), None).warning(), None);
        assert_eq!(Info::read(&NEW.replace("slaves:1", "slaves:0"), None).warning(), None);
    }

    #[test]
    fn new_run_id_replica_or_lower_offset_is_a_data_loss() {
        let seen = |identity: &str, offset| Seen { identity: identity.to_owned(), offset };
        let before = seen("run/replica", 1_000);
        assert!(!before.lost(&seen("run/replica", 1_000)));
        assert!(!before.lost(&seen("run/replica", 2_000)));
        assert!(before.lost(&seen("run/replica", 999)));
        assert!(before.lost(&seen("again/replica", 1_000)));
        assert!(before.lost(&seen("run/promoted", 2_000)));
    }
}
