//! Where deliveries come from: one request after the other, or one stream.

use std::time::Duration;

use super::RETRY_AFTER_MS;
use crate::cli::api::{Delivery, Reserve};
use crate::cli::client::{CallResult, Client, DeliveryStream, GroupOf};
use crate::cli::failure::Failure;
use crate::cli::output;
use crate::platform::clock::Clock;

/// How long one request waits for a delivery.
const WAIT: Duration = Duration::from_secs(30);

/// Takes deliveries of a group; a broker that is away for a while is waited for.
pub(super) struct Source {
    client: Client,
    of: GroupOf,
    visibility_timeout: Option<Duration>,
    min_age: Option<Duration>,
    clock: Clock,
    streams: bool,
    stream: Option<DeliveryStream>,
}

impl Source {
    pub(super) fn new(client: Client, of: GroupOf, visibility_timeout: Option<Duration>, streams: bool) -> Source {
        Source { client, of, visibility_timeout, min_age: None, clock: Clock::System, streams, stream: None }
    }

    /// Takes only messages that were pushed at least so long ago; not from a stream.
    pub(super) fn aged(mut self, min_age: Option<Duration>) -> Source {
        self.min_age = min_age;
        self
    }

    /// The next deliveries: at least one, and not more than `max` at a time.
    pub(super) async fn take(&mut self, max: usize) -> Result<Vec<Delivery>, Failure> {
        let mut waits = RETRY_AFTER_MS.map(Duration::from_millis).into_iter();
        let mut first = true;
        loop {
            let error = match self.ask(max).await {
                Ok(deliveries) if deliveries.is_empty() => continue,
                Ok(deliveries) => return Ok(deliveries),
                Err(error) => error,
            };
            match waits.next().filter(|_| error.is_passing()) {
                Some(wait) => {
                    if std::mem::take(&mut first) {
                        output::note(format_args!("{error}; trying again"));
                    }
                    self.clock.sleep(wait).await;
                }
                None => return Err(error.into()),
            }
        }
    }

    async fn ask(&mut self, max: usize) -> CallResult<Vec<Delivery>> {
        if !self.streams {
            let (visibility_timeout, min_age) = (self.visibility_timeout, self.min_age);
            let request = Reserve { max, wait: WAIT, visibility_timeout, min_age };
            return self.client.reserve(&self.of, &request).await;
        }
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.client.stream(&self.of, max, self.visibility_timeout).await?,
        };
        // A stream that fails or ends is not put back: the next one is another.
        let deliveries = stream.next().await?;
        self.stream = Some(stream);
        Ok(deliveries)
    }
}
