//! The whole configuration: one TOML file, the environment and flags, checked at once.
//!
//! A flag wins over the environment, the environment over the file, the file over the defaults. `redis.url` in the file
//! is `DWELL_REDIS_URL` in the environment; every key of [`KEYS`] follows that rule. Webhooks and tokens are in the file only: who
//! may set a variable of the process shall not be able to send its messages elsewhere, nor to let others in. This module
//! starts nothing.

mod durability;
mod errors;
mod keys;
mod log;
mod reader;
mod redis_store;
mod redis_url;
mod show;
mod sources;
mod tls;
mod tokens;
mod trace;
mod webhooks;

use std::path::PathBuf;
use std::time::Duration;

pub use durability::Durability;
pub use errors::{ConfigError, ConfigErrors};
pub use keys::{KEYS, env_name};
pub use log::{LogFormat, LogLevel};
pub use redis_store::{Held, RedisConfig};
pub use redis_url::RedisUrl;
pub use show::show;
pub use sources::{Flag, Origin, Sources};
pub use tokens::TOKEN_KEYS;
pub use trace::TraceConfig;
pub use webhooks::WEBHOOK_KEYS;

use crate::api::access::Token;
use crate::api::http::{Console, LISTEN_ACCEPTED, Listen, MODE_ACCEPTED, SocketMode, TlsFiles};
use crate::api::webhook::Webhook;
use crate::broker;
use crate::model::limits::{
    PREFETCH_LIMIT_BYTES, PREFETCH_LIMIT_BYTES_MAX, PREFETCH_LIMIT_BYTES_MIN, WAL_BYTES_MAX, WAL_BYTES_MIN,
};
use crate::model::topic::Settings;
use crate::outage::successor::HandOverOptions;
use crate::wal::LIMIT_BYTES;
use reader::Reader;
use sources::Layers;

/// The configuration of one broker.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where to listen. Beyond loopback only with tokens.
    pub listen: Listen,
    /// What the console at `/ui` offers.
    pub console: Console,
    /// Who may connect, if that is a Unix socket.
    pub socket_mode: SocketMode,
    /// What a TCP listener encrypts with, if it does.
    pub tls: Option<TlsFiles>,
    /// Who may do what. Only the file says it.
    pub tokens: Vec<Token>,
    /// Where everything is kept that has to survive a restart: the embedded store, or what is buffered while Redis is
    /// away. Absent only in a configuration that was refused.
    pub data_dir: Option<PathBuf>,
    /// The Redis store.
    pub redis: RedisConfig,
    /// What a push is kept in besides Redis.
    pub durability: Durability,
    /// Bytes on disk past which nothing is buffered while Redis is away; also of the journal.
    pub wal_limit_bytes: u64,
    /// To whom a stop gives what is buffered.
    pub hand_over: Option<HandOverOptions>,
    /// How long the journal keeps what Redis took.
    pub journal_span: Duration,
    /// How long a lease runs without a renewal.
    pub lease_ttl: Duration,
    /// The span from one heartbeat of a member of a group to the next.
    pub heartbeat: Duration,
    /// How long after the last request of a consumer a group is left.
    pub idle_timeout: Duration,
    /// How long a stop waits for deliveries that are out.
    pub drain_timeout: Duration,
    /// Bytes of bodies that all owned partitions together hold in memory.
    pub prefetch_limit_bytes: u64,
    /// The settings of topics that are made without any.
    pub topic_defaults: Settings,
    /// Whether a push to a topic that does not exist makes it.
    pub auto_create: bool,
    /// What is logged.
    pub log: LogConfig,
    /// Where spans go, and which are made.
    pub trace: TraceConfig,
    /// Where messages are posted to. Only the file says it.
    pub webhooks: Vec<Webhook>,
}

/// The configuration of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// The least important events that are logged.
    pub level: LogLevel,
    /// How they are written.
    pub format: LogFormat,
}

impl Config {
    /// Reads and checks the configuration.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
        let (layers, errors) = Layers::read(sources);
        let mut reader = Reader::new(&layers, errors);
        let config = Config::from_reader(&mut reader, sources);
        reader.finish().map(|()| config)
    }

    fn from_reader(read: &mut Reader<'_>, sources: &Sources) -> Config {
        let listen = read.parsed("listen", LISTEN_ACCEPTED, Listen::standard(), Listen::parse);
        let data_dir = read.parsed("data_dir", "a directory", sources.state_dir(), |text| match text {
            "" => Err("is empty".to_owned()),
            path => Ok(Some(PathBuf::from(path))),
        });
        let default = broker::Options::default();
        let lease_ttl = read.span("lease.ttl", secs(1)..=secs(600), default.lease_ttl);
        let drain_timeout = read.span("group.drain_timeout", Duration::ZERO..=secs(600), default.drain_timeout);
        let config = Config {
            tls: read.tls(&listen),
            listen,
            console: read.word("console", Console::ALL, Console::Full, Console::name),
            socket_mode: read.parsed("socket_mode", MODE_ACCEPTED, SocketMode::PRIVATE, SocketMode::parse),
            tokens: read.tokens(),
            redis: read.redis(lease_ttl),
            data_dir,
            durability: read.word("durability", Durability::ALL, Durability::Standard, Durability::name),
            wal_limit_bytes: read.number("wal.limit_bytes", WAL_BYTES_MIN..=WAL_BYTES_MAX, LIMIT_BYTES),
            hand_over: read.hand_over(drain_timeout),
            journal_span: read.span("journal.window", secs(1)..=secs(3_600), secs(30)),
            lease_ttl,
            heartbeat: read.heartbeat(lease_ttl, default.heartbeat.min(lease_ttl / 3)),
            idle_timeout: read.span("group.idle_timeout", secs(1)..=secs(86_400), default.idle_timeout),
            drain_timeout,
            prefetch_limit_bytes: read.number(
                "group.prefetch_limit_bytes",
                PREFETCH_LIMIT_BYTES_MIN..=PREFETCH_LIMIT_BYTES_MAX,
                PREFETCH_LIMIT_BYTES,
            ),
            topic_defaults: read.topic_defaults(default.topic_defaults),
            auto_create: read.switch("topic.auto_create", default.auto_create),
            log: LogConfig {
                level: read.word("log.level", LogLevel::ALL, LogLevel::Info, LogLevel::name),
                format: read.word("log.format", LogFormat::ALL, LogFormat::Text, LogFormat::name),
            },
            trace: read.trace(),
            webhooks: read.webhooks(),
        };
        // Tokens that are wrong are errors of their own.
        if let Err(why) = config.listen.check(read.asks()) {
            read.refuse("listen", LISTEN_ACCEPTED, why);
        }
        if config.data_dir.is_none() {
            let why = "has no default here, because neither XDG_STATE_HOME nor HOME is set to an absolute path";
            read.refuse("data_dir", "a directory for what has to survive a restart", why);
        }
        config
    }

    /// How long pushes that Redis took are kept on disk as well, if they are.
    pub fn journal_window(&self) -> Option<Duration> {
        (self.durability == Durability::Journal).then_some(self.journal_span)
    }

    /// How the broker has to behave.
    pub fn broker_options(&self) -> broker::Options {
        broker::Options {
            lease_ttl: self.lease_ttl,
            heartbeat: self.heartbeat,
            idle_timeout: self.idle_timeout,
            drain_timeout: self.drain_timeout,
            prefetch_bytes: usize::try_from(self.prefetch_limit_bytes).unwrap_or(usize::MAX),
            topic_defaults: self.topic_defaults.clone(),
            auto_create: self.auto_create,
            ..broker::Options::default()
        }
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[cfg(test)]
mod tests;
