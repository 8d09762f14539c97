//! Where the values of a configuration come from, and which of them wins; the keys that exist, and errors about them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Read;
use std::path::{Path, PathBuf};

use config::{FileFormat, Map, Source, Value, ValueKind};

use crate::model::spelling::nearest;

/// Bytes of a configuration file, and of a file that holds a secret. A device or a log given by mistake is not read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub(super) const TOKENS: &str = "auth.token";

pub const TOKEN_KEYS: [&str; 3] = ["name", "file", "scopes"];

pub const WEBHOOK_KEYS: [&str; 9] =
    ["topic", "group", "url", "concurrency", "timeout", "secret_file", "ca_file", "allow_remote", "enabled"];

pub(super) const WEBHOOKS: &str = "webhook";

/// Sections that may be repeated, each a table: their name, and the keys of one.
const TABLES: [(&str, &[&str]); 2] = [(WEBHOOKS, &WEBHOOK_KEYS), (TOKENS, &TOKEN_KEYS)];

pub(super) fn item_key(tables: &str, n: usize, name: &str) -> String {
    match name {
        "" => format!("{tables}[{n}]"),
        name => format!("{tables}[{n}].{name}"),
    }
}

/// Everything a configuration is made of. Any part of it may be a secret, so it cannot be printed; [`super::show()`] masks.
#[derive(Clone, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    /// The content of the file when it was last read on purpose: it counts instead of the present one.
    pub text: Option<String>,
    pub env: Vec<(OsString, OsString)>,
    pub flags: Vec<Flag>,
}

#[derive(Clone)]
pub struct Flag {
    pub key: &'static str,
    pub flag: &'static str,
    pub value: String,
}

impl Sources {
    /// The same, and what is in the file now stays what it says.
    pub(crate) fn with_text(self) -> Sources {
        let text = self.file.as_deref().and_then(|file| read_text(file).ok());
        Sources { text, ..self }
    }

    /// The same with what is in the file now.
    pub(crate) fn anew(&self) -> Sources {
        Sources { text: None, ..self.clone() }.with_text()
    }

    /// The files that hold parts of the configuration: secrets and certificates. Not the file of the configuration itself.
    pub(crate) fn named_files(&self) -> Vec<PathBuf> {
        let (layers, _) = Layers::read(self);
        let of_files = layers.values.iter().filter(|(key, _)| key.ends_with("_file"));
        let texts = of_files.filter_map(|(_, (raw, _))| match raw {
            Raw::Text(path) => Some(PathBuf::from(path)),
            Raw::List(_) | Raw::Other(_) => None,
        });
        texts.collect()
    }

    /// The directory for what has to survive a restart: `$XDG_STATE_HOME/dwell` or `~/.local/state/dwell`.
    pub(super) fn state_dir(&self) -> Option<PathBuf> {
        let absolute = |name: &str| {
            let path = self.env.iter().find(|(variable, _)| variable == name).map(|(_, value)| PathBuf::from(value))?;
            path.is_absolute().then_some(path)
        };
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
        Some(state.join("dwell"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(PathBuf),
    Env(String),
    Flag(&'static str),
}

impl Origin {
    pub(super) fn rank(&self) -> u8 {
        match self {
            Origin::Default => 0,
            Origin::File(_) => 1,
            Origin::Env(_) => 2,
            Origin::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Env(name) => write!(f, "environment variable {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

#[derive(Clone, PartialEq)]
pub(super) enum Raw {
    Text(String),
    List(Vec<String>),
    Other(&'static str),
}

#[derive(Default)]
pub(super) struct Layers {
    values: BTreeMap<String, (Raw, Origin)>,
    tables: BTreeMap<&'static str, Vec<Origin>>,
    errors: Vec<ConfigError>,
}

impl Layers {
    pub(super) fn read(sources: &Sources) -> (Layers, Vec<ConfigError>) {
        let mut layers = Layers::default();
        if let Some(path) = &sources.file {
            layers.read_file(path, sources.text.clone());
        }
        layers.read_env(&sources.env);
        for flag in &sources.flags {
            layers.set(flag.key, (Raw::Text(flag.value.clone()), Origin::Flag(flag.flag)));
        }
        let errors = std::mem::take(&mut layers.errors);
        (layers, errors)
    }

    pub(super) fn get(&self, key: &str) -> Option<&(Raw, Origin)> {
        self.values.get(key)
    }

    pub(super) fn origin(&self, key: &str) -> Origin {
        self.get(key).map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    pub(super) fn tables(&self, name: &str) -> &[Origin] {
        self.tables.get(name).map_or(&[], Vec::as_slice)
    }

    fn set(&mut self, key: &str, value: (Raw, Origin)) {
        self.values.insert(key.to_owned(), value);
    }

    fn read_file(&mut self, path: &Path, text: Option<String>) {
        let origin = Origin::File(path.to_owned());
        let read = text.map_or_else(|| read_text(path), Ok).and_then(|text| {
            let file = config::File::from_str(&text, FileFormat::Toml);
            file.collect().map_err(|error| unquoted(&error.to_string()))
        });
        match read {
            Ok(table) => self.read_table("", table, &origin),
            Err(problem) => self.errors.push(whole("the file", origin, problem)),
        }
    }

    fn read_table(&mut self, above: &str, table: Map<String, Value>, origin: &Origin) {
        for (name, value) in table.into_iter().collect::<BTreeMap<_, _>>() {
            let path = if above.is_empty() { name } else { format!("{above}.{name}") };
            let inside = format!("{path}.");
            let section = KEYS.into_iter().chain(TABLES.map(|(tables, _)| tables)).any(|key| key.starts_with(&inside));
            if let Some((name, keys)) = TABLES.into_iter().find(|(tables, _)| *tables == path) {
                self.read_tables(name, keys, value.kind, origin);
                continue;
            }
            match (KEYS.iter().find(|key| **key == path), value.kind) {
                (Some(key), kind) => self.set(key, (raw(kind), origin.clone())),
                (None, ValueKind::Table(inner)) if section => self.read_table(&path, inner, origin),
                (None, _) if section => {
                    self.errors.push(whole(&path, origin.clone(), "is a section, not a key".into()))
                }
                (None, _) => self.errors.push(unknown(&path, origin.clone(), nearest(&path, KEYS.into_iter()))),
            }
        }
    }

    fn read_tables(&mut self, name: &'static str, keys: &[&'static str], kind: ValueKind, origin: &Origin) {
        let ValueKind::Array(tables) = kind else {
            return self.errors.push(whole(name, origin.clone(), format!("is one of many: write [[{name}]]")));
        };
        for (n, table) in tables.into_iter().enumerate() {
            self.tables.entry(name).or_default().push(origin.clone());
            let ValueKind::Table(table) = table.kind else {
                let problem = format!("is no table: write [[{name}]]");
                self.errors.push(whole(&item_key(name, n, ""), origin.clone(), problem));
                continue;
            };
            for (given, value) in table.into_iter().collect::<BTreeMap<_, _>>() {
                let key = item_key(name, n, &given);
                match keys.contains(&given.as_str()) {
                    true => self.set(&key, (raw(value.kind), origin.clone())),
                    false => self.errors.push(unknown(&key, origin.clone(), nearest(&given, keys.iter().copied()))),
                }
            }
        }
    }

    fn read_env(&mut self, env: &[(OsString, OsString)]) {
        let keys: BTreeMap<String, &'static str> = KEYS.into_iter().map(|key| (env_name(key), key)).collect();
        let mut ours: Vec<_> = env.iter().filter_map(|(name, value)| Some((name.to_str()?, value))).collect();
        ours.retain(|(name, _)| name.starts_with("DWELL_"));
        ours.sort();
        for (name, value) in ours {
            let origin = Origin::Env(name.to_owned());
            match (keys.get(name), value.to_str()) {
                // An empty variable is how compose files and shells say "not set".
                (Some(_), Some("")) => {}
                (Some(key), Some(text)) => self.set(key, (Raw::Text(text.to_owned()), origin)),
                (Some(key), None) => self.errors.push(whole(key, origin, "is not UTF-8".to_owned())),
                (None, _) if is_foreign(name) => {}
                (None, _) => self.errors.push(unknown(name, origin, nearest(name, keys.keys().map(String::as_str)))),
            }
        }
    }
}

/// The error in the syntax of a file, without the lines of it that the error quotes: they may hold a password.
fn unquoted(error: &str) -> String {
    let quotes =
        |line: &&str| line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().starts_with('|');
    let lines: Vec<&str> = error.lines().filter(|line| !quotes(line)).map(str::trim).collect();
    lines.join(": ").trim_end_matches([':', ' ']).to_owned()
}

pub(super) fn read_text(path: &Path) -> Result<String, String> {
    let why = |error: std::io::Error| format!("cannot be read: {error}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(why)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(why)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// Of the content of files; one that cannot be read counts as empty.
pub(crate) fn fingerprint<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        let bytes = std::fs::read(file).unwrap_or_default();
        hasher.write_usize(bytes.len());
        hasher.write(&bytes);
    }
    hasher.finish()
}

fn raw(kind: ValueKind) -> Raw {
    match kind {
        ValueKind::Nil => Raw::Other("nothing"),
        ValueKind::Table(_) => Raw::Other("a table"),
        ValueKind::Array(items) => {
            let text = |item: Value| match raw(item.kind) {
                Raw::Text(text) => Some(text),
                Raw::List(_) | Raw::Other(_) => None,
            };
            items.into_iter().map(text).collect::<Option<_>>().map_or(Raw::Other("a nested list"), Raw::List)
        }
        scalar => Raw::Text(scalar.to_string()),
    }
}

fn whole(key: &str, origin: Origin, problem: String) -> ConfigError {
    ConfigError { key: key.to_owned(), origin, value: None, problem, accepted: None }
}

fn unknown(key: &str, origin: Origin, meant: Option<&str>) -> ConfigError {
    let problem = match meant {
        Some(meant) => format!("is not known; did you mean {meant}?"),
        None => "is not known; `dwell config show` lists every key".to_owned(),
    };
    whole(key, origin, problem)
}

pub const KEYS: [&str; 63] = [
    "listen",
    "console",
    "socket_mode",
    "data_dir",
    "durability",
    "admin.listen",
    "tls.cert_file",
    "tls.key_file",
    "tls.client_ca_file",
    "http.idle_timeout",
    "http.linger",
    "redis.url",
    "redis.url_file",
    "redis.password_file",
    "redis.ca_file",
    "redis.cert_file",
    "redis.key_file",
    "redis.prefix",
    "redis.timeout",
    "redis.allow_eviction",
    "redis.start_without",
    "redis.min_replicas",
    "redis.fsync",
    "wal.limit_bytes",
    "wal.hand_over",
    "wal.hand_over_token_file",
    "wal.hand_over_ca_file",
    "journal.window",
    "lease.ttl",
    "group.heartbeat",
    "group.idle_timeout",
    "group.drain_timeout",
    "group.prefetch_limit_bytes",
    "topic.partitions",
    "topic.visibility_timeout",
    "topic.max_attempts",
    "topic.dedup_window",
    "topic.ordering",
    "topic.ttl",
    "topic.on_expiry",
    "topic.dead_max_age",
    "topic.dead_max_count",
    "topic.auto_create",
    "topic.backoff.kind",
    "topic.backoff.initial",
    "topic.backoff.max",
    "topic.backoff.factor",
    "topic.backoff.jitter",
    "topic.backoff.steps",
    "sqs.enabled",
    "sqs.public_url",
    "sqs.region",
    "sqs.account",
    "sqs.partitions",
    "sqs.max_delay",
    "sqs.strict",
    "sqs.auto_create",
    "sqs.celery_eta",
    "log.level",
    "log.format",
    "trace.otlp_endpoint",
    "trace.otlp_ca_file",
    "trace.sample_ratio",
];

/// The environment variable of a key.
///
/// ```
/// assert_eq!(dwell::app::config::env_name("redis.url"), "DWELL_REDIS_URL");
/// ```
pub fn env_name(key: &str) -> String {
    format!("DWELL_{}", key.to_uppercase().replace('.', "_"))
}

/// Variables that begin with `DWELL_` and are not keys: the command line's own, and what `consume --exec` gives to the
/// command it runs, which may well be dwell again.
const OTHERS: [&str; 16] = [
    "DWELL_CONFIG",
    "DWELL_SERVER",
    "DWELL_TOKEN_FILE",
    "DWELL_CA_FILE",
    "DWELL_TOPIC",
    "DWELL_GROUP",
    "DWELL_ID",
    "DWELL_KEY",
    "DWELL_ATTEMPT",
    "DWELL_PARTITION",
    "DWELL_DUE_AT",
    "DWELL_PUSHED_AT",
    "DWELL_LATENESS_MS",
    "DWELL_CONTENT_TYPE",
    "DWELL_TRACEPARENT",
    "DWELL_TRACESTATE",
];

/// Whether a variable beginning with `DWELL_` is somebody's misspelt key.
///
/// Kubernetes gives every container variables for every service, so a service named `dwell` or `dwell-metrics` adds
/// `DWELL_SERVICE_HOST`, `DWELL_METRICS_PORT_9100_TCP_ADDR` and the like. Those are nobody's mistake.
fn is_foreign(variable: &str) -> bool {
    let kubernetes = variable.ends_with("_SERVICE_HOST")
        || variable.contains("_SERVICE_PORT")
        || variable.ends_with("_PORT")
        || variable.contains("_TCP")
        || variable.contains("_UDP");
    kubernetes || variable.starts_with("DWELL_META_") || OTHERS.contains(&variable)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub key: String,
    pub origin: Origin,
    pub value: Option<String>,
    pub problem: String,
    pub accepted: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        write!(f, " ({}): {}", self.origin, self.problem)?;
        match &self.accepted {
            Some(accepted) => write!(f, "; accepted: {accepted}"),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("1 error in the configuration:")?,
            many => write!(f, "{many} errors in the configuration:")?,
        }
        for error in &self.0 {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A TOML basic string; JSON escapes the same way.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The text with everything hidden that may be a password; all of it when it is no URL.
pub(super) fn mask(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return "***".to_owned();
    };
    let (address, query) = match rest.split_once('?') {
        // A `?` before the `@` belongs to a password that should have been escaped.
        Some((address, query)) if !query.contains('@') => (address, Some(query)),
        _ => (rest, None),
    };
    // A password may hold an unescaped `@` or `/`, so it ends at the last `@`.
    let address = match address.rsplit_once('@') {
        Some((user, host)) if user.contains(':') => {
            format!("{}:***@{host}", user.split(':').next().unwrap_or_default())
        }
        Some((_, host)) => format!("***@{host}"),
        None => address.to_owned(),
    };
    let query = query.map_or(String::new(), |query| {
        let hide = |pair: &str| match pair.split_once('=') {
            Some((name, _)) if !matches!(name, "db" | "protocol" | "user") => format!("{name}=***"),
            _ => pair.to_owned(),
        };
        format!("?{}", query.split('&').map(hide).collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{address}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_and_command_variables_are_not_settings() {
        for foreign in ["DWELL_SERVICE_HOST", "DWELL_PORT_7373_TCP_ADDR", "DWELL_PORT", "DWELL_SERVER", "DWELL_META_A"]
        {
            assert!(is_foreign(foreign), "{foreign}");
        }
        for key in KEYS {
            assert!(!is_foreign(&env_name(key)), "{key}");
        }
        assert!(!is_foreign("DWELL_REDIS_TIMOUT"));
    }
}
