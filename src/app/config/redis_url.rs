//! Where Redis is, without ever showing its password.

use std::fmt;

use crate::platform::secret::Secret;

/// What a Redis URL looks like, for errors.
pub(super) const ACCEPTED: &str = "redis://[user:password@]host[:port][/db], \
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

    /// Whether it asks for TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.0.expose().starts_with("rediss")
    }

    /// Whether it holds a password. A user alone is none.
    pub(super) fn has_password(&self) -> bool {
        let url = self.0.expose();
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let login = address.split_once("://").and_then(|(_, rest)| Some(rest.rsplit_once('@')?.0));
        login.is_some_and(|login| login.contains(':')) || query.split('&').any(|pair| pair.starts_with("pass="))
    }

    /// The URL with its password, for connecting and for nothing else.
    pub fn secret(&self) -> &Secret {
        &self.0
    }
}

/// What follows the hosts, without slashes around it.
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
    fn what_is_no_redis_url_is_refused() {
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
