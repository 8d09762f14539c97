//! A connection that is kept between two requests, for a while; a header that has begun has to arrive soon.
//!
//! The first header has to arrive soon after the connect. hyper's own timer would count the silence before a header as a part
//! of it.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_limit::{Reading, Seat};
use crate::platform::clock::{Clock, Instant};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// How much longer a connection is kept than announced: a request that a client sent in the last moment is answered.
const GRACE: Duration = Duration::from_secs(1);

/// A stream that ends when its client is silent for too long where a header is awaited.
pub(super) struct KeepAlive<S> {
    stream: S,
    seat: Arc<Seat>,
    header_timeout: Duration,
    idle_timeout: Duration,
    clock: Clock,
    /// What was awaited at the last read.
    reading: Option<Reading>,
    /// Whether a part of a header has arrived.
    has_begun: bool,
    /// When the stream ends unless something arrives.
    deadline: Option<Instant>,
    timer: Option<Timer>,
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
        seat: Arc<Seat>,
        header_timeout: Duration,
        idle_timeout: Duration,
        clock: Clock,
    ) -> KeepAlive<S> {
        let idle_timeout = idle_timeout + GRACE.min(idle_timeout);
        KeepAlive {
            stream,
            seat,
            header_timeout,
            idle_timeout,
            clock,
            reading: None,
            has_begun: false,
            deadline: None,
            timer: None,
        }
    }

    /// Begins to count anew when the connection does something else than at the last read.
    fn look(&mut self) {
        let reading = self.seat.reading();
        if self.reading == Some(reading) {
            return;
        }
        self.reading = Some(reading);
        self.has_begun = false;
        let patience = match reading {
            Reading::FirstHeader => Some(self.header_timeout),
            Reading::NextHeader(_) => Some(self.idle_timeout),
            Reading::Other => None,
        };
        self.deadline = patience.map(|patience| self.clock.instant().plus(patience));
    }

    /// Something arrived.
    fn hear(&mut self) {
        if matches!(self.reading, Some(Reading::NextHeader(_))) && !self.has_begun {
            self.deadline = Some(self.clock.instant().plus(self.header_timeout));
        }
        self.has_begun = true;
    }

    /// Whether it was silent for too long; if not, wakes when it will have been.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline else { return false };
        loop {
            // A timer that fires too early is kept: most deadlines are moved before they come.
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
        self.look();
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.hear();
        }
        match read {
            Poll::Pending if self.is_over(context) => match self.has_begun {
                true => {
                    Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the rest of a header did not arrive in time")))
                }
                // As if the client had closed it: nothing is cut.
                false => Poll::Ready(Ok(())),
            },
            read => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for KeepAlive<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Says in the headers of answers how long their connection is kept.
#[derive(Debug, Clone)]
pub(super) struct Announcement(Option<HeaderValue>);

impl Announcement {
    pub(super) fn new(idle_timeout: Duration) -> Announcement {
        Announcement(HeaderValue::try_from(format!("timeout={}", idle_timeout.as_secs())).ok())
    }

    /// What is announced to the client of a request: nothing if the connection ends with the answer.
    pub(super) fn to(&self, version: Version, request: &HeaderMap) -> Announcement {
        let stays = version == Version::HTTP_11 && !closes(request);
        Announcement(self.0.clone().filter(|_| stays))
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

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::api::http::connection_limit::ConnectionLimiter;
    use crate::model::time::Timestamp;
    use crate::platform::clock::Manual;

    const HEADER: Duration = Duration::from_secs(5);
    const IDLE: Duration = Duration::from_secs(75);
    const MOMENT: Duration = Duration::from_millis(1);

    /// Reads once; `None` while nothing arrives.
    macro_rules! read {
        ($stream:expr) => {
            match poll!(std::pin::pin!($stream.read(&mut [0; 64]))) {
                Poll::Ready(read) => Some(read.map_err(|error| error.kind())),
                Poll::Pending => None,
            }
        };
    }

    #[tokio::test]
    async fn silence_between_requests_is_long_and_a_header_is_short() -> Result<()> {
        let time = Manual::at(Timestamp::from_ms(1_000));
        let crowd = ConnectionLimiter::new(1);
        let taken = crowd.enter().await;
        let seat = taken.seat();
        let (mut client, broker) = duplex(64);
        let mut broker = KeepAlive::new(broker, seat.clone(), HEADER, IDLE, Clock::Manual(time.clone()));
        assert_eq!(read!(broker), None);
        time.advance(HEADER - MOMENT);
        client.write_all(b"POST").await?;
        assert_eq!(read!(broker), Some(Ok(4)));
        for _ in 0..3 {
            // While it is answered nothing is awaited.
            let turn = seat.begin();
            assert!(turn.is_some());
            assert_eq!(read!(broker), None);
            time.advance(10 * IDLE);
            assert_eq!(read!(broker), None);
            drop(turn);
            assert_eq!(read!(broker), None);
            time.advance(IDLE);
            assert_eq!(read!(broker), None);
            client.write_all(b"PO").await?;
            assert_eq!(read!(broker), Some(Ok(2)));
            time.advance(HEADER - MOMENT);
            client.write_all(b"ST").await?;
            assert_eq!(read!(broker), Some(Ok(2)));
        }
        // Drops of a header do not make it any longer.
        assert_eq!(read!(broker), None);
        time.advance(MOMENT);
        assert_eq!(read!(broker), Some(Err(ErrorKind::TimedOut)));
        Ok(())
    }

    #[tokio::test]
    async fn idle_connection_ends_as_if_its_client_had_closed_it() {
        let time = Manual::at(Timestamp::from_ms(1_000));
        for is_first in [true, false] {
            let crowd = ConnectionLimiter::new(1);
            let taken = crowd.enter().await;
            if !is_first {
                drop(taken.seat().begin());
            }
            let (_client, broker) = duplex(64);
            let mut broker = KeepAlive::new(broker, taken.seat().clone(), HEADER, IDLE, Clock::Manual(time.clone()));
            assert_eq!(read!(broker), None);
            let patience = if is_first { HEADER } else { IDLE + GRACE };
            time.advance(patience - MOMENT);
            assert_eq!(read!(broker), None);
            time.advance(MOMENT);
            assert_eq!(read!(broker), Some(Ok(0)));
        }
    }

    #[tokio::test]
    async fn rest_of_a_refused_body_is_no_header() -> Result<()> {
        let time = Manual::at(Timestamp::from_ms(1_000));
        let crowd = ConnectionLimiter::new(1);
        let taken = crowd.enter().await;
        let (mut client, broker) = duplex(64);
        let mut broker = KeepAlive::new(broker, taken.seat().clone(), HEADER, IDLE, Clock::Manual(time.clone()));
        drop(taken.seat().begin());
        let body = taken.seat().reads_body();
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
    fn only_a_connection_that_stays_is_announced() {
        let announced = |version, request: &'static str, answer: Option<&'static str>| {
            let given = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static(request))]);
            let mut headers = HeaderMap::new();
            headers.extend(answer.map(|value| (CONNECTION, HeaderValue::from_static(value))));
            Announcement::new(IDLE).to(version, &given).write(&mut headers);
            headers.get(KEEP_ALIVE).map(|value| value.as_bytes().to_vec())
        };
        assert_eq!(announced(Version::HTTP_11, "", None), Some(b"timeout=75".to_vec()));
        assert_eq!(announced(Version::HTTP_11, "keep-alive", None), Some(b"timeout=75".to_vec()));
        assert_eq!(announced(Version::HTTP_11, "x, Close", None), None);
        assert_eq!(announced(Version::HTTP_11, "", Some("close")), None);
        assert_eq!(announced(Version::HTTP_10, "", None), None);
    }
}
