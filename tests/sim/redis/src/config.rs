//! The settings of a server, as its `redis.conf` would have them.

/// When the append-only file is fsynced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before each answer.
    Always,
    /// Once a second.
    EverySecond,
    /// When the kernel likes: here every 30 s.
    No,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What `INFO` says. `WAITAOF` is there from 7.2 on.
    pub version: String,
    pub host: String,
    pub port: u16,
    /// Bytes of data at which writes are refused; 0 for no limit. The policy is always `noeviction`.
    pub maxmemory: u64,
    /// `appendonly`, with its policy; nothing without an append-only file.
    pub aof: Option<Fsync>,
    /// Seconds between snapshots, if any are made: `save <seconds> 1`.
    pub rdb: Option<u64>,
    /// `min-replicas-to-write`, with a lag of 10 s at most.
    pub min_replicas: u32,
    /// `cluster-enabled`. A [`Deployment`](crate::Deployment) sets it for a cluster.
    pub cluster: bool,
    /// `requirepass`.
    pub password: Option<String>,
    /// Connections at most; one more is refused as Redis does.
    pub maxclients: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            version: "7.0.15".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 6_379,
            maxmemory: 0,
            aof: Some(Fsync::EverySecond),
            rdb: None,
            min_replicas: 0,
            cluster: false,
            password: None,
            maxclients: 10_000,
        }
    }
}

impl Config {
    /// Whether the version is this one or later.
    pub fn is_at_least(&self, major: u32, minor: u32) -> bool {
        let mut numbers = self.version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        (next(), next()) >= (major, minor)
    }
}
