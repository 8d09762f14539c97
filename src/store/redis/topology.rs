//! The way to the data: one Redis, or the nodes of a cluster; and noticing that a Redis is not the one it was.
//!
//! Every new connection looks before its first call whether Redis is another run or another replica, which may have lost
//! its last writes. The first broker that finds another Redis notes it in Redis itself, for processes that start later.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::watch;

use super::RedisOptions;
use super::cluster::Cluster;
use super::confirmed::Confirmation;
use super::connection::{Connection, Terms};
use super::info::Info;
use super::keys::{Keys, slot_tag};
use super::scripts::{Call, SCRIPTS, Script};
use super::sentinel::{Parts, PrimaryDiscovery};
use crate::model::error::{Error, Result};
use crate::platform::clock::{Clock, Instant};
use crate::store::Loss;

const EVERYWHERE: &str = "the primary";

pub(super) enum Topology {
    One(Box<Connection>),
    Cluster(Box<Cluster>),
}

impl Topology {
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

    /// Looks where the primary is, if somebody else decides. Never returns.
    pub(super) async fn watch(&self) {
        if let Topology::One(connection) = self
            && let PrimaryDiscovery::Watched(sentinels) = connection.place()
        {
            sentinels.watch(connection).await;
        }
        std::future::pending().await
    }

    pub(super) async fn eval(&self, call: &Call) -> Result<Value> {
        match self {
            Topology::One(connection) => connection.eval(call).await,
            Topology::Cluster(cluster) => Box::pin(cluster.eval(call)).await,
        }
    }

    pub(super) async fn eval_all(&self, script: &'static Script, calls: Vec<Call>) -> Vec<Result<Value>> {
        match self {
            Topology::One(connection) => connection.eval_all(script, &calls).await,
            Topology::Cluster(cluster) => cluster.eval_all(script, calls).await,
        }
    }

    pub(super) async fn call(&self, command: &Cmd) -> Result<Value> {
        match self {
            Topology::One(connection) => connection.call(command).await,
            Topology::Cluster(cluster) => Box::pin(cluster.call(command)).await,
        }
    }
}

/// A notice older than this is of no interest: no lease runs longer.
const OLD: Duration = Duration::from_secs(3_600);

pub(super) type Losses = watch::Sender<Loss>;

/// Where it is noted which Redis this is, and how it is seen whether there is anything to lose.
pub(super) struct Note {
    key: String,
    evidence: Cmd,
    /// Since when a Redis noted as new is a loss to this process, though it never saw another one there.
    began: Option<Instant>,
}

impl Note {
    /// In a Redis that has everything: it has topics.
    pub(super) fn of_all(keys: &Keys) -> Note {
        let mut evidence = redis::cmd("EXISTS");
        evidence.arg(keys.topics());
        Note { key: keys.history(), evidence, began: None }
    }

    /// In a node of a cluster that has this slot: it has any keys. A replica that is promoted is another node, with
    /// what it knows of the history of the one before it.
    pub(super) fn of_node(keys: &Keys, slot: u16, began: Instant) -> Note {
        let key = format!("{}:{{{}}}", keys.history(), slot_tag(slot));
        Note { key, evidence: redis::cmd("DBSIZE"), began: Some(began) }
    }
}

pub(super) struct History {
    keys: Keys,
    clock: Clock,
    note: Note,
    seen: Mutex<Option<Seen>>,
    losses: Losses,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    identity: String,
    offset: u64,
}

impl Seen {
    /// Whether a Redis may have lost something since: another run, another replication history, or less of the same
    /// one.
    fn lost(&self, now: &Seen) -> bool {
        self.identity != now.identity || now.offset < self.offset
    }
}

impl History {
    pub(super) fn new(keys: Keys, clock: Clock, note: Note, losses: Losses) -> History {
        History { keys, clock, note, seen: Mutex::default(), losses }
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// String with expiry, in the slot of the note: written before servers are waited for.
    pub(super) fn mark(&self) -> String {
        format!("{}:mark", self.note.key)
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses.borrow().count
    }

    pub(super) async fn look(&self, connection: &mut MultiplexedConnection, info: &Info) -> RedisResult<()> {
        let now = Seen { identity: info.identity.clone(), offset: info.offset };
        let known = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut lost = known.as_ref().is_some_and(|known| known.lost(&now));
        if known.is_none() || lost {
            let before = self.clock.instant();
            let rewound = known.as_ref().is_some_and(|known| known.identity == now.identity);
            let age = self.notice(connection, &now.identity, rewound).await?;
            let since = (age < OLD).then(|| before.minus(age));
            lost |= self.note.began.is_some_and(|began| since > Some(began));
            self.losses.send_modify(|loss| {
                loss.count += u64::from(lost);
                loss.is_restoring |= lost && loss.restores;
                // Another node may have been suspected since.
                loss.since = loss.since.max(since);
            });
        }
        if lost {
            tracing::warn!("another Redis than before: it may have lost its last writes");
        }
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(())
    }

    /// For how long this Redis has been known to be this one.
    async fn notice(&self, connection: &mut MultiplexedConnection, id: &str, rewound: bool) -> RedisResult<Duration> {
        let there: Value = connection.send_packed_command(&self.note.evidence).await?;
        let anything = i32::from(matches!(there, Value::Int(1..)));
        let over = self.clock.manual_now().map_or(String::new(), |now| (now.as_ms() * 1_000).to_string());
        let notice = Call::new(&SCRIPTS.notice, &[&self.note.key]).arg(id).arg(anything).arg(over);
        let mut told = Pipeline::with_capacity(2);
        told.add_command(SCRIPTS.notice.load()).ignore().add_command(notice.arg(i32::from(rewound)).command);
        let ((_, _, age_ms),): ((String, u64, u64),) = told.query_async(connection).await?;
        Ok(Duration::from_millis(age_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_another_replica_and_less_of_the_same_are_losses() {
        let seen = |identity: &str, offset| Seen { identity: identity.to_owned(), offset };
        let before = seen("run/replica", 1_000);
        assert!(!before.lost(&seen("run/replica", 1_000)));
        assert!(!before.lost(&seen("run/replica", 2_000)));
        assert!(before.lost(&seen("run/replica", 999)));
        assert!(before.lost(&seen("again/replica", 1_000)));
        assert!(before.lost(&seen("run/promoted", 2_000)));
    }
}
