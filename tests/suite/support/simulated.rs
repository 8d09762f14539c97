//! A simulated Redis in this process, behind the product's own client: no server, no socket. Its time is the system's.
//!
//! Nothing runs by itself: a key has expired when somebody asks for it, and a `WAIT` would wait for the next command.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use bytes::Bytes;
use dwell::app::engine::{Dialer, RedisOptions, Stream};
use dwell_simulated_redis::{Config, Server, SessionId, Time};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One without data and without an append-only file, as [`RedisServer::start`](super::RedisServer::start) starts one.
#[derive(Clone)]
pub(crate) struct SimulatedRedis(Arc<Mutex<State>>);

struct State {
    server: Server,
    /// Who waits for output.
    readers: BTreeMap<SessionId, Waker>,
}

impl SimulatedRedis {
    pub(crate) fn new() -> SimulatedRedis {
        let server = Server::new(Config { aof: None, ..Config::default() }, 1);
        SimulatedRedis(Arc::new(Mutex::new(State { server, readers: BTreeMap::new() })))
    }

    /// How a store finds it.
    pub(crate) fn options(&self) -> RedisOptions {
        let redis = self.clone();
        let dialer = Dialer::new(move |_, _| {
            let session = redis.lock().server.open(now());
            let connection = Connection { redis: redis.clone(), session, received: Bytes::new() };
            Box::pin(async move { Ok(Box::new(connection) as Box<dyn Stream>) })
        });
        RedisOptions { dialer: Some(dialer), ..RedisOptions::new("redis://simulated:6379") }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

struct Connection {
    redis: SimulatedRedis,
    session: SessionId,
    /// What it has received, and the store has not read yet.
    received: Bytes,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.received.is_empty() {
            let (redis, session) = (self.redis.clone(), self.session);
            let mut state = redis.lock();
            self.received = state.server.take_output(session).into();
            if self.received.is_empty() && !state.server.is_closed(session) {
                state.readers.insert(session, context.waker().clone());
                return Poll::Pending;
            }
        }
        let count = buffer.remaining().min(self.received.len());
        buffer.put_slice(&self.received.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.redis.lock();
        if state.server.is_closed(self.session) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let now = now();
        state.server.tick(now);
        state.server.receive(self.session, bytes, now);
        for session in state.server.take_ready() {
            state.readers.remove(&session).into_iter().for_each(Waker::wake);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.redis.lock().server.close(self.session);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.redis.lock().server.close(self.session);
    }
}
