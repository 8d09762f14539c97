//! The whole configuration: one TOML file, the environment and flags, checked at once.
//!
//! A flag wins over the environment, the environment over the file, the file over the defaults. `redis.url` in the file
//! is `DWELL_REDIS_URL` in the environment; every key of [`KEYS`] follows that rule. Webhooks and tokens are in the file only: who
//! may set a variable of the process shall not be able to send its messages elsewhere, nor to let others in. This module
//! starts nothing.

mod reader;
mod redis_store;
mod show;
mod sources;
mod sqs;
mod tokens;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::access::Token;
use crate::api::http::{
    Console, LISTEN_ACCEPTED, Listen, MODE_ACCEPTED, SocketMode, TlsFiles, check_certificates, check_key,
};
use crate::api::webhook::Webhook;
use crate::broker;
use crate::model::limits::{
    IDLE_TIMEOUT, IDLE_TIMEOUT_MAX, IDLE_TIMEOUT_MIN, PREFETCH_LIMIT_BYTES, PREFETCH_LIMIT_BYTES_MAX,
    PREFETCH_LIMIT_BYTES_MIN, WAL_BYTES_MAX, WAL_BYTES_MIN,
};
use crate::model::topic::Settings;
use crate::outage::hand_over::HandOverOptions;
use crate::sqs::SqsOptions;
use crate::telemetry::spans::{ENDPOINT_ACCEPTED, Endpoint, SpanOptions};
use crate::wal::LIMIT_BYTES;
use reader::Reader;
pub use redis_store::{Held, RedisConfig, RedisUrl};
pub use show::{Setting, settings, show};
use sources::Layers;
pub use sources::{ConfigError, ConfigErrors, Flag, KEYS, Origin, Sources, TOKEN_KEYS, WEBHOOK_KEYS, env_name};

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where to listen. Beyond loopback only with tokens.
    pub listen: Listen,
    pub console: Console,
    pub socket_mode: SocketMode,
    pub tls: Option<TlsFiles>,
    /// How long a connection may be idle between two requests.
    pub http_idle_timeout: Duration,
    /// Access tokens with their scopes. Only the file says it.
    pub tokens: Vec<Token>,
    /// Where everything is kept that has to survive a restart: the embedded store, or what is buffered while Redis is
    /// away. Absent only in a configuration that was refused.
    pub data_dir: Option<PathBuf>,
    pub redis: RedisConfig,
    pub durability: Durability,
    /// Bytes on disk past which nothing is buffered while Redis is unavailable; also of the journal.
    pub wal_limit_bytes: u64,
    pub hand_over: Option<HandOverOptions>,
    pub journal_span: Duration,
    pub lease_ttl: Duration,
    pub heartbeat: Duration,
    pub idle_timeout: Duration,
    pub drain_timeout: Duration,
    pub prefetch_limit_bytes: u64,
    pub topic_defaults: Settings,
    pub auto_create: bool,
    /// Whether SQS clients are served, and how.
    pub sqs: SqsOptions,
    pub log: LogConfig,
    pub trace: TraceConfig,
    /// Where messages are posted to. Only the file says it.
    pub webhooks: Vec<Webhook>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    pub level: LogLevel,
    pub format: LogFormat,
}

impl Config {
    /// Reads and checks the configuration. # Errors: everything that is wrong with it, at once.
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
            http_idle_timeout: read.span("http.idle_timeout", IDLE_TIMEOUT_MIN..=IDLE_TIMEOUT_MAX, IDLE_TIMEOUT),
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
            sqs: read.sqs(),
            log: LogConfig {
                level: read.word("log.level", LogLevel::ALL, LogLevel::Info, LogLevel::name),
                format: read.word("log.format", LogFormat::ALL, LogFormat::Text, LogFormat::name),
            },
            trace: read.trace(),
            webhooks: read.webhooks(),
        };
        // Tokens that are wrong are separate errors.
        if let Err(why) = config.listen.check(read.has_tokens()) {
            read.refuse("listen", LISTEN_ACCEPTED, why);
        }
        if config.data_dir.is_none() {
            let why = "has no default here, because neither XDG_STATE_HOME nor HOME is set to an absolute path";
            read.refuse("data_dir", "a directory for what has to survive a restart", why);
        }
        config
    }

    pub fn journal_window(&self) -> Option<Duration> {
        (self.durability == Durability::Journal).then_some(self.journal_span)
    }

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// In Redis; on the local disk while Redis is unavailable.
    Standard,
    Journal,
}

impl Durability {
    pub const ALL: &[Durability] = &[Durability::Standard, Durability::Journal];

    pub fn name(self) -> &'static str {
        match self {
            Durability::Standard => "standard",
            Durability::Journal => "journal",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    pub const ALL: &[LogLevel] =
        &[LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    pub const ALL: &[LogFormat] = &[LogFormat::Text, LogFormat::Json];

    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

/// The part of those messages that is traced whose producers said nothing about a trace, unless it is given.
const RATIO: f64 = 0.01;

#[derive(Debug, Clone, PartialEq)]
pub struct TraceConfig {
    /// An OTLP/HTTP receiver; without one no spans are made.
    pub endpoint: Option<Endpoint>,
    pub ca_file: Option<PathBuf>,
    /// 0 to 1: the part of those messages that is traced whose producers said nothing about a trace.
    pub ratio: f64,
}

impl TraceConfig {
    pub fn options(&self) -> Option<SpanOptions> {
        let (endpoint, ca_file) = (self.endpoint.clone()?, self.ca_file.clone());
        Some(SpanOptions { endpoint, ca_file, ratio: self.ratio })
    }
}

impl Reader<'_> {
    fn trace(&mut self) -> TraceConfig {
        let parse = |text: &str| Endpoint::parse(text).map(Some);
        let endpoint = self.parsed("trace.otlp_endpoint", ENDPOINT_ACCEPTED, None, parse);
        let ca_file = self.certificates("trace.otlp_ca_file");
        TraceConfig { endpoint, ca_file, ratio: self.number("trace.sample_ratio", 0.0..=1.0, RATIO) }
    }
}

impl Reader<'_> {
    fn tls(&mut self, listen: &Listen) -> Option<TlsFiles> {
        let accepted = "a file with one or more certificates as PEM";
        let certificates = |path: &str| check_certificates(Path::new(path)).map(|()| Some(PathBuf::from(path)));
        let cert = self.parsed("tls.cert_file", accepted, None, certificates);
        let key = self.parsed("tls.key_file", "a file with a private key as PEM", None, |path| {
            check_key(Path::new(path)).map(|()| Some(PathBuf::from(path)))
        });
        let client_ca = self.parsed("tls.client_ca_file", accepted, None, certificates);
        let given = ["tls.cert_file", "tls.key_file", "tls.client_ca_file"].map(|key| self.layers.get(key).is_some());
        let first = ["tls.cert_file", "tls.key_file", "tls.client_ca_file"].into_iter().zip(given).find(|(_, on)| *on);
        let first = first.map(|(key, _)| key)?;
        if !given[0] || !given[1] {
            self.refuse(first, "tls.cert_file and tls.key_file together", "is given without another one");
        } else if let Listen::Unix(_) = listen {
            self.refuse(first, "an address with a port in `listen`", "is for TLS, which a Unix socket does not need");
        }
        let files = TlsFiles { cert: cert?, key: key?, client_ca };
        if let Err(why) = files.check() {
            self.refuse("tls.key_file", "the key of the first certificate in tls.cert_file", why);
        }
        Some(files)
    }
}
