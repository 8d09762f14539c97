//! A Redis Cluster of real processes on loopback.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::redis::RedisServer;
use super::tls::free_port;
use super::{eventually, eventually_within, failed, scratch};

/// Slots of a cluster.
const SLOTS: usize = 16_384;

/// Three primaries, each with as many replicas as asked for.
pub(crate) struct Cluster {
    pub(crate) primaries: Vec<Node>,
    /// Those of the first primary, of the second, of the third, and so on: as at the start.
    pub(crate) replicas: Vec<Node>,
}

/// One process.
pub(crate) struct Node {
    pub(crate) server: RedisServer,
    pub(crate) port: String,
    bus: String,
    pub(crate) id: String,
}

impl Node {
    async fn start() -> Result<Node> {
        Node::start_in(scratch()?).await
    }

    async fn start_in(dir: TempDir) -> Result<Node> {
        let (port, bus) = (free_port()?, free_port()?);
        let cluster = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            "--cluster-require-full-coverage",
            "no",
            "--cluster-port",
            &bus,
        ];
        let tcp = ["--save", "", "--bind", "127.0.0.1", "--port", &port, "--repl-diskless-sync-delay", "0"];
        let server = RedisServer::start_in(dir, &[&tcp[..], &cluster[..]].concat()).await?;
        let id = server.ask("CLUSTER MYID").await?;
        Ok(Node { server, port, bus, id })
    }

    async fn says(&self, command: &str, what: &str) -> Result<()> {
        eventually(what, async || {
            let said: String = self.server.ask(command).await?;
            Ok(said.contains(what).then_some(()))
        })
        .await
    }
}

impl Cluster {
    /// Starts one, and waits until it is whole.
    pub(crate) async fn start(replicas: usize) -> Result<Cluster> {
        let nodes = futures_util::future::try_join_all((0..3 * (replicas + 1)).map(|_| Node::start())).await?;
        for node in &nodes[1..] {
            nodes[0].server.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {}", node.port, node.bus)).await?;
        }
        for (n, node) in nodes[..3].iter().enumerate() {
            let (first, end) = (n * SLOTS / 3, (n + 1) * SLOTS / 3);
            node.server.ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1)).await?;
        }
        let known = format!("cluster_known_nodes:{}", nodes.len());
        for node in &nodes {
            node.says("CLUSTER INFO", &known).await?;
        }
        for (n, node) in nodes[3..].iter().enumerate() {
            let primary = &nodes[n % 3].id;
            let replicates = async || Ok(node.server.ask::<()>(&format!("CLUSTER REPLICATE {primary}")).await.ok());
            eventually("it replicates", replicates).await?;
        }
        for node in &nodes {
            node.says("CLUSTER INFO", "cluster_state:ok").await?;
            node.says("CLUSTER INFO", &format!("cluster_slots_assigned:{SLOTS}")).await?;
        }
        for node in &nodes[3..] {
            node.says("INFO replication", "master_link_status:up").await?;
        }
        let mut primaries = nodes;
        let replicas = primaries.split_off(3);
        Ok(Cluster { primaries, replicas })
    }

    /// Ends a primary, and starts it again at another address, with its slots and without its data.
    pub(crate) async fn move_emptied(&mut self, n: usize) -> Result<()> {
        let (dir, nodes) = (scratch()?, "nodes.conf");
        self.primaries[n].server.kill()?;
        std::fs::copy(self.primaries[n].server.dir().join(nodes), dir.path().join(nodes))
            .map_err(failed("nodes.conf"))?;
        self.primaries[n] = Node::start_in(dir).await?;
        self.agreed(Duration::from_secs(60)).await
    }

    /// Waits until every node finds every other one in order.
    pub(crate) async fn agreed(&self, patience: Duration) -> Result<()> {
        for node in self.primaries.iter().chain(&self.replicas) {
            eventually_within(patience, "the nodes agree", async || {
                let info: String = node.server.ask("CLUSTER INFO").await.unwrap_or_default();
                let nodes: String = node.server.ask("CLUSTER NODES").await.unwrap_or_default();
                let is_ok = info.contains("cluster_state:ok") && info.contains(&format!("slots_ok:{SLOTS}"));
                Ok((is_ok && !nodes.contains("fail") && !nodes.contains("disconnected")).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// The one that is there, or a new one of primaries alone. It ends with the last who shares it.
    pub(crate) async fn shared() -> Result<Arc<Cluster>> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(cluster) = shared.upgrade() {
            return Ok(cluster);
        }
        let cluster = Arc::new(Cluster::start(0).await?);
        *shared = Arc::downgrade(&cluster);
        Ok(cluster)
    }

    /// Where a client finds them.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.primaries.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Which primary, by its number, has the slot of a key; and that slot.
    pub(crate) async fn place_of(&self, key: &str) -> Result<(usize, usize)> {
        let slot: usize = self.primaries[0].server.ask(&format!("CLUSTER KEYSLOT {key}")).await?;
        let owner = (0..3).find(|n| (n * SLOTS / 3..(n + 1) * SLOTS / 3).contains(&slot));
        Ok((owner.ok_or_else(|| Error::bug("a slot of nobody"))?, slot))
    }
}
