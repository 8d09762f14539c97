//! The commands that are about a session, or about the server as a whole.

use super::{Server, SessionId};
use crate::commands::{self, SYNTAX, Spec, is};
use crate::config::Fsync;
use crate::pubsub::Kind;
use crate::resp::{OK, Reply};
use crate::session::Blocked;
use crate::value::int;

impl Server {
    pub(super) fn perform_in_session(&mut self, id: SessionId, spec: &Spec, words: &[&[u8]], may_wait: bool) -> Reply {
        match spec.name {
            "PING" => self.ping(id, words),
            "HELLO" => self.hello(id, words),
            "AUTH" => self.auth(id, words),
            "QUIT" => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.write(&OK);
                    session.is_closed = true;
                    self.ready.insert(id);
                }
                Reply::Several(Vec::new())
            }
            "RESET" => self.reset(id),
            "SELECT" if words[1] == b"0" => OK,
            "SELECT" if int(words[1]).is_none() => Reply::error("ERR invalid DB index"),
            "SELECT" => Reply::error("ERR DB index is out of range"),
            "CLIENT" => self.client(id, words),
            "COMMAND" => Reply::Array(Vec::new()),
            "ASKING" | "READONLY" | "READWRITE" => self.in_cluster(id, spec.name),
            "MULTI" => self.begin_transaction(id),
            "DISCARD" => self.discard(id),
            "WATCH" => self.watch(id, words),
            "UNWATCH" => self.flag(id, |session| session.watched.clear()),
            "SUBSCRIBE" => self.subscribe(id, Kind::Channel, words),
            "PSUBSCRIBE" => self.subscribe(id, Kind::Pattern, words),
            "SSUBSCRIBE" => self.subscribe(id, Kind::Shard, words),
            "UNSUBSCRIBE" => self.unsubscribe(id, Kind::Channel, words),
            "PUNSUBSCRIBE" => self.unsubscribe(id, Kind::Pattern, words),
            "SUNSUBSCRIBE" => self.unsubscribe(id, Kind::Shard, words),
            "SCRIPT" => self.script(words),
            "CONFIG" => self.configure(words),
            "CLUSTER" => crate::cluster::command(&self.core(), words),
            "SENTINEL" => crate::sentinel::command(&self.core(), words),
            "ACL" => acl(words),
            "SLOWLOG" if is(words[1], "LEN") => Reply::Int(0),
            "SLOWLOG" if is(words[1], "RESET") => OK,
            "SLOWLOG" | "LATENCY" => Reply::Array(Vec::new()),
            "MEMORY" => self.memory(words),
            "BGSAVE" => {
                self.core().save();
                Reply::status("Background saving started")
            }
            "BGREWRITEAOF" => Reply::status("Background append only file rewriting started"),
            "REPLICAOF" => Reply::error("ERR the simulator decides who follows whom"),
            "WAIT" => self.wait_for_replicas(id, words, may_wait),
            "WAITAOF" => self.wait_for_fsyncs(id, words, may_wait),
            _ => SYNTAX,
        }
    }

    fn in_cluster(&mut self, id: SessionId, command: &str) -> Reply {
        if self.core().cluster.is_none() {
            return Reply::error("ERR This instance has cluster support disabled");
        }
        self.flag(id, |session| match command {
            "ASKING" => session.is_asking = true,
            _ => session.is_readonly = command == "READONLY",
        })
    }

    fn flag(&mut self, id: SessionId, set: impl FnOnce(&mut crate::session::Session)) -> Reply {
        if let Some(session) = self.sessions.get_mut(&id) {
            set(session);
        }
        OK
    }

    fn ping(&mut self, id: SessionId, words: &[&[u8]]) -> Reply {
        let text = match words {
            [_] => None,
            [_, text] => Some(*text),
            _ => return commands::wrong_arity("ping"),
        };
        if self.sessions.get(&id).is_some_and(|session| session.only_listens()) {
            return Reply::Array(vec![Reply::bulk("pong"), Reply::bulk(text.unwrap_or_default())]);
        }
        text.map_or(Reply::status("PONG"), Reply::bulk)
    }

    fn hello(&mut self, id: SessionId, words: &[&[u8]]) -> Reply {
        let Some(session) = self.sessions.get_mut(&id) else { return OK };
        let mut protocol = session.protocol;
        if let Some(word) = words.get(1) {
            let Some(wanted) = int(word) else {
                return Reply::error("ERR Protocol version is not an integer or out of range");
            };
            match wanted {
                2 => protocol = 2,
                3 => protocol = 3,
                _ => return Reply::error("NOPROTO unsupported protocol version"),
            }
        }
        let mut at = 2;
        while let Some(word) = words.get(at) {
            if is(word, "AUTH") && words.len() > at + 2 {
                if let Some(refused) = self.log_in(id, words[at + 1], words[at + 2]) {
                    return refused;
                }
                at += 3;
            } else if is(word, "SETNAME") && words.len() > at + 1 {
                let name = words[at + 1].to_vec();
                self.flag(id, |session| session.name = name);
                at += 2;
            } else {
                let word = String::from_utf8_lossy(word);
                return Reply::error_of(format!("ERR Syntax error in HELLO option '{word}'"));
            }
        }
        if self.sessions.get(&id).is_some_and(|session| !session.is_authenticated) {
            return Reply::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
                 <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            );
        }
        self.flag(id, |session| session.protocol = protocol);
        let core = self.core();
        let mode = if core.cluster.is_some() { "cluster" } else { "standalone" };
        let role = if core.role.is_primary() { "master" } else { "replica" };
        let fields = [
            ("server", Reply::bulk("redis")),
            ("version", Reply::bulk(&core.config.version)),
            ("proto", Reply::Int(protocol.into())),
            ("id", Reply::Int(i64::try_from(id.0).unwrap_or(0))),
            ("mode", Reply::bulk(mode)),
            ("role", Reply::bulk(role)),
            ("modules", Reply::Array(Vec::new())),
        ];
        Reply::Map(fields.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect())
    }

    fn log_in(&mut self, id: SessionId, user: &[u8], password: &[u8]) -> Option<Reply> {
        let wanted = self.core().config.password.clone();
        let fits = user == b"default" && wanted.is_none_or(|wanted| wanted.as_bytes() == password);
        if !fits {
            return Some(Reply::error("WRONGPASS invalid username-password pair or user is disabled."));
        }
        self.flag(id, |session| session.is_authenticated = true);
        None
    }

    fn auth(&mut self, id: SessionId, words: &[&[u8]]) -> Reply {
        let (user, password) = match words {
            [_, password] => {
                if self.core().config.password.is_none() {
                    return Reply::error(
                        "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                         configuration is correct?",
                    );
                }
                (&b"default"[..], *password)
            }
            [_, user, password] => (*user, *password),
            _ => return SYNTAX,
        };
        self.log_in(id, user, password).unwrap_or(OK)
    }

    fn reset(&mut self, id: SessionId) -> Reply {
        let mut core = self.core();
        core.pubsub.forget(id);
        let needs_password = core.config.password.is_some();
        drop(core);
        self.flag(id, |session| {
            let requests = std::mem::take(&mut session.requests);
            let out = std::mem::take(&mut session.out);
            *session = crate::session::Session::new(!needs_password);
            (session.requests, session.out) = (requests, out);
        });
        Reply::status("RESET")
    }

    fn client(&mut self, id: SessionId, words: &[&[u8]]) -> Reply {
        let word = words[1];
        if is(word, "SETNAME") && words.len() == 3 {
            let name = words[2].to_vec();
            return self.flag(id, |session| session.name = name);
        }
        if is(word, "GETNAME") {
            let name = self.sessions.get(&id).map(|session| session.name.clone()).unwrap_or_default();
            return if name.is_empty() { Reply::Nil } else { Reply::bulk(name) };
        }
        if is(word, "ID") {
            return Reply::Int(i64::try_from(id.0).unwrap_or(0));
        }
        if is(word, "KILL") {
            let others: Vec<SessionId> = self.sessions.keys().copied().filter(|other| *other != id).collect();
            let count = others.len();
            others.into_iter().for_each(|other| self.hang_up(other));
            return Reply::count(count);
        }
        if is(word, "LIST") || is(word, "INFO") {
            let line = |id: &SessionId| format!("id={} addr=127.0.0.1:0 name= db=0\n", id.0);
            return Reply::Verbatim(self.sessions.keys().map(line).collect());
        }
        OK
    }

    fn discard(&mut self, id: SessionId) -> Reply {
        match self.sessions.get_mut(&id) {
            Some(session) if session.transaction.is_some() => {
                session.transaction = None;
                session.watched.clear();
                OK
            }
            _ => Reply::error("ERR DISCARD without MULTI"),
        }
    }

    fn watch(&mut self, id: SessionId, words: &[&[u8]]) -> Reply {
        if self.sessions.get(&id).is_some_and(|session| session.transaction.is_some()) {
            return Reply::error("ERR WATCH inside MULTI is not allowed");
        }
        for key in &words[1..] {
            let value = self.core().entry(key).map(|entry| entry.value.clone());
            let key = (*key).into();
            self.flag(id, |session| session.watched.push((key, value)));
        }
        OK
    }

    fn subscribe(&mut self, id: SessionId, kind: Kind, words: &[&[u8]]) -> Reply {
        let name = match kind {
            Kind::Channel => "subscribe",
            Kind::Pattern => "psubscribe",
            Kind::Shard => "ssubscribe",
        };
        let mut replies = Vec::new();
        for channel in &words[1..] {
            self.core().pubsub.subscribe(kind, channel, id);
            let count = self.count_subscriptions(id, kind);
            replies.push(Reply::Push(vec![Reply::bulk(name), Reply::bulk(channel), Reply::count(count)]));
        }
        Reply::Several(replies)
    }

    fn unsubscribe(&mut self, id: SessionId, kind: Kind, words: &[&[u8]]) -> Reply {
        let name = match kind {
            Kind::Channel => "unsubscribe",
            Kind::Pattern => "punsubscribe",
            Kind::Shard => "sunsubscribe",
        };
        let mut channels: Vec<Option<Vec<u8>>> = words[1..].iter().map(|channel| Some(channel.to_vec())).collect();
        if channels.is_empty() {
            let all = self.core().pubsub.channels_of(kind, id);
            channels = all.into_iter().map(|channel| Some(channel.to_vec())).collect();
        }
        if channels.is_empty() {
            channels.push(None);
        }
        let mut replies = Vec::new();
        for channel in channels {
            if let Some(channel) = &channel {
                self.core().pubsub.unsubscribe(kind, channel, id);
            }
            let count = self.count_subscriptions(id, kind);
            let channel = channel.map_or(Reply::Nil, Reply::bulk);
            replies.push(Reply::Push(vec![Reply::bulk(name), channel, Reply::count(count)]));
        }
        Reply::Several(replies)
    }

    fn count_subscriptions(&mut self, id: SessionId, kind: Kind) -> usize {
        let mut core = self.core();
        let mut of = |kind| core.pubsub.channels_of(kind, id).len();
        let (plain, shards) = (of(Kind::Channel) + of(Kind::Pattern), of(Kind::Shard));
        drop(core);
        self.flag(id, |session| (session.subscriptions, session.shard_subscriptions) = (plain, shards));
        if kind == Kind::Shard { shards } else { plain }
    }

    fn script(&mut self, words: &[&[u8]]) -> Reply {
        let word = words[1];
        let Some(engine) = &mut self.engine else { return Reply::error("ERR Lua could not be started") };
        if is(word, "LOAD") && words.len() == 3 {
            return commands::either(engine.load(words[2]).map(Reply::bulk));
        }
        if is(word, "EXISTS") && words.len() > 2 {
            let is_there = |digest: &&[u8]| {
                let digest = String::from_utf8_lossy(digest).to_lowercase();
                Reply::Int(engine.find(&digest).is_some().into())
            };
            return Reply::Array(words[2..].iter().map(is_there).collect());
        }
        if is(word, "FLUSH") {
            engine.forget_all();
            return OK;
        }
        if is(word, "KILL") {
            let mut core = self.core();
            return match core.is_busy() {
                true => {
                    core.state.busy_until = None;
                    OK
                }
                false => Reply::error("NOTBUSY No scripts in execution right now."),
            };
        }
        let word = String::from_utf8_lossy(word);
        Reply::error_of(format!("ERR unknown subcommand or wrong number of arguments for '{word}'. Try SCRIPT HELP."))
    }

    fn configure(&mut self, words: &[&[u8]]) -> Reply {
        let word = words[1];
        if is(word, "GET") && words.len() > 2 {
            let settings = self.settings();
            let fits = |name: &str| {
                words[2..].iter().any(|pattern| crate::pubsub::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
            };
            let found = settings.into_iter().filter(|(name, _)| fits(name));
            return Reply::Map(found.flat_map(|(name, value)| [Reply::bulk(name), Reply::bulk(value)]).collect());
        }
        if is(word, "SET") && words.len() > 3 && words.len().is_multiple_of(2) {
            for pair in words[2..].chunks(2) {
                let (name, value) = (String::from_utf8_lossy(pair[0]).to_lowercase(), String::from_utf8_lossy(pair[1]));
                self.set(&name, &value);
            }
            return OK;
        }
        if is(word, "RESETSTAT") {
            self.core().stats = crate::core::Stats::default();
        }
        OK
    }

    fn settings(&self) -> std::collections::BTreeMap<String, String> {
        let core = self.core();
        let fsync = match core.files.fsync() {
            Some(Fsync::Always) => "always",
            Some(Fsync::No) => "no",
            Some(Fsync::EverySecond) | None => "everysec",
        };
        let yes = |is: bool| if is { "yes" } else { "no" };
        let mut settings: std::collections::BTreeMap<String, String> = [
            ("appendfsync", fsync.to_owned()),
            ("appendonly", yes(core.files.has_aof()).to_owned()),
            ("no-appendfsync-on-rewrite", "no".to_owned()),
            ("timeout", "0".to_owned()),
            ("tcp-keepalive", "300".to_owned()),
            (
                "client-output-buffer-limit",
                "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60".to_owned(),
            ),
            ("cluster-require-full-coverage", "yes".to_owned()),
            ("min-replicas-to-write", core.settings.min_replicas.to_string()),
            ("min-replicas-max-lag", "10".to_owned()),
            ("disable-thp", "yes".to_owned()),
            ("latency-monitor-threshold", "0".to_owned()),
            ("slowlog-log-slower-than", "10000".to_owned()),
            ("maxmemory", core.settings.maxmemory.to_string()),
            ("maxmemory-policy", "noeviction".to_owned()),
            ("maxclients", core.config.maxclients.to_string()),
            ("save", core.settings.save.clone()),
            ("replica-serve-stale-data", yes(core.settings.serves_stale).to_owned()),
            ("databases", "16".to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        settings.extend(core.settings.other.clone());
        settings
    }

    fn set(&mut self, name: &str, value: &str) {
        let mut core = self.core();
        match name {
            "maxmemory" => core.settings.maxmemory = bytes(value),
            "min-replicas-to-write" => core.settings.min_replicas = value.parse().unwrap_or(0),
            "replica-serve-stale-data" => core.settings.serves_stale = value == "yes",
            "save" => core.settings.save = value.to_owned(),
            _ => drop(core.settings.other.insert(name.to_owned(), value.to_owned())),
        }
    }

    fn memory(&mut self, words: &[&[u8]]) -> Reply {
        match words {
            [_, usage, key, ..] if is(usage, "USAGE") => {
                let size = self.core().entry(key).map(|entry| entry.value.size());
                size.map_or(Reply::Nil, Reply::count)
            }
            _ => OK,
        }
    }

    fn wait_for_replicas(&mut self, id: SessionId, words: &[&[u8]], may_wait: bool) -> Reply {
        if !self.core().role.is_primary() {
            return Reply::error(
                "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is \
                 configured to be writable (which is not the default) writes to replicas are just local and are not \
                 propagated.",
            );
        }
        let (Some(replicas), until) = (int(words[1]), self.until(words[2])) else { return commands::NOT_AN_INTEGER };
        let until = match until {
            Ok(until) => until,
            Err(refused) => return refused,
        };
        let replicas = usize::try_from(replicas).unwrap_or(0);
        self.wait(id, Blocked { replicas, fsync: None, until }, may_wait)
    }

    fn wait_for_fsyncs(&mut self, id: SessionId, words: &[&[u8]], may_wait: bool) -> Reply {
        let out = || Reply::error("ERR value is out of range, value must between 0 and 1");
        let local = match int(words[1]) {
            Some(local @ 0..=1) => usize::try_from(local).unwrap_or(0),
            _ => return out(),
        };
        let (Some(replicas), until) = (int(words[2]), self.until(words[3])) else { return commands::NOT_AN_INTEGER };
        let until = match until {
            Ok(until) => until,
            Err(refused) => return refused,
        };
        let core = self.core();
        if !core.role.is_primary() {
            return Reply::error(
                "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local \
                 and are not propagated.",
            );
        }
        if local > 0 && !core.files.has_aof() {
            return Reply::error("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
        }
        drop(core);
        let replicas = usize::try_from(replicas).unwrap_or(0);
        self.wait(id, Blocked { replicas, fsync: Some(local), until }, may_wait)
    }

    /// When a timeout in milliseconds is over; never for 0.
    fn until(&self, word: &[u8]) -> Result<Option<crate::time::Time>, Reply> {
        let wrong = || Reply::error("ERR timeout is not an integer or out of range");
        match int(word).ok_or_else(wrong)? {
            ..0 => Err(Reply::error("ERR timeout is negative")),
            0 => Ok(None),
            ms => Ok(Some(self.core().now + ms.unsigned_abs() * 1_000)),
        }
    }
}

fn bytes(text: &str) -> u64 {
    let text = text.to_lowercase();
    for (unit, factor) in [("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<u64>().unwrap_or(0) * factor;
        }
    }
    text.parse().unwrap_or(0)
}

fn acl(words: &[&[u8]]) -> Reply {
    if is(words[1], "WHOAMI") {
        return Reply::bulk("default");
    }
    if is(words[1], "GETUSER") {
        let list = |words: &[&str]| Reply::Array(words.iter().map(Reply::bulk).collect());
        let fields = [
            ("flags", list(&["on", "nopass", "sanitize-payload"])),
            ("passwords", list(&[])),
            ("commands", Reply::bulk("+@all")),
            ("keys", Reply::bulk("~*")),
            ("channels", Reply::bulk("&*")),
            ("selectors", list(&[])),
        ];
        return Reply::Map(fields.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect());
    }
    OK
}
