//! A memory budget, for the whole process, of answers that their clients have not read yet.
//!
//! Clients that send requests and do not read the answers could fill the memory. An answer that may become large waits
//! here for room before it reads anything from the store. Small answers are neither counted nor delayed.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::model::error::{Error, Kind, Result};
use crate::model::limits::ANSWER_UNCOUNTED_BYTES_MAX;

#[derive(Debug)]
pub(crate) struct AnswerBudget {
    max: usize,
    patience: Duration,
    held: AtomicUsize,
    freed: Notify,
}

#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<AnswerBudget>,
    bytes: usize,
}

impl AnswerBudget {
    pub(crate) fn new(max: usize, patience: Duration) -> Arc<AnswerBudget> {
        Arc::new(AnswerBudget { max, patience, held: AtomicUsize::new(0), freed: Notify::new() })
    }

    /// Waits for room, then takes so many bytes. An answer is admitted while there is room for a single byte, so the
    /// bytes held exceed the budget by less than the answer admitted last. # Errors: 503 `full` when there is no room
    /// in time.
    pub(crate) async fn admit(self: &Arc<Self>, bytes: usize) -> Result<Held> {
        let admitted = async {
            loop {
                match self.try_take(bytes) {
                    Some(held) => return held,
                    None => self.room().await,
                }
            }
        };
        timeout(self.patience, admitted).await.map_err(|_| no_room())
    }

    /// Polls `work` only while there is room. # Errors: 503 `full` when there is no room in time.
    pub(crate) async fn while_room<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let mut work = pin!(work);
        loop {
            timeout(self.patience, self.room()).await.map_err(|_| no_room())?;
            let step = |context: &mut Context<'_>| match self.has_room() {
                true => work.as_mut().poll(context).map(Some),
                false => Poll::Ready(None),
            };
            if let Some(done) = poll_fn(step).await {
                return Ok(done);
            }
        }
    }

    /// Takes so many bytes, whether there is room or not: they are in memory already.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Held {
        self.held.fetch_add(bytes, Ordering::SeqCst);
        Held { budget: self.clone(), bytes }
    }

    pub(crate) fn count(self: &Arc<Self>, response: Response) -> Response {
        let size = response.body().size_hint().exact();
        if size.is_some_and(|size| size <= ANSWER_UNCOUNTED_BYTES_MAX as u64) {
            return response;
        }
        // A body of known size is in memory already.
        let held = size.and_then(|size| usize::try_from(size).ok()).map(|size| self.take(size));
        let budget = self.clone();
        response.map(|body| Body::new(Counted { body, held, budget }))
    }

    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let more = |held: usize| (held < self.max).then_some(held.saturating_add(bytes));
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Held { budget: self.clone(), bytes })
    }

    pub(crate) fn has_room(&self) -> bool {
        self.held.load(Ordering::SeqCst) < self.max
    }

    async fn room(&self) {
        loop {
            // Listening begins before the check, so that no release is missed in between.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.has_room() {
                return;
            }
            freed.await;
        }
    }

    fn give_back(&self, bytes: usize) {
        let before = self.held.fetch_sub(bytes, Ordering::SeqCst);
        if before >= self.max && before - bytes < self.max {
            self.freed.notify_waiters();
        }
    }
}

impl Held {
    pub(crate) fn resize(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => {
                self.budget.held.fetch_add(more, Ordering::SeqCst);
            }
            None => self.budget.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

fn no_room() -> Error {
    Error::new(Kind::Full, "answers that their clients do not read take all the memory there is for answers")
}

/// A body whose pieces are counted. A connection keeps a piece until it is sent completely.
struct Counted {
    body: Body,
    held: Option<Held>,
    budget: Arc<AnswerBudget>,
}

struct Piece {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map_ok(|frame| frame.map_data(|bytes| self.count(bytes)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Counted {
    fn count(&mut self, bytes: Bytes) -> Bytes {
        match (self.held.take(), bytes.len()) {
            (Some(held), _) => Bytes::from_owner(Piece { bytes, _held: held }),
            (None, ..=ANSWER_UNCOUNTED_BYTES_MAX) => bytes,
            (None, size) => Bytes::from_owner(Piece { bytes, _held: self.budget.take(size) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use futures_util::poll;
    use http_body_util::BodyExt as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn response_waits_for_budget_and_is_refused_after_the_timeout() -> Result<()> {
        let budget = AnswerBudget::new(100, PATIENCE);
        let mut first = budget.admit(60).await?;
        let second = budget.admit(60).await?;
        assert_eq!(budget.admit(1).await.err().map(|error| error.kind()), Some(Kind::Full));
        let mut third = pin!(budget.admit(1));
        assert!(poll!(third.as_mut()).is_pending());
        first.resize(41);
        assert!(poll!(third.as_mut()).is_pending());
        first.resize(39);
        drop(third.await?);
        drop((first, second));
        assert_eq!(budget.held.load(Ordering::SeqCst), 0);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn no_work_starts_while_the_budget_is_exhausted() -> Result<()> {
        let budget = AnswerBudget::new(100, PATIENCE);
        let (done, is_done) = tokio::sync::oneshot::channel();
        let mut work = pin!(budget.while_room(is_done));
        assert!(poll!(work.as_mut()).is_pending());
        let held = budget.take(100);
        assert!(done.send(7).is_ok());
        assert!(poll!(work.as_mut()).is_pending());
        drop(held);
        assert_eq!(work.await?, Ok(7));
        let _held = budget.take(100);
        assert!(budget.while_room(async {}).await.is_err());
        Ok(())
    }

    #[tokio::test]
    async fn chunk_is_counted_until_dropped_and_small_responses_never() -> Result<(), axum::Error> {
        let budget = AnswerBudget::new(100, PATIENCE);
        let held = || budget.held.load(Ordering::SeqCst);
        let small = budget.count(vec![0; ANSWER_UNCOUNTED_BYTES_MAX].into_response());
        let _small = small.into_body().collect().await?.to_bytes();
        assert_eq!(held(), 0);
        let mut large = budget.count(vec![0; ANSWER_UNCOUNTED_BYTES_MAX + 1].into_response()).into_body();
        assert_eq!(held(), ANSWER_UNCOUNTED_BYTES_MAX + 1);
        let piece = large.frame().await.transpose()?;
        drop(large);
        assert_eq!(held(), ANSWER_UNCOUNTED_BYTES_MAX + 1);
        drop(piece);
        assert_eq!(held(), 0);
        Ok(())
    }
}
