//! Where dwell listens: on this machine, and nowhere else.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use super::Guard;
use crate::error::{Error, Result};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address; port 0 is any free port.
    Tcp(SocketAddr),
    /// A Unix socket, for its owner only.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = Error;

    /// Reads `127.0.0.1:7373`, `[::1]:7373`, `localhost:7373` or `unix:/path`.
    fn from_str(text: &str) -> Result<Listen> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(Error::invalid("listen", "`unix:` has a path behind it, as in unix:/run/dwell.sock"));
            }
            return Ok(Listen::Unix(path.into()));
        }
        let address = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}").parse(),
            None => text.parse(),
        };
        let Ok(address) = address else {
            let why = format!("{text:?} is not an address like 127.0.0.1:7373, localhost:7373 or unix:/run/dwell.sock");
            return Err(Error::invalid("listen", why));
        };
        Listen::Tcp(address).checked()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(f, "http://{address}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Listen {
    /// Refuses an address that other machines reach: anyone there could take and settle messages.
    pub(crate) fn checked(self) -> Result<Listen> {
        match &self {
            Listen::Tcp(address) if !is_loopback(address.ip()) => {
                let why = format!(
                    "{address} can be reached from other machines, and dwell has no access control yet; \
                     listen on 127.0.0.1, [::1] or unix:/path"
                );
                Err(Error::invalid("listen", why))
            }
            _ => Ok(self),
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

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn only_this_machine_is_listened_to() {
        for good in ["127.0.0.1:7373", "127.0.0.2:0", "localhost:7373", "[::1]:7373", "unix:/run/dwell.sock"] {
            assert!(good.parse::<Listen>().is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:7373", "[::]:7373", "192.168.1.1:7373", "example.com:80", "7373", "localhost", "unix:", ""]
        {
            assert!(bad.parse::<Listen>().is_err_and(|error| error.kind() == Kind::Invalid), "{bad}");
        }
    }
}
