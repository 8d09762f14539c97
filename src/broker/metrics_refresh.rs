//! The metrics, as somebody looks at them. What a look cannot tell at once it sets off, for the next one; nothing is asked
//! of the store while nobody looks.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Broker;
use crate::model::error::Result;
use crate::platform::clock::Instant;

/// The shortest span from one question whether the store is there to the next.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// When somebody looked last.
#[derive(Debug)]
pub(super) struct Looks(watch::Sender<Option<Instant>>);

impl Default for Looks {
    fn default() -> Looks {
        Looks(watch::Sender::new(None))
    }
}

impl Looks {
    /// Changes with every look.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Instant>> {
        self.0.subscribe()
    }

    /// Notes a look, and answers when the one before was.
    fn note(&self, now: Instant) -> Option<Instant> {
        self.0.send_replace(Some(now))
    }
}

impl Broker {
    /// The metrics in the text format of Prometheus. Asks nobody.
    ///
    /// # Errors
    /// `Bug`.
    pub fn scrape(&self) -> Result<String> {
        let (metrics, now) = (&self.metrics, self.clock().instant());
        let before = self.looks.note(now);
        let vitals = self.store.backend.health_snapshot();
        metrics.store.breaker_open.set(i64::from(vitals.is_away));
        metrics.store.clock_offset.set(self.store.backend.clock().local_ahead_seconds());
        metrics.process.data_dir_free.set(vitals.free_bytes.map_or(f64::NAN, |bytes| bytes as f64));
        metrics.process.observe();
        let with_census = metrics.census.look(now, before);
        let text = metrics.text()?;
        // The process may have stood still just now, and another one counts.
        if with_census && !metrics.census.look(self.clock().instant(), before) {
            return metrics.text();
        }
        Ok(text)
    }

    /// Asks the store whether it is there, once and then after each look, until `stop`.
    pub(super) async fn watch_store(&self, stop: CancellationToken) {
        let mut looks = self.looks.subscribe();
        loop {
            let ask = async {
                let answer = self.store.backend.ping().await;
                self.metrics.store.up.set(i64::from(answer.is_ok()));
                self.clock().sleep(ASK_AGAIN).await;
                // The sender lives as long as the broker, so waiting cannot fail.
                let _ = looks.changed().await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = ask => {}
            }
        }
    }
}
