//! Where a broker listens: on this machine, and nowhere else.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::Guard;
use crate::limits::SOCKET_PATH_BYTES_MAX;

/// The port of dwell.
const PORT: u16 = 7373;

/// What a listen address looks like, for errors.
pub const ACCEPTED: &str = "127.0.0.1:PORT, [::1]:PORT, localhost:PORT or unix:/absolute/path";

/// Where a broker listens: only where other machines cannot reach it, since there are no tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address. Port 0 is any free port.
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
        let address: SocketAddr = numeric.parse().map_err(|_| "is not an address with a port".to_owned())?;
        let listen = Listen::Tcp(address);
        listen.check().map(|()| listen)
    }

    /// Refuses an address that other machines reach: anyone there could take messages and settle them.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Listen::Tcp(address) if !address.ip().is_loopback() => {
                let why = "is reachable from other machines, and dwell has no access tokens yet; \
                           listen on loopback and put an authenticating proxy in front";
                Err(why.to_owned())
            }
            Listen::Tcp(_) | Listen::Unix(_) => Ok(()),
        }
    }

    /// Where a client finds it: `http://127.0.0.1:7373`, or `unix:/path`.
    pub fn url(&self) -> String {
        match self {
            Listen::Tcp(address) => format!("http://{address}"),
            Listen::Unix(_) => self.to_string(),
        }
    }

    /// Which requests are from this machine, when they come here.
    pub fn guard(&self) -> Guard {
        match self {
            Listen::Tcp(_) => Guard::Loopback,
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
        }
        assert_eq!(Listen::parse("localhost:7373"), Ok(Listen::standard()));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["0.0.0.0:7373", "[::]:7373", "192.168.0.4:7373", "[::ffff:127.0.0.1]:1"] {
            assert!(Listen::parse(text).is_err_and(|why| why.contains("other machines")), "{text}");
        }
        let long = format!("unix:/{}", "a".repeat(SOCKET_PATH_BYTES_MAX));
        for text in ["", "7373", "127.0.0.1", "127.0.0.1:70000", "localhost", "unix:", "unix:dwell.sock", &long] {
            assert!(Listen::parse(text).is_err(), "{text}");
        }
    }
}
