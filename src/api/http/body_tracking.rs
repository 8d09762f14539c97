//! Bodies that say how a request goes on: whether more of it is awaited, and when it was answered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::connection_limit::{BodyRead, Seat, Turn};
use crate::model::error::{Error, Result};

/// The body of a request.
pub(super) struct Request {
    body: Incoming,
    seat: Arc<Seat>,
    _read: BodyRead,
}

/// The body of an answer: the request is being answered until it is dropped.
pub(super) struct Answer<B> {
    body: B,
    _turn: Turn,
}

impl Request {
    pub(super) fn new(body: Incoming, seat: Arc<Seat>) -> Request {
        let read = seat.reads_body();
        Request { body, seat, _read: read }
    }
}

impl<B> Answer<B> {
    pub(super) fn new(body: B, turn: Turn) -> Answer<B> {
        turn.answers();
        Answer { body, _turn: turn }
    }
}

impl Body for Request {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            self.seat.awaits_body();
            return Poll::Pending;
        };
        if !self.seat.has_body() {
            return Poll::Ready(Some(Err(Error::unavailable("there are too many connections"))));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| Error::unavailable(error.to_string()))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
