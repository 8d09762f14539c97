//! Certificates for one test, and a redis-server that shows and asks for them.

use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, LazyLock};

use dwell::model::error::{Error, Result};
use dwell::store::redis::RedisOptions;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::redis::RedisServer;
use super::{failed, scratch};

/// An authority, and one certificate of its, for both sides.
pub(crate) struct Certificates {
    issuer: CertifiedIssuer<'static, KeyPair>,
    authority: String,
    certificate: String,
    key: String,
}

fn refused(error: rcgen::Error) -> Error {
    Error::bug(format!("a certificate: {error}"))
}

fn cannot_make(what: &str) -> Error {
    Error::unavailable(format!("cannot make {what}"))
}

impl Certificates {
    /// For `localhost` and 127.0.0.1.
    pub(crate) fn new() -> Result<Certificates> {
        Certificates::ending(None)
    }

    /// The same, whose certificate ends at the beginning of this day: year, month, day.
    pub(crate) fn ending(day: Option<(i32, u8, u8)>) -> Result<Certificates> {
        let mut params = CertificateParams::new(Vec::new()).map_err(refused)?;
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(refused)?).map_err(refused)?;
        Certificates::of(authority, day)
    }

    /// Another certificate of the same authority, which does not end soon.
    pub(crate) fn renewed(self) -> Result<Certificates> {
        Certificates::of(self.issuer, None)
    }

    fn of(issuer: CertifiedIssuer<'static, KeyPair>, day: Option<(i32, u8, u8)>) -> Result<Certificates> {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let (mut params, key) =
            (CertificateParams::new(names).map_err(refused)?, KeyPair::generate().map_err(refused)?);
        if let Some((year, month, day)) = day {
            params.not_after = date_time_ymd(year, month, day);
        }
        let certificate = params.signed_by(&key, &issuer).map_err(refused)?;
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        Ok(Certificates { authority: issuer.pem(), issuer, certificate, key })
    }

    /// Writes `ca`, `cert` and `key` into a directory.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        for (name, pem) in [("ca", &self.authority), ("cert", &self.certificate), ("key", &self.key)] {
            std::fs::write(dir.join(name), pem).map_err(failed("a certificate"))?;
        }
        Ok(())
    }

    /// A redis-server that takes clients with a certificate of this authority, and how to reach it.
    pub(crate) async fn server(&self) -> Result<(RedisServer, RedisOptions)> {
        let dir = scratch()?;
        let path = |name: &str| dir.path().join(name).display().to_string();
        self.write(dir.path())?;
        let files =
            ["--tls-ca-cert-file", &path("ca"), "--tls-cert-file", &path("cert"), "--tls-key-file", &path("key")];
        let port = free_port()?;
        let options = [&["--save", "", "--bind", "127.0.0.1", "127.0.0.2", "--tls-port", &port], &files[..]].concat();
        let server = RedisServer::start_in(dir, &options).await?;
        Ok((server, self.options(&format!("rediss://localhost:{port}"))))
    }

    /// Shakes hands with whoever believes this authority.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor> {
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config =
            config.with_safe_default_protocol_versions().map_err(|_| cannot_make("TLS"))?.with_no_client_auth();
        let (certificate, key) = self.shown()?;
        let config = config.with_single_cert(vec![certificate], key).map_err(|_| cannot_make("a server"))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// The certificate and its key.
    fn shown(&self) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
        let certificate =
            CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(|_| cannot_make("a certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| cannot_make("a key"))?;
        Ok((certificate, key))
    }

    /// What is answered to `GET /livez` at an address, over TLS, by who is shown this certificate; nothing, if it is refused.
    pub(crate) async fn shown_to(&self, address: &str) -> Result<String> {
        let Ok(mut stream) = self.connect(address).await else { return Ok(String::new()) };
        let request = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        // With TLS 1.3 a server refuses after the client has shaken hands.
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.read_to_string(&mut answer).await;
        Ok(answer)
    }

    /// A connection to an address, over TLS, of who shows this certificate.
    pub(crate) async fn connect(&self, address: &str) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.authority.as_bytes()).map_err(|_| cannot_make("a root"))?;
        roots.add(root).map_err(|_| cannot_make("roots"))?;
        let (certificate, key) = self.shown()?;
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().map_err(|_| cannot_make("TLS"))?;
        let config = config.with_root_certificates(roots).with_client_auth_cert(vec![certificate], key);
        let connector = TlsConnector::from(Arc::new(config.map_err(|_| cannot_make("a client"))?));
        let name = ServerName::try_from("localhost").map_err(|_| cannot_make("a name"))?;
        let stream = TcpStream::connect(address).await.map_err(failed("a connection"))?;
        connector.connect(name, stream).await.map_err(failed("a TLS connection"))
    }

    /// Options with these certificates.
    pub(crate) fn options(&self, url: &str) -> RedisOptions {
        let identity = Some((self.certificate.clone(), self.key.as_str().into()));
        RedisOptions { ca: Some(self.authority.clone()), identity, ..RedisOptions::new(url) }
    }
}

/// Takes connections over TLS. Who does not shake hands is forgotten.
pub(super) struct TlsListener {
    pub(super) listener: TcpListener,
    pub(super) acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            if let Ok((stream, address)) = self.listener.accept().await
                && let Ok(stream) = self.acceptor.accept(stream).await
            {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A port that nobody has, and that nobody gets by chance: below those that the system gives to outgoing connections,
/// and each only once, in this process and in others that test at the same time.
pub(crate) fn free_port() -> Result<String> {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(10_000..20_000)));
    let candidates = (0..1_000).map(|_| 10_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 20_000);
    let mut free =
        candidates.filter(|port| is_ours(*port) && std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().map(|port| port.to_string()).ok_or_else(|| Error::unavailable("no port is free"))
}

/// Whether no other process of tests has the port, also while a server that is to be started again is down. It is this
/// one's until it ends.
fn is_ours(port: u16) -> bool {
    let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("dwell-test-port-{port}"));
    let socket = name.and_then(|name| UnixDatagram::bind_addr(&name));
    socket.map(std::mem::forget).is_ok()
}
