//! Timeouts of a connection: for headers, between requests, and for clients that do not read.
//!
//! hyper's header timer would count the silence before a header as a part of it.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_limit::{Reading, Slot};
use crate::gate::AnswerBudget;
use crate::model::limits::ANSWER_TIMEOUT_SCARCE;
use crate::platform::clock::{Clock, Instant};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// A connection is kept longer than announced: a request sent in the last moment is answered.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct KeepAlive<S> {
    stream: S,
    slot: Arc<Slot>,
    header_timeout: Duration,
    idle_timeout: Duration,
    clock: Clock,
    reading: Option<Reading>,
    has_begun: bool,
    deadline: Option<Instant>,
    timer: Option<Timer>,
    writes: WriteTimeout,
}

struct Timer {
    at: Instant,
    fires: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Timer {
    fn new(clock: &Clock, at: Instant) -> Timer {
        let clock = clock.clone();
        Timer { at, fires: Box::pin(async move { clock.sleep_until(at).await }) }
    }
}

impl<S> KeepAlive<S> {
    pub(super) fn new(
        stream: S,
        slot: Arc<Slot>,
        header_timeout: Duration,
        idle_timeout: Duration,
        clock: Clock,
        writes: WriteTimeout,
    ) -> KeepAlive<S> {
        let idle_timeout = idle_timeout + GRACE.min(idle_timeout);
        KeepAlive {
            stream,
            slot,
            header_timeout,
            idle_timeout,
            clock,
            reading: None,
            has_begun: false,
            deadline: None,
            timer: None,
            writes,
        }
    }

    /// Restarts the deadline when the connection has changed its stage since the last read.
    fn update_deadline(&mut self) {
        let reading = self.slot.reading();
        if self.reading == Some(reading) {
            return;
        }
        self.reading = Some(reading);
        self.has_begun = false;
        let timeout = match reading {
            Reading::FirstHeader => Some(self.header_timeout),
            Reading::NextHeader(_) => Some(self.idle_timeout),
            Reading::Other => None,
        };
        self.deadline = timeout.map(|timeout| self.clock.instant().plus(timeout));
    }

    fn on_bytes_read(&mut self) {
        if matches!(self.reading, Some(Reading::NextHeader(_))) && !self.has_begun {
            self.deadline = Some(self.clock.instant().plus(self.header_timeout));
        }
        self.has_begun = true;
    }

    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline else { return false };
        loop {
            // An early timer is kept: most deadlines are moved before they pass.
            let timer = match self.timer.take().filter(|timer| timer.at <= deadline) {
                Some(timer) => self.timer.insert(timer),
                None => self.timer.insert(Timer::new(&self.clock, deadline)),
            };
            if timer.fires.as_mut().poll(context).is_pending() {
                return false;
            }
            self.timer = None;
            if self.clock.instant() >= deadline {
                return true;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for KeepAlive<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        self.update_deadline();
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.on_bytes_read();
        }
        match read {
            Poll::Pending if self.is_over(context) => match self.has_begun {
                true => {
                    Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the rest of a header did not arrive in time")))
                }
                // As if the client had closed it: no request is cut.
                false => Poll::Ready(Ok(())),
            },
            read => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for KeepAlive<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.writes.enforce(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.writes.enforce(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.writes.enforce(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[derive(Debug, Clone)]
pub(super) struct KeepAliveHeader(Option<HeaderValue>);

impl KeepAliveHeader {
    pub(super) fn new(idle_timeout: Duration) -> KeepAliveHeader {
        KeepAliveHeader(HeaderValue::try_from(format!("timeout={}", idle_timeout.as_secs())).ok())
    }

    /// Announces nothing if the connection ends with the answer.
    pub(super) fn to(&self, version: Version, request: &HeaderMap) -> KeepAliveHeader {
        let stays = version == Version::HTTP_11 && !closes(request);
        KeepAliveHeader(self.0.clone().filter(|_| stays))
    }

    pub(super) fn write(self, answer: &mut HeaderMap) {
        let Some(value) = self.0.filter(|_| !answer.contains_key(CONNECTION)) else { return };
        answer.insert(KEEP_ALIVE, value);
    }
}

fn closes(headers: &HeaderMap) -> bool {
    let options = headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    options.into_iter().any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// Ends a connection whose client does not read for too long. Without this, a client could keep as many answers in memory
/// as there may be connections. The timeout is shorter while there is no room for other answers.
pub(super) struct WriteTimeout {
    timeout: Duration,
    clock: Clock,
    answers: Arc<AnswerBudget>,
    stalled: Option<Stalled>,
}

struct Stalled {
    since: Instant,
    look: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Stalled {
    fn begin(clock: &Clock) -> Stalled {
        Stalled { since: clock.instant(), look: Stalled::next_look(clock) }
    }

    fn next_look(clock: &Clock) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let clock = clock.clone();
        Box::pin(async move { clock.sleep(ANSWER_TIMEOUT_SCARCE).await })
    }
}

impl WriteTimeout {
    pub(super) fn new(timeout: Duration, clock: Clock, answers: Arc<AnswerBudget>) -> WriteTimeout {
        WriteTimeout { timeout, clock, answers, stalled: None }
    }

    fn enforce<T>(&mut self, context: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Stalled::begin(&self.clock));
        loop {
            ready!(stalled.look.as_mut().poll(context));
            if !self.answers.is_open() || self.clock.instant().since(stalled.since) >= self.timeout {
                return Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client does not read its answer")));
            }
            stalled.look = Stalled::next_look(&self.clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::api::http::connection_limit::ConnectionLimiter;
    use crate::model::time::Timestamp;
    use crate::platform::clock::Manual;

    const HEADER: Duration = Duration::from_secs(5);
    const IDLE: Duration = Duration::from_secs(75);
    const PATIENCE: Duration = Duration::from_secs(60);
    const MOMENT: Duration = Duration::from_millis(1);

    fn kept(
        stream: DuplexStream,
        slot: &Arc<Slot>,
        time: &Manual,
        answers: Arc<AnswerBudget>,
    ) -> KeepAlive<DuplexStream> {
        let clock = Clock::Manual(time.clone());
        let writes = WriteTimeout::new(PATIENCE, clock.clone(), answers);
        KeepAlive::new(stream, slot.clone(), HEADER, IDLE, clock, writes)
    }

    macro_rules! read {
        ($stream:expr) => {
            match poll!(std::pin::pin!($stream.read(&mut [0; 64]))) {
                Poll::Ready(read) => Some(read.map_err(|error| error.kind())),
                Poll::Pending => None,
            }
        };
    }

    #[tokio::test]
    async fn keep_alive_timeout_is_long_and_header_timeout_short() -> Result<()> {
        let time = Manual::at(Timestamp::from_ms(1_000));
        let limiter = ConnectionLimiter::new(1);
        let occupied = limiter.enter(None).await;
        let slot = occupied.slot();
        let (mut client, broker) = duplex(64);
        let mut broker = kept(broker, slot, &time, AnswerBudget::new(1, PATIENCE));
        assert_eq!(read!(broker), None);
        time.advance(HEADER - MOMENT);
        client.write_all(b"POST").await?;
        assert_eq!(read!(broker), Some(Ok(4)));
        for _ in 0..3 {
            let active = slot.begin();
            assert!(active.is_some());
            assert_eq!(read!(broker), None);
            time.advance(10 * IDLE);
            assert_eq!(read!(broker), None);
            drop(active);
            assert_eq!(read!(broker), None);
            time.advance(IDLE);
            assert_eq!(read!(broker), None);
            client.write_all(b"PO").await?;
            assert_eq!(read!(broker), Some(Ok(2)));
            time.advance(HEADER - MOMENT);
            client.write_all(b"ST").await?;
            assert_eq!(read!(broker), Some(Ok(2)));
        }
        assert_eq!(read!(broker), None);
        time.advance(MOMENT);
        assert_eq!(read!(broker), Some(Err(ErrorKind::TimedOut)));
        Ok(())
    }

    #[tokio::test]
    async fn idle_connection_ends_as_on_client_close() {
        let time = Manual::at(Timestamp::from_ms(1_000));
        for is_first in [true, false] {
            let limiter = ConnectionLimiter::new(1);
            let occupied = limiter.enter(None).await;
            if !is_first {
                drop(occupied.slot().begin());
            }
            let (_client, broker) = duplex(64);
            let mut broker = kept(broker, occupied.slot(), &time, AnswerBudget::new(1, PATIENCE));
            assert_eq!(read!(broker), None);
            let timeout = if is_first { HEADER } else { IDLE + GRACE };
            time.advance(timeout - MOMENT);
            assert_eq!(read!(broker), None);
            time.advance(MOMENT);
            assert_eq!(read!(broker), Some(Ok(0)));
        }
    }

    #[tokio::test]
    async fn rest_of_a_refused_body_is_not_read_as_a_header() -> Result<()> {
        let time = Manual::at(Timestamp::from_ms(1_000));
        let limiter = ConnectionLimiter::new(1);
        let occupied = limiter.enter(None).await;
        let (mut client, broker) = duplex(64);
        let mut broker = kept(broker, occupied.slot(), &time, AnswerBudget::new(1, PATIENCE));
        drop(occupied.slot().begin());
        let body = occupied.slot().reads_body();
        for _ in 0..3 {
            client.write_all(b"more").await?;
            assert_eq!(read!(broker), Some(Ok(4)));
            time.advance(HEADER);
            assert_eq!(read!(broker), None);
        }
        drop(body);
        assert_eq!(read!(broker), None);
        time.advance(IDLE + GRACE);
        assert_eq!(read!(broker), Some(Ok(0)));
        Ok(())
    }

    #[test]
    fn keep_alive_header_only_on_persistent_connections() {
        let announced = |version, request: &'static str, answer: Option<&'static str>| {
            let given = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static(request))]);
            let mut headers = HeaderMap::new();
            headers.extend(answer.map(|value| (CONNECTION, HeaderValue::from_static(value))));
            KeepAliveHeader::new(IDLE).to(version, &given).write(&mut headers);
            headers.get(KEEP_ALIVE).map(|value| value.as_bytes().to_vec())
        };
        assert_eq!(announced(Version::HTTP_11, "", None), Some(b"timeout=75".to_vec()));
        assert_eq!(announced(Version::HTTP_11, "keep-alive", None), Some(b"timeout=75".to_vec()));
        assert_eq!(announced(Version::HTTP_11, "x, Close", None), None);
        assert_eq!(announced(Version::HTTP_11, "", Some("close")), None);
        assert_eq!(announced(Version::HTTP_10, "", None), None);
    }

    #[tokio::test]
    async fn slow_reader_is_kept_and_stalled_reader_is_closed() -> Result<()> {
        let time = Manual::at(Timestamp::from_ms(1_000));
        let occupied = ConnectionLimiter::new(1).enter(None).await;
        let (mut client, broker) = duplex(4);
        let answers = AnswerBudget::new(1, PATIENCE);
        let mut broker = kept(broker, occupied.slot(), &time, answers);
        broker.write_all(b"1234").await?;
        {
            let mut writing = std::pin::pin!(broker.write_all(b"56789abc"));
            for _ in 0..4 {
                assert!(poll!(writing.as_mut()).is_pending());
                time.advance(PATIENCE - Duration::from_millis(1));
                assert!(poll!(writing.as_mut()).is_pending());
                client.read_exact(&mut [0; 2]).await?;
            }
            writing.await?;
        }
        let mut writing = std::pin::pin!(broker.write_all(b"defgh"));
        assert!(poll!(writing.as_mut()).is_pending());
        time.advance(PATIENCE);
        assert_eq!(writing.await.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
        assert_eq!(client.read_u8().await?, b'9');
        Ok(())
    }

    #[tokio::test]
    async fn write_timeout_is_short_while_the_budget_is_exhausted() -> Result<()> {
        let time = Manual::at(Timestamp::from_ms(1_000));
        let occupied = ConnectionLimiter::new(1).enter(None).await;
        let answers = AnswerBudget::new(1, PATIENCE);
        let (_client, broker) = duplex(4);
        let mut broker = kept(broker, occupied.slot(), &time, answers.clone());
        let mut writing = std::pin::pin!(broker.write_all(b"12345"));
        assert!(poll!(writing.as_mut()).is_pending());
        time.advance(ANSWER_TIMEOUT_SCARCE);
        assert!(poll!(writing.as_mut()).is_pending());
        let _held = answers.take(&crate::gate::Identity::LOCAL, 1);
        assert!(poll!(writing.as_mut()).is_pending());
        time.advance(ANSWER_TIMEOUT_SCARCE);
        assert_eq!(writing.await.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
        Ok(())
    }
}
