//! One Redis process.

use crate::config::Config;
use crate::time::Time;

/// A connection to one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// All data of a server at a moment, with its place in the replication. Cheap: values are shared until they change.
#[derive(Debug, Clone)]
pub struct Snapshot;

/// One Redis process, primary or replica.
pub struct Server {
    config: Config,
}

impl Server {
    /// A server without data, as it answers after its start.
    pub fn new(config: Config, _seed: u64) -> Server {
        Server { config }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn open(&mut self, _now: Time) -> SessionId {
        SessionId(0)
    }

    pub fn close(&mut self, _session: SessionId) {}

    /// Bytes of the client as a stream carries them: a part of a command, or several commands.
    pub fn receive(&mut self, _session: SessionId, _bytes: &[u8], _now: Time) {}

    /// What the server wrote to the session since the last time.
    pub fn take_output(&mut self, _session: SessionId) -> Vec<u8> {
        Vec::new()
    }

    /// Whether the server closed it: after what [`Server::take_output`] returns comes the end.
    pub fn is_closed(&self, _session: SessionId) -> bool {
        false
    }

    /// The sessions that have output, or were closed, since this was asked last. Others than the one that sent something
    /// may: subscribers, and those that wait.
    pub fn take_ready(&mut self) -> Vec<SessionId> {
        Vec::new()
    }

    /// When [`Server::tick`] has something to do, if ever.
    pub fn next_event(&self) -> Option<Time> {
        None
    }

    /// Does what is due: expiry, timeouts of `WAIT`, fsyncs, snapshots.
    pub fn tick(&mut self, _now: Time) {}

    /// Every script of another program: all calls but `SCRIPT KILL` are refused with BUSY until then.
    pub fn set_busy(&mut self, _until: Time) {}

    /// All calls are refused with LOADING until then.
    pub fn set_loading(&mut self, _until: Time) {}

    /// Whether files cannot be written: writes are refused with MISCONF, and nothing is fsynced.
    pub fn set_persistence_failing(&mut self, _is_failing: bool) {}

    pub fn set_maxmemory(&mut self, _bytes: u64) {}

    /// Bytes of data, estimated.
    pub fn used_memory(&self) -> u64 {
        0
    }

    /// Closes every connection of clients: `CLIENT KILL`.
    pub fn kill_clients(&mut self) {}

    /// Forgets all scripts: `SCRIPT FLUSH`.
    pub fn forget_scripts(&mut self) {}

    /// Loses everything: `FLUSHALL` of an operator.
    pub fn flush(&mut self, _now: Time) {}

    pub fn snapshot(&self) -> Snapshot {
        Snapshot
    }

    /// Goes back to an earlier state, with the same run id and a lower replication offset, as a virtual machine that is
    /// restored.
    pub fn rewind(&mut self, _to: &Snapshot, _now: Time) {}

    /// Every key with its type, whether it expires, and its content, in one order.
    pub fn dump(&mut self, _now: Time) -> Vec<String> {
        Vec::new()
    }

    /// Executes one command for the simulator itself, past all sessions and refusals, and answers in RESP2.
    pub fn command(&mut self, _words: &[&[u8]], _now: Time) -> Vec<u8> {
        Vec::new()
    }

    /// Counts from now on how often each line of each script runs. Scripts become about three times slower.
    pub fn count_lines(&mut self) {}

    /// The sources of scripts that were loaded, each with the counts of its lines, from line 1.
    pub fn line_counts(&self) -> Vec<(String, Vec<u64>)> {
        Vec::new()
    }
}
