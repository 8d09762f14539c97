//! The Redis of a history: one server, a primary with its replica under Sentinel, or a cluster.

use std::time::Duration;

use dwell::model::error::{Error, Result};
use rustix::process::Signal;

use crate::support::{Cluster, Proxy, RedisServer, Watched, eventually_within, signal};

/// How long a failover and the resynchronization after it may take.
const FAILOVER: Duration = Duration::from_secs(60);

/// How Redis is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One server that keeps everything it answered.
    Durable,
    /// One server that may lose what it answered.
    Forgetful,
    /// A primary, its replica and three sentinels.
    Sentinel,
    /// The same, with brokers that have no journal and wait for the replica.
    Replicated,
    /// Three primaries, each with a replica.
    Cluster,
}

pub(super) enum Deployment {
    Single(RedisServer),
    Sentinel(Watched),
    Cluster(Cluster),
}

/// How a primary goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It is killed, and started again without data once its replica was promoted.
    Killed,
    /// It is frozen, and resumes once its replica was promoted.
    Frozen,
}

impl Deployment {
    pub(super) async fn start(kind: Kind) -> Result<Deployment> {
        Ok(match kind {
            Kind::Durable => Deployment::Single(RedisServer::durable().await?),
            Kind::Forgetful => Deployment::Single(RedisServer::start().await?),
            Kind::Sentinel | Kind::Replicated => Deployment::Sentinel(Watched::start().await?),
            Kind::Cluster => Deployment::Cluster(Cluster::start(1).await?),
        })
    }

    /// A proxy of its own for a broker; only a single server is reached through one.
    pub(super) fn proxy(&self) -> Result<Option<Proxy>> {
        match self {
            Deployment::Single(server) => Proxy::before(server).map(Some),
            Deployment::Sentinel(_) | Deployment::Cluster(_) => Ok(None),
        }
    }

    /// The URL for brokers without a proxy.
    pub(super) fn url(&self) -> String {
        match self {
            Deployment::Single(server) => server.url(),
            Deployment::Sentinel(watched) => watched.url(),
            Deployment::Cluster(cluster) => cluster.url(),
        }
    }

    pub(super) fn single(&mut self) -> Result<&mut RedisServer> {
        match self {
            Deployment::Single(server) => Ok(server),
            Deployment::Sentinel(_) | Deployment::Cluster(_) => Err(Error::bug("this Redis is not a single server")),
        }
    }

    /// How many primaries there are.
    pub(super) fn shards(&self) -> usize {
        if let Deployment::Cluster(cluster) = self { cluster.primaries.len() } else { 1 }
    }

    /// Both servers of a shard.
    fn pair(&mut self, shard: usize) -> Result<[&mut RedisServer; 2]> {
        match self {
            Deployment::Single(_) => Err(Error::bug("a single server has no replica")),
            Deployment::Sentinel(watched) => Ok([&mut watched.primary, &mut watched.replica]),
            Deployment::Cluster(Cluster { primaries, replicas }) => {
                Ok([&mut primaries[shard].server, &mut replicas[shard].server])
            }
        }
    }

    /// Waits until every primary has a replica that follows it, and everybody agrees on who they are.
    pub(super) async fn whole(&mut self) -> Result<()> {
        if matches!(self, Deployment::Single(_)) {
            return Ok(());
        }
        for shard in 0..self.shards() {
            self.primary_of(shard).await?;
        }
        match self {
            Deployment::Single(_) => Ok(()),
            Deployment::Sentinel(watched) => watched.agreed(FAILOVER).await,
            Deployment::Cluster(cluster) => cluster.agreed(FAILOVER).await,
        }
    }

    /// Which server of a shard is its primary, once the other one follows it.
    async fn primary_of(&mut self, shard: usize) -> Result<usize> {
        let servers = self.pair(shard)?;
        eventually_within(FAILOVER, "a primary with a replica that follows it", async || {
            let mut roles = Vec::new();
            for server in &servers {
                // A server that changes its role closes its connections.
                let info: String = server.ask("INFO replication").await.unwrap_or_default();
                let follows = info.contains("role:slave") && info.contains("master_link_status:up");
                roles.push((info.contains("role:master") && info.contains("state=online"), follows));
            }
            Ok((0..2).find(|n| roles[*n].0 && roles[1 - n].1))
        })
        .await
    }

    /// Breaks the replication of a shard: from now on its primary answers what its replica never gets.
    pub(super) async fn diverge(&mut self, shard: usize) -> Result<()> {
        let primary = self.primary_of(shard).await?;
        let servers = self.pair(shard)?;
        // A replica that logs in where no password is set is refused.
        servers[1 - primary].ask::<()>("CONFIG SET masterauth wrong").await?;
        servers[primary].ask::<u64>("CLIENT KILL TYPE replica").await?;
        Ok(())
    }

    /// Lets the replica of a shard follow its primary again, and waits until it does.
    pub(super) async fn converge(&mut self, shard: usize) -> Result<()> {
        for server in self.pair(shard)? {
            server.ask::<()>("CONFIG SET masterauth ").await?;
        }
        self.whole().await
    }

    /// The primary of a shard goes away. Answers which one it was.
    pub(super) async fn fail(&mut self, shard: usize, failure: Failure) -> Result<usize> {
        let mut primary = None;
        let servers = self.pair(shard)?;
        for (n, server) in servers.iter().enumerate() {
            let info: String = server.ask("INFO replication").await?;
            primary = primary.or(info.contains("role:master").then_some(n));
        }
        let primary = primary.ok_or_else(|| Error::bug("a shard without a primary"))?;
        let [first, second] = servers;
        let server = if primary == 0 { first } else { second };
        match failure {
            Failure::Killed => server.kill()?,
            Failure::Frozen => signal(server, Signal::STOP)?,
        }
        Ok(primary)
    }

    /// Whether the replica of a failed primary is the primary now.
    pub(super) async fn is_promoted(&mut self, shard: usize, failed: usize) -> Result<bool> {
        let servers = self.pair(shard)?;
        let info: String = servers[1 - failed].ask("INFO replication").await.unwrap_or_default();
        Ok(info.contains("role:master"))
    }

    /// The failed primary comes back, as whatever it believes that it is.
    pub(super) async fn come_back(&mut self, shard: usize, failed: usize, failure: Failure) -> Result<()> {
        let servers = self.pair(shard)?;
        servers[1 - failed].ask::<()>("CONFIG SET masterauth ").await?;
        let [first, second] = servers;
        let server = if failed == 0 { first } else { second };
        match failure {
            Failure::Killed => server.restart().await,
            Failure::Frozen => signal(server, Signal::CONT),
        }
    }
}
