//! Certificates for one test, and a redis-server that shows and asks for them.

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
        let identity = Some((self.certificate.clone(), self.key.clone()));
        RedisOptions { ca: Some(self.authority.clone()), identity, ..RedisOptions::new(url) }
    }
}

/// A port that nobody has. Another process may take it before redis-server does; then that does not start.
pub(super) fn free_port() -> Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(failed("a free port"))?;
    Ok(listener.local_addr().map_err(failed("a free port"))?.port().to_string())
}
