//! Where the listener listens: addresses and Unix sockets; and its TLS, with certificate and key from files, which are read
//! again when they change.

use std::fmt;
use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpStream, UnixListener, UnixSocket, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Guard;
use crate::model::error::{Error, Result};
use crate::model::limits::SOCKET_PATH_BYTES_MAX;
use crate::model::time::Timestamp;
use crate::platform::clock::{Clock, Instant};
use crate::platform::https::{certificates, end_of};

const PORT: u16 = 7373;

pub const LISTEN_ACCEPTED: &str = "ADDRESS:PORT, localhost:PORT or unix:/absolute/path";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Listen {
    pub fn standard() -> Listen {
        Listen::Tcp((Ipv4Addr::LOCALHOST, PORT).into())
    }

    pub fn ephemeral() -> Listen {
        Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into())
    }

    pub fn parse(text: &str) -> Result<Listen, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                _ if !path.starts_with('/') => Err("the path of a socket is absolute".to_owned()),
                _ if path.len() > SOCKET_PATH_BYTES_MAX => {
                    Err(format!("the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes"))
                }
                _ => Ok(Listen::Unix(path.into())),
            };
        }
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
            None => text.to_owned(),
        };
        numeric.parse().map(Listen::Tcp).map_err(|_| "is not an address with a port".to_owned())
    }

    pub fn is_beyond(&self) -> bool {
        matches!(self, Listen::Tcp(address) if !address.ip().is_loopback())
    }

    /// Refuses an address that other machines reach when no token is required: anyone there could settle messages.
    pub fn check(&self, asks: bool) -> Result<(), String> {
        if self.is_beyond() && !asks {
            let why = "is reachable from other machines, and there are no access tokens: \
                       add an [[auth.token]], or listen on loopback or a Unix socket";
            return Err(why.to_owned());
        }
        Ok(())
    }

    /// The address for clients on this machine: loopback instead of a wildcard.
    pub fn on_this_machine(&self) -> Listen {
        match self {
            Listen::Tcp(SocketAddr::V4(address)) if address.ip().is_unspecified() => {
                Listen::Tcp((Ipv4Addr::LOCALHOST, address.port()).into())
            }
            Listen::Tcp(SocketAddr::V6(address)) if address.ip().is_unspecified() => {
                Listen::Tcp((Ipv6Addr::LOCALHOST, address.port()).into())
            }
            named => named.clone(),
        }
    }

    /// `http://127.0.0.1:7373`, `https://…` with TLS, or `unix:/path`.
    pub fn url(&self, tls: bool) -> String {
        let scheme = if tls { "https" } else { "http" };
        match self {
            Listen::Tcp(address) => format!("{scheme}://{address}"),
            Listen::Unix(_) => self.to_string(),
        }
    }

    /// The URL at which a client on this machine, named `host`, reaches it: a wildcard address is shown as loopback, or with
    /// TLS the host, which a certificate more likely has.
    pub fn open_url(&self, tls: bool, host: &str) -> String {
        match self {
            Listen::Tcp(address) if tls && address.ip().is_unspecified() => {
                format!("https://{host}:{}", address.port())
            }
            address => address.on_this_machine().url(tls),
        }
    }

    /// The guard of a listener for operators here, where `asks` is whether a token is required.
    pub fn guard_for_operators(&self, tls: bool, asks: bool) -> Guard {
        match self.guard(tls) {
            Guard::Network if !asks => Guard::OpenNetwork,
            guard => guard,
        }
    }

    pub fn guard(&self, tls: bool) -> Guard {
        match self {
            Listen::Tcp(_) if self.is_beyond() => Guard::Network,
            Listen::Tcp(_) => Guard::Loopback { tls },
            Listen::Unix(_) => Guard::Unix,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

const BACKLOG: u32 = 1_024;

pub const MODE_ACCEPTED: &str = "\"0600\" for the user of dwell, or \"0660\" for its group too";

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SocketMode(u32);

impl SocketMode {
    pub const PRIVATE: SocketMode = SocketMode(0o600);

    /// Parses four octal digits. The user of dwell must be able to connect; other users must not.
    pub fn parse(text: &str) -> Result<SocketMode, String> {
        let octal =
            text.len() == 4 && text.starts_with('0') && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        if !octal {
            return Err("is not four octal digits in quotes, the first a 0".to_owned());
        }
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode & 0o007 != 0 => Err("lets everybody on this machine in".to_owned()),
            Ok(mode) if mode & 0o600 != 0o600 => Err("keeps the user of dwell out".to_owned()),
            Ok(mode) => Ok(SocketMode(mode)),
            Err(_) => Err("is not a number".to_owned()),
        }
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Debug for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SocketMode({self})")
    }
}

pub(super) async fn unix_socket(path: &Path, SocketMode(mode): SocketMode) -> io::Result<UnixListener> {
    remove_stale(path).await?;
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    // Between bind and listen nobody can connect, so the mode is in force before the first client.
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)
}

/// Removes a socket on which no process listens; anything else stays, and binding fails.
async fn remove_stale(path: &Path) -> io::Result<()> {
    match tokio::fs::symlink_metadata(path).await {
        Ok(file) if file.file_type().is_socket() => {}
        _ => return Ok(()),
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => tokio::fs::remove_file(path).await,
        _ => Ok(()),
    }
}

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

    /// When the first of the certificates that clients are shown ends; `None` if that cannot be read.
    pub fn end(&self) -> Option<Timestamp> {
        self.read().ok()?.end()
    }

    fn read(&self) -> Result<Pems, String> {
        let named = |path: &Path| read(path).map_err(|why| format!("{} {why}", path.display()));
        let client_ca = self.client_ca.as_deref().map(named).transpose()?;
        Ok(Pems { cert: named(&self.cert)?, key: named(&self.key)?, client_ca })
    }
}

impl Pems {
    fn end(&self) -> Option<Timestamp> {
        end_of(&certificates(&self.cert).ok()?)
    }

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
    /// Of the certificate in use.
    end: Option<Timestamp>,
}

impl Tls {
    /// # Errors: `Invalid` when the files cannot be read or do not match.
    pub fn new(files: TlsFiles, clock: Clock) -> Result<Tls> {
        let refused = |why| Error::invalid("tls", why);
        let pems = files.read().map_err(refused)?;
        let config = Arc::new(pems.config().map_err(refused)?);
        let end = pems.end();
        let read = Mutex::new(Reading { at: clock.instant(), pems: Ok(pems), config, end });
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
                        read.end = pems.as_ref().ok().and_then(Pems::end);
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

    /// Reads the files again if it is time to, and says when the certificate in use ends, and where it is.
    pub fn look(&self) -> (Option<Timestamp>, &Path) {
        drop(self.config());
        let read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        (read.end, &self.0.files.cert)
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.files.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_socket_addresses_round_trip() {
        for text in ["127.0.0.1:7373", "127.0.0.2:0", "[::1]:7373", "unix:/run/dwell.sock"] {
            assert_eq!(Listen::parse(text).map(|listen| listen.to_string()), Ok(text.to_owned()));
            assert_eq!(Listen::parse(text).and_then(|listen| listen.check(false)), Ok(()), "{text}");
        }
        assert_eq!(Listen::parse("localhost:7373"), Ok(Listen::standard()));
    }

    #[test]
    fn every_listen_address_has_a_loopback_form() {
        let cases = [
            ("0.0.0.0:7373", "127.0.0.1:7373"),
            ("[::]:7373", "[::1]:7373"),
            ("192.168.0.4:1", "192.168.0.4:1"),
            ("unix:/run/dwell.sock", "unix:/run/dwell.sock"),
        ];
        for (text, there) in cases {
            assert_eq!(Listen::parse(text).map(|listen| listen.on_this_machine().to_string()), Ok(there.to_owned()));
        }
    }

    #[test]
    fn browser_url_has_no_wildcard_address() {
        let cases = [
            ("0.0.0.0:7373", false, "http://127.0.0.1:7373"),
            ("[::]:7373", false, "http://[::1]:7373"),
            ("0.0.0.0:7373", true, "https://shop-1:7373"),
            ("192.168.0.4:1", true, "https://192.168.0.4:1"),
            ("unix:/run/dwell.sock", false, "unix:/run/dwell.sock"),
        ];
        for (text, tls, url) in cases {
            assert_eq!(Listen::parse(text).map(|listen| listen.open_url(tls, "shop-1")), Ok(url.to_owned()), "{text}");
        }
    }

    #[test]
    fn non_loopback_addresses_require_tokens() {
        for text in ["0.0.0.0:7373", "[::]:7373", "192.168.0.4:7373", "[::ffff:127.0.0.1]:1"] {
            let check = |asks| Listen::parse(text).and_then(|listen| listen.check(asks));
            assert!(check(false).is_err_and(|why| why.contains("other machines")), "{text}");
            assert_eq!(check(true), Ok(()), "{text}");
            assert_eq!(Listen::parse(text).map(|listen| listen.guard(true)), Ok(Guard::Network), "{text}");
        }
        let long = format!("unix:/{}", "a".repeat(SOCKET_PATH_BYTES_MAX));
        for text in ["", "7373", "127.0.0.1", "127.0.0.1:70000", "localhost", "unix:", "unix:dwell.sock", &long] {
            assert!(Listen::parse(text).is_err(), "{text}");
        }
    }

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn socket_mode_is_octal_and_grants_nothing_to_others() {
        for text in ["0600", "0660", "0640", "0700", "0770"] {
            assert_eq!(SocketMode::parse(text).map(|mode| mode.to_string()), Ok(text.to_owned()));
        }
        // 432 is the decimal value of 0o660, which a file without quotes would give.
        for text in ["", "600", "432", "0o660", "0666", "0602", "0601", "0060", "0400", "4600", "00600", "0680", "+600"]
        {
            assert!(SocketMode::parse(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn socket_gets_its_mode_and_only_a_stale_one_is_replaced() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("dwell.sock");
        let mode = || std::fs::metadata(&path).map(|file| file.permissions().mode() & 0o777);
        let first = unix_socket(&path, SocketMode::PRIVATE).await?;
        assert_eq!(mode()?, 0o600);
        let second = unix_socket(&path, SocketMode::PRIVATE).await;
        assert_eq!(second.err().map(|error| error.kind()), Some(ErrorKind::AddrInUse));
        drop(first);
        assert!(path.exists());
        drop(unix_socket(&path, SocketMode(0o660)).await?);
        assert_eq!(mode()?, 0o660);

        std::fs::remove_file(&path)?;
        std::fs::write(&path, "not a socket")?;
        assert!(unix_socket(&path, SocketMode::PRIVATE).await.is_err());
        assert_eq!(std::fs::read_to_string(&path)?, "not a socket");
        Ok(())
    }
}
