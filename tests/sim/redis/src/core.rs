//! What commands work on: the data of a server and its state, without sessions and scripts.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cluster::ClusterView;
use crate::config::Config;
use crate::keyspace::{Entry, Keyspace};
use crate::persistence::Files;
use crate::pubsub::PubSub;
use crate::replication::{Log, Role};
use crate::resp::{Bytes, Reply};
use crate::sentinel::SentinelView;
use crate::time::Time;
use crate::value::Value;

pub(crate) const WRONG_TYPE: Reply =
    Reply::Error(std::borrow::Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"));

/// A refusal of a command.
pub(crate) type Refused = Reply;

pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) settings: Settings,
    pub(crate) data: Keyspace,
    pub(crate) now: Time,
    pub(crate) started: Time,
    pub(crate) run_id: String,
    /// In the upper half of cursors: what a cursor means ends with the process.
    pub(crate) mark: u32,
    pub(crate) pubsub: PubSub,
    pub(crate) role: Role,
    pub(crate) log: Log,
    pub(crate) files: Files,
    pub(crate) cluster: Option<ClusterView>,
    /// What a sentinel says; nothing in a server with data.
    pub(crate) sentinel: Option<SentinelView>,
    pub(crate) state: State,
    pub(crate) script: ScriptState,
    pub(crate) stats: Stats,
    pub(crate) clients: usize,
    /// Changes of the command that runs, as they are given to replicas and files.
    pub(crate) effects: Vec<Vec<Bytes>>,
    /// What a command says that its effect is, where that is not its own words.
    pub(crate) effect: Option<Vec<Bytes>>,
    /// How many changes the commands made so far.
    pub(crate) dirty: u64,
    /// An effect of the primary is applied: nothing expires by this server's decision.
    pub(crate) is_applying: bool,
}

/// What CONFIG SET may change.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) maxmemory: u64,
    pub(crate) min_replicas: u32,
    pub(crate) serves_stale: bool,
    pub(crate) save: String,
    pub(crate) other: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) loading_until: Option<Time>,
    pub(crate) busy_until: Option<Time>,
    pub(crate) is_failing: bool,
}

/// The script that runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptState {
    pub(crate) is_read_only: bool,
    pub(crate) allows_oom: bool,
    pub(crate) was_full: bool,
    pub(crate) has_written: bool,
    pub(crate) protocol: u8,
    /// The slot of its keys, in a cluster.
    pub(crate) slot: Option<u16>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Stats {
    pub(crate) commands: u64,
    pub(crate) connections: u64,
    pub(crate) expired: u64,
    pub(crate) errors: u64,
    /// Calls of each command, by its name in lower case.
    pub(crate) calls: std::collections::BTreeMap<&'static str, u64>,
}

impl Core {
    pub(crate) fn new(config: Config, seed: u64) -> Core {
        let mut random = fastrand::Rng::with_seed(seed);
        let settings = Settings {
            maxmemory: config.maxmemory,
            min_replicas: config.min_replicas,
            serves_stale: true,
            save: config.rdb.map_or(String::new(), |seconds| format!("{seconds} 1")),
            other: std::collections::BTreeMap::new(),
        };
        let run_id = hex40(&mut random);
        let log = Log::new(hex40(&mut random));
        let files = Files::new(&config);
        Core {
            settings,
            data: Keyspace::default(),
            now: Time::default(),
            started: Time::default(),
            mark: random.u32(1..),
            run_id,
            pubsub: PubSub::default(),
            role: Role::Primary,
            log,
            files,
            cluster: None,
            sentinel: None,
            state: State::default(),
            script: ScriptState::default(),
            stats: Stats::default(),
            clients: 0,
            effects: Vec::new(),
            effect: None,
            dirty: 0,
            is_applying: false,
            config,
        }
    }

    // Reading and changing keys.

    /// Whether a key has expired by now; the primary removes it then.
    fn is_expired(&mut self, key: &[u8]) -> bool {
        let Some(at) = self.data.get(key).and_then(|entry| entry.expires_ms) else { return false };
        if self.now.as_ms() <= at || self.is_applying || self.state.loading_until.is_some() {
            return false;
        }
        if self.role.is_primary() {
            self.expire_now(key);
        }
        true
    }

    fn expire_now(&mut self, key: &[u8]) {
        self.data.remove(key);
        self.stats.expired += 1;
        self.record_effect(vec![Bytes::from(&b"DEL"[..]), key.into()]);
    }

    /// Removes what has expired, as the primary does in the background.
    pub(crate) fn expire_all(&mut self) {
        if !self.role.is_primary() || self.state.loading_until.is_some() {
            return;
        }
        while let Some(key) = self.data.expired(self.now) {
            self.expire_now(&key);
        }
        self.end_of_command();
    }

    pub(crate) fn entry(&mut self, key: &[u8]) -> Option<&Entry> {
        if self.is_expired(key) {
            return None;
        }
        self.data.get(key)
    }

    pub(crate) fn has(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    /// Removes a key. Whether it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let is_there = !self.is_expired(key) && self.data.remove(key).is_some();
        self.dirty += u64::from(is_there);
        is_there
    }

    /// A value to be changed, made first if it is not there; `pick` finds out whether it has the right type.
    pub(crate) fn change<T>(
        &mut self,
        key: &[u8],
        make: impl FnOnce() -> Value,
        pick: impl FnOnce(&mut Value) -> Option<&mut T>,
    ) -> Result<&mut T, Refused> {
        if self.is_expired(key) || self.data.get(key).is_none() {
            self.data.make(key, make());
        }
        self.data.value_mut(key).and_then(pick).ok_or(WRONG_TYPE)
    }

    // Effects.

    /// Whether anybody wants to know of changes.
    pub(crate) fn keeps_effects(&self) -> bool {
        self.log.is_kept || self.files.are_kept()
    }

    pub(crate) fn record(&mut self, words: &[&[u8]]) {
        let effect = self.effect.take();
        if self.keeps_effects() && !self.is_applying {
            let words = effect.unwrap_or_else(|| words.iter().map(|word| Bytes::from(*word)).collect());
            self.effects.push(words);
        }
    }

    fn record_effect(&mut self, words: Vec<Bytes>) {
        self.dirty += 1;
        if self.keeps_effects() {
            self.effects.push(words);
        }
    }

    /// Gives what was changed to replicas and files, all or nothing.
    pub(crate) fn end_of_command(&mut self) {
        self.files.changes += u64::from(!self.effects.is_empty());
        if self.effects.is_empty() {
            return;
        }
        let effects = std::mem::take(&mut self.effects);
        if !self.role.is_primary() || self.is_applying {
            return;
        }
        let effect = self.log.append(effects, self.now, self.config.is_at_least(7, 2));
        self.files.append(&effect, self.now, self.state.is_failing);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.settings.maxmemory > 0 && self.used_memory() > self.settings.maxmemory
    }

    pub(crate) fn used_memory(&self) -> u64 {
        u64::try_from(self.data.size()).unwrap_or(u64::MAX).saturating_add(1_000_000)
    }

    /// Whether enough replicas follow, where `min-replicas-to-write` asks for some.
    pub(crate) fn has_good_replicas(&self) -> bool {
        self.settings.min_replicas == 0 || !self.role.is_primary() || self.good_replicas() >= self.settings.min_replicas
    }

    pub(crate) fn good_replicas(&self) -> u32 {
        let is_good = |acked: Time| self.now.since(acked) <= 10_000_000;
        let good = self.log.replicas.values().filter(|replica| replica.is_connected && is_good(replica.heard)).count();
        u32::try_from(good).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.state.loading_until.is_some_and(|until| self.now < until)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.state.busy_until.is_some_and(|until| self.now < until)
    }

    /// Why a write is refused now, whatever it is, if so.
    pub(crate) fn why_no_writes(&self, is_script: bool) -> Option<&'static str> {
        if self.state.is_failing && self.role.is_primary() {
            let is_aof = self.files.has_aof();
            return match (is_aof, is_script) {
                (true, false) => Some(MISCONF_AOF),
                (false, false) => Some(MISCONF_RDB),
                (true, true) => Some(MISCONF_AOF_SCRIPT),
                (false, true) => Some(MISCONF_RDB_SCRIPT),
            };
        }
        (!self.has_good_replicas()).then_some("NOREPLICAS Not enough good replicas to write.")
    }
}

const MISCONF_RDB: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. \
    Commands that may modify the data set are disabled, because this instance is configured to report errors during \
    writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details \
    about the RDB error.";
const MISCONF_AOF: &str = "MISCONF Errors writing to the AOF file: No space left on device";
const MISCONF_RDB_SCRIPT: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist \
    to disk. Writable scripts are blocked. Use 'no-writes' flag for read only scripts.";
const MISCONF_AOF_SCRIPT: &str = "MISCONF Redis is configured to persist data to AOF, but it's currently unable to \
    persist to disk. Writable scripts are blocked. Use 'no-writes' flag for read only scripts. AOF error: No space left \
    on device";

pub(crate) fn hex40(random: &mut fastrand::Rng) -> String {
    (0..40).map(|_| char::from_digit(random.u32(..16), 16).unwrap_or('0')).collect()
}

/// A command as others are told of it.
#[derive(Debug)]
pub(crate) struct Effect {
    pub(crate) commands: Vec<Vec<Bytes>>,
    /// The replication offset behind it.
    pub(crate) offset: u64,
    pub(crate) at: Time,
}

pub(crate) type Effects = VecDeque<Arc<Effect>>;
