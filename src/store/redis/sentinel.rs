//! Where the primary is: at a fixed address, or where sentinels say.
//!
//! Sentinels: they watch a primary and its replicas, promote a replica when the primary is gone, and say which one it is.
//!
//! They may disagree for a while, and all of them may be wrong for a moment. So the newest decision comes first, and who is
//! said to be the primary has to say so itself before a call is sent.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, Value};

use super::address::Address;
use super::scripts::Reply;
use super::{RedisOptions, failure};
use crate::model::error::{Error, Result};
use crate::platform::clock::Clock;

/// Where a sentinel listens unless the URL says otherwise.
const PORT: u16 = 26_379;

#[derive(Debug, Clone)]
pub(super) struct Sentinels {
    pub(super) name: String,
    pub(super) sentinels: Vec<Address>,
    /// Login and certificates of the primary, at no address yet.
    primary: Address,
    pub(super) timeout: Duration,
}

impl Sentinels {
    pub(super) fn new(options: &RedisOptions, parts: &Parts<'_>) -> Result<Sentinels> {
        let Parts { scheme, login, .. } = parts;
        let (name, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
        if name.is_empty() {
            return Err(Error::invalid("redis.url", "has no name of a primary behind the sentinels"));
        }
        let primary = Address::new(options, &format!("{scheme}://{login}sentinel/{db}"))?;
        let user = match (parts.parameter("sentinel_user"), parts.parameter("sentinel_password")) {
            (_, "") => String::new(),
            (user, password) => format!("{user}:{password}@"),
        };
        // The password of Redis is none of theirs.
        let renewal = options.renewal.for_sentinels();
        let options = RedisOptions { password: None, renewal, ..options.clone() };
        let sentinel = |host: &&str| {
            let port =
                if host.rsplit(']').next().is_some_and(|end| end.contains(':')) { "" } else { &format!(":{PORT}") };
            Address::new(&options, &format!("{scheme}://{user}{host}{port}"))
        };
        let sentinels = parts.hosts.iter().map(sentinel).collect::<Result<_>>()?;
        Ok(Sentinels { name: name.to_owned(), sentinels, primary, timeout: options.timeout })
    }

    pub(super) fn location(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(Address::location).collect();
        format!("{} behind the sentinels {}", self.name, sentinels.join(", "))
    }

    /// Where the primary is: first by the newest of their decisions, then by most votes.
    pub(super) async fn ask(&self) -> Result<Vec<Address>> {
        let mut votes: HashMap<(String, u16), (u64, usize)> = HashMap::new();
        let mut failure = None;
        for answer in join_all(self.sentinels.iter().map(|sentinel| self.ask_one(sentinel))).await {
            match answer {
                Ok((place, epoch)) => {
                    let so_far = votes.entry(place).or_default();
                    *so_far = (so_far.0.max(epoch), so_far.1 + 1);
                }
                Err(error) => failure = Some(error),
            }
        }
        let mut places: Vec<_> = votes.into_iter().collect();
        places.sort_by(|(_, some), (_, others)| others.cmp(some));
        match (places.is_empty(), failure) {
            (true, Some(error)) => {
                let detail = format!("no sentinel answers: {}", error.detail());
                Err(error.with_detail(detail))
            }
            _ => Ok(places.into_iter().map(|((host, port), _)| self.primary.at(&host, port)).collect()),
        }
    }

    async fn ask_one(&self, sentinel: &Address) -> Result<((String, u16), u64)> {
        let asked = async {
            let mut connection = sentinel.log_in().await?;
            let mut questions = Pipeline::with_capacity(2);
            questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
            questions.cmd("SENTINEL").arg("MASTER").arg(&self.name);
            let sent = connection.send_packed_commands(&questions, 0, 2).await;
            let mut answers = sent.map_err(|error| failure::of_connecting(&error))?.into_iter();
            let place = match answers.next().unwrap_or(Value::Nil) {
                Value::Nil => return Err(failure::refused(&format!("SENTINEL knows no primary named {}", self.name))),
                Value::ServerError(error) => return Err(failure::of_connecting(&error.into())),
                answer => {
                    let mut answer = Reply::of(answer)?;
                    (answer.text()?, u16::try_from(answer.number()?).unwrap_or(0))
                }
            };
            // Where its user may not ask this, the votes decide.
            Ok((place, answers.next().and_then(epoch).unwrap_or(0)))
        };
        // Those that answer must not wait long for one that does not.
        tokio::select! {
            answer = asked => answer,
            () = Clock::System.sleep(self.timeout / 2) => Err(failure::silent()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quorum {
    /// Sentinels that have to agree that the primary is gone.
    pub needed: u64,
    /// Sentinels that it knows, with itself.
    pub sentinels: u64,
    pub replicas: u64,
    /// Its view of the primary, as in `master` or `master,s_down`.
    pub flags: String,
    /// Why no replica can be promoted now, if so.
    pub failure: Option<String>,
}

impl Sentinels {
    pub(super) async fn quorums(&self) -> Vec<(String, Result<Quorum>)> {
        let one = async |sentinel: &Address| {
            let answer = tokio::select! {
                answer = self.quorum(sentinel) => answer,
                () = Clock::System.sleep(self.timeout) => Err(failure::silent()),
            };
            (sentinel.location(), answer)
        };
        join_all(self.sentinels.iter().map(one)).await
    }

    async fn quorum(&self, sentinel: &Address) -> Result<Quorum> {
        let mut connection = sentinel.log_in().await?;
        let mut questions = Pipeline::with_capacity(2);
        questions.cmd("SENTINEL").arg("MASTER").arg(&self.name);
        questions.cmd("SENTINEL").arg("CKQUORUM").arg(&self.name);
        let sent = connection.send_packed_commands(&questions, 0, 2).await;
        let mut answers = sent.map_err(|error| failure::of_connecting(&error))?.into_iter();
        let known = match answers.next().unwrap_or(Value::Nil) {
            Value::ServerError(error) => return Err(failure::of_connecting(&error.into())),
            known => known,
        };
        let failure = match answers.next() {
            Some(Value::ServerError(error)) => Some(failure::of_connecting(&error.into()).detail().to_owned()),
            _ => None,
        };
        let number = |name| field(known.clone(), name).and_then(|number| number.parse().ok()).unwrap_or(0);
        let (needed, replicas) = (number("quorum"), number("num-slaves"));
        let sentinels = number("num-other-sentinels") + 1;
        let flags = field(known.clone(), "flags").unwrap_or_default();
        Ok(Quorum { needed, sentinels, replicas, flags, failure })
    }
}

fn epoch(known: Value) -> Option<u64> {
    field(known, "config-epoch")?.parse().ok()
}

fn field(known: Value, wanted: &str) -> Option<String> {
    let mut known = Reply::of(known).ok()?;
    while known.left() > 1 {
        let (name, value) = (known.text().ok()?, known.text().ok()?);
        if name == wanted {
            return Some(value);
        }
    }
    None
}

#[derive(Debug, Clone)]
pub(super) enum PrimaryDiscovery {
    Fixed(Address),
    Watched(Sentinels),
}

impl PrimaryDiscovery {
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

    pub(super) fn location(&self) -> String {
        match self {
            PrimaryDiscovery::Fixed(address) => address.location(),
            PrimaryDiscovery::Watched(sentinels) => sentinels.location(),
        }
    }
}

#[derive(PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// Whether the hosts are nodes of a cluster, not sentinels.
    pub(super) is_cluster: bool,
    /// `redis` or `rediss`.
    pub(super) scheme: &'a str,
    /// User and password as they stand there, with their `@`, or nothing.
    pub(super) login: &'a str,
    pub(super) hosts: Vec<&'a str>,
    /// The path behind the hosts, without slashes around it.
    pub(super) path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    /// Nothing for the URL of a single Redis. Errors: `Invalid` when something is missing.
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

    fn parameter(&self, name: &str) -> &'a str {
        let value =
            |partition: &'a str| partition.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value);
        self.query.split('&').find_map(value).unwrap_or_default()
    }
}

/// Where a URL leads, for people. Connects nowhere. Errors: `Invalid` for a wrong URL or unreadable certificates.
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
    fn sentinel_url_is_parsed() -> Result<()> {
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
