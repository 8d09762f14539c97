//! Streams to a Redis that are no sockets: those of a simulator.

use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// Carries the bytes of a connection in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

type Dial = dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync;

/// Opens streams to hosts and ports, where there is no TCP.
#[derive(Clone)]
pub struct Dialer(Arc<Dial>);

impl Dialer {
    /// `dial` gets the host and the port, and answers the opened stream. A connection waits for it as long as a call may take.
    pub fn new(
        dial: impl Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync + 'static,
    ) -> Dialer {
        Dialer(Arc::new(dial))
    }

    pub(super) async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        (self.0)(host.to_owned(), port).await
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

impl PartialEq for Dialer {
    fn eq(&self, other: &Dialer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Dialer {}
