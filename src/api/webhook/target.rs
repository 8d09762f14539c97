//! Where a webhook may connect to: this machine, unless it is told that it may go further.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// What the URL of a target looks like, for errors.
pub const ACCEPTED: &str = "http[s]://HOST[:PORT][/PATH], on this machine unless allow_remote is true";

/// The URL that messages go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    allow_remote: bool,
}

impl Target {
    /// Reads a URL; the error says why it is refused. A name is checked when it is resolved, each time.
    pub fn parse(text: &str, allow_remote: bool) -> Result<Target, String> {
        let url = Url::parse(text).map_err(|why| format!("is not a URL: {why}"))?;
        match url.scheme() {
            "http" | "https" => {}
            _ => return Err("is not an http:// or https:// URL".to_owned()),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("has a user or a password; sign with a secret_file in place of it".to_owned());
        }
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match address {
            Ok(address) if !is_allowed(address, allow_remote) => Err(refusal(host)),
            _ => Ok(Target { url, allow_remote }),
        }
    }

    /// Whether it may be beyond this machine.
    pub fn allows_remote(&self) -> bool {
        self.allow_remote
    }

    /// Whether it is reached over TLS.
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Resolves names to the addresses that may be connected to, and to no others.
    pub(super) fn resolver(&self) -> Resolver {
        Resolver { allow_remote: self.allow_remote }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// What it answers is what is connected to, so a name cannot mean one address here and another one there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resolver {
    allow_remote: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_remote = self.allow_remote;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|found| is_allowed(found.ip(), allow_remote)).collect();
            match allowed.is_empty() {
                true => Err(refusal(name.as_str()).into()),
                false => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

fn refusal(host: &str) -> String {
    format!("{host} is not on this machine; allow_remote = true would allow it")
}

/// An IPv4 address in the clothes of IPv6 is what is in them.
fn is_allowed(address: IpAddr, allow_remote: bool) -> bool {
    allow_remote || address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_beyond_this_machine_are_refused_unless_allowed() {
        let here =
            ["http://127.0.0.1:80/", "http://127.9.9.9/a?b=c", "http://[::1]:8080/", "http://[::ffff:127.0.0.1]/"];
        for url in here.into_iter().chain([
            "http://localhost/",
            "https://localhost/",
            "http://0x7f.1/",
            "http://app.internal/",
        ]) {
            assert!(Target::parse(url, false).is_ok(), "{url}");
        }
        let beyond = [
            "http://169.254.169.254/latest/meta-data",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
            "http://[::ffff:169.254.169.254]/",
            "http://2852039166/",
            "http://10.0.0.1/",
            "https://10.0.0.1/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://8.8.8.8/",
            "http://[64:ff9b::7f00:1]/",
        ];
        for url in beyond {
            assert!(Target::parse(url, false).is_err_and(|why| why.contains("is not on this machine")), "{url}");
            assert!(Target::parse(url, true).is_ok(), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused() {
        let cases = [
            ("", "is not a URL"),
            ("localhost:80", "is not an http:// or https:// URL"),
            ("file:///etc/passwd", "is not an http:// or https:// URL"),
            ("ftp://localhost/", "is not an http:// or https:// URL"),
            ("https://user@localhost/", "has a user or a password"),
            ("http://", "is not a URL"),
            ("http://user@localhost/", "has a user or a password"),
            ("http://:secret@localhost/", "has a user or a password"),
        ];
        for (url, expected) in cases {
            assert!(Target::parse(url, true).is_err_and(|why| why.starts_with(expected)), "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_is_resolved_to_this_machine_only() -> Result<(), Box<dyn std::error::Error>> {
        let resolve = async |name: &str, allow_remote| Resolver { allow_remote }.resolve(name.parse()?).await;
        let local: Vec<_> = resolve("localhost", false).await.map_err(|error| error.to_string())?.collect();
        assert!(!local.is_empty() && local.iter().all(|address| address.ip().is_loopback()), "{local:?}");
        // Names that are addresses need no server to resolve.
        let remote = resolve("169.254.169.254", false).await.err().map(|error| error.to_string());
        assert!(remote.is_some_and(|why| why.starts_with("169.254.169.254 is not on this machine")));
        assert_eq!(resolve("169.254.169.254", true).await.map_err(|error| error.to_string())?.count(), 1);
        Ok(())
    }
}
