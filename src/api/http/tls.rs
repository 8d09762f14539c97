//! TLS of the listener: certificate and key from files, which are read again when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::model::error::{Error, Result};
use crate::platform::clock::{Clock, Instant};
use crate::platform::https::certificates;

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Bytes. A device or a log given by mistake is not read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Certificates used to verify those of clients; without, clients show none.
    pub client_ca: Option<PathBuf>,
}

#[derive(PartialEq, Eq)]
struct Pems {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl TlsFiles {
    pub fn check(&self) -> Result<(), String> {
        self.read().and_then(|pems| pems.config()).map(drop)
    }

    fn read(&self) -> Result<Pems, String> {
        let named = |path: &Path| read(path).map_err(|why| format!("{} {why}", path.display()));
        let client_ca = self.client_ca.as_deref().map(named).transpose()?;
        Ok(Pems { cert: named(&self.cert)?, key: named(&self.key)?, client_ca })
    }
}

impl Pems {
    fn config(&self) -> Result<ServerConfig, String> {
        let (provider, text_of) = (Arc::new(default_provider()), |error: rustls::Error| error.to_string());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(text_of)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(pem)? {
                    roots.add(root).map_err(text_of)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| error.to_string())?)
            }
        };
        let mut config = builder.with_single_cert(certificates(&self.cert)?, key(&self.key)?).map_err(text_of)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

pub fn check_certificates(path: &Path) -> Result<(), String> {
    read(path).and_then(|pem| certificates(&pem)).map(drop)
}

pub fn check_key(path: &Path) -> Result<(), String> {
    read(path).and_then(|pem| key(&pem)).map(drop)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let (mut bytes, why) = (Vec::new(), |error: std::io::Error| format!("cannot be read: {error}"));
    let file = std::fs::File::open(path).map_err(why)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(why)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("is larger than {FILE_BYTES_MAX} bytes")),
        false => Ok(bytes),
    }
}

fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    // The error may contain a part of the key.
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| "holds no private key that is whole and not encrypted: PEM".to_owned())
}

#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    files: TlsFiles,
    clock: Clock,
    read: Mutex<Reading>,
}

struct Reading {
    at: Instant,
    pems: Result<Pems, String>,
    config: Arc<ServerConfig>,
}

impl Tls {
    /// # Errors: `Invalid` when the files cannot be read or do not match.
    pub fn new(files: TlsFiles, clock: Clock) -> Result<Tls> {
        let refused = |why| Error::invalid("tls", why);
        let pems = files.read().map_err(refused)?;
        let config = Arc::new(pems.config().map_err(refused)?);
        let read = Mutex::new(Reading { at: clock.instant(), pems: Ok(pems), config });
        Ok(Tls(Arc::new(Inner { files, clock, read })))
    }

    pub(super) async fn accept(&self, stream: TcpStream, within: Duration) -> Result<TlsStream<TcpStream>, String> {
        let handshake = TlsAcceptor::from(self.config()).accept(stream);
        match tokio::time::timeout(within, handshake).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it took too long".to_owned()),
        }
    }

    /// Reads the files again, at most once a second, when a client connects. Invalid files are logged once, and the previous
    /// ones stay in use.
    fn config(&self) -> Arc<ServerConfig> {
        let Inner { files, clock, read } = &*self.0;
        let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.instant();
        if now.since(read.at) >= LOOK_AGAIN {
            read.at = now;
            let pems = files.read();
            if pems != read.pems {
                match pems.as_ref().map_err(Clone::clone).and_then(Pems::config) {
                    Ok(config) => {
                        read.config = Arc::new(config);
                        tracing::info!(file = %files.cert.display(), "the certificate was read again");
                    }
                    Err(why) => {
                        tracing::warn!(why, "the files of TLS cannot be used; the ones before are used on");
                    }
                }
                read.pems = pems;
            }
        }
        read.config.clone()
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.files.fmt(f)
    }
}
