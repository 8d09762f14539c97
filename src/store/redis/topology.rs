//! The way to the data: one Redis, or the nodes of a cluster; and following the primary.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{AsyncPushSender, MultiplexedConnection, PubSub};
use redis::{Cmd, RedisResult, Value};
use tokio::sync::watch;

use super::RedisOptions;
use super::address::Address;
use super::cluster::Cluster;
use super::confirmed::Confirmation;
use super::connection::{Connection, ConnectionOptions};
use super::info::{History, LastSeen, Losses, Note};
use super::keys::Keys;
use super::scripts::{Script, ScriptCall};
use super::sentinel::{Parts, PrimaryDiscovery, Sentinels};
use crate::model::error::{Error, Result};
use crate::platform::clock::Clock;
use crate::store::NodeMemory;

/// How often each server is asked how full it is. The answer takes it less than 0.1 ms.
const MEMORY_LOOK: Duration = Duration::from_secs(2);

const EVERYWHERE: &str = "the primary";

pub(super) enum Topology {
    One(Box<Connection>),
    Cluster(Box<Cluster>),
}

impl Topology {
    pub(super) fn new(
        options: &RedisOptions,
        connection_options: ConnectionOptions,
        keys: &Keys,
        clock: Clock,
        losses: Losses,
    ) -> Result<Topology> {
        match Parts::of(options.url.expose())? {
            Some(parts) if parts.is_cluster => {
                let cluster = Cluster::new(options, &parts, (connection_options, keys.clone(), clock, losses))?;
                Ok(Topology::Cluster(Box::new(cluster)))
            }
            _ => {
                let history = History::new(keys.clone(), clock, Note::of_all(keys), LastSeen::new(false), losses);
                Ok(Topology::One(Box::new(Connection::new(
                    PrimaryDiscovery::new(options)?,
                    connection_options,
                    history,
                ))))
            }
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        match self {
            Topology::One(connection) => connection.timeout(),
            Topology::Cluster(cluster) => cluster.timeout(),
        }
    }

    pub(super) fn confirmation(&self) -> Confirmation {
        match self {
            Topology::One(connection) => connection.confirmation(),
            Topology::Cluster(cluster) => cluster.confirmation(),
        }
    }

    /// Connects in advance; answers why Redis refuses the configuration. Errors: `Invalid` for one that must not be
    /// used.
    pub(super) async fn try_now(&self) -> Result<Option<String>> {
        let failure = match self {
            Topology::One(connection) => connection.try_now().await?,
            Topology::Cluster(cluster) => cluster.try_now().await?,
        };
        failure.iter().for_each(|error| tracing::warn!(%error, "Redis cannot be used yet"));
        Ok(failure.filter(Error::is_refusal).map(|error| error.detail().to_owned()))
    }

    pub(super) fn location(&self) -> String {
        match self {
            Topology::One(connection) => connection.place().location(),
            Topology::Cluster(cluster) => cluster.location(),
        }
    }

    pub(super) fn durability(&self) -> Option<String> {
        match self {
            Topology::One(connection) => connection.info().map(|info| info.durability()),
            Topology::Cluster(cluster) => cluster.durability(),
        }
    }

    pub(super) async fn subscribe(&self, place: &str, sink: impl AsyncPushSender) -> Result<MultiplexedConnection> {
        match self {
            Topology::One(connection) => connection.subscribe(sink).await,
            Topology::Cluster(cluster) => cluster.subscribe(place, sink).await,
        }
    }

    /// Where announcements are heard. Changes when something is moved from one to another, too.
    pub(super) fn places(&self) -> watch::Receiver<BTreeSet<String>> {
        match self {
            Topology::One(_) => watch::Sender::new(BTreeSet::from([EVERYWHERE.to_owned()])).subscribe(),
            Topology::Cluster(cluster) => cluster.places(),
        }
    }

    pub(super) fn place_of(&self, channel: &str) -> String {
        match self {
            Topology::One(_) => EVERYWHERE.to_owned(),
            Topology::Cluster(cluster) => cluster.place_of(channel),
        }
    }

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
                let _ = renewed.changed().await;
            }
            Topology::Cluster(_) => std::future::pending().await,
        }
    }

    /// Looks where the primary is, if somebody else decides, and how full each server is. Never returns.
    pub(super) async fn watch(&self) {
        tokio::join!(self.watch_primary(), self.watch_memory());
    }

    async fn watch_memory(&self) {
        loop {
            Clock::System.sleep(MEMORY_LOOK).await;
            match self {
                Topology::One(connection) => connection.look_at_memory().await,
                Topology::Cluster(cluster) => cluster.look_at_memory().await,
            }
        }
    }

    /// The memory of each server that was reached, as it said last.
    pub(super) fn memory(&self) -> Vec<NodeMemory> {
        match self {
            Topology::One(connection) => connection.info().map(|info| info.memory).into_iter().collect(),
            Topology::Cluster(cluster) => cluster.memory(),
        }
    }

    async fn watch_primary(&self) {
        if let Topology::One(connection) = self
            && let PrimaryDiscovery::Watched(sentinels) = connection.place()
        {
            follow(sentinels, connection).await;
        }
        std::future::pending().await
    }

    pub(super) async fn eval(&self, call: &ScriptCall) -> Result<Value> {
        match self {
            Topology::One(connection) => connection.eval(call).await,
            Topology::Cluster(cluster) => Box::pin(cluster.eval(call)).await,
        }
    }

    pub(super) async fn eval_all(&self, script: &'static Script, calls: Vec<ScriptCall>) -> Vec<Result<Value>> {
        match self {
            Topology::One(connection) => connection.eval_all(script, &calls).await,
            Topology::Cluster(cluster) => cluster.eval_all(script, calls).await,
        }
    }

    /// Asks whichever store answers, also another one than calls are for.
    pub(super) async fn ask_any(&self, command: &Cmd) -> Result<Value> {
        match self {
            Topology::One(connection) => connection.ask_any(command).await,
            Topology::Cluster(cluster) => Box::pin(cluster.call(command)).await,
        }
    }

    /// Calls are for the store of this name from now on.
    pub(super) fn accept(&self, store: &str) {
        if let Topology::One(connection) = self {
            connection.accept(store);
        }
    }

    pub(super) async fn call(&self, command: &Cmd) -> Result<Value> {
        match self {
            Topology::One(connection) => connection.call(command).await,
            Topology::Cluster(cluster) => Box::pin(cluster.call(command)).await,
        }
    }
}

const SWITCH: &str = "+switch-master";

const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Timeouts that a sentinel may be silent before it is asked whether it is still there.
const PING_AFTER: u32 = 5;

/// Leaves a primary that is none any more as soon as a sentinel says so, though it may still answer. Never returns.
async fn follow(sentinels: &Sentinels, connection: &Connection) {
    for sentinel in sentinels.sentinels.iter().cycle() {
        if let Ok(listening) = sentinel.listen().await {
            // Any failure means another sentinel.
            let _ = listen(sentinels, listening, connection).await;
        }
        Clock::System.sleep(AGAIN_AFTER).await;
    }
}

async fn listen(sentinels: &Sentinels, listening: PubSub, connection: &Connection) -> RedisResult<()> {
    let (mut sink, mut messages) = listening.split();
    sink.subscribe(SWITCH).await?;
    // Earlier announcements are not repeated.
    compare(sentinels, connection).await;
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(message) = message else { return Ok(()) };
                let announcement: String = message.get_payload()?;
                if announcement.split(' ').next() == Some(&sentinels.name) {
                    compare(sentinels, connection).await;
                }
            }
            () = Clock::System.sleep(sentinels.timeout * PING_AFTER) => tokio::select! {
                answered = sink.ping::<Value>() => answered.map(drop)?,
                () = Clock::System.sleep(sentinels.timeout) => return Ok(()),
            },
        }
    }
}

async fn compare(sentinels: &Sentinels, connection: &Connection) {
    let named = sentinels.ask().await.unwrap_or_default().first().map(Address::location);
    if named.is_some() {
        connection.leave_unless_at(named.as_deref().unwrap_or_default()).await;
    }
}
