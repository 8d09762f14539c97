//! Several servers with what is between them: the Redis that the brokers of a simulation share.
//!
//! It is a network of its own between servers, replicas and sentinels; the network between brokers and servers is the
//! simulator's. A simulator calls [`Deployment::tick`] at [`Deployment::next_event`], carries bytes to and from
//! connections, and looks after each call at [`Deployment::take_ready`].

mod cluster;
mod failover;
mod faults;
mod followers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::{ClusterView, Member, NOBODY, SLOTS};
use crate::config::Config;
use crate::core::{Effect, hex40};
use crate::lua::LineCounts;
use crate::persistence::Image;
use crate::server::{Server, SessionId, Snapshot};
use crate::time::Time;

/// What is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One primary. Clients find it under a name; nobody promotes a replica, unless the simulator does.
    Primary { replicas: usize },
    /// Sentinels, which promote a replica when a quorum finds that the primary is gone.
    Sentinels { replicas: usize, sentinels: usize },
    /// A Redis Cluster, which promotes a replica when most of its primaries find that one is gone.
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

/// The name of the primary in sentinels.
const NAME: &str = "main";

struct Node {
    config: Config,
    is_sentinel: bool,
    server: Option<Server>,
    /// What the next start finds, while it is down.
    files: (Image, Vec<Arc<Effect>>),
    /// What another server has that may stand at the same address.
    others: (Image, Vec<Arc<Effect>>),
    /// The primary that it follows; nothing for a primary.
    follows: Option<usize>,
    lag_us: u64,
    link: Link,
    is_cut_off: bool,
    frozen_until: Option<Time>,
    /// What came while it was frozen.
    inbox: Vec<(ConnectionId, Arrival)>,
    /// Since when the others do not reach it.
    missed_since: Option<Time>,
    /// When a failover is tried again that could not be made.
    tried_again: Time,
    /// It came back after another one took its place: when it is told, and whom it then follows.
    demotion: Option<(Time, usize)>,
    /// A sentinel that errs about the decision of this number.
    errs_in: Option<u64>,
}

enum Arrival {
    Bytes(Vec<u8>),
    End,
}

/// The stream from its primary, as a replica has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Down,
    Up,
    /// Nothing comes any more, and neither end knows it before then.
    Silent(Time),
}

struct Connection {
    node: usize,
    session: Option<SessionId>,
    /// What its server wrote before it ended.
    rest: Vec<u8>,
}

pub struct Deployment {
    layout: Layout,
    random: fastrand::Rng,
    nodes: Vec<Node>,
    connections: BTreeMap<ConnectionId, Connection>,
    sessions: BTreeMap<(usize, SessionId), ConnectionId>,
    last_connection: u64,
    ready: BTreeSet<ConnectionId>,
    now: Time,
    /// How long a primary is missed before a replica is promoted, microseconds.
    failover_after: u64,
    /// The number of the last decision of sentinels, or of the cluster.
    epoch: u64,
    /// The slots of a cluster by the view of most, and those that are being moved, with where to.
    owners: Vec<usize>,
    moves: BTreeMap<u16, usize>,
    voters: Vec<usize>,
    ids: Vec<String>,
    lines: Option<LineCounts>,
}

const LAG: u64 = 500;
const FAILOVER_AFTER: u64 = 5_000_000;

impl Deployment {
    /// Starts everything, without data. Hosts are `redis-0`, `redis-1` …, and `sentinel-0` …
    pub fn new(layout: Layout, config: &Config, seed: u64, now: Time) -> Deployment {
        let (primaries, replicas, sentinels) = match layout {
            Layout::Primary { replicas } => (1, replicas, 0),
            Layout::Sentinels { replicas, sentinels } => (1, replicas, sentinels),
            Layout::Cluster { shards, replicas } => (shards.max(1), replicas, 0),
        };
        let servers = primaries * (1 + replicas);
        let mut random = fastrand::Rng::with_seed(seed);
        let node = |number: usize| {
            let is_sentinel = number >= servers;
            let (host, port) = match is_sentinel {
                true => (format!("sentinel-{}", number - servers), 26_379),
                false => (format!("redis-{number}"), config.port),
            };
            let is_cluster = matches!(layout, Layout::Cluster { .. });
            let (aof, password) =
                (config.aof.filter(|_| !is_sentinel), config.password.clone().filter(|_| !is_sentinel));
            Node {
                config: Config { host, port, cluster: is_cluster, aof, password, ..config.clone() },
                is_sentinel,
                server: None,
                files: (Image::default(), Vec::new()),
                others: (Image::default(), Vec::new()),
                follows: (primaries..servers).contains(&number).then(|| (number - primaries) % primaries),
                lag_us: LAG,
                link: Link::Down,
                is_cut_off: false,
                frozen_until: None,
                inbox: Vec::new(),
                missed_since: None,
                tried_again: Time::default(),
                demotion: None,
                errs_in: None,
            }
        };
        let nodes: Vec<Node> = (0..servers + sentinels).map(node).collect();
        let ids = nodes.iter().map(|_| hex40(&mut random)).collect();
        let share = usize::from(SLOTS).div_ceil(primaries);
        let mut deployment = Deployment {
            layout,
            random,
            nodes,
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_connection: 0,
            ready: BTreeSet::new(),
            now,
            failover_after: FAILOVER_AFTER,
            epoch: 1,
            owners: (0..usize::from(SLOTS)).map(|slot| slot / share).collect(),
            moves: BTreeMap::new(),
            voters: Vec::new(),
            ids,
            lines: None,
        };
        deployment.voters = deployment.voters();
        for number in 0..deployment.nodes.len() {
            deployment.start(number, 0);
        }
        deployment.tick(now);
        deployment
    }

    /// What `redis.url` of dwell has to be.
    pub fn url(&self) -> String {
        let hosts = |is_sentinel: bool| {
            let nodes = self.nodes.iter().filter(|node| node.is_sentinel == is_sentinel);
            let place = |node: &Node| format!("{}:{}", node.config.host, node.config.port);
            nodes.map(place).collect::<Vec<_>>()
        };
        match self.layout {
            Layout::Primary { .. } => format!("redis://{NAME}:{}", self.nodes[0].config.port),
            Layout::Sentinels { .. } => format!("redis+sentinel://{}/{NAME}", hosts(true).join(",")),
            Layout::Cluster { .. } => format!("redis+cluster://{}", hosts(false).join(",")),
        }
    }

    /// All nodes, sentinels last.
    pub fn nodes(&self) -> Vec<NodeId> {
        (0..self.nodes.len()).map(NodeId).collect()
    }

    pub fn is_sentinel(&self, node: NodeId) -> bool {
        self.nodes.get(node.0).is_some_and(|node| node.is_sentinel)
    }

    pub fn address(&self, node: NodeId) -> Address {
        let config = self.nodes.get(node.0).map(|node| node.config.clone()).unwrap_or_default();
        Address { host: config.host, port: config.port }
    }

    /// The node of an address. Without sentinels and cluster `main` is the primary, whichever node that is now.
    pub fn node_at(&self, host: &str, port: u16) -> Option<NodeId> {
        if host == NAME {
            return Some(NodeId(self.current_primary()));
        }
        self.nodes.iter().position(|node| node.config.host == host && node.config.port == port).map(NodeId)
    }

    /// Those that are primaries by their own view, whether they are reached or not.
    pub fn primaries(&self) -> Vec<NodeId> {
        let is_primary = |node: &NodeId| self.server(*node).is_some_and(Server::is_primary);
        self.nodes().into_iter().filter(is_primary).collect()
    }

    pub fn replicas_of(&self, primary: NodeId) -> Vec<NodeId> {
        self.nodes().into_iter().filter(|node| self.nodes[node.0].follows == Some(primary.0)).collect()
    }

    /// The running server of a node; nothing while it is down, and for sentinels.
    pub fn server(&self, node: NodeId) -> Option<&Server> {
        self.nodes.get(node.0).filter(|node| !node.is_sentinel)?.server.as_ref()
    }

    pub fn server_mut(&mut self, node: NodeId) -> Option<&mut Server> {
        self.nodes.get_mut(node.0).filter(|node| !node.is_sentinel)?.server.as_mut()
    }

    pub fn snapshot(&self, node: NodeId) -> Option<Snapshot> {
        self.server(node).map(Server::snapshot)
    }

    /// Counts the lines of scripts on all servers, those too that start later.
    pub fn count_lines(&mut self) -> LineCounts {
        let lines = self.lines.get_or_insert_default().clone();
        let servers = self.nodes.iter_mut().filter_map(|node| node.server.as_mut());
        servers.for_each(|server| server.count_lines(&lines));
        lines
    }

    // Connections of clients.

    /// Nothing if the node is down: the connection is refused.
    pub fn connect(&mut self, node: NodeId, now: Time) -> Option<ConnectionId> {
        self.now = self.now.max(now);
        let session = self.nodes.get_mut(node.0)?.server.as_mut()?.open(now);
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        self.connections.insert(id, Connection { node: node.0, session: Some(session), rest: Vec::new() });
        self.sessions.insert((node.0, session), id);
        self.gather(node.0);
        Some(id)
    }

    /// Bytes of the client as a stream carries them: a part of a command, or several commands.
    pub fn receive(&mut self, connection: ConnectionId, bytes: &[u8], now: Time) {
        self.now = self.now.max(now);
        let Some((number, session)) =
            self.connections.get(&connection).and_then(|there| Some((there.node, there.session?)))
        else {
            return;
        };
        let node = &mut self.nodes[number];
        if node.frozen_until.is_some() {
            node.inbox.push((connection, Arrival::Bytes(bytes.to_vec())));
            return;
        }
        self.hear(number);
        if let Some(server) = &mut self.nodes[number].server {
            server.receive(session, bytes, now);
        }
        self.replicate_from(number);
        self.gather(number);
    }

    pub fn take_output(&mut self, connection: ConnectionId) -> Vec<u8> {
        let Some(there) = self.connections.get_mut(&connection) else { return Vec::new() };
        let node = &mut self.nodes[there.node];
        match (there.session, &mut node.server) {
            (Some(_), _) if node.frozen_until.is_some() => Vec::new(),
            (Some(session), Some(server)) => server.take_output(session),
            _ => std::mem::take(&mut there.rest),
        }
    }

    /// Whether the other end closed it, or is gone: after the output comes the end.
    pub fn is_closed(&self, connection: ConnectionId) -> bool {
        let Some(there) = self.connections.get(&connection) else { return true };
        match (there.session, &self.nodes[there.node].server) {
            (Some(session), Some(server)) => server.is_closed(session),
            _ => true,
        }
    }

    /// The client closed it. What it sent before was received.
    pub fn close(&mut self, connection: ConnectionId) {
        let Some(there) = self.connections.get(&connection) else { return };
        let node = &mut self.nodes[there.node];
        if node.frozen_until.is_some() && there.session.is_some() {
            node.inbox.push((connection, Arrival::End));
            return;
        }
        if let (Some(session), Some(server)) = (there.session, &mut node.server) {
            server.close(session);
            self.sessions.remove(&(there.node, session));
        }
        self.connections.remove(&connection);
        self.ready.remove(&connection);
    }

    /// The connections that have output, or were closed, since this was asked last.
    pub fn take_ready(&mut self) -> Vec<ConnectionId> {
        for number in 0..self.nodes.len() {
            self.gather(number);
        }
        std::mem::take(&mut self.ready).into_iter().collect()
    }

    /// Looks which connections of a node have something for their clients.
    fn gather(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.frozen_until.is_some() {
            return;
        }
        if let Some(server) = &mut node.server {
            let ready = server.take_ready();
            self.ready.extend(ready.into_iter().filter_map(|session| self.sessions.get(&(number, session)).copied()));
        }
    }

    /// When [`Deployment::tick`] has something to do, if ever.
    pub fn next_event(&self) -> Option<Time> {
        let running = self.nodes.iter().filter(|node| node.frozen_until.is_none());
        let own = running.filter_map(|node| node.server.as_ref()?.next_event());
        let frozen = self.nodes.iter().filter_map(|node| node.frozen_until);
        let demotions = self.nodes.iter().filter_map(|node| Some(node.demotion?.0)).filter(|at| at.0 < u64::MAX);
        let failovers = (0..self.nodes.len()).filter_map(|number| self.failover_at(number));
        let streams = (0..self.nodes.len()).filter_map(|number| self.next_of_stream(number));
        let next = own.chain(frozen).chain(demotions).chain(failovers).chain(streams).min()?;
        // What was due is done at the next tick.
        Some(next.max(self.now))
    }

    /// Does what is due: replication, expiry, timeouts, fsyncs, the decisions of sentinels and of the cluster.
    pub fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.thaw();
        self.link_all();
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            if let (None, Some(server)) = (node.frozen_until, &mut node.server) {
                server.tick(now);
            }
        }
        for number in 0..self.nodes.len() {
            self.hear(number);
            self.replicate_from(number);
        }
        self.decide();
    }

    fn is_running(&self, number: usize) -> bool {
        self.nodes.get(number).is_some_and(|node| node.server.is_some() && node.frozen_until.is_none())
    }

    /// Whether other nodes reach it.
    fn is_reached(&self, number: usize) -> bool {
        self.is_running(number) && !self.nodes[number].is_cut_off
    }

    /// Starts a node with what its files have.
    fn start(&mut self, number: usize, loading_us: u64) {
        let seed = self.random.u64(..);
        let (now, node) = (self.now, &mut self.nodes[number]);
        let mut server = Server::new(node.config.clone(), seed);
        if let Some(lines) = &self.lines {
            server.count_lines(lines);
        }
        let (image, effects) = std::mem::take(&mut node.files);
        server.load(image, &effects, now, loading_us);
        if let Some(primary) = node.follows {
            let config = self.nodes[primary].config.clone();
            server.follow(&config.host, config.port, now);
        }
        let node = &mut self.nodes[number];
        node.link = Link::Down;
        node.server = Some(server);
        if self.nodes[number].is_sentinel {
            let primary = self.current_primary();
            self.tell_sentinel(number, primary);
        }
        if matches!(self.layout, Layout::Cluster { .. }) {
            self.tell_cluster(number);
        }
    }
}
