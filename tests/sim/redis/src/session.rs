//! A connection of a client, as the server sees it.

use std::sync::Arc;

use crate::resp::{Bytes, Reply, Requests, Words};
use crate::time::Time;
use crate::value::Value;

/// A watched key, with what it held.
pub(crate) type Watched = (Bytes, Option<Arc<Value>>);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) requests: Requests,
    pub(crate) out: Vec<u8>,
    /// The version of the protocol: 2, or 3 after HELLO 3.
    pub(crate) protocol: u8,
    pub(crate) is_authenticated: bool,
    pub(crate) is_asking: bool,
    pub(crate) is_readonly: bool,
    pub(crate) transaction: Option<Transaction>,
    pub(crate) watched: Vec<Watched>,
    /// Channels and patterns, and channels of slots, that it listens to.
    pub(crate) subscriptions: usize,
    pub(crate) shard_subscriptions: usize,
    pub(crate) name: Vec<u8>,
    /// The replication offset behind its last write.
    pub(crate) write_offset: u64,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) is_closed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<Words>,
    pub(crate) is_refused: bool,
}

/// A WAIT that is not answered yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocked {
    pub(crate) replicas: usize,
    /// WAITAOF: how many local fsyncs, 0 or 1.
    pub(crate) fsync: Option<usize>,
    pub(crate) until: Option<Time>,
}

impl Session {
    pub(crate) fn new(is_authenticated: bool) -> Session {
        Session {
            requests: Requests::default(),
            out: Vec::new(),
            protocol: 2,
            is_authenticated,
            is_asking: false,
            is_readonly: false,
            transaction: None,
            watched: Vec::new(),
            subscriptions: 0,
            shard_subscriptions: 0,
            name: Vec::new(),
            write_offset: 0,
            blocked: None,
            is_closed: false,
        }
    }

    pub(crate) fn write(&mut self, reply: &Reply) {
        reply.write(self.protocol, &mut self.out);
    }

    /// With RESP2 it can do little else while it listens.
    pub(crate) fn only_listens(&self) -> bool {
        self.protocol == 2 && self.subscriptions + self.shard_subscriptions > 0
    }
}
