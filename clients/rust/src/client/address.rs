//! Where the server is: what people write, and what a connection needs.

use std::path::PathBuf;

use hyper::Uri;
use hyper::header::HeaderValue;

use super::error::Error;

/// The port of a broker.
const PORT: u16 = 7373;

/// A server's address.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    /// As it was given.
    pub(crate) text: String,
    pub(crate) place: Place,
    /// The header `Host`.
    pub(crate) host: HeaderValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp { host: String, port: u16, is_tls: bool },
}

impl Address {
    /// # Errors
    ///
    /// Neither `http://HOST:PORT`, `https://HOST:PORT` nor `unix:/PATH`.
    pub(crate) fn parse(text: &str) -> Result<Address, Error> {
        let wrong = || {
            Error::Setup(format!("{text:?} is no server: expected http://HOST:PORT, https://HOST:PORT or unix:/PATH"))
        };
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(wrong());
            }
            let host = HeaderValue::from_static("localhost");
            return Ok(Address { text: text.to_owned(), place: Place::Unix(path.into()), host });
        }
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        if authority.as_str().contains('@') || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong());
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { PORT });
        let host = HeaderValue::from_str(&format!("{}:{port}", authority.host())).map_err(|_| wrong())?;
        let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Address { text: text.to_owned(), place: Place::Tcp { host: name, port, is_tls }, host })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let place = |text: &str| Address::parse(text).ok().map(|address| address.place);
        let tcp = |host: &str, port, is_tls| Some(Place::Tcp { host: host.to_owned(), port, is_tls });
        assert_eq!(place("http://127.0.0.1:8000/"), tcp("127.0.0.1", 8000, false));
        assert_eq!(place("http://dwell"), tcp("dwell", 7373, false));
        assert_eq!(place("https://dwell"), tcp("dwell", 443, true));
        assert_eq!(place("http://[::1]:7373"), tcp("::1", 7373, false));
        assert_eq!(place("unix:/run/dwell.sock"), Some(Place::Unix("/run/dwell.sock".into())));
        for wrong in ["", "dwell:7373", "ftp://x", "http://x/y", "http://a:b@x", "unix:relative", "http://x?y"] {
            assert!(matches!(Address::parse(wrong), Err(Error::Setup(why)) if why.contains("is no server")), "{wrong}");
        }
    }
}
