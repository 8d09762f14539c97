//! What the simulator does to a server, and looks at.

use super::{Server, SessionId, Snapshot};
use crate::commands::{self, Run};
use crate::lua::LineCounts;
use crate::resp::Reply;
use crate::time::Time;
use crate::value::{Value, double};

impl Server {
    /// As if a script of another program ran: all calls but `SCRIPT KILL` are refused with BUSY until then.
    pub fn set_busy(&mut self, until: Time) {
        self.core().state.busy_until = Some(until);
    }

    /// All calls are refused with LOADING until then.
    pub fn set_loading(&mut self, until: Time) {
        self.core().state.loading_until = Some(until);
    }

    /// Whether files cannot be written: writes are refused with MISCONF, and nothing is fsynced.
    pub fn set_persistence_failing(&mut self, is_failing: bool) {
        self.core().state.is_failing = is_failing;
    }

    pub fn set_maxmemory(&mut self, bytes: u64) {
        self.core().settings.maxmemory = bytes;
    }

    /// `replica-serve-stale-data`: without it a replica that lost its primary answers MASTERDOWN.
    pub fn set_serves_stale(&mut self, serves: bool) {
        self.core().settings.serves_stale = serves;
    }

    /// Bytes of data, estimated.
    pub fn used_memory(&self) -> u64 {
        self.core().used_memory()
    }

    pub fn is_primary(&self) -> bool {
        self.core().role.is_primary()
    }

    pub fn run_id(&self) -> String {
        self.core().run_id.clone()
    }

    /// The name of its replication history, and how far it is.
    pub fn replication(&self) -> (String, u64) {
        let core = self.core();
        (core.log.replid.clone(), core.log.offset)
    }

    /// Closes every connection of clients: `CLIENT KILL`.
    pub fn kill_clients(&mut self) {
        let all: Vec<SessionId> = self.sessions.keys().copied().collect();
        all.into_iter().for_each(|session| self.hang_up(session));
    }

    pub(super) fn hang_up(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.is_closed = true;
            session.blocked = None;
            self.ready.insert(id);
            self.core().pubsub.forget(id);
        }
    }

    /// Forgets all scripts: `SCRIPT FLUSH`.
    pub fn forget_scripts(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.forget_all();
        }
    }

    /// Loses everything: `FLUSHALL` of an operator.
    pub fn flush(&mut self, now: Time) {
        self.command(&[b"FLUSHALL"], now);
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.core().image())
    }

    /// Goes back to an earlier state, with the same run id and a lower replication offset, as a virtual machine that is
    /// restored. A [`Deployment`](crate::Deployment) gives the replicas the same state.
    pub fn rewind(&mut self, to: &Snapshot, now: Time) {
        let mut core = self.at(now);
        core.data = to.0.data.clone();
        core.log.replid = to.0.replid.clone();
        core.log.offset = to.0.offset;
        core.log.effects.clear();
        core.files.rewrite(to.0.clone());
    }

    /// Every key with its type, whether it expires, and its content, in one order: scores as Redis 7.0 writes them.
    pub fn dump(&mut self, now: Time) -> Vec<String> {
        let core = self.at(now);
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let mut lines: Vec<String> = Vec::new();
        for (key, entry) in core.data.iter() {
            if entry.expires_ms.is_some_and(|at| at < core.now.as_ms()) {
                continue;
            }
            let mut content: Vec<String> = match &*entry.value {
                Value::Text(value) => vec![text(value)],
                Value::Hash(hash) => {
                    hash.iter().map(|(field, value)| format!("{} = {}", text(field), text(value))).collect()
                }
                Value::Set(set) => set.iter().map(|member| text(member)).collect(),
                Value::Zset(zset) => {
                    zset.iter().map(|(member, score)| format!("{} at {}", text(member), double(score))).collect()
                }
            };
            content.sort_unstable();
            let expires = if entry.expires_ms.is_some() { ", expires" } else { "" };
            lines.push(format!("{} ({}{expires}): {}", text(key), entry.value.kind(), content.join(", ")));
        }
        lines.sort_unstable();
        lines
    }

    /// Executes one command on the data for the simulator itself, past all sessions and refusals, and answers in RESP2.
    pub fn command(&mut self, words: &[&[u8]], now: Time) -> Vec<u8> {
        let reply = {
            let mut core = self.at(now);
            let reply = match words.first().and_then(|name| commands::find(name)) {
                Some(spec) if spec.fits(words.len()) => match spec.run {
                    Run::Data(handler) => commands::execute(&mut core, spec, handler, words),
                    Run::Session => Reply::error("ERR not a command on the data"),
                },
                _ => Reply::error("ERR unknown command"),
            };
            core.end_of_command();
            reply
        };
        self.settle();
        let mut out = Vec::new();
        reply.write(2, &mut out);
        out
    }

    /// Counts how often each line runs of each script that is loaded from now on. Scripts become about three times slower.
    pub fn count_lines(&mut self, lines: &LineCounts) {
        if let Some(engine) = &mut self.engine {
            let _ = engine.count_lines(lines);
        }
    }
}
