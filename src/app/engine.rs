//! A store and a broker over it, with their loops: what a server serves, and what a service embeds.

use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::broker::{Broker, Options};
use crate::model::error::{Error, Result};
use crate::outage::BufferedStore;
pub use crate::outage::OutageOptions;
use crate::platform::clock::Clock;
use crate::platform::disk::{check_owner, make_directory};
use crate::platform::tasks::{Tasks, blocking};
use crate::platform::test_clock;
use crate::store::embedded::Embedded;
pub use crate::store::redis::{
    Confirmation, Diagnostics, Dialer, KeyDiagnostics, Login, NodeDiagnostics, NodeFacts, Outcome, Quorum,
    RedisOptions, Renewal, SlowCall, Stall, Stream,
};
use crate::store::redis::{Redis, location_of};
use crate::store::{Description, Store};
pub use crate::store::{Eviction, Fullness, NodeMemory};
use crate::telemetry::metrics::Metrics;

// Which store it is, is decided here: so what measures one is found here as well.

const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a stop looks whether everything is replayed.
const REPLAY_LOOK: Duration = Duration::from_millis(20);

/// Which store, and where it is.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a process has one, or a few")]
pub enum StoreOptions {
    /// The embedded store: one process owns its directory.
    Embedded {
        /// The directory; made if it is not there.
        dir: PathBuf,
    },
    /// A Redis that any number of processes share.
    Redis {
        /// Where it is, and how it is spoken to.
        redis: RedisOptions,
        /// Keeps pushes while Redis is unavailable.
        outage: OutageOptions,
    },
}

impl StoreOptions {
    /// Changes later what connections to Redis log in with.
    pub fn renewal(&self) -> Renewal {
        match self {
            StoreOptions::Embedded { .. } => Renewal::default(),
            StoreOptions::Redis { redis, .. } => redis.renewal.clone(),
        }
    }

    /// Whether the store can be opened, as far as that can be said without a directory and a network.
    ///
    /// # Errors
    /// `Invalid`, as [`Engine::start`] would say it.
    pub fn check(&self) -> Result<()> {
        match self {
            StoreOptions::Embedded { .. } => Ok(()),
            StoreOptions::Redis { redis, .. } => location_of(redis).map(drop),
        }
    }
}

/// A running broker without a listener. Dropping it stops its loops at once; [`Engine::drain`] and [`Engine::close`] stop
/// in order.
pub struct Engine {
    store: Store,
    broker: Broker,
    groups: Tasks,
    /// Leases and the store's own loop: groups need them to drain.
    background: Tasks,
    drain_limit: Duration,
    is_given_up: AtomicBool,
}

impl Engine {
    /// Opens the store and starts the loops. # Errors: the store's.
    pub async fn start(store: StoreOptions, options: Options, clock: Clock) -> Result<Engine> {
        let metrics = Arc::new(Metrics::new()?);
        let store = open_store(store, clock, metrics.clone()).await?;
        let (groups, background) = (Tasks::new(), Tasks::new());
        let drain_limit = options.drain_timeout + RELEASE_TIMEOUT;
        let broker = Broker::new(store.clone(), metrics, groups.clone(), options);
        let (running, stop) = (broker.clone(), background.stopping());
        background.start(async move { running.run(stop).await });
        Ok(Engine { store, broker, groups, background, drain_limit, is_given_up: AtomicBool::new(false) })
    }

    /// The verbs.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The loops of groups, for what consumes in this process: they stop together.
    pub fn groups(&self) -> &Tasks {
        &self.groups
    }

    /// The store, and what it survives.
    pub fn describe(&self) -> Description {
        self.store.backend.describe()
    }

    /// Hands nothing more out, waits until what is out is settled, and gives the leases up. A store that does not answer
    /// holds up no stop: then the leases lapse.
    pub async fn drain(&self) {
        tokio::select! {
            () = self.groups.stop() => {}
            () = Clock::System.sleep(self.drain_limit), if !self.is_given_up.load(Relaxed) => {
                tracing::warn!("stopping: leases are not given up, since the store does not answer");
                self.is_given_up.store(true, Relaxed);
            }
            () = std::future::ready(()), if self.is_given_up.load(Relaxed) => {}
        }
    }

    /// Waits until the store has taken what is buffered, for at most the drain timeout. While the store is unavailable there is nothing
    /// to wait for.
    pub async fn replay(&self) {
        let until = Clock::System.instant().plus(self.drain_limit);
        let backend = &self.store.backend;
        let waits = || backend.wal_depth().records > 0 && !backend.health_snapshot().is_away;
        if waits() {
            tracing::info!(records = backend.wal_depth().records, "stopping: buffered messages are replayed");
        }
        while waits() && Clock::System.instant() < until {
            Clock::System.sleep(REPLAY_LOOK).await;
        }
    }

    /// Stops in order, so that no answered push is cut off from its disk.
    ///
    /// # Errors
    /// The store's, when it cannot be closed cleanly.
    pub async fn close(&self) -> Result<()> {
        self.drain().await;
        self.background.stop().await;
        self.store.backend.close().await
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for tasks in [&self.groups, &self.background] {
            tasks.stopping().cancel();
        }
    }
}

async fn open_store(store: StoreOptions, clock: Clock, metrics: Arc<Metrics>) -> Result<Store> {
    match store {
        StoreOptions::Embedded { dir } => {
            test_clock::check(&dir, &clock)?;
            // Opening reads the whole directory, which may take seconds: beside the runtime, not in it.
            Ok(Store::of(Arc::new(blocking(move || Embedded::open(&dir, clock)).await??)))
        }
        StoreOptions::Redis { redis, outage } => {
            claim_directory(&outage.dir)?;
            let timeout = redis.timeout;
            let store = Redis::open(redis, clock, metrics.clone()).await?;
            Ok(Arc::new(BufferedStore::open(store, outage, timeout, metrics).await?).into_store())
        }
    }
}

/// Makes `data_dir`, or checks that no other user can have put something into it or its directories.
///
/// # Errors
/// `Unavailable`, with what is wrong with it.
pub(crate) fn claim_directory(dir: &Path) -> Result<()> {
    let failed = |dir: &Path, error: IoError| Error::unavailable(format!("the directory {}: {error}", dir.display()));
    make_directory(dir).map_err(|error| failed(dir, error))?;
    for below in ["store", "wal", "journal"].map(|name| dir.join(name)) {
        match check_owner(&below) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&below, error)),
            _ => {}
        }
    }
    Ok(())
}
