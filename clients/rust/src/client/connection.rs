//! One connection to the server, over TCP, TLS or a Unix socket. Its sending side can be ended while an answer is awaited.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::address::{Address, Place};
use super::error::Error;

/// A connection over which one request at a time is sent.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Full<Bytes>>,
    pub(crate) sending: Arc<Sending>,
}

/// The sending side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    is_ended: AtomicBool,
    waker: AtomicWaker,
}

impl Sending {
    /// Ends it: the broker answers a request that waits, and an answer on its way is still read.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// How TLS verifies the server.
///
/// # Errors
///
/// The CA file cannot be read, or has no certificate.
pub(crate) fn tls(ca_file: Option<&Path>) -> Result<TlsConnector, Error> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let wrong = |why: String| Error::Setup(format!("the CA file {}: {why}", path.display()));
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))? {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("it has no certificate".to_owned()));
            }
        }
        None => {
            // Every system has some that are old or invalid.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(Error::Setup("this system has no certificates: a CA file is needed".to_owned()));
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Setup(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Opens a connection within this time, from the first packet until requests can be sent. It ends when its [`Connection::sender`] is
/// dropped.
pub(crate) async fn connect(
    address: &Address,
    tls: Option<&TlsConnector>,
    timeout: Duration,
) -> io::Result<Connection> {
    let opening = async {
        match &address.place {
            Place::Unix(path) => speak(UnixStream::connect(path).await?).await,
            Place::Tcp { host, port, .. } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                match tls {
                    None => speak(stream).await,
                    Some(tls) => {
                        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                        speak(tls.connect(name, stream).await?).await
                    }
                }
            }
        }
    };
    let late = |_| {
        let why = format!("no connection within {} s", timeout.as_secs_f32());
        io::Error::new(io::ErrorKind::TimedOut, why)
    };
    tokio::time::timeout(timeout, opening).await.map_err(late)?
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> io::Result<Connection> {
    let sending = Arc::new(Sending::default());
    let stream = Stream { stream, sending: sending.clone(), is_shut: false };
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Its failures reach whoever awaits an answer.
    tokio::spawn(async move { drop(connection.await) });
    Ok(Connection { sender, sending })
}

/// A stream whose sending side ends when it is told to.
struct Stream<S> {
    stream: S,
    sending: Arc<Sending>,
    is_shut: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            self.sending.waker.register(cx.waker());
            if self.sending.is_ended.load(Ordering::Acquire) {
                ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
                self.is_shut = true;
            }
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
