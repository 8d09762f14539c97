//! A connection whose client has to read: what it does not read for too long breaks the connection off. Else a client could
//! have as many answers kept in memory for ever as there may be connections. While there is no room for other answers the
//! wait is short.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::answer_budget::AnswerBudget;
use crate::model::limits::ANSWER_TIMEOUT_SCARCE;
use crate::platform::clock::{Clock, Instant};

/// A stream that waits so long for its reader, and no longer.
pub(super) struct WriteTimeout<S> {
    stream: S,
    patience: Duration,
    clock: Clock,
    answers: Arc<AnswerBudget>,
    /// While the reader is waited for.
    stalled: Option<Stalled>,
}

/// A wait for the reader.
struct Stalled {
    since: Instant,
    /// When to look whether it is too long.
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

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, patience: Duration, clock: Clock, answers: Arc<AnswerBudget>) -> WriteTimeout<S> {
        WriteTimeout { stream, patience, clock, answers, stalled: None }
    }

    /// What came of a write.
    fn judged<T>(&mut self, context: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Stalled::begin(&self.clock));
        loop {
            ready!(stalled.look.as_mut().poll(context));
            if !self.answers.has_room() || self.clock.instant().since(stalled.since) >= self.patience {
                return Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client does not read its answer")));
            }
            stalled.look = Stalled::next_look(&self.clock);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judged(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judged(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::model::time::Timestamp;
    use crate::platform::clock::Manual;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn who_reads_now_and_then_is_waited_for_and_who_does_not_is_not() -> Result<()> {
        let time = Manual::at(Timestamp::from_ms(1_000));
        let (mut client, broker) = duplex(4);
        let answers = AnswerBudget::new(1, PATIENCE);
        let mut broker = WriteTimeout::new(broker, PATIENCE, Clock::Manual(time.clone()), answers);
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
        // What was written before is there.
        assert_eq!(client.read_u8().await?, b'9');
        Ok(())
    }

    #[tokio::test]
    async fn while_there_is_no_room_for_other_answers_the_wait_is_short() -> Result<()> {
        let time = Manual::at(Timestamp::from_ms(1_000));
        let answers = AnswerBudget::new(1, PATIENCE);
        let (_client, broker) = duplex(4);
        let mut broker = WriteTimeout::new(broker, PATIENCE, Clock::Manual(time.clone()), answers.clone());
        let mut writing = std::pin::pin!(broker.write_all(b"12345"));
        assert!(poll!(writing.as_mut()).is_pending());
        time.advance(ANSWER_TIMEOUT_SCARCE);
        assert!(poll!(writing.as_mut()).is_pending());
        let _held = answers.take(1);
        assert!(poll!(writing.as_mut()).is_pending());
        time.advance(ANSWER_TIMEOUT_SCARCE);
        assert_eq!(writing.await.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
        Ok(())
    }
}
