//! Deliveries without a worker: reserved or streamed, and settled by their receipts. Nothing here extends a deadline by itself.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream::{BoxStream, Stream, StreamExt, unfold};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;

use super::error::Error;
use super::{Call, Client, Query, group_path};
use crate::wire::consume::{Deliveries, Delivery, Reserve};
use crate::wire::settle::{Ack, Extend, Nack, Release, Settled, Verdicts};
use crate::wire::time::show_span;

/// The broker writes an empty line after 15 seconds without a delivery.
const SILENCE: Duration = Duration::from_secs(30);

/// How to stream deliveries.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamOptions {
    max_in_flight: Option<usize>,
    visibility_timeout: Option<Duration>,
}

impl StreamOptions {
    /// Deliveries that are not settled yet, 1 to 1,000: no other comes before one of them is settled. Default 10.
    pub fn max_in_flight(mut self, deliveries: usize) -> StreamOptions {
        self.max_in_flight = Some(deliveries);
        self
    }

    /// How long the consumer has to settle each delivery. Default: the topic's.
    pub fn visibility_timeout(mut self, timeout: Duration) -> StreamOptions {
        self.visibility_timeout = Some(timeout);
        self
    }
}

impl Client {
    /// Takes deliveries of a group. Settle each with [`Client::ack`], [`Client::nack`] or [`Client::release`] before its deadline, or
    /// move the deadline with [`Client::extend`]; after it, the message is delivered again. If an answer is lost, its deliveries are
    /// delivered again, too. [`Worker`](crate::Worker) does all of this.
    ///
    /// ```no_run
    /// use dwell_client::{Ack, Reserve};
    /// use std::time::Duration;
    ///
    /// # async fn example(client: dwell_client::Client) -> Result<(), dwell_client::Error> {
    /// let reserved = client.reserve("orders", "default", Reserve::up_to(10).wait(Duration::from_secs(20))).await?;
    /// for delivery in reserved.deliveries {
    ///     println!("{}", delivery.contents.payload.unwrap_or_default());
    ///     client.ack("orders", "default", Ack::of([delivery.receipt])).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(&self, topic: &str, group: &str, reserve: Reserve) -> Result<Deliveries, Error> {
        let mut call = Call::post(format!("{}/reserve", group_path(topic, group)?)).json(&reserve)?;
        let wait = reserve.wait.or(reserve.wait_ms).unwrap_or_default();
        call.timeout = Some(wait + self.transport.timeout);
        self.call(&call).await
    }

    /// Settles deliveries: their messages are done. Answers a verdict for each receipt, in order, also when none counts.
    pub async fn ack(&self, topic: &str, group: &str, ack: Ack) -> Result<Vec<Settled>, Error> {
        self.settle(topic, group, "ack", &ack).await
    }

    /// Reports deliveries that failed: their messages are delivered again, or become dead letters. Answers a verdict for each receipt,
    /// in order, also when none counts.
    pub async fn nack(&self, topic: &str, group: &str, nack: Nack) -> Result<Vec<Settled>, Error> {
        self.settle(topic, group, "nack", &nack).await
    }

    /// Gives deliveries back that nobody has begun to handle: their messages are due again at once, and no attempt is counted. Answers a
    /// verdict for each receipt, in order, also when none counts.
    pub async fn release(&self, topic: &str, group: &str, release: Release) -> Result<Vec<Settled>, Error> {
        self.settle(topic, group, "release", &release).await
    }

    /// Moves the deadlines of deliveries. Answers a verdict for each receipt, in order, also when none counts.
    pub async fn extend(&self, topic: &str, group: &str, extend: Extend) -> Result<Vec<Settled>, Error> {
        self.settle(topic, group, "extend", &extend).await
    }

    async fn settle(&self, topic: &str, group: &str, verb: &str, body: &impl Serialize) -> Result<Vec<Settled>, Error> {
        let verdicts: Verdicts =
            self.call(&Call::post(format!("{}/{verb}", group_path(topic, group)?)).json(body)?).await?;
        Ok(verdicts.results)
    }

    /// Opens a stream of the deliveries of a group, over a connection that nothing else uses. Settle them as those of
    /// [`Client::reserve`]. The topic need not exist yet.
    pub async fn stream(&self, topic: &str, group: &str, options: StreamOptions) -> Result<DeliveryStream, Error> {
        let query = Query::default()
            .with("max_in_flight", options.max_in_flight)
            .with("visibility_timeout", options.visibility_timeout.map(show_span));
        let mut call = Call::post(format!("{}/stream{query}", group_path(topic, group)?));
        call.is_stream = true;
        let body = self.answer(&call).await?.stream;
        let lines = Lines { client: self.clone(), body, read: BytesMut::new() };
        Ok(DeliveryStream { deliveries: unfold(lines, Lines::next).boxed() })
    }
}

/// Deliveries as they come: a [`Stream`], which also has [`DeliveryStream::next`]. It ends when the broker ends it, and after an
/// error. When it is dropped, the broker gives back the deliveries that are not settled.
pub struct DeliveryStream {
    deliveries: BoxStream<'static, Result<Delivery, Error>>,
}

impl fmt::Debug for DeliveryStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeliveryStream")
    }
}

impl Stream for DeliveryStream {
    type Item = Result<Delivery, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.deliveries.poll_next_unpin(cx)
    }
}

impl DeliveryStream {
    /// The next delivery; `None` at the end. It loses none when it is dropped before.
    pub async fn next(&mut self) -> Option<Result<Delivery, Error>> {
        self.deliveries.next().await
    }
}

/// The lines of a body; no body at its end.
struct Lines {
    client: Client,
    body: Option<Incoming>,
    read: BytesMut,
}

impl Lines {
    async fn next(mut self) -> Option<(Result<Delivery, Error>, Lines)> {
        loop {
            while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end);
                self.read.advance(1);
                if line.is_empty() {
                    continue;
                }
                let read = serde_json::from_slice(&line);
                return Some((
                    self.ended_by(read, |client, error| client.transport.unreadable(error.to_string())),
                    self,
                ));
            }
            let chunk = match tokio::time::timeout(SILENCE, chunk(self.body.as_mut()?)).await {
                Ok(chunk) => chunk?,
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the stream is silent")),
            };
            match self.ended_by(chunk, |client, error| client.transport.broke_off(error)) {
                Ok(chunk) => self.read.extend_from_slice(&chunk),
                Err(error) => return Some((Err(error), self)),
            }
        }
    }

    /// An error is the last item.
    fn ended_by<T, E>(&mut self, read: Result<T, E>, error: impl Fn(&Client, E) -> Error) -> Result<T, Error> {
        if read.is_err() {
            (self.body, self.read) = (None, BytesMut::new());
        }
        read.map_err(|why| error(&self.client, why))
    }
}

async fn chunk(body: &mut Incoming) -> Option<io::Result<Bytes>> {
    let frame = body.frame().await?;
    Some(frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(io::Error::other))
}
