//! The way to the data: one Redis, or the nodes of a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{Cmd, Value};
use tokio::sync::watch;

use super::RedisOptions;
use super::cluster::Cluster;
use super::confirmed::Confirmation;
use super::connection::{Connection, Terms};
use super::keys::Keys;
use super::primary_discovery::{Parts, PrimaryDiscovery};
use super::run_history::{History, Losses, Note};
use super::scripts::{Call, Script};
use crate::model::error::{Error, Result};
use crate::platform::clock::Clock;

/// The place of everything, where there is one Redis.
const EVERYWHERE: &str = "the primary";

/// The way to the data.
pub(super) enum Topology {
    /// One Redis, and its replicas.
    One(Box<Connection>),
    /// Many.
    Cluster(Box<Cluster>),
}

impl Topology {
    /// # Errors
    /// `Invalid` for a wrong URL, which is not quoted, and for certificates that cannot be read.
    pub(super) fn new(
        options: &RedisOptions,
        terms: Terms,
        keys: &Keys,
        clock: Clock,
        losses: Losses,
    ) -> Result<Topology> {
        match Parts::of(options.url.expose())? {
            Some(parts) if parts.is_cluster => {
                let cluster = Cluster::new(options, &parts, (terms, keys.clone(), clock, losses))?;
                Ok(Topology::Cluster(Box::new(cluster)))
            }
            _ => {
                let history = History::new(keys.clone(), clock, Note::of_all(keys), losses);
                Ok(Topology::One(Box::new(Connection::new(PrimaryDiscovery::new(options)?, terms, history))))
            }
        }
    }

    /// How long one call may take.
    pub(super) fn timeout(&self) -> Duration {
        match self {
            Topology::One(connection) => connection.timeout(),
            Topology::Cluster(cluster) => cluster.timeout(),
        }
    }

    /// Which servers must have a change before it is answered.
    pub(super) fn confirmation(&self) -> Confirmation {
        match self {
            Topology::One(connection) => connection.confirmation(),
            Topology::Cluster(cluster) => cluster.confirmation(),
        }
    }

    /// Connects before the first call does. Answers why Redis refuses the configuration, if it does. # Errors: `Invalid`
    /// for a Redis that was reached and must not be used.
    pub(super) async fn try_now(&self) -> Result<Option<String>> {
        let failure = match self {
            Topology::One(connection) => connection.try_now().await?,
            Topology::Cluster(cluster) => cluster.try_now().await?,
        };
        failure.iter().for_each(|error| tracing::warn!(%error, "Redis cannot be used yet"));
        Ok(failure.filter(Error::is_refusal).map(|error| error.detail().to_owned()))
    }

    /// Where it leads to, for people, without secrets.
    pub(super) fn location(&self) -> String {
        match self {
            Topology::One(connection) => connection.place().location(),
            Topology::Cluster(cluster) => cluster.location(),
        }
    }

    /// What a 201 survives, if that is known yet.
    pub(super) fn durability(&self) -> Option<String> {
        match self {
            Topology::One(connection) => connection.info().map(|info| info.durability()),
            Topology::Cluster(cluster) => cluster.durability(),
        }
    }

    /// A connection for the announcements of a place, apart from that for calls.
    pub(super) async fn hear(&self, place: &str, said: impl AsyncPushSender) -> Result<MultiplexedConnection> {
        match self {
            Topology::One(connection) => connection.hear(said).await,
            Topology::Cluster(cluster) => cluster.hear(place, said).await,
        }
    }

    /// Where announcements are heard. Changes when something is moved from one to another, too.
    pub(super) fn places(&self) -> watch::Receiver<BTreeSet<String>> {
        match self {
            Topology::One(_) => watch::Sender::new(BTreeSet::from([EVERYWHERE.to_owned()])).subscribe(),
            Topology::Cluster(cluster) => cluster.places(),
        }
    }

    /// Where a channel is heard; nowhere, while that is not known.
    pub(super) fn place_of(&self, channel: &str) -> String {
        match self {
            Topology::One(_) => EVERYWHERE.to_owned(),
            Topology::Cluster(cluster) => cluster.place_of(channel),
        }
    }

    /// Looks where everything is.
    pub(super) async fn look_again(&self) {
        if let Topology::Cluster(cluster) = self {
            cluster.look_again().await;
        }
    }

    /// Returns when announcements come from elsewhere now.
    pub(super) async fn renewed(&self) {
        match self {
            Topology::One(connection) => {
                let mut renewed = connection.renewed();
                // The sender lives as long as the connection.
                let _ = renewed.changed().await;
            }
            Topology::Cluster(_) => std::future::pending().await,
        }
    }

    /// Looks where the primary is, if somebody else decides. Never returns.
    pub(super) async fn watch(&self) {
        if let Topology::One(connection) = self
            && let PrimaryDiscovery::Watched(sentinels) = connection.place()
        {
            sentinels.watch(connection).await;
        }
        std::future::pending().await
    }

    /// Calls a script.
    pub(super) async fn eval(&self, call: &Call) -> Result<Value> {
        match self {
            Topology::One(connection) => connection.eval(call).await,
            Topology::Cluster(cluster) => Box::pin(cluster.eval(call)).await,
        }
    }

    /// Calls a script many times in one write for each node; each call is answered for itself.
    pub(super) async fn eval_all(&self, script: &'static Script, calls: Vec<Call>) -> Vec<Result<Value>> {
        match self {
            Topology::One(connection) => connection.eval_all(script, &calls).await,
            Topology::Cluster(cluster) => cluster.eval_all(script, calls).await,
        }
    }

    /// Calls one command.
    pub(super) async fn call(&self, command: &Cmd) -> Result<Value> {
        match self {
            Topology::One(connection) => connection.call(command).await,
            Topology::Cluster(cluster) => Box::pin(cluster.call(command)).await,
        }
    }
}
