//! Where a broker listens: on this machine, or where it asks for tokens.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::Guard;
use crate::model::limits::SOCKET_PATH_BYTES_MAX;

/// The port of dwell.
const PORT: u16 = 7373;

/// What a listen address looks like, for errors.
pub const ACCEPTED: &str = "ADDRESS:PORT, localhost:PORT or unix:/absolute/path";

/// Where a broker listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// An address. Port 0 is any free port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// 127.0.0.1:7373.
    pub fn standard() -> Listen {
        Listen::Tcp((Ipv4Addr::LOCALHOST, PORT).into())
    }

    /// Any free port of 127.0.0.1.
    pub fn ephemeral() -> Listen {
        Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Reads an address; the error says why it is refused.
    pub fn parse(text: &str) -> Result<Listen, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                _ if !path.starts_with('/') => Err("the path of a socket is absolute".to_owned()),
                _ if path.len() > SOCKET_PATH_BYTES_MAX => {
                    Err(format!("the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes"))
                }
                _ => Ok(Listen::Unix(path.into())),
            };
        }
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
            None => text.to_owned(),
        };
        numeric.parse().map(Listen::Tcp).map_err(|_| "is not an address with a port".to_owned())
    }

    /// Whether other machines reach it.
    pub fn is_beyond(&self) -> bool {
        matches!(self, Listen::Tcp(address) if !address.ip().is_loopback())
    }

    /// Refuses an address that other machines reach, where nobody is asked for a token: anyone there could take messages and
    /// settle them.
    pub fn check(&self, asks: bool) -> Result<(), String> {
        if self.is_beyond() && !asks {
            let why = "is reachable from other machines, and there are no access tokens: \
                       add an [[auth.token]], or listen on loopback or a Unix socket";
            return Err(why.to_owned());
        }
        Ok(())
    }

    /// The same, or loopback where it is every address of this machine.
    pub fn on_this_machine(&self) -> Listen {
        match self {
            Listen::Tcp(SocketAddr::V4(address)) if address.ip().is_unspecified() => {
                Listen::Tcp((Ipv4Addr::LOCALHOST, address.port()).into())
            }
            Listen::Tcp(SocketAddr::V6(address)) if address.ip().is_unspecified() => {
                Listen::Tcp((Ipv6Addr::LOCALHOST, address.port()).into())
            }
            named => named.clone(),
        }
    }

    /// Where a client finds it: `http://127.0.0.1:7373`, `https://…` with TLS, or `unix:/path`.
    pub fn url(&self, tls: bool) -> String {
        let scheme = if tls { "https" } else { "http" };
        match self {
            Listen::Tcp(address) => format!("{scheme}://{address}"),
            Listen::Unix(_) => self.to_string(),
        }
    }

    /// Which requests no other site has sent, when they come here.
    pub fn guard(&self, tls: bool) -> Guard {
        match self {
            Listen::Tcp(_) if self.is_beyond() => Guard::Network,
            Listen::Tcp(_) => Guard::Loopback { tls },
            Listen::Unix(_) => Guard::Unix,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_sockets_are_accepted_and_shown_as_they_are_read() {
        for text in ["127.0.0.1:7373", "127.0.0.2:0", "[::1]:7373", "unix:/run/dwell.sock"] {
            assert_eq!(Listen::parse(text).map(|listen| listen.to_string()), Ok(text.to_owned()));
            assert_eq!(Listen::parse(text).and_then(|listen| listen.check(false)), Ok(()), "{text}");
        }
        assert_eq!(Listen::parse("localhost:7373"), Ok(Listen::standard()));
    }

    #[test]
    fn every_address_is_reached_over_loopback_from_this_machine() {
        let cases = [
            ("0.0.0.0:7373", "127.0.0.1:7373"),
            ("[::]:7373", "[::1]:7373"),
            ("192.168.0.4:1", "192.168.0.4:1"),
            ("unix:/run/dwell.sock", "unix:/run/dwell.sock"),
        ];
        for (text, there) in cases {
            assert_eq!(Listen::parse(text).map(|listen| listen.on_this_machine().to_string()), Ok(there.to_owned()));
        }
    }

    #[test]
    fn what_other_machines_reach_needs_tokens_and_everything_else_is_refused() {
        for text in ["0.0.0.0:7373", "[::]:7373", "192.168.0.4:7373", "[::ffff:127.0.0.1]:1"] {
            let check = |asks| Listen::parse(text).and_then(|listen| listen.check(asks));
            assert!(check(false).is_err_and(|why| why.contains("other machines")), "{text}");
            assert_eq!(check(true), Ok(()), "{text}");
            assert_eq!(Listen::parse(text).map(|listen| listen.guard(true)), Ok(Guard::Network), "{text}");
        }
        let long = format!("unix:/{}", "a".repeat(SOCKET_PATH_BYTES_MAX));
        for text in ["", "7373", "127.0.0.1", "127.0.0.1:70000", "localhost", "unix:", "unix:dwell.sock", &long] {
            assert!(Listen::parse(text).is_err(), "{text}");
        }
    }
}
