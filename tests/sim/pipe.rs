//! A stream between a broker and the network: what a socket would be.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::lock;

/// Both ends share it.
#[derive(Clone, Default)]
pub(crate) struct Pipe(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    sent: Vec<u8>,
    received: VecDeque<u8>,
    reader: Option<Waker>,
    /// The broker has dropped its end.
    is_left: bool,
    end: Option<End>,
}

/// How the network ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Reset,
}

impl Pipe {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut lock(&self.0))
    }

    /// The end that the broker reads from and writes to.
    pub(crate) fn broker_end(&self) -> BrokerEnd {
        BrokerEnd(self.clone())
    }

    /// What the broker has written since this was asked last.
    pub(crate) fn take_sent(&self) -> Vec<u8> {
        self.with(|state| std::mem::take(&mut state.sent))
    }

    pub(crate) fn is_left(&self) -> bool {
        self.with(|state| state.is_left)
    }

    /// Gives bytes to the broker, unless the stream has ended.
    pub(crate) fn deliver(&self, bytes: &[u8]) {
        self.with(|state| {
            if state.end.is_some() {
                return;
            }
            state.received.extend(bytes);
            state.reader.take().into_iter().for_each(Waker::wake);
        });
    }

    pub(crate) fn end(&self, end: End) {
        self.with(|state| {
            state.end.get_or_insert(end);
            state.reader.take().into_iter().for_each(Waker::wake);
        });
    }
}

pub(crate) struct BrokerEnd(Pipe);

impl AsyncRead for BrokerEnd {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.with(|state| {
            if !state.received.is_empty() {
                let count = buffer.remaining().min(state.received.len());
                let bytes: Vec<u8> = state.received.drain(..count).collect();
                buffer.put_slice(&bytes);
                return Poll::Ready(Ok(()));
            }
            match state.end {
                Some(End::Closed) => Poll::Ready(Ok(())),
                Some(End::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => {
                    state.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
    }
}

impl AsyncWrite for BrokerEnd {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.with(|state| match state.end {
            Some(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            None => {
                state.sent.extend(bytes);
                Poll::Ready(Ok(bytes.len()))
            }
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.with(|state| state.is_left = true);
        Poll::Ready(Ok(()))
    }
}

impl Drop for BrokerEnd {
    fn drop(&mut self) {
        self.0.with(|state| state.is_left = true);
    }
}
