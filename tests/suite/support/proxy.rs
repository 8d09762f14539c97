//! A proxy in front of a redis-server that does to requests and replies what a network may do to them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::redis::RedisServer;
use super::{World, eventually, failed, kind_of, resp, scratch};

/// A Unix socket of its own that leads to a redis-server, until somebody does something to the way.
pub(crate) struct Proxy {
    dir: TempDir,
    way: watch::Sender<Way>,
    shared: Arc<Shared>,
    _accepting: AbortOnDropHandle<()>,
}

/// Bytes of a read, at first.
const BUFFER: usize = 64 * 1024;

/// What happens to everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing.
    Pass,
    /// What a client sends arrives that much later, however much else it sends.
    Delay(Duration),
    /// Connections are closed, and new ones refused.
    Refuse,
    /// Connections stay open, and nothing gets through any more: not in this mode, and not after it.
    BlackHole,
}

/// What happens to one script call. All of them keep a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    /// The connection breaks before the call reaches Redis.
    Request,
    /// Redis applies the call, and the connection breaks before its reply.
    Reply,
    /// Redis applies the call, and before its reply connections are closed and refused, until another mode is set.
    Outage,
    /// Nothing: the call is only kept.
    Copy,
}

/// A script call as it was on the way.
#[derive(Debug, Clone)]
pub(crate) struct Kept(Vec<u8>);

impl Kept {
    /// Its words, as Redis reads them.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[derive(Debug, Clone, Copy)]
struct Way {
    mode: Mode,
    /// How many black holes there were. A connection that was in one never comes out.
    holes: u32,
    /// How many servers it has led to before this one.
    leads: u32,
}

/// A strike, and a text that the call has to contain.
type Aimed = (Strike, &'static str);

/// Every script call contains it.
const ANY: &str = "EVALSHA";

struct Shared {
    way: watch::Sender<Way>,
    server: Mutex<String>,
    strike: Mutex<Option<Aimed>>,
    /// Where the way leads after the next call that breaks before it reaches Redis.
    next_server: Mutex<Option<String>>,
    kept: Mutex<Vec<Kept>>,
}

impl Proxy {
    /// A proxy in front of a server.
    pub(crate) fn before(server: &RedisServer) -> Result<Proxy> {
        let (dir, way) = (scratch()?, watch::Sender::new(Way { mode: Mode::Pass, holes: 0, leads: 0 }));
        let (strike, kept, next_server) = (Mutex::default(), Mutex::default(), Mutex::default());
        let server = Mutex::new(server.socket());
        let shared = Arc::new(Shared { way: way.clone(), server, strike, next_server, kept });
        let socket = dir.path().join("proxy.sock");
        let listener = bind(&socket)?;
        let accepting = accept(listener, socket, shared.clone(), way.subscribe());
        Ok(Proxy { dir, way, shared, _accepting: AbortOnDropHandle::new(tokio::spawn(accepting)) })
    }

    /// Where a client finds it.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.dir.path().join("proxy.sock").display())
    }

    /// From now on.
    pub(crate) fn set(&self, mode: Mode) {
        set(&self.way, mode);
    }

    /// From now on the way leads to another server, and connections to the one before break.
    pub(crate) fn lead_to(&self, server: &RedisServer) {
        *lock(&self.shared.server) = server.socket();
        self.way.send_modify(|way| way.leads += 1);
    }

    /// Does this to the next call of a script that Redis knows.
    pub(crate) fn next(&self, strike: Strike) {
        self.next_with(strike, ANY);
    }

    /// Does this to the next call of a script that Redis knows and that contains a text, or to the next command of that name.
    pub(crate) fn next_with(&self, strike: Strike, text: &'static str) {
        *lock(&self.shared.strike) = Some((strike, text));
    }

    /// The next call of a script that contains a text breaks before it reaches Redis, and from then on the way leads to
    /// another server.
    pub(crate) fn next_leads_to(&self, server: &RedisServer, text: &'static str) {
        *lock(&self.shared.next_server) = Some(server.socket());
        self.next_with(Strike::Request, text);
    }

    /// Returns once connections are refused: a [`Strike::Outage`] has begun.
    pub(crate) async fn refuses(&self) -> Result<()> {
        let mut way = self.way.subscribe();
        eventually("connections are refused", async || Ok((way.borrow_and_update().mode == Mode::Refuse).then_some(())))
            .await
    }

    /// The call that was struck since this was asked last, which has to be one.
    pub(crate) fn struck(&self) -> Result<Kept> {
        let mut kept = lock(&self.shared.kept);
        match (kept.pop(), kept.is_empty(), *lock(&self.shared.strike)) {
            (Some(call), true, None) => Ok(call),
            other => Err(Error::bug(format!("not one call was struck: {other:?}"))),
        }
    }

    /// Delivers a call again, or at last, and returns what Redis answers.
    pub(crate) async fn deliver(&self, call: &Kept) -> Result<String> {
        let server = lock(&self.shared.server).clone();
        let mut server = connect(&server).await?;
        server.write_all(&call.0).await.map_err(failed("a late call"))?;
        let mut answer = Vec::new();
        while resp::frame(&answer).is_none() {
            if server.read_buf(&mut answer).await.map_err(failed("the answer to a late call"))? == 0 {
                return Err(Error::unavailable("Redis closed the connection"));
            }
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

fn bind(socket: &Path) -> Result<UnixListener> {
    UnixListener::bind(socket).map_err(failed("the socket of a proxy"))
}

async fn connect(server: &str) -> Result<UnixStream> {
    UnixStream::connect(server).await.map_err(failed("a connection to redis-server"))
}

fn set(way: &watch::Sender<Way>, mode: Mode) {
    way.send_modify(|way| {
        way.mode = mode;
        way.holes += u32::from(mode == Mode::BlackHole);
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts connections; while they are refused, nobody listens.
async fn accept(first: UnixListener, socket: std::path::PathBuf, shared: Arc<Shared>, mut way: watch::Receiver<Way>) {
    let mut connections = tokio::task::JoinSet::new();
    let mut listener = Some(first);
    loop {
        let refuses = way.borrow_and_update().mode == Mode::Refuse;
        match &listener {
            Some(_) if refuses => listener = None,
            None if !refuses => {
                // What is left of the socket has nobody behind it.
                let _ = std::fs::remove_file(&socket);
                listener = bind(&socket).ok();
            }
            _ => {}
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await.ok(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((client, _)) = accepted => {
                let (shared, way) = (shared.clone(), way.clone());
                connections.spawn(async move {
                    // A server that is gone is a connection that ends.
                    let server = lock(&shared.server).clone();
                    if let Ok(server) = connect(&server).await {
                        Wire::new(client, server, shared).run(way).await;
                    }
                });
            }
            changed = way.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection.
struct Wire {
    client: UnixStream,
    server: UnixStream,
    shared: Arc<Shared>,
    /// What the client sent that has not arrived, each with when it does.
    late: VecDeque<(Instant, Vec<u8>)>,
    requests: Vec<u8>,
    replies: Vec<u8>,
    /// For each request that was not answered, what its reply is to be lost by.
    unanswered: VecDeque<Option<Aimed>>,
}

/// Why a connection ends.
struct End;

impl<E: std::error::Error> From<E> for End {
    fn from(_: E) -> End {
        End
    }
}

impl Wire {
    fn new(client: UnixStream, server: UnixStream, shared: Arc<Shared>) -> Wire {
        let (requests, replies) = (Vec::with_capacity(BUFFER), Vec::with_capacity(BUFFER));
        Wire { client, server, shared, late: VecDeque::new(), requests, replies, unanswered: VecDeque::new() }
    }

    /// Carries bytes both ways until one side closes or the way does.
    async fn run(mut self, mut way: watch::Receiver<Way>) {
        let Way { holes: born, leads: to, .. } = *way.borrow_and_update();
        loop {
            let Way { mode, holes, leads } = *way.borrow_and_update();
            if mode == Mode::Refuse || leads != to {
                return;
            }
            if mode == Mode::BlackHole || holes != born {
                if way.wait_for(|way| way.mode == Mode::Refuse).await.is_err() {
                    std::future::pending::<()>().await;
                }
                return;
            }
            let mut sent = Vec::with_capacity(BUFFER);
            let carried = tokio::select! {
                read = self.client.read_buf(&mut sent) => match read {
                    Ok(1..) => self.sends(mode, sent).await,
                    // What it sent before it went arrives.
                    _ => return self.all_arrives().await,
                },
                () = arrival(&self.late) => self.arrives().await,
                read = self.server.read_buf(&mut self.replies) => match read {
                    Ok(1..) => self.replies().await,
                    _ => return,
                },
                changed = way.changed() => changed.map_err(End::from),
            };
            if carried.is_err() {
                return;
            }
        }
    }

    /// What the client sends is on its way, behind what it sent before.
    async fn sends(&mut self, mode: Mode, sent: Vec<u8>) -> Result<(), End> {
        let delay = if let Mode::Delay(delay) = mode { delay } else { Duration::ZERO };
        if delay.is_zero() && self.late.is_empty() {
            self.requests.extend(sent);
            return self.requests().await;
        }
        let before = self.late.back().map(|(at, _)| *at);
        let at = Instant::now() + delay;
        self.late.push_back((before.map_or(at, |before| before.max(at)), sent));
        Ok(())
    }

    /// The first of what is late is there.
    async fn arrives(&mut self) -> Result<(), End> {
        if let Some((_, sent)) = self.late.pop_front() {
            self.requests.extend(sent);
        }
        self.requests().await
    }

    async fn all_arrives(&mut self) {
        while !self.late.is_empty() {
            arrival(&self.late).await;
            if self.arrives().await.is_err() {
                return;
            }
        }
    }

    async fn requests(&mut self) -> Result<(), End> {
        while let Some(length) = resp::frame(&self.requests) {
            let request: Vec<u8> = self.requests.drain(..length).collect();
            let is_script = request.windows(ANY.len()).take(24).any(|word| word == ANY.as_bytes());
            let contains = |text: &str| request.windows(text.len()).any(|word| word == text.as_bytes());
            let is_command = |text: &str| request.windows(text.len()).take(12).any(|word| word == text.as_bytes());
            let aimed =
                lock(&self.shared.strike).take_if(|(_, text)| is_command(text) || (is_script && contains(text)));
            if aimed.is_some() {
                lock(&self.shared.kept).push(Kept(request.clone()));
            }
            if aimed.is_some_and(|(strike, _)| strike == Strike::Request) {
                if let Some(next) = lock(&self.shared.next_server).take() {
                    *lock(&self.shared.server) = next;
                    self.shared.way.send_modify(|way| way.leads += 1);
                }
                return Err(End);
            }
            self.unanswered.push_back(aimed.filter(|(strike, _)| matches!(strike, Strike::Reply | Strike::Outage)));
            self.server.write_all(&request).await?;
        }
        Ok(())
    }

    async fn replies(&mut self) -> Result<(), End> {
        while let Some(length) = resp::frame(&self.replies) {
            let reply: Vec<u8> = self.replies.drain(..length).collect();
            if let Some(aimed) = self.unanswered.pop_front().flatten() {
                if !reply.starts_with(b"-NOSCRIPT") {
                    if aimed.0 == Strike::Outage {
                        set(&self.shared.way, Mode::Refuse);
                    }
                    return Err(End);
                }
                // Nothing was applied: the call comes again when Redis knows the script.
                lock(&self.shared.kept).pop();
                *lock(&self.shared.strike) = Some(aimed);
            }
            self.client.write_all(&reply).await?;
        }
        Ok(())
    }
}

/// Returns when the first of what is late is there.
async fn arrival(late: &VecDeque<(Instant, Vec<u8>)>) {
    match late.front() {
        Some((at, _)) => tokio::time::sleep_until(*at).await,
        None => std::future::pending().await,
    }
}

#[tokio::test]
async fn a_call_is_no_later_because_others_are() -> Result<()> {
    let server = RedisServer::start().await?;
    let proxy = Proxy::before(&server)?;
    let delay = Duration::from_secs(4);
    let store = World::redis_at(proxy.url(), 10 * delay).await?.store;
    proxy.set(Mode::Delay(delay));
    let second = async {
        tokio::time::sleep(delay / 4).await;
        let began = Instant::now();
        store.backend.ping().await?;
        Ok(began.elapsed())
    };
    let ((), took) = tokio::try_join!(store.backend.ping(), second)?;
    assert!((delay..delay * 3 / 2).contains(&took), "{took:?}");
    Ok(())
}

#[tokio::test]
async fn proxy_delays_refuses_and_black_holes() -> Result<()> {
    let server = RedisServer::start().await?;
    let proxy = Proxy::before(&server)?;
    let store = World::redis_at(proxy.url(), Duration::from_millis(200)).await?.store;
    let slow = Duration::from_millis(50);
    proxy.set(Mode::Delay(slow));
    let began = std::time::Instant::now();
    store.backend.ping().await?;
    assert!(began.elapsed() >= slow);
    proxy.set(Mode::Refuse);
    assert!(store.backend.ping().await.is_err());
    assert_eq!(kind_of(store.backend.ping().await), Some(Kind::Unavailable));
    proxy.set(Mode::Pass);
    eventually("the way is open", async || Ok(store.backend.ping().await.ok())).await?;
    proxy.set(Mode::BlackHole);
    proxy.set(Mode::Pass);
    // The connection that was in the hole is half open, until the third timeout.
    for _ in 0..3 {
        assert_eq!(kind_of(store.backend.ping().await), Some(Kind::OutcomeUnknown));
    }
    store.backend.ping().await
}
