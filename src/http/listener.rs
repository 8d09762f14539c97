//! The connections that come: bounded in number, and with time limits, which `axum::serve` lacks.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Listen;
use super::socket::{self, SocketMode};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::limits::{CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_LINES_MAX, HEADER_TIMEOUT};
use crate::metrics::Metrics;
use crate::seldom::Seldom;
use crate::tasks::Tasks;

/// How long to wait when a connection cannot be taken: the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How connections are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Open at the same time; one more waits in the kernel.
    pub max: usize,
    /// For a header to arrive.
    pub header_timeout: Duration,
    /// For requests that are being answered when the listener stops.
    pub stop_timeout: Duration,
}

impl Default for Connections {
    fn default() -> Connections {
        Connections { max: CONNECTIONS_MAX, header_timeout: HEADER_TIMEOUT, stop_timeout: Duration::from_secs(5) }
    }
}

/// How an address is opened.
#[derive(Debug, Clone)]
pub struct Door {
    /// Whether every request needs a token: then it may be open to other machines.
    pub asks: bool,
    /// Who may connect, if it is a Unix socket.
    pub socket_mode: SocketMode,
}

/// A bound address, not yet serving: who connects waits.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: Listen,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Binds an address.
    ///
    /// # Errors
    /// `Invalid` beyond loopback where nobody is asked for a token, `Conflict` when somebody listens there, `Unavailable` for other reasons.
    pub async fn bind(listen: Listen, door: &Door) -> Result<Listener> {
        let failed = |error: std::io::Error| {
            let kind = if error.kind() == ErrorKind::AddrInUse { Kind::Conflict } else { Kind::Unavailable };
            Error::new(kind, format!("cannot listen on {listen}: {error}"))
        };
        listen.check(door.asks).map_err(|why| Error::invalid("listen", format!("{listen} {why}")))?;
        match &listen {
            Listen::Tcp(address) => {
                let socket = TcpListener::bind(address).await.map_err(failed)?;
                let address = Listen::Tcp(socket.local_addr().map_err(failed)?);
                Ok(Listener { socket: Socket::Tcp(socket), address })
            }
            Listen::Unix(path) => {
                let socket = socket::listen(path, door.socket_mode).await.map_err(failed)?;
                Ok(Listener { socket: Socket::Unix(socket), address: listen })
            }
        }
    }

    /// Where it listens, with the port that it got.
    pub fn address(&self) -> &Listen {
        &self.address
    }

    /// Serves until `tasks` stop; every connection runs in `tasks` too.
    pub async fn serve(self, router: Router, how: Connections, metrics: Arc<Metrics>, tasks: Tasks) {
        let stop = tasks.stopping();
        let slots = Arc::new(Semaphore::new(how.max));
        let unsaid = Seldom::default();
        let accept = async {
            // Ends never: the semaphore is not closed.
            while let Ok(slot) = slots.clone().acquire_owned().await {
                let stream = match self.accept().await {
                    Ok(stream) => stream,
                    Err(error) => {
                        if unsaid.is_due(Clock::System.instant()) {
                            tracing::warn!(%error, "connection not taken");
                        }
                        Clock::System.sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                let (router, metrics, stop) = (router.clone(), metrics.clone(), stop.clone());
                tasks.start(async move {
                    metrics.http.connections.inc();
                    match stream {
                        Stream::Tcp(stream) => connection(stream, router, how, stop).await,
                        Stream::Unix(stream) => connection(stream, router, how, stop).await,
                    }
                    metrics.http.connections.dec();
                    drop(slot);
                });
            }
        };
        let _ = stop.run_until_cancelled(accept).await;
    }

    async fn accept(&self) -> std::io::Result<Stream> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                // Answers are small and waited for.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Socket::Unix(socket) => Ok(Stream::Unix(socket.accept().await?.0)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listen::Unix(path) = &self.address {
            // A file that stays behind is removed at the next start.
            let _ = socket::remove(path);
        }
    }
}

/// Serves one connection. After `stop` it answers the request that it has, and no other.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    how: Connections,
    stop: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(how.header_timeout)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_header_size(HEADER_BYTES_MAX)
        .max_headers(HEADER_LINES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match timeout(how.stop_timeout, connection.as_mut()).await {
                Ok(ended) => ended,
                Err(_) => return tracing::debug!("a request was not done when the listener stopped"),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

    const OPEN: Door = Door { asks: false, socket_mode: SocketMode::PRIVATE };

    #[tokio::test]
    async fn beyond_this_machine_is_refused_without_tokens() {
        let open = Listen::Tcp((Ipv4Addr::UNSPECIFIED, 0).into());
        let refused = Listener::bind(open, &OPEN).await.err();
        assert!(refused.is_some_and(|error| error.detail().contains("0.0.0.0:0 is reachable from other machines")));
    }

    #[tokio::test]
    async fn a_socket_is_gone_with_its_listener_and_belongs_to_one() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("dwell.sock");
        let listen = Listen::Unix(path.clone());
        let first = Listener::bind(listen.clone(), &OPEN).await?;
        assert_eq!(Listener::bind(listen, &OPEN).await.err().map(|error| error.kind()), Some(Kind::Conflict));
        drop(first);
        assert!(!path.exists());
        Ok(())
    }

    async fn serving(how: Connections) -> Result<(SocketAddr, Tasks)> {
        let listener = Listener::bind(Listen::ephemeral(), &OPEN).await?;
        let Listen::Tcp(address) = *listener.address() else { return Err(Error::bug("not TCP")) };
        let router = Router::new().route("/", axum::routing::get(async || "hello"));
        let (tasks, metrics) = (Tasks::new(), Arc::new(Metrics::new()?));
        tasks.start(listener.serve(router, how, metrics, tasks.clone()));
        Ok((address, tasks))
    }

    async fn send(address: SocketAddr, bytes: &[u8]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn who_sends_no_whole_header_is_closed() -> Outcome {
        let how = Connections { header_timeout: Duration::from_millis(50), ..Connections::default() };
        let (address, tasks) = serving(how).await?;
        assert_eq!(send(address, b"").await?, "");
        assert_eq!(send(address, b"GET / HTTP/1.1\r\nHost: localho").await?, "");
        assert!(send(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?.ends_with("hello"));
        assert!(send(address, b"\x00\xff garbage\r\n\r\n").await?.starts_with("HTTP/1.1 400"));
        let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(HEADER_BYTES_MAX));
        let refused = send(address, long.as_bytes()).await?;
        assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
        tasks.stop().await;
        assert!(TcpStream::connect(address).await.is_err());
        Ok(())
    }

    #[tokio::test]
    async fn one_connection_more_waits_until_another_ends() -> Outcome {
        let (address, tasks) = serving(Connections { max: 1, ..Connections::default() }).await?;
        let first = TcpStream::connect(address).await?;
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let second = send(address, request);
        let mut second = std::pin::pin!(second);
        assert!(timeout(Duration::from_millis(50), second.as_mut()).await.is_err());
        drop(first);
        assert!(second.await?.ends_with("hello"));
        tasks.stop().await;
        Ok(())
    }
}
