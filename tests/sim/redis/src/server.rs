//! One Redis process: its sessions, and how their commands are executed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::commands::{self, ALLOW_BUSY, DENY_OOM, LOADING, NO_AUTH, Run, STALE, Spec, WRITE};
use crate::config::Config;
use crate::core::Core;
use crate::lua::{Engine, lock};
use crate::persistence::Image;
use crate::replication::Role;
use crate::resp::{OK, Reply, Words};
use crate::scripting;
use crate::session::{Blocked, Session, Transaction};
use crate::time::Time;

mod control;
mod nodes;
mod sessions;

/// A connection to one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// All data of a server at a moment, with its place in the replication. Cheap: values are shared until they change.
#[derive(Debug, Clone)]
pub struct Snapshot(pub(crate) Image);

/// One Redis process, primary or replica.
pub struct Server {
    core: Arc<Mutex<Core>>,
    /// Nothing if Lua could not be started.
    engine: Option<Engine>,
    sessions: BTreeMap<SessionId, Session>,
    last_session: u64,
    ready: BTreeSet<SessionId>,
}

impl Server {
    /// A server without data, as it answers after its start. Its first calls say what time it is.
    pub fn new(config: Config, seed: u64) -> Server {
        let core = Arc::new(Mutex::new(Core::new(config, seed)));
        let engine = Engine::new(&core).ok();
        Server { core, engine, sessions: BTreeMap::new(), last_session: 0, ready: BTreeSet::new() }
    }

    pub fn config(&self) -> Config {
        self.core().config.clone()
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    fn at(&self, now: Time) -> MutexGuard<'_, Core> {
        let mut core = self.core();
        core.now = core.now.max(now);
        if core.started == Time::default() {
            core.started = now;
            core.files.last_save = now;
        }
        if core.state.loading_until.is_some_and(|until| until <= now) {
            core.state.loading_until = None;
        }
        core
    }

    pub fn open(&mut self, now: Time) -> SessionId {
        let (needs_password, most) = {
            let mut core = self.at(now);
            core.stats.connections += 1;
            (core.config.password.is_some(), core.config.maxclients)
        };
        self.last_session += 1;
        let id = SessionId(self.last_session);
        let mut session = Session::new(!needs_password);
        if self.sessions.values().filter(|session| !session.is_closed).count() >= most {
            session.write(&Reply::error("ERR max number of clients reached"));
            session.is_closed = true;
            self.ready.insert(id);
        }
        self.sessions.insert(id, session);
        self.core().clients = self.sessions.len();
        id
    }

    /// The client closed it: nothing of it is left.
    pub fn close(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.ready.remove(&session);
        let mut core = self.core();
        core.pubsub.forget(session);
        core.clients = self.sessions.len();
    }

    /// Bytes of the client as a stream carries them: a part of a command, or several commands.
    pub fn receive(&mut self, session: SessionId, bytes: &[u8], now: Time) {
        drop(self.at(now));
        if let Some(session) = self.sessions.get_mut(&session).filter(|session| !session.is_closed) {
            session.requests.add(bytes);
        }
        self.run(session);
        self.settle();
    }

    /// What the server wrote to the session since the last time.
    pub fn take_output(&mut self, session: SessionId) -> Vec<u8> {
        self.sessions.get_mut(&session).map(|session| std::mem::take(&mut session.out)).unwrap_or_default()
    }

    /// Whether the server closed it: after what [`Server::take_output`] returns comes the end.
    pub fn is_closed(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_none_or(|session| session.is_closed)
    }

    /// The sessions that have output, or were closed, since this was asked last. Others than the one that sent something
    /// may: subscribers, and those that wait.
    pub fn take_ready(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.ready).into_iter().collect()
    }

    /// When [`Server::tick`] has something to do, if ever.
    pub fn next_event(&self) -> Option<Time> {
        let core = self.core();
        // Redis looks for expired keys ten times a second.
        const ROUND: u64 = 100_000;
        let expiry = core.data.next_expiry().filter(|_| core.role.is_primary() && core.state.loading_until.is_none());
        let expiry = expiry.map(|at| Time((at.0 / ROUND + 1) * ROUND).max(core.now + 1_000));
        let waits = self.sessions.values().filter_map(|session| session.blocked?.until);
        let states = [core.state.loading_until, core.state.busy_until.filter(|until| *until > core.now)];
        expiry.into_iter().chain(core.files.next_event()).chain(waits).chain(states.into_iter().flatten()).min()
    }

    /// Does what is due: expiry, timeouts of `WAIT`, fsyncs, snapshots.
    pub fn tick(&mut self, now: Time) {
        {
            let mut core = self.at(now);
            core.expire_all();
            core.write_files();
        }
        self.settle();
    }

    /// Delivers announcements, answers those who waited for enough, and goes on with what they sent behind.
    pub(crate) fn settle(&mut self) {
        loop {
            self.deliver();
            let blocked: Vec<SessionId> =
                self.sessions.iter().filter(|(_, session)| session.blocked.is_some()).map(|(id, _)| *id).collect();
            let mut went_on = false;
            for id in blocked {
                let Some(session) = self.sessions.get(&id) else { continue };
                let (Some(wait), offset) = (session.blocked, session.write_offset) else { continue };
                let Some(reply) = waited(&self.core(), wait, offset, false) else { continue };
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.blocked = None;
                    session.write(&reply);
                    self.ready.insert(id);
                }
                self.run(id);
                went_on = true;
            }
            if !went_on {
                return;
            }
        }
    }

    /// Writes announcements to those that listen.
    pub(crate) fn deliver(&mut self) {
        let outbox = std::mem::take(&mut self.core().pubsub.outbox);
        for (id, message) in outbox {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.write(&message);
                self.ready.insert(id);
            }
        }
    }

    /// Executes what a session has sent, until it waits.
    fn run(&mut self, id: SessionId) {
        loop {
            let Some(session) = self.sessions.get_mut(&id) else { return };
            if session.blocked.is_some() || session.is_closed {
                return;
            }
            let words = match session.requests.next() {
                Ok(Some(words)) if words.is_empty() => continue,
                Ok(Some(words)) => words,
                Ok(None) => return,
                Err(wrong) => {
                    session.write(&Reply::error(wrong));
                    session.is_closed = true;
                    self.ready.insert(id);
                    return;
                }
            };
            let reply = self.execute(id, words);
            if reply.is_error() {
                self.core().stats.errors += 1;
            }
            self.deliver();
            if let Some(session) = self.sessions.get_mut(&id) {
                if session.blocked.is_none() {
                    session.write(&reply);
                }
                if !session.out.is_empty() {
                    self.ready.insert(id);
                }
            }
        }
    }

    /// Executes a command of a session, or refuses it.
    fn execute(&mut self, id: SessionId, words: Words) -> Reply {
        let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let asked =
            self.sessions.get_mut(&id).map(|session| std::mem::take(&mut session.is_asking)).unwrap_or_default();
        let Some(spec) = commands::find(slices[0]).filter(|spec| self.knows(spec)) else {
            self.refuse_transaction(id);
            return unknown(&slices);
        };
        if !spec.fits(slices.len()) {
            self.refuse_transaction(id);
            return commands::wrong_arity(spec.name);
        }
        if let Some(refusal) = self.refusal(id, spec, &slices, asked) {
            if !matches!(spec.name, "EXEC" | "DISCARD") {
                self.refuse_transaction(id);
            }
            return refusal;
        }
        let is_queued = !matches!(spec.name, "EXEC" | "DISCARD" | "MULTI" | "WATCH" | "QUIT" | "RESET");
        if let Some(session) = self.sessions.get_mut(&id).filter(|_| is_queued)
            && let Some(transaction) = &mut session.transaction
        {
            transaction.commands.push(words);
            return Reply::status("QUEUED");
        }
        if spec.name == "EXEC" {
            return self.execute_transaction(id);
        }
        let reply = self.perform(id, spec, &slices, true);
        self.end_of_command(id);
        reply
    }

    fn end_of_command(&mut self, id: SessionId) {
        let offset = {
            let mut core = lock(&self.core);
            let before = core.log.offset;
            core.end_of_command();
            // Since 7.2 only a call that wrote something is waited for.
            let moves = !core.config.is_at_least(7, 2) || core.log.offset != before;
            moves.then_some(core.log.offset)
        };
        if let (Some(offset), Some(session)) = (offset, self.sessions.get_mut(&id)) {
            session.write_offset = offset;
        }
    }

    fn knows(&self, spec: &Spec) -> bool {
        let core = self.core();
        if core.sentinel.is_some() {
            return crate::sentinel::knows(spec.name);
        }
        spec.name != "SENTINEL" && (spec.name != "WAITAOF" || core.config.is_at_least(7, 2))
    }

    fn refuse_transaction(&mut self, id: SessionId) {
        if let Some(transaction) = self.sessions.get_mut(&id).and_then(|session| session.transaction.as_mut()) {
            transaction.is_refused = true;
        }
    }

    /// Why the state of the server or of the session refuses a command, if so.
    fn refusal(&self, id: SessionId, spec: &Spec, words: &[&[u8]], asked: bool) -> Option<Reply> {
        let session = self.sessions.get(&id)?;
        let mut core = self.core();
        if !session.is_authenticated && !spec.has(NO_AUTH) {
            return Some(Reply::error("NOAUTH Authentication required."));
        }
        let is_eval = spec.name.starts_with("EVAL");
        let flags = match self.script_of(spec, words) {
            Some(script) => scripting::flags_of(script.flags, spec.flags()),
            None => spec.flags(),
        };
        let has = |flag: u16| flags & flag != 0;
        let is_exec = |flag: u16| {
            let queued = session.transaction.iter().flat_map(|transaction| &transaction.commands);
            spec.name == "EXEC" && queued.filter_map(|words| commands::find(&words[0])).any(|spec| spec.has(flag))
        };
        let writes = has(WRITE) || is_exec(WRITE);
        if let Some(refused) = core.redirect(&spec.keys(words), asked, session.is_readonly && !has(WRITE), spec.name) {
            return Some(refused);
        }
        if (has(DENY_OOM) || is_exec(DENY_OOM)) && core.is_full() && !core.is_busy() {
            return Some(Reply::error("OOM command not allowed when used memory > 'maxmemory'."));
        }
        if (writes || spec.name == "PING") && core.state.is_failing && core.role.is_primary() {
            return core.why_no_writes(false).map(Reply::error);
        }
        if writes && let Some(refused) = core.why_no_writes(false) {
            return Some(Reply::error(refused));
        }
        if writes && !core.role.is_primary() {
            return Some(Reply::error("READONLY You can't write against a read only replica."));
        }
        let listens = ["SUBSCRIBE", "UNSUBSCRIBE", "PING", "QUIT", "RESET"];
        if session.only_listens() && !listens.iter().any(|name| spec.name.ends_with(name)) {
            return Some(Reply::error_of(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context",
                spec.name.to_lowercase()
            )));
        }
        let is_stale = matches!(&core.role, Role::Replica { is_connected: false, .. }) && !core.settings.serves_stale;
        if is_stale && !has(STALE) {
            return Some(Reply::error(
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            ));
        }
        if core.is_loading() && !has(LOADING) {
            return Some(Reply::error("LOADING Redis is loading the dataset in memory"));
        }
        let ends_script = spec.name == "SCRIPT" && words.get(1).is_some_and(|word| commands::is(word, "KILL"));
        if core.is_busy() && !has(ALLOW_BUSY) && !ends_script {
            return Some(Reply::error(
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            ));
        }
        let _ = is_eval;
        core.stats.calls.entry(spec.name).and_modify(|calls| *calls += 1).or_insert(1);
        None
    }

    fn script_of(&self, spec: &Spec, words: &[&[u8]]) -> Option<crate::lua::Script> {
        let engine = self.engine.as_ref()?;
        match spec.name {
            "EVALSHA" | "EVALSHA_RO" => {
                let digest = std::str::from_utf8(words.get(1)?).ok()?.to_lowercase();
                engine.find(&digest).cloned()
            }
            "EVAL" | "EVAL_RO" => {
                let digest = sha1_smol::Sha1::from(words.get(1)?).digest().to_string();
                engine.find(&digest).cloned()
            }
            _ => None,
        }
    }

    fn execute_transaction(&mut self, id: SessionId) -> Reply {
        let Some(session) = self.sessions.get_mut(&id) else { return Reply::Nil };
        let watched = std::mem::take(&mut session.watched);
        let Some(transaction) = session.transaction.take() else {
            return Reply::error("ERR EXEC without MULTI");
        };
        if transaction.is_refused {
            return Reply::error("EXECABORT Transaction discarded because of previous errors.");
        }
        let is_changed = |(key, before): &crate::session::Watched| {
            let mut core = self.core();
            match (core.entry(key).map(|entry| &entry.value), before) {
                (None, None) => false,
                (Some(now), Some(before)) => !Arc::ptr_eq(now, before),
                _ => true,
            }
        };
        if watched.iter().any(is_changed) {
            return Reply::NilArray;
        }
        let mut replies = Vec::with_capacity(transaction.commands.len());
        for words in &transaction.commands {
            let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            if let Some(spec) = commands::find(slices[0]) {
                replies.push(self.perform(id, spec, &slices, false));
            }
        }
        self.end_of_command(id);
        Reply::Array(replies)
    }

    /// Does a command that nothing refuses. Only a command that stands alone may wait.
    fn perform(&mut self, id: SessionId, spec: &Spec, words: &[&[u8]], may_wait: bool) -> Reply {
        match spec.run {
            Run::Data(handler) => commands::execute(&mut self.core(), spec, handler, words),
            Run::Session if spec.name.starts_with("EVAL") => self.eval(spec, words),
            Run::Session => self.perform_in_session(id, spec, words, may_wait),
        }
    }

    fn eval(&mut self, spec: &Spec, words: &[&[u8]]) -> Reply {
        let Some(count) = crate::value::int(words[2]) else { return commands::NOT_AN_INTEGER };
        let Ok(count) = usize::try_from(count) else { return Reply::error("ERR Number of keys can't be negative") };
        if count > words.len() - 3 {
            return Reply::error("ERR Number of keys can't be greater than number of args");
        }
        let Some(engine) = &mut self.engine else { return Reply::error("ERR Lua could not be started") };
        let digest = if spec.name.starts_with("EVALSHA") {
            String::from_utf8_lossy(words[1]).to_lowercase()
        } else {
            match engine.load(words[1]) {
                Ok(digest) => digest,
                Err(refused) => return refused,
            }
        };
        let Some(flags) = engine.find(&digest).map(|script| script.flags) else {
            return Reply::error("NOSCRIPT No matching script. Please use EVAL.");
        };
        if let Err(refused) = scripting::prepare(&mut lock(&self.core), flags, spec.name.ends_with("_RO")) {
            return refused;
        }
        let (keys, rest) = words[3..].split_at(count);
        engine.run(&digest, keys, rest, &self.core)
    }

    fn wait(&mut self, id: SessionId, wait: Blocked, may_wait: bool) -> Reply {
        let offset = self.sessions.get(&id).map_or(0, |session| session.write_offset);
        if let Some(reply) = waited(&self.core(), wait, offset, !may_wait) {
            return reply;
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            session.blocked = Some(wait);
        }
        Reply::Several(Vec::new())
    }

    fn begin_transaction(&mut self, id: SessionId) -> Reply {
        match self.sessions.get_mut(&id) {
            Some(session) if session.transaction.is_none() => {
                session.transaction = Some(Transaction::default());
                OK
            }
            _ => Reply::error("ERR MULTI calls can not be nested"),
        }
    }
}

/// The answer of a WAIT or WAITAOF, if enough servers have what the session wrote, or its time is over.
fn waited(core: &Core, wait: Blocked, offset: u64, ends_now: bool) -> Option<Reply> {
    let is_over = ends_now || wait.until.is_some_and(|until| until <= core.now);
    let Some(fsync) = wait.fsync else {
        let replicas = core.log.acks(offset);
        return (is_over || replicas >= wait.replicas).then(|| Reply::count(replicas));
    };
    let (local, replicas) = (usize::from(core.files.synced_offset >= offset), core.log.fsyncs(offset));
    let local = if core.files.has_aof() { local } else { 0 };
    let is_enough = local >= fsync && replicas >= wait.replicas;
    (is_over || is_enough).then(|| Reply::Array(vec![Reply::count(local), Reply::count(replicas)]))
}

fn unknown(words: &[&[u8]]) -> Reply {
    let name = String::from_utf8_lossy(words[0]);
    let mut args = String::new();
    for word in &words[1..] {
        if args.len() >= 128 {
            break;
        }
        let word: String = String::from_utf8_lossy(word).chars().take(128 - args.len()).collect();
        args.push_str(&format!("'{word}' "));
    }
    let name: String = name.chars().take(128).collect();
    Reply::error_of(format!("ERR unknown command '{name}', with args beginning with: {args}"))
}
