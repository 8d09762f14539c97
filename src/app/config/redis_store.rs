//! The Redis store of a configuration; its URL is never shown with the password.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Origin;
use super::reader::Reader;
use super::sources::{mask, quoted, read_text};
use crate::app::engine::{Confirmation, Login, RedisOptions, Renewal};
use crate::model::limits::NAME_BYTES_MAX;
use crate::model::time::show_span;
use crate::outage::hand_over::{self, HandOverOptions};
use crate::platform::secret::Secret;

const REPLICAS_MAX: u32 = 16;

/// The least time for a call that waits for fsyncs, which gets half of it: with `appendfsync everysec` they come a second
/// apart, and replicas report theirs once a second.
const FSYNC_TIMEOUT_MIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq)]
pub struct RedisConfig {
    /// Where Redis is. Without it the store is the embedded one.
    pub url: Option<RedisUrl>,
    pub password_file: Option<Held>,
    pub ca_file: Option<Held>,
    pub cert_file: Option<Held>,
    pub key_file: Option<Held>,
    pub prefix: String,
    pub timeout: Duration,
    pub allow_eviction: bool,
    /// Whether to start for the first time although Redis refuses how it is configured here, and to buffer until it does
    /// not.
    pub start_without: bool,
    pub confirmation: Confirmation,
}

/// A file that the configuration names, with what it held. That is not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    path: String,
    text: Secret,
}

impl Held {
    fn read(path: &str) -> Result<Held, String> {
        match read_text(Path::new(path))? {
            text if text.trim().is_empty() => Err("is empty".to_owned()),
            text => Ok(Held { path: path.to_owned(), text: text.into() }),
        }
    }

    pub fn secret(&self) -> &Secret {
        &self.text
    }

    pub(super) fn shown(&self) -> String {
        quoted(&self.path)
    }
}

impl RedisConfig {
    pub fn options(&self) -> Option<RedisOptions> {
        let text = |held: &Held| held.secret().expose().to_owned();
        let secret = |held: &Held| held.secret().clone();
        let line = |held: &Held| held.secret().expose().trim_end_matches(['\r', '\n']).into();
        Some(RedisOptions {
            url: self.url.as_ref()?.secret().clone(),
            password: self.password_file.as_ref().map(line),
            ca: self.ca_file.as_ref().map(text),
            identity: self.cert_file.as_ref().map(text).zip(self.key_file.as_ref().map(secret)),
            prefix: self.prefix.clone(),
            timeout: self.timeout,
            allow_eviction: self.allow_eviction,
            confirmation: self.confirmation,
            dialer: None,
            renewal: Renewal::default(),
        })
    }

    /// The content of the file of a key.
    pub(super) fn held(&self, key: &str) -> Option<&Held> {
        match key {
            "redis.password_file" => self.password_file.as_ref(),
            "redis.ca_file" => self.ca_file.as_ref(),
            "redis.cert_file" => self.cert_file.as_ref(),
            "redis.key_file" => self.key_file.as_ref(),
            _ => None,
        }
    }

    /// Password and certificates of connections, which change without a restart.
    pub(crate) fn login(&self) -> Option<Login> {
        self.options().map(|RedisOptions { password, ca, identity, .. }| Login { password, ca, identity })
    }
}

impl Reader<'_> {
    /// The Redis store. One call has to end before a lease does, or nothing could be renewed.
    pub(super) fn redis(&mut self, lease_ttl: Duration) -> RedisConfig {
        let url = self.redis_url();
        let default = Duration::from_secs(1);
        let timeout = self.span("redis.timeout", Duration::from_millis(50)..=Duration::from_secs(60), default);
        if url.is_some() && timeout >= lease_ttl {
            let accepted = format!("less than lease.ttl, which is {}", show_span(lease_ttl));
            self.refuse("redis.timeout", &accepted, format!("{} is too long", show_span(timeout)));
        }
        let accepted = format!("1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -");
        let prefix = self.parsed("redis.prefix", &accepted, "dwell".to_owned(), |text| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            match text {
                "" => Err("is empty".to_owned()),
                _ if text.len() > NAME_BYTES_MAX => Err("is too long".to_owned()),
                _ if !text.chars().all(allowed) => Err("has another character".to_owned()),
                _ => Ok(text.to_owned()),
            }
        });
        let mut held = |key| self.parsed(key, "a file that can be read", None, |path| Held::read(path).map(Some));
        let password_file = held("redis.password_file");
        let (ca_file, cert_file, key_file) = (held("redis.ca_file"), held("redis.cert_file"), held("redis.key_file"));
        let config = RedisConfig {
            url,
            password_file,
            ca_file,
            cert_file,
            key_file,
            prefix,
            timeout,
            allow_eviction: self.switch("redis.allow_eviction", false),
            start_without: self.switch("redis.start_without", false),
            confirmation: Confirmation {
                replicas: self.number("redis.min_replicas", 0..=REPLICAS_MAX, 0),
                fsync: self.switch("redis.fsync", false),
            },
        };
        self.agree(&config);
        config
    }

    pub(super) fn hand_over(&mut self, limit: Duration) -> Option<HandOverOptions> {
        let url = self.parsed("wal.hand_over", hand_over::ACCEPTED, None, |text| hand_over::check_url(text).map(Some));
        let token_file = self.parsed("wal.hand_over_token_file", "a file that holds a token", None, |path| {
            read_text(Path::new(path)).map(|_| Some(PathBuf::from(path)))
        });
        let ca_file = self.certificates("wal.hand_over_ca_file");
        let files = [("wal.hand_over_token_file", &token_file), ("wal.hand_over_ca_file", &ca_file)];
        for (key, _) in files.into_iter().filter(|(_, file)| file.is_some() && url.is_none()) {
            self.refuse(key, "wal.hand_over beside it", "is given without wal.hand_over");
        }
        let has_redis = ["redis.url", "redis.url_file"].iter().any(|key| self.layers.get(key).is_some());
        if url.is_some() && !has_redis {
            self.refuse("wal.hand_over", "a redis.url beside it", "needs Redis: the embedded store buffers nothing");
        }
        Some(HandOverOptions { url: url?, token_file, ca_file, limit })
    }

    fn agree(&mut self, config: &RedisConfig) {
        let Confirmation { replicas, fsync } = config.confirmation;
        for (key, is_given) in [("redis.min_replicas", replicas > 0), ("redis.fsync", fsync)] {
            if is_given && config.url.is_none() {
                self.refuse(key, "a redis.url beside it", "needs Redis: the embedded store is one process on one disk");
            }
        }
        if fsync && config.timeout < FSYNC_TIMEOUT_MIN {
            let accepted = format!("at least {} beside redis.fsync", show_span(FSYNC_TIMEOUT_MIN));
            self.refuse("redis.timeout", &accepted, format!("{} is too short", show_span(config.timeout)));
        }
        if config.password_file.is_some() && config.url.as_ref().is_some_and(RedisUrl::has_password) {
            self.refuse("redis.password_file", "a URL without a password", "is given beside a password in the URL");
        }
        let tls = config.url.as_ref().is_none_or(RedisUrl::is_tls);
        let files = [("redis.ca_file", &config.ca_file), ("redis.cert_file", &config.cert_file)];
        for (key, file) in files {
            if file.is_some() && !tls {
                self.refuse(key, "a rediss:// URL, which asks for TLS", "is for TLS, and the URL is not");
            }
        }
        if config.cert_file.is_some() != config.key_file.is_some() {
            let given = if config.cert_file.is_some() { "redis.cert_file" } else { "redis.key_file" };
            self.refuse(given, "redis.cert_file and redis.key_file", "is given without the other one");
        }
    }

    /// The URL itself, or from the file that `redis.url_file` names; the stronger source wins.
    fn redis_url(&mut self) -> Option<RedisUrl> {
        let (url, file) = (self.layers.origin("redis.url").rank(), self.layers.origin("redis.url_file").rank());
        if url == file && url > Origin::Default.rank() {
            self.refuse("redis.url_file", "one of redis.url and redis.url_file", "is given beside redis.url");
            return None;
        }
        if url >= file {
            return self.parsed("redis.url", ACCEPTED, None, |text| RedisUrl::parse(text).map(Some));
        }
        self.parsed("redis.url_file", "a file that holds the URL and nothing else", None, |path| {
            let text = read_text(Path::new(path))?;
            RedisUrl::parse(text.trim()).map(Some).map_err(|why| format!("what it holds {why}"))
        })
    }
}

const ACCEPTED: &str = "redis://[user:password@]host[:port][/db], \
     redis+sentinel://[user:password@]host[:port],…/name[/db], redis+cluster://[user:password@]host[:port],…, \
     the same with rediss for TLS, or redis+unix:///path[?db=0]";

/// A Redis URL. Printing it, also for debugging, masks the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(Secret);

impl RedisUrl {
    /// Reads a URL; the error says why it is refused, without quoting it.
    pub fn parse(text: &str) -> Result<RedisUrl, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("is not a URL".to_owned());
        };
        let kind = scheme.strip_prefix("rediss").or_else(|| scheme.strip_prefix("redis"));
        match (scheme, kind) {
            ("redis+unix" | "unix", _) if rest.starts_with('/') => Ok(RedisUrl(text.into())),
            ("redis+unix" | "unix", _) => Err("has no absolute socket path".to_owned()),
            (_, Some("" | "+sentinel" | "+cluster")) if rest.is_empty() || rest.starts_with('/') => {
                Err("has no host".to_owned())
            }
            (_, Some("+sentinel")) if path(rest).is_empty() => {
                Err("has no name of a primary behind the sentinels".to_owned())
            }
            (_, Some("+cluster")) if !path(rest).is_empty() => {
                Err("has a database, and a cluster has one only".to_owned())
            }
            (_, Some("" | "+sentinel" | "+cluster")) => Ok(RedisUrl(text.into())),
            _ => Err("is not a redis:// URL".to_owned()),
        }
    }

    fn is_tls(&self) -> bool {
        self.0.expose().starts_with("rediss")
    }

    fn has_password(&self) -> bool {
        let url = self.0.expose();
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let login = address.split_once("://").and_then(|(_, rest)| Some(rest.rsplit_once('@')?.0));
        login.is_some_and(|login| login.contains(':')) || query.split('&').any(|field| field.starts_with("pass="))
    }

    pub fn secret(&self) -> &Secret {
        &self.0
    }
}

fn path(rest: &str) -> &str {
    let address = rest.split('?').next().unwrap_or_default();
    let hosts = address.rsplit_once('@').map_or(address, |(_, hosts)| hosts);
    hosts.split_once('/').map_or("", |(_, path)| path.trim_matches('/'))
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask(self.0.expose()))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_ever_shown() {
        let cases = [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://:s3cret@host/2", "redis://:***@host/2"),
            ("redis://app:s3cret@host:6380/0", "redis://app:***@host:6380/0"),
            ("redis://app:s3/c@r?et@host", "redis://app:***@host"),
            ("redis://s3cret@host", "redis://***@host"),
            ("redis+unix:///run/redis.sock?db=1&pass=s3cret", "redis+unix:///run/redis.sock?db=1&pass=***"),
            ("rediss+sentinel://:s3cret@a:1,b:2/main/0", "rediss+sentinel://:***@a:1,b:2/main/0"),
            ("redis+sentinel://a/main?sentinel_password=s3cret", "redis+sentinel://a/main?sentinel_password=***"),
            ("s3cret", "***"),
        ];
        for (url, shown) in cases {
            assert_eq!(mask(url), shown);
            if let Ok(parsed) = RedisUrl::parse(url) {
                assert_eq!(parsed.secret().expose(), url);
                assert!(!format!("{parsed} {parsed:?}").contains("s3"), "{parsed:?}");
            }
        }
    }

    #[test]
    fn invalid_redis_urls_are_refused() {
        for bad in [
            "",
            "host:6379",
            "http://host",
            "redis://",
            "redis:///0",
            "unix://run/redis.sock",
            "rediss://",
            "redis+sentinel://a:1,b:2",
            "redis+sentinel:///main",
            "redis+cluster://a/1",
            "redis+other://a",
        ] {
            assert!(RedisUrl::parse(bad).is_err(), "{bad}");
        }
    }
}
