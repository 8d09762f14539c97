//! One broker process: built in order, stopped in order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::broker::{self, Broker};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::http::{self, App, Connections, Listen, Listener};
use crate::limits::BODY_TIMEOUT;
use crate::metrics::Metrics;
use crate::store::embedded::Embedded;
use crate::store::redis::{Redis, RedisOptions};
use crate::store::{Description, Store};
use crate::tasks::Tasks;
use crate::webhook::{Subscription, Webhook};

/// Which store, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreOptions {
    /// The embedded store: one process owns its directory.
    Embedded {
        /// The directory; made if it is not there.
        dir: PathBuf,
    },
    /// A Redis that any number of processes share.
    Redis {
        /// Where it is; may hold a password.
        url: String,
        /// What every key begins with.
        prefix: String,
        /// How long one call may take.
        timeout: Duration,
        /// Whether to start although Redis may evict keys.
        allow_eviction: bool,
    },
}

/// What a process is made of.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where to listen.
    pub listen: Listen,
    /// The store.
    pub store: StoreOptions,
    /// How the broker behaves.
    pub broker: broker::Options,
    /// How connections are treated.
    pub connections: Connections,
    /// Time for a request body to arrive.
    pub body_timeout: Duration,
    /// Where messages are posted to.
    pub webhooks: Vec<Webhook>,
    /// The local clock.
    pub clock: Clock,
}

impl ServerOptions {
    /// Options with the limits that docs/protocol.md names.
    pub fn new(listen: Listen, store: StoreOptions, broker: broker::Options) -> ServerOptions {
        let (connections, clock) = (Connections::default(), Clock::System);
        let (body_timeout, webhooks) = (BODY_TIMEOUT, Vec::new());
        ServerOptions { listen, store, broker, connections, body_timeout, webhooks, clock }
    }
}

/// A running broker process. Dropping it stops everything at once; [`Server::stop`] stops it in order.
pub struct Server {
    address: Listen,
    store: Arc<dyn Store>,
    stopping: CancellationToken,
    /// The broker's loops, and the webhooks that consume from them.
    groups: Tasks,
    /// The listener and its connections.
    connections: Tasks,
    /// Leases and the store's own loop: groups need them to drain.
    background: Tasks,
}

impl Server {
    /// Binds, opens the store and serves.
    ///
    /// # Errors
    /// `Invalid` options, `Conflict` when the address or the directory is in use, and the store's.
    pub async fn start(options: ServerOptions) -> Result<Server> {
        // Binding first: an address in use must not cost a take-over of the store.
        let listener = Listener::bind(options.listen).await?;
        let metrics = Arc::new(Metrics::new()?);
        let store = open_store(options.store, options.clock.clone(), metrics.clone()).await?;
        let (groups, connections, background) = (Tasks::new(), Tasks::new(), Tasks::new());
        let broker = Broker::new(store.clone(), metrics.clone(), groups.clone(), options.broker);
        let (running, stop) = (broker.clone(), background.stopping());
        background.start(async move { running.run(stop).await });
        for webhook in options.webhooks.into_iter().filter(|webhook| webhook.enabled) {
            let subscription = Subscription::new(broker.clone(), webhook, options.clock.clone())?;
            groups.start(subscription.run(groups.stopping()));
        }
        let address = listener.address().clone();
        let app = App::new(broker, options.clock, address.guard(), connections.clone());
        let app = app.with_body_timeout(options.body_timeout);
        let stopping = app.stopping();
        connections.start(listener.serve(http::router(app), options.connections, metrics, connections.clone()));
        Ok(Server { address, store, stopping, groups, connections, background })
    }

    /// Where it listens: `http://127.0.0.1:7373`, with the port that it got, or `unix:/path`.
    pub fn url(&self) -> String {
        self.address.url()
    }

    /// The store, and what it survives.
    pub fn describe(&self) -> Description {
        self.store.describe()
    }

    /// Stops in order, so that no delivery is cut off from its ack and no answered push from its disk.
    ///
    /// # Errors
    /// The store's, when it cannot be closed cleanly.
    pub async fn stop(self) -> Result<()> {
        // From here on it is not ready, so that nothing new is sent here.
        self.stopping.cancel();
        // Long polls and streams return, deliveries that are out may still be settled, leases are given up.
        self.groups.stop().await;
        // Requests that are being answered are answered.
        self.connections.stop().await;
        self.background.stop().await;
        self.store.close().await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.cancel();
        for tasks in [&self.groups, &self.connections, &self.background] {
            tasks.stopping().cancel();
        }
    }
}

/// Opens the store that was chosen.
async fn open_store(store: StoreOptions, clock: Clock, metrics: Arc<Metrics>) -> Result<Arc<dyn Store>> {
    match store {
        StoreOptions::Embedded { dir } => Ok(Arc::new(open_embedded(dir, clock).await?)),
        StoreOptions::Redis { url, prefix, timeout, allow_eviction } => {
            let options = RedisOptions { url, prefix, timeout, allow_eviction };
            Ok(Arc::new(Redis::connect(options, clock, metrics).await?))
        }
    }
}

/// Opening reads the whole directory, which may take seconds: beside the runtime, not in it.
async fn open_embedded(dir: PathBuf, clock: Clock) -> Result<Embedded> {
    let opened = tokio::task::spawn_blocking(move || Embedded::open(&dir, clock)).await;
    opened.map_err(|error| Error::bug(format!("opening the store failed: {error}")))?
}
