//! Where a broker is, as the command line says it.

use std::fmt;
use std::path::PathBuf;

use reqwest::Url;

/// Where a broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerAddress {
    /// `http://host:port` or `https://host:port`, without a slash at the end.
    Http(String),
    /// A Unix socket.
    Unix(PathBuf),
}

impl ServerAddress {
    /// Reads `http://host:port`, `https://host:port`, `host:port` or `unix:/path`; the error says what is accepted.
    pub(super) fn parse(text: &str) -> Result<ServerAddress, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.starts_with('/') {
                true => Ok(ServerAddress::Unix(path.into())),
                false => Err("the path of a socket is absolute, as in unix:/run/dwell.sock".to_owned()),
            };
        }
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&full)
            .map_err(|why| format!("expected http://HOST:PORT, https://HOST:PORT or unix:/path: {why}"))?;
        match url {
            url if !["http", "https"].contains(&url.scheme()) => {
                Err("expected http://HOST:PORT, https://HOST:PORT or unix:/path".to_owned())
            }
            url if url.path() != "/" || url.query().is_some() || !url.username().is_empty() => {
                Err("expected only http://HOST:PORT or https://HOST:PORT, nothing behind it".to_owned())
            }
            url => {
                let port = url.port().map_or(String::new(), |port| format!(":{port}"));
                Ok(ServerAddress::Http(format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())))
            }
        }
    }
}

impl Default for ServerAddress {
    /// Where `dwell serve` listens when nothing else is configured.
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
            ("http://[::1]:7373", "http://[::1]:7373"),
            ("https://dwell.internal:7373/", "https://dwell.internal:7373"),
            ("https://host", "https://host"),
            ("unix:/run/dwell.sock", "unix:/run/dwell.sock"),
            ("unix:///run/dwell.sock", "unix:/run/dwell.sock"),
        ];
        for (text, shown) in cases {
            assert_eq!(ServerAddress::parse(text).map(|address| address.to_string()), Ok(shown.to_owned()));
        }
        for bad in
            ["", "ftp://host", "https://host/v1", "http://host/v1", "http://user@host", "unix:dwell.sock", "http://"]
        {
            assert!(ServerAddress::parse(bad).is_err(), "{bad}");
        }
    }
}
