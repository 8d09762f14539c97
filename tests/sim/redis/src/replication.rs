//! What a primary gives to its replicas, and how far each has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::{Core, Effect, Effects};
use crate::resp::{Bytes, Reply};
use crate::time::Time;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Replica { host: String, port: u16, is_connected: bool, since: Time },
}

impl Role {
    pub(crate) fn is_primary(&self) -> bool {
        *self == Role::Primary
    }
}

/// The history of a data set: changes with offsets, under a name that a promotion changes.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) replid: String,
    /// The name before the last promotion, and up to where it means the same.
    pub(crate) replid2: String,
    pub(crate) offset2: i64,
    pub(crate) offset: u64,
    /// Whether there were replicas once: then changes are kept for them.
    pub(crate) is_kept: bool,
    /// What some replica may not have yet.
    pub(crate) effects: Effects,
    /// The offset behind the last change that was dropped.
    pub(crate) dropped: u64,
    /// By the number of the node.
    pub(crate) replicas: BTreeMap<usize, Follower>,
}

/// A replica as its primary knows it.
#[derive(Debug, Clone)]
pub(crate) struct Follower {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_connected: bool,
    /// The offset that it has, and the one that it has fsynced.
    pub(crate) acked: u64,
    pub(crate) fsynced: u64,
    pub(crate) heard: Time,
}

/// Changes that are kept for replicas which are away.
const BACKLOG: usize = 10_000;

const NO_REPLID: &str = "0000000000000000000000000000000000000000";

impl Log {
    pub(crate) fn new(replid: String) -> Log {
        Log {
            replid,
            replid2: NO_REPLID.to_owned(),
            offset2: -1,
            offset: 0,
            is_kept: false,
            effects: Effects::new(),
            dropped: 0,
            replicas: BTreeMap::new(),
        }
    }

    /// Until 7.2 the offset stands still while there was never a replica.
    pub(crate) fn append(&mut self, commands: Vec<Vec<Bytes>>, at: Time, counts_always: bool) -> Arc<Effect> {
        if self.is_kept || counts_always {
            self.offset += size(&commands);
        }
        let effect = Arc::new(Effect { commands, offset: self.offset, at });
        if self.is_kept {
            self.effects.push_back(effect.clone());
        }
        effect
    }

    /// Drops what all replicas have, and what does not fit into the backlog.
    pub(crate) fn trim(&mut self, to: u64) {
        while self.effects.front().is_some_and(|effect| effect.offset <= to) || self.effects.len() > BACKLOG {
            self.dropped = self.effects.pop_front().map_or(self.dropped, |effect| effect.offset);
        }
    }

    /// Begins to keep changes for replicas.
    pub(crate) fn keep(&mut self) {
        if !self.is_kept {
            self.is_kept = true;
            self.restart(self.offset);
        }
    }

    /// Is at an offset, and knows nothing of what came before.
    pub(crate) fn restart(&mut self, offset: u64) {
        self.offset = offset;
        self.dropped = offset;
        self.effects.clear();
    }

    /// Whether a replica at an offset of a history needs only what is kept here.
    pub(crate) fn continues(&self, replid: &str, offset: u64) -> bool {
        let is_past = i64::try_from(offset).is_ok_and(|offset| offset < self.offset2);
        let is_known = replid == self.replid && offset <= self.offset || replid == self.replid2 && is_past;
        self.is_kept && is_known && offset >= self.dropped
    }

    pub(crate) fn acks(&self, offset: u64) -> usize {
        self.replicas.values().filter(|replica| replica.is_connected && replica.acked >= offset).count()
    }

    pub(crate) fn fsyncs(&self, offset: u64) -> usize {
        self.replicas.values().filter(|replica| replica.is_connected && replica.fsynced >= offset).count()
    }

    /// Begins a new history, of which the old one is a part.
    pub(crate) fn shift(&mut self, replid: String) {
        self.replid2 = std::mem::replace(&mut self.replid, replid);
        self.offset2 = i64::try_from(self.offset + 1).unwrap_or(i64::MAX);
    }
}

/// Bytes that a change takes in the stream; several commands are between MULTI and EXEC.
fn size(commands: &[Vec<Bytes>]) -> u64 {
    let digits = |number: usize| number.checked_ilog10().map_or(1, |digits| digits as usize + 1);
    let word = |word: &Bytes| 5 + digits(word.len()) + word.len();
    let command = |words: &Vec<Bytes>| 3 + digits(words.len()) + words.iter().map(word).sum::<usize>();
    let all: usize = commands.iter().map(command).sum();
    let around = if commands.len() > 1 { 15 + 14 } else { 0 };
    u64::try_from(all + around).unwrap_or(u64::MAX)
}

/// The answer of ROLE.
pub(crate) fn role(core: &Core) -> Reply {
    let offset = i64::try_from(core.log.offset).unwrap_or(i64::MAX);
    match &core.role {
        Role::Primary => {
            let replica = |replica: &Follower| {
                let words = [replica.host.clone(), replica.port.to_string(), replica.acked.to_string()];
                Reply::Array(words.into_iter().map(Reply::bulk).collect())
            };
            let connected = core.log.replicas.values().filter(|replica| replica.is_connected);
            Reply::Array(vec![
                Reply::bulk("master"),
                Reply::Int(offset),
                Reply::Array(connected.map(replica).collect()),
            ])
        }
        Role::Replica { host, port, is_connected, .. } => Reply::Array(vec![
            Reply::bulk("slave"),
            Reply::bulk(host),
            Reply::Int((*port).into()),
            Reply::bulk(if *is_connected { "connected" } else { "connect" }),
            Reply::Int(offset),
        ]),
    }
}
