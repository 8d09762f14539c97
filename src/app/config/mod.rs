//! The whole configuration: one TOML file, the environment and flags, checked at once; and shown, as a TOML file that says
//! where each value came from.
//!
//! A flag wins over the environment, the environment over the file, the file over the defaults. `redis.url` in the file
//! is `DWELL_REDIS_URL` in the environment; every key of [`KEYS`] follows that rule. Webhooks and tokens are in the file only: who
//! may set a variable of the process shall not be able to send its messages elsewhere, nor to let others in. This module
//! starts nothing.

mod sources;
mod reader;
mod redis_store;
mod tokens;
mod otel;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::http::{
    Console, LISTEN_ACCEPTED, Listen, MODE_ACCEPTED, SocketMode, TlsFiles, check_certificates, check_key,
};
use crate::api::webhook::Webhook;
use crate::broker;
use crate::gate::access::Token;
use crate::model::limits::{
    DELAY_MAX, IDLE_TIMEOUT, IDLE_TIMEOUT_MAX, IDLE_TIMEOUT_MIN, PARTITIONS_MAX, PREFETCH_LIMIT_BYTES,
    PREFETCH_LIMIT_BYTES_MAX, PREFETCH_LIMIT_BYTES_MIN, WAL_BYTES_MAX, WAL_BYTES_MIN,
};
use crate::model::retry::Backoff;
use crate::model::time::show_span;
use crate::model::topic::Settings;
use crate::outage::hand_over::HandOverOptions;
use crate::platform::secret::Secret;
use crate::sqs::SqsOptions;
use crate::telemetry::spans::{ENDPOINT_ACCEPTED, Endpoint, SERVICE, SpanOptions};
use crate::wal::LIMIT_BYTES;
use otel::Variables;
use reader::Reader;
pub use redis_store::{Held, RedisConfig, RedisUrl};
pub(crate) use sources::fingerprint;
pub use sources::{ConfigError, ConfigErrors, Flag, KEYS, Origin, Sources, TOKEN_KEYS, WEBHOOK_KEYS, env_name};
use sources::{Layers, TOKENS, WEBHOOKS, item_key, quoted};
use tokens::{token_value, webhook_value};

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where to listen. Beyond loopback only with tokens.
    pub listen: Listen,
    /// `admin.listen`: for operators.
    pub admin: Option<Listen>,
    pub console: Console,
    pub socket_mode: SocketMode,
    pub tls: Option<TlsFiles>,
    /// How long a connection may be idle between two requests.
    pub http_idle_timeout: Duration,
    pub linger: Duration,
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
        let admin = read.parsed("admin.listen", LISTEN_ACCEPTED, None, |address| Listen::parse(address).map(Some));
        let data_dir = read.parsed("data_dir", "a directory", sources.state_dir(), |text| match text {
            "" => Err("is empty".to_owned()),
            path => Ok(Some(PathBuf::from(path))),
        });
        let default = broker::Options::default();
        let lease_ttl = read.span("lease.ttl", secs(1)..=secs(600), default.lease_ttl);
        let drain_timeout = read.span("group.drain_timeout", Duration::ZERO..=secs(600), default.drain_timeout);
        let config = Config {
            tls: read.tls(&listen, admin.as_ref()),
            listen,
            admin,
            console: read.word("console", Console::ALL, Console::Full, Console::name),
            socket_mode: read.parsed("socket_mode", MODE_ACCEPTED, SocketMode::PRIVATE, SocketMode::parse),
            tokens: read.tokens(),
            http_idle_timeout: read.span("http.idle_timeout", IDLE_TIMEOUT_MIN..=IDLE_TIMEOUT_MAX, IDLE_TIMEOUT),
            linger: read.span("http.linger", Duration::ZERO..=secs(300), Duration::ZERO),
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
            trace: read.trace(&Variables(&sources.env)),
            webhooks: read.webhooks(),
        };
        // Tokens that are wrong are separate errors.
        if let Err(why) = config.listen.check(read.has_tokens()) {
            read.refuse("listen", LISTEN_ACCEPTED, why);
        }
        if config.admin.as_ref() == Some(&config.listen) {
            read.refuse("admin.listen", "another address than `listen`", "is the address for clients".to_owned());
        }
        if config.data_dir.is_none() {
            let why = "has no default here, because neither XDG_STATE_HOME nor HOME is set to an absolute path";
            read.refuse("data_dir", "a directory for what has to survive a restart", why);
        }
        config
    }

    /// The same with what takes effect without a restart from another one.
    pub(crate) fn with_live_parts_of(&self, other: &Config) -> Config {
        let LogConfig { format, .. } = self.log;
        let RedisConfig { password_file, ca_file, cert_file, key_file, .. } = other.redis.clone();
        Config {
            tokens: other.tokens.clone(),
            webhooks: other.webhooks.clone(),
            log: LogConfig { level: other.log.level, format },
            redis: RedisConfig { password_file, ca_file, cert_file, key_file, ..self.redis.clone() },
            ..self.clone()
        }
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
    pub service: String,
    pub resource: Vec<(String, String)>,
    /// They may hold an API key.
    pub headers: Vec<(String, Secret)>,
}

impl TraceConfig {
    fn to(endpoint: Option<Endpoint>) -> TraceConfig {
        let (resource, headers) = (Vec::new(), Vec::new());
        TraceConfig { endpoint, ca_file: None, ratio: RATIO, service: SERVICE.to_owned(), resource, headers }
    }

    pub fn options(&self) -> Option<SpanOptions> {
        let TraceConfig { endpoint, ca_file, ratio, service, resource, headers } = self.clone();
        Some(SpanOptions { endpoint: endpoint?, ca_file, ratio, service, resource, headers })
    }
}

impl Reader<'_> {
    fn trace(&mut self, variables: &Variables<'_>) -> TraceConfig {
        let of_otel = variables.endpoint().unwrap_or_else(|(name, why)| {
            self.refuse(name, ENDPOINT_ACCEPTED, why);
            None
        });
        let parse = |text: &str| Endpoint::parse(text).map(Some);
        let endpoint = self.parsed("trace.otlp_endpoint", ENDPOINT_ACCEPTED, of_otel, parse);
        let endpoint = endpoint.filter(|_| !variables.are_off());
        let ca_file = self.certificates("trace.otlp_ca_file").or_else(|| variables.ca_file());
        let ratio = self.number("trace.sample_ratio", 0.0..=1.0, variables.ratio().unwrap_or(RATIO));
        variables.complete(TraceConfig { ca_file, ratio, ..TraceConfig::to(endpoint) })
    }
}

impl Reader<'_> {
    fn tls(&mut self, listen: &Listen, admin: Option<&Listen>) -> Option<TlsFiles> {
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
        } else if [Some(listen), admin].into_iter().flatten().all(|listen| matches!(listen, Listen::Unix(_))) {
            self.refuse(first, "an address with a port in `listen`", "is for TLS, which a Unix socket does not need");
        }
        let files = TlsFiles { cert: cert?, key: key?, client_ca };
        if let Err(why) = files.check() {
            self.refuse("tls.key_file", "the key of the first certificate in tls.cert_file", why);
        }
        Some(files)
    }
}

const REGION_CHARS_MAX: usize = 64;

impl Reader<'_> {
    /// The section `[sqs]`.
    fn sqs(&mut self) -> SqsOptions {
        let default = SqsOptions::default();
        let accepted = "an http or https URL without a path";
        SqsOptions {
            enabled: self.switch("sqs.enabled", default.enabled),
            public_url: self.parsed("sqs.public_url", accepted, default.public_url, public_url),
            region: self.parsed("sqs.region", "the name of a region, as in eu-west-1", default.region, region),
            account: self.parsed("sqs.account", "12 digits", default.account, account),
            partitions: self.number("sqs.partitions", 1..=PARTITIONS_MAX / 8, default.partitions),
            max_delay: self.span("sqs.max_delay", Duration::ZERO..=DELAY_MAX, default.max_delay),
            strict: self.switch("sqs.strict", default.strict),
            auto_create: self.switch("sqs.auto_create", default.auto_create),
            celery_eta: self.switch("sqs.celery_eta", default.celery_eta),
        }
    }
}

fn public_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let is_host = |rest: &str| {
        let host = rest.trim_end_matches('/');
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte))
    };
    match text.is_empty() || rest.is_some_and(is_host) {
        true => Ok(text.to_owned()),
        false => Err("is no such URL".to_owned()),
    }
}

fn region(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match (1..=REGION_CHARS_MAX).contains(&text.len()) && text.bytes().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err("is no name of a region".to_owned()),
    }
}

fn account(text: &str) -> Result<String, String> {
    match text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(text.to_owned()),
        false => Err("has not 12 digits".to_owned()),
    }
}

/// A key of the configuration in force, with the origin of its value; a password is masked.
#[derive(Debug, Clone)]
pub struct Setting {
    /// As in `redis.url`, or `webhook[0].topic` of what may be repeated.
    pub key: String,
    /// In TOML, which is JSON too; none if it is not set.
    pub value: Option<String>,
    pub origin: Origin,
}

/// The configuration in force, key by key. # Errors: everything that is wrong with it.
pub fn settings(sources: &Sources) -> Result<Vec<Setting>, ConfigErrors> {
    let config = Config::load(sources)?;
    let (layers, _) = Layers::read(sources);
    let of = |key: String, value: Option<String>| {
        let is_of_file = key == "redis.url" && value.is_some() && layers.get(&key).is_none();
        let origin = if is_of_file { layers.origin("redis.url_file") } else { layers.origin(&key) };
        Setting { origin: if value.is_some() { origin } else { Origin::Default }, key, value }
    };
    let mut settings: Vec<Setting> = KEYS.iter().map(|key| of((*key).to_owned(), value(&config, key))).collect();
    for (n, token) in config.tokens.iter().enumerate() {
        let item = |name: &&str| of(item_key(TOKENS, n, name), token_value(token, n, name, &layers));
        settings.extend(TOKEN_KEYS.iter().map(item));
    }
    for (n, webhook) in config.webhooks.iter().enumerate() {
        let item = |name: &&str| of(item_key(WEBHOOKS, n, name), webhook_value(webhook, n, name, &layers));
        settings.extend(WEBHOOK_KEYS.iter().map(item));
    }
    Ok(settings)
}

/// Writes settings as TOML, with the origin of each value and its environment variable.
pub fn show(settings: &[Setting]) -> String {
    let (mut text, mut section) = (String::new(), "");
    for Setting { key, value, origin } in settings {
        let (in_section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let tables = in_section.split_once('[').map(|(tables, _)| tables);
        if in_section != section {
            // Writing to a String cannot fail.
            let _ = match tables {
                Some(tables) => write!(text, "\n[[{tables}]]\n"),
                None => write!(text, "\n[{in_section}]\n"),
            };
            section = in_section;
        }
        let line = value.as_ref().map_or_else(|| format!("# {name} ="), |value| format!("{name} = {value}"));
        let described = match origin {
            Origin::Default if tables.is_none() => format!("default; {}", env_name(key)),
            origin => origin.to_string(),
        };
        let _ = writeln!(text, "{line:<44} # {described}");
    }
    text
}

/// The keys whose values differ between two configurations; also of a file whose path stays, but for those that are read where they
/// are used. Not tokens and webhooks.
pub(crate) fn changed_keys(one: &Config, other: &Config) -> Vec<&'static str> {
    let differs = |key: &&str| match *key {
        // Its text has no password.
        "redis.url" => one.redis.url != other.redis.url,
        key => value(one, key) != value(other, key) || one.redis.held(key) != other.redis.held(key),
    };
    KEYS.into_iter().filter(differs).collect()
}

fn value(config: &Config, key: &str) -> Option<String> {
    let span = |span| quoted(&show_span(span));
    let topic = &config.topic_defaults;
    Some(match key {
        "listen" => quoted(&config.listen.to_string()),
        "admin.listen" => quoted(&config.admin.as_ref()?.to_string()),
        "console" => quoted(config.console.name()),
        "socket_mode" => quoted(&config.socket_mode.to_string()),
        "data_dir" => quoted(&config.data_dir.as_ref()?.display().to_string()),
        "durability" => quoted(config.durability.name()),
        "tls.cert_file" => quoted(&config.tls.as_ref()?.cert.display().to_string()),
        "tls.key_file" => quoted(&config.tls.as_ref()?.key.display().to_string()),
        "tls.client_ca_file" => quoted(&config.tls.as_ref()?.client_ca.as_ref()?.display().to_string()),
        "http.idle_timeout" => span(config.http_idle_timeout),
        "http.linger" => span(config.linger),
        "sqs.enabled" => config.sqs.enabled.to_string(),
        "sqs.public_url" => quoted(&config.sqs.public_url),
        "sqs.region" => quoted(&config.sqs.region),
        "sqs.account" => quoted(&config.sqs.account),
        "sqs.partitions" => config.sqs.partitions.to_string(),
        "sqs.max_delay" => span(config.sqs.max_delay),
        "sqs.strict" => config.sqs.strict.to_string(),
        "sqs.auto_create" => config.sqs.auto_create.to_string(),
        "sqs.celery_eta" => config.sqs.celery_eta.to_string(),
        "wal.limit_bytes" => config.wal_limit_bytes.to_string(),
        "wal.hand_over" => quoted(&config.hand_over.as_ref()?.url),
        "wal.hand_over_token_file" => quoted(&config.hand_over.as_ref()?.token_file.as_ref()?.display().to_string()),
        "wal.hand_over_ca_file" => quoted(&config.hand_over.as_ref()?.ca_file.as_ref()?.display().to_string()),
        "journal.window" => span(config.journal_span),
        "redis.url" => quoted(&config.redis.url.as_ref()?.to_string()),
        "redis.password_file" => config.redis.password_file.as_ref()?.shown(),
        "redis.ca_file" => config.redis.ca_file.as_ref()?.shown(),
        "redis.cert_file" => config.redis.cert_file.as_ref()?.shown(),
        "redis.key_file" => config.redis.key_file.as_ref()?.shown(),
        "redis.prefix" => quoted(&config.redis.prefix),
        "redis.timeout" => span(config.redis.timeout),
        "redis.allow_eviction" => config.redis.allow_eviction.to_string(),
        "redis.start_without" => config.redis.start_without.to_string(),
        "redis.min_replicas" => config.redis.confirmation.replicas.to_string(),
        "redis.fsync" => config.redis.confirmation.fsync.to_string(),
        "lease.ttl" => span(config.lease_ttl),
        "group.heartbeat" => span(config.heartbeat),
        "group.idle_timeout" => span(config.idle_timeout),
        "group.drain_timeout" => span(config.drain_timeout),
        "group.prefetch_limit_bytes" => config.prefetch_limit_bytes.to_string(),
        "topic.partitions" => topic.partitions.to_string(),
        "topic.visibility_timeout" => span(topic.visibility_timeout),
        "topic.max_attempts" => topic.max_attempts.to_string(),
        "topic.dedup_window" => span(topic.dedup_window),
        "topic.ordering" => quoted(topic.ordering.name()),
        "topic.ttl" => span(topic.ttl),
        "topic.on_expiry" => quoted(topic.on_expiry.name()),
        "topic.dead_max_age" => span(topic.dead_max_age),
        "topic.dead_max_count" => topic.dead_max_count.to_string(),
        "topic.auto_create" => config.auto_create.to_string(),
        "log.level" => quoted(config.log.level.name()),
        "log.format" => quoted(config.log.format.name()),
        "trace.otlp_endpoint" => quoted(&config.trace.endpoint.as_ref()?.to_string()),
        "trace.otlp_ca_file" => quoted(&config.trace.ca_file.as_ref()?.display().to_string()),
        "trace.sample_ratio" => format!("{:?}", config.trace.ratio),
        _ => return backoff_value(&topic.backoff, key.strip_prefix("topic.backoff.")?),
    })
}

fn backoff_value(backoff: &Backoff, name: &str) -> Option<String> {
    Some(match (backoff, name) {
        (Backoff::Exponential { .. }, "kind") => quoted("exponential"),
        (Backoff::Exponential { initial, .. }, "initial") => quoted(&show_span(*initial)),
        (Backoff::Exponential { max, .. }, "max") => quoted(&show_span(*max)),
        (Backoff::Exponential { factor, .. }, "factor") => format!("{factor:?}"),
        (Backoff::Exponential { jitter, .. }, "jitter") => format!("{jitter:?}"),
        (Backoff::Ladder { .. }, "kind") => quoted("ladder"),
        (Backoff::Ladder { steps }, "steps") => {
            let steps: Vec<String> = steps.iter().map(|step| quoted(&show_span(step.0))).collect();
            format!("[{}]", steps.join(", "))
        }
        _ => return None,
    })
}
