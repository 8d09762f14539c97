//! Accepts connections, with a limit on their number and with timeouts, which `axum::serve` lacks.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::task::AtomicWaker;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connection_limit::{AnswerBody, Connection, ConnectionLimiter, Peer, RequestBody, Slot};
use super::half_close::Half;
use super::listen::{self, Listen, SocketMode, Tls};
use super::timeouts::{KeepAlive, KeepAliveHeader, WriteTimeout};
use crate::gate::AnswerBudget;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{
    ANSWER_TIMEOUT, CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_LINES_MAX, HEADER_TIMEOUT, IDLE_TIMEOUT,
};
use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;
use crate::platform::tasks::Tasks;
use crate::telemetry::metrics::Metrics;

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes of a body that are read at once, and of answers that are buffered. Headers have their own limit.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Time for an evicted connection to send what is written already.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Beyond it, a new connection evicts one that waits for its client.
    pub max: usize,
    pub header_timeout: Duration,
    pub idle_timeout: Duration,
    pub stop_timeout: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> ConnectionOptions {
        ConnectionOptions {
            max: CONNECTIONS_MAX,
            header_timeout: HEADER_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            stop_timeout: Duration::from_secs(5),
        }
    }
}

pub(super) struct ConnectionContext {
    pub(super) options: ConnectionOptions,
    pub(super) answers: Arc<AnswerBudget>,
    pub(super) peer: Option<Peer>,
}

#[derive(Debug, Clone)]
pub struct ListenerOptions {
    /// Whether other machines may reach it.
    pub beyond: bool,
    pub socket_mode: SocketMode,
    pub tls: Option<Tls>,
}

#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: Listen,
    tls: Option<Tls>,
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

impl Stream {
    /// One host of IPv6 has many addresses: they count as one, by their first half.
    fn peer(&self) -> Option<Peer> {
        let Stream::Tcp(stream) = self else { return None };
        Some(Peer(match stream.peer_addr().ok()?.ip().to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
            address @ IpAddr::V4(_) => address,
        }))
    }
}

impl Listener {
    /// # Errors: `Invalid` beyond loopback unless `beyond`, `Conflict` when the address is in use, `Unavailable` otherwise.
    pub async fn bind(listen: Listen, options: &ListenerOptions) -> Result<Listener> {
        let failed = |error: std::io::Error| {
            let kind = if error.kind() == ErrorKind::AddrInUse { Kind::Conflict } else { Kind::Unavailable };
            Error::new(kind, format!("cannot listen on {listen}: {error}"))
        };
        listen.check(options.beyond).map_err(|why| Error::invalid("listen", format!("{listen} {why}")))?;
        match &listen {
            Listen::Tcp(address) => {
                let socket = TcpListener::bind(address).await.map_err(failed)?;
                let address = Listen::Tcp(socket.local_addr().map_err(failed)?);
                Ok(Listener { socket: Socket::Tcp(socket), address, tls: options.tls.clone() })
            }
            Listen::Unix(path) => {
                let socket = listen::unix_socket(path, options.socket_mode).await.map_err(failed)?;
                Ok(Listener { socket: Socket::Unix(socket), address: listen, tls: None })
            }
        }
    }

    pub fn address(&self) -> &Listen {
        &self.address
    }

    /// Serves until `tasks` stop; every connection runs in `tasks` too.
    pub(crate) async fn serve(
        self,
        router: Router,
        answers: Arc<AnswerBudget>,
        options: ConnectionOptions,
        metrics: Arc<Metrics>,
        tasks: Tasks,
    ) {
        let stop = tasks.stopping();
        let (limiter, log_throttle) = (ConnectionLimiter::new(options.max), RepeatThrottle::default());
        let accept = async {
            loop {
                let stream = match self.accept().await {
                    Ok(stream) => stream,
                    Err(error) => {
                        if log_throttle.is_due(Clock::System.instant()) {
                            tracing::warn!(%error, "connection not taken");
                        }
                        recover(&error, &limiter).await;
                        continue;
                    }
                };
                let peer = stream.peer();
                let taken = limiter.enter(peer).await;
                let (router, metrics, stop) = (router.clone(), metrics.clone(), stop.clone());
                let context = ConnectionContext { options, answers: answers.clone(), peer };
                let tls = self.tls.clone();
                tasks.start(polled_again(async move {
                    metrics.http.connections.inc();
                    let slot = taken.slot();
                    match (stream, tls) {
                        (Stream::Tcp(stream), Some(tls)) => {
                            // Keeps the futures of other connections small.
                            Box::pin(encrypted(stream, &tls, router, context, slot, stop)).await;
                        }
                        (Stream::Tcp(stream), None) => connection(stream, router, context, slot, stop).await,
                        (Stream::Unix(stream), _) => connection(stream, router, context, slot, stop).await,
                    }
                    metrics.http.connections.dec();
                }));
            }
        };
        let _: Option<()> = stop.run_until_cancelled(accept).await;
    }

    async fn accept(&self) -> std::io::Result<Stream> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                // Answers are small, and clients wait for them.
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
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A slow handshake delays no other connection.
async fn encrypted(
    stream: TcpStream,
    tls: &Tls,
    router: Router,
    context: ConnectionContext,
    slot: &Arc<Slot>,
    stop: CancellationToken,
) {
    let shaken = tokio::select! {
        shaken = tls.accept(stream, context.options.header_timeout) => shaken,
        () = slot.evicted() => return tracing::debug!("a connection gave way to another one"),
        () = stop.cancelled() => return,
    };
    match shaken {
        Ok(stream) => connection(stream, router, context, slot, stop).await,
        Err(why) => tracing::debug!(why, "a TLS handshake failed"),
    }
}

/// Without file descriptors nothing can be accepted until another connection ends.
async fn recover(error: &std::io::Error, limiter: &ConnectionLimiter) {
    if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) {
        limiter.make_room();
        Clock::System.sleep(ACCEPT_PAUSE).await;
    }
}

async fn answer(
    router: TowerToHyperService<Router>,
    slot: Arc<Slot>,
    (keep_alive, peer): (KeepAliveHeader, Option<Peer>),
    mut request: Request<Incoming>,
) -> Result<Response<AnswerBody<Body>>> {
    let active = slot.begin().ok_or_else(|| Error::unavailable("the connection gave way to another one"))?;
    let keep_alive = keep_alive.to(request.version(), request.headers());
    request.extensions_mut().insert(Connection::new(&slot));
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer);
    }
    let request = request.map(|body| Body::new(RequestBody::new(body, slot)));
    let Ok(mut answered) = router.call(request).await;
    keep_alive.write(answered.headers_mut());
    Ok(answered.map(|body| AnswerBody::new(body, active)))
}

/// After `stop` it answers the current request, and no other.
pub(super) async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    ConnectionContext { options, answers, peer }: ConnectionContext,
    slot: &Arc<Slot>,
    stop: CancellationToken,
) {
    let router = TowerToHyperService::new(router);
    let keep_alive = KeepAliveHeader::new(options.idle_timeout);
    let service = service_fn(|request| answer(router.clone(), slot.clone(), (keep_alive.clone(), peer), request));
    let writes = WriteTimeout::new(ANSWER_TIMEOUT, Clock::System, answers);
    let stream =
        KeepAlive::new(stream, slot.clone(), options.header_timeout, options.idle_timeout, Clock::System, writes);
    let stream = Half::new(stream);
    let connection = http1::Builder::new()
        .half_close(true)
        .header_read_timeout(None)
        .max_buf_size(BUFFER_BYTES_MAX)
        .max_header_size(HEADER_BYTES_MAX)
        .max_headers(HEADER_LINES_MAX)
        .serve_connection(TokioIo::new(stream.clone()), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stream.gone(slot) => return tracing::debug!("the client of a waiting read has gone"),
        () = slot.evicted() => {
            // Every answer has been written; some of it may not be sent yet.
            connection.as_mut().graceful_shutdown();
            let _ = timeout(FLUSH_TIMEOUT, connection.as_mut()).await;
            return tracing::debug!("a connection gave way to another one");
        }
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match timeout(options.stop_timeout, connection.as_mut()).await {
                Ok(ended) => ended,
                Err(_) => return tracing::debug!("a request was not done when the listener stopped"),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Polls in a row: a future that always wakes itself must not keep a thread.
const POLLS_MAX: usize = 8;

const IDLE: u8 = 0;
const POLLED: u8 = 1;
const WOKEN: u8 = 2;

#[derive(Default)]
struct SelfWake {
    state: AtomicU8,
    outer: AtomicWaker,
}

impl Wake for SelfWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken = self.state.compare_exchange(POLLED, WOKEN, Ordering::SeqCst, Ordering::SeqCst);
        if woken == Err(IDLE) {
            self.outer.wake();
        }
    }
}

impl SelfWake {
    /// Whether the future was not woken during its poll. From now on wakes go to whoever polls it.
    fn rests(&self) -> bool {
        self.state.compare_exchange(POLLED, IDLE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Polls a future again at once when it wakes itself.
///
/// hyper wakes the future of its connection when a handler takes the body. tokio puts a future that was woken during its
/// poll behind the others, and wakes another thread for it, which costs as much as a small request.
fn polled_again<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    let own = Arc::new(SelfWake::default());
    let waker = Waker::from(own.clone());
    poll_fn(move |context| {
        own.outer.register(context.waker());
        for _ in 0..POLLS_MAX {
            own.state.store(POLLED, Ordering::SeqCst);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            if own.rests() {
                return Poll::Pending;
            }
        }
        own.state.store(IDLE, Ordering::SeqCst);
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

    const OPEN: ListenerOptions = ListenerOptions { beyond: false, socket_mode: SocketMode::PRIVATE, tls: None };

    #[tokio::test]
    async fn non_loopback_listener_is_refused_without_tokens() {
        let open = Listen::Tcp((Ipv4Addr::UNSPECIFIED, 0).into());
        let refused = Listener::bind(open, &OPEN).await.err();
        assert!(refused.is_some_and(|error| error.detail().contains("0.0.0.0:0 is reachable from other machines")));
    }

    #[tokio::test]
    async fn socket_is_removed_with_its_listener_and_has_one_owner() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("dwell.sock");
        let listen = Listen::Unix(path.clone());
        let first = Listener::bind(listen.clone(), &OPEN).await?;
        assert_eq!(Listener::bind(listen, &OPEN).await.err().map(|error| error.kind()), Some(Kind::Conflict));
        drop(first);
        assert!(!path.exists());
        Ok(())
    }

    async fn serving(options: ConnectionOptions) -> Result<(SocketAddr, Tasks)> {
        let listener = Listener::bind(Listen::ephemeral(), &OPEN).await?;
        let Listen::Tcp(address) = *listener.address() else { return Err(Error::bug("not TCP")) };
        let router = Router::new().route("/", axum::routing::get(async || "hello"));
        let (tasks, metrics) = (Tasks::new(), Arc::new(Metrics::new()?));
        let answers = AnswerBudget::new(1, Duration::ZERO);
        tasks.start(listener.serve(router, answers, options, metrics, tasks.clone()));
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
    async fn connection_without_a_complete_header_is_closed() -> Outcome {
        let short = Duration::from_millis(50);
        let options = ConnectionOptions { header_timeout: short, idle_timeout: short, ..ConnectionOptions::default() };
        let (address, tasks) = serving(options).await?;
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
    async fn stop_closes_idle_connections_at_once() -> Outcome {
        let hour = Duration::from_secs(3_600);
        let options = ConnectionOptions { idle_timeout: hour, stop_timeout: hour, ..ConnectionOptions::default() };
        let (address, tasks) = serving(options).await?;
        let mut idle = TcpStream::connect(address).await?;
        idle.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            idle.read_buf(&mut answer).await?;
        }
        timeout(Duration::from_secs(10), tasks.stop()).await?;
        assert_eq!(idle.read(&mut [0]).await?, 0);
        Ok(())
    }

    #[derive(Default)]
    struct Outer(AtomicUsize);

    impl Wake for Outer {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Outer {
        fn poll<F: Future>(self: &Arc<Self>, future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
            future.poll(&mut Context::from_waker(&Waker::from(self.clone())))
        }

        fn wakes(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// Wakes itself so often before it is done.
    fn waking_itself(mut times: usize) -> impl Future<Output = ()> {
        poll_fn(move |context| {
            if times == 0 {
                return Poll::Ready(());
            }
            times -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn self_waking_future_is_repolled_without_a_wakeup() {
        let outer = Arc::new(Outer::default());
        assert!(outer.poll(pin!(polled_again(waking_itself(POLLS_MAX - 1)))).is_ready());
        assert_eq!(outer.wakes(), 0);
    }

    #[test]
    fn always_ready_future_yields_to_others() {
        let outer = Arc::new(Outer::default());
        let mut future = pin!(polled_again(waking_itself(POLLS_MAX)));
        assert!(outer.poll(future.as_mut()).is_pending());
        assert_eq!(outer.wakes(), 1);
        assert!(outer.poll(future).is_ready());
    }

    #[test]
    fn wake_between_polls_wakes_the_polling_caller() {
        let (outer, (send, receive)) = (Arc::new(Outer::default()), tokio::sync::oneshot::channel());
        let mut future = pin!(polled_again(receive));
        assert!(outer.poll(future.as_mut()).is_pending());
        assert_eq!(outer.wakes(), 0);
        assert_eq!(send.send(7), Ok(()));
        assert_eq!(outer.wakes(), 1);
        assert_eq!(outer.poll(future), Poll::Ready(Ok(7)));
    }
}
