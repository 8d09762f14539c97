//! TLS of the listener: certificate and key from files, which may change while dwell runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::model::error::{Error, Result};
use crate::platform::clock::{Clock, Instant};

/// How long what was read counts.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Bytes of a file of certificates or of a key. A device or a log given by mistake is not read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The files of a TLS listener, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of this broker, and those that lead from it to one that clients know.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The certificates that those of clients have to follow from; without, clients show none.
    pub client_ca: Option<PathBuf>,
}

/// What the files hold.
#[derive(PartialEq, Eq)]
struct Pems {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl TlsFiles {
    /// Whether they can be used together; the error says why not.
    pub fn check(&self) -> std::result::Result<(), String> {
        self.read().and_then(|pems| pems.config()).map(drop)
    }

    fn read(&self) -> std::result::Result<Pems, String> {
        let named = |path: &Path| read(path).map_err(|why| format!("{} {why}", path.display()));
        let client_ca = self.client_ca.as_deref().map(named).transpose()?;
        Ok(Pems { cert: named(&self.cert)?, key: named(&self.key)?, client_ca })
    }
}

impl Pems {
    fn config(&self) -> std::result::Result<ServerConfig, String> {
        let (provider, said) = (Arc::new(default_provider()), |error: rustls::Error| error.to_string());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(said)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(pem)? {
                    roots.add(root).map_err(said)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| error.to_string())?)
            }
        };
        let mut config = builder.with_single_cert(certificates(&self.cert)?, key(&self.key)?).map_err(said)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Says what is wrong with a file of certificates, if anything is.
pub fn check_certificates(path: &Path) -> std::result::Result<(), String> {
    read(path).and_then(|pem| certificates(&pem)).map(drop)
}

/// Says what is wrong with the file of a key, if anything is.
pub fn check_key(path: &Path) -> std::result::Result<(), String> {
    read(path).and_then(|pem| key(&pem)).map(drop)
}

fn read(path: &Path) -> std::result::Result<Vec<u8>, String> {
    use std::io::Read as _;
    let (mut bytes, why) = (Vec::new(), |error: std::io::Error| format!("cannot be read: {error}"));
    let file = std::fs::File::open(path).map_err(why)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(why)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("is larger than {FILE_BYTES_MAX} bytes")),
        false => Ok(bytes),
    }
}

fn certificates(pem: &[u8]) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("holds no certificate: PEM is expected".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("holds no whole certificate: {error}")),
    }
}

fn key(pem: &[u8]) -> std::result::Result<PrivateKeyDer<'static>, String> {
    // What the error says of the file could be of the key.
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| "holds no private key that is whole and not encrypted: PEM".to_owned())
}

/// TLS for the connections of a listener. Clones share what was read.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    files: TlsFiles,
    clock: Clock,
    read: Mutex<Reading>,
}

struct Reading {
    at: Instant,
    /// What was read last, good or not.
    pems: std::result::Result<Pems, String>,
    /// Made of what was good last.
    config: Arc<ServerConfig>,
}

impl Tls {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// `Invalid` when they cannot be read or do not go together.
    pub fn new(files: TlsFiles, clock: Clock) -> Result<Tls> {
        let refused = |why| Error::invalid("tls", why);
        let pems = files.read().map_err(refused)?;
        let config = Arc::new(pems.config().map_err(refused)?);
        let read = Mutex::new(Reading { at: clock.instant(), pems: Ok(pems), config });
        Ok(Tls(Arc::new(Inner { files, clock, read })))
    }

    /// Shakes hands within a time. # Errors: why it did not come to that.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        within: Duration,
    ) -> std::result::Result<TlsStream<TcpStream>, String> {
        let handshake = TlsAcceptor::from(self.config()).accept(stream);
        match tokio::time::timeout(within, handshake).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it took too long".to_owned()),
        }
    }

    /// What counts now. The files are read again, at most once a second, when somebody connects; what cannot be used is
    /// said once, and what was good before goes on.
    fn config(&self) -> Arc<ServerConfig> {
        let Inner { files, clock, read } = &*self.0;
        // Nothing panics while the lock is held; if it did, what was read would still be whole.
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
