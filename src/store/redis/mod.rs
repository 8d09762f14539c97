//! The store on Redis. The only code that talks to Redis.
//!
//! One Lua script a verb makes every change atomic; `owner` repeats calls until they are answered; this file maps the
//! contract to scripts. The header of each script explains the effect of a crash or a lost reply.

mod dial;
mod failure;
mod address;
mod keys;
mod scripts;
mod confirmed;
mod cron_jobs;
mod histories;
mod info;
mod owner;
mod dead_letters;
mod groups;
mod leases;
mod maintenance;
mod reads;
mod sentinel;
mod connection;
mod cluster;
mod topics;
mod diagnostics;
mod messages;
mod logs;
mod topology;
mod wake_listener;

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::confirmed::Confirmation;
use self::connection::ConnectionOptions;
pub use self::diagnostics::{
    Diagnostics, KeyDiagnostics, NodeDiagnostics, NodeFacts, Outcome, Quorum, SlowCall, Stall,
};
pub use self::dial::{Dialer, Stream};
use self::failure::ms;
use self::histories::Histories;
use self::info::Losses;
use self::keys::Keys;
use self::scripts::{Reply, SCRIPTS, ScriptCall, maybe_text};
pub use self::sentinel::location_of;
use self::topology::Topology;
use crate::model::error::Result;
use crate::platform::clock::{Clock, Instant};
use crate::platform::secret::Secret;
use crate::platform::signing_key::SigningKey;
use crate::store::{
    self, Description, HealthSnapshot, Identity, Loss, NodeMemory, Owners, StoreClock, Wakes, random_text,
};
use crate::telemetry::metrics::Metrics;

pub struct Redis {
    shared: Arc<Shared>,
}

impl Deref for Redis {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

#[doc(hidden)]
pub struct Shared {
    connection: Topology,
    keys: Keys,
    clock: StoreClock,
    wakes: Wakes,
    losses: Losses,
    histories: Histories,
    metrics: Arc<Metrics>,
    refusal: Option<String>,
    /// Tells the pages of dead letters that this broker forwarded from those of others.
    name: String,
}

impl Redis {
    /// Opens the store. Redis need not be there: then calls are `Unavailable` until it is. If it answers within
    /// `options.timeout`, it is looked at whether it can be trusted with messages; later each new connection looks.
    /// Errors: `Invalid` for a wrong URL, and for a Redis that answers and is too old, or evicts keys.
    pub async fn open(options: RedisOptions, clock: Clock, metrics: Arc<Metrics>) -> Result<Redis> {
        let (keys, losses) = (Keys::new(&options.prefix), Losses::default());
        metrics.store.expect(SCRIPTS.verbs());
        let connection_options = ConnectionOptions::of(&options, metrics.clone());
        let way = Topology::new(&options, connection_options, &keys, clock.clone(), losses.clone())?;
        let refusal = way.try_now().await?;
        let clock = StoreClock::new(clock);
        let shared = Shared {
            connection: way,
            keys,
            clock,
            wakes: Wakes::default(),
            losses,
            histories: Histories::default(),
            metrics,
            refusal,
            name: random_text(),
        };
        if shared.connection.durability().is_some() {
            // It was there a moment ago; if it is not now, the first answer says what time it is.
            let _ = shared.observe_time().await;
        }
        Ok(Redis { shared: Arc::new(shared) })
    }
}

impl Shared {
    /// The last argument of scripts: the time that a test set, in microseconds.
    fn time_override(&self) -> String {
        self.clock.local().manual_now().map_or(String::new(), |now| (now.as_ms() * 1_000).to_string())
    }

    async fn observe_time(&self) -> Result<()> {
        let sent = self.clock.local().instant();
        let mut time = Reply::of(self.connection.ask_any(&redis::cmd("TIME")).await?)?;
        let (seconds, micros) = (time.number()?, time.number()?);
        self.clock.observe(sent, seconds * 1_000_000 + micros);
        Ok(())
    }

    /// Calls a script whose answer has only a status in front, and passes over that.
    async fn reply(&self, call: &ScriptCall) -> Result<Reply> {
        let mut reply = Reply::of(self.connection.eval(call).await?)?;
        reply.text()?;
        Ok(reply)
    }

    /// Calls a script whose answer has a status and Redis' time in front.
    async fn ask(&self, call: &ScriptCall) -> Result<(String, Reply)> {
        let sent = self.clock.local().instant();
        self.read(sent, self.connection.eval(call).await?)
    }

    fn read(&self, sent: Instant, value: Value) -> Result<(String, Reply)> {
        let mut reply = Reply::of(value)?;
        let (status, now_us) = (reply.text()?, reply.maybe_number()?);
        now_us.into_iter().for_each(|now_us| self.clock.observe(sent, now_us));
        Ok((status, reply))
    }
}

#[async_trait]
impl store::Backend for Redis {
    fn describe(&self) -> Description {
        let connection = &self.connection;
        let unknown = || self.refusal.clone().unwrap_or_else(|| "not reachable yet".to_owned());
        let durability = connection.durability().unwrap_or_else(unknown);
        Description { kind: "redis", location: connection.location(), durability }
    }

    fn replicas(&self) -> u32 {
        self.connection.confirmation().replicas
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    fn losses(&self) -> watch::Receiver<Loss> {
        self.losses.subscribe()
    }

    async fn run(&self, _: &dyn Owners, stop: CancellationToken) {
        tokio::select! {
            () = wake_listener::run(&self.shared, stop) => {}
            () = self.connection.watch() => {}
        }
    }

    async fn ping(&self) -> Result<()> {
        self.observe_time().await
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }

    async fn store_id(&self, offered: &str) -> Result<String> {
        Ok(self.identity(Some(offered)).await?.id)
    }

    async fn receipt_key(&self, offered: &SigningKey) -> Result<SigningKey> {
        self.after_time().await?;
        let call = ScriptCall::new(&SCRIPTS.set_once, &[&self.keys.receipt_key()]).arg(offered.text());
        store::stored_receipt_key(&Reply::of(self.connection.eval(&call).await?)?.text()?)
    }

    fn memory(&self) -> Vec<NodeMemory> {
        self.connection.memory()
    }

    /// It writes to no local disk, and buffers nothing.
    fn health_snapshot(&self) -> HealthSnapshot {
        HealthSnapshot::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// `redis://[user:password@]host:port[/db]`, `rediss://…` for TLS, `redis+unix:///path`, or
    /// `redis+sentinel://[user:password@]host:port,…/name[/db][?sentinel_user=…&sentinel_password=…]`.
    pub url: Secret,
    pub password: Option<Secret>,
    /// CA certificates, as PEM, used to verify the server; without, the system's.
    pub ca: Option<String>,
    /// Certificate and key of this client, as PEM, for a server that asks for them.
    pub identity: Option<(String, Secret)>,
    /// Prefix of all keys. Letters, digits, `.`, `_` and `-`.
    pub prefix: String,
    /// How long one call may take, 50 ms to 60 s.
    pub timeout: Duration,
    /// Whether to run on a Redis that may evict keys, and so lose messages without an error.
    pub allow_eviction: bool,
    pub confirmation: Confirmation,
    /// Opens the connections to hosts and ports; without one they are TCP.
    pub dialer: Option<Dialer>,
    /// Changes `password`, `ca` and `identity` later.
    pub renewal: Renewal,
}

/// Password and certificates of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub password: Option<Secret>,
    pub ca: Option<String>,
    pub identity: Option<(String, Secret)>,
}

/// A login that takes the place of the one in [`RedisOptions`]: connections that are made from then on use it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Renewal {
    /// With how many there were.
    login: Arc<RwLock<(u64, Option<Login>)>>,
    without_password: bool,
}

/// It is shared between options, and no part of what they say.
impl PartialEq for Renewal {
    fn eq(&self, _: &Renewal) -> bool {
        true
    }
}

impl Eq for Renewal {}

impl Renewal {
    pub fn set(&self, login: Login) {
        let mut held = self.login.write().unwrap_or_else(PoisonError::into_inner);
        *held = (held.0 + 1, Some(login));
    }

    /// The same without the password, which is not theirs.
    fn for_sentinels(&self) -> Renewal {
        Renewal { login: self.login.clone(), without_password: true }
    }
}

impl RedisOptions {
    pub fn new(url: impl Into<Secret>) -> RedisOptions {
        RedisOptions {
            url: url.into(),
            password: None,
            ca: None,
            identity: None,
            prefix: "dwell".to_owned(),
            timeout: Duration::from_secs(1),
            allow_eviction: false,
            confirmation: Confirmation::default(),
            dialer: None,
            renewal: Renewal::default(),
        }
    }

    /// The options with the latest login, and its number: 0 for the first.
    fn renewed(&self) -> (u64, RedisOptions) {
        let (number, login) = self.renewal.login.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Login { password, ca, identity }) = login else { return (0, self.clone()) };
        let password = if self.renewal.without_password { None } else { password };
        (number, RedisOptions { password, ca, identity, ..self.clone() })
    }
}

impl Shared {
    /// The identity of the store, which the first who offers one sets. It is read before it is written, so that a Redis that is
    /// full still says it.
    async fn identity(&self, known: Option<&str>) -> Result<Identity> {
        self.after_time().await?;
        let fresh = || ulid::Ulid::from_parts(self.clock.now().as_ms(), ulid::Ulid::new().random()).to_string();
        let offered = known.map_or_else(fresh, str::to_owned);
        let key = self.keys.store_id();
        let there = self.connection.ask_any(redis::cmd("GET").arg(&key)).await?;
        if let Some(there) = maybe_text(there)? {
            return Ok(Identity { id: there, is_new: false });
        }
        // Answers what was there, or nothing when the offer was taken.
        let mut offer = redis::cmd("SET");
        offer.arg(&key).arg(&offered).arg("NX").arg("GET");
        let there = maybe_text(self.connection.ask_any(&offer).await?)?;
        Ok(Identity { is_new: there.is_none(), id: there.unwrap_or(offered) })
    }

    /// Nothing goes to a Redis that has not said what time it is.
    async fn after_time(&self) -> Result<()> {
        match self.clock.surely() {
            None => self.observe_time().await.map(drop),
            Some(_) => Ok(()),
        }
    }
}
