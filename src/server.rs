//! PLACEHOLDER: only the shape of the server, so that the command line compiles. Replaced when the server is merged.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::broker;
use crate::error::{Error, Result};
use crate::store::Description;

/// Which store, and where.
#[derive(Debug, Clone)]
pub enum StoreKind {
    /// The embedded store.
    Embedded {
        /// Its directory.
        dir: PathBuf,
    },
    /// Redis.
    Redis {
        /// Where it is, with its password.
        url: String,
        /// What every key begins with.
        prefix: String,
        /// How long one call may take.
        timeout: Duration,
    },
}

/// Where to listen.
#[derive(Debug, Clone)]
pub enum Listen {
    /// A loopback address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where to listen.
    pub listen: Listen,
    /// The store.
    pub store: StoreKind,
    /// How the broker behaves.
    pub broker: broker::Options,
}

impl ServerOptions {
    /// Options.
    pub fn new(listen: Listen, store: StoreKind, broker: broker::Options) -> ServerOptions {
        ServerOptions { listen, store, broker }
    }
}

/// A running broker.
pub struct Server {}

impl Server {
    /// Starts a broker.
    ///
    /// # Errors
    /// Always, until it is merged.
    pub async fn start(_options: ServerOptions) -> Result<Server> {
        Err(Error::bug("this build has no server"))
    }

    /// The URL to reach it at.
    pub fn url(&self) -> String {
        String::new()
    }

    /// What its store is.
    pub fn describe(&self) -> Description {
        Description { kind: "none", location: String::new(), durability: String::new() }
    }

    /// Stops in order.
    pub async fn stop(self) -> Result<()> {
        Ok(())
    }
}
