//! Clients that close only their sending side. They still read (RFC 9112, 9.6), so a request that has arrived is answered.
//! Only a read that waits, which would take messages for nobody, treats its client as gone.
//!
//! hyper does not read while a request is answered, so [`Half::gone`] does. Not for requests that do not wait: what they
//! began is done and answered.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_limit::Slot;

/// Bytes behind a read that waits, up to which the end of the input is looked for: a request or two that follow it.
const EARLY_BYTES_MAX: usize = 4 * 1024;

/// The stream of a connection: for hyper, and for whoever looks whether the client is there.
pub(super) struct Half<S>(Arc<Mutex<Shared<S>>>);

impl<S> Clone for Half<S> {
    fn clone(&self) -> Half<S> {
        Half(self.0.clone())
    }
}

struct Shared<S> {
    stream: S,
    /// Of the next requests, which came while the last one waited; at most [`EARLY_BYTES_MAX`].
    early: VecDeque<u8>,
    has_ended: bool,
    /// The client does not read on: hyper has more to write. At an end of its input it would drop that.
    is_blocked: bool,
    /// hyper was not told of the end yet.
    is_held_back: bool,
}

impl<S> Half<S> {
    pub(super) fn new(stream: S) -> Half<S> {
        let (early, has_ended, is_blocked, is_held_back) = (VecDeque::new(), false, false, false);
        Half(Arc::new(Mutex::new(Shared { stream, early, has_ended, is_blocked, is_held_back })))
    }

    fn shared(&self) -> MutexGuard<'_, Shared<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + Unpin> Half<S> {
    /// Waits until the client has closed its sending side, or the connection, while a read of it waits. Poll it after the
    /// connection, each time.
    pub(super) async fn gone(&self, slot: &Slot) {
        poll_fn(|context| match slot.has_waiting_read() {
            true => self.shared().poll_gone(context),
            false => Poll::Pending,
        })
        .await;
    }
}

impl<S: AsyncRead + Unpin> Shared<S> {
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.early.len() < EARLY_BYTES_MAX {
            let mut some = [0; 256];
            let mut into = ReadBuf::new(&mut some);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut into));
            if read.is_err() || into.filled().is_empty() {
                return Poll::Ready(());
            }
            self.early.extend(into.filled());
        }
        Poll::Pending
    }

    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if !self.early.is_empty() {
            let count = self.early.len().min(into.remaining());
            self.early.drain(..count).for_each(|byte| into.put_slice(&[byte]));
            return Poll::Ready(Ok(()));
        }
        if !self.has_ended {
            let before = into.filled().len();
            match ready!(Pin::new(&mut self.stream).poll_read(context, into)) {
                Ok(()) if into.filled().len() > before => return Poll::Ready(Ok(())),
                // TLS without its goodbye. HTTP itself says where a request ends.
                Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Poll::Ready(Err(error)),
                Ok(()) | Err(_) => self.has_ended = true,
            }
        }
        self.is_held_back = self.is_blocked;
        if self.is_held_back { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl<S> Shared<S> {
    fn wrote<T>(&mut self, context: &Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        self.is_blocked = written.is_pending();
        if !self.is_blocked && std::mem::take(&mut self.is_held_back) {
            context.waker().wake_by_ref();
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Half<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        self.shared().poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Half<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let mut shared = self.shared();
        let written = Pin::new(&mut shared.stream).poll_write(context, bytes);
        shared.wrote(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let mut shared = self.shared();
        let written = Pin::new(&mut shared.stream).poll_write_vectored(context, parts);
        shared.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.shared().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut shared = self.shared();
        let flushed = Pin::new(&mut shared.stream).poll_flush(context);
        shared.wrote(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.shared().stream).poll_shutdown(context)
    }
}
