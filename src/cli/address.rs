//! The address of a broker, as the command line takes it.

use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerAddress {
    /// `http://host:port` or `https://host:port`, without a slash at the end. The port may be absent: then the client knows it.
    Http(String),
    Unix(PathBuf),
}

impl ServerAddress {
    /// Reads `http://host:port`, `https://host:port`, `host:port` or `unix:/path`; the error says what is accepted.
    pub(crate) fn parse(text: &str) -> Result<ServerAddress, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.starts_with('/') {
                true => Ok(ServerAddress::Unix(path.into())),
                false => Err("the path of a socket is absolute, as in unix:/run/dwell.sock".to_owned()),
            };
        }
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let expected = || "expected http://HOST:PORT, https://HOST:PORT or unix:/path".to_owned();
        let (scheme, rest) = full.split_once("://").ok_or_else(expected)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if !["http", "https"].contains(&scheme) || !is_host(authority) {
            return Err(expected());
        }
        match authority.contains(['/', '?', '#', '@']) {
            true => Err("expected only http://HOST:PORT or https://HOST:PORT, nothing behind it".to_owned()),
            false => Ok(ServerAddress::Http(format!("{scheme}://{authority}"))),
        }
    }
}

/// Whether it begins with a host, and a port that is one, if any.
fn is_host(authority: &str) -> bool {
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    let (host, port) = match authority.get(..end).and_then(|host| host.rsplit_once(':')) {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, "1"),
    };
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
    !host.is_empty() && host.chars().all(is_plain) && port.parse::<u16>().is_ok()
}

impl Default for ServerAddress {
    fn default() -> ServerAddress {
        ServerAddress::Http("http://127.0.0.1:7373".to_owned())
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Http(url) => f.write_str(url),
            ServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_everything_else_is_refused() {
        let cases = [
            ("http://127.0.0.1:7373", "http://127.0.0.1:7373"),
            ("http://localhost:7373/", "http://localhost:7373"),
            ("localhost:1", "http://localhost:1"),
            ("http://host:80", "http://host:80"),
            ("http://[::1]:7373", "http://[::1]:7373"),
            ("https://dwell.internal:7373/", "https://dwell.internal:7373"),
            ("https://host", "https://host"),
            ("unix:/run/dwell.sock", "unix:/run/dwell.sock"),
            ("unix:///run/dwell.sock", "unix:/run/dwell.sock"),
        ];
        for (text, shown) in cases {
            assert_eq!(ServerAddress::parse(text).map(|address| address.to_string()), Ok(shown.to_owned()));
        }
        for bad in [
            "",
            "ftp://host",
            "https://host/v1",
            "http://host/v1",
            "http://user@host",
            "unix:dwell.sock",
            "http://",
            "a b",
            "host:70000",
        ] {
            assert!(ServerAddress::parse(bad).is_err(), "{bad}");
        }
    }
}
