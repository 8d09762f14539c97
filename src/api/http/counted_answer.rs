//! Counts the bytes of an answer until its connection has sent them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::gate::{AnswerBudget, Held, Identity};
use crate::model::limits::ANSWER_UNCOUNTED_BYTES_MAX;

/// Counts an answer as `who`'s, unless it is small.
pub(crate) fn count(budget: &Arc<AnswerBudget>, who: &Identity, response: Response) -> Response {
    let size = response.body().size_hint().exact();
    if size.is_some_and(|size| size <= ANSWER_UNCOUNTED_BYTES_MAX as u64) {
        return response;
    }
    // A body of known size is in memory already.
    let held = size.and_then(|size| usize::try_from(size).ok()).map(|size| budget.take(who, size));
    let (budget, who) = (budget.clone(), who.clone());
    response.map(|body| Body::new(Counted { body, held, budget, who }))
}

/// A body whose pieces are counted. A connection keeps a piece until it is sent completely.
struct Counted {
    body: Body,
    held: Option<Held>,
    budget: Arc<AnswerBudget>,
    who: Identity,
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
            (None, size) => Bytes::from_owner(Piece { bytes, _held: self.budget.take(&self.who, size) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::response::IntoResponse as _;
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn chunk_is_counted_until_dropped_and_small_responses_never() -> Result<(), axum::Error> {
        let budget = AnswerBudget::new(1, Duration::ZERO);
        let is_held = || !budget.is_open();
        let small = count(&budget, &Identity::LOCAL, vec![0; ANSWER_UNCOUNTED_BYTES_MAX].into_response());
        let _small = small.into_body().collect().await?.to_bytes();
        assert!(!is_held());
        let mut large =
            count(&budget, &Identity::LOCAL, vec![0; ANSWER_UNCOUNTED_BYTES_MAX + 1].into_response()).into_body();
        assert!(is_held());
        let piece = large.frame().await.transpose()?;
        drop(large);
        assert!(is_held());
        drop(piece);
        assert!(!is_held());
        Ok(())
    }
}
