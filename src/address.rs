//! Where a broker is reached by other brokers: what it may say of itself, and whose word it takes.
//!
//! The addresses of others come from the store, where whoever may write could put anything. So an address has a scheme,
//! a host and a port and nothing else, and only one that is as near as the own one is used. Nothing here connects.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::limits::{ADDRESS_BYTES_MAX, SOCKET_PATH_BYTES_MAX};

/// What an address looks like, for errors.
pub const ACCEPTED: &str = "http://HOST:PORT, https://HOST:PORT or unix:/absolute/path";

/// Where a broker is reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A Unix socket.
    Unix(Arc<str>),
    /// A host and a port.
    Http {
        /// A name or an address; an IPv6 address in brackets.
        host: Arc<str>,
        /// 1 to 65,535.
        port: u16,
        /// How far away it may be.
        reach: Reach,
        /// Whether it is reached over TLS.
        tls: bool,
    },
}

/// How far away something may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Only this machine.
    Machine,
    /// Only other machines.
    Network,
}

impl Address {
    /// Reads an address; the error says why it is refused.
    pub fn parse(text: &str) -> Result<Address, String> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(format!("has more than {ADDRESS_BYTES_MAX} bytes"));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                _ if !path.starts_with('/') || path.ends_with('/') => {
                    Err("the path of a socket is absolute".to_owned())
                }
                _ if !path.bytes().all(|byte| byte.is_ascii_graphic()) => Err("has a character of no path".to_owned()),
                _ if path.len() > SOCKET_PATH_BYTES_MAX => {
                    Err(format!("the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes"))
                }
                _ => Ok(Address::Unix(path.into())),
            };
        }
        let schemes = [("http://", false), ("https://", true)].into_iter();
        let found = schemes.filter_map(|(scheme, tls)| Some((text.strip_prefix(scheme)?, tls))).next();
        let (place, tls) = found.ok_or("begins neither with http:// nor with https:// nor with unix:/")?;
        let (host, port) = place.rsplit_once(':').ok_or("has no port")?;
        let number = port.parse().ok().filter(|number: &u16| *number > 0 && number.to_string() == port);
        let port = number.ok_or("has no port from 1 to 65535 at its end")?;
        let reach = reach_of(host)?;
        Ok(Address::Http { host: host.into(), port, reach, tls })
    }

    /// Whether it is reached over TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Address::Http { tls: true, .. })
    }

    /// Whether a broker that is reached here connects to `other`: to sockets in the directory of its own, to this
    /// machine, or to other machines; never to two of them. Who is reached over TLS connects over TLS.
    pub fn may_reach(&self, other: &Address) -> bool {
        let dir = |path: &str| path.rsplit_once('/').map(|(dir, _)| dir.to_owned());
        match (self, other) {
            (Address::Unix(own), Address::Unix(other)) => dir(own) == dir(other),
            (Address::Http { reach: own, tls, .. }, Address::Http { reach: other, tls: others, .. }) => {
                own == other && tls == others
            }
            _ => false,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{path}"),
            Address::Http { host, port, tls, .. } => {
                write!(f, "{}://{host}:{port}", if *tls { "https" } else { "http" })
            }
        }
    }
}

impl Reach {
    /// Whether an address is that far away. An IPv4 address in the clothes of IPv6 is what is in them. Those that are no
    /// single machine, and link-local ones (the metadata service of a cloud is one), are nowhere.
    pub fn holds(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let nowhere = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_unspecified(),
        };
        match self {
            Reach::Machine => address.is_loopback(),
            Reach::Network => !address.is_loopback() && !address.is_multicast() && !nowhere,
        }
    }
}

/// How far away a host may be; a name is looked at again when it is resolved.
fn reach_of(host: &str) -> Result<Reach, String> {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bracketed {
        Some(inner) => Some(IpAddr::V6(inner.parse::<Ipv6Addr>().map_err(|_| "has no IPv6 address in its brackets")?)),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    };
    if let Some(address) = address {
        let reach = [Reach::Machine, Reach::Network].into_iter().find(|reach| reach.holds(address));
        return reach.ok_or_else(|| format!("{host} is the address of no single machine"));
    }
    // A URL takes a name that ends in a number for an IPv4 address: "2852039166" is one.
    let number =
        |label: &str| label.bytes().all(|byte| byte.is_ascii_digit()) || label.to_lowercase().starts_with("0x");
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if !host.split('.').all(label) || host.rsplit('.').next().is_some_and(number) {
        return Err(format!("{host:?} is not a host"));
    }
    Ok(if host.eq_ignore_ascii_case("localhost") { Reach::Machine } else { Reach::Network })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_they_are_read() {
        let good = ["http://127.0.0.1:7373", "http://[::1]:7373", "http://localhost:1", "http://10.0.0.4:65535"];
        for text in good.into_iter().chain([
            "http://b.dwell.svc:80",
            "https://b.dwell.svc:443",
            "unix:/run/dwell/b.sock",
            "http://[fd00::1]:7373",
        ]) {
            assert_eq!(Address::parse(text).map(|address| address.to_string()), Ok(text.to_owned()));
        }
        let path = |bytes: usize| format!("unix:/{}", "a".repeat(bytes - 1));
        assert!(Address::parse(&path(SOCKET_PATH_BYTES_MAX)).is_ok());
        assert!(Address::parse(&path(SOCKET_PATH_BYTES_MAX + 1)).is_err());
        let host = |bytes: usize| format!("http://{}:7373", "a".repeat(bytes - "http://:7373".len()));
        assert!(Address::parse(&host(ADDRESS_BYTES_MAX)).is_ok());
        assert!(Address::parse(&host(ADDRESS_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn everything_else_is_refused() {
        let shapes =
            ["", "127.0.0.1:7373", "https://a", "ftp://a:1", "file:///etc/passwd", "unix:run", "unix:/", "unix:/a b"];
        let parts =
            ["http://a", "http://a:0", "http://a:65536", "http://a:+1", "http://a:080", "http://:80", "http://a:"];
        let more =
            ["http://a:80/", "http://a:80/x", "http://a/x:80", "http://u@a:80", "http://u:p@a:80", "http://a?b:80"];
        let hosts =
            ["http://a#b:80", "http://a b:80", "http://a..b:80", "http://a.:80", "http://[::1:80", "http://[a]:80"];
        let numbers = ["http://2852039166:80", "http://0x7f.1:80", "http://a.1:80", "http://127.1:80", "http://é:80"];
        let nowhere = ["http://169.254.169.254:80", "http://0.0.0.0:80", "http://[::]:80", "http://[fe80::1]:80"];
        let masks = ["http://[::ffff:169.254.169.254]:80", "http://224.0.0.1:80", "http://255.255.255.255:80"];
        let all = [&shapes[..], &parts, &more, &hosts, &numbers, &nowhere, &masks].concat();
        for text in all {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_what_is_as_near_is_reached() {
        let reaches = |own: &str, other: &str| {
            let parsed = Address::parse(own).ok().zip(Address::parse(other).ok());
            parsed.map(|(own, other)| own.may_reach(&other))
        };
        for (own, other, expected) in [
            ("unix:/run/dwell/a.sock", "unix:/run/dwell/b.sock", true),
            ("unix:/run/dwell/a.sock", "unix:/run/docker.sock", false),
            ("unix:/run/dwell/a.sock", "unix:/run/dwell/../docker.sock", false),
            ("unix:/run/dwell/a.sock", "http://127.0.0.1:80", false),
            ("http://127.0.0.1:1", "unix:/run/dwell/b.sock", false),
            ("http://127.0.0.1:1", "http://localhost:2", true),
            ("http://127.0.0.1:1", "http://[::ffff:127.0.0.1]:2", true),
            ("http://127.0.0.1:1", "http://10.0.0.1:2", false),
            ("http://10.0.0.2:1", "http://10.0.0.1:2", true),
            ("http://10.0.0.2:1", "http://b.internal:2", true),
            ("http://10.0.0.2:1", "http://127.0.0.1:2", false),
            ("https://10.0.0.2:1", "https://b.internal:2", true),
            ("https://10.0.0.2:1", "http://b.internal:2", false),
            ("http://10.0.0.2:1", "https://b.internal:2", false),
        ] {
            assert_eq!(reaches(own, other), Some(expected), "{own} to {other}");
        }
    }
}
