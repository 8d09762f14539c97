//! Certificates for one test, and a redis-server that shows and asks for them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use dwell::error::{Error, Result};
use dwell::store::redis::RedisOptions;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::redis::RedisServer;
use super::{failed, scratch};

/// An authority, and one certificate of its, for both sides.
pub(crate) struct Certificates {
    authority: String,
    certificate: String,
    key: String,
}

fn refused(error: rcgen::Error) -> Error {
    Error::bug(format!("a certificate: {error}"))
}

impl Certificates {
    /// For `localhost` and 127.0.0.1.
    pub(crate) fn new() -> Result<Certificates> {
        let mut params = CertificateParams::new(Vec::new()).map_err(refused)?;
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(refused)?).map_err(refused)?;
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let (params, key) = (CertificateParams::new(names), KeyPair::generate().map_err(refused)?);
        let certificate = params.and_then(|params| params.signed_by(&key, &authority)).map_err(refused)?;
        Ok(Certificates { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// A redis-server that takes clients with a certificate of this authority, and how to reach it.
    pub(crate) async fn server(&self) -> Result<(RedisServer, RedisOptions)> {
        let dir = scratch()?;
        let path = |name: &str| dir.path().join(name).display().to_string();
        for (name, pem) in [("ca", &self.authority), ("cert", &self.certificate), ("key", &self.key)] {
            std::fs::write(path(name), pem).map_err(failed("a certificate"))?;
        }
        let files =
            ["--tls-ca-cert-file", &path("ca"), "--tls-cert-file", &path("cert"), "--tls-key-file", &path("key")];
        let port = free_port()?;
        let options = [&["--save", "", "--bind", "127.0.0.1", "127.0.0.2", "--tls-port", &port], &files[..]].concat();
        let server = RedisServer::start_in(dir, &options).await?;
        Ok((server, self.options(&format!("rediss://localhost:{port}"))))
    }

    /// Options with these certificates.
    pub(crate) fn options(&self, url: &str) -> RedisOptions {
        let identity = Some((self.certificate.clone(), self.key.as_str().into()));
        RedisOptions { ca: Some(self.authority.clone()), identity, ..RedisOptions::new(url) }
    }
}

/// A port that nobody has, and that nobody gets by chance: below those that the system gives to outgoing connections, and
/// each only once in this process.
pub(super) fn free_port() -> Result<String> {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(10_000..20_000)));
    let candidates = (0..1_000).map(|_| 10_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 20_000);
    let mut free = candidates.filter(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().map(|port| port.to_string()).ok_or_else(|| Error::unavailable("no port is free"))
}
