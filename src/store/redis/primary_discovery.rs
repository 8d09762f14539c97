//! Where the primary is: at a fixed address, or where sentinels say.

use super::RedisOptions;
use super::address::Address;
use super::sentinel::Sentinels;
use crate::model::error::{Error, Result};

/// Where the primary is.
#[derive(Debug, Clone)]
pub(super) enum PrimaryDiscovery {
    /// Always there.
    Fixed(Address),
    /// Wherever these say.
    Watched(Sentinels),
}

impl PrimaryDiscovery {
    /// # Errors
    /// `Invalid` for a wrong URL, which is not quoted, and for certificates that cannot be read.
    pub(super) fn new(options: &RedisOptions) -> Result<PrimaryDiscovery> {
        match Parts::of(options.url.expose())? {
            Some(parts) => Sentinels::new(options, &parts).map(PrimaryDiscovery::Watched),
            None => Address::new(options, options.url.expose()).map(PrimaryDiscovery::Fixed),
        }
    }

    /// Where it may be, the most likely first.
    pub(super) async fn candidates(&self) -> Result<Vec<Address>> {
        match self {
            PrimaryDiscovery::Fixed(address) => Ok(vec![address.clone()]),
            PrimaryDiscovery::Watched(sentinels) => sentinels.ask().await,
        }
    }

    /// Whether the one at an address has to prove that it is the primary.
    pub(super) fn is_watched(&self) -> bool {
        matches!(self, PrimaryDiscovery::Watched(_))
    }

    /// For people, without secrets.
    pub(super) fn location(&self) -> String {
        match self {
            PrimaryDiscovery::Fixed(address) => address.location(),
            PrimaryDiscovery::Watched(sentinels) => sentinels.location(),
        }
    }
}

/// A URL with several hosts, taken apart.
#[derive(PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// Whether the hosts are nodes of a cluster, not sentinels.
    pub(super) is_cluster: bool,
    /// `redis` or `rediss`.
    pub(super) scheme: &'a str,
    /// User and password as they stand there, with their `@`, or nothing.
    pub(super) login: &'a str,
    /// Each with its port, if it has one.
    pub(super) hosts: Vec<&'a str>,
    /// What follows the hosts, without slashes around it.
    pub(super) path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    /// Nothing for the URL of a single Redis. # Errors: `Invalid` when something is missing.
    pub(super) fn of(url: &'a str) -> Result<Option<Parts<'a>>> {
        let wrong = |why: &str| Error::invalid("redis.url", why);
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("is not a URL"))?;
        let Some((scheme @ ("redis" | "rediss"), kind @ ("sentinel" | "cluster"))) = scheme.split_once('+') else {
            return Ok(None);
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may hold an unescaped slash, so the login ends at the last `@`.
        let (login, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts: Vec<&str> = hosts.split(',').map(str::trim).collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err(wrong("has an empty host"));
        }
        Ok(Some(Parts { is_cluster: kind == "cluster", scheme, login, hosts, path: path.trim_matches('/'), query }))
    }

    /// A parameter, or nothing.
    pub(super) fn parameter(&self, name: &str) -> &'a str {
        let value = |pair: &'a str| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value);
        self.query.split('&').find_map(value).unwrap_or_default()
    }
}

/// Where a URL leads, as people are told. Connects nowhere.
///
/// # Errors
/// `Invalid` for a wrong URL, which is not quoted, and for certificates that cannot be read.
pub fn location_of(options: &RedisOptions) -> Result<String> {
    match Parts::of(options.url.expose())? {
        Some(parts) if parts.is_cluster => {
            let seed = |host: &&str| Address::new(options, &format!("{}://{}{host}", parts.scheme, parts.login));
            let seeds = parts.hosts.iter().map(seed).collect::<Result<Vec<_>>>()?;
            Ok(seeds.iter().map(Address::location).collect::<Vec<_>>().join(", "))
        }
        _ => Ok(PrimaryDiscovery::new(options)?.location()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() -> Result<()> {
        assert!(Parts::of("redis://a:b@host/0")?.is_none());
        assert!(Parts::of("redis+unix:///run/redis.sock?db=1")?.is_none());
        let url = "rediss+sentinel://app:s3/c@ret@a:1,[::1]:2/main/3?sentinel_user=u&sentinel_password=p";
        let parts = Parts::of(url)?.ok_or_else(|| Error::bug("no parts"))?;
        assert_eq!((parts.scheme, parts.login, parts.path), ("rediss", "app:s3/c@ret@", "main/3"));
        assert_eq!(parts.hosts, ["a:1", "[::1]:2"]);
        assert_eq!((parts.parameter("sentinel_password"), parts.parameter("db")), ("p", ""));
        assert!(Parts::of("redis+cluster://a:1,b:2")?.is_some_and(|parts| parts.is_cluster));
        assert!(Parts::of("redis+sentinel://a,,b/main").is_err());
        Ok(())
    }
}
