//! Several servers with what is between them: the Redis that the brokers of a simulation share.
//!
//! It is a network of its own between servers, replicas and sentinels; the network between brokers and servers is the
//! simulator's. A simulator calls [`Deployment::tick`] at [`Deployment::next_event`], carries bytes to and from
//! connections, and looks after each call at [`Deployment::take_ready`].

use crate::config::Config;
use crate::server::{Server, Snapshot};
use crate::time::Time;

/// What is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One primary. Clients connect to it alone: nobody promotes a replica, unless the simulator does.
    Primary { replicas: usize },
    /// Sentinels, which promote a replica when a quorum finds that the primary is gone.
    Sentinels { replicas: usize, sentinels: usize },
    /// A Redis Cluster.
    Cluster { shards: usize, replicas: usize },
}

/// A server or a sentinel: servers come first, primaries before their replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A connection to one node. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// What a crash leaves for the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed: the kernel has all that it wrote.
    Process,
    /// Power is cut: what was fsynced is there, and a part of the rest, by the seed.
    Power,
    /// The disk is gone too.
    Disk,
}

pub struct Deployment {
    servers: Vec<Server>,
}

impl Deployment {
    /// Starts everything, without data. Hosts are `redis-0`, `redis-1` …, and `sentinel-0` …
    pub fn new(_layout: Layout, config: &Config, seed: u64, _now: Time) -> Deployment {
        Deployment { servers: vec![Server::new(config.clone(), seed)] }
    }

    /// What `redis.url` of dwell has to be.
    pub fn url(&self) -> String {
        String::new()
    }

    /// All nodes, sentinels last.
    pub fn nodes(&self) -> Vec<NodeId> {
        Vec::new()
    }

    pub fn address(&self, _node: NodeId) -> Address {
        Address { host: String::new(), port: 0 }
    }

    pub fn node_at(&self, _host: &str, _port: u16) -> Option<NodeId> {
        None
    }

    /// Those that are primaries by their own view, whether they are reached or not.
    pub fn primaries(&self) -> Vec<NodeId> {
        Vec::new()
    }

    pub fn replicas_of(&self, _primary: NodeId) -> Vec<NodeId> {
        Vec::new()
    }

    /// The running server of a node; nothing while it is down, and for sentinels.
    pub fn server(&self, node: NodeId) -> Option<&Server> {
        self.servers.get(node.0)
    }

    pub fn server_mut(&mut self, node: NodeId) -> Option<&mut Server> {
        self.servers.get_mut(node.0)
    }

    // Connections of clients.

    /// Nothing if the node is down: the connection is refused.
    pub fn connect(&mut self, _node: NodeId, _now: Time) -> Option<ConnectionId> {
        None
    }

    pub fn receive(&mut self, _connection: ConnectionId, _bytes: &[u8], _now: Time) {}

    pub fn take_output(&mut self, _connection: ConnectionId) -> Vec<u8> {
        Vec::new()
    }

    /// Whether the other end closed it, or is gone: after the output comes the end.
    pub fn is_closed(&self, _connection: ConnectionId) -> bool {
        false
    }

    /// The client closed it. What it sent before was received.
    pub fn close(&mut self, _connection: ConnectionId) {}

    /// The connections that have output, or were closed, since this was asked last.
    pub fn take_ready(&mut self) -> Vec<ConnectionId> {
        Vec::new()
    }

    /// When [`Deployment::tick`] has something to do, if ever.
    pub fn next_event(&self) -> Option<Time> {
        None
    }

    /// Does what is due: replication, expiry, timeouts, fsyncs, the decisions of sentinels and of the cluster.
    pub fn tick(&mut self, _now: Time) {}

    // Faults of a node.

    /// Ends a node at once. Its connections are closed.
    pub fn crash(&mut self, _node: NodeId, _crash: Crash, _now: Time) {}

    /// Starts a node that is down: what it has then is what its files kept. It is LOADING for so long, microseconds.
    pub fn restart(&mut self, _node: NodeId, _loading_us: u64, _now: Time) {}

    pub fn is_up(&self, _node: NodeId) -> bool {
        true
    }

    /// Stops a node as SIGSTOP does, until then: it answers nothing, and does what came meanwhile afterwards.
    pub fn freeze(&mut self, _node: NodeId, _until: Time) {}

    // Replication.

    /// The time from a write on the primary until a replica has it, microseconds.
    pub fn set_lag(&mut self, _replica: NodeId, _us: u64) {}

    /// Cuts a node off from all other nodes, or ends that. Clients reach it all the same.
    pub fn set_cut_off(&mut self, _node: NodeId, _is_cut_off: bool, _now: Time) {}

    /// Makes a replica a primary, as `REPLICAOF NO ONE`, whatever the old one thinks: both are primaries then.
    pub fn promote(&mut self, _replica: NodeId, _now: Time) {}

    /// Makes a node a replica of another one, as `REPLICAOF`: it takes over what that one has, and loses its own.
    pub fn demote(&mut self, _node: NodeId, _of: NodeId, _now: Time) {}

    /// Promotes a replica of a primary and makes the old primary, if it is up, and the other replicas its replicas. Sentinels
    /// announce it, nodes of a cluster know it. Without `is_graceful` what was not replicated is lost.
    pub fn fail_over(&mut self, _replica: NodeId, _is_graceful: bool, _now: Time) {}

    pub fn snapshot(&self, _node: NodeId) -> Option<Snapshot> {
        None
    }

    // Sentinels.

    /// What a sentinel says until the next failover, whatever is true.
    pub fn set_belief(&mut self, _sentinel: NodeId, _primary: NodeId, _now: Time) {}

    // Slots of a cluster.

    pub fn slot_of(&self, _key: &[u8]) -> u16 {
        0
    }

    /// The primary that has the slot now, by the view of most.
    pub fn owner_of(&self, _slot: u16) -> Option<NodeId> {
        None
    }

    /// Begins to move a slot: MIGRATING here, IMPORTING there.
    pub fn begin_move(&mut self, _slot: u16, _to: NodeId) {}

    /// Moves up to so many keys of a slot that is being moved; answers how many are left.
    pub fn move_keys(&mut self, _slot: u16, _count: usize, _now: Time) -> usize {
        0
    }

    /// The slot belongs to the node that it was moved to, with all keys that are left.
    pub fn end_move(&mut self, _slot: u16, _now: Time) {}
}
