//! The broker of the demo: in this process, on a free port, with nothing that outlives it.

use std::time::Duration;

use crate::api::http::Listen;
use crate::app::config::{Config, RedisUrl, Sources};
use crate::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use crate::app::server::{Server, ServerOptions};
use crate::broker;
use crate::cli::failure::Failure;
use crate::cli::scratch::ScratchDir;

/// How long one call to Redis may take.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a demo that is interrupted waits for deliveries that nobody will settle any more.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A running broker, and the directory that goes when it ends.
pub(super) struct DemoBroker {
    server: Server,
    redis_prefix: Option<String>,
    _dir: ScratchDir,
}

/// Starts a broker on the embedded store, or on Redis under a prefix of its own.
pub(super) async fn start(redis: Option<&RedisUrl>) -> Result<DemoBroker, Failure> {
    let name = format!("dwell-demo-{}", ulid::Ulid::new().to_string().to_lowercase());
    let dir = ScratchDir::new(&name)?;
    let (store, redis_prefix) = match redis {
        Some(url) => {
            let redis = RedisOptions {
                prefix: name.clone(),
                timeout: REDIS_TIMEOUT,
                allow_eviction: true,
                ..RedisOptions::new(url.secret().clone())
            };
            (StoreOptions::Redis { redis, failover: OutageOptions::new(dir.path()) }, Some(name))
        }
        None => (StoreOptions::Embedded { dir: dir.path().join("store") }, None),
    };
    // The defaults, and nothing from the environment: every demo is the same.
    let env = vec![("HOME".into(), std::env::temp_dir().into_os_string())];
    let config = Config::load(&Sources { env, ..Sources::default() })?;
    let how = broker::Options { drain_timeout: DRAIN_TIMEOUT, ..config.broker_options() };
    let options = ServerOptions::new(Listen::ephemeral(), store, how);
    Ok(DemoBroker { server: Server::start(options).await?, redis_prefix, _dir: dir })
}

impl DemoBroker {
    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    pub(super) fn is_redis(&self) -> bool {
        self.redis_prefix.is_some()
    }

    /// Which store it is, where, and what it survives.
    pub(super) fn introduction(&self) -> String {
        let store = self.server.describe();
        let under = self.redis_prefix.as_ref().map_or(String::new(), |prefix| format!(", keys under {prefix}"));
        let (kind, location, durability) = (store.kind, store.location, store.durability);
        format!("a broker at {} on the {kind} store ({location}{under})\n{durability}\n", self.server.url())
    }

    /// Stops it in order, then removes what it kept.
    pub(super) async fn stop(self) -> Result<(), Failure> {
        Ok(self.server.stop().await?)
    }
}
